"""ActionSets on both engines: what phases see and leave, what fails them, and what is said before anything runs."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ACTION_SET, PROFILE
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, PhaseEnvironment, PhaseFunction
from planform.blueprints.errors import PhaseFailed
from planform.client.informer import ObjectKey
from planform.reconcile.context import ControllerContext
from tests.controllers.acting import AGED, CONFIG_MAP, DUMPS, SECRET, Theatre, action, phase, version_of

pytestmark = pytest.mark.timeout(90)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Phases, outputs and artifacts


async def test_phases_run_in_order_and_see_what_earlier_ones_left(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
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


async def test_an_ended_actionset_is_not_written_again(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"backup": action(phase("only"))})
        done = await theatre.run("backup")
        await theatre.controller.reconcile(ObjectKey(unique, done["metadata"]["name"]))
        await theatre.run("backup")
        after = await context.client.get(ACTION_SET, done["metadata"]["name"], namespace=unique)
        assert after["metadata"]["resourceVersion"] == done["metadata"]["resourceVersion"]


async def test_every_root_of_the_parameters_is_there(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
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


async def test_a_workload_is_seen_with_its_pods(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
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


async def test_time_is_the_same_for_all_phases_of_an_action(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint(
            {"backup": action(phase("a", args={"text": "{{ .Time }}"}), phase("b", args={"text": "{{ .Time }}"}))}
        )
        done = await theatre.run("backup")
        assert theatre.calls[0] == theatre.calls[1] == done["status"]["actions"][0]["startedAt"]
        assert theatre.calls[0].endswith("Z")


async def test_arguments_keep_their_types_and_keys_are_templates_too(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
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
    context: ControllerContext, unique: str, template: str, told: str
) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint(
            {"backup": action(phase("a", args={"text": template}), phase("later"), defer=phase("defer"))}
        )
        done = await theatre.run("backup")
        assert theatre.states(done) == ["failed", "pending", "complete"]
        assert theatre.errors(done) == [("a", "RenderFailed")]
        assert told in done["status"]["error"]["message"]


async def test_objects_of_a_phase_cannot_use_what_phases_leave(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        objects = {"it": {"kind": "Secret", "name": "{{ .Phases.a.Output.text }}", "namespace": unique}}
        await theatre.blueprint({"backup": action(phase("a"), phase("b", objects=objects))})
        done = await theatre.run("backup")
        assert theatre.calls == []
        assert "objects.it" in done["status"]["error"]["message"]


async def test_the_defer_phase_is_seen_by_artifacts_under_its_own_root(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        outputs = {"x": {"keyValue": {"a": "{{ .DeferPhase.Output.text }}"}}}
        await theatre.blueprint({"b": action(phase("a"), defer=phase("d", args={"text": "bye"}), outputs=outputs)})
        done = await theatre.run("b")
        assert done["status"]["actions"][0]["artifacts"]["x"]["keyValue"] == {"a": "bye"}


async def test_an_artifact_that_cannot_be_rendered_fails_the_actionset(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
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
async def test_outputs_are_kept_as_json_or_refused(
    context: ControllerContext, unique: str, gives: Any, reason: str
) -> None:
    async def give(context: PhaseContext, args: Arguments) -> Any:
        return gives

    async with Theatre.open(context, unique, PhaseFunction(name="Give", run=give)) as theatre:
        await theatre.blueprint({"b": action(phase("a", "Give"))})
        done = await theatre.run("b")
        assert theatre.errors(done) == ([("a", reason)] if reason else [])
        kept = done["status"]["actions"][0]["phases"][0].get("output")
        assert kept == (gives if gives and not reason else None)


# Failure and deferPhase


async def test_a_failed_phase_ends_its_action_and_the_defer_phase_still_runs(
    context: ControllerContext, unique: str
) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint(
            {"b": action(phase("a", "Fail", {"text": "no"}), phase("z"), defer=phase("d", args={"text": "bye"}))}
        )
        done = await theatre.run("b")
        assert theatre.calls == ["no", "bye"]
        assert theatre.states(done) == ["failed", "pending", "complete"]
        assert done["status"]["state"] == "failed"
        assert done["status"]["error"] == {"message": "no"}


async def test_an_error_of_the_defer_phase_does_not_hide_the_first_one(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        defer = phase("d", args={"text": "{{ .Phases.a.Output.text }}"})
        await theatre.blueprint({"b": action(phase("a", "Fail", {"text": "root cause"}), defer=defer)})
        done = await theatre.run("b")
        assert theatre.errors(done) == [("a", "PhaseFailed"), ("d", "RenderFailed")]
        assert done["status"]["error"]["message"] == "root cause"


async def test_a_missing_secret_of_the_defer_phase_fails_the_actionset(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        defer = phase("d", objects={"it": {"kind": "Secret", "name": "nowhere", "namespace": unique}})
        await theatre.blueprint({"b": action(phase("a"), defer=defer)})
        done = await theatre.run("b")
        assert (done["status"]["state"], theatre.states(done)) == ("failed", ["complete", "failed"])
        assert 'Secret "' in done["status"]["error"]["message"] and "not found" in done["status"]["error"]["message"]


async def test_an_action_of_a_defer_phase_only_runs_it(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(defer=phase("d", args={"text": "only"}))})
        done = await theatre.run("b")
        assert (theatre.calls, done["status"]["state"]) == (["only"], "complete")


async def test_no_action_at_all_is_complete_at_once(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        done = await theatre.run()
        assert (done["status"]["state"], done["status"]["actions"]) == ("complete", [])


async def test_what_a_function_raises_is_told_with_its_type_and_facts(context: ControllerContext, unique: str) -> None:
    async def odd(context: PhaseContext, args: Arguments) -> None:
        raise KeyError("left over")

    def facts(context: PhaseContext, args: Arguments) -> None:
        raise PhaseFailed("told", details={"code": 7})

    functions = [PhaseFunction(name="Odd", run=odd), PhaseFunction(name="Facts", run=facts)]
    async with Theatre.open(context, unique, *functions) as theatre:
        await theatre.blueprint({"b": action(phase("a", "Odd"), defer=phase("d", "Facts"))})
        done = await theatre.run("b")
        assert [each["message"] for each in done["status"]["errors"]] == [
            "Odd v0.0.0: KeyError: 'left over'",
            'told {"code":7}',
        ]


# Before anything runs


@pytest.mark.parametrize("where", ["phase", "deferPhase"])
async def test_a_removed_version_anywhere_keeps_everything_from_starting(
    context: ControllerContext, unique: str, where: str
) -> None:
    async with Theatre.open(context, unique, DUMPS[1], versions=AGED, release="0.4") as theatre:
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
    context: ControllerContext, unique: str, change: Object, told: str
) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(phase("a"), defer=phase("d"))})
        done = await theatre.run("b", {**theatre.request("b"), **change})
        assert (theatre.calls, done["status"]["state"]) == ([], "failed")
        assert told in done["status"]["error"]["message"]
        assert "finalizers" not in done["metadata"]


async def test_a_preflight_that_fails_without_phases_is_told_too(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": {}})
        done = await theatre.run(theatre.request("b", secrets={"x": {"name": "nowhere"}}))
        assert (done["status"]["state"], done["status"]["actions"][0]["phases"]) == ("failed", [])


async def test_names_that_a_blueprint_declares_have_to_be_given(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(phase("a"), secretNames=["s"], inputArtifactNames=["i"])})
        done = await theatre.run("b")
        assert [each["message"] for each in done["status"]["errors"]] == [
            'action "b" needs the Secret "s", which the ActionSet does not give',
            'action "b" needs the artifact "i", which the ActionSet does not give',
        ]


async def test_a_function_that_cannot_run_on_this_engine_is_named_before_anything_runs(
    context: ControllerContext, unique: str
) -> None:
    functions = [
        PhaseFunction(name="Exec", run=version_of, engines=("kubernetes",)),
        PhaseFunction(name="Tool", run=version_of, unavailable=lambda here: "pg_dump is not installed"),
    ]
    async with Theatre.open(context, unique, *functions, here=PhaseEnvironment(engine="embedded")) as theatre:
        await theatre.blueprint({"b": action(phase("a"), phase("x", "Exec"), phase("y", "Tool"))})
        done = await theatre.run("b")
        assert theatre.calls == []
        assert [each["message"] for each in done["status"]["errors"]] == [
            "Exec v0.0.0 runs on the kubernetes engine, and this is the embedded engine",
            "Tool v0.0.0 cannot run here: pg_dump is not installed",
        ]


async def test_two_phases_of_one_name_in_an_action_are_refused(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(phase("a"), phase("a"))})
        done = await theatre.run("b")
        assert 'more than one phase "a"' in done["status"]["error"]["message"]


async def test_what_a_phase_says_of_a_secret_is_masked(context: ControllerContext, unique: str) -> None:
    password = "c4nary-Pa55word"
    async with Theatre.open(context, unique) as theatre:
        await theatre.create(SECRET, "password", data={"key": encoded(password)})
        text = "cannot log in with {{ .Secrets.password.Data.key | toString }}"
        own = {"own": {"kind": "secret", "name": "password", "namespace": unique}}
        again = "and not with {{ .Phases.again.Secrets.own.Data.key | toString }}"
        await theatre.blueprint(
            {
                "login": action(phase("login", "Fail", {"text": text})),
                "again": action(phase("again", "Fail", {"text": again}, objects=own)),
            }
        )
        here = {"namespace": unique, "apiVersion": "v1", "kind": "Secret", "name": "password"}
        for name in ("login", "again"):
            done = await theatre.run(theatre.request(name, secrets={"password": here}))
            assert password not in str(done), "in the status"
            assert "******" in str(done["status"]), "it was said"
        assert sorted(theatre.calls) == [f"and not with {password}", f"cannot log in with {password}"], "it was used"
        events = await context.client.list(GroupVersionKind("", "v1", "Event"), namespace=unique)
        assert password not in str(events.items)
