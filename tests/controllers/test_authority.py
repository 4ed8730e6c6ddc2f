"""Who wrote what acts, and with whose rights it acts: the record, and what can be done with it, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from planform.api.authors import AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION, author_of, service_account
from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ACTION_SET, BLUEPRINT, COMPOSITION, CRON_OPERATION, OPERATION, WATCH_OPERATION
from planform.client.protocol import Patch, PatchType
from planform.errors import Forbidden
from tests.harness.contexts import eventually, until_condition
from tests.harness.tenants import (
    CONFIG_MAP,
    RBAC,
    Tenants,
    obj,
    open_tenants,
    rule,
    said,
    to_cluster_admin,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

ENGINES = [
    pytest.param("embedded", marks=pytest.mark.xdist_group("authority")),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]
ROLE = GroupVersionKind(RBAC, "v1", "Role")


@pytest_asyncio.fixture(scope="module", params=ENGINES, loop_scope="module")
async def tenants(request: pytest.FixtureRequest) -> AsyncIterator[Tenants]:
    cluster = request.getfixturevalue("kubernetes_engine") if request.param == "kubernetes" else None
    async with open_tenants(cluster) as tenants:
        await tenants.grant("alice", rule("cr.kanister.io", "blueprints", "actionsets"), namespace=tenants.team)
        await tenants.grant("alice", rule("", "configmaps"), namespace=tenants.team)
        await tenants.grant("bob", rule("cr.kanister.io", "blueprints", "actionsets"), namespace=tenants.team)
        await tenants.grant("carol", rule("apiextensions.crossplane.io", "compositions"))
        await tenants.grant("carol", rule("ops.crossplane.io", "operations", "cronoperations", "watchoperations"))
        yield tenants


def kube_ops(manifest: Object) -> Object:
    return {"name": "make", "func": "KubeOps", "args": {"operation": "create", "spec": manifest}}


def pipeline(*objects: Object) -> Object:
    """The spec of an Operation that wants these objects."""
    text = f"OBJECTS = {list(objects)!r}\ndef main(req):\n"
    text += "    found = {str(i): {'resource': OBJECTS[i]} for i in range(len(OBJECTS))}\n"
    text += "    return {'desired': {'resources': found}}\n"
    script = {"apiVersion": "starlark.fn.planform.dev/v1", "kind": "StarlarkScript", "script": text}
    step = {"step": "want", "functionRef": {"name": "function-starlark"}, "input": script}
    return {"mode": "Pipeline", "pipeline": [step]}


def writable(tenants: Tenants) -> list[Object]:
    """One of each kind that acts."""
    template = {"spec": pipeline()}
    watched = {"apiVersion": "v1", "kind": "ConfigMap", "matchLabels": {"none": "such"}}
    return [
        obj(BLUEPRINT, tenants.name(), tenants.team, actions={}),
        obj(ACTION_SET, tenants.name(), tenants.team, spec={"actions": []}),
        tenants.composition(obj(CONFIG_MAP, tenants.name(), tenants.team)),
        obj(OPERATION, tenants.name(), spec=pipeline()),
        obj(CRON_OPERATION, tenants.name(), spec={"schedule": "0 0 1 1 *", "operationTemplate": template}),
        obj(WATCH_OPERATION, tenants.name(), spec={"watch": watched, "operationTemplate": template}),
    ]


async def test_the_author_is_recorded_whatever_a_client_sends(tenants: Tenants) -> None:
    await tenants.grant("dora", *(rule(group, "*") for group in ("ops.crossplane.io", "apiextensions.crossplane.io")))
    await tenants.grant("dora", rule("cr.kanister.io", "*"), namespace=tenants.team)
    for wanted in writable(tenants):
        wanted["metadata"].setdefault("annotations", {})[AUTHOR_ANNOTATION] = (
            '{"user":"root","groups":["system:masters"]}'
        )
        made = await tenants.of("dora").create(wanted)
        author = author_of(made)
        assert author is not None, made["kind"]
        assert (author.user, author.groups) == (tenants.user("dora").user, ("system:authenticated",)), made["kind"]
        forged = Patch(PatchType.MERGE, {"metadata": {"annotations": {AUTHOR_ANNOTATION: "x", "team": "y"}}})
        kind, place = GroupVersionKind(*_split(made)), made["metadata"].get("namespace") or ""
        patched = await tenants.of("dora").patch(kind, made["metadata"]["name"], forged, namespace=place)
        assert patched["metadata"]["annotations"]["team"] == "y"
        assert author_of(patched) == author, made["kind"]
        removed = Patch(PatchType.MERGE, {"metadata": {"annotations": {AUTHOR_ANNOTATION: None}}})
        again = await tenants.of("dora").patch(kind, made["metadata"]["name"], removed, namespace=place)
        assert author_of(again) == author


async def test_who_changes_what_an_object_does_becomes_its_author(tenants: Tenants) -> None:
    made = await tenants.of("alice").create(obj(BLUEPRINT, tenants.name(), tenants.team, actions={}))
    labelled = Patch(PatchType.MERGE, {"metadata": {"labels": {"a": "b"}}})
    name = made["metadata"]["name"]
    found = await tenants.of("bob").patch(BLUEPRINT, name, labelled, namespace=tenants.team)
    assert author_of(found) == author_of(made)
    changed = Patch(PatchType.MERGE, {"actions": {"act": {"phases": [kube_ops(obj(CONFIG_MAP, "x", tenants.team))]}}})
    found = await tenants.of("bob").patch(BLUEPRINT, name, changed, namespace=tenants.team)
    author = author_of(found)
    assert author is not None and author.user == tenants.user("bob").user


async def test_an_actionset_does_what_its_author_may(tenants: Tenants) -> None:
    made = obj(CONFIG_MAP, tenants.name(), tenants.team, data={"a": "b"})
    done = await tenants.run("alice", kube_ops(made))
    assert done["status"]["state"] == "complete", said(done)
    assert await tenants.exists(made)
    refused = obj(CONFIG_MAP, tenants.name(), tenants.team)
    failed = await tenants.run("bob", kube_ops(refused))
    assert failed["status"]["state"] == "failed" and "cannot" in said(failed)
    assert not await tenants.exists(refused)


async def test_an_administrators_actionset_does_everything(tenants: Tenants) -> None:
    binding = to_cluster_admin("nobody", tenants.name())
    admin = obj(BLUEPRINT, tenants.name(), tenants.team, actions={"act": {"phases": [kube_ops(binding)]}})
    await tenants.admin.create(admin)
    target = {"apiVersion": "v1", "resource": "configmaps", "name": "target", "namespace": tenants.team}
    action = {"name": "act", "blueprint": admin["metadata"]["name"], "object": target}
    made = await tenants.admin.create(obj(ACTION_SET, tenants.name(), tenants.team, spec={"actions": [action]}))

    async def ended() -> Any:
        found = await tenants.admin.get(ACTION_SET, made["metadata"]["name"], namespace=tenants.team)
        return found if (found.get("status") or {}).get("state") == "complete" else None

    await eventually(ended, "its end")
    assert await tenants.exists(binding)


async def test_a_team_runs_the_platforms_blueprint_with_the_rights_of_its_serviceaccount(tenants: Tenants) -> None:
    await tenants.service_account("backup", rule("", "configmaps"), where=tenants.vault)
    made = obj(CONFIG_MAP, tenants.name(), tenants.vault)
    name = tenants.name("blueprint")
    actions = {"act": {"phases": [kube_ops(made)]}}
    metadata = {"annotations": {SERVICE_ACCOUNT_ANNOTATION: "backup"}}
    wanted = obj(BLUEPRINT, name, tenants.team, actions=actions, metadata=metadata)
    with pytest.raises(Forbidden, match="impersonate"):
        await tenants.of("alice").create(wanted)
    await tenants.admin.create(wanted)
    failed = await tenants.run_blueprint("alice", name, request={"object": _target(tenants)})
    assert failed["status"]["state"] == "failed" and "cannot use blueprints" in said(failed), said(failed)
    assert not await tenants.exists(made)
    use = rule("cr.kanister.io", "blueprints", verbs=["use"], names=[name])
    await tenants.grant("alice", use, namespace=tenants.team)
    await tenants.grant(
        service_account(tenants.team, "backup"), rule("", "configmaps", verbs=["get"]), namespace=tenants.team
    )
    done = await tenants.run_blueprint("alice", name)
    assert done["status"]["state"] == "complete", said(done)
    assert await tenants.exists(made)


async def test_a_right_that_was_taken_away_ends_the_run_before_its_next_phase(tenants: Tenants) -> None:
    """The run waits in its first phase while the right to use the Blueprint goes."""
    await tenants.service_account("waiter", rule("", "configmaps"))
    signal, made = (obj(CONFIG_MAP, tenants.name(), tenants.team) for _ in range(2))
    await tenants.admin.create(signal)
    reference = {"apiVersion": "v1", "resource": "configmaps", "name": signal["metadata"]["name"]}
    condition = {
        "condition": '{{ eq .data.go "on" }}',
        "objectReference": {**reference, "namespace": tenants.team},
    }
    wait = {"name": "wait", "func": "WaitV2", "args": {"timeout": "60s", "conditions": {"allOf": [condition]}}}
    name, metadata = tenants.name("blueprint"), {"annotations": {SERVICE_ACCOUNT_ANNOTATION: "waiter"}}
    actions = {"act": {"phases": [wait, kube_ops(made)]}}
    await tenants.admin.create(obj(BLUEPRINT, name, tenants.team, actions=actions, metadata=metadata))
    use = rule("cr.kanister.io", "blueprints", verbs=["use"], names=[name])
    await tenants.grant("alice", use, namespace=tenants.team)
    running = asyncio.create_task(tenants.run_blueprint("alice", name))
    try:
        await eventually(lambda: _is_waiting(tenants, name), "the run waits")
        await tenants.revoke("alice", use, namespace=tenants.team)
        go = Patch(PatchType.MERGE, {"data": {"go": "on"}})
        await tenants.admin.patch(CONFIG_MAP, signal["metadata"]["name"], go, namespace=tenants.team)
        ended = await running
    finally:
        running.cancel()
    assert ended["status"]["state"] == "failed" and "cannot use blueprints" in said(ended), said(ended)
    assert [each["state"] for each in ended["status"]["actions"][0]["phases"]] == ["complete", "failed"]
    assert not await tenants.exists(made)


async def _is_waiting(tenants: Tenants, blueprint: str) -> bool:
    for found in (await tenants.admin.list(ACTION_SET, namespace=tenants.team)).items:
        for action in (found.get("status") or {}).get("actions") or ():
            if action["blueprint"] == blueprint and action["phases"][0]["state"] == "running":
                return True
    return False


async def test_an_actionset_names_a_serviceaccount_that_its_author_may_impersonate(tenants: Tenants) -> None:
    await tenants.service_account("maker", rule("", "configmaps"))
    made = obj(CONFIG_MAP, tenants.name(), tenants.team)
    named = {SERVICE_ACCOUNT_ANNOTATION: "maker"}
    name = tenants.name("blueprint")
    actions = {"act": {"phases": [kube_ops(made)]}}
    await tenants.of("bob").create(obj(BLUEPRINT, name, tenants.team, actions=actions))
    with pytest.raises(Forbidden, match="impersonate"):
        await tenants.run_blueprint("bob", name, annotations=named)
    await tenants.grant(
        "bob", rule("", "serviceaccounts", verbs=["impersonate"], names=["maker"]), namespace=tenants.team
    )
    done = await tenants.run_blueprint("bob", name, annotations=named)
    assert done["status"]["state"] == "complete", said(done)
    assert await tenants.exists(made)


async def test_an_operation_writes_with_its_authors_rights_or_those_of_its_serviceaccount(tenants: Tenants) -> None:
    made = obj(CONFIG_MAP, tenants.name(), tenants.team, data={"a": "b"})
    refused = await tenants.of("carol").create(obj(OPERATION, tenants.name(), spec={**pipeline(made), "retryLimit": 1}))
    refused = await until_condition(tenants.admin, refused, "Succeeded", "False")
    assert "cannot" in said(refused) and not await tenants.exists(made)
    await tenants.service_account("operator", rule("", "configmaps"))
    annotations = {SERVICE_ACCOUNT_ANNOTATION: f"{tenants.team}/operator"}
    named = obj(OPERATION, tenants.name(), spec=pipeline(made), metadata={"annotations": annotations})
    with pytest.raises(Forbidden, match="impersonate"):
        await tenants.of("carol").create(named)
    await tenants.grant(
        "carol", rule("", "serviceaccounts", verbs=["impersonate"], names=["operator"]), namespace=tenants.team
    )
    done = await until_condition(tenants.admin, await tenants.of("carol").create(named), "Succeeded")
    assert await tenants.exists(made), said(done)


async def test_a_composed_role_passes_the_escalation_check_for_the_revisions_author(tenants: Tenants) -> None:
    binding = to_cluster_admin("carol", tenants.name())
    refused = await tenants.compose("carol", binding)
    assert "forbidden" in said(refused).lower() and not await tenants.exists(binding)
    revision = await tenants.revision_of(
        {"metadata": {"name": refused["spec"]["crossplane"]["compositionRef"]["name"]}}
    )
    author = author_of(revision)
    assert author is not None and author.user == tenants.user("carol").user
    await tenants.grant("carol", rule(RBAC, "roles"), namespace=tenants.team)
    await tenants.grant("carol", rule("", "configmaps", verbs=["get"]), namespace=tenants.team)
    lesser = obj(ROLE, tenants.name(), tenants.team, rules=[rule("", "configmaps", verbs=["get"])])
    composed = await tenants.compose("carol", lesser)
    assert await tenants.exists(lesser), said(composed)
    greater = obj(ROLE, tenants.name(), tenants.team, rules=[rule("", "secrets", verbs=["get"])])
    await tenants.compose("carol", greater)
    assert not await tenants.exists(greater)


async def test_an_administrators_composition_composes_roles_as_on_crossplane(tenants: Tenants) -> None:
    binding = to_cluster_admin("nobody", tenants.name())
    xr = await tenants.compose("", binding)
    assert await tenants.exists(binding), said(xr)


async def test_composed_resources_are_written_by_the_serviceaccount_that_the_composition_names(
    tenants: Tenants,
) -> None:
    await tenants.service_account("composer", rule("", "configmaps"))
    annotations = {SERVICE_ACCOUNT_ANNOTATION: f"{tenants.team}/composer"}
    mine, theirs = (
        obj(kind, tenants.name(), tenants.team) for kind in (CONFIG_MAP, GroupVersionKind("", "v1", "Secret"))
    )
    composition = tenants.composition(mine, theirs, annotations=annotations)
    with pytest.raises(Forbidden, match="impersonate"):
        await tenants.of("carol").create(composition)
    composition = await tenants.admin.create(composition)
    edited = Patch(PatchType.MERGE, {"spec": {"revisionHistoryLimit": 3}})
    with pytest.raises(Forbidden, match="impersonate"):  # whoever changes it would act with these rights
        await tenants.of("carol").patch(COMPOSITION, composition["metadata"]["name"], edited)
    xr = await tenants.settled(await tenants.admin.create(tenants.xr(composition)))
    assert await tenants.exists(mine) and not await tenants.exists(theirs), said(xr)
    assert 'cannot patch resource "secrets"' in said(xr)


async def test_composed_resources_are_written_by_the_serviceaccount_that_the_xrs_namespace_names(
    tenants: Tenants,
) -> None:
    home = tenants.name("bounded")
    namespace = GroupVersionKind("", "v1", "Namespace")
    await tenants.grant("erin", rule("", "namespaces"))
    annotations = {SERVICE_ACCOUNT_ANNOTATION: "writer"}
    with pytest.raises(Forbidden, match="impersonate"):
        await tenants.of("erin").create(obj(namespace, home, metadata={"annotations": annotations}))
    await tenants.admin.create(obj(namespace, home, metadata={"annotations": annotations}))
    await tenants.service_account("writer", rule("", "configmaps"), namespace=home)
    mine = obj(CONFIG_MAP, tenants.name(), home)
    theirs = obj(GroupVersionKind("", "v1", "Secret"), tenants.name(), home)
    composed = tenants.composition(mine, theirs)
    composed["spec"]["compositeTypeRef"]["kind"] = "App"
    composition = await tenants.of("carol").create(composed)
    xr = await tenants.admin.create(tenants.xr(composition, namespace=home))

    async def told() -> bool:
        found = await tenants.admin.get(tenants.app, xr["metadata"]["name"], namespace=home)
        return 'cannot patch resource "secrets"' in said(found)

    await eventually(told, "the XR says what may not be written")
    assert await tenants.exists(mine) and not await tenants.exists(theirs)
    await tenants.admin.delete(namespace, home)


def _split(made: Object) -> tuple[str, str, str]:
    group, _, version = made["apiVersion"].rpartition("/")
    return group, version, made["kind"]


def _target(tenants: Tenants) -> Object:
    return {"apiVersion": "v1", "resource": "configmaps", "name": "target", "namespace": tenants.team}
