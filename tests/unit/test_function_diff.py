"""`planform function diff` as users run it, against a control plane over HTTP, and how it draws what it finds.

One Function names different functions one after the other, so that its revisions really differ: built-in ones, and one
that desires nothing of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner, Result

from planform.api.names import FUNCTION, FUNCTION_REVISION, PREVIEW
from planform.api.previews import ChangeClass, FieldChange, ObjectChange, XrEntry
from planform.app import ControlPlane, Settings, open_control_plane
from planform.cli.functions.diff import _alike, _means, _named, _outcome
from planform.cli.main import root
from planform.errors import Forbidden, UsageError
from planform.preview import FUNCTION_DIFFS_PATH
from tests.controllers.composing import Platform
from tests.harness.contexts import eventually, until_condition
from tests.harness.function_server import function_server

Run = Callable[..., Awaitable[Result]]
in_one_loop = pytest.mark.asyncio(loop_scope="module")

TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata:
  annotations:
    gotemplating.fn.crossplane.io/composition-resource-name: settings
    gotemplating.fn.crossplane.io/ready: "True"
data:
  size: "{{ .observed.composite.resource.spec.size }}"
"""
INPUT = {
    "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
    "kind": "GoTemplate",
    "source": "Inline",
    "inline": {"template": TEMPLATE},
}
PACKAGES = {
    "templates": "registry.example.org/crossplane-contrib/function-go-templating:v0.9.0",
    "again": "registry.example.org/crossplane-contrib/function-go-templating:v0.10.0",
    "nothing": "registry.example.org/acme/function-nothing:v0.5.0",
    "refuses": "registry.example.org/crossplane-contrib/function-patch-and-transform:v0.8.2",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """With the function `fn` in four revisions, the first of which two XRs use."""
    data = tmp_path_factory.mktemp("plane")
    with function_server(tmp_path_factory.mktemp("server"), "nothing") as server:
        async with open_control_plane(Settings(data=data)) as plane:
            await prepare(plane, server.target)
            yield plane


async def prepare(plane: ControlPlane, target: str) -> None:
    platform = Platform(plane.client, "diff", controllers=plane.controllers)
    await install(plane, "templates")
    await platform.define()
    await platform.compose(
        {
            "step": "render",
            "functionRef": {"name": "fn"},
            "functionRevisionSelector": {"matchLabels": {"is": "templates"}},
            "input": INPUT,
        }
    )
    xrs = [await platform.create(name, spec={"size": size}) for name, size in (("one", 1), ("two", 2))]
    for xr in xrs:
        await platform.ready(xr)
    await platform.at_rest(*xrs)
    await install(plane, "again")
    await install(plane, "nothing", {"planform.dev/endpoint": target})
    await install(plane, "refuses")


async def install(plane: ControlPlane, name: str, annotations: dict[str, str] | None = None) -> None:
    function = {
        "apiVersion": FUNCTION.api_version,
        "kind": "Function",
        "metadata": {"name": "fn", "labels": {"is": name}, "annotations": annotations or {}},
        "spec": {"package": PACKAGES[name], "revisionHistoryLimit": 4, "activeRevisionLimit": 4},
    }
    applied = await plane.client.apply(function, manager="user", force=True)
    await until_condition(plane.client, applied, "Installed", observedGeneration=applied["metadata"]["generation"])


@pytest.fixture
def diff(plane: ControlPlane) -> Run:
    async def run(*arguments: str) -> Result:
        command = ["function", "diff", *arguments, "--kubeconfig", str(plane.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, root, command)

    return run


@in_one_loop
async def test_revisions_that_answer_alike_change_nothing(diff: Run) -> None:
    done = await diff("fn:1", "fn:2", "--exit-code")
    assert done.exit_code == 0, done.exception
    lines = done.stdout.splitlines()
    assert lines[0].startswith("fn: fn-")
    assert lines[1:] == ["  2 unchanged", "  0 changed"]


@in_one_loop
async def test_what_would_be_lost_is_shown_and_counted(diff: Run) -> None:
    done = await diff("fn:v0.9.0", "fn:v0.5.0")
    assert done.exit_code == 0
    assert "App/one-diff (default)" in done.stdout
    assert '- ConfigMap "settings"  delete' in done.stdout
    assert "2 changed, of which 2 would lose resources" in done.stdout
    assert (await diff("fn:1", "fn:3", "--exit-code")).exit_code == 1


@in_one_loop
async def test_what_would_fail_is_told_once_for_all_that_fail_alike(diff: Run) -> None:
    done = await diff("fn:1", "fn:4")
    assert done.exit_code == 0
    assert "App/one-diff (default), App/two-diff (default)\nwould fail: " in done.stdout
    assert "  2 would fail" in done.stdout
    back = await diff("fn:4", "fn:1", "--summary")
    assert "  2 fail now, and would not" in back.stdout
    assert "would no longer fail" not in back.stdout


@in_one_loop
async def test_programs_get_json_or_yaml(diff: Run) -> None:
    told = json.loads((await diff("fn:1", "fn:3", "-o", "json")).stdout)
    assert told["function"] == "fn"
    assert told["summary"] == {
        "xrs": 2,
        "unchanged": 0,
        "changed": 2,
        "failed": 0,
        "mended": 0,
        "skipped": 0,
        "losingResources": 2,
    }
    [one, _] = told["items"]
    assert (one["kind"], one["name"], one["outcome"], one["lost"]) == ("App", "one-diff", "changed", ["settings"])
    [change] = one["changes"]
    assert (change["step"], change["part"], change["resource"]) == ("render", "resource", "settings")
    assert (change["action"], change["before"]) == ("removed", {"object": {"kind": "ConfigMap"}})
    back = json.loads((await diff("fn:3", "fn:1", "-o", "json")).stdout)
    [change, *_] = back["items"][0]["changes"]
    assert (change["action"], change["after"]["object"]["data"]) == ("added", {"size": "1"})
    assert yaml.safe_load((await diff("fn:1", "fn:3", "--summary", "-o", "yaml")).stdout)["summary"] == told["summary"]


@in_one_loop
async def test_only_the_xrs_that_are_asked_for_are_compared(diff: Run) -> None:
    for words in (["--xr", "app/two-diff"], ["--xr", "apps.diff.example.org/two-diff"], ["--xr", "App/two-diff"]):
        told = json.loads((await diff("fn:1", "fn:3", *words, "-o", "json")).stdout)
        assert [each["name"] for each in told["items"]] == ["two-diff"]
    assert "2 XRs" in (await diff("fn:1", "fn:2", "-n", "default")).stdout
    elsewhere = await diff("fn:1", "fn:2", "-n", "elsewhere")
    assert "0 XRs" in elsewhere.stdout
    assert 'no XR has a step of function "fn"' in elsewhere.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["fn:1", "fn:9"], 'there is no function revision "fn:9"'),
        (["fn:1", "fn:2", "--xr", "app/nobody"], 'no XR "app/nobody" has a step of function "fn"'),
        (["fn:1", "fn:2", "--xr", "nobody"], '"nobody" names no XR'),
    ],
)
@in_one_loop
async def test_what_is_not_there_is_named(diff: Run, words: list[str], problem: str) -> None:
    done = await diff(*words)
    assert isinstance(done.exception, UsageError)
    assert problem in str(done.exception)


