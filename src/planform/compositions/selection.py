"""Which Composition an XR uses, and which of its revisions. Pure; the XR reconciler writes what is decided here.

A Composition is chosen once and then stays: enforced by the XRD, else the XR's own reference, else the XRD's default,
else by labels. A revision is chosen at every reconcile: under the policy Automatic the newest that the selector allows
and that is released; under Manual the one referred to, which moves only when it is missing or the selector has changed
since. A revision without a condition `Released` is released: only a RolloutPolicy makes that condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from planform.api.conditions import UPDATE_POLICY_ENFORCED, XrCondition
from planform.api.kinds import Object, gvk_of
from planform.api.metadata import created_at, is_deleted, label, labels_of, name_of
from planform.api.names import COMPOSITION_NAME_LABEL
from planform.api.owners import controller_of
from planform.api.xr import Style, composition_fields
from planform.compositions.revisions import composition_label, is_revision_of, matches, newest_first
from planform.errors import PlanformError
from planform.pipeline.revision_selectors import RevisionSelector

RELEASED: Final = "Released"
_NEAR_MISSES: Final = 3


class SelectionError(PlanformError):
    """No Composition or revision can be used for this XR."""

    reason = "SelectionError"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class NoComposition(SelectionError):
    """No Composition is for this kind of XR and has the labels it asks for."""

    reason = "NoComposition"


class NoRevision(SelectionError):
    """The Composition has no revision, or none that the XR's selector allows."""

    reason = "NoRevision"


class RevisionRefused(SelectionError):
    """The revision that the XR refers to does not exist or is not one of its Composition."""

    reason = "RevisionRefused"


class WrongCompositeType(SelectionError):
    """The Composition is for another kind of XR, or for another version of it."""

    reason = "WrongCompositeType"


class PipelineNotValid(SelectionError):
    """The revision's pipeline has not been found valid, so nothing is run."""

    reason = "PipelineNotValid"


class NotReleased(SelectionError):
    """None of the Composition's revisions that the XR may follow is released."""

    reason = "NotReleased"


class Policy(StrEnum):
    """Whether an XR follows new revisions by itself."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class Rule(StrEnum):
    """What decided."""

    ENFORCED = "Enforced"
    REF = "Ref"
    DEFAULT = "Default"
    SELECTOR = "Selector"
    ONLY = "Type"  # nothing asks for a certain one: any Composition of the XR's type
    NEWEST = "Newest"


class CompositionChoice(msgspec.Struct, frozen=True):
    """The Composition an XR uses; `write` if the XR's compositionRef does not say so yet."""

    name: str
    rule: Rule
    write: bool


class RevisionChoice(msgspec.Struct, frozen=True):
    """The revision an XR uses, and what has to be written about it."""

    revision: Object
    write_ref: bool
    policy: Policy
    rule: Rule
    selector: RevisionSelector
    write_selector: Object | None = None
    """The XRD's default, to be written as the XR's compositionRevisionSelector; None leaves that field alone."""
    no_way_back: bool = False
    """Whether the revision was taken back, and the XR stays only because no other one is open."""

    @property
    def name(self) -> str:
        return name_of(self.revision)

    @property
    def resolved_selector(self) -> Object:
        """For `status.planform.revisionSelector`, always: `{"matchLabels": {}}` says that there was no selector. The
        next choice takes it as `last_selector`."""
        return self.selector.as_object()


def named_composition(xr: Mapping[str, Any], xrd_spec: Mapping[str, Any], *, style: Style) -> CompositionChoice | None:
    """The Composition that XR or XRD name; None if one has to be looked for among all."""
    fields = composition_fields(xr, style)
    ref = _name(fields.get("compositionRef"))
    if enforced := _name(xrd_spec.get("enforcedCompositionRef")):
        return CompositionChoice(enforced, Rule.ENFORCED, write=ref != enforced)
    if ref:
        return CompositionChoice(ref, Rule.REF, write=False)
    default = _name(xrd_spec.get("defaultCompositionRef"))
    if default and not fields.get("compositionSelector"):
        return CompositionChoice(default, Rule.DEFAULT, write=True)
    return None


