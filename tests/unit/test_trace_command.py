"""`planform trace` and `planform explain-run` as users run them, and the pictures they draw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.apimachinery import yaml_loader
from planform.apiserver.auth.authentication import Authentication
from planform.apiserver.auth.bootstrap import ensure_bootstrap
from planform.apiserver.auth.pki import Pki
from planform.apiserver.auth.rbac import Rbac
from planform.apiserver.auth.reviews import Reviews
from planform.apiserver.auth.tokens import ServiceAccountTokens
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.apiserver.verbs.requests import MASTERS, Attributes, User
from planform.apiserver.wire.handler import Handler, refusal
from planform.apiserver.wire.http import HttpRequest, HttpResponse, HttpServer
from planform.apiserver.wire.nonresource import NonResourceEndpoints
from planform.apiserver.wire.routes import OtherPath
from planform.cli.main import root
from planform.cli.objects.drawing import as_dot, as_text, as_value, shortened
from planform.client.resource_tree import Node, Target
from planform.clock import SystemClock, VirtualClock
from planform.errors import Forbidden, NotFound, PlanformError, UsageError
from planform.journal import Journal, Part, Run, RunRecord, StepRun, open_journal
from planform.journal.explaining import FieldChange, changes_by_step, field_changes, find_key
from planform.journal.records import Planned, Read, Rejected, StepResult
from planform.journal.serving import PREFIX, answer
from planform.store import open_store
from planform.telemetry.metrics import MetricsRegistry

CLOCK = VirtualClock()
Planform = Callable[..., Coroutine[Any, Any, Result]]


def node(name: str, *children: Node, kind: str = "App", **conditions: str) -> Node:
    """An object whose conditions are given as `ready="False Creating: why"`."""
    listed = []
    for type_, text in conditions.items():
        status, _, rest = text.partition(" ")
        reason, _, message = rest.partition(": ")
        listed.append({"type": type_.title(), "status": status, "reason": reason, "message": message})
    obj: Object = {
        "apiVersion": "example.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "status": {"conditions": listed},
    }
    return Node(Target(gvk_of(obj), "", name), obj, None, children)


def missing(name: str, error: PlanformError) -> Node:
    return Node(Target(GroupVersionKind("", "v1", "ConfigMap"), "prod", name), None, error)


TREE = node(
    "top",
    node("a", node("deep", synced="True", ready="True Available"), synced="True", ready="False Creating: wait"),
    node("b", synced="False ReconcileError: no permission", ready="True Available"),
    missing("c", NotFound('configmaps "c" not found')),
    synced="True ReconcileSuccess",
    ready="False Creating: Unready resources: a, c",
)

DRAWN = """\
NAME                      SYNCED   READY   STATUS
App/top                   True     False   Creating: Unready resources: a, c
├─ App/a                  True     False   Creating: wait
│  └─ App/deep            True     True    Available
├─ App/b                  False    True    ReconcileError: no permission
└─ ConfigMap/c (prod)     -        -       Error: configmaps "c" not found"""


# -- the picture


def test_a_tree_is_a_table_whose_first_column_branches() -> None:
    lines = [line.split() for line in as_text([TREE]).splitlines()]
    assert lines == [line.split() for line in DRAWN.splitlines()]
    starts = {
        line.find(word)
        for line, word in zip(as_text([TREE]).splitlines()[1:], ("Cr", "Cr", "Av", "Rec", "Err"), strict=True)
    }
    assert len(starts) == 1, "statuses stand below each other"


def test_colours_add_nothing_to_the_words() -> None:
    painted = as_text([TREE], colour=True)
    assert "\x1b[31mFalse\x1b[0m" in painted
    assert "\x1b[32mTrue\x1b[0m" in painted
    assert click.unstyle(painted) == as_text([TREE])


@pytest.mark.parametrize(("length", "shown"), [(64, 64), (65, 67)], ids=["64 fit", "65 are cut"])
def test_of_a_long_status_the_last_64_characters_are_shown(length: int, shown: int) -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(length))
    assert len(shortened(text)) == shown
    assert text.endswith(shortened(text).removeprefix("..."))
    assert shortened("two\nlines") == "two lines"


def test_of_a_long_status_the_hint_is_left_out_before_the_cause() -> None:
    hint = "set compositionRevisionRef to one of its revisions, or remove it to pin the newest"
    assert shortened(f'composition "shop" has no revision "x"; {hint}') == 'composition "shop" has no revision "x"; ...'
    assert shortened("short; and sweet") == "short; and sweet"
    assert shortened(f"{'long ' * 30}cause; {hint}") == f"...{('long ' * 30)[-59:]}cause; ..."


def test_a_wide_tree_shows_whole_messages() -> None:
    tree = node("x", synced=f"False ReconcileError: {'long ' * 30}end")
    assert "long " * 30 in as_text([tree], wide=True)
    assert "long " * 30 not in as_text([tree])


def test_an_object_without_a_ready_condition_shows_why_it_is_not_synced() -> None:
    assert node("x", synced="False ReconcileError: broken").state == "ReconcileError: broken"
    assert node("x", synced="True ReconcileSuccess").state == "ReconcileSuccess"
    assert node("x").state == ""
    assert (node("x").synced, node("x").ready) == ("-", "-")


def test_an_operation_is_ready_when_it_succeeded() -> None:
    assert node("x", succeeded="True PipelineSuccess").ready == "True"


def test_json_names_even_what_could_not_be_read() -> None:
    value = as_value(TREE)
    assert [child["object"]["metadata"]["name"] for child in value["children"]] == ["a", "b", "c"]
    assert value["children"][2] == {
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "prod"}},
        "error": {"reason": "NotFound", "message": 'configmaps "c" not found'},
    }


def test_dot_has_a_box_for_each_object_and_a_line_to_each_child() -> None:
    text = as_dot([TREE])
    assert text.startswith("graph {")
    assert text.count(" -- ") == 4
    assert text.count("[label=") == 5
    assert 'Error: configmaps \\"c\\" not found' in text
    assert "n1 -- n2;" in text


# -- on a control plane


class WithRuns(NonResourceEndpoints):
    """How a control plane serves its journal."""

    journal: Journal

    async def answer(self, request: HttpRequest, path: OtherPath, query: Mapping[str, list[str]]) -> HttpResponse:
        if path.parts[: len(PREFIX)] == PREFIX:
            return HttpResponse(*await answer(self.journal, path.path, query))
        return await super().answer(request, path, query)


class WatchSeen:
    """Tells when somebody has begun to watch."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def answered(
        self, request: HttpRequest, user: User, attributes: Attributes | None, response: HttpResponse, /
    ) -> None:
        if b"watch=true" in request.target:
            self.event.set()


