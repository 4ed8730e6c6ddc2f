"""ActionSets on both engines: what runs, in which order, with which versions, and what is left of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ACTION_SET, BLUEPRINT, EVENT, PROFILE
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, PhaseFunction, Surroundings, phase_function
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.model import CANCEL_ANNOTATION
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType
from planform.controllers.workbench import Workbench
from tests.controllers.acting import CONFIG_MAP, RELEASES, SECRET, Theatre, action, phase

pytestmark = pytest.mark.timeout(90)

TWO_VERSIONS = (
    RELEASES
    + """
functions:
  Dump:
    stable: v0.0.0
    versions:
      v0.0.0: {introducedIn: "0.1", promotedIn: "0.1"}
      v0.1.0: {introducedIn: "0.1", promotedIn: "0.2"}
"""
)
AGED = (
    RELEASES
    + """
functions:
  Dump:
    stable: v0.1.0
    versions:
      v0.0.0: {introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.4", replacement: v0.1.0}
      v0.1.0: {introducedIn: "0.1", promotedIn: "0.2"}
"""
)


async def version_of(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
    return {"ran": context.version}


DUMPS = [
    PhaseFunction(name="Dump", run=version_of, required=("path",), arguments=("level",)),
    PhaseFunction(name="Dump", run=version_of, version="v0.1.0", required=("path", "format"), arguments=()),
]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Phases, outputs and artifacts


async def test_phases_run_in_order_and_see_what_earlier_ones_left(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {
                "backup": action(
                    phase("first", args={"text": "{{ .Object.metadata.name }}"}),
                    phase("second", args={"text": "{{ .Phases.first.Output.text }}-again"}),
                    outputs={"copy": {"keyValue": {"path": "{{ .Phases.second.Output.text }}"}}},
                )
            }
        )
        done = await theatre.run("backup")
        assert theatre.calls == ["target", "target-again"]
        status = done["status"]
        assert status["state"] == "complete"
        artifact = status["actions"][0]["artifacts"]["copy"]
        assert artifact["keyValue"] == {"path": "target-again"}
        assert artifact["producedBy"][0] == {"phase": "first", "func": "Say", "funcVersion": "v0.0.0"}
        assert theatre.states(done) == ["complete", "complete"]
        assert status["progress"]["percentCompleted"] == "100"
        assert "finalizers" not in done["metadata"]
        assert not {"runner", "snapshots"} & status.keys()


async def test_an_ended_actionset_is_not_written_again(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"backup": action(phase("only"))})
        done = await theatre.run("backup")
        await theatre.controller.reconcile(ObjectKey(unique, done["metadata"]["name"]))
        await theatre.run("backup")
        after = await bench.client.get(ACTION_SET, done["metadata"]["name"], namespace=unique)
        assert after["metadata"]["resourceVersion"] == done["metadata"]["resourceVersion"]


async def test_every_root_of_the_parameters_is_there(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.create(SECRET, "password", data={"key": encoded("s3cret")})
        await theatre.create(CONFIG_MAP, "settings", data={"colour": "blue"})
        await theatre.create(SECRET, "keys", data={"id": encoded("me"), "secret": encoded("hush")})
        await theatre.create(
            PROFILE,
            "place",
            location={"type": "s3Compliant", "bucket": "b", "endpoint": "e", "prefix": "p", "region": "r"},
            credential={
                "type": "keyPair",
                "keyPair": {
                    "idField": "id",
                    "secretField": "secret",
                    "secret": {"apiVersion": "v1", "kind": "Secret", "name": "keys", "namespace": unique},
                },
            },
            skipSSLVerify=True,
        )
        lines = [
            "{{ .Object.data.colour }}",
            "{{ .ConfigMaps.settings.Data.colour }} {{ .ConfigMaps.settings.Name }}",
            "{{ .Secrets.password.Data.key | toString }} {{ .Secrets.password.Namespace }}",
            "{{ .Profile.Location.Type }} {{ .Profile.Location.Bucket }} {{ .Profile.Location.Region }}",
            "{{ with .Profile.Credential.KeyPair }}{{ .ID }} {{ .Secret }}{{ end }} {{ .Profile.SkipSSLVerify }}",
            '{{ .Options.mode }}{{ index .Options "absent" }}',
            "{{ .ArtifactsIn.old.KeyValue.path }}",
            '{{ index .Phases "a-phase" "Output" "text" }}',
            "{{ if .Deployment }}yes{{ else }}no{{ end }} {{ .PodLabels.team }}",
            '{{ (index .Phases.last.Secrets.own.Data "key") | toString }}',
        ]
        own = {"own": {"kind": "secret", "name": "{{ .Options.which }}", "namespace": unique}}
        await theatre.blueprint(
            {"all": action(phase("a-phase", args={"text": "dashed"}), phase("last", args={"list": lines}, objects=own))}
        )
        here = {"namespace": unique, "apiVersion": "v1"}
        done = await theatre.run(
            theatre.request(
                "all",
                configMaps={"settings": {**here, "kind": "ConfigMap", "name": "settings"}},
                secrets={"password": {**here, "kind": "Secret", "name": "password"}},
                profile={**here, "kind": "profile", "name": "place"},
                options={"mode": "fast", "which": "password"},
                artifacts={"old": {"keyValue": {"path": "/old"}}},
                podLabels={"team": "a"},
            )
        )
        assert theatre.errors(done) == []
        assert done["status"]["actions"][0]["phases"][1]["output"]["list"] == [
            "red",
            "blue settings",
            f"s3cret {unique}",
            "s3Compliant b r",
            "me hush true",
            "fast",
            "/old",
            "dashed",
            "no a",
            "s3cret",
        ]


async def test_a_workload_is_seen_with_its_pods(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        container = {"name": "db", "image": "db", "volumeMounts": [{"name": "v", "mountPath": "/data"}]}
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]
        pod = {"containers": [container], "volumes": volumes, "automountServiceAccountToken": False}
        template = {"metadata": {"labels": {"app": "db"}}, "spec": pod}
        await theatre.create(
            GroupVersionKind("apps", "v1", "Deployment"),
            "db",
            spec={"selector": {"matchLabels": {"app": "db"}}, "replicas": 0, "template": template},
        )
        for name, app in (("db-1", "db"), ("db-0", "db"), ("web-0", "web")):
            await theatre.create(GroupVersionKind("", "v1", "Pod"), name, metadata={"labels": {"app": app}}, spec=pod)
        lines = [
            "{{ .Deployment.Name }}/{{ .Deployment.Namespace | len }}",
            '{{ .Deployment.Pods | join "," }}',
            "{{ index .Deployment.Containers 0 0 }}",
            '{{ index .Deployment.PersistentVolumeClaims "db-0" "claim" }}',
        ]
        await theatre.blueprint({"b": action(phase("p", args={"list": lines}))})
        target = {"kind": "Deployment", "name": "db", "namespace": unique}
        done = await theatre.run(theatre.request("b", object=target))
        assert theatre.errors(done) == []
        output = done["status"]["actions"][0]["phases"][0]["output"]["list"]
        assert output == [f"db/{len(unique)}", "db-0,db-1", "db", "/data"]


async def test_time_is_the_same_for_all_phases_of_an_action(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {"backup": action(phase("a", args={"text": "{{ .Time }}"}), phase("b", args={"text": "{{ .Time }}"}))}
        )
        done = await theatre.run("backup")
        assert theatre.calls[0] == theatre.calls[1] == done["status"]["actions"][0]["startedAt"]
        assert theatre.calls[0].endswith("Z")


async def test_arguments_keep_their_types_and_keys_are_templates_too(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        args = {
            "map": {"{{ .Object.metadata.name }}": 3, "none": None, "yes": True},
            "list": ["{{ .Time | len }}", 1.5],
        }
        await theatre.blueprint({"backup": action(phase("a", args=args))})
        done = await theatre.run("backup")
        output = done["status"]["actions"][0]["phases"][0]["output"]
        assert output["map"] == {"target": 3, "none": None, "yes": True}
        assert output["list"][1] == 1.5 and isinstance(output["list"][0], str)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ .Options.absent }}", 'failed to render, key not found: "absent"'),
        ("{{ .Deployment.Name }}", "nil pointer evaluating"),
        ("{{ .Phases.later.Output.text }}", 'key not found: "later"'),
        ("{{ .Phases.defer.Output.text }}", 'key not found: "defer"'),
    ],
    ids=["option", "other kind", "later phase", "deferPhase by name"],
)
async def test_a_template_that_misses_something_fails_its_phase_and_says_what(
    bench: Workbench, unique: str, template: str, told: str
) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {"backup": action(phase("a", args={"text": template}), phase("later"), defer=phase("defer"))}
        )
        done = await theatre.run("backup")
        assert theatre.states(done) == ["failed", "pending", "complete"]
        assert theatre.errors(done) == [("a", "RenderFailed")]
        assert told in done["status"]["error"]["message"]


async def test_objects_of_a_phase_cannot_use_what_phases_leave(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        objects = {"it": {"kind": "Secret", "name": "{{ .Phases.a.Output.text }}", "namespace": unique}}
        await theatre.blueprint({"backup": action(phase("a"), phase("b", objects=objects))})
        done = await theatre.run("backup")
        assert theatre.calls == []
        assert "objects.it" in done["status"]["error"]["message"]


async def test_the_defer_phase_is_seen_by_artifacts_under_its_own_root(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        outputs = {"x": {"keyValue": {"a": "{{ .DeferPhase.Output.text }}"}}}
        await theatre.blueprint({"b": action(phase("a"), defer=phase("d", args={"text": "bye"}), outputs=outputs)})
        done = await theatre.run("b")
        assert done["status"]["actions"][0]["artifacts"]["x"]["keyValue"] == {"a": "bye"}


async def test_an_artifact_that_cannot_be_rendered_fails_the_actionset(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        outputs = {"x": {"keyValue": {"a": "{{ .Phases.a.Output.nothing }}"}}}
        await theatre.blueprint({"b": action(phase("a"), outputs=outputs)})
        done = await theatre.run("b")
        assert (done["status"]["state"], theatre.states(done)) == ("failed", ["complete"])
        assert theatre.errors(done) == [("", "RenderFailed")]


@pytest.mark.parametrize(
    ("gives", "reason"),
    [
        ({"big": "x" * 600_000}, "OutputInvalid"),
        ({"bytes": b"\x00\xff"}, "OutputInvalid"),
        (["no", "map"], "OutputInvalid"),
        ({"number": 3, "list": [1], "none": None}, ""),
        ({}, ""),
        (None, ""),
    ],
    ids=["too large", "binary", "no map", "any JSON", "empty", "nothing"],
)
async def test_outputs_are_kept_as_json_or_refused(bench: Workbench, unique: str, gives: Any, reason: str) -> None:
    async def give(context: PhaseContext, args: Arguments) -> Any:
        return gives

    async with Theatre.open(bench, unique, PhaseFunction(name="Give", run=give)) as theatre:
        await theatre.blueprint({"b": action(phase("a", "Give"))})
        done = await theatre.run("b")
        assert theatre.errors(done) == ([("a", reason)] if reason else [])
        kept = done["status"]["actions"][0]["phases"][0].get("output")
        assert kept == (gives if gives and not reason else None)


# Failure and deferPhase


async def test_a_failed_phase_ends_its_action_and_the_defer_phase_still_runs(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {"b": action(phase("a", "Fail", {"text": "no"}), phase("z"), defer=phase("d", args={"text": "bye"}))}
        )
        done = await theatre.run("b")
        assert theatre.calls == ["no", "bye"]
        assert theatre.states(done) == ["failed", "pending", "complete"]
        assert done["status"]["state"] == "failed"
        assert done["status"]["error"] == {"message": "no"}


async def test_an_error_of_the_defer_phase_does_not_hide_the_first_one(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        defer = phase("d", args={"text": "{{ .Phases.a.Output.text }}"})
        await theatre.blueprint({"b": action(phase("a", "Fail", {"text": "root cause"}), defer=defer)})
        done = await theatre.run("b")
        assert theatre.errors(done) == [("a", "PhaseFailed"), ("d", "RenderFailed")]
        assert done["status"]["error"]["message"] == "root cause"


async def test_a_missing_secret_of_the_defer_phase_fails_the_actionset(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        defer = phase("d", objects={"it": {"kind": "Secret", "name": "nowhere", "namespace": unique}})
        await theatre.blueprint({"b": action(phase("a"), defer=defer)})
        done = await theatre.run("b")
        assert (done["status"]["state"], theatre.states(done)) == ("failed", ["complete", "failed"])
        assert 'Secret "' in done["status"]["error"]["message"] and "not found" in done["status"]["error"]["message"]


async def test_an_action_of_a_defer_phase_only_runs_it(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(defer=phase("d", args={"text": "only"}))})
        done = await theatre.run("b")
        assert (theatre.calls, done["status"]["state"]) == (["only"], "complete")


async def test_no_action_at_all_is_complete_at_once(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        done = await theatre.run()
        assert (done["status"]["state"], done["status"]["actions"]) == ("complete", [])


async def test_what_a_function_raises_is_told_with_its_type_and_facts(bench: Workbench, unique: str) -> None:
    async def odd(context: PhaseContext, args: Arguments) -> None:
        raise KeyError("left over")

    def facts(context: PhaseContext, args: Arguments) -> None:
        raise PhaseFailed("told", details={"code": 7})

    functions = [PhaseFunction(name="Odd", run=odd), PhaseFunction(name="Facts", run=facts)]
    async with Theatre.open(bench, unique, *functions) as theatre:
        await theatre.blueprint({"b": action(phase("a", "Odd"), defer=phase("d", "Facts"))})
        done = await theatre.run("b")
        assert [each["message"] for each in done["status"]["errors"]] == [
            "Odd v0.0.0: KeyError: 'left over'",
            'told {"code":7}',
        ]


# Before anything runs


@pytest.mark.parametrize("where", ["phase", "deferPhase"])
async def test_a_removed_version_anywhere_keeps_everything_from_starting(
    bench: Workbench, unique: str, where: str
) -> None:
    async with Theatre.open(bench, unique, DUMPS[1], versions=AGED, release="0.4") as theatre:
        bad = phase("bad", "Dump", {"path": "/"}, funcVersion="v0.0.0")
        await theatre.blueprint(
            {
                "one": action(phase("a"), defer=phase("d")),
                "two": action(phase("a"), bad) if where == "phase" else action(phase("a"), defer=bad),
            }
        )
        done = await theatre.run("one", "two")
        assert (theatre.calls, done["status"]["state"]) == ([], "failed")
        assert theatre.errors(done) == [("bad", "VersionRemoved")]
        assert "replaced by v0.1.0" in done["status"]["error"]["message"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"blueprint": "nowhere"}, 'Blueprint "nowhere" not found'),
        ({"name": "nothing"}, 'has no action "nothing" (it has: b)'),
        ({"secrets": {"x": {"name": "nowhere"}}}, "Secret"),
        ({"configMaps": {"x": {"name": "nowhere"}}}, "ConfigMap"),
        ({"profile": {"name": "nowhere"}}, "Profile"),
        ({"object": {"kind": "Deployment", "name": "nowhere", "namespace": "default"}}, "Deployment"),
        ({"object": {"apiVersion": "v1", "resource": "things", "name": "x"}}, 'no kind is called "things"'),
        ({"object": {"kind": "Thing", "name": "x"}}, "needs apiVersion and resource"),
    ],
    ids=["blueprint", "action", "secret", "configmap", "profile", "target", "resource", "kind"],
)
async def test_what_is_missing_is_said_before_anything_runs(
    bench: Workbench, unique: str, change: Object, told: str
) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(phase("a"), defer=phase("d"))})
        done = await theatre.run("b", {**theatre.request("b"), **change})
        assert (theatre.calls, done["status"]["state"]) == ([], "failed")
        assert told in done["status"]["error"]["message"]
        assert "finalizers" not in done["metadata"]


async def test_a_preflight_that_fails_without_phases_is_told_too(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": {}})
        done = await theatre.run(theatre.request("b", secrets={"x": {"name": "nowhere"}}))
        assert (done["status"]["state"], done["status"]["actions"][0]["phases"]) == ("failed", [])


async def test_names_that_a_blueprint_declares_have_to_be_given(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(phase("a"), secretNames=["s"], inputArtifactNames=["i"])})
        done = await theatre.run("b")
        assert [each["message"] for each in done["status"]["errors"]] == [
            'action "b" needs the Secret "s", which the ActionSet does not give',
            'action "b" needs the artifact "i", which the ActionSet does not give',
        ]


async def test_a_function_that_cannot_run_on_this_engine_is_named_before_anything_runs(
    bench: Workbench, unique: str
) -> None:
    functions = [
        PhaseFunction(name="Exec", run=version_of, engines=("kubernetes",)),
        PhaseFunction(name="Tool", run=version_of, unavailable=lambda here: "pg_dump is not installed"),
    ]
    async with Theatre.open(bench, unique, *functions, here=Surroundings(engine="embedded")) as theatre:
        await theatre.blueprint({"b": action(phase("a"), phase("x", "Exec"), phase("y", "Tool"))})
        done = await theatre.run("b")
        assert theatre.calls == []
        assert [each["message"] for each in done["status"]["errors"]] == [
            "Exec v0.0.0 runs on the kubernetes engine, and this is the embedded engine",
            "Tool v0.0.0 cannot run here: pg_dump is not installed",
        ]


async def test_two_phases_of_one_name_in_an_action_are_refused(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(phase("a"), phase("a"))})
        done = await theatre.run("b")
        assert 'more than one phase "a"' in done["status"]["error"]["message"]


# Versions


async def test_the_status_says_which_version_ran_and_which_rule_chose_it(bench: Workbench, unique: str) -> None:
    both = {"path": "/", "format": "x"}
    async with Theatre.open(bench, unique, *DUMPS, versions=TWO_VERSIONS) as theatre:
        await theatre.blueprint(
            {
                "b": action(
                    phase("stable", "Dump", {"path": "/"}),
                    phase("pinned", "Dump", both, funcVersion="0.1.0"),
                    phase("unversioned"),
                    defer=phase("d", "Dump", both, funcVersion="v0.1.0"),
                )
            }
        )
        done = await theatre.run("b")
        entry = done["status"]["actions"][0]
        told = [(each["funcVersion"], each["resolution"]) for each in (*entry["phases"], entry["deferPhase"])]
        pinned = {"requested": "v0.1.0", "source": "Pin", "reason": "the phase asks for v0.1.0"}
        assert told == [
            ("v0.0.0", {"source": "Stable", "reason": "v0.0.0 is stable"}),
            ("v0.1.0", {"requested": "0.1.0", "source": "Pin", "reason": "the phase asks for 0.1.0"}),
            (
                "v0.0.0",
                {
                    "source": "Unversioned",
                    "reason": "no version of the function is stable, and none was asked for",
                },
            ),
            ("v0.1.0", pinned),
        ]
        assert [each["output"]["ran"] for each in entry["phases"][:2]] == ["v0.0.0", "v0.1.0"]


async def test_a_hint_is_followed_by_the_functions_that_know_it_and_told_for_the_others(
    bench: Workbench, unique: str
) -> None:
    async with Theatre.open(bench, unique, *DUMPS, versions=TWO_VERSIONS) as theatre:
        await theatre.blueprint(
            {"b": action(phase("a", "Dump", {"path": "/", "format": "x"}), phase("b"), phase("c"), phase("d"))}
        )
        done = await theatre.run(theatre.request("b", preferredVersion="v0.1.0"))
        entry = done["status"]["actions"][0]
        assert [each["funcVersion"] for each in entry["phases"]] == ["v0.1.0", "v0.0.0", "v0.0.0", "v0.0.0"]
        codes = [(each["code"], each["function"], each["phase"]) for each in done["status"]["warnings"]]
        assert codes == [("VersionPreview", "Dump", "a"), ("HintNotAvailable", "Say", "b")]


async def test_arguments_are_those_of_the_version_that_runs(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique, *DUMPS, versions=TWO_VERSIONS) as theatre:
        args = {"path": "/", "level": 3}
        await theatre.blueprint(
            {
                "old": action(phase("a", "Dump", args)),
                "new": action(phase("a", "Dump", args, funcVersion="v0.1.0")),
            }
        )
        assert (await theatre.run("old"))["status"]["state"] == "complete"
        done = await theatre.run("new")
        assert [each["message"] for each in done["status"]["errors"]] == [
            'Dump v0.1.0: required argument "format" is missing',
            'Dump v0.1.0: argument "level" is not supported (it takes: format, path)',
        ]


async def test_a_version_may_render_its_arguments_itself_where_another_does_not(bench: Workbench, unique: str) -> None:
    async def raw(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
        return {"raw": args["text"], "rendered": context.render(args["text"])}

    functions = [
        PhaseFunction(name="Echo", run=raw, arguments=("text",), renders_itself=True),
        PhaseFunction(name="Echo", run=raw, version="v1.0.0", arguments=("text",)),
    ]
    async with Theatre.open(bench, unique, *functions) as theatre:
        args = {"text": "{{ .Object.metadata.name }}"}
        await theatre.blueprint({"b": action(phase("a", "Echo", args), phase("c", "Echo", args, funcVersion="v1.0.0"))})
        done = await theatre.run("b")
        outputs = [each["output"] for each in done["status"]["actions"][0]["phases"]]
        assert outputs == [
            {"raw": "{{ .Object.metadata.name }}", "rendered": "target"},
            {"raw": "target", "rendered": "target"},
        ]


async def test_a_warning_reaches_status_event_log_and_metric_once(
    bench: Workbench, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Theatre.open(bench, unique, *DUMPS, versions=AGED, release="0.2") as theatre:
        phases = [phase(f"p{number}", "Dump", {"path": "/"}, funcVersion="v0.0.0") for number in range(30)]
        await theatre.blueprint({"b": action(*phases)})
        with caplog.at_level("WARNING", logger="planform.controllers.actionsets"):
            done = await theatre.run("b")
        text = "Dump v0.0.0: deprecated since 0.2, stops working in 0.4, move to v0.1.0"
        (warning,) = done["status"]["warnings"]
        assert warning.pop("firstSeen")
        assert warning == {
            "code": "VersionDeprecated",
            "function": "Dump",
            "version": "v0.0.0",
            "action": "b",
            "phase": "p0",
            "message": text,
            "deprecatedIn": "0.2",
            "removedIn": "0.4",
            "replacement": "v0.1.0",
        }
        assert sum(text in record.getMessage() for record in caplog.records) == 1
        assert (
            'planform_deprecated_function_used{function="Dump",version="v0.0.0",removed_in="0.4"} 1'
            in bench.metrics.render()
        )
        await bench.events.written()
        events = (await bench.client.list(EVENT, namespace=unique)).items
        assert [each["message"] for each in events if each["reason"] == "VersionDeprecated"] == [text]


async def test_a_blueprint_that_locks_its_versions_stays_on_them_after_a_promotion(
    bench: Workbench, unique: str
) -> None:
    args = {"path": "/"}
    async with Theatre.open(bench, unique, *DUMPS, versions=TWO_VERSIONS) as theatre:
        await theatre.blueprint({"b": action(phase("a", "Dump", args))}, versionPolicy="Lock")
        await theatre.run("b")
    await bench.plane.stop("actionsets")
    second = Theatre(bench, unique)
    second.use(*DUMPS, versions=AGED, release="0.2")
    done = await second.run("b", name="after")
    entry = done["status"]["actions"][0]["phases"][0]
    assert (entry["funcVersion"], entry["resolution"]["source"]) == ("v0.0.0", "Lock")
    assert [each["code"] for each in done["status"]["warnings"]] == ["VersionDeprecated"]


async def test_four_releases_pass_over_a_pinned_blueprint_and_one_that_follows(bench: Workbench, unique: str) -> None:
    """Works, warns, warns, refuses; and whoever does not pin moves with the promotion."""
    told: list[tuple[str, str, list[str], list[str]]] = []
    async with Theatre.open(bench, unique, start=False) as theatre:
        await theatre.blueprint(
            {
                "pinned": action(phase("a", "Dump", funcVersion="v0.0.0"), defer=phase("d")),
                "follows": action(phase("a", "Dump")),
            }
        )
        versions = [PhaseFunction(name="Dump", run=version_of, version=number) for number in ("v0.0.0", "v0.1.0")]
        for release in ("0.1", "0.2", "0.3", "0.4"):
            live = versions if release != "0.4" else versions[1:]
            file = AGED if release != "0.1" else AGED.replace("stable: v0.1.0", "stable: v0.0.0")
            theatre.use(*live, versions=file, release=release)
            pinned, follows = await theatre.run("pinned"), await theatre.run("follows")
            told.append(
                (
                    pinned["status"]["state"],
                    follows["status"]["actions"][0]["phases"][0]["output"]["ran"],
                    [each["code"] for each in pinned["status"].get("warnings") or ()],
                    [each["code"] for each in follows["status"].get("warnings") or ()],
                )
            )
            await bench.plane.stop("actionsets")
        assert told == [
            ("complete", "v0.0.0", [], ["StableWillChange"]),
            ("complete", "v0.1.0", ["VersionDeprecated"], []),
            ("complete", "v0.1.0", ["VersionDeprecated"], []),
            ("failed", "v0.1.0", [], []),
        ]
        assert len(theatre.calls) == 3  # the deferPhases of the three that ran


async def test_an_artifact_of_a_version_that_the_reader_does_not_know_is_refused(bench: Workbench, unique: str) -> None:
    functions = [
        PhaseFunction(name="Dump", run=version_of),
        PhaseFunction(name="Dump", run=version_of, version="v2.0.0", stable=True),
        PhaseFunction(name="Load", run=version_of, reads={"Dump": "<2.0.0"}),
    ]
    async with Theatre.open(bench, unique, *functions) as theatre:
        outputs = {"copy": {"keyValue": {"path": "/x"}}}
        await theatre.blueprint(
            {"backup": action(phase("a", "Dump"), outputs=outputs), "restore": action(phase("b", "Load"))}
        )
        new = await theatre.run("backup")
        old = await theatre.run(theatre.request("backup", preferredVersion="v0.0.0"))
        refused = await theatre.run(theatre.request("restore", artifacts=new["status"]["actions"][0]["artifacts"]))
        assert theatre.errors(refused) == [("b", "ArtifactIncompatible")]
        done = await theatre.run(theatre.request("restore", artifacts=old["status"]["actions"][0]["artifacts"]))
        assert done["status"]["state"] == "complete"


# Several actions


async def test_actions_run_side_by_side_and_are_kept_apart(bench: Workbench, unique: str) -> None:
    met = asyncio.Barrier(2)

    async def meet(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
        context.progress(50)
        async with asyncio.timeout(20):
            await met.wait()
        if args.text("text") == "bad":
            raise PhaseFailed("bad luck")
        return {"text": args.text("text")}

    async with Theatre.open(bench, unique, PhaseFunction(name="Meet", run=meet)) as theatre:
        outputs = {"x": {"keyValue": {"a": "{{ .Phases.p.Output.text }}"}}}
        await theatre.blueprint({"b": action(phase("p", "Meet", {"text": "{{ .Options.t }}"}), outputs=outputs)})
        done = await theatre.run(
            theatre.request("b", options={"t": "good"}), theatre.request("b", options={"t": "bad"})
        )
        assert done["status"]["state"] == "failed"
        assert [theatre.states(done, index) for index in (0, 1)] == [["complete"], ["failed"]]
        assert done["status"]["actions"][0]["artifacts"]["x"]["keyValue"] == {"a": "good"}
        assert "artifacts" not in done["status"]["actions"][1]
        assert [each["phases"][0]["progress"]["progressPercent"] for each in done["status"]["actions"]] == ["100", "50"]
        assert done["status"]["progress"]["percentCompleted"] == "75"


async def test_actions_can_be_told_to_run_one_after_the_other(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {
                "one": action(phase("a", args={"text": "1"})),
                "two": action(phase("a", "Fail", {"text": "2"})),
                "three": action(phase("a", args={"text": "3"}), defer=phase("d", args={"text": "4"})),
            }
        )
        done = await theatre.run("one", "two", "three", actionOrder="Sequential")
        assert theatre.calls == ["1", "2"]
        assert [theatre.states(done, index) for index in range(3)] == [["complete"], ["failed"], ["pending"] * 2]
        assert done["status"]["state"] == "failed"


async def test_fifty_runs_of_one_class_share_nothing(bench: Workbench, unique: str) -> None:
    class Count:
        def __init__(self) -> None:
            self.seen: list[str] = []

        async def __call__(self, context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
            self.seen.append(args.text("text"))
            await asyncio.sleep(0)
            self.seen.append(args.text("text"))
            return {"seen": ",".join(self.seen)}

    function = PhaseFunction(name="Count", run=Count, arguments=("text",))
    async with Theatre.open(bench, unique, function) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Count", {"text": "{{ .Options.n }}"}))})
        submitted = [await theatre.submit(theatre.request("b", options={"n": str(number)})) for number in range(50)]
        ended = [await theatre.ended(each) for each in submitted]
        seen = [each["status"]["actions"][0]["phases"][0]["output"]["seen"] for each in ended]
        assert seen == [f"{number},{number}" for number in range(50)]


async def test_no_more_run_at_once_than_allowed_and_the_others_follow(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique, most_at_once=1) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}))})
        first = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        second = await theatre.submit("b")
        third = await theatre.submit("b")
        theatre.released.set()
        for each in (first, second, third):
            assert (await theatre.ended(each))["status"]["state"] == "complete"


# Progress, time and further attempts


async def test_progress_is_stored_while_a_phase_runs(bench: Workbench, unique: str) -> None:
    release = asyncio.Event()

    async def slow(context: PhaseContext, args: Arguments) -> None:
        context.progress(40, uploaded=10, upload_total=25, seconds_left=3)
        context.log("almost\nthere")
        await release.wait()

    async with Theatre.open(bench, unique, PhaseFunction(name="Slow", run=slow)) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Slow"), phase("q"))})
        submitted = await theatre.submit("b")
        seen = await theatre.until(
            submitted,
            lambda found: (found.get("status") or {}).get("progress", {}).get("percentCompleted") == "20",
            "progress",
        )
        assert seen["status"]["progress"]["runningPhase"] == "p"
        progress = seen["status"]["actions"][0]["phases"][0]["progress"]
        assert progress.pop("lastTransitionTime")
        assert progress == {
            "progressPercent": "40",
            "sizeUploadedB": 10,
            "estimatedUploadSizeB": 25,
            "estinatedTimeSeconds": 3,
        }
        release.set()
        await theatre.ended(submitted)
        lines = [each["line"] for each in theatre.controller.logs.read(submitted["metadata"]["uid"])]
        assert lines == ["almost", "there"]


async def test_a_phase_is_tried_again_as_often_as_it_says_and_with_the_same_version(
    bench: Workbench, unique: str
) -> None:
    tries: list[tuple[int, str]] = []

    async def flaky(context: PhaseContext, args: Arguments) -> None:
        tries.append((context.attempt, context.version))
        if len(tries) < 3:
            raise PhaseFailed("not yet")

    async with Theatre.open(bench, unique, PhaseFunction(name="Flaky", run=flaky)) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Flaky", retry={"limit": 2, "backoff": "10ms"}))})
        done = await theatre.run("b")
        assert done["status"]["state"] == "complete"
        assert tries == [(1, "v0.0.0"), (2, "v0.0.0"), (3, "v0.0.0")]
        assert done["status"]["actions"][0]["phases"][0]["attempts"] == 3


async def test_a_phase_that_takes_too_long_is_ended(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}, timeout="50ms"), defer=phase("d"))})
        done = await theatre.run("b")
        assert theatre.cancelled == ["x"]
        assert theatre.errors(done) == [("p", "PhaseTimedOut")]
        assert theatre.states(done) == ["failed", "complete"]


async def test_a_function_that_blocks_runs_beside_the_loop_and_hears_of_its_end(bench: Workbench, unique: str) -> None:
    ended: list[bool] = []

    def block(context: PhaseContext, args: Arguments) -> None:
        context.progress(10)
        ended.append(context.stop.wait(20))

    async with Theatre.open(bench, unique, PhaseFunction(name="Block", run=block)) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Block", timeout="100ms"))})
        done = await theatre.run("b")
        assert theatre.errors(done) == [("p", "PhaseTimedOut")]
        assert ended == [True]


async def test_events_tell_the_story_of_a_run(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(phase("a"), phase("x", "Fail"), defer=phase("d"))})
        await theatre.run("b")
        await bench.events.written()
        events = (await bench.client.list(EVENT, namespace=unique)).items
        assert {each["reason"] for each in events if each["involvedObject"].get("kind") == "ActionSet"} == {
            "Started Action",
            "Started Phase",
            "Ended Phase",
            "Started deferPhase",
            "Ended deferPhase",
            "ActionSetFailed Action: b",
        }
        (failure,) = [each for each in events if each["involvedObject"].get("kind") == "Blueprint"]
        assert failure["message"] == f"ActionSet {unique}/run-1: failed as told"


# Deletion


async def test_deleting_ends_the_phase_and_waits_for_the_defer_phase(bench: Workbench, unique: str) -> None:
    cleaned = asyncio.Event()

    async def clean(context: PhaseContext, args: Arguments) -> None:
        theatre.calls.append("clean")
        await cleaned.wait()

    async with Theatre.open(bench, unique, PhaseFunction(name="Clean", run=clean)) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d", "Clean"))})
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await theatre.delete(submitted)
        seen = await theatre.until(
            submitted, lambda found: theatre.states(found) == ["failed", "running"], "its deferPhase"
        )
        assert theatre.errors(seen) == [("p", "Cancelled")]
        assert (theatre.cancelled, theatre.calls) == (["x"], ["x", "clean"])
        cleaned.set()
        await theatre.gone(submitted)


async def test_deleting_waits_for_the_defer_phase_only_so_long(bench: Workbench, unique: str) -> None:
    async def forever(context: PhaseContext, args: Arguments) -> None:
        theatre.calls.append("forever")
        await asyncio.Event().wait()

    function = PhaseFunction(name="Forever", run=forever)
    async with Theatre.open(bench, unique, function, grace=0.3) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d", "Forever"))})
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await theatre.delete(submitted)
        await theatre.gone(submitted)
        assert theatre.calls == ["x", "forever"]


async def test_a_new_actionset_of_the_same_name_is_another_one(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d"))})
        first = await theatre.submit("b", name="same")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await theatre.delete(first)
        await theatre.gone(first)
        theatre.released.set()
        second = await theatre.run("b", name="same")
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert second["status"]["state"] == "complete"


async def test_an_actionset_whose_finalizer_is_taken_away_is_still_cleaned_up_after(
    bench: Workbench, unique: str
) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d", args={"text": "bye"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await bench.client.patch(
            ACTION_SET,
            submitted["metadata"]["name"],
            Patch(PatchType.MERGE, {"metadata": {"finalizers": None}}),
            namespace=unique,
        )
        await theatre.delete(submitted)
        await theatre.gone(submitted)
        await theatre.until_called("bye")


async def test_a_function_that_does_not_mind_being_cancelled_is_the_last_of_its_action(
    bench: Workbench, unique: str
) -> None:
    async def stubborn(context: PhaseContext, args: Arguments) -> None:
        theatre.held.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with Theatre.open(bench, unique, PhaseFunction(name="Stubborn", run=stubborn)) as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Stubborn"), phase("q"), defer=phase("d", args={"text": "bye"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await theatre.delete(submitted)
        await theatre.gone(submitted)
        assert theatre.calls == ["bye"]


async def test_an_actionset_can_be_cancelled_and_kept(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d", args={"text": "bye"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        body = {"metadata": {"annotations": {CANCEL_ANNOTATION: "true"}}}
        name = submitted["metadata"]["name"]
        await bench.client.patch(ACTION_SET, name, Patch(PatchType.MERGE, body), namespace=unique)
        done = await theatre.ended(submitted)
        assert theatre.states(done) == ["failed", "complete"]
        assert (theatre.errors(done), theatre.calls) == ([("p", "Cancelled")], ["x", "bye"])
        early = await theatre.create(
            ACTION_SET,
            "early",
            metadata={"annotations": {CANCEL_ANNOTATION: "true"}},
            spec={"actions": [theatre.request("b")]},
        )
        assert theatre.errors(await theatre.ended(early)) == [("", "Cancelled")]


# What others do meanwhile


async def test_a_run_goes_by_the_blueprint_as_it_was(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        blueprint = await theatre.blueprint(
            {"b": action(phase("p", "Hold", {"text": "x"}), phase("q", args={"text": "old"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        blueprint["actions"] = {"b": action(phase("q", args={"text": "new"}))}
        await bench.client.update(blueprint)
        await bench.client.delete(BLUEPRINT, "blueprint", namespace=unique)
        theatre.released.set()
        done = await theatre.ended(submitted)
        assert (done["status"]["state"], theatre.calls) == ("complete", ["x", "old"])


async def test_a_storm_of_writes_by_others_does_not_stop_a_run(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(*(phase(f"p{number}") for number in range(10)))})
        submitted = await theatre.submit("b")
        name = submitted["metadata"]["name"]

        async def disturb() -> None:
            for number in range(50):
                body = {"metadata": {"labels": {"disturbed": str(number)}}}
                await bench.client.patch(ACTION_SET, name, Patch(PatchType.MERGE, body), namespace=unique)

        await disturb()
        done = await theatre.ended(submitted)
        assert done["status"]["state"] == "complete"
        assert theatre.states(done) == ["complete"] * 10


# A restart of the control plane


async def interrupted(theatre: Theatre, function: str) -> Object:
    """An ActionSet whose control plane stopped while its second phase ran."""
    await theatre.blueprint(
        {
            "b": action(
                phase("first", args={"text": "1"}),
                phase("second", function, {"text": "{{ .Phases.first.Output.text }}2"}),
                phase("third", args={"text": "{{ .Phases.second.Output.text }}3"}),
                defer=phase("d", args={"text": "bye {{ .Phases.first.Output.text }}"}),
            )
        }
    )
    submitted = await theatre.submit("b")
    await asyncio.wait_for(theatre.held.wait(), 20)
    await theatre.bench.plane.stop("actionsets")
    found = await theatre.bench.client.get(ACTION_SET, submitted["metadata"]["name"], namespace=theatre.namespace)
    assert theatre.states(found) == ["complete", "running", "pending", "pending"]
    return found


async def test_a_phase_that_can_be_run_again_is_and_the_run_goes_on(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        found = await interrupted(theatre, "Resume")
        await bench.client.delete(BLUEPRINT, "blueprint", namespace=unique)
        theatre.released.set()
        theatre.use()
        done = await theatre.ended(found)
        assert done["status"]["state"] == "complete"
        assert theatre.calls == ["1", "12", "12", "123", "bye 1"]
        assert [context.resumed for context in theatre.contexts if context.phase == "second"] == [False, True]


async def test_a_run_that_goes_on_goes_by_what_it_was_asked_for(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Resume", {"text": "x"}), phase("q", args={"text": "{{ .Options.a }}"}))}
        )
        submitted = await theatre.submit(theatre.request("b", options={"a": "as asked"}))
        await asyncio.wait_for(theatre.held.wait(), 20)
        await bench.plane.stop("actionsets")
        body = {"spec": {"actions": [theatre.request("b", options={"a": "otherwise"})]}}
        await bench.client.patch(
            ACTION_SET, submitted["metadata"]["name"], Patch(PatchType.MERGE, body), namespace=unique
        )
        theatre.released.set()
        theatre.use()
        await theatre.ended(submitted)
        assert theatre.calls == ["x", "x", "as asked"]


async def test_a_phase_that_cannot_be_run_again_fails_and_the_defer_phase_runs(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        found = await interrupted(theatre, "Hold")
        theatre.use()
        done = await theatre.ended(found)
        assert theatre.states(done) == ["complete", "failed", "pending", "complete"]
        assert theatre.errors(done) == [("second", "Interrupted")]
        assert theatre.calls == ["1", "12", "bye 1"]
        assert "finalizers" not in done["metadata"]


async def test_an_actionset_deleted_while_nobody_ran_it_is_cleaned_up_and_goes(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        found = await interrupted(theatre, "Resume")
        await theatre.delete(found)
        theatre.use()
        await theatre.gone(found)
        assert theatre.calls == ["1", "12", "bye 1"]


async def test_a_locked_version_that_an_upgrade_removed_fails_its_phase_and_the_defer_phase_runs(
    bench: Workbench, unique: str
) -> None:
    held = asyncio.Event()

    async def dump(context: PhaseContext, args: Arguments) -> None:
        held.set()
        await asyncio.Event().wait()

    old = [PhaseFunction(name="Dump", run=dump, version=number, resumable=True) for number in ("v0.0.0", "v0.1.0")]
    async with Theatre.open(bench, unique, *old, versions=AGED, release="0.3") as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Dump", funcVersion="v0.0.0"), defer=phase("d", args={"text": "bye"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(held.wait(), 20)
        await bench.plane.stop("actionsets")
        theatre.use(old[1], versions=AGED, release="0.4")
        done = await theatre.ended(submitted)
        assert theatre.errors(done) == [("p", "VersionRemoved")]
        assert theatre.states(done) == ["failed", "complete"]


async def test_a_status_that_nobody_can_go_on_from_ends_the_actionset(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(phase("p"))})
        theatre_request = theatre.request("b")
        made = await theatre.create(
            ACTION_SET,
            "odd",
            spec={"actions": [theatre_request]},
            status={"state": "running", "actions": [{"name": "b", "phases": [{"name": "p", "state": "running"}]}]},
        )
        done = await theatre.ended(made)
        assert (done["status"]["state"], theatre.calls) == ("failed", [])


async def test_the_other_process_that_runs_an_actionset_is_left_alone(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}), phase("q"))})
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        body = {"status": {"runner": "another"}}
        taken = await bench.client.patch(
            ACTION_SET, submitted["metadata"]["name"], Patch(PatchType.MERGE, body), namespace=unique
        )
        theatre.released.set()
        await theatre.idle()
        found = await bench.client.get(ACTION_SET, submitted["metadata"]["name"], namespace=unique)
        assert found["metadata"]["resourceVersion"] == taken["metadata"]["resourceVersion"]
        assert theatre.calls == ["x"]


@phase_function("Legacy")
class _Legacy:
    """Asked for its progress, as functions are that do not tell it."""

    def __call__(self, context: PhaseContext, args: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"args": dict(args)}


async def test_a_plain_class_without_any_further_member_runs(bench: Workbench, unique: str) -> None:
    async with Theatre.open(bench, unique, _Legacy) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Legacy"))})
        assert (await theatre.run("b"))["status"]["state"] == "complete"