@in_one_loop
async def test_a_revision_that_does_not_serve_says_what_to_do(plane: ControlPlane, diff: Run) -> None:
    revision = {
        "apiVersion": FUNCTION.api_version,
        "kind": "FunctionRevision",
        "metadata": {
            "name": "fn-by-hand",
            "labels": {"pkg.crossplane.io/package": "fn"},
            "annotations": {"planform.dev/runtime": "External"},
        },
        "spec": {"image": "registry.example.org/acme/fn:v9.0.0", "revision": 9, "desiredState": "Inactive"},
    }
    await plane.client.create(revision)

    async def is_known() -> bool:
        return any(each.id == "fn-by-hand" for each in plane.controllers.functions.catalogue.versions("fn"))

    await eventually(is_known, "the revision is known")
    done = await diff("fn:1", "fn:9")
    assert 'not compared: function "fn": revision "fn-by-hand" does not serve' in done.stdout
    assert "planform function activate fn --revision fn-by-hand" in done.stdout
    assert "  2 not compared" in done.stdout
    await plane.client.delete(FUNCTION_REVISION, "fn-by-hand")


@in_one_loop
async def test_an_xr_that_does_not_come_to_the_function_is_not_compared(plane: ControlPlane, diff: Run) -> None:
    platform = Platform(plane.client, "diff", controllers=plane.controllers)
    nothing = {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": []}
    broken = {"step": "broken", "functionRef": {"name": "function-patch-and-transform"}, "input": nothing}
    await platform.compose(
        broken, {"step": "render", "functionRef": {"name": "fn"}, "input": INPUT}, name="diff-broken"
    )
    xr = await platform.create("stuck", compositionRef={"name": "diff-broken"})
    await until_condition(plane.client, xr, "Synced", "False")
    done = await diff("fn:1", "fn:2")
    assert "App/stuck-diff (default)\nnot compared: both revisions fail: " in done.stdout
    assert "  2 unchanged" in done.stdout
    await plane.client.delete(platform.kind, xr["metadata"]["name"], namespace="default")
    await platform.gone(xr)


@in_one_loop
async def test_a_question_that_makes_no_sense_is_refused_with_a_status(plane: ControlPlane) -> None:
    [first, *_] = [each.id for each in plane.controllers.functions.catalogue.versions("fn")]
    for path, query, code, words in (
        (f"/{first}/no-such", {}, 404, 'no function revision "no-such"'),
        (f"/{first}", {}, 404, "ask for"),
        (f"/{first}/{first}", {"xr": ["a," * 101]}, 400, "at most 100 XRs"),
        (f"/{first}/builtin", {}, 404, "no function revision"),
    ):
        status, body = await plane.controllers.diffs.answer(f"{FUNCTION_DIFFS_PATH}{path}", query)
        assert status == code
        assert words in json.loads(body)["message"]


@in_one_loop
async def test_only_those_whom_rbac_lets_preview_may_compare(plane: ControlPlane, tmp_path: Path) -> None:
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "comparing"}}
    rules = [
        {"apiGroups": [FUNCTION.group], "resources": ["functionrevisions"], "verbs": ["get", "list"]},
        {"apiGroups": ["diff.example.org"], "resources": ["apps"], "verbs": ["get", "list"]},
    ]
    role = await plane.client.create({**about, "kind": "ClusterRole", "rules": rules})
    await plane.client.create(
        {
            **about,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "comparing"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
        }
    )
    file = tmp_path / "kubeconfig"
    data = str(plane.kubeconfig.parent)
    for_bob = ["kubeconfig", "create", "--user", "bob", "--file", str(file), "--data", data]
    assert (await asyncio.to_thread(CliRunner().invoke, root, for_bob)).exit_code == 0
    command = ["function", "diff", "fn:1", "fn:3", "--kubeconfig", str(file)]
    refused = await asyncio.to_thread(CliRunner().invoke, root, command)
    assert isinstance(refused.exception, Forbidden)
    assert "create and get previews of rollout.planform.dev" in (refused.exception.hint or "")
    rules.append({"apiGroups": [PREVIEW.group], "resources": ["previews"], "verbs": ["create", "get"]})
    role = await plane.client.update({**role, "rules": rules})
    told = await asyncio.to_thread(CliRunner().invoke, root, command)
    assert "2 changed, of which 2 would lose resources" in told.stdout
    assert 'ConfigMap "settings" deleted\n  in 2 XRs: default/one-diff, default/two-diff' in told.stdout
    assert "diffs are left out" in told.stderr
    one = await asyncio.to_thread(CliRunner().invoke, root, [*command, "--xr", "app/one-diff"])
    assert isinstance(one.exception, Forbidden)
    rules.append({"apiGroups": [PREVIEW.group], "resources": ["previewreports"], "verbs": ["list"]})
    await plane.client.update({**role, "rules": rules})
    told = await asyncio.to_thread(CliRunner().invoke, root, command)
    assert '- ConfigMap "settings"  delete' in told.stdout


