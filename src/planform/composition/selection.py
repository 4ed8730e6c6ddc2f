"""Which Composition an XR uses, and which of its revisions. Pure; the XR reconciler writes what is decided here.

A Composition is chosen once and then stays: enforced by the XRD, else the XR's own reference, else the XRD's default,
else by labels. A revision is chosen at every reconcile: under the policy Automatic the newest that the selector allows;
under Manual the one referred to, which moves only when it is missing or the selector has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITION_NAME_LABEL
from planform.api.owners import controller_of
from planform.composition.revisions import composition_label, is_controlled_by, matches, newest_first
from planform.composition.xr import Style, machinery
from planform.errors import PlanformError

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
    resolved_selector: Object
    """For `status.planform.revisionSelector`, always: `{"matchLabels": {}}` says that there was no selector. The next
    choice takes it as `last_selector`."""
    write_selector: Object | None = None
    """The XRD's default, to be written as the XR's compositionRevisionSelector; None leaves that field alone."""

    @property
    def name(self) -> str:
        return str(self.revision["metadata"]["name"])


def named_composition(xr: Mapping[str, Any], xrd_spec: Mapping[str, Any], *, style: Style) -> CompositionChoice | None:
    """The Composition that XR or XRD name; None if one has to be looked for among all."""
    fields = machinery(xr, style)
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
    selector = _labels(machinery(xr, style).get("compositionSelector"))
    fitting = [
        each
        for each in compositions
        if _is_for(each, xr) and matches(each, selector) and not each["metadata"].get("deletionTimestamp")
    ]
    if not fitting:
        raise _no_composition(xr, selector, compositions)
    chosen = min(fitting, key=_oldest_first)
    return CompositionChoice(chosen["metadata"]["name"], Rule.SELECTOR if selector else Rule.ONLY, write=True)


def effective_policy(xr: Mapping[str, Any], xrd_spec: Mapping[str, Any], *, style: Style) -> Policy:
    """The policy an XR is under: the XRD's if it enforces one, else its own, else the XRD's default."""
    return Policy(
        xrd_spec.get("enforceCompositionUpdatePolicy")
        or machinery(xr, style).get("compositionUpdatePolicy")
        or xrd_spec.get("defaultCompositionUpdatePolicy")
        or Policy.AUTOMATIC
    )


def choose_revision(
    xr: Mapping[str, Any],
    xrd_spec: Mapping[str, Any],
    composition_name: str,
    revisions: Sequence[Object],
    *,
    style: Style,
    last_selector: Mapping[str, Any] | None = None,
    composition_uid: str = "",
) -> RevisionChoice:
    """The revision an XR uses now. Raises NoRevision or RevisionRefused.

    `revisions` may hold more than those of the Composition. `last_selector` is what the last choice left in the XR's
    status; without it nothing is known to have changed, so a reference that is there stays.
    """
    fields = machinery(xr, style)
    policy = effective_policy(xr, xrd_spec, style=style)
    ref = _name(fields.get("compositionRevisionRef"))
    given = fields.get("compositionRevisionSelector")
    copied = None if ref or given else xrd_spec.get("defaultCompositionRevisionSelector")
    selector = _labels(given or copied)
    changed = bool(selector) and last_selector is not None and _labels(last_selector) != selector
    if policy is Policy.MANUAL and ref and not changed:
        revision, rule = _pinned(ref, composition_name, revisions), Rule.REF
    else:
        revision = _newest(composition_name, composition_uid, revisions, selector)
        rule = Rule.SELECTOR if selector else Rule.NEWEST
    return RevisionChoice(
        revision=revision,
        write_ref=revision["metadata"]["name"] != ref,
        policy=policy,
        rule=rule,
        resolved_selector={"matchLabels": selector},
        write_selector={"matchLabels": selector} if copied else None,
    )


def check_revision(xr: Mapping[str, Any], revision: Mapping[str, Any]) -> None:
    """Refuse a revision that is not for this XR, or whose pipeline is not known to be valid."""
    composition = str((revision["metadata"].get("labels") or {}).get(COMPOSITION_NAME_LABEL))
    if not _is_for(revision, xr):
        raise WrongCompositeType(
            f'composition "{composition}" is for {_type(revision)}, and this XR is {_shown_type(xr)}',
            hint="refer to a composition of this type, or remove compositionRef to have one chosen",
        )
    valid = _validity(revision)
    if valid is None or valid["status"] != "True":
        told = (valid or {}).get("message") or "nothing has looked at its pipeline yet"
        raise PipelineNotValid(f'composition revision "{revision["metadata"]["name"]}" cannot be used: {told}')


def is_judged(revision: Mapping[str, Any]) -> bool:
    """Whether it is known if the revision's pipeline is valid; XRs do not move to one before."""
    valid = _validity(revision)
    return valid is not None and valid["status"] in ("True", "False")


def _validity(revision: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions: Sequence[Mapping[str, Any]] = (revision.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "ValidPipeline"), None)


def _pinned(ref: str, composition: str, revisions: Sequence[Object]) -> Object:
    found = next((each for each in revisions if each["metadata"]["name"] == ref), None)
    if found is not None and _belongs_to(found, composition):
        return found
    raise RevisionRefused(
        f'composition "{composition}" has no revision "{ref}"' + (": it is another composition's" if found else ""),
        hint="set compositionRevisionRef to one of its revisions, or remove it to pin the newest",
    )


def _newest(composition: str, uid: str, revisions: Sequence[Object], selector: Mapping[str, str]) -> Object:
    ours = newest_first(each for each in revisions if is_controlled_by(each, composition, uid))
    fitting = [each for each in ours if matches(each, selector)]
    # A revision is made first and judged a moment later. Until then XRs stay where they are: none of them stumbles.
    if fitting:
        return next(filter(is_judged, fitting), fitting[0])
    if not ours:
        raise NoRevision(
            f'composition "{composition}" has no revisions',
            hint="see whether it exists, and the conditions in its status",
        )
    near = _several(f'"{each["metadata"]["name"]}" {_differs(each, selector)}' for each in ours)
    raise NoRevision(
        f'no revision of composition "{composition}" has the labels {_shown(selector)}: {near}',
        hint="revisions carry the labels their composition had: label the composition, or change the selector",
    )


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
    for each in sorted(compositions, key=lambda one: (not _is_for(one, xr), one["metadata"]["name"])):
        offered = gvk_of(each["spec"].get("compositeTypeRef") or {})
        name = each["metadata"]["name"]
        if (offered.group, offered.kind) != (wanted.group, wanted.kind):
            continue
        if offered.version != wanted.version:
            yield f'"{name}" is for version {offered.version}'
        elif each["metadata"].get("deletionTimestamp"):
            yield f'"{name}" is being deleted'
        else:
            yield f'"{name}" {_differs(each, selector)}'


def _differs(obj: Mapping[str, Any], selector: Mapping[str, str]) -> str:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
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
    return labelled and (controller_of(revision) is None or is_controlled_by(revision, composition))


def _name(reference: Mapping[str, Any] | None) -> str:
    return str((reference or {}).get("name") or "")


def _labels(selector: Mapping[str, Any] | None) -> dict[str, str]:
    return dict((selector or {}).get("matchLabels") or {})


def _shown(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _oldest_first(composition: Mapping[str, Any]) -> tuple[str, str]:
    metadata = composition["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata["name"])
