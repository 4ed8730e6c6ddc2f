"""Which names, labels, annotations, owners and finalizers the API accepts, and the names it makes up itself.

The `*_problems` functions answer with what is wrong with one text, in the words of a Kubernetes API server, and an
empty list when nothing is. `validate_metadata` puts them together for an object's metadata.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from planform.errors import FieldError

NameRule = Callable[[str], list[str]]
"""What is wrong with a name; kinds differ in the rule they choose."""

LABEL_LENGTH: Final = 63
SUBDOMAIN_LENGTH: Final = 253
KEY_LENGTH: Final = SUBDOMAIN_LENGTH + 1 + LABEL_LENGTH
ANNOTATIONS_SIZE: Final = 256 * 1024
"""Bytes of all keys and values of an object's annotations together."""

_GENERATED_LENGTH: Final = 5
_GENERATED_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_DIGEST_LENGTH: Final = 12
_UUID_RANDOM: Final = ~(0xF << 76 | 0xC << 60)  # all but the bits of version and variant
_UUID_4: Final = 0x4 << 76 | 0x8 << 60

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"

_label = re.compile(_LABEL).fullmatch
_subdomain = re.compile(_SUBDOMAIN).fullmatch
_label_1035 = re.compile(_LABEL_1035).fullmatch
_qualified = re.compile(_QUALIFIED).fullmatch
_label_value = re.compile(_LABEL_VALUE).fullmatch
_short_key = re.compile(f"({_SUBDOMAIN}/)?{_QUALIFIED}").fullmatch

_WRONG_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    f" end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_WRONG_LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    f" an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_WRONG_LABEL_1035: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character"
    f" (e.g. 'my-name',  or 'abc-123', regex used for validation is '{_LABEL_1035}')"
)
_WRONG_QUALIFIED: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    f" (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_WRONG_LABEL_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character"
    f" (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_LABEL_VALUE}')"
)


def subdomain_problems(text: str) -> list[str]:
    """The rule for most object names: a DNS-1123 subdomain of at most 253 bytes."""
    return _problems(text, _subdomain, SUBDOMAIN_LENGTH, _WRONG_SUBDOMAIN)


def label_problems(text: str) -> list[str]:
    """The rule for namespaces: a DNS-1123 label of at most 63 bytes, so no dots."""
    return _problems(text, _label, LABEL_LENGTH, _WRONG_LABEL)


def label_1035_problems(text: str) -> list[str]:
    """The rule for services: a DNS-1035 label, which starts with a letter."""
    return _problems(text, _label_1035, LABEL_LENGTH, _WRONG_LABEL_1035)