@dataclass(frozen=True)
class ServedPlane:
    client: LocalClient
    journal: Journal
    kubeconfig: Path
    watched: asyncio.Event


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ServedPlane]:
    clock, seen = SystemClock(), WatchSeen()
    pki = Pki(tmp_path / "pki", clock=clock)
    async with (
        await open_store(None, clock=clock) as store,
        open_journal(None, clock=CLOCK, metrics=MetricsRegistry()) as journal,
    ):
        rbac, core = Rbac(store), open_engine(store, clock)
        client = LocalClient(core)
        await ensure_bootstrap(client)
        tokens = ServiceAccountTokens(store, tmp_path / "pki", clock=clock)
        authentication = Authentication(clock=clock, authorizer=rbac, tokens=tokens, pki=pki)
        documents = WithRuns(core, address=lambda: "127.0.0.1", metrics=lambda _: "")
        documents.journal = journal
        handler = Handler(
            core,
            documents,
            authenticator=authentication,
            authorizer=rbac,
            virtual=Reviews(clock=clock, rbac=rbac, authentication=authentication, tokens=tokens),
            observers=(seen,),
        )
        server = HttpServer(handler.handle, refusal, tls=pki.tls_context())
        url = f"https://127.0.0.1:{await server.start('127.0.0.1', 0)}"
        for user, groups in (("admin", (MASTERS,)), ("alice", ())):
            credential = pki.issue_client(user, groups, timedelta(hours=1))
            (tmp_path / user).write_text(yaml_loader.dump(credential.kubeconfig(url)))
        try:
            yield ServedPlane(client, journal, tmp_path / "admin", seen.event)
        finally:
            await server.stop(grace=0.1)


@pytest.fixture
def planform(plane: ServedPlane) -> Planform:
    """Runs a command in a thread, against the plane."""

    async def run(*words: str, user: str = "admin") -> Result:
        arguments = [*words, "--kubeconfig", str(plane.kubeconfig.with_name(user))]
        return await asyncio.to_thread(CliRunner().invoke, root, arguments, catch_exceptions=True)

    return run


