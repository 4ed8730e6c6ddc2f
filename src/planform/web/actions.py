"""What can be done from the page: each an ordinary write with the user's own rights, and a command that does the same.

What the user may not do is shown, with the right it needs. Nothing here decides on anybody's behalf: the control plane
checks every write as it checks kubectl's.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from typing import Any, Final

from planform.api import names
from planform.api.annotations import is_paused
from planform.api.kinds import Object
from planform.api.xr import composition_fields, style_of
from planform.blueprints.model import CANCEL_ANNOTATION
from planform.client.protocol import Patch, PatchType
from planform.errors import BadRequest, Forbidden, NotFound
from planform.web import rows
from planform.web.access import Right
from planform.web.answers import Act, Allowed, Done
from planform.web.context import Looker
from planform.web.mirror import PREVIEW, ROLLOUT, ROLLOUT_ACTION, ROLLOUT_GROUP, Definition

MANAGER: Final = "planform-dashboard"
CONFIRM: Final = "planform.dev/confirm-deletion"
READ_ONLY: Final = "this dashboard was started with --read-only"
ROLLOUT_ACTIONS: Final[Mapping[str, tuple[str, bool, str]]] = {
    "Pause": ("Pause", False, "XRs in flight settle; nobody else is admitted."),
    "Resume": ("Resume", False, "Goes on where it was paused."),
    "Approve": ("Approve", True, "Counts as your approval of what it waits for."),
    "Promote": ("Promote", True, "Begins the next wave now."),
    "PromoteFull": ("Promote fully", True, "Begins all waves now."),
    "SkipGate": ("Skip gate", True, "Goes on although the gate has not passed."),
    "Abort": ("Abort", True, "Every XR goes back to the revision that was released before."),
    "Undo": ("Undo", True, "Moves every XR back, after it has completed."),
    "Retry": ("Retry", True, "Starts a new Rollout of the same change, with all its waves."),
}
"""Its label, whether a reason is asked for, and what it does."""
_VERB: Final = {"Resume": "pause", "PromoteFull": "promote", "SkipGate": "skipgate"}
"""The verb on rollouts that an action needs, where it is not its name."""
_FINAL: Final = frozenset({"Completed", "Aborted", "Undone", "Failed", "Superseded"})


def rollout_applies(action: str, phase: str) -> bool:
    """Whether an action makes sense now. Abort always does until the end: a way back is never disabled by state."""
    match action:
        case "Undo":
            return phase == "Completed"
        case "Retry":
            return phase in ("Aborted", "Undone", "Failed")
        case "Resume":
            return phase == "Paused"
        case "Pause":
            return phase not in _FINAL and phase not in ("Paused", "Aborting", "Undoing")
        case "Abort":
            return True
        case _:
            return phase not in _FINAL and phase not in ("Aborting", "Undoing")


async def xr_actions(
    looker: Looker, definition: Definition, xr: Object, *, token: str, newest: str
) -> tuple[Allowed, ...]:
    metadata = xr["metadata"]
    namespace, name = rows.text(metadata.get("namespace")), rows.text(metadata.get("name"))
    right = Right("patch", definition.gvk.group, definition.plural, namespace, name)
    missing = READ_ONLY if looker.read_only else await looker.access.missing(right)
    word = f"{definition.plural}.{definition.gvk.group}"
    where = f" -n {shlex.quote(namespace)}" if namespace else ""
    patch = f"planform patch {word} {name}{where} --type merge -p "
    annotate = f"planform annotate {word} {name}{where} "
    fields = composition_fields(xr, style_of(xr))
    pinned = fields.get("compositionUpdatePolicy") == "Manual"
    revision = rows.text(rows.mapping(fields.get("compositionRevisionRef")).get("name"))
    found = []

    def offer(action: str, label: str, command: str, detail: str, *, danger: bool = False, why: str = "") -> None:
        found.append(
            Allowed(
                action=action,
                label=label,
                allowed=not (missing or why),
                why=missing or why,
                command=command,
                detail=detail,
                danger=danger,
            )
        )

    if is_paused(xr):
        offer("resume", "Resume", annotate + f"{names.PAUSED_ANNOTATION}-", "It is reconciled again.")
    else:
        offer("pause", "Pause", annotate + f"{names.PAUSED_ANNOTATION}=true", "Nothing of it is changed until resumed.")
    offer(
        "reconcile",
        "Reconcile now",
        annotate + f'{names.RECONCILE_REQUESTED_ANNOTATION}="$(date -u +%FT%TZ)" --overwrite',
        "Runs its pipeline once, soon.",
    )
    if pinned:
        command = patch + shlex.quote(_json(_composition_patch(xr, {"compositionUpdatePolicy": "Automatic"})))
        offer("follow", "Follow the newest", command, "It takes each new revision of its Composition again.")
    elif revision:
        command = patch + shlex.quote(_json(_composition_patch(xr, {"compositionUpdatePolicy": "Manual"})))
        offer("pin", "Pin to this revision", command, f"It stays on {revision} until somebody moves it.")
    if pinned and newest and newest != revision:
        move = {"compositionRevisionRef": {"name": newest}}
        offer("move", "Move to the newest", patch + shlex.quote(_json(_composition_patch(xr, move))), f"To {newest}.")
    if token:
        offer(
            "confirm-deletion",
            "Confirm deletion",
            annotate + f"{CONFIRM}={token} --overwrite",
            "Exactly the deletions that its condition names are carried out.",
            danger=True,
        )
    return tuple(found)


async def rollout_actions(looker: Looker, rollout: Object) -> tuple[Allowed, ...]:
    name = rollout["metadata"]["name"]
    phase = rows.text(rows.mapping(rollout.get("status")).get("phase")) or "Pending"
    found = []
    for action, (label, needs_reason, detail) in ROLLOUT_ACTIONS.items():
        if not rollout_applies(action, phase):
            continue
        missing = READ_ONLY if looker.read_only else await looker.access.missing(*_rollout_rights(action, name))
        command = {"PromoteFull": "promote --full", "SkipGate": "promote --skip-gate"}.get(action, action.lower())
        reason = ' --reason "…"' if needs_reason else ""
        found.append(
            Allowed(
                action=action,
                label=label,
                allowed=not missing,
                why=missing,
                command=f"planform rollout {command} {name}{reason}",
                needs_reason=needs_reason,
                danger=action in ("Abort", "Undo"),
                detail=detail,
            )
        )
    return tuple(found)


def _rollout_rights(action: str, name: str) -> tuple[Right, Right]:
    verb = _VERB.get(action, action.lower())
    return Right("create", ROLLOUT_GROUP, "rolloutactions"), Right(verb, ROLLOUT_GROUP, "rollouts", "", name)


async def revision_actions(looker: Looker, function: Object, revision: Object) -> tuple[Allowed, ...]:
    name = rows.text(revision["metadata"].get("name"))
    state = rows.text(rows.mapping(revision.get("spec")).get("desiredState")) or "Inactive"
    package = rows.text(rows.mapping(function.get("metadata")).get("name"))
    automatic = rows.mapping(function.get("spec")).get("revisionActivationPolicy", "Automatic") == "Automatic"
    action, label = ("deactivate", "Deactivate") if state == "Active" else ("activate", "Activate")
    missing = READ_ONLY if looker.read_only else ""
    if not missing and automatic:
        missing = "the function activates its newest revisions by itself (revisionActivationPolicy: Automatic)"
    if not missing:
        missing = await looker.access.missing(Right("patch", names.PACKAGES_GROUP, "functionrevisions", "", name))
    command = f"planform function {action} {package} --revision {name}"
    return (Allowed(action=f"{action}-revision", label=label, allowed=not missing, why=missing, command=command),)


async def actionset_actions(looker: Looker, obj: Object, state: str) -> tuple[Allowed, ...]:
    if obj.get("kind") != "ActionSet" or state in ("complete", "failed", "cancelled", "Complete", "Failed"):
        return ()
    namespace, name = rows.text(obj["metadata"].get("namespace")), rows.text(obj["metadata"].get("name"))
    right = Right("patch", names.BLUEPRINTS_GROUP, "actionsets", namespace, name)
    missing = READ_ONLY if looker.read_only else await looker.access.missing(right)
    command = f"planform actionset cancel {name} -n {namespace}"
    detail = "Phases that have not begun do not begin; those that run are stopped."
    return (
        Allowed(
            action="cancel-actionset",
            label="Cancel",
            allowed=not missing,
            why=missing,
            command=command,
            danger=True,
            detail=detail,
        ),
    )


def _json(value: object) -> str:
    import orjson

    return orjson.dumps(value).decode()


def _composition_patch(xr: Object, fields: Mapping[str, object]) -> dict[str, Any]:
    if style_of(xr) == "modern":
        return {"spec": {"crossplane": dict(fields)}}
    return {"spec": dict(fields)}


# -- carrying out

Carry = Callable[[Looker, Act], Awaitable[str]]


async def act(looker: Looker, asked: Act) -> Done:
    """Do it, with the user's rights. Raises what the control plane says if it refuses."""
    if looker.read_only:
        raise Forbidden(READ_ONLY)
    if asked.confirm != asked.name:
        raise BadRequest(f'confirm must be the object\'s name, "{asked.name}"')
    if len(asked.reason) > 1000:
        raise BadRequest("a reason has at most 1,000 characters")
    if asked.kind == "Rollout" and asked.action in ROLLOUT_ACTIONS:
        return Done(message=await _rollout(looker, asked))
    carry = _ACTIONS.get(asked.action)
    if carry is None:
        raise BadRequest(f'there is no action "{asked.action}"')
    return Done(message=await carry(looker, asked))


