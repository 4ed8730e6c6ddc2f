"""Whatever people write, the answer is a refusal that names its field, never a crash."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.api.kinds import Object
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment, PhaseFunction
from planform.blueprints.errors import BlueprintInvalid, VersionsInvalid
from planform.blueprints.model import parse_action_set, parse_blueprint
from planform.blueprints.planning import plan
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.blueprints.validation import (
    action_set_findings,
    blueprint_findings,
    profile_findings,
    status_errors,
)
from planform.blueprints.versions import State, Versions, parse_overlay, parse_versions

WORDS = [
    "actions", "phases", "deferPhase", "name", "func", "funcVersion", "args", "objects", "outputArtifacts", "keyValue",
    "retry", "limit", "backoff", "timeout", "spec", "object", "kind", "blueprint", "secrets", "configMaps", "profile",
    "options", "artifacts", "producedBy", "status", "state", "metadata", "annotations", "versionPolicy", "releases",
    "functions", "stable", "versions", "introducedIn", "promotedIn", "deprecatedIn", "removedIn", "labels", "location",
    "credential", "keyPair", "planform.dev/function-versions",
]  # fmt: skip
VALUES = [
    "", "Say", "v0.0.0", "0.1", "v1.0.0", "latest", "{{ .X }}", "{{", "{{ nope }}", "30s", "-1s", "Secret", "Namespace",
    "pending", "running", "complete", "Lock", "s3Compliant", "act", "bp", "é", "😀",
]  # fmt: skip

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(0, 1) | st.sampled_from(VALUES)
keys = st.sampled_from(WORDS) | st.sampled_from(VALUES)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=25
)
phases = st.fixed_dictionaries({}, optional={
    "name": scalars, "func": scalars, "funcVersion": scalars, "args": anything, "objects": anything,
    "timeout": scalars, "retry": anything,
})  # fmt: skip
blueprints = st.fixed_dictionaries({}, optional={
    "metadata": st.none() | st.fixed_dictionaries({"name": st.just("bp")}),
    "versionPolicy": scalars,
    "actions": anything | st.dictionaries(st.just("act"), anything | st.fixed_dictionaries({}, optional={
        "phases": st.lists(phases, max_size=3) | anything, "deferPhase": phases | anything, "outputArtifacts": anything,
        "secretNames": anything,
    })),
})  # fmt: skip


def known() -> PhaseCatalogue:
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(PhaseFunction(name="Say", run=print, arguments=("text",)))
    return PhaseCatalogue(registry, versions=parse_versions('releases: ["0.1"]'), release="0.1")


KNOWN = known()


@settings(max_examples=300, deadline=None)
@given(blueprints)
def test_any_blueprint_is_looked_at_or_refused(obj: Object) -> None:
    findings = blueprint_findings(obj, KNOWN, PhaseEnvironment())
    assert all(error.field for error in findings.errors)
    if not findings.errors:
        blueprint = parse_blueprint(obj)
        request: Any = {"name": "act", "blueprint": "bp", "object": {"kind": "Namespace", "name": "x"}}
        wanted = parse_action_set({"spec": {"actions": [request]}})
        assert plan(wanted.actions, {"bp": blueprint}, KNOWN, PhaseEnvironment()) is not None


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["spec", "status", "metadata"]), anything))
def test_any_actionset_is_looked_at_or_refused(obj: Object) -> None:
    findings = action_set_findings(obj, {}, KNOWN)
    assert all(error.field for error in findings.errors)
    if not findings.errors:
        parse_action_set(obj)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional={"state": scalars, "name": scalars})), scalars)
def test_any_status_that_the_schema_lets_through_is_looked_at(entries: list[Object], state: Any) -> None:
    obj = {"spec": {"actions": [{}]}, "status": {"state": state, "actions": [{"phases": entries}]}}
    assert all(error.field.startswith("status.") for error in status_errors(obj))


@settings(max_examples=200, deadline=None)
@given(anything)
def test_any_versions_file_is_read_or_refused(document: Any) -> None:
    text = orjson.dumps(document).decode()
    for read in (parse_versions, lambda each: parse_overlay(each, Versions(("0.1",), {}))):
        try:
            read(text)
        except VersionsInvalid as refused:
            assert refused.problems


@given(st.fixed_dictionaries({}, optional={
    "location": st.none() | st.dictionaries(st.sampled_from(["type", "bucket", "region"]), st.sampled_from(VALUES)),
    "credential": st.none() | st.fixed_dictionaries({}, optional={
        "type": st.sampled_from(["keyPair", "secret", "kopia"]),
        "keyPair": st.none() | st.fixed_dictionaries({"idField": st.sampled_from(VALUES)}),
    }),
}))  # fmt: skip
def test_any_profile_that_the_schema_lets_through_is_looked_at(obj: Object) -> None:
    assert profile_findings(obj).errors == []


def test_a_refusal_says_everything() -> None:
    with pytest.raises(BlueprintInvalid) as refused:
        parse_blueprint({"actions": {"a": {"phases": [{}, 3]}, "b": []}})
    assert len(refused.value.errors) == 6


releases = st.sampled_from(["0.1", "0.2", "0.3", "0.4"])
lives = st.fixed_dictionaries(
    {"introducedIn": releases}, optional={"promotedIn": releases, "deprecatedIn": releases, "removedIn": releases}
)
AGES = [State.COMING, State.PREVIEW, State.STABLE, State.DEPRECATED, State.REMOVED]


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(["v0.0.0", "v0.1.0", "v1.0.0"]), lives, min_size=1))
def test_in_every_file_that_is_accepted_versions_only_age_and_are_warned_about_before_they_go(lines: Object) -> None:
    document = {"releases": ["0.1", "0.2", "0.3", "0.4"], "functions": {"F": {"versions": lines}}}
    try:
        function = parse_versions(orjson.dumps(document).decode()).functions["F"]
    except VersionsInvalid:
        return
    for version in function.versions.values():
        states = [function.state_at(version, release) for release in range(4)]
        assert [AGES.index(state) for state in states] == sorted(AGES.index(state) for state in states)
        if State.REMOVED in states and version.promoted is not None:
            gone = states.index(State.REMOVED)
            assert states[max(0, gone - 2) : gone] == [State.DEPRECATED] * min(2, gone)
    for release in range(4):
        stable = [each for each in function.versions.values() if function.state_at(each, release) is State.STABLE]
        assert len(stable) <= 1
        assert not stable or stable[0] == function.stable_at(release)
