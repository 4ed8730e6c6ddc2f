"""What `planform doctor` says about whose rights are used, and whether anybody but administrators is there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from planform.api.authors import author_of, is_authored
from planform.api.kinds import Object, gvk_of
from planform.api.metadata import labels_of, name_of, namespace_of
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, PACKAGES_GROUP, XRD
from planform.api.owners import controller_of
from planform.apimachinery.selectors import LabelSelector, SelectorError
from planform.cli.diagnosis.findings import Finding, named

_WRITES: Final = frozenset({"*", "create", "update", "patch"})
_OVER: Final = frozenset({"complete", "failed"})


def unrecorded(objects: Iterable[Object]) -> Iterator[Finding]:
    """Objects that act and say not for whom: they count as an administrator's. What is over acts no more, and what a
    package brought is whoever installed it answers for."""
    for obj in objects:
        kind = gvk_of(obj)
        if not is_authored(kind.group, kind.kind) or author_of(obj) is not None or _is_over(obj):
            continue
        owner = controller_of(obj)
        if kind.kind == COMPOSITION_REVISION.kind or (owner and owner["apiVersion"].startswith(f"{PACKAGES_GROUP}/")):
            continue
        message = "does not say who wrote it, and so acts as an administrator's"
        hint = "let whoever it should act for write it again, with a change of its spec"
        yield Finding("differs", "no-author", named(obj), message, hint)


def _is_over(obj: Mapping[str, Any]) -> bool:
    status = obj.get("status") or {}
    if status.get("state") in _OVER:
        return True
    return any(each["type"] == "Succeeded" and each["status"] != "Unknown" for each in status.get("conditions") or ())


def wants_tenants(objects: Sequence[Object], rbac: Sequence[Object], *, is_on: bool) -> Iterator[Finding]:
    """Recommend `--tenants` as soon as somebody who is no administrator may write XRs or Compositions."""
    if is_on:
        return
    written = {(COMPOSITION.group, "compositions")}
    for xrd in (each for each in objects if each["kind"] == XRD.kind):
        written |= {
            (xrd["spec"]["group"], names["plural"])
            for names in (xrd["spec"].get("names"), xrd["spec"].get("claimNames"))
            if names
        }
    for binding in (each for each in rbac if each["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        rules = _rules_of(binding, rbac)
        people = [each for each in binding.get("subjects") or () if not _is_system(each)]
        if not people or any(_is_everything(rule) for rule in rules):
            continue
        found = next((what for what in sorted(written) if any(_allows_writing(rule, *what) for rule in rules)), None)
        if found is None:
            continue
        who = people[0]
        message = f"may write {found[1]}.{found[0]} (by {binding['kind']} {name_of(binding)})"
        hint = "start the control plane with --tenants: functions then read, and reach, no more than their XR's own"
        yield Finding("differs", "tenants", f"{who['kind']} {who['name']}", message, hint)
        return


def _rules_of(binding: Object, rbac: Sequence[Object]) -> list[Mapping[str, Any]]:
    ref, namespace = binding.get("roleRef") or {}, namespace_of(binding)
    roles = [each for each in rbac if each["kind"] == ref.get("kind")]
    for role in roles:
        if name_of(role) != ref.get("name") or namespace_of(role) not in ("", namespace):
            continue
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        gathered = [each for each in roles if any(_selects(one, each) for one in selectors)]
        return [rule for each in (role, *gathered) for rule in each.get("rules") or ()]
    return []


def _selects(selector: Mapping[str, Any], role: Object) -> bool:
    try:
        return LabelSelector.from_object(selector).matches(labels_of(role))
    except SelectorError:
        return False


def _is_system(subject: Mapping[str, Any]) -> bool:
    """What the cluster brought itself, and controllers; people and their groups are called otherwise."""
    return subject.get("kind") == "ServiceAccount" or str(subject.get("name") or "").startswith("system:")


def _is_everything(rule: Mapping[str, Any]) -> bool:
    return all("*" in (rule.get(field) or ()) for field in ("apiGroups", "resources", "verbs"))


def _allows_writing(rule: Mapping[str, Any], group: str, plural: str) -> bool:
    return (
        bool(_WRITES & set(rule.get("verbs") or ()))
        and bool({"*", group} & set(rule.get("apiGroups") or ()))
        and bool({"*", plural} & set(rule.get("resources") or ()))
    )
