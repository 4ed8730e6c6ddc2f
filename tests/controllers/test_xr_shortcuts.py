"""Shortcuts change what a reconcile costs and never what it comes to.

Every way in which a composition can look at its XR gets an XR. Once they rest, a control plane without memory of its
own writes, of last runs and of answers reconciles the same XRs: if one of them rested on something stale, it is
corrected now, and that shows in a resource version.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from planform.api.kinds import Object, gvk
from planform.builtin.catalogue import list_builtins
from planform.builtin.patch_and_transform.patches import COMBINING, ENVIRONMENT_ROUTES, TEMPLATE_ROUTES, Place
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    CONFIG_MAP,
    NOP,
    Platform,
    a_process,
    config_map,
    nop,
    python,
    script,
    templates,
)
from tests.harness.contexts import all_controllers, eventually

pytestmark = pytest.mark.timeout(240)

SECRET = gvk("v1", "Secret")
ENVIRONMENT_CONFIG: Final = {
    "apiVersion": "apiextensions.crossplane.io/v1beta1",
    "kind": "EnvironmentConfig",
    "data": {"given": "data"},
}
KEPT_IN_XR: Final = (
    "spec.crossplane.compositionRevisionRef.name",
    "spec.crossplane.resourceRefs[0].name",
    "metadata.generation",
    "metadata.finalizers[0]",
    "metadata.labels[crossplane.io/composite]",
    "status.conditions[0].status",
    "status.conditions[1].reason",
    "status.planform.generation",
    "status.words",
)
"""What a reconcile writes into its XR, after the functions were asked."""

TRANSFORMS: Final[dict[str, Object]] = {
    "convert": {"type": "convert", "convert": {"toType": "string"}},
    "map": {"type": "map", "map": {"True": "yes", "False": "no"}},
    "match": {"type": "match", "match": {"patterns": [{"literal": "True", "result": "t"}], "fallbackValue": "f"}},
    "string": {"type": "string", "string": {"type": "Format", "fmt": "<%v>"}},
    "upper": {"type": "string", "string": {"type": "Convert", "convert": "ToUpper"}},
    "regexp": {"type": "string", "string": {"type": "Regexp", "regexp": {"match": "[A-Z]"}}},
}


def as_text(patch: Object) -> Object:
    return {**patch, "transforms": [*patch.get("transforms", ()), TRANSFORMS["convert"]]}


def patch_of(kind: str, source: str, target: str) -> Object:
    """A patch of any type that takes what is at the source."""
    if kind in COMBINING:
        combine = {"strategy": "string", "string": {"fmt": "%v"}, "variables": [{"fromFieldPath": source}]}
        return {"type": kind, "combine": combine, "toFieldPath": target}
    return as_text({"type": kind, "fromFieldPath": source, "toFieldPath": target})


def template_step(kind: str) -> Object:
    """Patches of one type, each from another place, in a template."""
    source, target = TEMPLATE_ROUTES[kind]
    if source is Place.COMPOSITE:
        patches = [patch_of(kind, path, f"data.d{index}") for index, path in enumerate(KEPT_IN_XR)]
    else:
        path = "metadata.uid" if source is Place.COMPOSED else "given"
        patches = [patch_of(kind, path, {Place.COMPOSITE: "status.words"}.get(target, "data.given"))]
        if target is Place.ENVIRONMENT:
            patches.append(patch_of("FromEnvironmentFieldPath", "data.given", "data.back"))
    step = templates(config_map("a", *patches, x="1"))
    step["input"]["environment"] = {"defaultData": {"given": "default"}}
    return step


def environment_step(kind: str) -> Object:
    """Patches of one type between the XR and the environment, of which templates then take."""
    if ENVIRONMENT_ROUTES[kind][0] is Place.COMPOSITE:
        patches = [patch_of(kind, path, f"taken.d{index}") for index, path in enumerate(KEPT_IN_XR)]
    else:
        patches = [patch_of(kind, "given", "status.words")]
    back = [
        patch_of("FromEnvironmentFieldPath", f"taken.d{index}", f"data.d{index}") for index in range(len(KEPT_IN_XR))
    ]
    step = templates(config_map("a", *back, x="1"))
    step["input"]["environment"] = {"defaultData": {"given": "default"}, "patches": patches}
    return step


def transform_step(transform: Object) -> Object:
    patch = {"type": "FromCompositeFieldPath", "fromFieldPath": "status.conditions[0].status", "toFieldPath": "data.x"}
    return templates(config_map("a", {**patch, "transforms": [transform]}))


def step(name: str, given: Object | None = None) -> Object:
    found: Object = {"step": name, "functionRef": {"name": f"function-{name}"}}
    return found if given is None else {**found, "input": given}


BUILTINS: Final[dict[str, list[Object]]] = {
    "patch-and-transform": [
        {
            **templates({**config_map("a", x="1"), "_key": "a"}),
            "input": {
                "apiVersion": "pt.fn.crossplane.io/v1beta1",
                "kind": "Resources",
                "writeConnectionSecretToRef": {
                    "patches": [
                        {
                            "type": "CombineFromComposite",
                            "toFieldPath": "name",
                            "combine": {
                                "strategy": "string",
                                "string": {"fmt": "g%v-secret"},
                                "variables": [{"fromFieldPath": "metadata.generation"}],
                            },
                        }
                    ]
                },
                "resources": [
                    {
                        "name": "a",
                        "base": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}},
                        "readinessChecks": [{"type": "None"}],
                        "connectionDetails": [{"name": "x", "type": "FromFieldPath", "fromFieldPath": "data.x"}],
                    }
                ],
            },
        }
    ],
    "auto-ready": [templates(nop("a"), nop("b", after="100ms"), ready=False), step("auto-ready")],
    "environment-configs": [
        step(
            "environment-configs",
            {
                "apiVersion": "environmentconfigs.fn.crossplane.io/v1beta1",
                "kind": "Input",
                "spec": {
                    "environmentConfigs": [
                        {
                            "type": "Selector",
                            "selector": {
                                "mode": "Multiple",
                                "matchLabels": [
                                    {
                                        "key": "composite",
                                        "type": "FromCompositeFieldPath",
                                        "valueFromFieldPath": "metadata.labels[crossplane.io/composite]",
                                        "fromFieldPathPolicy": "Optional",
                                    }
                                ],
                            },
                        }
                    ]
                },
            },
        ),
        templates(config_map("a", patch_of("FromEnvironmentFieldPath", "given", "data.given"), x="1")),
    ],
    "extra-resources": [
        step(
            "extra-resources",
            {
                "apiVersion": "extra-resources.fn.crossplane.io/v1beta1",
                "kind": "Input",
                "spec": {
                    "extraResources": [
                        {
                            "apiVersion": "v1",
                            "kind": "ConfigMap",
                            "type": "Selector",
                            "into": "own",
                            "selector": {
                                "matchLabels": [
                                    {
                                        "key": "crossplane.io/composite",
                                        "type": "FromCompositeFieldPath",
                                        "valueFromFieldPath": "metadata.name",
                                    }
                                ]
                            },
                        }
                    ]
                },
            },
        ),
        templates(config_map("a", x="1")),
    ],
    "sequencer": [
        templates(nop("a"), nop("b"), ready=False),
        step("auto-ready"),
        step(
            "sequencer",
            {
                "apiVersion": "sequencer.fn.crossplane.io/v1beta1",
                "kind": "Input",
                "rules": [{"sequence": ["a", "b"]}],
            },
        ),
    ],
    "go-templating": [
        step(
            "go-templating",
            {
                "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
                "kind": "GoTemplate",
                "source": "Inline",
                "inline": {
                    "template": (
                        "{{ $xr := getCompositeResource . }}\n"
                        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n"
                        '    {{ setResourceNameAnnotation "a" }}\n'
                        '    gotemplating.fn.crossplane.io/ready: "True"\n'
                        'data:\n  generation: "{{ $xr.metadata.generation }}"\n'
                        "  labels: {{ $xr.metadata.labels | toJson | quote }}\n"
                        '  refs: {{ dig "crossplane" "resourceRefs" "none" $xr.spec | toJson | quote }}\n'
                    )
                },
            },
        )
    ],
    "starlark": [
        script(
            "def main(req):\n"
            "    xr = req['observed']['composite']['resource']\n"
            "    seen = [c['type'] + c['status'] for c in xr.get('status', {}).get('conditions', [])]\n"
            "    data = {'seen': ','.join(sorted(seen)), 'g': str(xr['metadata'].get('generation'))}\n"
            "    desired = req['desired']\n"
            "    desired['resources']['a'] = {'ready': 'READY_TRUE', 'resource': {\n"
            "        'apiVersion': 'v1', 'kind': 'ConfigMap', 'data': data}}\n"
            "    return {'desired': desired}\n"
        )
    ],
    "cel-filter": [
        templates(config_map("a", x="1"), config_map("b", x="1")),
        step(
            "cel-filter",
            {
                "apiVersion": "cel.fn.crossplane.io/v1beta1",
                "kind": "Filters",
                "filters": [
                    {"name": "b", "expression": "has(observed.composite.resource.metadata.finalizers)"},
                ],
            },
        ),
    ],
    "cel-validation": [
        templates(config_map("a", x="1")),
        step(
            "cel-validation",
            {
                "apiVersion": "cel.fn.planform.dev/v1",
                "kind": "Validations",
                "rules": [{"name": "r", "resources": "a", "expression": "resource.data.x == '1'", "message": "m"}],
            },
        ),
    ],
    "tag-manager": [
        templates(nop("a"), ready=False),
        step("auto-ready"),
        step(
            "tag-manager",
            {
                "apiVersion": "tag-manager.fn.crossplane.io/v1beta1",
                "kind": "ManagedTags",
                "addTags": [{"type": "FromCompositeFieldPath", "fromFieldPath": "metadata.labels", "policy": "Retain"}],
            },
        ),
    ],
    "status-transformer": [
        templates(nop("a"), ready=False),
        step("auto-ready"),
        step(
            "status-transformer",
            {
                "apiVersion": "function-status-transformer.fn.crossplane.io/v1beta1",
                "kind": "StatusTransformation",
                "statusConditionHooks": [
                    {
                        "matchers": [
                            {
                                "includeCompositeAsResource": True,
                                "resources": [{"name": ".*"}],
                                "conditions": [{"type": "Ready", "status": "True"}],
                            }
                        ],
                        "setConditions": [
                            {
                                "target": "Composite",
                                "condition": {"type": "Seen", "status": "True", "reason": "R", "message": "m"},
                            }
                        ],
                    }
                ],
            },
        ),
    ],
    "python": [
        python(
            "def compose(req, rsp):\n"
            "    xr = req.observed.composite.resource\n"
            "    rsp.desired.resources['a'].resource.update({'apiVersion': 'v1', 'kind': 'ConfigMap',\n"
            "        'data': {'refs': str(len(xr['spec'].get_or_create_struct('crossplane')['resourceRefs']\n"
            "            if 'resourceRefs' in xr['spec'].get_or_create_struct('crossplane') else []))}})\n"
            "    rsp.desired.resources['a'].ready = 1\n"
        )
    ],
}


LATE: Final = "late"


def late() -> Object:
    """A step whose resource is ready once somebody says so: what the XR's conditions say changes after all else."""
    found = templates(config_map(LATE, x="1"), step=LATE)
    found["input"]["resources"][0]["readinessChecks"] = [{"type": "NonEmpty", "fieldPath": "data.go"}]
    return found


