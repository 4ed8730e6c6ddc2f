"""Takes secret values out of what a run holds, before any of it is digested, queued or written.

Secret objects lose their values whatever these are. Every value of six characters or more that is known to be secret is
replaced wherever else it turns up, in its own spelling or in base64. Most parts hold none, and a search through the
bytes says so at once; only what has a hit is taken apart.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import orjson

from planform.apimachinery import last_applied
from planform.errors import PlanformError
from planform.telemetry.masking import MASK, MIN_LENGTH

_SECRET_KIND: Final = b'"kind":"Secret"'  # as canonical JSON spells it
_MIN_ENCODED_LENGTH: Final = 8


class RunMask:
    """What is secret in one run."""

    def __init__(self, secrets: Iterable[bytes], parts: Collection[bytes]) -> None:
        """`parts` are the values of the run as canonical JSON: Secrets among them add what they hold."""
        values, whole = set(secrets), b"\n".join(parts)  # one search through all is cheaper than one through each
        self._holders = {raw for raw in parts if _SECRET_KIND in raw} if _SECRET_KIND in whole else set()
        for raw in self._holders:
            values.update(values_within(orjson.loads(raw)))
        self._texts = sorted({text for value in values for text in _spellings(value)}, key=len, reverse=True)
        self._needles = [orjson.dumps(text)[1:-1] for text in self._texts]
        self._all_clean = not self._holders and not any(needle in whole for needle in self._needles)

    def part(self, raw: bytes) -> bytes:
        """One of the parts without secrets; most often the very same bytes."""
        return raw if self._all_clean else self.json(raw)

    def json(self, raw: bytes, *, keep: tuple[str, ...] = ()) -> bytes:
        """The same JSON without secrets. Fields in `keep` stay as they are."""
        if raw not in self._holders and not any(needle in raw for needle in self._needles):
            return raw
        value = orjson.loads(raw)
        masked = self._masked(value)
        masked |= {field: value[field] for field in keep if field in value}
        return orjson.dumps(masked, option=orjson.OPT_SORT_KEYS)

    def value(self, value: Any) -> Any:
        """A JSON value without secrets, its own or others'."""
        return self._masked(value)

    def text(self, text: str) -> str:
        """A text without secrets."""
        for secret in self._texts:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def _masked(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                masked = {self.text(key): self._masked(each) for key, each in value.items()}
                return masked | _without_values(masked) if _is_secret(value) else masked
            case list():
                return [self._masked(each) for each in value]
            case bool() | None:
                return value
            case _:
                return MASK if str(value) in self._texts else value


NOTHING_SECRET: Final = RunMask((), ())


def masked_error(error: PlanformError, mask: RunMask) -> PlanformError:
    """The same error, which from now on says nothing secret, nor do its causes."""
    if mask is NOTHING_SECRET:
        return error
    words = [mask.text(str(each)) for each in _with_causes(error)]
    if words == [str(each) for each in _with_causes(error)] and mask.text(error.hint or "") == (error.hint or ""):
        return error
    error.args = tuple(mask.text(each) if isinstance(each, str) else each for each in error.args)
    for name in ("detail", "details"):
        if value := getattr(error, name, None):
            setattr(error, name, mask.value(value))
    if error.hint is not None:
        error.hint = mask.text(error.hint)
    error.__cause__ = error.__context__ = None
    return error


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    rest: list[BaseException | None] = [error]
    while rest:
        each = rest.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            rest += [each.__cause__, each.__context__]


def values_of_secret(obj: dict[str, Any]) -> Iterator[bytes]:
    """What an object holds if it is a Secret."""
    if _is_secret(obj):
        for field in _filled(obj):
            for text in obj[field].values():
                if isinstance(text, str):
                    yield _decoded(text) if field == "data" else text.encode()


def values_within(value: Any) -> Iterator[bytes]:
    """What every Secret holds that the value is or has in it, as an object does that wraps manifests of others."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            yield from values_of_secret(each)
            rest += [member for member in each.values() if isinstance(member, (dict, list))]
        elif isinstance(each, list):
            rest += [member for member in each if isinstance(member, (dict, list))]


def _spellings(value: bytes) -> Iterator[str]:
    """How a secret value may be written down; none for one too short to be told from ordinary text."""
    for encoded in (b64encode(value).decode(), urlsafe_b64encode(value).decode()):
        if len(encoded) >= _MIN_ENCODED_LENGTH:
            yield encoded
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return
    for part in (text, *text.splitlines()):
        if len(part.strip()) >= MIN_LENGTH:
            yield part


def _without_values(secret: dict[str, Any]) -> dict[str, Any]:
    """The fields of a Secret that hold its values, also those that kubectl noted in an annotation."""
    masked: dict[str, Any] = {field: dict.fromkeys(secret[field], MASK) for field in _filled(secret)}
    metadata = secret.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(annotations, dict) and last_applied.ANNOTATION in annotations:
        masked["metadata"] = {**metadata, "annotations": {**annotations, last_applied.ANNOTATION: MASK}}
    return masked


def _is_secret(value: dict[str, Any]) -> bool:
    return value.get("kind") == "Secret" and value.get("apiVersion", "v1") == "v1"


def _filled(secret: dict[str, Any]) -> Iterator[str]:
    return (field for field in ("data", "stringData") if isinstance(secret.get(field), dict))


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()