def path_segment_problems(text: str) -> list[str]:
    """The rule for RBAC kinds, whose names may hold colons: whatever can stand between two slashes of a URL."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in text]


def qualified_name_problems(text: str) -> list[str]:
    """The rule for label keys and finalizers: a name of at most 63 bytes, perhaps behind a DNS prefix and a slash."""
    if len(text) <= LABEL_LENGTH and _short_key(text):
        return []
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        optional_prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_WRONG_QUALIFIED} {optional_prefix}"]
    problems = []
    if slash:
        prefix_problems = subdomain_problems(prefix) if prefix else ["must be non-empty"]
        problems = [f"prefix part {problem}" for problem in prefix_problems]
    if not name:
        problems.append("name part must be non-empty")
    return problems + [
        f"name part {problem}" for problem in _problems(name, _qualified, LABEL_LENGTH, _WRONG_QUALIFIED)
    ]


def label_value_problems(text: str) -> list[str]:
    """The rule for the values of labels: at most 63 bytes, perhaps none."""
    return _problems(text, _label_value, LABEL_LENGTH, _WRONG_LABEL_VALUE)


def annotation_key_problems(text: str) -> list[str]:
    """As for label keys, but capital letters may also stand in the prefix."""
    return qualified_name_problems(text.lower())


def generate_name(base: str, rng: random.Random) -> str:
    """`generateName` made a name: the base, cut so that five random characters still fit into a label."""
    suffix = "".join(rng.choices(_GENERATED_ALPHABET, k=_GENERATED_LENGTH))
    return base[: LABEL_LENGTH - _GENERATED_LENGTH] + suffix


def new_uid(rng: random.Random) -> str:
    """A random UUID, version 4, as text."""
    digits = f"{rng.getrandbits(128) & _UUID_RANDOM | _UUID_4:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def child_name(parent: str, *identity: str, limit: int = LABEL_LENGTH) -> str:
    """The name of what `parent` owns under `identity` (its uid, then the child's key): the same whenever it is asked.

    The name is the parent's, one hyphen, and twelve hex digits of the identity's SHA-256; a crash between naming and
    creating therefore leads to the same name again instead of to a second child.
    """
    digest = hashlib.sha256("".join(identity).encode()).hexdigest()[:_DIGEST_LENGTH]
    head = parent[: limit - _DIGEST_LENGTH - 1].rstrip("-.")
    return f"{head}-{digest}" if head else digest


def validate_metadata(
    metadata: Mapping[str, Any],
    *,
    namespaced: bool,
    name_rule: NameRule = subdomain_problems,
    bare_finalizers: bool = True,
) -> list[FieldError]:
    """Everything that is wrong with an object's metadata, in the order an API server reports it.

    `bare_finalizers` says whether a finalizer may have no domain: built-in kinds allow only the standard ones.
    """
    if _is_plainly_valid(metadata, namespaced, name_rule, bare_finalizers):
        return []
    return [
        *_name_errors(metadata, name_rule),
        *_namespace_errors(metadata, namespaced),
        *_label_errors(metadata),
        *_annotation_errors(metadata),
        *_owner_errors(metadata),
        *_finalizer_errors(metadata, bare_finalizers),
    ]


def _is_plainly_valid(
    metadata: Mapping[str, Any], namespaced: bool, name_rule: NameRule, bare_finalizers: bool
) -> bool:
    """The common case, quickly: all is good, with at most one owner and no finalizer that Kubernetes knows."""
    name, namespace = metadata.get("name"), metadata.get("namespace", "")
    if type(name) is not str or not name or name_rule(name) or type(namespace) is not str:
        return False
    if bool(namespace) is not namespaced or (namespace and not _is_label(namespace)):
        return False
    return (
        ("generateName" not in metadata or _is_plain_prefix(metadata["generateName"], name_rule))
        and ("labels" not in metadata or _are_plain_labels(metadata["labels"]))
        and ("annotations" not in metadata or _are_plain_annotations(metadata["annotations"]))
        and ("ownerReferences" not in metadata or _is_plain_owner(metadata["ownerReferences"]))
        and ("finalizers" not in metadata or _are_plain_finalizers(metadata["finalizers"], bare_finalizers))
    )


def _is_plain_prefix(prefix: Any, name_rule: NameRule) -> bool:
    return type(prefix) is str and bool(prefix) and not name_rule(_without_hyphen(prefix))


def _are_plain_labels(labels: Any) -> bool:
    if type(labels) is not dict:
        return False
    for key, value in labels.items():
        if type(value) is not str or len(value) > LABEL_LENGTH or not _label_value(value) or not _is_key(key):
            return False
    return True


def _are_plain_annotations(annotations: Any) -> bool:
    if type(annotations) is not dict:
        return False
    length = 0
    for key, value in annotations.items():
        if type(value) is not str or not _is_annotation_key(key):
            return False
        length += len(key) + len(value)
    return 4 * length <= ANNOTATIONS_SIZE  # no character takes more than four bytes


def _is_plain_owner(owners: Any) -> bool:
    if type(owners) is not list or len(owners) != 1 or type(owners[0]) is not dict:
        return False
    owner = owners[0]
    for member in _OWNER_MEMBERS:
        value = owner.get(member)
        if type(value) is not str or not value:
            return False
    return bool(owner["kind"] != "Event")


def _are_plain_finalizers(finalizers: Any, bare_finalizers: bool) -> bool:
    if type(finalizers) is not list:
        return False
    for finalizer in finalizers:
        if type(finalizer) is not str or finalizer in _STANDARD_FINALIZERS or not _is_key(finalizer):
            return False
        if not bare_finalizers and "/" not in finalizer:
            return False
    return True


def _remembered(problems: NameRule, limit: int) -> Callable[[str], bool]:
    """Whether a text has no problems. The same few come again and again; one above the limit is not worth the room."""
    is_good = lru_cache(maxsize=4096)(lambda text: not problems(text))
    return lambda text: len(text) <= limit and is_good(text)


_is_label = _remembered(label_problems, LABEL_LENGTH)
_is_key = _remembered(qualified_name_problems, KEY_LENGTH)
_is_annotation_key = _remembered(annotation_key_problems, KEY_LENGTH)


def metadata_warnings(metadata: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[str]:
    """What is accepted but unwise: new finalizers without a domain, an owner named twice."""
    if "finalizers" not in metadata and "ownerReferences" not in metadata:
        return []
    known = (before or {}).get("finalizers") or ()
    warnings = [
        f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name including a path (/) to avoid'
        " accidental conflicts with other finalizer writers"
        for finalizer in metadata.get("finalizers") or ()
        if isinstance(finalizer, str)
        and "/" not in finalizer
        and finalizer not in _STANDARD_FINALIZERS
        and finalizer not in known
    ]
    references = metadata.get("ownerReferences") or ()
    if len(references) < 2:
        return warnings
    owners = [owner.get("uid") for owner in references if isinstance(owner, Mapping)]
    counts = Counter(uid for uid in owners if isinstance(uid, str) and uid)
    if twice := sorted(uid for uid, count in counts.items() if count > 1):
        uids = ", ".join(twice)
        warnings.append(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may"
            f" reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
        )
    return warnings


def invalid(field: str, value: object, problem: str) -> FieldError:
    """`field: Invalid value: "value": problem`; values that are not texts are shown as JSON."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {json.dumps(value, ensure_ascii=False)}: {problem}")