async def _rollout(looker: Looker, asked: Act) -> str:
    _, needs_reason, _ = ROLLOUT_ACTIONS[asked.action]
    if needs_reason and not asked.reason.strip():
        raise BadRequest(f"{asked.action} needs a reason")
    rollout = await looker.upstream.client.get(ROLLOUT, asked.name)
    owner = {"apiVersion": ROLLOUT.api_version, "kind": ROLLOUT.kind, "name": asked.name}
    spec = {"rollout": asked.name, "action": asked.action}
    if asked.reason.strip():
        spec["reason"] = asked.reason.strip()
    if asked.value:
        spec["wave"] = asked.value
    await looker.upstream.client.create(
        {
            "apiVersion": ROLLOUT_ACTION.api_version,
            "kind": ROLLOUT_ACTION.kind,
            "metadata": {
                "generateName": f"{asked.name[:40]}-{asked.action.lower()}-",
                "ownerReferences": [owner | {"uid": rollout["metadata"]["uid"]}],
            },
            "spec": spec,
        },
        manager=MANAGER,
    )
    return f"{asked.action} of Rollout {asked.name} is recorded"


async def _patch_xr(looker: Looker, asked: Act, patch: Mapping[str, Any]) -> None:
    definition = looker.mirror.definition_for(asked.kind)
    if definition is None:
        raise NotFound(f'no XRD that you may read defines "{asked.kind}"')
    body = Patch(PatchType.MERGE, dict(patch))
    await looker.upstream.client.patch(definition.gvk, asked.name, body, namespace=asked.namespace, manager=MANAGER)


