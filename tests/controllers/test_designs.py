"""What the design "Composition Functions: Beta" prints runs as printed, on both engines. `designs/` holds the manifests
of this design and of the others, whose tests are in the modules beside this one, and a list of all their promises.

Where a manifest cannot work, the test names what was mended; docs/explanation/examples-of-the-designs.md says why.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from planform.api.kinds import Object
from planform.api.names import FUNCTION_REVISION
from planform.app import Settings, open_control_plane
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client
from planform.clock import SystemClock
from planform.definitions.own_crds import ensure_crds
from planform.reconcile.context import ControllerContext
from tests.controllers.conftest import ENGINES
from tests.controllers.stage import Stage, an_xr, mended, open_stage, printed
from tests.harness.contexts import condition_of, eventually, until_condition

pytestmark = pytest.mark.timeout(120)

CLOUD_SQL = ("database.gcp.crossplane.io/v1beta1", "CloudSQLInstance")
ROBOT = ("iam.dummy.upbound.io/v1alpha1", "Robot")


@pytest.fixture
async def stage(context: ControllerContext) -> AsyncIterator[Stage]:
    async with open_stage(context) as stage:
        yield stage


SIZE_OF_DISK = {
    "databaseVersion": "POSTGRES_9_6",
    "region": "us-central1",
    "settings": {"tier": "db-custom-1-3840", "dataDiskType": "PD_SSD", "dataDiskSizeGb": 20},
}


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param("functions-resources", id="resources_mode"),
        pytest.param("functions-patch-and-transform", id="patch_and_transform_as_a_function"),
    ],
)
async def test_functions_design_composition_of_a_database_composes_it(stage: Stage, manifest: str) -> None:
    await stage.serve(*CLOUD_SQL)
    await stage.define("database.example.org/v1alpha1", "AcmeCoDatabase")
    await stage.apply(printed(manifest))
    database = await stage.apply(
        an_xr("database.example.org/v1alpha1", "AcmeCoDatabase", {"parameters": {"storageGB": 20}})
    )
    [instance] = (await stage.composed(database, *CLOUD_SQL)).values()
    assert instance["spec"]["forProvider"] == SIZE_OF_DISK
    await stage.provide(instance)
    await stage.ready(database)


async def test_functions_design_pipeline_composition_says_that_remote_templates_are_not_fetched(stage: Stage) -> None:
    await stage.define("database.example.org/v1", "XPostgreSQLInstance")
    await stage.apply(printed("functions-pipeline"))
    instance = await stage.apply(an_xr("database.example.org/v1", "XPostgreSQLInstance", {}))
    problem = await stage.failure(instance)
    assert problem["step"] == "compose-xr-using-go-templates"
    assert "does not fetch its templates from other places" in problem["message"]


async def test_functions_design_pipeline_composition_runs_both_steps_with_its_templates_inline(stage: Stage) -> None:
    template = """inline: |
        apiVersion: v1
        kind: Namespace
        metadata:
          name: made-by-go-templates
          annotations:
            {{ setResourceNameAnnotation "one" }}"""
    await stage.define("database.example.org/v1", "XPostgreSQLInstance")
    await stage.apply(
        mended(
            "functions-pipeline",
            {
                "source: Remote": "source: Inline",
                "remote: git://github.com/example/my-xpostgresql-go-templates": template,
            },
        )
    )
    instance = await stage.apply(an_xr("database.example.org/v1", "XPostgreSQLInstance", {}))
    await until_condition(stage.client, instance, "Synced")
    assert (await stage.composed(instance, "v1", "Namespace")).keys() == {"one"}


async def test_functions_design_function_is_installed_and_its_revision_says_where_it_serves(stage: Stage) -> None:
    await until_condition(stage.client, await stage.apply(printed("functions-function")), "Healthy")
    again = printed("functions-function-endpoint")  # the same, with an endpoint in its status
    status = (await stage.get(await stage.apply(again)))["status"]
    revision = await stage.client.get(FUNCTION_REVISION, status["currentRevision"])
    assert revision["metadata"]["name"].startswith("go-templates-")
    assert revision["status"]["endpoint"] == "builtin:go-templating"
    assert status.get("endpoint") != again["status"]["endpoint"]  # which is not for users to say


GO_TEMPLATE_MENDS = {
    "( . desired.composite.resource.spec.count )": "(.observed.composite.resource.spec.count | int)",
    "crossplane.io/external-name: ": '{{ setResourceNameAnnotation (printf "robot-%d" $i) }}\n            '
    "crossplane.io/external-name: ",
    "{{ .desired.composite.resource | getExternalName }}": "{{ $.observed.composite.resource | getExternalName }}",
    "{{- if $i |": "{{- with $i |",
    '"blue }}': '"blue" }}',
}
STARLARK_MENDS = {'{desired=req["desired"]}': '{"desired": req["desired"]}'}


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        pytest.param("functions-go-templates", "template: manifests:1", id="go_templates"),
        pytest.param("functions-starlark", "unexpected", id="starlark"),
    ],
)
async def test_functions_design_script_with_wrong_syntax_is_refused_with_the_place(
    stage: Stage, manifest: str, complaint: str
) -> None:
    await stage.define("database.example.org/v1", "XPostgreSQLInstance")
    await stage.apply(printed(manifest))
    problem = await stage.failure(
        await stage.apply(an_xr("database.example.org/v1", "XPostgreSQLInstance", {"count": 1}))
    )
    assert problem["step"] == "compose-xr-using-go-templates"
    assert complaint in problem["message"]


@pytest.mark.parametrize(
    ("manifest", "mends"),
    [
        pytest.param("functions-go-templates", GO_TEMPLATE_MENDS, id="go_templates"),
        pytest.param("functions-starlark", STARLARK_MENDS, id="starlark"),
    ],
)
async def test_functions_design_mended_script_composes_as_many_robots_as_the_xr_counts(
    stage: Stage, manifest: str, mends: dict[str, str]
) -> None:
    await stage.serve(*ROBOT)
    await stage.define("database.example.org/v1", "XPostgreSQLInstance")
    await stage.apply(mended(manifest, mends))
    owner = await stage.apply(
        an_xr(
            "database.example.org/v1",
            "XPostgreSQLInstance",
            {"count": 2},
            annotations={"crossplane.io/external-name": "acme"},
        )
    )
    robots = await stage.composed(owner, *ROBOT, count=2)
    assert robots.keys() == {"robot-0", "robot-1"}
    colours = {name: each["spec"]["forProvider"]["color"] for name, each in robots.items()}
    await stage.merge(owner, {"spec": {"count": 3}})
    more = await stage.composed(owner, *ROBOT, count=3)
    assert {each["metadata"]["annotations"]["crossplane.io/external-name"] for each in more.values()} == {
        "acme-robot-0",
        "acme-robot-1",
        "acme-robot-2",
    }
    assert {name: more[name]["spec"]["forProvider"]["color"] for name in robots} == colours
    await stage.until(owner, lambda each: (condition_of(each, "Synced") or {}).get("status") == "True", "is synced")


async def test_functions_design_robot_group_is_composed_by_the_mended_script(stage: Stage) -> None:
    await stage.serve(*ROBOT)
    await stage.define("contribfest.crossplane.io/v1alpha1", "XRobotGroup")
    await stage.apply(
        mended(
            "functions-starlark",
            {
                **STARLARK_MENDS,
                "apiVersion: database.example.org/v1": "apiVersion: contribfest.crossplane.io/v1alpha1",
                "kind: XPostgreSQLInstance": "kind: XRobotGroup",
                'xr["metadata"]["annotations"]["crossplane.io/external-name"]': 'xr["metadata"]["name"]',
            },
        )
    )
    group = await stage.apply(printed("functions-robot-group"))
    assert len(await stage.composed(group, *ROBOT, count=5)) == 5


async def test_functions_design_input_ref_lets_compositions_share_a_script(stage: Stage) -> None:
    await stage.serve(*ROBOT)
    await stage.serve("example.org/v1", "StarlarkScript")
    await stage.define("contribfest.crossplane.io/v1alpha1", "XRobotGroup")
    composition = mended("functions-starlark", STARLARK_MENDS)
    shared: Object = printed("functions-input-fragment")["pipeline"][0]["input"]  # where the script is "..."
    shared["metadata"] = {"name": "make-some-purple-robots"}
    shared["script"] = composition["spec"]["pipeline"][0]["input"]["script"]
    await stage.apply(shared)
    composition["spec"] = {
        "compositeTypeRef": {"apiVersion": "contribfest.crossplane.io/v1alpha1", "kind": "XRobotGroup"},
        "mode": "Pipeline",
        **printed("functions-input-ref-fragment"),
    }
    await stage.apply(composition)
    group = printed("functions-robot-group")
    group["metadata"]["annotations"] = {"crossplane.io/external-name": "acme"}
    group = await stage.apply(group)
    made = await stage.composed(group, *ROBOT, count=5)
    assert {each["spec"]["forProvider"]["color"] for each in made.values()} == {"purple"}
    shared["script"] = shared["script"].replace('"purple"', '"red"').replace("if name in", "if False and name in")
    await stage.apply(shared)

    async def red() -> bool:
        robots = (await stage.composed(group, *ROBOT, count=5)).values()
        return {each["spec"]["forProvider"]["color"] for each in robots} == {"red"}

    await eventually(red, "a change of the shared input reaches the robots")


# -- versions that have new names


@pytest.fixture(params=ENGINES)
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client that speaks HTTP to either engine."""
    clock, rng = SystemClock(), Random(7)
    if request.param == "kubernetes":
        path: Path = request.getfixturevalue("kubernetes_engine").kubeconfig
        async with KubernetesClient(find_connection(clock=clock, path=path), clock=clock, rng=rng) as client:
            await ensure_crds(client, clock=clock)
            yield client
        return
    async with open_control_plane(Settings(data=None)) as plane:
        connection = find_connection(clock=clock, path=plane.kubeconfig)
        async with KubernetesClient(connection, clock=clock, rng=rng) as client:
            await ensure_crds(client, clock=clock)
            yield client