_OWNER_MEMBERS: Final = ("apiVersion", "kind", "name", "uid")
_STANDARD_FINALIZERS: Final = frozenset({"foregroundDeletion", "orphan", "kubernetes"})


def _problems(text: str, fits: Callable[[str], object], limit: int, wrong: str) -> list[str]:
    # What fits a pattern is ASCII, so its characters are its bytes.
    if fits(text):
        return [] if len(text) <= limit else _too_long(text, limit)
    return [*_too_long(text, limit), wrong]


def _too_long(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} bytes"] if len(text.encode("utf-8", "surrogatepass")) > limit else []


def _name_errors(metadata: Mapping[str, Any], name_rule: NameRule) -> Iterator[FieldError]:
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    for field, text in (("metadata.name", name), ("metadata.generateName", prefix)):
        if not isinstance(text, str):
            yield _wrong_type(field, text, "string")
            return
    for problem in name_rule(_without_hyphen(prefix)) if prefix else ():
        yield invalid("metadata.generateName", prefix, problem)
    if not name:
        yield FieldError("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
        return
    for problem in name_rule(name):
        yield invalid("metadata.name", name, problem)


def _without_hyphen(prefix: str) -> str:
    """A prefix as its name's rule must take it: it may end in a hyphen, which no name may, since more is to follow."""
    return prefix[:-1] + "a" if prefix.endswith("-") else prefix


def _namespace_errors(metadata: Mapping[str, Any], namespaced: bool) -> Iterator[FieldError]:
    namespace = metadata.get("namespace") or ""
    if not isinstance(namespace, str):
        yield _wrong_type("metadata.namespace", namespace, "string")
    elif not namespaced and namespace:
        yield FieldError("metadata.namespace", "FieldValueForbidden", "Forbidden: not allowed on this type")
    elif namespaced and not namespace:
        yield FieldError("metadata.namespace", "FieldValueRequired", "Required value")
    elif namespaced:
        for problem in label_problems(namespace):
            yield invalid("metadata.namespace", namespace, problem)


def _label_errors(metadata: Mapping[str, Any]) -> Iterator[FieldError]:
    labels, errors = _texts(metadata, "labels")
    yield from errors
    for key, value in labels.items():
        for problem in qualified_name_problems(key):
            yield invalid("metadata.labels", key, problem)
        for problem in label_value_problems(value):
            yield invalid("metadata.labels", value, problem)


def _annotation_errors(metadata: Mapping[str, Any]) -> Iterator[FieldError]:
    annotations, errors = _texts(metadata, "annotations")
    yield from errors
    size = 0
    for key, value in annotations.items():
        size += len(key.encode("utf-8", "surrogatepass")) + len(value.encode("utf-8", "surrogatepass"))
        for problem in annotation_key_problems(key):
            yield invalid("metadata.annotations", key, problem)
    if size > ANNOTATIONS_SIZE:
        detail = f"Too long: may not be more than {ANNOTATIONS_SIZE} bytes"
        yield FieldError("metadata.annotations", "FieldValueTooLong", detail)


def _owner_errors(metadata: Mapping[str, Any]) -> Iterator[FieldError]:
    owners = metadata.get("ownerReferences") or ()
    if not isinstance(owners, Sequence) or not all(isinstance(owner, Mapping) for owner in owners):
        yield _wrong_type("metadata.ownerReferences", owners, "list of objects")
        return
    controllers: list[str] = []
    for index, owner in enumerate(owners):
        field = f"metadata.ownerReferences[{index}]"
        for member in _OWNER_MEMBERS:
            value = owner.get(member) or ""
            if not isinstance(value, str):
                yield _wrong_type(f"{field}.{member}", value, "string")
            elif not value:
                yield FieldError(f"{field}.{member}", "FieldValueRequired", "Required value: must not be empty")
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            yield invalid(field, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller") is True:
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        first, second, *_ = controllers
        problem = (
            f'Only one reference can have Controller set to true. Found "true" in references for {first} and {second}'
        )
        yield invalid("metadata.ownerReferences", owners, problem)


def _finalizer_errors(metadata: Mapping[str, Any], bare_finalizers: bool) -> Iterator[FieldError]:
    finalizers = metadata.get("finalizers") or ()
    if not isinstance(finalizers, Sequence) or not all(isinstance(finalizer, str) for finalizer in finalizers):
        yield _wrong_type("metadata.finalizers", finalizers, "list of strings")
        return
    for finalizer in finalizers:
        for problem in qualified_name_problems(finalizer):
            yield invalid("metadata.finalizers", finalizer, problem)
    if not bare_finalizers:
        for index, finalizer in enumerate(finalizers):
            if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
                problem = "name is neither a standard finalizer name nor is it fully qualified"
                yield invalid(f"metadata.finalizers[{index}]", finalizer, problem)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        yield invalid("metadata.finalizers", finalizers, "finalizer orphan and foregroundDeletion cannot be both set")


def _texts(metadata: Mapping[str, Any], member: str) -> tuple[dict[str, str], list[FieldError]]:
    """The texts under a member by key, and an error for each value that is not a text."""
    found = metadata.get(member) or {}
    if not isinstance(found, Mapping):
        return {}, [_wrong_type(f"metadata.{member}", found, "map of strings")]
    wrong = [
        _wrong_type(f"metadata.{member}.{key}", value, "string")
        for key, value in found.items()
        if not isinstance(value, str)
    ]
    return {key: value for key, value in found.items() if isinstance(value, str)}, wrong


def _wrong_type(field: str, value: object, expected: str) -> FieldError:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return FieldError(field, "FieldValueTypeInvalid", f"Invalid value: {shown}: must be a {expected}")