def choose_composition(
    xr: Mapping[str, Any], xrd_spec: Mapping[str, Any], compositions: Sequence[Object], *, style: Style
) -> CompositionChoice:
    """The Composition an XR uses. Raises NoComposition, which names those that almost fit.

    Of several that fit it is the oldest, then the first by name: a Composition that is added later surprises nobody.
    """
    named = named_composition(xr, xrd_spec, style=style)
    if named is not None:
        return named
    selector = _labels(composition_fields(xr, style).get("compositionSelector"))
    fitting = [each for each in compositions if _is_for(each, xr) and matches(each, selector) and not is_deleted(each)]
    if not fitting:
        raise _no_composition(xr, selector, compositions)
    chosen = min(fitting, key=_oldest_first)
    return CompositionChoice(name_of(chosen), Rule.SELECTOR if selector else Rule.ONLY, write=True)


def effective_policy(xr: Mapping[str, Any], xrd_spec: Mapping[str, Any], *, style: Style) -> Policy:
    """The policy an XR is under: the XRD's if it enforces one, else its own, else the XRD's default."""
    return Policy(
        xrd_spec.get("enforceCompositionUpdatePolicy")
        or composition_fields(xr, style).get("compositionUpdatePolicy")
        or xrd_spec.get("defaultCompositionUpdatePolicy")
        or Policy.AUTOMATIC
    )


def enforced_policy(
    xr: Mapping[str, Any], xrd: str, xrd_spec: Mapping[str, Any], *, style: Style
) -> XrCondition | None:
    """What the XR says of the policy that its XRD enforces; None if it never enforced one."""
    policy = xrd_spec.get("enforceCompositionUpdatePolicy")
    if policy:
        own = composition_fields(xr, style).get("compositionUpdatePolicy")
        text = f'the XRD "{xrd}" enforces the composition update policy {policy}'
        if own and own != policy:
            text += f"; compositionUpdatePolicy: {own} of this XR has no effect"
        return XrCondition(UPDATE_POLICY_ENFORCED, "True", "EnforcedByDefinition", text)
    conditions: Sequence[Mapping[str, Any]] = (xr.get("status") or {}).get("conditions") or ()
    if any(each["type"] == UPDATE_POLICY_ENFORCED for each in conditions):
        return XrCondition(UPDATE_POLICY_ENFORCED, "False", "NotEnforced")
    return None


def choose_revision(
    xr: Mapping[str, Any],
    xrd_spec: Mapping[str, Any],
    composition_name: str,
    revisions: Sequence[Object],
    *,
    style: Style,
    last_selector: Mapping[str, Any] | None = None,
    composition_uid: str = "",
    for_new: str = "",
) -> RevisionChoice:
    """The revision an XR uses now. Raises NoRevision or RevisionRefused.

    `revisions` may hold more than those of the Composition. `last_selector` is what the last choice left in the XR's
    status; without it nothing is known to have changed, so a reference that is there stays. `for_new` is the revision
    that a Rollout is about to release and wants XRs to begin with which have none yet.
    """
    fields = composition_fields(xr, style)
    policy = effective_policy(xr, xrd_spec, style=style)
    ref = _name(fields.get("compositionRevisionRef"))
    given = fields.get("compositionRevisionSelector")
    copied = None if ref or given else xrd_spec.get("defaultCompositionRevisionSelector")
    selector = RevisionSelector.of(given or copied)
    if selector.problem:
        raise NoRevision(
            f"the selector of composition revisions is not valid: {selector.problem}",
            hint="correct compositionRevisionSelector, or the XRD's defaultCompositionRevisionSelector",
        )
    changed = bool(selector) and last_selector is not None and RevisionSelector.of(last_selector) != selector
    if policy is Policy.MANUAL and ref and not changed:
        revision, rule, stuck = _pinned(ref, composition_name, revisions), Rule.REF, False
    else:
        revision, stuck = _newest(composition_name, composition_uid, revisions, selector, ref, for_new)
        rule = Rule.SELECTOR if selector else Rule.NEWEST
    return RevisionChoice(
        revision=revision,
        write_ref=name_of(revision) != ref,
        policy=policy,
        rule=rule,
        selector=selector,
        write_selector=selector.as_object() if copied else None,
        no_way_back=stuck,
    )


