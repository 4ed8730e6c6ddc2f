"""How a CustomResourceDefinition becomes served kinds, and what makes one acceptable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import orjson

from planform.api.kinds import Kind, Object
from planform.apimachinery import names
from planform.apimachinery.jsonpath import JsonPathError, compile_jsonpath
from planform.apimachinery.schema_shape import shape_errors
from planform.apimachinery.structural import structural_errors
from planform.apiserver.crds.registry import PrinterColumn, Scale, ServedKind
from planform.apiserver.crds.strategies import CUSTOM, Strategy
from planform.clock import timestamp
from planform.errors import FieldError

RESOURCE = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_APPROVAL = "api-approved.kubernetes.io"
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?$")


def served_kinds(crd: Object, rv: int) -> list[ServedKind]:
    """The served versions of an established CRD; `rv` is when its spec last changed."""
    kinds = _kinds(crd, rv)
    return [kinds[version["name"]] for version in crd["spec"]["versions"] if version["served"]]


def storage_kind(crd: Object, rv: int) -> ServedKind:
    """An established CRD's kind in the version that is stored, also where that is not served, and never converted."""
    kind = next(kind for kind in _kinds(crd, rv).values() if kind.is_storage)
    return replace(kind, conversion=None)


def _kinds(crd: Object, rv: int) -> dict[str, ServedKind]:
    spec = crd["spec"]
    accepted = crd.get("status", {}).get("acceptedNames") or spec["names"]
    group = spec["group"]
    storage = next(version["name"] for version in spec["versions"] if version["storage"])
    webhook = spec.get("conversion", {}).get("strategy") == "Webhook"
    terminating = "deletionTimestamp" in crd["metadata"]
    found: dict[str, ServedKind] = {}
    for version in spec["versions"]:
        subresources = version.get("subresources") or {}
        kind = Kind(
            group=group,
            version=version["name"],
            kind=accepted["kind"],
            plural=accepted["plural"],
            namespaced=spec["scope"] == "Namespaced",
            singular=accepted.get("singular", ""),
            list_kind=accepted.get("listKind", ""),
            short_names=tuple(accepted.get("shortNames") or ()),
            categories=tuple(accepted.get("categories") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in subresources),
        )
        found[version["name"]] = ServedKind(
            kind=kind,
            strategy=CUSTOM,
            openapi=version["schema"]["openAPIV3Schema"],
            builtin=False,
            storage_version=storage,
            columns=tuple(_columns(version)),
            selectable=tuple(field["jsonPath"] for field in version.get("selectableFields") or ()),
            scale=_scale(subresources),
            deprecation=_deprecation(spec, version) if version.get("deprecated") else "",
            conversion=spec["conversion"] if webhook else None,
            terminating=terminating,
            schema_rv=rv,
        )
    for served in found.values():
        if served.kind.version != storage:
            served.storage = found[storage]
    return found


def is_established(crd: Object) -> bool:
    """Whether it is served. That stays, under the accepted names, when a later change asks for names in use."""
    return condition(crd, "Established") == "True"


def condition(crd: Object, name: str) -> str:
    for found in crd.get("status", {}).get("conditions") or ():
        if found["type"] == name:
            return str(found["status"])
    return ""


def with_condition(
    conditions: Sequence[Mapping[str, Any]], name: str, status: str, reason: str, message: str, now: str
) -> list[dict[str, Any]]:
    """The conditions with this one set; its transition time moves only when its status does."""
    kept = [dict(found) for found in conditions if found["type"] != name]
    before = next((found for found in conditions if found["type"] == name), None)
    moved = before is None or before["status"] != status
    kept.append(
        {
            "type": name,
            "status": status,
            "lastTransitionTime": now if moved or before is None else before["lastTransitionTime"],
            "reason": reason,
            "message": message,
        }
    )
    return kept


def _columns(version: Mapping[str, Any]) -> Iterator[PrinterColumn]:
    for column in version.get("additionalPrinterColumns") or ():
        yield PrinterColumn(
            column["name"],
            column["type"],
            column["jsonPath"],
            column.get("format", ""),
            column.get("description", ""),
            int(column.get("priority", 0)),
        )