async def _annotate(looker: Looker, asked: Act, name: str, value: str | None) -> None:
    await _patch_xr(looker, asked, {"metadata": {"annotations": {name: value}}})


async def _pause(looker: Looker, asked: Act) -> str:
    await _annotate(looker, asked, names.PAUSED_ANNOTATION, "true")
    return f"{asked.name} is paused"


async def _resume(looker: Looker, asked: Act) -> str:
    await _annotate(looker, asked, names.PAUSED_ANNOTATION, None)
    return f"{asked.name} is reconciled again"


async def _reconcile(looker: Looker, asked: Act) -> str:
    now = looker.mirror.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await _annotate(looker, asked, names.RECONCILE_REQUESTED_ANNOTATION, now)
    return f"a reconcile of {asked.name} is requested"


async def _confirm(looker: Looker, asked: Act) -> str:
    if not asked.value:
        raise BadRequest("confirming a deletion needs its token")
    await _annotate(looker, asked, CONFIRM, asked.value)
    return f"the deletions of {asked.name} are confirmed"


async def _composition_field(looker: Looker, asked: Act, fields: Mapping[str, Any]) -> None:
    definition = looker.mirror.definition_for(asked.kind)
    if definition is None:
        raise NotFound(f'no XRD that you may read defines "{asked.kind}"')
    xr = await looker.upstream.client.get(definition.gvk, asked.name, namespace=asked.namespace)
    await _patch_xr(looker, asked, _composition_patch(xr, fields))


