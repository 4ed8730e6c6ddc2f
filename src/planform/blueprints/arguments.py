"""A phase's arguments as its function reads them: weakly, since every rendered template is a text.

`"3"` is a number and `"true"` a flag where one is asked for, a single value is a list of one, and a table may come as
a text of YAML or JSON. Whatever cannot be read so is an ArgumentInvalid that names function, version and argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from planform.apimachinery.yaml_loader import YamlError, load
from planform.blueprints.errors import ArgumentInvalid

_MISSING: Final = object()
_TRUE: Final = frozenset({"true", "t", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "f", "0", "no", "off", ""})


class Arguments(dict[str, Any]):
    """Rendered arguments by name. `of` is the function and version that reads them, for messages."""

    def __init__(self, values: Mapping[str, Any] | None = None, *, of: str = "") -> None:
        super().__init__(values or {})
        self.of = of

    def text(self, name: str, default: str | None = None) -> str:
        """A text; numbers and flags are written out. Without a default the argument has to be there."""
        value = self._given(name, default)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int | float):
            return str(value)
        raise self._wrong(name, "a text", value)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._given(name, default)
        if isinstance(value, str):
            try:
                return int(value.strip(), 10)
            except ValueError:
                raise self._wrong(name, "a whole number", value) from None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise self._wrong(name, "a whole number", value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._given(name, default)
        if isinstance(value, bool):
            return value
        word = str(value).strip().lower() if isinstance(value, str | int) else None
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise self._wrong(name, "true or false", value)

    def texts(self, name: str, default: Sequence[str] | None = None) -> list[str]:
        """A list of texts: a list, a text of YAML or JSON that is one, or a single value, which is a list of one."""
        value = self._given(name, default)
        if isinstance(value, str) and value.lstrip().startswith(("[", "- ")):
            value = self._loaded(name, value)
        entries = value if isinstance(value, list | tuple) else [value]
        return [Arguments({name: entry}, of=self.of).text(name) for entry in entries]

    def table(self, name: str, default: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A map, or a text of YAML or JSON that is one."""
        value = self._given(name, default)
        if isinstance(value, str):
            value = self._loaded(name, value)
        if isinstance(value, Mapping):
            return {str(key): each for key, each in value.items()}
        raise self._wrong(name, "a map", value)

    def _given(self, name: str, default: Any) -> Any:
        value = self.get(name, _MISSING)
        if value is _MISSING or value is None:
            if default is None:
                raise ArgumentInvalid(f'{self.of}: argument "{name}" is missing')
            return default
        return value

    def _loaded(self, name: str, text: str) -> Any:
        try:
            return load(text)
        except YamlError as error:
            raise ArgumentInvalid(f'{self.of}: argument "{name}" is neither YAML nor JSON: {error}') from error

    def _wrong(self, name: str, wanted: str, value: Any) -> ArgumentInvalid:
        shown = repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"
        return ArgumentInvalid(f'{self.of}: argument "{name}" must be {wanted}, not {shown[:80]}')


def argument_problems(
    of: str, names: Iterable[str], *, required: Collection[str], supported: Collection[str] | None
) -> list[str]:
    """What is wrong with a set of arguments; `supported` None takes any. Empty values count as given."""
    given = list(names)
    missing = [f'{of}: required argument "{name}" is missing' for name in sorted(set(required) - set(given))]
    if supported is None:
        return missing
    known = {*required, *supported}
    unknown = sorted(name for name in given if name not in known)
    listed = ", ".join(sorted(known)) or "none"
    return missing + [f'{of}: argument "{name}" is not supported (it takes: {listed})' for name in unknown]
