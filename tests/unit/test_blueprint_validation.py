"""What is said about Blueprints, ActionSets and Profiles before anything runs, and what admission makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINT, PROFILE
from planform.apiserver.admission.chain import Admission
from planform.apiserver.local import LocalClient
from planform.apiserver.verbs.requests import Request
from planform.blueprints.admission import BlueprintGuard, blueprints_in
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment, PhaseFunction
from planform.blueprints.errors import BlueprintInvalid
from planform.blueprints.model import LOCKS_ANNOTATION, parse_action_set, parse_blueprint
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.blueprints.validation import (
    MAX_WARNING_BYTES,
    Findings,
    action_set_findings,
    blueprint_findings,
    profile_findings,
    status_errors,
)
from planform.blueprints.versions import parse_versions
from planform.errors import Invalid
from tests.harness.contexts import embedded_context

VERSIONS = """
releases: ["0.1", "0.2", "0.3", "0.4"]
functions:
  Dump:
    stable: {stable}
    versions:
      v0.0.0: {{introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.4", replacement: v0.1.0}}
      v0.1.0: {{introducedIn: "0.1", promotedIn: "0.2"}}
"""


def no_dots(args: Mapping[str, Any]) -> Iterable[str]:
    if "." in str(args.get("path", "")):
        yield "path must not have dots"


def known(release: str = "0.1") -> PhaseCatalogue:
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    if release != "0.4":
        registry.register(
            PhaseFunction(name="Dump", run=print, required=("path",), arguments=("level",), validate=no_dots)
        )
    registry.register(
        PhaseFunction(name="Dump", run=print, version="v0.1.0", required=("path", "format"), arguments=()),
        PhaseFunction(name="Exec", run=print, engines=("kubernetes",)),
        PhaseFunction(name="Say", run=print),
    )
    stable = "v0.0.0" if release == "0.1" else "v0.1.0"
    return PhaseCatalogue(registry, versions=parse_versions(VERSIONS.format(stable=stable)), release=release)


def phase(name: str = "p", func: str = "Say", **more: Any) -> Object:
    return {"name": name, "func": func, **more}


def blueprint(*phases: Object, **more: Any) -> Object:
    top: Object = {"versionPolicy": more.pop("versionPolicy")} if "versionPolicy" in more else {}
    return {
        "apiVersion": BLUEPRINT.api_version,
        "kind": BLUEPRINT.kind,
        "metadata": {"name": "b", "namespace": "default"},
        **top,
        "actions": {"act": {"phases": list(phases), **more}},
    }


def look(obj: Object, release: str = "0.1") -> Findings:
    return blueprint_findings(obj, known(release), PhaseEnvironment(engine="embedded"))


def complaints(obj: Object, release: str = "0.1") -> list[str]:
    return [str(error) for error in look(obj, release).errors]


def test_a_blueprint_that_can_run_has_nothing_wrong() -> None:
    found = look(
        blueprint(phase("a", args={"x": "{{ .Options.y }}"}), phase("b", args={"x": "{{ .Phases.a.Output.z }}"}))
    )
    assert (found.errors, found.warnings) == ([], [])


@pytest.mark.parametrize(
    ("obj", "told"),
    [
        (
            blueprint(phase(func="Nope")),
            'actions.act.phases[0].func: Invalid value: function "Nope": no such function is installed',
        ),
        (
            blueprint(phase(func="Dump", args={"path": "x"}, funcVersion="v9.9.9")),
            'phases[0].funcVersion: Invalid value: function "Dump": has no version v9.9.9 (it has: v0.1.0, v0.0.0)',
        ),
        (
            blueprint(phase(funcVersion="{{ .Options.v }}")),
            "phases[0].funcVersion: Invalid value: a version is never a",
        ),
        (blueprint(phase(args={"a": "{{ nope }}"})), 'actions.act.phases[0].args.a:1: function "nope" not defined'),
        (blueprint(phase(args={"a": ["{{ .X"]})), "phases[0].args.a[0]:1: unclosed action"),
        (blueprint(phase(args={"{{ if }}": 1})), "phases[0].args"),
        (blueprint(phase(args={"a": "{{ env `PATH` }}"})), 'function "env"'),
        (blueprint(phase(objects={"s": {"name": "{{ .X"}})), "phases[0].objects.s.name: Invalid value"),
        (blueprint(phase(objects={"s": {"name": "{{ .Phases.a.Output.x }}"}})), "objects are read before any phase"),
        (blueprint(phase(), outputArtifacts={"o": {"keyValue": {"k": "{{ nope }}"}}}), "outputArtifacts.o.keyValue.k"),
        (blueprint(phase("a"), phase("a")), 'phases[1].name: Duplicate value: "a"'),
        (blueprint(phase("a"), deferPhase=phase("a")), 'deferPhase.name: Duplicate value: "a"'),
        (blueprint(phase(func="Dump")), 'phases[0].args: Invalid value: Dump v0.0.0: required argument "path"'),
        (blueprint(phase(func="Dump", args={"path": "x", "format": 1})), 'argument "format" is not supported'),
        (blueprint(phase(func="Dump", args={"path": "a.b"})), "Dump v0.0.0: path must not have dots"),
        (blueprint(deferPhase=phase(func="Dump", args={}, funcVersion="v0.1.0")), "deferPhase.args: Invalid value"),
        (blueprint({"func": "Say"}), "phases[0].name: Required value"),
        (blueprint({"name": "x"}), "phases[0].func: Required value"),
        (
            blueprint({"func": "Dumb", "name": "x"}),
            'function "Dumb": no such function is installed (did you mean "Dump"?)',
        ),
        (
            blueprint({"func": "Say", "name": True}),
            "name: Invalid value: must be a text, and true is none without quotes",
        ),
        (blueprint(phase(timeout="soon")), 'phases[0].timeout: Invalid value: "soon" is not a duration'),
        (blueprint(phase(retry={"limit": -1})), "retry.limit: Invalid value"),
        (blueprint(phase(args=[])), "args: Invalid value: must be a map"),
        ({"actions": []}, "actions: Invalid value: must be a map"),
    ],
)
def test_what_cannot_run_is_an_error_at_its_field(obj: Object, told: str) -> None:
    text = "\n".join(complaints(obj))
    assert told in text


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert len(complaints(blueprint(phase("a", "Nope"), phase("a"), deferPhase=phase("d", "Dump")))) == 3


def test_each_phase_is_looked_at_with_the_version_that_it_would_run() -> None:
    args = {"path": "x", "format": "y"}
    assert complaints(blueprint(phase(func="Dump", args=args, funcVersion="v0.1.0"))) == []
    assert complaints(blueprint(phase(func="Dump", args=args)), "0.2") == []
    assert complaints(blueprint(phase(func="Dump", args=args)), "0.1") != []


@pytest.mark.parametrize(
    ("release", "warned"),
    [
        ("0.1", []),
        ("0.2", ["Dump v0.0.0: deprecated since 0.2, stops working in 0.4, move to v0.1.0"]),
        ("0.3", ["Dump v0.0.0: deprecated since 0.2, stops working in 0.4, move to v0.1.0"]),
    ],
)
def test_a_pin_that_ages_is_warned_about(release: str, warned: list[str]) -> None:
    obj = blueprint(phase(func="Dump", args={"path": "x"}, funcVersion="v0.0.0"))
    assert (complaints(obj, release), look(obj, release).warnings) == ([], warned)


def test_a_pin_to_a_removed_version_is_refused() -> None:
    (told,) = complaints(blueprint(phase(func="Dump", args={"path": "x"}, funcVersion="v0.0.0")), "0.4")
    assert told.endswith("v0.0.0 was removed in 0.4, replaced by v0.1.0")


def test_arguments_are_also_held_against_the_version_that_becomes_stable() -> None:
    found = look(blueprint(phase(func="Dump", args={"path": "x"})))
    assert found.errors == []
    assert found.warnings == [
        "Dump: v0.1.0 becomes stable in 0.2; set funcVersion to stay on v0.0.0",
        "actions.act.phases[0].args will be wrong once v0.1.0 is stable:"
        ' Dump v0.1.0: required argument "format" is missing',
    ]


@pytest.mark.parametrize(
    ("obj", "warning"),
    [
        (blueprint(phase(func="Exec")), "Exec v0.0.0 runs on the kubernetes engine, and this is the embedded engine"),
        (
            blueprint(phase("a", args={"x": "{{ .Phases.later.Output.y }}"}), phase("later")),
            'actions.act.phases[0].args: no phase "later" runs before "a"',
        ),
        (
            blueprint(phase(args={"x": "{{ .Secrets.s.Name }}"})),
            'actions.act: templates use "s", which secretNames does not declare',
        ),
        (
            blueprint(phase(args={"x": "{{ .ArtifactsIn.i.KeyValue.k }}"})),
            'actions.act: templates use "i", which inputArtifactNames does not declare',
        ),
        (
            {"actions": {"one": {"phases": [phase("a")]}, "two": {"phases": [phase("a")]}}},
            "phase names are used by several actions: a",
        ),
    ],
)
def test_what_is_only_unwise_is_a_warning(obj: Object, warning: str) -> None:
    found = look(obj)
    assert found.errors == []
    assert warning in found.warnings


def test_warnings_are_told_once_and_fit_into_a_header() -> None:
    findings = Findings()
    for number in range(300):
        findings.warn("the same")
        findings.warn(f"warning {number} " + "x" * 100)
    assert findings.warnings.count("the same") == 1
    assert sum(len(each) for each in findings.warnings) <= MAX_WARNING_BYTES


# ActionSets


def action_set(*actions: Object, **more: Any) -> Object:
    return {
        "apiVersion": ACTION_SET.api_version,
        "kind": ACTION_SET.kind,
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"actions": list(actions)},
        **more,
    }


def request(**more: Any) -> Object:
    target = {"kind": "Namespace", "name": "x", "namespace": "x"}
    return {"name": "act", "blueprint": "b", "object": target, **more}


@pytest.mark.parametrize(
    ("obj", "told"),
    [
        ({"spec": None}, "spec: Required value"),
        (action_set(request(name="")), "spec.actions[0].name: Required value"),
        (action_set(request(blueprint="")), "spec.actions[0].blueprint: Required value"),
        (action_set(request(object={"kind": "Widget"})), "needs apiVersion and resource"),
        (action_set(request(object={"kind": "unstructured"})), "object.resource is missing"),
        (action_set(request(options={"a": 1})), "spec.actions[0].options.a: Invalid value: must be a text"),
        (action_set(request(artifacts={"a": {"keyValue": []}})), "artifacts.a.keyValue: Invalid value: must be a map"),
    ],
)
def test_an_actionset_that_says_what_cannot_be_is_refused(obj: Object, told: str) -> None:
    text = "\n".join(str(error) for error in action_set_findings(obj, {}, known()).errors)
    assert told in text


@pytest.mark.parametrize("kind", ["Deployment", "statefulset", "DeploymentConfig", "PVC", "namespace"])
def test_known_kinds_need_nothing_beside_their_names_whatever_their_case(kind: str) -> None:
    assert action_set_findings(action_set(request(object={"kind": kind, "name": "x"})), {}, known()).errors == []


def test_an_actionset_is_warned_about_what_it_will_run() -> None:
    obj = blueprint(phase(func="Dump", args={"path": "x"}, funcVersion="v0.0.0"))
    found = action_set_findings(
        action_set(request(), request(blueprint="none"), request(name="nothing")),
        {"b": parse_blueprint(obj), "none": None},
        known("0.2"),
    )
    assert found.errors == []
    assert found.warnings == [
        "Dump v0.0.0: deprecated since 0.2, stops working in 0.4, move to v0.1.0",
        'spec.actions[1]: Blueprint "none" does not exist',
        'spec.actions[2]: Blueprint "b" has no action "nothing"',
    ]


def status(state: str, *phases: str, actions: int = 1) -> Object:
    entry = {"name": "act", "phases": [{"name": f"p{number}", "state": each} for number, each in enumerate(phases)]}
    return action_set(request(), status={"state": state, "actions": [entry] * actions})


@pytest.mark.parametrize(
    ("obj", "told"),
    [
        (status("running", "complete", "running", "pending"), []),
        (status("failed", "complete", "failed", "pending"), []),
        (status("complete", "complete"), []),
        (action_set(request()), []),
        (status("busy"), ["status.state"]),
        (status("running", "odd"), ["status.actions[0].phases[0].state"]),
        (status("running", "pending", "running"), ["status.actions[0].phases[1].state"]),
        (status("complete", "running"), ["status.actions[0].phases[0].state"]),
        (status("running", actions=2), ["status.actions"]),
    ],
)
def test_a_status_must_not_contradict_itself(obj: Object, told: list[str]) -> None:
    assert [error.field for error in status_errors(obj)] == told


def test_an_empty_list_of_actions_is_no_error() -> None:
    assert parse_action_set({"spec": {}}).actions == ()
    with pytest.raises(BlueprintInvalid, match="spec: Required value"):
        parse_action_set({})


@pytest.mark.parametrize(
    ("obj", "warned"),
    [
        ({"location": {"type": "s3Compliant", "bucket": "b"}}, ["location.region is missing, which s3Compliant needs"]),
        (
            {"credential": {"type": "keyPair", "keyPair": {"idField": "i"}}},
            ["credential.keyPair.secretField is missing", "credential.keyPair.secret.name is missing"],
        ),
        ({"credential": {"type": "secret", "secret": {"name": "n"}}}, ["credential.secret.namespace is missing"]),
        ({"location": {"type": "gcs"}, "credential": {"type": "kopia"}}, []),
    ],
)
def test_a_profile_is_told_what_it_lacks(obj: Object, warned: list[str]) -> None:
    assert profile_findings(obj).warnings == warned


# Admission


class Server:
    """The embedded engine with the guard, and the warnings that it gave."""

    client: LocalClient

    def __init__(self) -> None:
        self.guard = BlueprintGuard(known())
        self.warnings: list[str] = []

    def admit(self, admission: Admission, /) -> None:
        before = len(admission.request.warnings)
        self.guard.admit(admission)
        self.warnings += admission.request.warnings[before:]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with embedded_context(admission=[made]) as context:
        assert isinstance(context.client, LocalClient)
        made.client = context.client
        made.guard = BlueprintGuard(known(), look=blueprints_in(context.client._core.store))
        yield made


async def test_a_blueprint_that_cannot_run_does_not_get_in(server: Server) -> None:
    with pytest.raises(Invalid) as refused:
        await server.client.create(blueprint(phase(func="Nope"), phase("q", args={"a": "{{ nope }}"})))
    assert [cause["field"] for cause in refused.value.causes] == [
        "actions.act.phases[0].func",
        "actions.act.phases[1].args.a",
    ]


async def test_warnings_come_back_with_the_answer(server: Server) -> None:
    await server.client.create(blueprint(phase(func="Dump", args={"path": "x"})))
    announced = "Dump: v0.1.0 becomes stable in 0.2; set funcVersion to stay on v0.0.0"
    assert announced in server.warnings
    server.warnings.clear()
    await server.client.create(action_set(request(), request(blueprint="none")))
    assert server.warnings == [announced, 'spec.actions[1]: Blueprint "none" does not exist']


async def test_a_write_that_changes_nothing_of_substance_is_not_looked_at_again(server: Server) -> None:
    made = await server.client.create(blueprint(phase(func="Dump", args={"path": "x"}, funcVersion="v0.0.0")))
    server.guard = BlueprintGuard(known("0.4"))
    made["metadata"]["labels"] = {"a": "b"}
    made = await server.client.update(made)
    made["actions"]["act"]["kind"] = "Namespace"
    with pytest.raises(Invalid, match="removed"):
        await server.client.update(made)


async def test_an_actionset_whose_status_contradicts_itself_does_not_get_in(server: Server) -> None:
    with pytest.raises(Invalid, match=r"status\.state"):
        await server.client.create(status("busy"))


async def test_a_profile_is_admitted_and_warned_about(server: Server) -> None:
    await server.client.create(
        {
            "apiVersion": PROFILE.api_version,
            "kind": PROFILE.kind,
            "metadata": {"name": "p", "namespace": "default"},
            "location": {"type": "s3Compliant"},
        }
    )
    assert len(server.warnings) == 2


async def test_a_blueprint_that_locks_is_bound_when_it_is_admitted_and_stays_bound(server: Server) -> None:
    made = await server.client.create(
        blueprint(
            phase("a", "Dump", args={"path": "x"}),
            phase("b", "Dump", args={"path": "x", "format": "y"}, funcVersion="v0.1.0"),
            versionPolicy="Lock",
        )
    )
    bound = '{"act/a/Dump":"v0.0.0"}'
    assert made["metadata"]["annotations"][LOCKS_ANNOTATION] == bound
    server.guard = BlueprintGuard(known("0.2"))  # v0.1.0 is stable now
    made["metadata"]["annotations"] = {}
    made["actions"]["act"]["phases"].append(phase("c", "Dump", args={"path": "x", "format": "y"}))
    made = await server.client.update(made)
    assert made["metadata"]["annotations"][LOCKS_ANNOTATION] == '{"act/a/Dump":"v0.0.0","act/c/Dump":"v0.1.0"}'
    made["versionPolicy"] = "Follow"
    made["actions"]["act"]["phases"] = []
    made = await server.client.update(made)
    assert LOCKS_ANNOTATION not in (made["metadata"].get("annotations") or {})


def test_the_guard_looks_only_at_its_own_kinds() -> None:
    from planform.api.kinds import Kind

    guard = BlueprintGuard(known())
    other = Kind("", "v1", "ConfigMap", "configmaps", True)
    guard.admit(Admission("CREATE", other, "default", "x", {"actions": 3}, None, "", Request()))
