"""The checks between decoding and storing, in Kubernetes' order: prune, default, admission, schema, metadata, CEL."""

from __future__ import annotations

from collections.abc import Sequence

from planform.api.kinds import Object
from planform.apimachinery import names
from planform.apiserver.admission.chain import Admission, Operation
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import metadata as meta
from planform.apiserver.verbs.core import Core
from planform.apiserver.verbs.requests import Request
from planform.errors import BadRequest, FieldError, Invalid

_CEL_BUDGET = 200_000
"""Steps that the rules of one object may take together: well under what would hold up others on the loop."""
_RULES_SKIPPED = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)

_BLOCKING = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
"""Errors after which rules are not run: they may rely on what is missing or of another type."""


def admit(
    core: Core,
    served: ServedKind,
    new: Object,
    old: Object | None,
    request: Request,
    *,
    unknown: list[str],
    subresource: str = "",
    patching: bool = False,
    applying: bool = False,
    current: bool = False,
) -> None:
    """Bring `new` into the shape that is stored, in place, or raise what is wrong with it.

    `current` says that `old` was stored under the present schema: what `new` shares with it is not looked at again.

    `unknown` holds the unknown fields found so far; Strict turns them into an error, Warn into warnings.
    """
    errors = shape(
        served,
        new,
        old,
        request,
        unknown=unknown,
        subresource=subresource,
        patching=patching,
        applying=applying,
        current=current,
    )
    if core.admission:
        ask_plugins(core, served, new, old, request, subresource)
    _check(served, new, old, request, errors, subresource)


def shape(
    served: ServedKind,
    new: Object,
    old: Object | None,
    request: Request,
    *,
    unknown: list[str],
    subresource: str = "",
    patching: bool = False,
    applying: bool = False,
    current: bool = False,
) -> list[FieldError]:
    """The first part of `admit`: prune and default, in place, and what the schema has against the object.

    A mutating webhook is asked about an object in this shape, and may still mend what is wrong with it.
    """
    served.strategy.prepare(new, old, subresource)
    errors: list[FieldError] = []
    schema = served.schema
    if schema is not None:
        findings = schema.admit(
            new,
            old=old,
            collect_unknown=request.validation != "Ignore",
            null_errors=applying,
            admitted=old if current else None,
        )
        unknown += findings.unknown
        errors += findings.errors
        if served.conversion is None and served.storage is not None and served.storage.schema is not None:
            served.storage.schema.prune(new)
            served.storage.schema.default(new)
    if unknown or request.duplicates:
        _report_unknown(served, new, unknown, request, patching=patching)
    if served.builtin:
        _refuse_wrong_types(served, new, errors, patching=patching)
    return errors


def ask_plugins(
    core: Core, served: ServedKind, new: Object, old: Object | None, request: Request, subresource: str
) -> None:
    """Have the plugins of this process see a write; they do not wait, and so can be asked last before staging."""
    operation: Operation = "CREATE" if old is None else "UPDATE"
    namespace, name = new["metadata"].get("namespace", ""), new["metadata"].get("name", "")
    core.admit(Admission(operation, served.kind, namespace, name, new, old, subresource, request))


def _check(
    served: ServedKind, new: Object, old: Object | None, request: Request, errors: list[FieldError], subresource: str
) -> None:
    own_metadata = old is None or not _has_metadata_of(new, old)
    if own_metadata:
        errors += names.validate_metadata(
            new["metadata"],
            namespaced=served.kind.namespaced,
            name_rule=served.strategy.name_problems,
            bare_finalizers=served.strategy.allows_bare_finalizers,
        )
    errors += served.strategy.validate(new, old, subresource)
    if served.rules is not None:
        if any(error.reason in _BLOCKING for error in errors):
            errors.append(_RULES_SKIPPED)
        else:
            errors += served.rules.check(new, old, budget=_CEL_BUDGET)
    if errors:
        raise Invalid.of(served.kind.group, served.kind.kind, meta.name_of(new), errors)
    for warning in served.strategy.warnings(new, old):
        request.warn(warning)
    if own_metadata:
        for warning in names.metadata_warnings(new["metadata"], None if old is None else old["metadata"]):
            request.warn(warning)
        meta.name_owners_once(new["metadata"])


def _has_metadata_of(new: Object, old: Object) -> bool:
    """Whether a write left of the metadata, which were good when they were stored, all that it could change."""
    after, before = new["metadata"], old["metadata"]
    for name in meta.CLIENT_OWNED:
        if (own := after.get(name)) is not (stored := before.get(name)) and own != stored:
            return False
    return True


def _report_unknown(
    served: ServedKind, new: Object, unknown: Sequence[str], request: Request, *, patching: bool
) -> None:
    findings = [f'unknown field "{path}"' for path in sorted(unknown)]
    findings += [f'duplicate field "{path}"' for path in request.duplicates]
    if request.validation == "Warn":
        for finding in findings:
            request.warn(finding)
    elif request.validation == "Strict":
        text = f"strict decoding error: {', '.join(findings)}"
        if patching:
            error = FieldError("patch", "FieldValueInvalid", f'Invalid value: "{{}}": {text}')
            raise Invalid.of(served.kind.group, served.kind.kind, meta.name_of(new), [error])
        kind = served.kind
        raise BadRequest(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {text}')


def _refuse_wrong_types(served: ServedKind, new: Object, errors: Sequence[FieldError], *, patching: bool) -> None:
    """A built-in kind with a wrong type cannot be decoded: a bad request, or an invalid patch of a good object."""
    for error in errors:
        if error.reason == "FieldValueTypeInvalid":
            kind = served.kind
            if patching:
                refusal = FieldError("patch", "FieldValueInvalid", f'Invalid value: "{{}}": {error}')
                raise Invalid.of(kind.group, kind.kind, meta.name_of(new), [refusal])
            raise BadRequest(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: {error}'
            )