async def config_map(plane: ServedPlane, name: str) -> Object:
    return await plane.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
    )


async def test_trace_takes_every_spelling_of_a_kind_and_exits_with_0(plane: ServedPlane, planform: Planform) -> None:
    await config_map(plane, "settings")
    for words in (["cm", "settings"], ["ConfigMap/settings"], ["configmaps", "settings", "-n", "default"]):
        result = await planform("trace", *words)
        assert result.exit_code == 0, result.exception
        assert result.output.splitlines()[1].split() == ["ConfigMap/settings", "(default)", "-", "-", "-"]


async def test_trace_without_a_name_shows_all_of_the_kind(plane: ServedPlane, planform: Planform) -> None:
    for name in ("a", "b"):
        await config_map(plane, name)
    found = json.loads((await planform("trace", "cm", "-o", "json")).output)
    assert {"a", "b"} <= {item["object"]["metadata"]["name"] for item in found["items"]}
    assert (await planform("trace", "cm", "-o", "dot")).output.startswith("graph {")
    assert "object:" in (await planform("trace", "cm", "a", "-o", "yaml")).output


async def test_trace_of_nothing_says_what_is_missing(planform: Planform) -> None:
    assert isinstance((await planform("trace", "cm", "nobody")).exception, NotFound)
    assert isinstance((await planform("trace", "cm/a", "b")).exception, UsageError)
    assert isinstance((await planform("trace", "cm", "--watch")).exception, UsageError)
    assert isinstance((await planform("trace", "nothing", "x")).exception, UsageError)


async def test_a_watched_trace_ends_when_the_object_is_gone(plane: ServedPlane, planform: Planform) -> None:
    obj = await config_map(plane, "short-lived")
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(planform("trace", "cm", "short-lived", "--watch"))
        await plane.watched.wait()
        await plane.client.delete(gvk_of(obj), "short-lived", namespace="default")
    result = watching.result()
    assert result.exit_code == 0, result.exception
    assert "ConfigMap/short-lived" in result.output


# -- explain-run


def bucket(**spec: Any) -> Part:
    return Part({"apiVersion": "s3.example.org/v1", "kind": "Bucket", "spec": spec})


def run_of(uid: str, **fields: Any) -> Run:
    """Three steps: one adds two buckets, one changes one, one removes the other."""
    make = StepRun(
        step="make",
        function="f",
        revision="f-2",
        rule="Latest",
        rejected=(Rejected(id="f-1", why='"f-2" comes first by rule Latest'),),
        iterations=2,
        cache="Off",
        seconds=0.0021,
        reads={
            "env": Read(api_version="v1", kind="ConfigMap", name="env", found=(Part({"metadata": {"name": "env"}}),))
        },
        added=("data", "logs"),
        composite=Part({}),
        resources={"data": bucket(region="eu"), "logs": bucket(region="eu", size=1)},
        results=(StepResult(severity="Normal", message="made two", reason="Made"),),
    )
    change = StepRun(
        step="change",
        function="g",
        revision="g-1",
        rule="Ref",
        iterations=1,
        cache="Hit",
        changed=("logs",),
        changed_composite=True,
        changed_context=("seen",),
        composite=Part({"status": {"size": 2}}),
        resources={"data": bucket(region="eu"), "logs": bucket(region="eu", size=2, tags=["a"])},
        ready={"logs": True},
    )
    remove = StepRun(
        step="remove",
        function="h",
        revision="h-1",
        rule="Stable",
        iterations=1,
        removed=("data",),
        composite=Part({"status": {"size": 2}}),
        resources={"logs": bucket(region="eu", size=2, tags=["a"])},
        ready={"logs": True},
    )
    planned = Planned(resource="logs", action="create", api_version="s3.example.org/v1", kind="Bucket", name="x-logs-1")
    return Run(
        **{
            "uid": uid,
            "api_version": "v1",
            "kind": "ConfigMap",
            "name": "app",
            "namespace": "default",
            "started": CLOCK.now(),
            "seconds": 0.01,
            "trigger": "the XR changed",
            "composition_revision": "apps-abc",
            "steps": (make, change, remove),
            "plan": (planned,),
            **fields,
        }
    )


