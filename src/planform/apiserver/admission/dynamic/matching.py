"""Which writes a webhook or a policy is about: rules, scope, selectors and other versions of the same resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from planform.api.kinds import GroupVersionKind, Object
from planform.apimachinery.selectors import LabelSelector
from planform.apiserver.admission.chain import Operation
from planform.apiserver.admission.dynamic.attributes import Attributes
from planform.apiserver.admission.dynamic.configurations import GROUP
from planform.apiserver.crds.registry import KindRegistry, ServedKind

_EXEMPT: Final = frozenset(
    {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    }
)

NamespaceLabels = Callable[[str], Object]
"""The labels of a namespace; raises NotFound."""


def is_exempt(kind: GroupVersionKind | Any) -> bool:
    """Whether admission is never asked about a kind, since it is how admission is configured: a webhook that is dead
    or refuses everything can always be removed."""
    return bool(kind.group == GROUP and kind.kind in _EXEMPT)


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """Resources and operations that are meant."""

    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = msgspec.field(default=(), name="apiGroups")
    api_versions: tuple[str, ...] = msgspec.field(default=(), name="apiVersions")
    resources: tuple[str, ...] = ()
    scope: str = "*"
    resource_names: tuple[str, ...] = ()

    def covers(self, served: ServedKind, operation: Operation, subresource: str) -> bool:
        kind = served.kind
        return (
            _any_of(self.operations, operation)
            and _any_of(self.api_groups, kind.group)
            and _any_of(self.api_versions, kind.version)
            and self.scope in ("*", "Namespaced" if kind.namespaced else "Cluster")
            and any(_is_resource(each, kind.plural, subresource) for each in self.resources)
        )

    def covers_name(self, name: str) -> bool:
        return not self.resource_names or name in self.resource_names


def _any_of(values: Iterable[str], wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values)


def _is_resource(text: str, plural: str, subresource: str) -> bool:
    resource, _, sub = text.partition("/")
    return resource in ("*", plural) and sub in ("*", subresource)


class Criteria:
    """The part of a webhook, policy or binding that says what it is about."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        match_policy: str,
        namespace_selector: Object | None,
        object_selector: Object | None,
        excluded: Sequence[Rule] = (),
        all_without_rules: bool = False,
    ) -> None:
        self._rules = rules
        self._excluded = excluded
        self._equivalent = match_policy != "Exact"
        self._namespaces = LabelSelector.from_object(namespace_selector or {})
        self._objects = LabelSelector.from_object(object_selector or {})
        self._all_without_rules = all_without_rules

    def resource_for(
        self, registry: KindRegistry, served: ServedKind, operation: Operation, subresource: str
    ) -> ServedKind | None:
        """In which version it wants to be asked about such writes, whatever object; None if it does not."""
        if not self._rules:
            return served if self._all_without_rules else None
        return self._matched(self._rules, registry, served, operation, subresource, None)

    def matches_name(
        self, registry: KindRegistry, served: ServedKind, operation: Operation, subresource: str, name: str
    ) -> ServedKind | None:
        """Like `resource_for`, for one object by its name."""
        if self._matched(self._excluded, registry, served, operation, subresource, name) is not None:
            return None
        if not self._rules:
            return served if self._all_without_rules else None
        return self._matched(self._rules, registry, served, operation, subresource, name)

    def _matched(
        self,
        rules: Sequence[Rule],
        registry: KindRegistry,
        served: ServedKind,
        operation: Operation,
        subresource: str,
        name: str | None,
    ) -> ServedKind | None:
        for rule in rules:
            if rule.covers(served, operation, subresource) and (name is None or rule.covers_name(name)):
                return served
        if not self._equivalent:
            return None
        others = [each for each in registry.of_resource(served.kind.group, served.kind.plural) if each is not served]
        for rule in rules:
            for other in others:
                if rule.covers(other, operation, subresource) and (name is None or rule.covers_name(name)):
                    return other
        return None

    def selects(self, attributes: Attributes, namespace_labels: NamespaceLabels) -> bool:
        """Whether the selectors mean this object, as it is or as it shall be. Raises NotFound."""
        return self._selects_object(attributes) and self._selects_namespace(attributes, namespace_labels)

    def _selects_object(self, attributes: Attributes) -> bool:
        if self._objects.empty:
            return True
        return any(
            self._objects.matches(obj["metadata"].get("labels") or {})
            for obj in (attributes.object, attributes.old_object)
            if obj is not None
        )

    def _selects_namespace(self, attributes: Attributes, namespace_labels: NamespaceLabels) -> bool:
        namespace = attributes.shown_namespace
        if self._namespaces.empty or (not namespace and not attributes.is_namespace):
            return True  # of what is in no namespace, nothing is exempted
        if attributes.is_namespace and attributes.object is not None and not attributes.subresource:
            labels = attributes.object["metadata"].get("labels") or {}
        else:
            labels = namespace_labels(namespace)
        return self._namespaces.matches(labels)
