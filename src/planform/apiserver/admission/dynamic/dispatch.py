"""What is configured, kept as the store commits it, and the two questions that the verbs put to it.

A write that nothing is configured for costs one look into a table that is usually empty. What is asked may take time:
the verbs ask before they stage, and look afterwards whether what they asked about is still the newest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import orjson

from planform.api.kinds import Object
from planform.apimachinery.selectors import LabelSelector
from planform.apiserver.admission.chain import Operation
from planform.apiserver.admission.dynamic import policies, webhooks
from planform.apiserver.admission.dynamic.attributes import Attributes, operation_options
from planform.apiserver.admission.dynamic.configurations import BINDINGS, MUTATING, POLICIES, VALIDATING
from planform.apiserver.admission.dynamic.matching import is_exempt
from planform.apiserver.admission.dynamic.policies import Binding, EvaluationContext, Policy
from planform.apiserver.admission.dynamic.reviews import request_fields
from planform.apiserver.admission.dynamic.versions import in_version
from planform.apiserver.admission.dynamic.webhooks import Asking, Webhook
from planform.apiserver.admission.webhook_calls import WebhookCalls
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs.core import Core, decode_any, key_of
from planform.apiserver.verbs.requests import Attributes as AccessAttributes
from planform.apiserver.verbs.requests import User
from planform.errors import NotFound, Timeout
from planform.store import Change, Key
from planform.telemetry.metrics import MetricsRegistry

log = logging.getLogger(__name__)

_MAX_SECONDS = 60.0
_CONFIGURED = (MUTATING, VALIDATING, POLICIES, BINDINGS)


class Access(Protocol):
    """Says what a user may do."""

    def allows(self, user: User, attributes: AccessAttributes, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Relevant:
    """All that is to be asked about one operation on one resource."""

    mutating: webhooks.Matched
    policies: policies.Matched
    validating: webhooks.Matched


class DynamicAdmission:
    """Webhooks and policies of the store, followed from the moment this is made."""

    def __init__(self, core: Core, calls: WebhookCalls, access: Access, metrics: MetricsRegistry | None = None) -> None:
        self._core = core
        self._access = access
        self._mutating: list[Webhook] = []
        self._validating: list[Webhook] = []
        self._policies: list[Policy] = []
        self._relevant: dict[tuple[int, Operation, str], Relevant | None] = {}
        self._kinds: list[ServedKind] = []  # whose identities are in the table, so that none is given away anew
        called = (metrics or MetricsRegistry()).counter(
            "planform_admission_webhook_requests_total",
            "Calls of admission webhooks, by webhook, operation and outcome: allowed, denied or failed.",
            ["name", "operation", "outcome"],
        )

        def count(name: str, operation: str, outcome: str) -> None:
            called.labels(name, operation, outcome).inc()

        self._asking = Asking(core, calls, self._namespace_labels, self._conditions_hold, count)
        self._around = EvaluationContext(
            core.registry,
            self._namespace_labels,
            self._namespace,
            self._find_params,
            self._in_version,
            self._authorizer,
        )
        self._is_stale = True
        core.registry.on_change(self._forget)
        core.store.subscribe(self._changed)

    def relevant(self, served: ServedKind, operation: Operation, subresource: str) -> Relevant | None:
        """What is to be asked about such a write, whatever the object; None if there is nothing."""
        if self._is_stale:
            self._load()
        if not self._mutating and not self._validating and not self._policies:
            return None
        key = (id(served), operation, subresource)
        try:
            return self._relevant[key]
        except KeyError:
            pass
        found = self._relevant[key] = self._find(served, operation, subresource)
        self._kinds.append(served)
        return found

    async def mutate(self, relevant: Relevant, attributes: Attributes) -> bool:
        """Whether `attributes.object` is another now; raises what refuses the write."""
        if not relevant.mutating:
            return False
        async with _deadline():
            return await webhooks.mutate(self._asking, relevant.mutating, attributes)

    async def validate(self, relevant: Relevant, attributes: Attributes) -> None:
        """Raises what refuses the write."""
        async with _deadline():
            if relevant.policies:
                await policies.enforce(self._around, relevant.policies, attributes)
            if relevant.validating:
                await webhooks.validate(self._asking, relevant.validating, attributes)

    # -- what is configured

    def _changed(self, changes: Sequence[Change]) -> None:
        if any(change.key.resource in _CONFIGURED for change in changes):
            self._is_stale = True  # it is read when it is next needed, once for all that changes meanwhile

    def _load(self) -> None:
        self._is_stale = False
        self._mutating = self._webhooks(MUTATING)
        self._validating = self._webhooks(VALIDATING)
        bindings: dict[str, list[Binding]] = {}
        for obj in self._objects(BINDINGS):
            with _legible(obj):
                binding = Binding(obj)
                bindings.setdefault(binding.policy, []).append(binding)
        self._policies = []
        for obj in self._objects(POLICIES):
            if bound := bindings.get(str(obj["metadata"]["name"])):
                with _legible(obj):
                    self._policies.append(Policy(obj, bound))
        self._forget()

    def _objects(self, resource: str) -> list[Object]:
        """By their names, which is the order in which they are asked."""
        found = [orjson.loads(entry.value) for _, entry in self._core.store.list(resource)]
        return sorted(found, key=lambda obj: str(obj["metadata"]["name"]))

    def _webhooks(self, resource: str) -> list[Webhook]:
        found: list[Webhook] = []
        for obj in self._objects(resource):
            name = str(obj["metadata"]["name"])
            for index, fields in enumerate(obj.get("webhooks") or ()):
                with _legible(obj):
                    found.append(Webhook(name, index, fields))
        return found

    def _forget(self) -> None:
        self._relevant.clear()
        self._kinds.clear()

    def _find(self, served: ServedKind, operation: Operation, subresource: str) -> Relevant | None:
        if is_exempt(served.kind):
            return None
        registry = self._core.registry

        def of(hooks: Sequence[Webhook]) -> webhooks.Matched:
            return [
                (hook, wanted)
                for hook in hooks
                if (wanted := hook.criteria.resource_for(registry, served, operation, subresource)) is not None
            ]

        mutating, validating = of(self._mutating), of(self._validating)
        held = [
            (policy, wanted)
            for policy in self._policies
            if (wanted := policy.criteria.resource_for(registry, served, operation, subresource)) is not None
        ]
        return Relevant(mutating, held, validating) if mutating or validating or held else None

    # -- what asking needs

    def _namespace(self, name: str) -> Object:
        entry = self._core.store.head(Key("namespaces", "", name))
        if entry is None:
            raise NotFound.of("", "namespaces", name)
        obj: Object = orjson.loads(entry.value)
        return obj

    def _namespace_labels(self, name: str) -> Object:
        labels: Object = self._namespace(name)["metadata"].get("labels") or {}
        return labels

    async def _in_version(self, attributes: Attributes, obj: Object | None, served: ServedKind) -> Object | None:
        return await in_version(self._core, attributes, obj, served)

    async def _find_params(
        self, served: ServedKind, namespace: str, name: str, selector: Mapping[str, Any] | None
    ) -> list[Object]:
        store = self._core.store
        if name:
            entry = store.get(key_of(served, namespace, name))
            return [] if entry is None else await decode_any(self._core, served, [entry])
        entries = [entry for _, entry in store.list(served.resource, namespace or None)]
        wanted = LabelSelector.from_object(selector)
        objects = await decode_any(self._core, served, entries)
        return [obj for obj in objects if wanted.matches(obj["metadata"].get("labels") or {})]

    async def _conditions_hold(self, hook: Webhook, attributes: Attributes, served: ServedKind) -> bool:
        """Whether the match conditions of a webhook mean a write; raises Forbidden if they fail and that counts."""
        from planform.apimachinery.cel_syntax import CelError
        from planform.apiserver.admission.dynamic.expressions import Activation, OutOfBudget, compile_admission

        request = {
            **request_fields(attributes, served),
            "dryRun": attributes.request.dry_run,
            "options": operation_options(attributes.operation, attributes.request),
        }
        request.setdefault("name", "")
        activation = Activation(
            {
                "object": await self._in_version(attributes, attributes.object, served),
                "oldObject": await self._in_version(attributes, attributes.old_object, served),
                "namespaceObject": None,
                "request": request,
                "authorizer": self._authorizer(attributes, served),
            }
        )
        try:
            compiled = [
                (str(each["name"]), compile_admission(str(each["expression"]).strip(), ("bool",)))
                for each in hook.conditions
            ]
            return policies.conditions_hold(compiled, activation)
        except (CelError, OutOfBudget) as error:
            if hook.ignores_failures:
                return False
            raise webhooks.forbidden(attributes, str(error)) from error

    def _authorizer(self, attributes: Attributes, served: ServedKind) -> Any:
        from planform.apimachinery.cel_authorizer import Authorizer, Question, ResourceCheck

        user = attributes.request.user

        def answer(question: Question) -> bool:
            asker = user if question.account is None else _account(*question.account)
            if question.path:
                return self._access.allows(asker, AccessAttributes(question.verb, path=question.path))
            return self._access.allows(
                asker,
                AccessAttributes(
                    question.verb,
                    question.group,
                    "*",
                    question.resource,
                    question.subresource,
                    question.namespace,
                    question.name,
                ),
            )

        kind = served.kind
        about = Question(
            group=kind.group,
            resource=kind.plural,
            subresource=attributes.subresource,
            namespace=attributes.shown_namespace,
            name=attributes.name,
        )
        return Authorizer(answer, None, ResourceCheck(answer, about))


@contextmanager
def _legible(obj: Object) -> Iterator[None]:
    """Validation lets nothing pass that cannot be read; what got by it must not stop every write."""
    try:
        yield
    except (msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError):
        log.exception("what configures admission cannot be read", extra={"object": obj["metadata"]["name"]})


@asynccontextmanager
async def _deadline() -> AsyncIterator[None]:
    """All webhooks of one kind together have as long as a request has in a cluster."""
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            yield
    except TimeoutError as error:
        raise Timeout("Timeout: request did not complete within requested timeout") from error


def _account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)