def test_each_step_is_told_with_what_it_changed_field_by_field() -> None:
    told = {step.step: changes for step, changes in changes_by_step(run_of("u"))}
    assert [(change.key, change.action) for change in told["make"]] == [("data", "added"), ("logs", "added")]
    xr, logs = told["change"]
    assert [str(field) for field in xr.fields] == ['status: + {"size":2}']
    assert [str(field) for field in logs.fields] == ["spec.size: 1 -> 2", 'spec.tags: + ["a"]']
    assert [(change.key, change.action) for change in told["remove"]] == [("data", "removed")]


def test_field_changes_name_items_of_lists_keys_with_dots_and_changes_of_type() -> None:
    before = {"a": [1, {"b": 1}], "metadata": {"labels": {"app.kubernetes.io/name": "x"}}, "n": 1, "gone": None}
    after = {"a": [1, {"b": 2}, 3], "metadata": {"labels": {"app.kubernetes.io/name": "y"}}, "n": True}
    assert list(field_changes(before, after)) == [
        FieldChange("a[1].b", 1, 2, True, True),
        FieldChange("a[2]", None, 3, False, True),
        FieldChange("gone", None, None, True, False),
        FieldChange("metadata.labels[app.kubernetes.io/name]", "x", "y", True, True),
        FieldChange("n", 1, True, True, True),
    ]
    assert not list(field_changes(before, before))


def test_a_resource_is_found_by_key_by_its_own_name_and_with_its_kind() -> None:
    run = run_of("u", observed={"old": Part({"kind": "Bucket", "metadata": {"name": "x-old-7"}})})
    for word, key in {"logs": "logs", "x-logs-1": "logs", "bucket/x-logs-1": "logs", "x-old-7": "old"}.items():
        assert find_key(run, word) == key
    assert find_key(run, "secret/x-logs-1") is None


EXPLAINED = """\
ConfigMap/app (default)  run 1
  started    2026-01-01T00:00:00Z, took 10.0 ms
  because    the XR changed
  revision   apps-abc
  outcome    ok

STEP     FUNCTION   REVISION   BY RULE   CALLS   CACHE   TIME     CHANGES
make     f          f-2        Latest    2       Off     2.1 ms   +data, +logs
change   g          g-1        Ref       1       Hit     0.0 ms   ~XR, ~logs, ready logs, ~context seen
remove   h          h-1        Stable    1       -       0.0 ms   -data

make
  not f-1: "f-2" comes first by rule Latest
  read "env": ConfigMap (v1) env, 1 found
  + data  Bucket (s3.example.org/v1)
  + logs  Bucket (s3.example.org/v1)
  normal: made two (Made)

change
  ~ XR
      status: + {"size":2}
  ~ logs  Bucket (s3.example.org/v1)
      spec.size: 1 -> 2
      spec.tags: + ["a"]
  logs is ready

remove
  - data  Bucket (s3.example.org/v1)

plan
  create logs: Bucket/x-logs-1, not ready
"""

LOGS = """\

logs
  added by step "make" (function f, revision f-2 by rule Latest)
  changed by step "change" (function g, revision g-1 by rule Ref)
      spec.size: 1 -> 2
      spec.tags: + ["a"]
  ready, says step "change"
  plan: create Bucket/x-logs-1
"""


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    async with open_journal(path, clock=CLOCK, metrics=MetricsRegistry()) as journal:
        journal.record(RunRecord(run_of("u")))
        journal.record(RunRecord(run_of("other", name="broken", failure="step broke", plan=None)))
    return path


def explain(*words: str) -> Result:
    return CliRunner().invoke(root, ["explain-run", *words])


def test_explain_run_reads_a_file(file: Path) -> None:
    result = explain("configmap", "app", "-n", "default", "--journal", str(file))
    assert result.exit_code == 0, result.exception
    assert result.output == EXPLAINED


def test_explain_run_tells_why_a_resource_exists(file: Path) -> None:
    for word in ("logs", "x-logs-1", "Bucket/x-logs-1"):
        result = explain("ConfigMap/app", "-n", "default", "--resource", word, "--journal", str(file))
        assert result.output.endswith(LOGS)
    result = explain("cm/app", "-n", "default", "--resource", "nobody", "--journal", str(file))
    assert result.exit_code != 0


