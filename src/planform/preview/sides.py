"""The two sides of a preview: what is live, and what would be if the change were applied.

A side answers what a reconcile asks before it runs: which XRDs there are, which Composition and revision an XR uses,
which function revision a step calls. Both sides choose by the same rules as the reconcile of XRs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planform.api.kinds import GroupVersionKind, Kind, Object, gvk, gvk_of
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, XRD
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.compositions.revisions import (
    composition_label,
    identity_of,
    is_revision_of,
    new_revision,
    newest_first,
    number_of,
    revision_name,
)
from planform.compositions.selection import (
    Policy,
    RevisionChoice,
    check_revision,
    choose_composition,
    choose_revision,
    effective_policy,
    named_composition,
)
from planform.pipeline.modes import pipeline_of
from planform.pipeline.pipeline import StepResolver
from planform.pipeline.steps import Step, parse_pipeline
from planform.preview.overlay import OverlayClient, assumed_uid, place_of
from planform.xrs.index import Definition

_VALID = {"type": "ValidPipeline", "status": "True", "reason": "Available"}


@dataclass(frozen=True)
class Choice:
    """What an XR runs on one side."""

    composition: str
    choice: RevisionChoice
    steps: tuple[Step, ...]

    @property
    def revision(self) -> str:
        return self.choice.name


@dataclass
class Side:
    """One of the two. `client` is an overlay with the objects of this side."""

    client: OverlayClient
    resolver: StepResolver
    definitions: dict[str, Definition] = field(default_factory=dict)
    """By kind and group, as `XApp.example.org`."""
    compositions: dict[str, Object] = field(default_factory=dict)
    revisions: dict[str, list[Object]] = field(default_factory=dict)
    """By Composition."""
    _parsed: dict[str, tuple[Step, ...]] = field(default_factory=dict)

    def definition_of(self, obj: Mapping[str, Any]) -> Definition | None:
        """The XRD of an object that is an XR."""
        kind = gvk_of(obj)
        return self.definitions.get(f"{kind.kind}.{kind.group}")

    def choose(self, definition: Definition, xr: Object, *, follows: bool = False) -> Choice:
        """As the reconcile does. Raises a SelectionError, InvalidComposition or PipelineInvalid.

        `follows`: as if the XR followed new revisions, whatever its policy.
        """
        style, spec = definition.style, definition.spec
        named = named_composition(xr, spec, style=style)
        if named is None:
            named = choose_composition(xr, spec, list(self.compositions.values()), style=style)
        composition = self.compositions.get(named.name)
        choice = choose_revision(
            xr,
            {**spec, "enforceCompositionUpdatePolicy": Policy.AUTOMATIC} if follows else spec,
            named.name,
            self.revisions.get(named.name, ()),
            style=style,
            last_selector=((xr.get("status") or {}).get("planform") or {}).get("revisionSelector"),
            composition_uid=composition["metadata"].get("uid", "") if composition else "",
        )
        check_revision(xr, choice.revision)
        return Choice(named.name, choice, self._steps(choice.revision, named.name))

    def is_pinned(self, definition: Definition, xr: Object) -> bool:
        return effective_policy(xr, definition.spec, style=definition.style) is Policy.MANUAL

    def _steps(self, revision: Mapping[str, Any], composition: str) -> tuple[Step, ...]:
        name = str(revision["metadata"]["name"])
        if name not in self._parsed:
            spec = revision["spec"]
            self._parsed[name] = parse_pipeline({**spec, "pipeline": pipeline_of(spec, composition)})
        return self._parsed[name]

    def copy(self, resolver: StepResolver | None = None) -> Side:
        """Another side that begins as this one."""
        return Side(
            OverlayClient(self.client.base),
            resolver or self.resolver,
            dict(self.definitions),
            dict(self.compositions),
            {name: list(each) for name, each in self.revisions.items()},
        )

    # -- what a change does to a side

    def with_composition(self, composition: Object) -> str:
        """Have a Composition be as it is written here; gives the name of its newest revision then.

        A revision that holds the same already becomes the newest again, as it would be renumbered.
        """
        name = composition["metadata"]["name"]
        before = self.compositions.get(name)
        uid = before["metadata"]["uid"] if before else assumed_uid(place_of(composition))
        wanted = {**composition, "metadata": {**composition["metadata"], "uid": uid}}
        self.compositions[name] = wanted
        self.client.put(wanted)
        known = self.revisions.setdefault(name, [])
        ours = newest_first(each for each in known if is_revision_of(each, name, uid))
        number = max((number_of(each) for each in known), default=0) + 1
        wanted_name = revision_name(name, identity_of(wanted))
        same = next((each for each in ours if each["metadata"]["name"] == wanted_name), None)
        if same is not None and same is ours[0]:
            return wanted_name
        revision = same or new_revision(wanted, number)
        revision = {
            **revision,
            "metadata": {
                **revision["metadata"],
                "uid": revision["metadata"].get("uid") or assumed_uid(place_of(revision)),
            },
            "spec": {**revision["spec"], "revision": number},
            "status": {"conditions": [_VALID]},
        }
        self.revisions[name] = [*(each for each in known if each is not same), revision]
        self._parsed.pop(wanted_name, None)
        self.client.put(revision)
        return wanted_name

    def with_revision(self, composition: str, name: str) -> None:
        """Have this revision be the newest that XRs may take."""
        known = self.revisions.get(composition, [])
        number = max((number_of(each) for each in known), default=0) + 1
        self.revisions[composition] = [
            _released({**each, "spec": {**each["spec"], "revision": number}})
            if each["metadata"]["name"] == name
            else each
            for each in known
        ]

    def without_composition(self, name: str) -> None:
        self.compositions.pop(name, None)
        self.revisions.pop(name, None)

    def with_definition(self, xrd: Object) -> Definition:
        """Have an XRD be as it is written here, and its kind served."""
        definition = Definition.of(xrd)
        self.definitions[definition.group_kind] = definition
        self.client.put(xrd)
        names = definition.spec["names"]
        for version in definition.spec["versions"]:
            self.client.serve(
                Kind(
                    definition.kind.group,
                    version["name"],
                    definition.kind.kind,
                    names["plural"],
                    definition.namespaced,
                    subresources=("status",),
                )
            )
        return definition

    def without_definition(self, name: str) -> None:
        for group_kind, each in list(self.definitions.items()):
            if each.name == name:
                del self.definitions[group_kind]
                self.client.withdraw(each.kind)


def composed_type(composition: Mapping[str, Any]) -> tuple[str, str]:
    """Group and kind of the XRs that a Composition is for."""
    reference = composition["spec"].get("compositeTypeRef") or {}
    kind = gvk(str(reference.get("apiVersion") or ""), str(reference.get("kind") or ""))
    return kind.group, kind.kind


async def live_side(client: Client, resolver: StepResolver) -> Side:
    """What is there now."""
    side = Side(OverlayClient(client), resolver)
    for xrd in await _all(client, XRD):
        if any(each.get("referenceable") for each in xrd["spec"]["versions"]):
            definition = Definition.of(xrd)
            side.definitions[definition.group_kind] = definition
    side.compositions = {each["metadata"]["name"]: each for each in await _all(client, COMPOSITION)}
    labels = {composition_label(name): name for name in side.compositions}
    for revision in await _all(client, COMPOSITION_REVISION):
        label = (revision["metadata"].get("labels") or {}).get("crossplane.io/composition-name", "")
        side.revisions.setdefault(labels.get(label, label), []).append(revision)
    return side


async def _all(client: Client, kind: GroupVersionKind) -> list[Object]:
    return [obj async for page in list_pages(client, kind) for obj in page.items]


def _released(revision: Object) -> Object:
    """As it would be once XRs may follow it."""
    conditions: Sequence[Mapping[str, Any]] = (revision.get("status") or {}).get("conditions") or ()
    kept = [each for each in conditions if each["type"] not in ("Released", "ValidPipeline")]
    return {**revision, "status": {**(revision.get("status") or {}), "conditions": [*kept, _VALID]}}
