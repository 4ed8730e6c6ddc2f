"""Asking webhooks about a write, as a kube-apiserver does: mutating ones in turn, validating ones all at once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from planform.api.kinds import Object
from planform.apimachinery import patches
from planform.apiserver.admission.dynamic.attributes import Attributes
from planform.apiserver.admission.dynamic.matching import Criteria, NamespaceLabels, Rule
from planform.apiserver.admission.dynamic.reviews import (
    Answer,
    InvalidResponse,
    denial,
    no_dry_run,
    read_answer,
    review_of,
)
from planform.apiserver.admission.dynamic.versions import converted, in_version
from planform.apiserver.admission.webhook_calls import CallFailed, WebhookCalls
from planform.apiserver.crds.registry import ServedKind
from planform.errors import ApiError, Forbidden, InternalError, naming, qualified

if TYPE_CHECKING:
    from planform.apiserver.verbs.core import Core

_NO_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    """A webhook as it stands in its configuration, where validation has let it."""

    name: str
    client_config: dict[str, Any] = {}
    rules: tuple[Rule, ...] = ()
    failure_policy: str = "Fail"
    match_policy: str = "Equivalent"
    namespace_selector: dict[str, Any] | None = None
    object_selector: dict[str, Any] | None = None
    side_effects: str = ""
    timeout_seconds: int = 10
    admission_review_versions: tuple[str, ...] = ()
    match_conditions: tuple[dict[str, Any], ...] = ()
    reinvocation_policy: str = "Never"


class Webhook:
    """One webhook of a configuration, ready to be asked."""

    def __init__(self, configuration: str, index: int, fields: Object) -> None:
        known = msgspec.convert(fields, _Fields)
        self.identity = (configuration, index, known.name)
        self.configuration = configuration
        self.name = known.name
        self.client_config = known.client_config
        self.ignores_failures = known.failure_policy == "Ignore"
        self.no_side_effects = known.side_effects in _NO_SIDE_EFFECTS
        self.seconds = known.timeout_seconds
        self.review_version = next((each for each in known.admission_review_versions if each in ("v1", "v1beta1")), "")
        self.conditions = known.match_conditions
        self.is_reinvoked = known.reinvocation_policy == "IfNeeded"
        self.criteria = Criteria(
            known.rules,
            match_policy=known.match_policy,
            namespace_selector=known.namespace_selector,
            object_selector=known.object_selector,
        )


class Asking:
    """What asking needs beside the webhooks themselves."""

    def __init__(
        self,
        core: Core,
        calls: WebhookCalls,
        namespace_labels: NamespaceLabels,
        conditions_hold: Callable[[Webhook, Attributes, ServedKind], Awaitable[bool]],
        count: Callable[[str, str, str], None],
    ) -> None:
        self.core = core
        self.calls = calls
        self.namespace_labels = namespace_labels
        self.conditions_hold = conditions_hold
        self.count = count
        """Notes a call: of which webhook, about which operation, and how it ended."""


Matched = Sequence[tuple[Webhook, ServedKind]]
"""Webhooks that want to be asked about writes of a kind, each with the version it wants them in."""


class CallingFailed(Exception):
    """A webhook could not be asked; what that means for the write is for its failure policy to say."""


async def mutate(asking: Asking, hooks: Matched, attributes: Attributes) -> bool:
    """Ask mutating webhooks one after another, each about what those before it made of the object.

    Those that want it are asked once more if others changed the object after them. Whether `attributes.object` is
    another now. Raises what refuses the write.
    """
    changed = False
    asked: set[tuple[str, int, str]] = set()  # reinvocable ones that have not seen a later change yet
    again: set[tuple[str, int, str]] = set()
    for round_ in (0, 1):
        if round_ and not again:
            break
        for index, (hook, served) in enumerate(hooks):
            if round_ and hook.identity not in again:
                continue
            if not await _is_meant(asking, hook, attributes, served):
                continue
            # What is patched is not noted: the audit log is of level Metadata, and holds nothing that was sent.
            note = f"mutation.webhook.admission.k8s.io/round_{round_}_index_{index}"
            differs = False
            try:
                differs = await _mutate_one(asking, hook, attributes, served)
            except CallingFailed as error:
                _fail(hook, attributes, error, f"failed-open.{note}")
            finally:
                details = {"configuration": hook.configuration, "webhook": hook.name, "mutated": differs}
                attributes.request.annotate(note, orjson.dumps(details).decode())
            if differs:
                changed = True
                again |= asked
                asked.clear()
            if hook.is_reinvoked:
                asked.add(hook.identity)
    return changed


async def validate(asking: Asking, hooks: Matched, attributes: Attributes) -> None:
    """Ask validating webhooks at the same time. Raises the first refusal, by their order."""
    meant = [(hook, served) for hook, served in hooks if await _is_meant(asking, hook, attributes, served)]
    if not meant:
        return
    if len(meant) == 1:
        await _validate_one(asking, *meant[0], attributes, 0)
        return
    results = await asyncio.gather(
        *(_validate_one(asking, hook, served, attributes, index) for index, (hook, served) in enumerate(meant)),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _is_meant(asking: Asking, hook: Webhook, attributes: Attributes, served: ServedKind) -> bool:
    if not hook.criteria.selects(attributes, asking.namespace_labels):
        return False
    return not hook.conditions or await asking.conditions_hold(hook, attributes, served)


async def _validate_one(asking: Asking, hook: Webhook, served: ServedKind, attributes: Attributes, index: int) -> None:
    try:
        answer = await _ask(asking, hook, served, attributes, mutating=False)
    except CallingFailed as error:
        _fail(hook, attributes, error, f"failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}")
        return
    if not answer.allowed:
        raise denial(hook.name, answer.result)


async def _mutate_one(asking: Asking, hook: Webhook, attributes: Attributes, served: ServedKind) -> bool:
    answer = await _ask(asking, hook, served, attributes, mutating=True)
    if not answer.allowed:
        raise denial(hook.name, answer.result)
    if not answer.patch:
        return False
    if attributes.object is None:
        raise internal_error(
            f'admission webhook "{hook.name}" attempted to modify the object, which is not supported for this operation'
        )
    before = await in_version(asking.core, attributes, attributes.object, served)
    assert before is not None
    after = _patched(before, answer.patch)
    if after == before:
        return False
    attributes.object = after if served is attributes.served else await _back(asking, after, attributes, served)
    return True


async def _back(asking: Asking, obj: Object, attributes: Attributes, served: ServedKind) -> Object:
    if attributes.subresource == "scale":
        return obj
    return await converted(asking.core, obj, served, attributes.served)


def _patched(before: Object, patch: Any) -> Object:
    try:
        after = patches.json_patch(orjson.loads(orjson.dumps(before)), patch)
        # Nothing may be in two places, as a copied map is: what follows changes maps in place.
        after = orjson.loads(orjson.dumps(after))
    except (patches.MalformedPatch, patches.PatchError, orjson.JSONEncodeError, RecursionError) as error:
        raise internal_error(str(error)) from error
    if type(after) is not dict or type(after.get("metadata")) is not dict:
        raise internal_error("the patch of an admission webhook leaves no object with metadata behind")
    for field in ("apiVersion", "kind"):
        if after.get(field) != before.get(field):
            raise internal_error(
                f"the patch of an admission webhook changes {field} to {str(after.get(field))[:100]!r}"
            )
    result: Object = after
    return result


async def _ask(asking: Asking, hook: Webhook, served: ServedKind, attributes: Attributes, *, mutating: bool) -> Answer:
    """The webhook's answer; raises CallingFailed, and BadRequest for a dry run that it would not be one for."""
    if attributes.request.dry_run and not hook.no_side_effects:
        raise no_dry_run(hook.name)
    try:
        answer = await _call(asking, hook, served, attributes, mutating=mutating)
    except CallingFailed:
        asking.count(hook.name, attributes.operation, "failed")
        raise
    asking.count(hook.name, attributes.operation, "allowed" if answer.allowed else "denied")
    for key, value in answer.audit_annotations.items():
        attributes.request.annotate(f"{hook.name}/{key}", value)
    for warning in answer.warnings:
        attributes.request.warn(warning)
    return answer


