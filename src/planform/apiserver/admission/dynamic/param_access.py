"""Whoever has a policy look at parameters must be allowed to read them, or a policy would read what its author may not.

Messages of a policy can quote parameters. So naming a kind of parameters takes the right to read all of it, and binding
takes the right to read what the binding refers to.
"""

from __future__ import annotations

from typing import Any

import orjson

from planform.api.kinds import GroupVersionKind, Object
from planform.apimachinery.schema_findings import forbidden
from planform.apiserver.admission.chain import Admission
from planform.apiserver.admission.dynamic.configurations import GROUP, POLICIES
from planform.apiserver.admission.dynamic.dispatch import Access
from planform.apiserver.crds.registry import KindRegistry
from planform.apiserver.verbs.requests import Attributes, User
from planform.errors import Invalid, NotFound
from planform.store import Key, Store

_ALL = "*"


class ParamAccessCheck:
    """The admission plugin. A policy that a binding names is read as staged."""

    def __init__(self, access: Access, store: Store, registry: KindRegistry) -> None:
        self._access = access
        self._store = store
        self._registry = registry

    def admit(self, admission: Admission, /) -> None:
        """Raises Invalid, as Kubernetes does, naming what the writer may not read."""
        if admission.kind.group != GROUP or admission.new is None or admission.request.user.is_master:
            return
        if admission.kind.kind == "ValidatingAdmissionPolicy":
            self._check_policy(admission, admission.new)
        elif admission.kind.kind == "ValidatingAdmissionPolicyBinding":
            self._check_binding(admission, admission.new)

    def _check_policy(self, admission: Admission, new: Object) -> None:
        kind, before = _at(new, "paramKind"), _at(admission.old, "paramKind")
        if not isinstance(kind, dict) or kind == before:
            return
        user, (group, version, resource) = admission.request.user, self._resource(kind)
        if not self._may(user, "get", group, version, resource, _ALL, _ALL):
            text = (
                f'user {_shown(user)} must have "get" permission on all objects of the referenced paramKind '
                f"(kind={kind.get('kind', '')}, apiVersion={kind.get('apiVersion', '')})"
            )
            raise _refusal(admission, "spec.paramKind", text)

    def _check_binding(self, admission: Admission, new: Object) -> None:
        reference = _at(new, "paramRef")
        same = reference == _at(admission.old, "paramRef") and _at(new, "policyName") == _at(
            admission.old, "policyName"
        )
        if not isinstance(reference, dict) or (admission.old is not None and same):
            return
        policy = str(_at(new, "policyName") or "")
        entry = self._store.head(Key(POLICIES, "", policy))
        kind = None if entry is None else _at(orjson.loads(entry.value), "paramKind")
        group, version, resource = self._resource(kind) if isinstance(kind, dict) else (_ALL, _ALL, _ALL)
        name, user = str(reference.get("name") or ""), admission.request.user
        verb = "get" if name else "list"
        if self._may(user, verb, group, version, resource, str(reference.get("namespace") or ""), name):
            return
        if entry is None:
            text = (
                f"unable to get policy {policy} to determine minimum required permissions and user {_shown(user)} "
                f'does not have "{verb}" permission for all groups, versions and resources'
            )
        else:
            text = f'user {_shown(user)} does not have "{verb}" permission on the object referenced by paramRef'
        raise _refusal(admission, "spec.paramRef", text)

    def _resource(self, kind: Object) -> tuple[str, str, str]:
        """The resource of a kind; all of a group that has none yet."""
        group, _, version = str(kind.get("apiVersion") or "").rpartition("/")
        try:
            found = self._registry.find(GroupVersionKind(group, version, str(kind.get("kind") or "")))
        except NotFound:
            return group, version, _ALL
        return group, version, found.kind.plural

    def _may(self, user: User, verb: str, group: str, version: str, resource: str, namespace: str, name: str) -> bool:
        return self._access.allows(user, Attributes(verb, group, version, resource, "", namespace, name))


def _at(obj: Object | None, field: str) -> Any:
    spec = (obj or {}).get("spec")
    return spec.get(field) if isinstance(spec, dict) else None


def _shown(user: User) -> str:
    return f'"{user.name}"'


def _refusal(admission: Admission, field: str, text: str) -> Invalid:
    return Invalid.of(GROUP, admission.kind.kind, admission.name, [forbidden(field, text)])
