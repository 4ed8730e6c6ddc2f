"""What functions of live XRs get to see, and which revision of a function is called, on both engines."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import ENVIRONMENT_CONFIG, FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.client.protocol import Patch, PatchType
from planform.features import FeatureGates
from planform.packages.revisions import VERSION_LABEL
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    NAMESPACE,
    NOP,
    Platform,
    a_platform,
    auto_ready,
    config_map,
    nop,
    python,
    reading,
    script,
    templates,
)
from tests.harness.contexts import eventually
from tests.harness.function_server import function_server

pytestmark = pytest.mark.timeout(120)


def environment_config(name: str, labels: dict[str, str] | None = None, **data: Any) -> Object:
    return {
        "apiVersion": ENVIRONMENT_CONFIG.api_version,
        "kind": ENVIRONMENT_CONFIG.kind,
        "metadata": {"name": name, "labels": labels or {}},
        "data": data,
    }


def a_config_map(name: str, namespace: str = NAMESPACE, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def by_name(name: str, namespace: str = NAMESPACE) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "matchName": name, "namespace": namespace}


async def seen(platform: Platform, xr: Object, *wanted: str) -> Object:
    return await platform.until(xr, lambda xr: (xr.get("status") or {}).get("seen") == list(wanted), f"it saw {wanted}")


async def test_environment_configs_reach_resources_and_their_changes_as_well(
    context: ControllerContext, unique: str
) -> None:
    region = {"valueFromFieldPath": "spec.region", "key": "region", "type": "FromCompositeFieldPath"}
    fetch = {
        "step": "environment",
        "functionRef": {"name": "function-environment-configs"},
        "input": {
            "apiVersion": "environmentconfigs.fn.crossplane.io/v1beta1",
            "kind": "Input",
            "spec": {
                "environmentConfigs": [
                    {"type": "Reference", "ref": {"name": f"{unique}-base"}},
                    {"type": "Selector", "selector": {"mode": "Single", "matchLabels": [region]}},
                ]
            },
        },
    }
    patches = [
        {"type": "FromEnvironmentFieldPath", "fromFieldPath": each, "toFieldPath": f"data.{each}"}
        for each in ("account", "zone")
    ]
    async with a_platform(context, unique) as platform:
        await platform.compose(fetch, templates(config_map("settings", *patches)))
        xr = await platform.create(spec={"region": f"eu-{unique}"})
        await platform.failed(xr, f"{unique}-base")
        labels = {"region": f"eu-{unique}"}
        await platform.client.create(environment_config(f"{unique}-base", account="1", zone="none"))
        await platform.failed(xr, "exactly one")
        zone = await platform.client.create(environment_config(f"{unique}-eu", labels, zone="a"))
        await platform.ready(xr)
        assert (await platform.composed(xr))["settings"]["data"] == {"account": "1", "zone": "a"}
        await platform.edit(ENVIRONMENT_CONFIG, zone, {"data": {"zone": "b"}})

        async def changed() -> bool:
            return bool((await platform.composed(xr))["settings"]["data"]["zone"] == "b")

        await eventually(changed, "the new zone is in the composed resource")


async def test_required_resources_come_by_name_by_labels_and_all_and_what_is_missing_is_empty(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        client, labels = platform.client, {"matchLabels": {"labels": {"of": unique}}}
        elsewhere = f"{unique}-space"
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}})
        for name, namespace in (("b", NAMESPACE), ("a", elsewhere), ("a", NAMESPACE)):
            obj = a_config_map(f"{unique}-{name}", namespace, x=namespace)
            await client.create({**obj, "metadata": obj["metadata"] | {"labels": {"of": unique}}})
        kind = {"apiVersion": "v1", "kind": "ConfigMap"}
        wanted = {
            "named": by_name(f"{unique}-b"),
            "labelled": {**kind, **labels},
            "here": {**kind, **labels, "namespace": NAMESPACE},
            "missing": by_name(f"{unique}-none"),
            "unserved": {"apiVersion": f"{unique}.example.net/v1", "kind": "None", "matchName": "x"},
        }
        # What the Composition requires is there beside what the function asks for, and gives way under the same name.
        first = {"requirementName": "first", **kind, "namespace": elsewhere, "name": f"{unique}-a"}
        hidden = {**first, "requirementName": "named"}
        await platform.compose(reading(wanted, requirements={"requiredResources": [first, hidden]}))
        xr = await platform.create()
        assert await seen(
            platform,
            xr,
            f"first/{unique}-a={elsewhere}",
            f"here/{unique}-a={NAMESPACE}",
            f"here/{unique}-b={NAMESPACE}",
            f"labelled/{unique}-a={NAMESPACE}",
            f"labelled/{unique}-a={elsewhere}",
            f"labelled/{unique}-b={NAMESPACE}",
            f"named/{unique}-b={NAMESPACE}",
        )
        # Whose order is by namespace and name, whatever the order of creation.
        ordered = script(
            "def main(req):\n"
            "    items = req['requiredResources'].get('labelled', {}).get('items', [])\n"
            "    words = ' '.join([i['resource']['metadata']['namespace'] for i in items])\n"
            "    wanted = {'labelled': {'apiVersion': 'v1', 'kind': 'ConfigMap',"
            f" 'matchLabels': {{'labels': {{'of': '{unique}'}}}}}}}}\n"
            "    return {'requirements': {'resources': wanted},"
            " 'desired': {'composite': {'resource': {'status': {'words': words}}}}}\n"
        )
        await platform.compose(ordered)
        await platform.until(
            xr,
            lambda xr: xr["status"].get("words") == f"{NAMESPACE} {NAMESPACE} {elsewhere}",
            "they come in order",
        )


async def test_schemas_are_had_for_built_in_and_custom_kinds_and_are_empty_for_unknown_ones(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        text = f"""
def compose(req, rsp):
    for name, version, kind in (
        ("core", "v1", "ConfigMap"), ("nested", "apps/v1", "Deployment"),
        ("own", "{platform.kind.api_version}", "App"), ("none", "v1", "Nothing"), ("strange", "no.such/v1", "A"),
    ):
        rsp.requirements.schemas[name].api_version = version
        rsp.requirements.schemas[name].kind = kind
    words = []
    for name, schema in sorted(req.required_schemas.items()):
        properties = schema.openapi_v3["properties"] if schema.HasField("openapi_v3") else {{}}
        words.append(name + "=" + ("data" if "data" in properties else "spec" if "spec" in properties else "nothing"))
        if name == "nested":
            words.append(properties["spec"]["properties"]["template"]["properties"]["spec"]["type"])
    rsp.desired.composite.resource.update({{"status": {{"words": " ".join(words)}}}})