def check_revision(xr: Mapping[str, Any], revision: Mapping[str, Any]) -> None:
    """Refuse a revision that is not for this XR, or whose pipeline is not known to be valid."""
    composition = label(revision, COMPOSITION_NAME_LABEL)
    if not _is_for(revision, xr):
        raise WrongCompositeType(
            f'composition "{composition}" is for {_type(revision)}, and this XR is {_shown_type(xr)}',
            hint="refer to a composition of this type, or remove compositionRef to have one chosen",
        )
    valid = _validity(revision)
    if valid is None or valid["status"] != "True":
        message = (valid or {}).get("message") or "nothing has looked at its pipeline yet"
        raise PipelineNotValid(f'composition revision "{name_of(revision)}" cannot be used: {message}')


def is_validated(revision: Mapping[str, Any]) -> bool:
    """Whether it is known if the revision's pipeline is valid; XRs do not move to one before."""
    valid = _validity(revision)
    return valid is not None and valid["status"] in ("True", "False")


class Release(msgspec.Struct, frozen=True):
    """What a revision's condition `Released` says."""

    status: str
    reason: str

    @property
    def withholds(self) -> bool:
        return self.status != "True"


def release_of(revision: Mapping[str, Any]) -> Release | None:
    """None for a revision that no policy has ever held."""
    for each in (revision.get("status") or {}).get("conditions") or ():
        if each["type"] == RELEASED:
            return Release(str(each.get("status")), str(each.get("reason") or ""))
    return None


def is_released(revision: Mapping[str, Any]) -> bool:
    """Whether XRs that follow its Composition may take it."""
    release = release_of(revision)
    return release is None or not release.withholds


def _validity(revision: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions: Sequence[Mapping[str, Any]] = (revision.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "ValidPipeline"), None)


def _pinned(ref: str, composition: str, revisions: Sequence[Object]) -> Object:
    found = next((each for each in revisions if name_of(each) == ref), None)
    if found is not None and _belongs_to(found, composition):
        return found
    raise RevisionRefused(
        f'composition "{composition}" has no revision "{ref}"' + (": it is another composition's" if found else ""),
        hint="set compositionRevisionRef to one of its revisions, or remove it to pin the newest",
    )


def _newest(
    composition: str, uid: str, revisions: Sequence[Object], selector: RevisionSelector, ref: str, for_new: str
) -> tuple[Object, bool]:
    """The revision to follow, and whether the XR is stuck on one that was taken back."""
    ours = newest_first(each for each in revisions if is_revision_of(each, composition, uid))
    fitting = [each for each in ours if selector.matches(each)]
    if not ref and for_new:
        for each in fitting:
            release = release_of(each)
            if name_of(each) == for_new and release is not None and release.reason == "InRollout":
                return each, False
    if fitting:
        return _followed(composition, fitting, ref)
    if not ours:
        raise NoRevision(
            f'composition "{composition}" has no revisions',
            hint="see whether it exists, and the conditions in its status",
        )
    near = _several(f'"{name_of(each)}" {_fails(each, selector)}' for each in ours)
    raise NoRevision(
        f'no revision of composition "{composition}" has the labels {selector}: {near}',
        hint="revisions carry the labels their composition had: label the composition, or change the selector",
    )


def _followed(composition: str, mine: Sequence[Object], ref: str) -> tuple[Object, bool]:
    """Of the revisions that an XR may follow, the newest first, the one it follows, given the one it refers to."""
    # A revision is made first and validated a moment later. Until then XRs stay where they are: none of them stumbles.
    best = next((each for each in mine if is_validated(each) and is_released(each)), None)
    withheld = [release_of(each) for each in mine]
    if not any(each is not None and each.withholds for each in withheld):
        return best or mine[0], False
    at = next((index for index, each in enumerate(mine) if name_of(each) == ref), None)
    current = None if at is None else mine[at]
    release = None if at is None else withheld[at]
    if current is None or at is None or release is None or not release.withholds:
        if best is None and current is None:
            raise NotReleased(
                f'no revision of composition "{composition}" is released',
                hint="see how its rollout goes: planform rollout list",
            )
        return best or current or mine[0], False
    newer = [each.reason for each in withheld[:at] if each is not None and each.withholds]
    returns = release.reason in ("Aborted", "Undone") or (
        release.reason == "Superseded" and not any(reason in ("Held", "InRollout") for reason in newer)
    )
    if returns:  # not onto a revision that cannot be run, as long as there is one that can
        runs = (each for each in mine if is_released(each) and (_validity(each) or {}).get("status") == "True")
        best = next(runs, best)
        return best or current, best is None
    ahead = best is not None and any(each is best for each in mine[:at])
    return (best if ahead and best is not None else current), False


