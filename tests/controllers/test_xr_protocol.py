"""What of the function protocol can be seen only on live XRs, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import EVENT, FUNCTION_REVISION, PACKAGE_LABEL, RECONCILE_REQUESTED_ANNOTATION
from planform.client.protocol import Patch, PatchType
from planform.functions.values import SchemaSelector
from planform.pipeline.running import ClientReader
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import NAMESPACE, Platform, a_platform, annotated, python, script
from tests.controllers.test_xr_conditions import answering, said
from tests.harness.contexts import condition_of, until_condition
from tests.harness.processes import free_ports

pytestmark = pytest.mark.timeout(120)


async def test_what_the_last_step_left_in_the_context_is_gone_in_the_next_run(
    context: ControllerContext, unique: str
) -> None:
    counting = (
        "def main(req):\n"
        "    count = int(req['context'].get('count', 0)) + 1\n"
        "    desired = req['desired']\n"
        "    desired['composite']['resource'] = {'status': {'count': count}}\n"
        "    return {'desired': desired, 'context': {'count': count}}\n"
    )
    async with a_platform(context, unique) as platform:
        await platform.compose(script(counting, step="one"), script(counting, step="two"))
        xr = await platform.ready(await platform.create())
        assert xr["status"]["count"] == 2
        runs = await platform.runs(xr)
        await platform.merge(xr, annotated(**{RECONCILE_REQUESTED_ANNOTATION: "again"}))
        xr = await platform.until(xr, lambda xr: xr["status"].get("lastHandledReconcileAt") == "again", "it ran again")
        assert await platform.runs(xr) > runs and xr["status"]["count"] == 2
        assert "context" not in str(xr["status"])


async def test_an_unknown_severity_and_the_systems_own_conditions_never_reach_the_claim(
    context: ControllerContext, unique: str
) -> None:
    both: Object = {"target": "CompositeAndClaim"}
    results = [
        {"severity": 0, "message": "what is this", **both},
        {"severity": "Warning", "message": "for both", **both},
    ]
    system = ("Ready", "Synced", "Healthy", "UpToDate", "Responsive")
    conditions = [{"type": each, "status": "False", "reason": "Lies", **both} for each in system]
    conditions.append({"type": "Told", "status": "True", "reason": "Said", **both})
    claims = {"claimNames": {"kind": "Claim", "plural": "claims"}}
    async with a_platform(context, unique, scope="LegacyCluster", xrd=claims) as platform:
        await platform.compose(answering(results=results, conditions=conditions))
        kind = gvk(platform.kind.api_version, "Claim")
        metadata = {"name": f"claim-{unique}", "namespace": NAMESPACE}
        claim: Object = {"apiVersion": kind.api_version, "kind": "Claim", "metadata": metadata}
        await platform.client.create({**claim, "spec": {}})
        await until_condition(platform.client, claim, "Told")
        claim = await until_condition(platform.client, claim, "Ready")
        xr = await platform.client.get(platform.kind, claim["spec"]["resourceRef"]["name"])
        for obj in (claim, xr):
            assert said(obj, "Told")[:2] == ("True", "Said")
            assert said(obj, "Synced")[0] == "True"
            assert not [type_ for type_ in ("Healthy", "UpToDate") if condition_of(obj, type_)]
            assert "Lies" not in {each["reason"] for each in obj["status"]["conditions"]}
        assert condition_of(claim, "Responsive") is None
        await platform.until_event(xr, "ComposeResources", "a result of unknown severity: what is this")
        await platform.until_event(xr, "ComposeResources", "for both")
        events = (await platform.client.list(EVENT, namespace=NAMESPACE)).items
        told = [each["message"] for each in events if each["involvedObject"].get("uid") == claim["metadata"]["uid"]]
        assert "for both" in told and not [text for text in told if "what is this" in text]


async def revision(context: ControllerContext, function: str, number: int, state: str, **status: Any) -> Object:
    """A revision of a function that nobody installed here."""
    made = await context.client.create(
        {
            "apiVersion": FUNCTION_REVISION.api_version,
            "kind": FUNCTION_REVISION.kind,
            "metadata": {"name": f"{function}-{number}", "labels": {PACKAGE_LABEL: function}},
            "spec": {"image": "example.org/acme/fn:v1.0.0", "revision": number, "desiredState": state},
        }
    )
    body = Patch(PatchType.MERGE, {"status": {"capabilities": ["composition"], **status}})
    return await context.client.patch(FUNCTION_REVISION, made["metadata"]["name"], body, subresource="status")


async def calling(platform: Platform, case: str, function: str) -> Object:
    """An XR whose only step calls this function."""
    step = {"step": "ask", "functionRef": {"name": function}, "timeout": "20s"}
    await platform.compose(step, name=f"{platform.unique}-{case}")
    return await platform.create(case, compositionRef={"name": f"{platform.unique}-{case}"})


async def test_a_function_without_revisions_without_an_active_one_or_an_endpoint_is_told_apart(
    context: ControllerContext, unique: str
) -> None:
    functions = {each: f"function-{each}-{unique}" for each in ("absent", "idle", "mute")}
    async with a_platform(context, unique) as platform:
        await revision(context, functions["idle"], 1, "Inactive", endpoint="127.0.0.1:9")
        await revision(context, functions["mute"], 1, "Active")
        xrs = {each: await calling(platform, each, function) for each, function in functions.items()}
        for each, words in {
            "absent": "no such function is installed",
            "idle": "no active revision",
            "mute": "no endpoint yet",
        }.items():
            found = await platform.failed(xrs[each], words)
            assert f'function "{functions[each]}"' in (condition_of(found, "Synced") or {})["message"]
            await platform.until_event(xrs[each], "ComposeResources", words)


async def test_a_function_that_is_down_is_told_on_the_xr_before_its_time_is_over(
    context: ControllerContext, unique: str
) -> None:
    function = f"function-{unique}"
    [port] = free_ports(1)
    async with a_platform(context, unique) as platform:
        await revision(context, function, 1, "Active", endpoint=f"127.0.0.1:{port}")
        started = asyncio.get_running_loop().time()
        await platform.failed(await calling(platform, "down", function), "nobody answers at its endpoint")
        assert asyncio.get_running_loop().time() - started < 15


async def test_a_schema_holds_no_reference_and_what_many_kinds_share_has_none(context: ControllerContext) -> None:
    reader = ClientReader(context.client)
    for api_version, kind in (("v1", "Pod"), ("apps/v1", "Deployment"), ("apiextensions.crossplane.io/v2", XRD_KIND)):
        schema = await reader.schema(SchemaSelector(api_version, kind))
        assert schema is not None and schema["properties"]["spec"]
        assert not list(references(schema)), kind
    for api_version in ("v1", "apps/v1"):  # the options of every kind's verbs stand beside the kinds of each group
        for kind in ("DeleteOptions", "WatchEvent"):
            assert await reader.schema(SchemaSelector(api_version, kind)) is None, kind


XRD_KIND = "CompositeResourceDefinition"


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for each in schema.values():
            yield from references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from references(each)


async def test_a_function_that_asks_for_the_schema_of_no_api_version_fails_its_step(
    context: ControllerContext,
    unique: str,
) -> None:
    text = """
def compose(req, rsp):
    rsp.requirements.schemas["odd"].api_version = "a/b/v1"
    rsp.requirements.schemas["odd"].kind = "Deployment"
"""
    async with a_platform(context, unique) as platform:
        await platform.compose(python(text))
        await platform.failed(await platform.create(), 'requirement "odd"')
