"""Authorisation: who may do what, by Roles and ClusterRoles and their bindings in the store.

An index of bindings by subject follows the committed store change by change; what a user may do is worked out on the
first question and remembered until any role or binding changes. Aggregated ClusterRoles are evaluated here, from the
roles that their selectors match, so they are right the moment such a role is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from planform.apimachinery.selectors import NOTHING, LabelSelector, SelectorError
from planform.apiserver.auth.rbac_rules import PolicyRule, permits, permits_resource
from planform.apiserver.verbs.requests import Attributes, User
from planform.errors import Forbidden, naming, qualified
from planform.store import Change, ChangeType, Key, Store

log = logging.getLogger(__name__)

GROUP: Final = "rbac.authorization.k8s.io"
ROLES: Final = f"roles.{GROUP}"
CLUSTER_ROLES: Final = f"clusterroles.{GROUP}"
ROLE_BINDINGS: Final = f"rolebindings.{GROUP}"
CLUSTER_ROLE_BINDINGS: Final = f"clusterrolebindings.{GROUP}"
SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"
_RESOURCES = (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
_MAX_USERS = 1024
_MAX_ANSWERS = 16_384
_MAX_QUESTION_LENGTH = 512

ALL: Final = True
Names = frozenset[str] | Literal[True]
"""The object names that something is granted for; ALL is every name, and none at all."""
Question = tuple[str, tuple[str, ...], str, str, str, str, str, str]
"""User and groups, then a request but for its object name: what an answer is remembered by."""


class RoleRef(msgspec.Struct, frozen=True):
    """The role that a binding binds."""

    kind: str = ""
    name: str = ""


class Subject(msgspec.Struct, frozen=True):
    """Whom a binding is for."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class _AggregationRule(msgspec.Struct, frozen=True, rename="camel"):
    cluster_role_selectors: tuple[dict[str, Any], ...] | None = None