def cases() -> Iterator[tuple[str, list[Object]]]:
    for kind in TEMPLATE_ROUTES:
        yield f"template-{kind.lower()}", [template_step(kind)]
    for kind in ENVIRONMENT_ROUTES:
        yield f"environment-{kind.lower()}", [environment_step(kind)]
    for name, transform in TRANSFORMS.items():
        yield f"transform-{name}", [transform_step(transform)]
    for builtin in list_builtins():
        # One of which nothing is known here is asked without an input: what it answers, or refuses, is compared too.
        steps = BUILTINS.get(builtin.name) or [templates(config_map("a", x="1")), step(builtin.name)]
        yield f"builtin-{builtin.name}", steps


async def settle(platform: Platform) -> dict[str, Object]:
    """Define everything and let it rest; gives the XRs by case."""
    await platform.define()
    xrs = {}
    for name, steps in cases():
        composition = f"{platform.unique}-{name}"
        wanted = platform.composition(late(), *steps, name=composition)
        await platform.client.apply(wanted, manager="author", force=True)
        xrs[name] = await platform.create(name, spec={"size": 1}, compositionRef={"name": composition})
    for xr in xrs.values():
        await platform.until(xr, lambda found: (found.get("status") or {}).get("conditions"), "it was reconciled")
    await platform.at_rest(*xrs.values())
    composed = {name: (await platform.composed(xr)).get(LATE) for name, xr in xrs.items()}
    waiting = {name: found for name, found in composed.items() if found is not None}
    for found in waiting.values():
        await platform.edit(CONFIG_MAP, found, {"data": {"go": "on"}})
    for name in waiting:
        await platform.ready(xrs[name])
    await platform.at_rest(*xrs.values())
    return xrs


async def state_of(platform: Platform, xrs: dict[str, Object]) -> dict[str, Any]:
    """Everything that there is of the XRs, resource versions included."""
    found: dict[str, Any] = {}
    for name, xr in xrs.items():
        found[name] = await platform.get(xr)
        for kind in (CONFIG_MAP, NOP, SECRET):
            for key, each in (await platform.composed(xr, kind)).items():
                found[f"{name}/{kind.kind}/{key}"] = each
    return found


async def test_xrs_that_rest_are_what_they_come_to_without_any_shortcut(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    async with a_process(context, unique, tmp_path / "with") as platform:
        xrs = await settle(platform)
        before = await state_of(platform, xrs)
    async with a_process(context, unique, tmp_path / "without", shortcuts=False) as platform:

        async def all_run() -> bool:
            return all([await platform.runs(xr) for xr in xrs.values()])

        await eventually(all_run, "every XR's pipeline is run without shortcuts")
        await platform.at_rest(*xrs.values())
        after = await state_of(platform, xrs)
    stale = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    assert not stale
    assert len(before) >= 3 * len(xrs) - 5, "nearly every case composes something"
    async with all_controllers(context):
        pass  # and what the test made is deleted