"""
        await platform.compose(python(text))
        xr = await platform.create()
        wanted = "core=data nested=spec object none=nothing own=spec strange=nothing"
        await platform.until(xr, lambda xr: (xr.get("status") or {}).get("words") == wanted, wanted)


async def test_feature_gates_deny_confine_and_ignore(context: ControllerContext, unique: str) -> None:
    gates = FeatureGates(
        {"DenyExtraResourcesByDefault": True, "ConfineNamespacedReads": True, "FunctionRevisionSelectors": False}
    )
    async with a_platform(context, unique, features=gates) as platform:
        await platform.client.create(a_config_map(f"{unique}-it", x="1"))
        wanted = {"it": by_name(f"{unique}-it")}
        allowed: dict[str, Any] = {
            "allowedExtraResources": [{"apiVersion": "v1", "kind": "ConfigMap", "matchName": f"{unique}-.*"}]
        }
        other = {"it": by_name(f"{unique}-it", "kube-system")}
        choosing: dict[str, Any] = {"functionRevisionSelector": {"matchLabels": {"none": "such"}}}
        cases = {
            "denied": reading(wanted),
            "allowed": reading(wanted, **allowed),
            "misnamed": reading({"it": by_name("kube-root-ca.crt")}, **allowed),
            "confined": reading(other, **allowed),
            "choosing": reading(wanted, **allowed, **choosing),
        }
        xrs = {}
        for case, step in cases.items():
            await platform.compose(step, name=f"{unique}-{case}")
            xrs[case] = await platform.create(case, compositionRef={"name": f"{unique}-{case}"})
        await platform.failed(xrs["denied"], "is denied: the step has no allowedExtraResources")
        await platform.failed(xrs["misnamed"], "is denied: the step's allowedExtraResources allows ConfigMap")
        await platform.failed(xrs["confined"], f'may read only namespace "{NAMESPACE}"')
        for case in ("allowed", "choosing"):
            await seen(platform, xrs[case], f"it/{unique}-it=1")
        await platform.until_event(xrs["choosing"], "ComposeResources", "FunctionRevisionSelectors is off")


async def test_extra_resources_can_be_switched_off_altogether(context: ControllerContext, unique: str) -> None:
    gates = FeatureGates({"CompositionFunctionsExtraResources": False})
    async with a_platform(context, unique, features=gates) as platform:
        await platform.client.create(a_config_map(f"{unique}-it", x="1"))
        wanted = {"it": by_name(f"{unique}-it")}
        everything: dict[str, Any] = {"allowedExtraResources": [{"apiVersion": "v1", "kind": "ConfigMap"}]}
        required = {"requirementName": "it", "apiVersion": "v1", "kind": "ConfigMap", "name": f"{unique}-it"}
        bootstrap: dict[str, Any] = {"requirements": {"requiredResources": [required]}}
        cases = {
            "asked": reading(wanted, **everything),
            "bootstrap": reading({}, **bootstrap),
        }
        for case, step in cases.items():
            await platform.compose(step, name=f"{unique}-{case}")
            xr = await platform.create(case, compositionRef={"name": f"{unique}-{case}"})
            await platform.failed(xr, "requirements are switched off on this control plane")
        await platform.compose(templates(nop("it"), ready=False), auto_ready(), name=f"{unique}-content")
        await platform.ready(await platform.create("content", compositionRef={"name": f"{unique}-content"}))


async def test_values_survive_a_pipeline(context: ControllerContext, unique: str) -> None:
    values: Object = {"big": 9007199254740993, "none": None, "map": {}, "list": [], "half": 0.5, "flag": False}
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(nop("it", fields={"of": values}), ready=False), auto_ready())
        xr = await platform.ready(await platform.create())
        [found] = (await platform.composed(xr, NOP)).values()
        kept = {key: value for key, value in values.items() if value is not None}
        assert {k: v for k, v in found["spec"]["forProvider"]["fields"]["of"].items() if v is not None} == kept


async def install(platform: Platform, name: str, version: str, target: str, **spec: Any) -> None:
    wanted = {
        "apiVersion": FUNCTION.api_version,
        "kind": "Function",
        "metadata": {"name": name, "annotations": {"planform.dev/endpoint": target}},
        "spec": {"package": f"example.org/acme/fn:{version}", **spec},
    }
    await platform.client.apply(wanted, manager="user", force=True)


def who(function: str, **choice: Any) -> tuple[Object, Object]:
    """Steps that put the process which answered into the XR's status."""
    step = {"step": "ask", "functionRef": {"name": function}, "input": asking("who"), **choice}
    tell = script(
        "def main(req):\n    return {'desired': {'composite': {'resource': {'status': "
        "{'words': str(int(req['context']['pid']))}}}}}\n"
    )
    return step, tell