def _scale(subresources: Mapping[str, Any]) -> Scale | None:
    scale = subresources.get("scale")
    if scale is None:
        return None
    return Scale(scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", ""))


def _deprecation(spec: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    group, kind = spec["group"], spec["names"]["kind"]
    text = f"{group}/{version['name']} {kind} is deprecated"
    newer = [
        other["name"]
        for other in spec["versions"]
        if other["served"]
        and not other.get("deprecated")
        and version_rank(other["name"]) > version_rank(version["name"])
    ]
    if not newer:
        return text
    return f"{text}; use {group}/{max(newer, key=version_rank)} {kind}"


def version_rank(version: str) -> tuple[int, int, int]:
    """Kubernetes' order of versions: stable above beta above alpha, higher numbers first, others last."""
    match = _VERSION.match(version)
    if match is None:
        return (-1, 0, 0)
    major, stage, minor = match.groups()
    return ({None: 2, "beta": 1, "alpha": 0}[stage], int(major), int(minor or 0))


class CustomResourceDefinitions(Strategy):
    """Fills in what may be left out and refuses what could not be served."""

    allows_unconditional_update: ClassVar[bool] = False
    keeps_status_on_create: ClassVar[bool] = True

    def __init__(self, now: Any = None) -> None:
        self._now = now

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        spec = new.get("spec")
        if not isinstance(spec, dict) or subresource:
            return
        spec_names = spec.get("names")
        if isinstance(spec_names, dict) and isinstance(spec_names.get("kind"), str):
            if not spec_names.get("singular"):
                spec_names["singular"] = spec_names["kind"].lower()
            if not spec_names.get("listKind"):
                spec_names["listKind"] = f"{spec_names['kind']}List"
        if not isinstance(spec.get("conversion"), dict):
            spec["conversion"] = {"strategy": "None"}
        if spec.get("preserveUnknownFields") is False:
            del spec["preserveUnknownFields"]
        given = spec.get("versions")
        versions = [version for version in given if isinstance(version, dict)] if isinstance(given, list) else []
        stored = [version["name"] for version in versions if version.get("storage") and version.get("name")]
        if old is None:
            new["status"] = {
                "acceptedNames": {"plural": "", "kind": ""},
                "conditions": [],
                "storedVersions": stored[:1],
            }
        elif stored:
            status = {**(new.get("status") or {})}
            known = list(status.get("storedVersions") or ())
            if stored[0] not in known:
                status["storedVersions"] = [*known, stored[0]]
                new["status"] = status

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        if subresource:
            return list(_stored_version_errors(new))
        return [*_identity_errors(new), *_version_errors(new), *_update_errors(new, old)]

    def begin_delete(self, obj: Object) -> bool:
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            finalizers.append(CLEANUP_FINALIZER)
        status = obj.setdefault("status", {})
        status["conditions"] = with_condition(
            status.get("conditions") or (),
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            timestamp(self._now()) if self._now is not None else obj["metadata"]["creationTimestamp"],
        )
        return True


def _invalid(field: str, value: object, detail: str) -> FieldError:
    shown = f'"{value}"' if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


def _required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value{': ' + detail if detail else ''}")


def _identity_errors(crd: Object) -> Iterator[FieldError]:
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        yield _required("spec")
        return
    group, spec_names = spec.get("group") or "", spec.get("names") or {}
    plural = spec_names.get("plural") or ""
    if crd["metadata"].get("name") != f"{plural}.{group}":
        yield _invalid("metadata.name", crd["metadata"].get("name", ""), 'must be spec.names.plural+"."+spec.group')
    yield from _group_errors(crd, group)
    yield from _scope_errors(spec.get("scope"))
    yield from _name_errors(spec_names)
    if spec.get("preserveUnknownFields"):
        yield _invalid(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        )
    yield from _conversion_errors(spec)


def _group_errors(crd: Object, group: str) -> Iterator[FieldError]:
    if not group:
        yield _required("spec.group")
    elif problems := names.subdomain_problems(group):
        yield _invalid("spec.group", group, problems[0])
    elif "." not in group:
        yield _invalid("spec.group", group, "should be a domain with at least one dot")
    if re.search(r"(^|\.)(k8s|kubernetes)\.io$", group) and not (crd["metadata"].get("annotations") or {}).get(
        _APPROVAL
    ):
        yield _required(
            f"metadata.annotations[{_APPROVAL}]",
            "protected groups must have approval annotation "
            '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111',
        )


def _scope_errors(scope: object) -> Iterator[FieldError]:
    if not scope:
        yield _required("spec.scope")
    elif scope not in ("Namespaced", "Cluster"):
        yield FieldError(
            "spec.scope",
            "FieldValueNotSupported",
            f'Unsupported value: "{scope}": supported values: "Cluster", "Namespaced"',
        )


def _name_errors(spec_names: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in ("plural", "kind"):
        if not spec_names.get(field):
            yield _required(f"spec.names.{field}")
    for field in ("plural", "singular"):
        if (name := spec_names.get(field)) and (problems := names.label_1035_problems(name)):
            yield _invalid(f"spec.names.{field}", name, problems[0])
    for field in ("kind", "listKind"):
        if (name := spec_names.get(field)) and (problems := names.label_1035_problems(name.lower())):
            yield _invalid(
                f"spec.names.{field}", name, f"may have mixed case, but should otherwise match: {problems[0]}"
            )
    if spec_names.get("kind") and spec_names.get("kind") == spec_names.get("listKind"):
        yield _invalid("spec.names.listKind", spec_names["listKind"], "kind and listKind may not be the same")
    for index, name in enumerate(spec_names.get("shortNames") or ()):
        if problems := names.label_1035_problems(name):
            yield _invalid(f"spec.names.shortNames[{index}]", name, problems[0])


def _conversion_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    conversion = spec.get("conversion") or {}
    strategy, webhook = conversion.get("strategy"), conversion.get("webhook")
    if strategy not in ("None", "Webhook"):
        yield FieldError(
            "spec.conversion.strategy",
            "FieldValueNotSupported",
            f'Unsupported value: "{strategy}": supported values: "None", "Webhook"',
        )
    elif strategy == "None" and webhook:
        yield FieldError(
            "spec.conversion.webhook",
            "FieldValueForbidden",
            "Forbidden: should not be set when strategy is not set to Webhook",
        )
    elif strategy == "Webhook":
        config = (webhook or {}).get("clientConfig")
        if not config:
            yield _required("spec.conversion.webhook.clientConfig", "required when strategy is set to Webhook")
        elif bool(config.get("url")) == bool(config.get("service")):
            yield _required("spec.conversion.webhook.clientConfig", "exactly one of url or service is required")
        if not (webhook or {}).get("conversionReviewVersions"):
            yield _required("spec.conversion.webhook.conversionReviewVersions")


def _version_errors(crd: Object) -> Iterator[FieldError]:
    from planform.apimachinery.cel import cel_errors  # a start without new CRDs needs no CEL

    versions = (crd.get("spec") or {}).get("versions") or []
    if not versions:
        yield _required("spec.versions", "must have at least one version")
        return
    seen: set[str] = set()
    storage = 0
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        if problems := names.label_1035_problems(name):
            yield _invalid(f"{path}.name", name, problems[0])
        if name in seen:
            yield _invalid(f"{path}.name", name, "must be unique among versions")
        seen.add(name)
        storage += bool(version.get("storage"))
        if version.get("deprecationWarning") and not version.get("deprecated"):
            yield _invalid(
                f"{path}.deprecationWarning", version["deprecationWarning"], "can only be set for deprecated versions"
            )
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        where = "spec.validation.openAPIV3Schema" if len(versions) == 1 else f"{path}.schema.openAPIV3Schema"
        if not schema:
            yield _required(f"{path}.schema.openAPIV3Schema", "schemas are required")
        else:
            problems_ = list(shape_errors(schema, where)) or structural_errors(schema, where)
            yield from problems_
            if not problems_:
                yield from cel_errors(schema, where)
        yield from _column_errors(version, path)
    if storage != 1:
        yield FieldError(
            "spec.versions",
            "FieldValueInvalid",
            f"Invalid value: {len(versions)}: must have exactly one version marked as storage version",
        )


def _column_errors(version: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        where = f"{path}.additionalPrinterColumns[{index}]"
        if not column.get("name"):
            yield _required(f"{where}.name")
        if column.get("type") not in ("integer", "number", "string", "boolean", "date"):
            yield _invalid(
                f"{where}.type", column.get("type", ""), "must be one of integer, number, string, boolean, date"
            )
        try:
            compile_jsonpath(column.get("jsonPath") or "")
        except JsonPathError as error:
            yield _invalid(f"{where}.jsonPath", column.get("jsonPath") or "", str(error))


def _update_errors(new: Object, old: Object | None) -> Iterator[FieldError]:
    spec = new.get("spec")
    if old is None or not isinstance(spec, dict):
        return
    for field in ("scope", "group"):
        if spec.get(field) != old["spec"].get(field):
            yield _invalid(f"spec.{field}", spec.get(field) or "", "field is immutable")
    given = spec.get("names") or {}
    for field in ("plural", "kind"):
        if is_established(old) and given.get(field) != old["spec"]["names"].get(field):
            yield _invalid(f"spec.names.{field}", given.get(field) or "", "field is immutable")
    yield from _stored_version_errors(new)


def _stored_version_errors(crd: Object) -> Iterator[FieldError]:
    known = {version.get("name") for version in crd["spec"].get("versions") or ()}
    for index, name in enumerate((crd.get("status") or {}).get("storedVersions") or ()):
        if name not in known:
            yield _invalid(
                f"status.storedVersions[{index}]",
                name,
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
                f" until a storage migration ensures no data remains persisted in {name} and removes {name} from"
                " status.storedVersions",
            )