@in_one_loop
async def test_no_record_of_runs_is_needed(plane: ControlPlane, diff: Run) -> None:
    platform = Platform(plane.client, "diff", controllers=plane.controllers)
    xr = await platform.create("three", spec={"size": 3})
    await platform.ready(xr)
    await platform.at_rest(xr)
    plane.controllers.journal.forget(xr["metadata"]["uid"])
    assert "  3 unchanged" in (await diff("fn:1", "fn:2")).stdout
    await plane.client.delete(platform.kind, xr["metadata"]["name"], namespace="default")
    await platform.gone(xr)


@in_one_loop
async def test_an_older_command_is_told_why_an_xr_is_not_compared(plane: ControlPlane) -> None:
    platform = Platform(plane.client, "diff", controllers=plane.controllers)
    xr = await platform.create("four", spec={"size": 4})
    await platform.ready(xr)
    await platform.at_rest(xr)
    plane.controllers.journal.forget(xr["metadata"]["uid"])
    told = {each["name"]: each for each in await plane.controllers.diffs.xrs("fn")}
    assert told["four-diff"]["reason"] == "no run of it is recorded"
    await plane.client.delete(platform.kind, xr["metadata"]["name"], namespace="default")

    async def is_forgotten() -> bool:
        return len(await plane.controllers.diffs.xrs("fn")) == 2

    await platform.gone(xr)
    await eventually(is_forgotten, "an XR that is gone is not compared")