async def _pin(looker: Looker, asked: Act) -> str:
    await _composition_field(looker, asked, {"compositionUpdatePolicy": "Manual"})
    return f"{asked.name} stays on its revision"


async def _follow(looker: Looker, asked: Act) -> str:
    await _composition_field(looker, asked, {"compositionUpdatePolicy": "Automatic"})
    return f"{asked.name} follows its Composition"


async def _move(looker: Looker, asked: Act) -> str:
    if asked.value not in looker.mirror.revisions:
        raise BadRequest(f'there is no CompositionRevision "{asked.value}"')
    await _composition_field(looker, asked, {"compositionRevisionRef": {"name": asked.value}})
    return f"{asked.name} moves to {asked.value}"


async def _switch(looker: Looker, asked: Act, state: str) -> str:
    patch = Patch(PatchType.MERGE, {"spec": {"desiredState": state}})
    await looker.upstream.client.patch(names.FUNCTION_REVISION, asked.name, patch, manager=MANAGER)
    return f"{asked.name} becomes {state.lower()}"


async def _activate(looker: Looker, asked: Act) -> str:
    return await _switch(looker, asked, "Active")


async def _deactivate(looker: Looker, asked: Act) -> str:
    return await _switch(looker, asked, "Inactive")


async def _cancel(looker: Looker, asked: Act) -> str:
    patch = Patch(PatchType.MERGE, {"metadata": {"annotations": {CANCEL_ANNOTATION: "true"}}})
    await looker.upstream.client.patch(names.ACTION_SET, asked.name, patch, namespace=asked.namespace, manager=MANAGER)
    return f"ActionSet {asked.name} is being cancelled"


async def _preview(looker: Looker, asked: Act) -> str:
    """Preview the newest revision of a Composition over the fleet."""
    revision = looker.mirror.revisions.get(asked.value)
    if revision is None:
        raise BadRequest(f'there is no CompositionRevision "{asked.value}"')
    made = await looker.upstream.client.create(
        {
            "apiVersion": PREVIEW.api_version,
            "kind": PREVIEW.kind,
            "metadata": {"generateName": f"{asked.name[:40]}-"},
            "spec": {"change": {"revision": {"composition": asked.name, "name": asked.value}}},
        },
        manager=MANAGER,
    )
    return f"Preview {made['metadata']['name']} is made"


_ACTIONS: Final[Mapping[str, Carry]] = {
    "pause": _pause,
    "resume": _resume,
    "reconcile": _reconcile,
    "confirm-deletion": _confirm,
    "pin": _pin,
    "follow": _follow,
    "move": _move,
    "activate-revision": _activate,
    "deactivate-revision": _deactivate,
    "cancel-actionset": _cancel,
    "start-preview": _preview,
}