def _no_composition(
    xr: Mapping[str, Any], selector: Mapping[str, str], compositions: Sequence[Object]
) -> NoComposition:
    wanted = f" with the labels {_shown(selector)}" if selector else ""
    near = _several(_near_misses(xr, selector, compositions))
    return NoComposition(
        f"no composition is for {_shown_type(xr)}{wanted}" + (f": {near}" if near else ""),
        hint="compositeTypeRef must equal the XR's apiVersion and kind; set compositionRef to choose one by name",
    )


def _near_misses(xr: Mapping[str, Any], selector: Mapping[str, str], compositions: Sequence[Object]) -> Iterator[str]:
    """What almost fits and why it does not, those of the right type first."""
    wanted = gvk_of(xr)
    for each in sorted(compositions, key=lambda one: (not _is_for(one, xr), name_of(one))):
        offered = gvk_of(each["spec"].get("compositeTypeRef") or {})
        name = name_of(each)
        if (offered.group, offered.kind) != (wanted.group, wanted.kind):
            continue
        if offered.version != wanted.version:
            yield f'"{name}" is for version {offered.version}'
        elif is_deleted(each):
            yield f'"{name}" is being deleted'
        else:
            yield f'"{name}" {_differs(each, selector)}'


def _fails(revision: Mapping[str, Any], selector: RevisionSelector) -> str:
    unmet = list(selector.unmet(revision))
    differs = _differs(revision, dict(selector.labels))
    return " and ".join([*([differs] if differs else []), *(f"is not {each}" for each in unmet)])


def _differs(obj: Mapping[str, Any], selector: Mapping[str, str]) -> str:
    labels: Mapping[str, str] = labels_of(obj)
    other = {key: labels[key] for key, value in selector.items() if key in labels and labels[key] != value}
    missing = [key for key in sorted(selector) if key not in labels]
    parts = [f"has {_shown(other)}"] if other else []
    return " and ".join([*parts, f"lacks {', '.join(missing)}"] if missing else parts)


def _several(texts: Iterator[str]) -> str:
    all_of_them = list(texts)
    more = len(all_of_them) - _NEAR_MISSES
    return "; ".join(all_of_them[:_NEAR_MISSES]) + (f"; and {more} more" if more > 0 else "")


def _is_for(composition: Mapping[str, Any], xr: Mapping[str, Any]) -> bool:
    """Whether it composes XRs of exactly this kind and version."""
    return _type(composition) == _shown_type(xr)


def _type(composition: Mapping[str, Any]) -> str:
    return _shown_type(composition["spec"].get("compositeTypeRef") or {})


def _shown_type(obj: Mapping[str, Any]) -> str:
    return f"{obj.get('kind')} ({obj.get('apiVersion')})"


def _belongs_to(revision: Mapping[str, Any], composition: str) -> bool:
    """By its label; one that a backup restored has no controller yet, but must not have another."""
    labelled = matches(revision, {COMPOSITION_NAME_LABEL: composition_label(composition)})
    return labelled and (controller_of(revision) is None or is_revision_of(revision, composition))


def _name(reference: Mapping[str, Any] | None) -> str:
    return str((reference or {}).get("name") or "")


def _labels(selector: Mapping[str, Any] | None) -> dict[str, str]:
    return dict((selector or {}).get("matchLabels") or {})


def _shown(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _oldest_first(composition: Mapping[str, Any]) -> tuple[str, str]:
    return created_at(composition), name_of(composition)
