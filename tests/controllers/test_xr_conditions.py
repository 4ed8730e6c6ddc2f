"""What live XRs say of themselves: readiness, conditions, problems and events, on both engines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import EVENT, RECONCILE_REQUESTED_ANNOTATION
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    NAMESPACE,
    a_platform,
    auto_ready,
    config_map,
    nop,
    script,
    templates,
)
from tests.harness.contexts import condition_of, eventually, until_condition

pytestmark = pytest.mark.timeout(120)


def answering(*, step: str = "say", **answer: Any) -> Object:
    """A step that passes everything on and says this besides."""
    return script(f"def main(req):\n    return json.decode({json.dumps(json.dumps(answer))})\n", step=step)


def explicit(ready: bool) -> Object:
    """A step that says of the XR itself whether it is ready."""
    return script(
        "def main(req):\n"
        '    desired = req["desired"]\n'
        f'    desired["composite"]["ready"] = {ready}\n'
        '    return {"desired": desired}\n',
        step="explicit",
    )


def said(xr: Object, type_: str) -> tuple[Any, ...]:
    condition = condition_of(xr, type_) or {}
    return condition.get("status"), condition.get("reason"), condition.get("message")


async def test_readiness_names_three_and_counts_the_rest_unless_a_function_decides(
    context: ControllerContext, unique: str
) -> None:
    resources = [nop(key, after="1h") for key in ("d", "b", "a", "c", "e")]
    waiting = templates(*resources, ready=False)
    async with a_platform(context, unique) as platform:
        xrs = {}
        for case, steps in {
            "derived": (waiting, auto_ready()),
            "ready": (waiting, explicit(True)),
            "unready": (templates(config_map("a")), explicit(False)),
            "nothing": (answering(),),
            "silent": (templates(config_map("a"), ready=False), answering()),
        }.items():
            await platform.compose(*steps, name=f"{unique}-{case}")
            xrs[case] = await platform.create(case, compositionRef={"name": f"{unique}-{case}"})
        for xr in xrs.values():
            await until_condition(platform.client, xr, "Synced")
        found = dict(zip(xrs, await platform.at_rest(*xrs.values()), strict=True))
        unready = "Unready resources: a, b, c, and 2 more"
        assert said(found["derived"], "Ready") == ("False", "Creating", unready)
        problems = found["derived"]["status"]["planform"]["problems"]
        assert [each["resource"] for each in problems] == ["a", "b", "c", "d", "e"]
        assert said(found["ready"], "Ready") == ("True", "Available", None)
        assert said(found["unready"], "Ready") == ("False", "Creating", None)
        assert said(found["nothing"], "Ready") == ("True", "Available", None)
        assert said(found["silent"], "Ready") == ("False", "Creating", "Unready resources: a")
        for xr in found.values():
            assert said(xr, "Synced") == ("True", "ReconcileSuccess", None)
            assert (condition_of(xr, "Synced") or {})["observedGeneration"] == xr["metadata"]["generation"]


async def test_readiness_of_a_resource_reaches_the_xr_and_takes_its_problem_away(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(nop("a", after="1s"), ready=False), auto_ready())
        xr = await platform.create()
        first = await until_condition(platform.client, xr, "Ready", "False")
        assert [each["resource"] for each in first["status"]["planform"]["problems"]] == ["a"]
        ready = await platform.ready(xr)
        assert "problems" not in ready["status"]["planform"]
        assert said(ready, "Ready") == ("True", "Available", None)


async def test_conditions_of_functions_are_set_updated_kept_and_unknown_after_an_error(
    context: ControllerContext, unique: str
) -> None:
    first = {"type": "DatabaseReady", "status": "False", "reason": "Starting", "message": "one moment"}
    second = {"type": "BucketReady", "status": "True", "reason": "Made"}
    system = [
        {"type": each, "status": "False", "reason": "Lies"} for each in ("Ready", "Synced", "Healthy", "UpToDate")
    ]
    odd = {"type": "Odd", "status": 0, "reason": "Unspecified"}
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("a")), answering(conditions=[first, second, odd, *system]))
        xr = await platform.ready(await platform.create())
        assert said(xr, "DatabaseReady") == ("False", "Starting", "one moment")
        assert said(xr, "BucketReady") == ("True", "Made", None)
        assert said(xr, "Odd")[0] == "Unknown"
        assert said(xr, "Synced") == ("True", "ReconcileSuccess", None)
        assert not condition_of(xr, "Healthy") and not condition_of(xr, "UpToDate")
        moment = (condition_of(xr, "BucketReady") or {})["lastTransitionTime"]
        # Updated if returned, kept if not.
        await platform.compose(templates(config_map("a")), answering(conditions=[{**first, "status": "True"}]))
        xr = await platform.until(xr, lambda xr: said(xr, "DatabaseReady")[0] == "True", "it is updated")
        assert said(xr, "BucketReady") == ("True", "Made", None)
        assert (condition_of(xr, "BucketReady") or {})["lastTransitionTime"] == moment
        # After an error nobody knows, but for what the failing run still said.
        last = {**first, "status": "False", "reason": "Broken"}
        fatal = [{"severity": "Fatal", "message": "disk is full"}]
        await platform.compose(answering(conditions=[last], results=fatal))
        xr = await platform.failed(xr, "disk is full")
        assert said(xr, "DatabaseReady")[:2] == ("False", "Broken")
        assert said(xr, "BucketReady")[:2] == ("Unknown", "FatalError")
        assert said(xr, "Ready")[0] == "True"  # a system condition is not touched by that
        assert (await platform.composed(xr)).keys() == {"a"}


async def test_conditions_of_a_run_count_also_if_its_answer_cannot_be_carried_out(
    context: ControllerContext, unique: str
) -> None:
    told = {"type": "Told", "status": "True", "reason": "Said"}
    async with a_platform(context, unique) as platform:
        await platform.compose(answering(conditions=[told, {**told, "type": "Earlier"}]))
        xr = await platform.ready(await platform.create())
        namespace = {"_key": "a", "apiVersion": "v1", "kind": "Namespace"}
        await platform.compose(templates(namespace), answering(conditions=[{**told, "status": "False"}]))
        xr = await platform.failed(xr, "cluster-scoped")
        assert said(xr, "Told") == ("False", "Said", None)
        assert said(xr, "Earlier")[:2] == ("Unknown", "FatalError")


async def test_results_become_events_with_step_and_reason_and_each_is_told_once(
    context: ControllerContext, unique: str
) -> None:
    first = [
        {"severity": "Normal", "message": "all is well", "reason": "Checked"},
        {"severity": "Warning", "message": "nearly full"},
        {"severity": "Warning", "message": "rather old", "reason": "Old"},
        {"severity": 0, "message": "what is this", "reason": "Odd"},
    ]
    async with a_platform(context, unique) as platform:
        await platform.compose(answering(results=first, step="check"), templates(config_map("a")))
        xr = await platform.ready(await platform.create())

        async def told() -> list[tuple[str, str, str]]:
            found = [(each["type"], each["reason"], each["message"]) for each in await platform.events(xr)]
            return sorted(each for each in found if each[2].startswith("Pipeline step"))

        async def complete() -> list[tuple[str, str, str]] | None:
            found = await told()
            return found if len(found) == 4 else None

        wanted = await eventually(complete, "four events")
        assert ("Warning", "Old", 'Pipeline step "check": rather old') in wanted
        assert ("Normal", "Checked", 'Pipeline step "check": all is well') in wanted
        assert ("Warning", "ComposeResources", 'Pipeline step "check": nearly full') in wanted
        odd = 'Pipeline step "check": a result of unknown severity: what is this'
        assert ("Warning", "Odd", odd) in wanted
        for token in ("one", "two"):  # the pipeline runs again and says the same: that is no news
            await platform.merge(xr, {"metadata": {"annotations": {RECONCILE_REQUESTED_ANNOTATION: token}}})
            await platform.until(xr, lambda xr: xr["status"].get("lastHandledReconcileAt") == token, "it ran")  # noqa: B023
        assert await told() == wanted


async def test_what_was_said_before_a_fatal_result_is_told_and_what_came_after_is_not(
    context: ControllerContext, unique: str
) -> None:
    results = [
        {"severity": "Normal", "message": "before"},
        {"severity": "Fatal", "message": "the end"},
        {"severity": "Normal", "message": "after"},
    ]
    async with a_platform(context, unique) as platform:
        early = [{"severity": "Normal", "message": "early"}]
        await platform.compose(
            answering(results=early, step="one"),
            answering(results=results, step="two"),
            answering(results=[{"severity": "Normal", "message": "never"}], step="three"),
        )
        xr = await platform.failed(await platform.create(), 'step "two"')
        assert xr["status"]["planform"]["problems"] == [{"step": "two", "message": "the end"}]
        for text in ("early", "before", "the end"):
            await platform.until_event(xr, "ComposeResources", text)
        messages = " ".join(each["message"] for each in await platform.events(xr))
        assert "after" not in messages and "never" not in messages


async def test_claims_get_the_results_meant_for_them_and_a_claim_that_is_gone_fails_no_xr(
    context: ControllerContext, unique: str
) -> None:
    claims = {"claimNames": {"kind": "Claim", "plural": "claims"}}
    async with a_platform(context, unique, scope="LegacyCluster", xrd=claims) as platform:
        kind = gvk(platform.kind.api_version, "Claim")
        results = [
            {"severity": "Normal", "message": "for both", "target": "CompositeAndClaim"},
            {"severity": "Normal", "message": "for the XR"},
        ]
        condition = {"type": "Told", "status": "True", "reason": "Said"}
        conditions = [{**condition, "target": "CompositeAndClaim"}, {**condition, "type": "Hidden"}]
        await platform.compose(answering(results=results, conditions=conditions))
        names = [f"{each}-{unique}" for each in ("one", "two")]
        for name in names:
            metadata = {"name": name, "namespace": NAMESPACE}
            await platform.client.create(
                {"apiVersion": kind.api_version, "kind": "Claim", "metadata": metadata, "spec": {}}
            )
        for name in names:
            claim = {
                "apiVersion": kind.api_version,
                "kind": "Claim",
                "metadata": {"name": name, "namespace": NAMESPACE},
            }
            claim = await until_condition(platform.client, claim, "Ready")
            assert said(claim, "Told") == ("True", "Said", None) and not condition_of(claim, "Hidden")

        async def told() -> dict[str, set[str]]:
            found = (await platform.client.list(EVENT, namespace=NAMESPACE)).items
            return {
                name: {
                    each["message"]
                    for each in found
                    if each["involvedObject"].get("name") == name and each["reason"] == "ComposeResources"
                }
                for name in names
            }

        async def both() -> bool:
            return await told() == {name: {"for both"} for name in names}

        await eventually(both, "each claim is told what is meant for it, without the step")
        reference = {"apiVersion": kind.api_version, "kind": "Claim", "namespace": NAMESPACE, "name": f"gone-{unique}"}
        orphan = await platform.ready(await platform.create("orphan", claimRef=reference))
        assert said(orphan, "Synced")[0] == "True"