def asking(mode: str, **more: Any) -> Object:
    return {"apiVersion": "test.example.org/v1", "kind": "Input", "mode": mode, **more}


async def answered(platform: Platform, xr: Object, pid: int) -> None:
    await platform.until(xr, lambda xr: (xr.get("status") or {}).get("words") == str(pid), f"process {pid} answered")


async def test_steps_call_the_revision_they_name_or_select_and_else_the_newest_active(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    function, both = f"function-{unique}", {"revisionHistoryLimit": 2, "activeRevisionLimit": 2}
    with ExitStack() as stack:
        one, two = (stack.enter_context(function_server(tmp_path, each)) for each in ("one", "two"))
        async with a_platform(context, unique) as platform:
            await install(platform, function, "v1.0.0", one.target, **both)
            await platform.compose(*who(function))
            plain = await platform.create("plain", compositionRef={"name": f"{unique}-apps"})
            await answered(platform, plain, one.child.pid)
            await install(platform, function, "v2.0.0", two.target, **both)
            await answered(platform, plain, two.child.pid)  # it was woken by the new revision
            labels = f"{PACKAGE_LABEL}={function}"
            revisions = (await platform.client.list(FUNCTION_REVISION, labels=labels)).items
            [first] = [each for each in revisions if each["spec"]["revision"] == 1]
            choices: dict[str, Any] = {
                "named": {"functionRevisionRef": {"name": first["metadata"]["name"]}},
                "selected": {"functionRevisionSelector": {"matchLabels": {VERSION_LABEL: "v1.0.0"}}},
                "lost": {"functionRevisionSelector": {"matchLabels": {VERSION_LABEL: "v3.0.0"}}},
            }
            xrs = {}
            for case, choice in choices.items():
                await platform.compose(*who(function, **choice), name=f"{unique}-{case}")
                xrs[case] = await platform.create(case, compositionRef={"name": f"{unique}-{case}"})
            for case in ("named", "selected"):
                await answered(platform, xrs[case], one.child.pid)
            await platform.failed(xrs["lost"], 'step "ask"')
            await platform.until_event(xrs["lost"], "ComposeResources", "v3.0.0")
            state = Patch(PatchType.MERGE, {"spec": {"desiredState": "Inactive"}})
            manual = Patch(PatchType.MERGE, {"spec": {"revisionActivationPolicy": "Manual"}})
            await platform.client.patch(FUNCTION, function, manual)
            await platform.client.patch(FUNCTION_REVISION, first["metadata"]["name"], state)
            await platform.failed(xrs["named"], "active")


async def test_a_function_that_hangs_dies_or_talks_nonsense_is_told_on_the_xr_within_its_time(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    function = f"function-{unique}"
    with function_server(tmp_path, "fn") as server:
        async with a_platform(context, unique) as platform:
            await install(platform, function, "v1.0.0", server.target)
            cases = {
                "hang": (asking("hang"), "no answer within"),
                "garbage": (asking("garbage"), "answer"),
                "babble": (asking("babble", size=80 << 20), "are taken (annotation planform.dev/max-answer-size"),
                "restless": (asking("restless"), "did not settle what it requires in 5 further calls"),
                "refuse": (asking("refuse", code="INVALID_ARGUMENT"), "not like this"),
            }
            started = asyncio.get_running_loop().time()
            xrs = {}
            for case, (given, _) in cases.items():
                step = {"step": "ask", "functionRef": {"name": function}, "input": given}
                await platform.compose({**step, "timeout": "1s" if case == "hang" else "20s"}, name=f"{unique}-{case}")
                xrs[case] = await platform.create(case, compositionRef={"name": f"{unique}-{case}"})
            for case, (_, words) in cases.items():
                await platform.failed(xrs[case], words)
            assert asyncio.get_running_loop().time() - started < 25
