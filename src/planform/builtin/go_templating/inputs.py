"""The input of go-templating: where the templates are and how to read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from planform.apimachinery.names import invalid
from planform.builtin.inputs import InputError, InputObject, Part, convert_input, given_object, refuse_invalid, required
from planform.errors import FieldError

API_VERSION: Final = "gotemplating.fn.crossplane.io/v1beta1"
_JOINT: Final = "\n---\n"
_MISSING_KEY: Final = {
    "missingkey=default": "default",
    "missingkey=invalid": "default",
    "missingkey=zero": "zero",
    "missingkey=error": "error",
}
_UNSUPPORTED: Final = {
    "FileSystem": "a built-in function has no files of its own; give the templates inline or in the environment",
    "Remote": "a pipeline does not fetch its templates from other places; give them inline or in the environment",
}


class Inline(Part, frozen=True, kw_only=True):
    template: str = ""
    templates: tuple[str, ...] = ()


class FromEnvironment(Part, frozen=True, kw_only=True):
    key: str = ""


class FileSystem(Part, frozen=True, kw_only=True):
    dir_path: str = ""


class Delimiters(Part, frozen=True, kw_only=True):
    left: str = ""
    right: str = ""


class GoTemplate(InputObject, frozen=True, kw_only=True):
    source: str = ""
    inline: Inline | str | None = None
    environment: FromEnvironment | None = None
    file_system: FileSystem | None = None
    remote: str = ""
    delims: Delimiters = msgspec.field(default_factory=Delimiters)
    options: tuple[str, ...] = ()
    ttl: str = ""

    @property
    def inline_text(self) -> str:
        """All inline templates as one text; one on its own wins over a list."""
        if isinstance(self.inline, str):
            return self.inline
        if self.inline is None:
            return ""
        return self.inline.template or _JOINT.join(self.inline.templates)

    @property
    def delimiters(self) -> tuple[str, str]:
        """One alone does not count."""
        both = self.delims.left and self.delims.right
        return (self.delims.left, self.delims.right) if both else ("{{", "}}")

    @property
    def missing_key(self) -> str:
        return next((_MISSING_KEY[option] for option in reversed(self.options)), "default")


def read_input(value: Any) -> GoTemplate:
    """The input, checked. Raises InputError."""
    spec = convert_input(given_object(value), GoTemplate)
    if not spec.source:
        raise InputError("invalid function input: source is required: Inline or Environment")
    refuse_invalid(_errors(spec))
    return spec


def _errors(spec: GoTemplate) -> Iterator[FieldError]:
    match spec.source:
        case "Inline":
            if not spec.inline_text:
                yield required("inline.template", "a template, or a list of them as inline.templates")
        case "Environment":
            if spec.environment is None or not spec.environment.key:
                yield required("environment.key", "the key in the environment that holds the template")
        case "FileSystem" | "Remote" as elsewhere:
            yield invalid("source", elsewhere, f"is not supported: {_UNSUPPORTED[elsewhere]}")
        case other:
            yield invalid("source", other, "must be Inline or Environment")
    for index, option in enumerate(spec.options):
        if option not in _MISSING_KEY:
            yield invalid(
                f"options[{index}]", option, "must be missingkey=default, missingkey=zero or missingkey=error"
            )