@pytest.mark.parametrize(
    (
        "manifest",
        "warning",
    ),
    [
        (
            "functions-pipeline",
            "apiextensions.crossplane.io/v2alpha1 Composition is deprecated",
        ),
        (
            "revisions-revision",
            "apiextensions.crossplane.io/v1alpha1 CompositionRevision is deprecated",
        ),
    ],
)
async def test_designs_old_versions_are_answered_with_a_warning_header(
    wire: Client, manifest: str, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = printed(manifest)
    for owner in wanted["metadata"].get("ownerReferences") or ():
        owner["uid"] = "8b1f2f0e-0000-4000-8000-000000000000"  # which no API does without
    with caplog.at_level(logging.WARNING, logger="planform.client.transport"):
        await wire.create(wanted, dry_run=True)
    assert f"the server warns: {warning}" in caplog.text


async def test_designs_functions_of_the_older_version_are_taken_without_a_warning(
    wire: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="planform.client.transport"):
        await wire.create(printed("functions-function"), dry_run=True)
    assert "the server warns" not in caplog.text


def test_every_manifest_of_the_designs_is_used_by_a_test() -> None:
    here = Path(__file__)
    source = "".join(path.read_text() for path in here.parent.glob("test_designs*.py"))
    manifests = {path.stem for path in (here.parent / "designs").glob("*.yaml")} - {"promises"}
    assert sorted(name for name in manifests if f'"{name}"' not in source) == []