class _Role(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Metadata
    rules: tuple[PolicyRule, ...] | None = None
    aggregation_rule: _AggregationRule | None = None


class _Binding(msgspec.Struct, frozen=True, rename="camel"):
    role_ref: RoleRef
    subjects: tuple[Subject, ...] | None = None


_decode_role = msgspec.json.Decoder(_Role).decode
_decode_binding = msgspec.json.Decoder(_Binding).decode


@dataclass(frozen=True, slots=True)
class Grant:
    """A role given to a user by one subject of one binding. An empty namespace is the whole cluster."""

    binding: str
    namespace: str
    role: RoleRef
    subject: Subject
    rules: tuple[PolicyRule, ...]

    def __str__(self) -> str:
        subject = f'{self.subject.kind} "{self.subject.name}"'
        if self.subject.kind == "ServiceAccount":
            subject = f'ServiceAccount "{self.subject.name}/{self.subject.namespace or self.namespace}"'
        binding = f'ClusterRoleBinding "{self.binding}"'
        if self.namespace:
            binding = f'RoleBinding "{self.binding}/{self.namespace}"'
        return f'{binding} of {self.role.kind} "{self.role.name}" to {subject}'


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request may go ahead, and why, as access reviews tell it."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Holdings:
    """Everything one user was given, by namespace; "" is what reaches beyond namespaces."""

    grants: Mapping[str, Sequence[Grant]]
    missing: Mapping[str, Sequence[str]]
    """Roles that bindings name and nobody made."""

    def rules_in(self, namespace: str) -> Iterator[tuple[Grant, PolicyRule]]:
        """Cluster-wide rules, then those of a namespace."""
        for where in ("", namespace) if namespace else ("",):
            for grant in self.grants.get(where, ()):
                for rule in grant.rules:
                    yield grant, rule

    def excuse(self, namespace: str) -> str:
        """What to add to a refusal: roles that would perhaps have allowed it, if they were there."""
        missing = dict.fromkeys((*self.missing.get("", ()), *(self.missing.get(namespace, ()) if namespace else ())))
        if not missing:
            return ""
        text = ", ".join(missing)
        return f"rbac: RBAC: {text}" if len(missing) == 1 else f"rbac: RBAC: [{text}]"

    def names_for(self, attributes: Attributes) -> Names:
        """The names for which a request like this one is granted."""
        if attributes.path:
            return ALL if any(permits(rule, attributes) for _, rule in self.rules_in("")) else frozenset()
        names: set[str] = set()
        wanted = (attributes.verb, attributes.group, attributes.resource, attributes.subresource)
        for _, rule in self.rules_in(attributes.namespace):
            if permits_resource(rule, *wanted):
                if not rule.resource_names:
                    return ALL
                names.update(rule.resource_names)
        return frozenset(names)


class Rbac:
    """The Authorizer. Reads the committed view only: a grant works once it is durable, a revocation likewise."""

    def __init__(self, store: Store) -> None:
        self._roles: dict[Key, _Role] = {}
        self._bindings: dict[Key, _Binding] = {}
        self._by_subject: dict[tuple[str, str], dict[Key, Subject]] = {}
        self._aggregated: dict[str, tuple[PolicyRule, ...]] = {}
        self._holdings: dict[tuple[str, tuple[str, ...]], _Holdings] = {}
        self._answers: dict[Question, Names] = {}
        self._generation = 0
        for resource in _RESOURCES:
            for key, entry in store.list(resource):
                self._put(key, entry.value)
        self._unsubscribe = store.subscribe(self._follow)

    def close(self) -> None:
        self._unsubscribe()

    def generation(self) -> int:
        """Another number once any role or binding is different."""
        return self._generation

    # -- deciding

    def authorize(self, user: User, attributes: Attributes, /) -> None:
        """Raises Forbidden, worded as Kubernetes words it."""
        if not self.allows(user, attributes):
            raise self._refusal(user, attributes)

    def allows(self, user: User, attributes: Attributes) -> bool:
        if user.is_master:
            return True
        question = (
            user.name,
            user.groups,
            attributes.namespace,
            attributes.verb,
            attributes.group,
            attributes.resource,
            attributes.subresource,
            attributes.path,
        )
        names = self._answers.get(question)
        if names is None:
            names = self._held_by(user).names_for(attributes)
            self._remember(question, names)
        return names is ALL or attributes.name in names

    def decide(self, user: User, attributes: Attributes) -> Decision:
        """The same answer with its reason; for those who ask about access rather than for it."""
        if user.is_master:
            return Decision(True)
        holdings = self._held_by(user)
        for grant, rule in holdings.rules_in("" if attributes.path else attributes.namespace):
            if permits(rule, attributes):
                return Decision(True, f"RBAC: allowed by {grant}")
        return Decision(False, holdings.excuse(attributes.namespace))

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """Every rule that applies to a user in a namespace, cluster-wide ones first; "" is those alone."""
        return [rule for _, rule in self._held_by(user).rules_in(namespace)]

    def role_rules(self, role: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """What a role grants, aggregation included; None if there is no such role."""
        if role.kind != "ClusterRole":
            found = self._roles.get(Key(ROLES, namespace, role.name))
            return None if found is None else found.rules or ()
        if Key(CLUSTER_ROLES, "", role.name) not in self._roles:
            return None
        rules = self._aggregated.get(role.name)
        if rules is None:
            rules = self._aggregated[role.name] = tuple(dict.fromkeys(self._collect(role.name, set())))
        return rules

    def _refusal(self, user: User, attributes: Attributes) -> Forbidden:
        excuse = self._held_by(user).excuse(attributes.namespace)
        text = refusal_text(user, attributes) + (f": {excuse}" if excuse else "")
        if attributes.path:
            return Forbidden(f"forbidden: {text}")
        return forbidden(attributes.group, attributes.resource, attributes.name, text)

    # -- working out what a user holds

    def _held_by(self, user: User) -> _Holdings:
        return self._holdings.get((user.name, user.groups)) or self._work_out(user)

    def _work_out(self, user: User) -> _Holdings:
        granted: set[Key] = set()
        grants: dict[str, list[Grant]] = {}
        missing: dict[str, list[str]] = {}
        for name in (("User", user.name), *(("Group", group) for group in user.groups)):
            for key, subject in self._by_subject.get(name, {}).items():
                if key in granted:
                    continue
                granted.add(key)
                ref = self._bindings[key].role_ref
                rules = self.role_rules(ref, key.namespace)
                if rules is None:
                    missing.setdefault(key.namespace, []).append(f'{ref.kind.lower()}.{GROUP} "{ref.name}" not found')
                else:
                    grant = Grant(key.name, key.namespace, ref, subject, rules)
                    grants.setdefault(key.namespace, []).append(grant)
        if len(self._holdings) >= _MAX_USERS:
            del self._holdings[next(iter(self._holdings))]
        holdings = self._holdings[user.name, user.groups] = _Holdings(grants, missing)
        return holdings

    def _remember(self, question: Question, names: Names) -> None:
        """Bounded in number, and in size: strangers choose what stands in a path."""
        if len(question[2]) + len(question[5]) + len(question[6]) + len(question[7]) > _MAX_QUESTION_LENGTH:
            return
        if len(self._answers) >= _MAX_ANSWERS:
            self._answers.clear()
        self._answers[question] = names

    def _collect(self, name: str, seen: set[str]) -> Iterator[PolicyRule]:
        """The rules of a ClusterRole, or of all that it aggregates, through any number of steps and round no circle."""
        seen.add(name)
        role = self._roles[Key(CLUSTER_ROLES, "", name)]
        if role.aggregation_rule is None:
            yield from role.rules or ()
            return
        selectors = [_selector(selector) for selector in role.aggregation_rule.cluster_role_selectors or ()]
        for key, other in self._roles.items():
            if key.resource != CLUSTER_ROLES or key.name in seen:
                continue
            if any(selector.matches(other.metadata.labels) for selector in selectors):
                yield from self._collect(key.name, seen)

    # -- following the store

    def _follow(self, changes: Sequence[Change]) -> None:
        touched = False
        for change in changes:
            if change.key.resource in _RESOURCES:
                touched = True
                self._remove(change.key)
                if change.type is not ChangeType.DELETED:
                    self._put(change.key, change.value)
        if touched:
            self._generation += 1
            self._answers.clear()
            self._holdings.clear()
            self._aggregated.clear()

    def _put(self, key: Key, value: bytes) -> None:
        try:
            if key.resource in (ROLES, CLUSTER_ROLES):
                self._roles[key] = _decode_role(value)
                return
            self._bindings[key] = binding = _decode_binding(value)
        except msgspec.DecodeError as error:
            log.warning("%s %s grants nothing, it cannot be read: %s", key.resource, key.name, error)
            return
        for subject in binding.subjects or ():
            name = _subject_name(subject, key.namespace)
            self._by_subject.setdefault(name, {}).setdefault(key, subject)

    def _remove(self, key: Key) -> None:
        self._roles.pop(key, None)
        binding = self._bindings.pop(key, None)
        for subject in (binding.subjects if binding is not None else None) or ():
            name = _subject_name(subject, key.namespace)
            bound = self._by_subject.get(name)
            if bound is not None:
                bound.pop(key, None)
                if not bound:
                    del self._by_subject[name]


def refusal_text(user: User, attributes: Attributes) -> str:
    """`User "bob" cannot list resource "pods" in API group "" in the namespace "default"`."""
    name = user.name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if attributes.path:
        return f'User "{name}" cannot {attributes.verb} path "{attributes.path}"'
    resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    return f'User "{name}" cannot {attributes.verb} resource "{resource}" in API group "{attributes.group}" {where}'


def forbidden(group: str, resource: str, name: str, text: str) -> Forbidden:
    """`widgets.example.org "x" is forbidden: ...`."""
    what = qualified(group, resource) + (f' "{name}"' if name else "")
    return Forbidden(f"{what} is forbidden: {text}", details=naming(group, resource, name))


def _subject_name(subject: Subject, binding_namespace: str) -> tuple[str, str]:
    if subject.kind != "ServiceAccount":
        return subject.kind, subject.name
    return "User", f"{SERVICE_ACCOUNT_PREFIX}{subject.namespace or binding_namespace}:{subject.name}"


def _selector(selector: Mapping[str, Any]) -> LabelSelector:
    """An aggregation selector; an empty one matches every role, one that cannot be read none."""
    try:
        return LabelSelector.from_object(selector)
    except SelectorError as error:
        log.warning("an aggregation rule has a selector that matches nothing: %s", error)
        return NOTHING