# -- how it is drawn


def test_xrs_to_which_the_same_happens_are_shown_once() -> None:
    def item(name: str, class_: str) -> dict[str, Any]:
        change = {"lines": [f"~ ConfigMap {name}"]}
        return {
            "kind": "App",
            "namespace": "",
            "name": name,
            "outcome": "changed",
            "changes": [change],
            "class": class_,
        }

    found = list(_alike([item("one", "c1"), item("two", "c1"), item("three", "c2")]))
    assert [(texts, [each["name"] for each in items]) for texts, items in found] == [
        (["~ ConfigMap one"], ["one", "two"]),
        (["~ ConfigMap three"], ["three"]),
    ]


def test_a_class_is_shown_with_the_names_of_each_xr() -> None:
    field = FieldChange(path="spec.items[0].host", before="{name}.old", after="{name}.new")
    change = ObjectChange(kind="Route", action="Update", resource="route", fields=(field,))
    entry = XrEntry(kind="App.example.org", name="one", namespace="team", outcome="Changed", class_="c1")
    told = _outcome(entry, ChangeClass(id="c1", xrs=1, outcome="Changed", changes=(change,)), "render")
    [shown] = told["changes"]
    assert shown["before"] == {"object": {"kind": "Route", "spec": {"items": [{"host": "one.old"}]}}}
    assert shown["lines"][1:] == ["-   spec.items[0].host: one.old", "+   spec.items[0].host: one.new"]


@pytest.mark.parametrize(
    ("word", "means"),
    [
        ("app/one", True),
        ("Apps/one", True),
        ("app.example.org/one", True),
        ("app.other.org/one", False),
        ("app/two", False),
        ("one", False),
    ],
)
def test_an_xr_is_named_as_users_name_it(word: str, means: bool) -> None:
    assert _means(word, {"kind": "App", "group": "example.org", "namespace": "", "name": "one"}) is means


def test_a_revision_is_named_by_itself_its_number_or_its_version() -> None:
    labels = {"pkg.crossplane.io/package": "fn", "pkg.crossplane.io/version": "v1.0.0"}
    revision: dict[str, Any] = {"metadata": {"name": "fn-abc", "labels": labels}, "spec": {"revision": 3}}
    assert {_named([revision], word)["metadata"]["name"] for word in ("fn-abc", "fn:3", "fn:v1.0.0")} == {"fn-abc"}
    with pytest.raises(UsageError, match="no function revision") as caught:
        _named([revision], "fn:v1.0.1")
    assert "fn:v1.0.0" in (caught.value.hint or "")
