"""The guard in the admission chain of the embedded engine, and what it says to whoever asks."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable

import pytest

from planform.api.kinds import Kind, Object, gvk_of
from planform.api.names import COMPOSITION, COMPOSITION_REVISION
from planform.apiserver.admission.chain import Admission
from planform.apiserver.verbs.requests import CONTROL_PLANE, Request, User
from planform.client.protocol import Client, Patch, PatchType
from planform.compositions.admission import RevisionGuard
from planform.errors import Invalid
from tests.harness.contexts import embedded_context

ALICE = User("alice")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with embedded_context(admission=[RevisionGuard()]) as context:
        yield context.client


def composition(kind: str = "Composition", **spec: object) -> Object:
    pipeline = [
        {"step": "a", "functionRef": {"name": "f"}, "input": {"apiVersion": "a/v1", "kind": "B", "c": {"d": 1}}}
    ]
    made: Object = {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": kind,
        "metadata": {"name": "site", "labels": {"crossplane.io/composition-name": "site", "channel": "alpha"}},
        "spec": {
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "Site"},
            "mode": "Pipeline",
            "pipeline": pipeline,
            **spec,
        },
    }
    return made


def revision() -> Object:
    return composition("CompositionRevision", revision=3)


def asked(new: Object | None, old: Object | None = None, *, user: User = CONTROL_PLANE, part: str = "") -> Admission:
    gvk = gvk_of(new or old or {})
    kind = Kind(gvk.group, gvk.version, gvk.kind, f"{gvk.kind.lower()}s", False)
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    return Admission(operation, kind, "", "site", new, old, part, Request(user=user))  # type: ignore[arg-type]  # a literal


# -- revisions


async def test_change_inside_a_step_is_refused_and_named(client: Client) -> None:
    made = await client.create(revision())
    made["spec"]["pipeline"][0]["input"]["c"]["d"] = 2
    made["metadata"]["labels"]["channel"] = "beta"
    with pytest.raises(Invalid) as refused:
        await client.update(made)
    assert [cause["field"] for cause in refused.value.causes] == ["spec.pipeline", "metadata.labels[channel]"]
    assert "immutable" in str(refused.value)


async def test_control_plane_numbers_a_revision_upwards_only(client: Client) -> None:
    made = await client.create(revision())
    made["spec"]["revision"] = 4
    made = await client.update(made)
    made["spec"]["revision"] = 3
    with pytest.raises(Invalid, match="must not be lower than 4"):
        await client.update(made)


async def test_nobody_else_numbers_a_revision() -> None:
    higher = revision()
    higher["spec"]["revision"] = 9
    with pytest.raises(Invalid, match="only the control plane numbers revisions"):
        RevisionGuard().admit(asked(higher, revision(), user=ALICE))
    RevisionGuard(controllers=["alice"]).admit(asked(higher, revision(), user=ALICE))


async def test_control_plane_adds_its_own_labels_where_they_are_missing_and_no_others(client: Client) -> None:
    await client.create(revision())

    async def label(key: str, value: str | None) -> None:
        patch = Patch(PatchType.MERGE, {"metadata": {"labels": {key: value}}})
        await client.patch(COMPOSITION_REVISION, "site", patch)

    await label("crossplane.io/composition-spec-hash", "1")
    for key, value in (
        ("crossplane.io/composition-spec-hash", "2"),
        ("crossplane.io/composition-name", None),
        ("new", "label"),
        ("channel", None),
    ):
        with pytest.raises(Invalid, match="labels of a CompositionRevision are immutable"):
            await label(key, value)


async def test_owners_annotations_finalizers_and_status_of_a_revision_are_free(client: Client) -> None:
    owner = await client.create(composition())
    made = await client.create(revision())
    uid = owner["metadata"]["uid"]
    made["metadata"] |= {
        "annotations": {"a": "b"},
        "finalizers": ["example.org/keep"],
        "ownerReferences": [{"apiVersion": COMPOSITION.api_version, "kind": "Composition", "name": "site", "uid": uid}],
    }
    made = await client.update(made)
    made["status"] = {"composites": 1}
    assert (await client.update(made, subresource="status"))["status"]["composites"] == 1


async def test_revision_can_be_deleted(client: Client) -> None:
    await client.create(revision())
    assert await client.delete(COMPOSITION_REVISION, "site") is None


# -- pipelines

Change = Callable[[Object], object]
COMPLAINTS: dict[str, tuple[Change, list[str]]] = {
    "two steps of one name": (
        lambda o: o["spec"]["pipeline"].append({"name": "a", "functionRef": {"name": "f"}}),
        ["spec.pipeline[1].step"],
    ),
    "an expression that is none, and a timeout of nothing": (
        lambda o: o["spec"]["pipeline"][0].update(
            allowedExtraResources=[{"apiVersion": "v1", "kind": "Secret", "matchName": "("}], timeout="0s"
        ),
        ["spec.pipeline[0].allowedExtraResources[0]", "spec.pipeline[0].timeout"],
    ),
    "a mode without its field": (lambda o: o["spec"].update(mode="Resources"), ["spec"]),
}


@pytest.mark.parametrize("what", COMPLAINTS)
async def test_composition_that_cannot_run_is_refused_with_its_fields(client: Client, what: str) -> None:
    change, fields = COMPLAINTS[what]
    wrong = composition()
    change(wrong)
    with pytest.raises(Invalid) as refused:
        await client.create(wrong)
    assert [cause["field"] for cause in refused.value.causes] == fields


async def test_operation_template_that_cannot_run_is_refused_with_its_fields(client: Client) -> None:
    cron = {
        "apiVersion": "ops.crossplane.io/v1alpha1",
        "kind": "CronOperation",
        "metadata": {"name": "nightly"},
        "spec": {
            "schedule": "0 3 * * *",
            "operationTemplate": {"spec": {"pipeline": [{"step": "a", "functionRef": {"name": "f"}, "timeout": "0s"}]}},
        },
    }
    with pytest.raises(Invalid) as refused:
        await client.create(cron)
    assert [cause["field"] for cause in refused.value.causes] == ["spec.operationTemplate.spec.pipeline[0].timeout"]


async def test_composition_that_was_wrong_before_can_still_be_labelled() -> None:
    wrong = composition(mode="Resources")
    labelled = copy.deepcopy(wrong)
    labelled["metadata"]["labels"]["a"] = "b"
    RevisionGuard().admit(asked(labelled, wrong))
    with pytest.raises(Invalid, match=r"spec\.resources is empty"):
        RevisionGuard().admit(asked(composition(mode="Resources"), composition()))


async def test_step_that_should_be_written_differently_is_a_warning() -> None:
    old_fashioned = composition(pipeline=[{"name": "a", "functionRef": {"name": "f"}}])
    admission = asked(old_fashioned)
    RevisionGuard().admit(admission)
    assert admission.request.warnings == ["spec.pipeline[0].name is deprecated: write `step`"]


@pytest.mark.parametrize("spec", [None, [], "text", {"pipeline": "text"}, {"pipeline": [None, 1]}])
async def test_misshapen_objects_are_refused_and_never_break_the_guard(client: Client, spec: object) -> None:
    for kind in ("Composition", "CompositionRevision"):
        with pytest.raises(Invalid):
            await client.create({**composition(kind), "spec": spec})


async def test_other_kinds_and_status_writes_pass() -> None:
    guard = RevisionGuard()
    guard.admit(asked({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "spec": {}}))
    guard.admit(asked(composition(pipeline=[]), composition(), part="status"))
    guard.admit(asked(None, revision()))