async def _call(asking: Asking, hook: Webhook, served: ServedKind, attributes: Attributes, *, mutating: bool) -> Answer:
    if not hook.review_version:
        raise CallingFailed("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
    uid = str(uuid.uuid4())
    obj = await in_version(asking.core, attributes, attributes.object, served)
    old = await in_version(asking.core, attributes, attributes.old_object, served)
    body = review_of(uid, hook.review_version, attributes, served, obj, old)
    try:
        raw = await asking.calls.post(hook.client_config, body, seconds=hook.seconds, query=f"timeout={hook.seconds}s")
    except CallFailed as error:
        raise CallingFailed(f"failed to call webhook: {error}") from error
    try:
        return read_answer(raw, uid, hook.review_version, mutating=mutating)
    except InvalidResponse as error:
        raise CallingFailed(f"received invalid webhook response: {error}") from error


def _fail(hook: Webhook, attributes: Attributes, error: CallingFailed, annotation: str) -> None:
    if not hook.ignores_failures:
        raise internal_error(f'failed calling webhook "{hook.name}": {error}') from error
    attributes.request.annotate(annotation, hook.name)


def internal_error(text: str) -> InternalError:
    """An error of the server itself, in Kubernetes' words."""
    return InternalError(f"Internal error occurred: {text}", details={"causes": [{"message": text}]})


def forbidden(attributes: Attributes, text: str) -> ApiError:
    """What a condition that cannot be evaluated makes of a write."""
    kind = attributes.served.kind
    return Forbidden(
        f'{qualified(kind.group, kind.plural)} "{shown_name(attributes)}" is forbidden: {text}',
        details=naming(kind.group, kind.plural, attributes.name),
    )


def shown_name(attributes: Attributes) -> str:
    """The name in a refusal; what is still to get one is told by its prefix."""
    if attributes.name:
        return attributes.name
    metadata: Mapping[str, Any] = (attributes.object or {}).get("metadata") or {}
    return f"{metadata.get('generateName') or 'Unknown'}"
