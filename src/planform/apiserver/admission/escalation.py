"""Nobody grants more than they hold: the admission check of roles and bindings.

Writing a role needs every permission in it, or the verb `escalate` on it; writing a binding needs every permission of
the role it binds, or the verb `bind` on that role. Otherwise "may create RoleBindings" would mean "may do anything".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import orjson

from planform.api.kinds import Object
from planform.apiserver.admission.chain import Admission
from planform.apiserver.auth.rbac import CLUSTER_ROLES, GROUP, ROLES, Rbac, RoleRef, forbidden
from planform.apiserver.auth.rbac_rules import FULL_AUTHORITY, PolicyRule, describe, parse_rules, quoted_list, uncovered
from planform.apiserver.verbs.requests import Attributes, User
from planform.errors import BadRequest, NotFound
from planform.store import Key, Store

_SERVER_METADATA = frozenset({"finalizers", "generation", "managedFields", "ownerReferences", "resourceVersion"})


class EscalationCheck:
    """The admission plugin. The writer's own permissions are the committed ones; a bound role is read as staged."""

    def __init__(self, rbac: Rbac, store: Store) -> None:
        self._rbac = rbac
        self._store = store

    def admit(self, admission: Admission, /) -> None:
        """Raises Forbidden, naming what the writer does not hold."""
        if admission.kind.group != GROUP:
            return
        new, user = admission.new, admission.request.user
        if new is None or user.is_master:
            return
        if admission.old is not None and _substance(new) == _substance(admission.old):
            return
        try:
            if admission.kind.kind in ("Role", "ClusterRole"):
                self._check_role(admission, new, user)
            elif admission.kind.kind in ("RoleBinding", "ClusterRoleBinding"):
                self._check_binding(admission, new, user)
        except msgspec.ValidationError as error:
            raise BadRequest(f"{admission.kind.kind} cannot be read: {error}") from error

    def _check_role(self, admission: Admission, new: Object, user: User) -> None:
        if self._may(user, "escalate", admission.kind.plural, admission.name, admission.namespace):
            return
        rules = parse_rules(new.get("rules"))
        self._confirm(admission, user, rules)
        if new.get("aggregationRule") and uncovered(self._rbac.rules_for(user, ""), FULL_AUTHORITY):
            text = "must have cluster-admin privileges to use the aggregationRule"
            raise forbidden(GROUP, admission.kind.plural, admission.name, text)

    def _check_binding(self, admission: Admission, new: Object, user: User) -> None:
        role = msgspec.convert(new.get("roleRef") or {}, RoleRef)
        if not role.name:
            return  # validation says what is missing
        plural = "clusterroles" if role.kind == "ClusterRole" else "roles"
        if self._may(user, "bind", plural, role.name, admission.namespace):
            return
        self._confirm(admission, user, self._rules_of(role, admission.namespace))

    def _may(self, user: User, verb: str, plural: str, name: str, namespace: str) -> bool:
        return self._rbac.allows(user, Attributes(verb, GROUP, "*", plural, "", namespace, name))

    def _rules_of(self, role: RoleRef, namespace: str) -> Sequence[PolicyRule]:
        """What a role will grant when the binding is committed, which is after every write staged before it."""
        cluster_wide = role.kind == "ClusterRole"
        key = Key(CLUSTER_ROLES, "", role.name) if cluster_wide else Key(ROLES, namespace, role.name)
        staged, committed = self._store.head(key), self._store.get(key)
        if staged is None:
            raise NotFound.of(GROUP, key.resource.partition(".")[0], role.name)
        if staged == committed:
            return self._rbac.role_rules(role, namespace) or ()
        obj: Object = orjson.loads(staged.value)
        # What an aggregation gathers is known only once it is committed; until then it may be anything.
        return FULL_AUTHORITY if obj.get("aggregationRule") else parse_rules(obj.get("rules"))

    def _confirm(self, admission: Admission, user: User, rules: Sequence[PolicyRule]) -> None:
        missing = uncovered(self._rbac.rules_for(user, admission.namespace), rules)
        if missing:
            lines = "\n".join(sorted({describe(rule) for rule in missing}))
            text = (
                f'user "{user.name}" (groups={quoted_list(user.groups)}) is attempting to grant RBAC permissions '
                f"not currently held:\n{lines}"
            )
            raise forbidden(GROUP, admission.kind.plural, admission.name, text)


def _substance(obj: Object) -> Object:
    """All that a write may not touch unchecked.

    Labels belong to it, since they decide what an aggregation gathers; what the garbage collector writes, and the
    server's metadata, does not.
    """
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVER_METADATA and value}
    return {**{name: value for name, value in obj.items() if value}, "metadata": metadata}