def test_explain_run_as_json_has_every_field_that_changed(file: Path) -> None:
    words = ("configmap/app", "-n", "default", "--journal", str(file), "-o", "json")
    told = json.loads(explain(*words).output)
    assert told["steps"][1]["resources"]["logs"]["fields"][0] == {"path": "spec.size", "before": 1, "after": 2}
    assert told["steps"][0]["resources"]["data"]["object"]["spec"] == {"region": "eu"}
    assert told["steps"][0]["rejected"][0]["id"] == "f-1"
    only = json.loads(explain(*words, "--resource", "data").output)
    assert [(step["step"], list(step["resources"])) for step in only["steps"]] == [
        ("make", ["data"]),
        ("remove", ["data"]),
    ]


def test_explain_run_lists_the_runs_that_are_kept(file: Path) -> None:
    words = ("configmap/app", "-n", "default", "--list", "--journal", str(file))
    lines = [line.split(maxsplit=4) for line in explain(*words).output.splitlines()]
    assert [line[:2] for line in lines] == [["RUN", "STARTED"], ["1", "2026-01-01T00:00:00Z"]]
    assert lines[1][-1].endswith("the XR changed   ok")
    assert [each["id"] for each in json.loads(explain(*words, "-o", "json").output)] == [1]
    assert isinstance(explain(*words, "--run", "1").exception, UsageError)


def test_explain_run_says_what_is_not_there(file: Path) -> None:
    journal = ("--journal", str(file))
    for words in (["configmap/app"], ["secret/app", "-n", "default"], ["configmap/app", "-n", "default", "--run", "2"]):
        assert "holds no run" in str(explain(*words, *journal).exception)
    assert isinstance(explain("configmap", *journal).exception, UsageError)


def test_a_failed_run_is_told_with_its_error(file: Path) -> None:
    assert "outcome    step broke" in explain("configmaps/broken", "-n", "default", "--journal", str(file)).output


async def test_explain_run_asks_the_control_plane(plane: ServedPlane, planform: Planform) -> None:
    obj = await config_map(plane, "app")
    refused = await planform("explain-run", "cm", "app")
    assert "holds no run" in str(refused.exception)
    first = plane.journal.record(RunRecord(run_of(obj["metadata"]["uid"])))
    plane.journal.record(RunRecord(run_of(obj["metadata"]["uid"], trigger="a newer one")))
    latest = await planform("explain-run", "cm", "app")
    assert latest.exit_code == 0, latest.exception
    assert "a newer one" in latest.output
    assert "the XR changed" in (await planform("explain-run", "cm", "app", "--run", str(first))).output
    listed = json.loads((await planform("explain-run", "cm", "app", "--list", "-o", "json")).output)
    assert [each["trigger"] for each in listed] == ["a newer one", "the XR changed"]


async def test_a_trace_of_an_xr_shows_which_revision_ran_each_step(plane: ServedPlane, planform: Planform) -> None:
    obj = await config_map(plane, "app")
    plane.journal.record(RunRecord(run_of(obj["metadata"]["uid"])))
    code, body = await answer(plane.journal, f"/planform/v1/runs/{obj['metadata']['uid']}/steps", {})
    assert code == 200
    first = json.loads(body)["items"][0]
    assert first == {"step": "make", "function": "f", "revision": "f-2", "rule": "Latest"}
    assert "pipeline" not in json.loads((await planform("trace", "cm", "app", "-o", "json")).output), "it is no XR"


async def test_runs_are_for_those_whom_rbac_lets_read_them(plane: ServedPlane, planform: Planform) -> None:
    obj = await config_map(plane, "app")
    plane.journal.record(RunRecord(run_of(obj["metadata"]["uid"])))
    role: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    }
    await plane.client.create(role)
    await plane.client.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "alice"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
        }
    )
    assert (await planform("trace", "cm", "app", user="alice")).exit_code == 0
    refused = (await planform("explain-run", "cm", "app", user="alice")).exception
    assert isinstance(refused, Forbidden)
    assert "/planform/v1/runs/*" in str(refused.hint)
    role["rules"] = [*role["rules"], {"nonResourceURLs": ["/planform/v1/runs/*"], "verbs": ["get"]}]
    await plane.client.apply(role, manager="test", force=True)
    assert (await planform("explain-run", "cm", "app", user="alice")).exit_code == 0
