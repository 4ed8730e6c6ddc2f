"""patch-and-transform as a whole: its input, templates, readiness, connection details, and what an answer holds."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from planform.builtin.patch_and_transform import function
from planform.functions.values import (
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Resource,
    ResourceSelector,
    State,
    Target,
)
from tests.unit.composing import (
    BASE,
    XR,
    fatal,
    rendered,
    request,
    resources,
    run,
    template,
    warnings,
)

ENVIRONMENT = "apiextensions.crossplane.io/environment"
COPY = {"fromFieldPath": "metadata.name", "toFieldPath": "spec.to"}


# --- reading the input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (resources(template(), extra=1), 'object contains unknown field "extra"'),
        (resources(template(extra=1)), 'resources[0]: object contains unknown field "extra"'),
        (
            resources(template({**COPY, "policy": {"mergeOptions": {"appendSlice": True}}})),
            'resources[0].patches[0].policy: object contains unknown field "mergeOptions"',
        ),
        (
            resources(template({**COPY, "options": {}})),
            'resources[0].patches[0]: object contains unknown field "options"',
        ),
        (resources(template({**COPY, "FromFieldPath": "x"})), 'object contains unknown field "FromFieldPath"'),
        (
            resources(template({**COPY, "transforms": [{"type": "math", "math": {"multiply": 1.5}}]})),
            "resources[0].patches[0].transforms[0].math.multiply: expected a whole number",
        ),
        (
            resources(
                template(
                    {
                        **COPY,
                        "transforms": [
                            {"type": "string", "string": {"type": "Regexp", "regexp": {"match": "x", "group": "1"}}}
                        ],
                    }
                )
            ),
            "resources[0].patches[0].transforms[0].string.regexp.group: expected a whole number, got a string",
        ),
        ({**resources(), "resources": {}}, "resources: expected a list, got an object"),
        (resources(template(name=5)), "resources[0].name: expected a string, got a whole number"),  # type: ignore[arg-type]
    ],
)
def test_the_input_is_read_strictly(spec: Object, problem: str) -> None:
    failure = fatal(run(spec))
    assert failure.startswith("cannot get Function input: ")
    assert problem in failure


@pytest.mark.parametrize("other", [{"kind": "Resource"}, {"apiVersion": "v1"}, {"apiVersion": "", "kind": ""}])
def test_an_input_of_any_kind_is_read(other: Object) -> None:
    assert rendered(run({**resources(template(COPY)), **other}))["spec"] == {"to": "xr"}


def test_a_step_without_input_is_refused() -> None:
    assert fatal(run(None)) == "cannot get Function input: the step has no input"


def test_nulls_count_as_absent_and_metadata_is_accepted() -> None:
    spec = resources(
        {**template({**COPY, "transforms": None, "policy": None}), "readinessChecks": None},
        metadata={"name": "x"},
        patchSets=None,
        environment=None,
    )
    assert rendered(run(spec))["spec"] == {"to": "xr"}


# --- validation -------------------------------------------------------------------------------------------------------


def patch(**more: Any) -> Object:
    return resources(template({**COPY, **more}))


def transform(kind: str, **config: Any) -> Object:
    return patch(transforms=[{"type": kind, **config}])


def check(**more: Any) -> Object:
    return resources(template(readinessChecks=[more]))


def detail(**more: Any) -> Object:
    return resources(template(connectionDetails=[more]))


def combining(**more: Any) -> Object:
    full: Object = {
        "variables": [{"fromFieldPath": "metadata.name"}],
        "strategy": "string",
        "string": {"fmt": "%s"},
        **more,
    }
    return resources(
        template(
            {
                "type": "CombineFromComposite",
                "toFieldPath": "spec.to",
                "combine": {key: value for key, value in full.items() if value is not None},
            }
        )
    )


P, T = "resources[0].patches[0]", "resources[0].patches[0].transforms[0]"
R, C = "resources[0].readinessChecks[0]", "resources[0].connectionDetails[0]"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (resources(), "resources: Required value: resources or environment patches are required"),
        (resources(environment={}), "resources: Required value: resources or environment patches are required"),
        (resources(template(name="")), "resources[0].name: Required value"),
        (resources(template(), patchSets=[{"name": "", "patches": []}]), "patchSets[0].name: Required value"),
        (
            resources(template(), patchSets=[{"name": "a", "patches": [{"type": "PatchSet", "patchSetName": "a"}]}]),
            'patchSets[0].patches[0].type: Invalid value: "PatchSet"',
        ),
        (
            resources(template(), patchSets=[{"name": "a", "patches": [{}]}]),
            "patchSets[0].patches[0].fromFieldPath: Required value",
        ),
        (patch(type="Nope"), f'{P}.type: Invalid value: "Nope"'),
        (patch(fromFieldPath=""), f"{P}.fromFieldPath: Required value"),
        (patch(fromFieldPath="a..b"), f'{P}.fromFieldPath: Invalid value: "a..b": cannot parse path "a..b"'),
        (patch(toFieldPath="a["), f'{P}.toFieldPath: Invalid value: "a["'),
        (patch(toFieldPath=""), f'{P}.toFieldPath: Invalid value: "": an empty path writes nothing'),
        (patch(policy={"fromFieldPath": "Maybe"}), f'{P}.policy.fromFieldPath: Invalid value: "Maybe"'),
        (patch(policy={"toFieldPath": "Merge"}), f'{P}.policy.toFieldPath: Invalid value: "Merge"'),
        (resources(template({"type": "PatchSet"})), f"{P}.patchSetName: Required value"),
        (
            resources(template({"type": "PatchSet", "patchSetName": "x"})),
            "cannot resolve PatchSets: cannot find PatchSet by name x",
        ),
        (resources(template({"type": "CombineFromComposite", "toFieldPath": "x"})), f"{P}.combine: Required value"),
        (combining(variables=[]), f"{P}.combine.variables: Required value"),
        (combining(variables=[{}]), f"{P}.combine.variables[0].fromFieldPath: Required value"),
        (combining(variables=[{"fromFieldPath": ".a"}]), f"{P}.combine.variables[0].fromFieldPath: Invalid value"),
        (combining(strategy=None), f"{P}.combine.strategy: Required value"),
        (combining(strategy="sum"), f'{P}.combine.strategy: Invalid value: "sum"'),
        (combining(string=None), f"{P}.combine.string: Required value"),
        (
            resources(template({"type": "CombineFromComposite", "combine": combining()["resources"][0]["patches"]})),
            f"{P}.combine: expected",
        ),
        (transform(""), f"{T}.type: Required value"),
        (transform("sum"), f'{T}.type: Invalid value: "sum"'),
        (transform("math"), f"{T}.math: Required value: given transform type math requires configuration"),
        (transform("math", math={"type": "Divide"}), f'{T}.math.type: Invalid value: "Divide"'),
        (transform("math", math={}), f"{T}.math.multiply: Required value"),
        (transform("math", math={"type": "ClampMin"}), f"{T}.math.clampMin: Required value"),
        (transform("math", math={"type": "ClampMax", "clampMin": 1}), f"{T}.math.clampMax: Required value"),
        (transform("map"), f"{T}.map: Required value"),
        (transform("map", map={}), f"{T}.map: Required value"),
        (transform("match"), f"{T}.match: Required value"),
        (transform("match", match={}), f"{T}.match.patterns: Required value"),
        (transform("match", match={"patterns": [{}]}), f"{T}.match.patterns[0].literal: Required value"),
        (
            transform("match", match={"patterns": [{"type": "regexp"}]}),
            f"{T}.match.patterns[0].regexp: Required value",
        ),
        (
            transform("match", match={"patterns": [{"type": "regexp", "regexp": "("}]}),
            f'{T}.match.patterns[0].regexp: Invalid value: "(": error parsing regexp',
        ),
        (
            transform("match", match={"patterns": [{"type": "glob"}]}),
            f'{T}.match.patterns[0].type: Invalid value: "glob"',
        ),
        (
            transform("match", match={"patterns": [{"literal": "a"}], "fallbackTo": "Nothing"}),
            f'{T}.match.fallbackTo: Invalid value: "Nothing"',
        ),
        (transform("string"), f"{T}.string: Required value"),
        (transform("string", string={}), f"{T}.string.fmt: Required value"),
        (transform("string", string={"type": "Convert"}), f"{T}.string.convert: Required value"),
        (
            transform("string", string={"type": "Convert", "convert": "ToRot13"}),
            "type ToRot13 is not supported for string convert",
        ),
        (transform("string", string={"type": "TrimPrefix"}), f"{T}.string.trim: Required value"),
        (transform("string", string={"type": "TrimSuffix"}), f"{T}.string.trim: Required value"),
        (transform("string", string={"type": "Regexp"}), f"{T}.string.regexp: Required value"),
        (transform("string", string={"type": "Regexp", "regexp": {}}), f"{T}.string.regexp.match: Required value"),
        (
            transform("string", string={"type": "Regexp", "regexp": {"match": "(?=x)"}}),
            f'{T}.string.regexp.match: Invalid value: "(?=x)": error parsing regexp',
        ),
        (
            transform("string", string={"type": "Regexp", "regexp": {"match": "x", "group": -1}}),
            f"{T}.string.regexp.group: Invalid value: -1",
        ),
        (transform("string", string={"type": "Join"}), f"{T}.string.join: Required value"),
        (transform("string", string={"type": "Replace"}), f"{T}.string.replace: Required value"),
        (transform("string", string={"type": "Replace", "replace": {}}), f"{T}.string.replace.search: Required value"),
        (transform("string", string={"type": "Reverse"}), f'{T}.string.type: Invalid value: "Reverse"'),
        (transform("convert"), f"{T}.convert: Required value"),
        (transform("convert", convert={}), f"{T}.convert.toType: Required value"),
        (transform("convert", convert={"toType": "int32"}), f'{T}.convert.toType: Invalid value: "int32"'),
        (
            transform("convert", convert={"toType": "int", "format": "yaml"}),
            f'{T}.convert.format: Invalid value: "yaml"',
        ),
        (check(), f"{R}.type: Required value"),
        (check(type="Match"), f'{R}.type: Invalid value: "Match"'),
        (check(type="NonEmpty"), f"{R}.fieldPath: Required value"),
        (check(type="MatchString", fieldPath="a"), f"{R}.matchString: Required value"),
        (check(type="MatchInteger", fieldPath="a"), f"{R}.matchInteger: Required value"),
        (check(type="MatchTrue"), f"{R}.fieldPath: Required value"),
        (check(type="MatchFalse"), f"{R}.fieldPath: Required value"),
        (check(type="MatchCondition", matchCondition={"type": ""}), f"{R}.matchCondition.type: Required value"),
        (check(type="MatchCondition", matchCondition={"status": ""}), f"{R}.matchCondition.status: Required value"),
        (detail(type="FromValue", value="x"), f"{C}.name: Required value"),
        (detail(name="x"), f"{C}.type: Required value"),
        (detail(name="x", value="a", fromFieldPath="b"), f"{C}.type: Required value"),
        (detail(name="x", type="FromSky"), f'{C}.type: Invalid value: "FromSky"'),
        (detail(name="x", type="FromValue"), f"{C}.value: Required value"),
        (detail(name="x", type="FromFieldPath"), f"{C}.fromFieldPath: Required value"),
        (detail(name="x", type="FromFieldPath", fromFieldPath="a["), f'{C}.fromFieldPath: Invalid value: "a["'),
        (detail(name="x", type="FromConnectionSecretKey"), f"{C}.fromConnectionSecretKey: Required value"),
        (
            resources(template(), writeConnectionSecretToRef={"patches": [{**COPY, "type": "ToCompositeFieldPath"}]}),
            'writeConnectionSecretToRef.patches[0].type: Invalid value: "ToCompositeFieldPath"',
        ),
        (
            resources(template(), writeConnectionSecretToRef={"patches": [COPY]}),
            'writeConnectionSecretToRef.patches[0].toFieldPath: Invalid value: "spec.to": must be name or namespace',
        ),
        (
            resources(environment={"environmentConfigs": [{}]}),
            "environment.environmentConfigs[0].ref: Required value",
        ),
    ],
)
def test_what_is_wrong_is_found_before_anything_runs(spec: Object, problem: str) -> None:
    assert problem in fatal(run(spec))


def test_a_combine_patch_needs_a_target_and_its_transforms_and_policy_are_checked() -> None:
    spec = combining()
    del spec["resources"][0]["patches"][0]["toFieldPath"]
    assert f"{P}.toFieldPath: Required value" in fatal(run(spec))
    spec["resources"][0]["patches"][0] |= {
        "toFieldPath": "x",
        "transforms": [{"type": "math"}],
        "policy": {"toFieldPath": "Sometimes"},
    }
    failure = fatal(run(spec))
    assert f"{T}.math: Required value" in failure
    assert f'{P}.policy.toFieldPath: Invalid value: "Sometimes"' in failure


def test_one_error_stands_alone_and_several_are_listed_together() -> None:
    one = fatal(run(patch(fromFieldPath="")))
    assert one == (
        "invalid Function input: resources[0].patches[0].fromFieldPath: Required value: fromFieldPath must be set for "
        'patch type FromCompositeFieldPath (composed resource "thing")'
    )
    several = fatal(run(resources(template({"fromFieldPath": ""}, {"type": "X"}))))
    assert several.startswith("invalid Function input: [resources[0].patches[0].fromFieldPath: Required value")
    assert several.endswith(
        'resources[0].patches[1].type: Invalid value: "X": invalid patch type (composed resource "thing")]'
    )


# --- templates --------------------------------------------------------------------------------------------------------


def test_a_base_becomes_the_resource_and_others_pass_through() -> None:
    other = Resource({**BASE, "spec": {"other": True}}, ready=Ready.TRUE)
    response = run(resources(template(base={**BASE, "spec": {"x": 1.0}})), desired={"other": other})
    assert response.desired.resources == {"other": other, "thing": Resource({**BASE, "spec": {"x": 1}})}
    assert repr(rendered(response)["spec"]) == "{'x': 1}"


def test_a_base_replaces_what_an_earlier_function_desired_under_its_name() -> None:
    earlier = Resource({**BASE, "spec": {"earlier": True}}, ready=Ready.TRUE)
    response = run(resources(template()), desired={"thing": earlier})
    assert response.desired.resources == {"thing": Resource(BASE)}


def test_a_template_without_base_patches_what_an_earlier_function_desired_and_keeps_its_readiness() -> None:
    earlier = Resource({**BASE, "spec": {"earlier": True}}, ready=Ready.FALSE)
    response = run(resources(template(COPY, base=None)), desired={"thing": earlier})
    made = Resource({**BASE, "spec": {"earlier": True, "to": "xr"}}, ready=Ready.FALSE)
    assert response.desired.resources == {"thing": made}


def test_a_template_without_base_that_nobody_desired_is_fatal() -> None:
    assert fatal(run(resources(template(base=None)))) == (
        'composed resource "thing" has no base template, and was not produced by a previous Function in the pipeline'
    )


@pytest.mark.parametrize("base", ["text", 5, [1], {}, {"apiVersion": "v1"}, {"kind": 5}, {"kind": ""}])
def test_a_base_must_be_an_object_with_a_kind(base: Any) -> None:
    assert fatal(run(resources(template(base=base)))).startswith(
        'cannot parse base template of composed resource "thing"'
    )


@pytest.mark.parametrize(
    ("base", "observed", "metadata"),
    [
        ({}, {"name": "o", "namespace": "n"}, {"name": "o", "namespace": "n"}),
        ({"name": "b", "labels": {"x": "y"}}, {"name": "o"}, {"name": "o", "labels": {"x": "y"}}),
        ({"name": "b", "namespace": "b"}, {"name": "o"}, {"name": "o"}),
        ({"name": "b", "labels": {}}, {}, {"labels": {}}),
        ({"generateName": "b-"}, {"name": "b-1"}, {"generateName": "b-", "name": "b-1"}),
    ],
)
def test_a_resource_that_exists_keeps_its_identity(base: Object, observed: Object, metadata: Object) -> None:
    response = run(
        resources(template(base={**BASE, "metadata": base})), observed={"thing": {**BASE, "metadata": observed}}
    )
    assert rendered(response)["metadata"] == metadata


def test_a_patch_to_the_name_beats_the_observed_name() -> None:
    name = {"fromFieldPath": "metadata.name", "toFieldPath": "metadata.name"}
    response = run(resources(template(name)), observed={"thing": {**BASE, "metadata": {"name": "old"}}})
    assert rendered(response)["metadata"] == {"name": "xr"}


def test_the_desired_xr_has_the_type_of_the_observed_one_and_keeps_what_was_desired() -> None:
    desired = Resource({"status": {"x": 1}}, {"k": b"v"}, Ready.TRUE)
    composite = run(resources(template()), desired_xr=desired).desired.composite
    assert composite == Resource(
        {"apiVersion": XR["apiVersion"], "kind": "XR", "status": {"x": 1}}, {"k": b"v"}, Ready.TRUE
    )


def test_a_fatal_result_leaves_desired_state_and_context_exactly_as_received() -> None:
    good = template(COPY, {"type": "ToEnvironmentFieldPath", "fromFieldPath": "kind", "toFieldPath": "x"}, name="good")
    waiting = template({"fromFieldPath": "spec.no", "policy": {"fromFieldPath": "Required"}}, name="waiting")
    bad = template({"fromFieldPath": "metadata.name.x"}, name="bad")
    earlier = {"good": Resource({**BASE, "spec": {"earlier": True}})}
    asked = request(
        resources(good, waiting, bad),
        observed={"good": BASE},
        desired=earlier,
        desired_xr=Resource({"status": {}}, ready=Ready.TRUE),
        context={ENVIRONMENT: {"a": 1}},
    )
    response = function(asked)
    assert response.desired == asked.desired
    assert response.context == asked.context
    assert response.tag == asked.tag
    assert len(warnings(response)) == 1, "warnings from before stay"
    assert fatal(response).endswith('"FromCompositeFieldPath" patch at index 0: metadata.name: not an object')


def test_an_answer_echoes_the_tag_has_no_ttl_and_talks_to_the_composite_only() -> None:
    response = run(resources(template({"fromFieldPath": "spec.no", "policy": {"fromFieldPath": "Required"}})))
    assert (response.tag, response.ttl) == ("t", None)
    assert {result.target for result in response.results} == {Target.COMPOSITE}


def test_an_input_is_compiled_once() -> None:
    spec = resources(template(COPY, name="compiled-once"))
    before = function._program.cache_info().misses
    for _ in range(5):
        run(dict(spec))
    assert function._program.cache_info().misses == before + 1


# --- readiness --------------------------------------------------------------------------------------------------------


def readiness(observed: Object, *checks: Object) -> tuple[bool, list[str]]:
    response = run(resources(template(readinessChecks=list(checks))), observed={"thing": {**BASE, **observed}})
    assert response.fatal is None
    ready = response.desired.resources["thing"].ready
    assert ready in (Ready.TRUE, Ready.UNSPECIFIED), "never an explicit no"
    return ready is Ready.TRUE, warnings(response)


def conditions(**statuses: str) -> Object:
    return {"status": {"conditions": [{"type": kind, "status": status} for kind, status in statuses.items()]}}


@pytest.mark.parametrize(
    ("observed", "checks", "ready"),
    [
        (conditions(Ready="True"), [], True),
        (conditions(Ready="False"), [], False),
        (conditions(Synced="True"), [], False),
        ({}, [], False),
        ({}, [{"type": "None"}], True),
        ({"status": {"x": ""}}, [{"type": "NonEmpty", "fieldPath": "status.x"}], True),
        ({"status": {"x": 0}}, [{"type": "NonEmpty", "fieldPath": "status.x"}], True),
        ({"status": {"x": None}}, [{"type": "NonEmpty", "fieldPath": "status.x"}], True),
        ({"status": {}}, [{"type": "NonEmpty", "fieldPath": "status.x"}], False),
        ({"status": {"x": "on"}}, [{"type": "MatchString", "fieldPath": "status.x", "matchString": "on"}], True),
        ({"status": {"x": "off"}}, [{"type": "MatchString", "fieldPath": "status.x", "matchString": "on"}], False),
        ({}, [{"type": "MatchString", "fieldPath": "status.x", "matchString": "on"}], False),
        ({"status": {"x": 3}}, [{"type": "MatchInteger", "fieldPath": "status.x", "matchInteger": 3}], True),
        ({"status": {"x": 3.0}}, [{"type": "MatchInteger", "fieldPath": "status.x", "matchInteger": 3}], True),
        ({"status": {"x": 0}}, [{"type": "MatchInteger", "fieldPath": "status.x", "matchInteger": 0}], True),
        ({"status": {"x": 4}}, [{"type": "MatchInteger", "fieldPath": "status.x", "matchInteger": 3}], False),
        ({}, [{"type": "MatchInteger", "fieldPath": "status.x", "matchInteger": 0}], False),
        ({"status": {"x": True}}, [{"type": "MatchTrue", "fieldPath": "status.x"}], True),
        ({"status": {"x": False}}, [{"type": "MatchTrue", "fieldPath": "status.x"}], False),
        ({}, [{"type": "MatchTrue", "fieldPath": "status.x"}], False),
        ({"status": {"x": False}}, [{"type": "MatchFalse", "fieldPath": "status.x"}], True),
        ({"status": {"x": True}}, [{"type": "MatchFalse", "fieldPath": "status.x"}], False),
        ({}, [{"type": "MatchFalse", "fieldPath": "status.x"}], False),
        (conditions(Ready="True"), [{"type": "MatchCondition"}], True),
        (conditions(Up="No"), [{"type": "MatchCondition", "matchCondition": {"type": "Up", "status": "No"}}], True),
        (conditions(Up="Yes"), [{"type": "MatchCondition", "matchCondition": {"type": "Up", "status": "No"}}], False),
        ({"status": {}}, [{"type": "MatchCondition", "matchCondition": {"type": "Up", "status": "Unknown"}}], True),
        ({}, [{"type": "MatchCondition", "matchCondition": {"type": "Up", "status": "Unknown"}}], False),
        (conditions(Ready="True"), [{"type": "None"}, {"type": "NonEmpty", "fieldPath": "status.x"}], False),
        (conditions(Ready="True"), [{"type": "MatchCondition"}, {"type": "NonEmpty", "fieldPath": "kind"}], True),
    ],
)
def test_readiness_checks(observed: Object, checks: list[Object], ready: bool) -> None:
    assert readiness(observed, *checks) == (ready, [])


@pytest.mark.parametrize(
    ("check", "value", "complaint"),
    [
        ({"type": "MatchString", "matchString": "x"}, 5, "not a string"),
        ({"type": "MatchInteger", "matchInteger": 1}, "1", "not a (int64) number"),
        ({"type": "MatchInteger", "matchInteger": 1}, True, "not a (int64) number"),
        ({"type": "MatchInteger", "matchInteger": 1}, 1.5, "not a (int64) number"),
        ({"type": "MatchTrue"}, "true", "not a bool"),
        ({"type": "MatchFalse"}, 0, "not a bool"),
    ],
)
def test_a_check_that_meets_another_type_is_a_warning(check: Object, value: Any, complaint: str) -> None:
    assert readiness({"status": {"x": value}}, {"type": "None"}, {**check, "fieldPath": "status.x"}) == (
        False,
        [
            'cannot check readiness of composed resource "thing": cannot run readiness check at index 1: status.x: '
            + complaint
        ],
    )


def test_a_resource_that_does_not_exist_is_not_ready_whatever_its_checks() -> None:
    response = run(resources(template(readinessChecks=[{"type": "None"}])))
    assert response.desired.resources["thing"].ready is Ready.UNSPECIFIED


# --- connection details -----------------------------------------------------------------------------------------------

DETAILS = [
    {"name": "password", "type": "FromConnectionSecretKey", "fromConnectionSecretKey": "pw"},
    {"name": "absent", "type": "FromConnectionSecretKey", "fromConnectionSecretKey": "nope"},
    {"name": "host", "type": "FromFieldPath", "fromFieldPath": "status.host"},
    {"name": "ports", "type": "FromFieldPath", "fromFieldPath": "status.ports"},
    {"name": "missing", "type": "FromFieldPath", "fromFieldPath": "status.nope"},
    {"name": "wrong", "type": "FromFieldPath", "fromFieldPath": "status.host.x"},
    {"name": "scheme", "type": "FromValue", "value": "https"},
]
DATABASE = Resource({**BASE, "status": {"host": "h", "ports": [1, 2.0]}}, {"pw": b"\x00secret", "other": b"x"})
COLLECTED = {"password": b"\x00secret", "host": b"h", "ports": b"[1,2]", "scheme": b"https"}


def test_connection_details_are_collected_from_what_exists() -> None:
    response = run(resources(template(connectionDetails=DETAILS)), observed={"thing": DATABASE})
    assert response.desired.composite.connection_details == COLLECTED
    assert response.results == []


def test_connection_details_wait_for_the_resource_even_if_their_value_is_fixed() -> None:
    assert run(resources(template(connectionDetails=DETAILS))).desired.composite.connection_details == {}


def test_later_connection_details_win_and_those_of_earlier_functions_stay() -> None:
    value = {"type": "FromValue", "name": "k"}
    spec = resources(
        template(connectionDetails=[{**value, "value": "one"}], name="one"),
        template(connectionDetails=[{**value, "value": "two"}], name="two"),
    )
    earlier = Resource({}, {"k": b"earlier", "kept": b"kept"})
    response = run(spec, observed={"one": BASE, "two": BASE}, desired_xr=earlier)
    assert response.desired.composite.connection_details == {"k": b"two", "kept": b"kept"}
    assert earlier.connection_details == {"k": b"earlier", "kept": b"kept"}


def test_the_type_of_a_connection_detail_follows_from_the_member_it_has() -> None:
    details = [
        {"fromConnectionSecretKey": "pw"},
        {"name": "h", "fromFieldPath": "status.host"},
        {"name": "v", "value": ""},
    ]
    response = run(resources(template(connectionDetails=details)), observed={"thing": DATABASE})
    assert response.desired.composite.connection_details == {"pw": b"\x00secret", "h": b"h", "v": b""}


def secret(
    ref: Object | None = None, *, written: Object | None = None, namespace: str | None = "ns"
) -> FunctionResponse:
    metadata = {"name": "xr"} | ({"namespace": namespace} if namespace else {})
    xr_spec: Object = {"crossplane": {}, "team": "blue", "n": 5} | (
        {"writeConnectionSecretToRef": written} if written else {}
    )
    spec = resources(template(connectionDetails=DETAILS), **({"writeConnectionSecretToRef": ref} if ref else {}))
    return run(spec, xr={"metadata": metadata, "spec": xr_spec}, observed={"thing": DATABASE})


def test_an_xr_of_the_newer_kind_gets_a_secret_composed() -> None:
    made = secret().desired.resources["xr-connection-secret"]
    assert made.ready is Ready.TRUE
    assert made.resource == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "xr-connection", "namespace": "ns"},
        "type": "connection.crossplane.io/v1alpha1",
        "data": {key: base64.b64encode(value).decode() for key, value in COLLECTED.items()},
    }


TO_NAME = {"fromFieldPath": "spec.team", "toFieldPath": "name"}
COMBINED = {
    "type": "CombineFromComposite",
    "combine": {
        "variables": [{"fromFieldPath": "spec.team"}, {"fromFieldPath": "metadata.name"}],
        "strategy": "string",
        "string": {"fmt": "%s-%s"},
    },
    "toFieldPath": "namespace",
}


@pytest.mark.parametrize(
    ("ref", "written", "place"),
    [
        (None, None, ("xr-connection", "ns")),
        ({"name": "n", "namespace": "m"}, None, ("n", "m")),
        ({"name": "n", "namespace": "m"}, {"name": "own", "namespace": "mine"}, ("own", "mine")),
        ({"namespace": "m"}, None, (None, "m")),
        ({"patches": [TO_NAME]}, None, ("blue", "ns")),
        ({"patches": [COMBINED]}, None, ("xr-connection", "blue-xr")),
        ({"patches": [TO_NAME, COMBINED]}, {"name": "own", "namespace": "mine"}, ("blue", "blue-xr")),
        ({"name": "n", "namespace": "m", "patches": [TO_NAME]}, None, ("blue", "m")),
        ({"patches": [{**TO_NAME, "fromFieldPath": "spec.nope"}]}, None, ("xr-connection", "ns")),
        ({"patches": [{**TO_NAME, "fromFieldPath": "spec.team.x"}]}, None, ("xr-connection", "ns")),
        ({"patches": [{**TO_NAME, "fromFieldPath": "spec.n"}]}, None, ("xr-connection", "ns")),
    ],
)
def test_where_the_secret_goes(ref: Object | None, written: Object | None, place: tuple[str | None, str]) -> None:
    metadata = rendered(secret(ref, written=written), "xr-connection-secret")["metadata"]
    assert (metadata.get("name"), metadata.get("namespace")) == place


def test_an_input_with_a_name_only_leaves_the_namespace_to_that_of_the_xr() -> None:
    assert rendered(secret({"name": "n"}), "xr-connection-secret")["metadata"] == {"name": "n"}
    assert "nothing says which namespace the Secret goes to" in fatal(secret({"name": "n"}, namespace=None))


def test_a_cluster_scoped_xr_needs_a_namespace_for_its_secret() -> None:
    assert fatal(secret(namespace=None)).startswith("cannot compose connection secret: ")
    made = rendered(secret({"name": "n", "namespace": "m"}, namespace=None), "xr-connection-secret")
    assert made["metadata"] == {"name": "n", "namespace": "m"}


@pytest.mark.parametrize(
    "broken",
    [
        {**TO_NAME, "fromFieldPath": "spec.nope", "policy": {"fromFieldPath": "Required"}},
        {**COMBINED, "combine": {**COMBINED["combine"], "variables": [{"fromFieldPath": "spec.nope"}]}},  # type: ignore[dict-item]
    ],
)
def test_a_patch_of_the_secret_that_must_apply_and_cannot_is_fatal(broken: Object) -> None:
    assert fatal(secret({"patches": [broken]})).startswith("cannot compose connection secret: ")


def test_there_is_no_secret_without_details_or_for_an_xr_of_the_older_kind() -> None:
    xr = {"metadata": {"name": "xr", "namespace": "ns"}, "spec": {"crossplane": {}}}
    assert list(run(resources(template()), xr=xr, observed={"thing": DATABASE}).desired.resources) == ["thing"]
    older = run(resources(template(connectionDetails=DETAILS)), observed={"thing": DATABASE})
    assert list(older.desired.resources) == ["thing"]


def test_inherited_details_alone_compose_a_secret() -> None:
    xr = {"metadata": {"name": "xr", "namespace": "ns"}, "spec": {"crossplane": {}}}
    response = run(resources(template()), xr=xr, desired_xr=Resource({}, {"k": b"v"}))
    assert rendered(response, "xr-connection-secret")["data"] == {"k": "dg=="}


# --- the designs' inputs ----------------------------------------------------------------------------------------------


def native(*templates: Object, **more: Any) -> Object:
    return {**resources(*templates, **more), "apiVersion": "apiextensions.crossplane.io/v1"}


def test_the_resources_of_a_composition_are_read_too() -> None:
    assert rendered(run(native(template(COPY))))["spec"] == {"to": "xr"}


@pytest.mark.parametrize(
    ("options", "result"),
    [
        (None, {"l": [2], "k": "new"}),
        ({}, {"l": [2], "k": "new", "o": 1}),
        ({"keepMapValues": True}, {"l": [1], "k": "old", "o": 1}),
        ({"appendSlice": True}, {"l": [1, 2], "k": "new", "o": 1}),
        ({"appendSlice": True, "keepMapValues": True}, {"l": [1, 2], "k": "old", "o": 1}),
    ],
)
def test_merge_options_of_a_composition_mean_a_policy(options: Object | None, result: Object) -> None:
    policy = {} if options is None else {"policy": {"mergeOptions": options}}
    merging = {"fromFieldPath": "spec.from", "toFieldPath": "spec.to", **policy}
    base = {**BASE, "spec": {"to": {"l": [1], "k": "old", "o": 1}}}
    for spec in (
        native(template(merging, base=base)),
        native(
            template({"type": "PatchSet", "patchSetName": "s"}, base=base),
            patchSets=[{"name": "s", "patches": [merging]}],
        ),
    ):
        assert rendered(run(spec, xr={"spec": {"from": {"l": [2], "k": "new"}}}))["spec"]["to"] == result


def test_environment_configs_of_the_input_are_asked_for_and_then_merged() -> None:
    spec = resources(
        template({"type": "FromEnvironmentFieldPath", "fromFieldPath": "complex.c", "toFieldPath": "spec.to"}),
        environment={
            "defaultData": {"complex": {"c": "default", "d": 1}},
            "environmentConfigs": [
                {"ref": {"name": "one"}},
                {
                    "type": "Selector",
                    "selector": {
                        "mode": "Multiple",
                        "sortByFieldPath": "data.priority",
                        "matchLabels": [{"key": "stage", "valueFromFieldPath": "metadata.labels[stage]"}],
                    },
                },
            ],
        },
    )
    asked = request(spec, xr={"metadata": {"name": "xr", "labels": {"stage": "prod"}}})
    first = function(asked)
    api_version = "apiextensions.crossplane.io/v1beta1"
    wanted = {
        "environment-config-0": ResourceSelector(api_version, "EnvironmentConfig", match_name="one"),
        "environment-config-1": ResourceSelector(api_version, "EnvironmentConfig", match_labels={"stage": "prod"}),
    }
    assert first.requirements.resources == wanted
    assert (first.desired, first.context, first.results) == (asked.desired, {}, [])
    asked.required_resources = {
        "environment-config-0": [Resource({"data": {"complex": {"c": "one"}}})],
        "environment-config-1": [
            Resource({"data": {"priority": 2, "complex": {"c": "second"}}}),
            Resource({"data": {"priority": 1, "complex": {"c": "first", "e": 1}}}),
        ],
    }
    second = function(asked)
    assert second.requirements.resources == wanted
    assert rendered(second)["spec"] == {"to": "second"}
    assert second.context[ENVIRONMENT]["complex"] == {"c": "second", "d": 1, "e": 1}


def test_a_request_without_anything_gets_an_answer() -> None:
    assert fatal(function(FunctionRequest())) == "cannot get Function input: the step has no input"
    empty = function(FunctionRequest(input=resources(template())))
    assert rendered(empty) == BASE
    assert empty.desired.composite.resource == {}


# --- what the published function accepts ------------------------------------------------------------------------------


def test_a_readiness_check_with_a_path_that_does_not_parse_is_a_warning() -> None:
    spec = check(type="NonEmpty", fieldPath="a[")
    assert run(spec).results == []
    response = function(
        FunctionRequest(
            observed=State(resources={"thing": Resource({"apiVersion": "example.org/v1", "kind": "Thing"})}), input=spec
        )
    )
    assert response.fatal is None
    assert "cannot run readiness check at index 0: cannot parse path" in response.results[0].message


def test_an_empty_text_can_be_matched() -> None:
    spec = check(type="MatchString", fieldPath="status.state", matchString="")
    observed = {"apiVersion": "example.org/v1", "kind": "Thing", "status": {"state": ""}}
    response = function(FunctionRequest(observed=State(resources={"thing": Resource(observed)}), input=spec))
    assert response.desired.resources["thing"].ready is Ready.TRUE


def test_two_templates_of_one_name_are_a_warning_and_the_last_counts() -> None:
    response = run(resources(template(), template(COPY)))
    assert [each.message for each in response.results] == [
        'resources[1].name: "thing" is used twice, and the last one of that name counts'
    ]
    assert rendered(response)["spec"] == {"to": "xr"}


def test_a_kind_that_is_no_string_is_refused() -> None:
    spec = resources(template({"fromFieldPath": "spec.number", "toFieldPath": "kind"}))
    xr = {"apiVersion": "example.org/v1", "kind": "XR", "metadata": {"name": "xr"}, "spec": {"number": 5}}
    response = function(FunctionRequest(observed=State(Resource(xr)), input=spec))
    assert response.fatal is not None
    assert 'composed resource "thing": its kind is no string' in response.fatal.message


@pytest.mark.parametrize(
    ("policy", "merged"), [("MergeObjects", {"a": 1}), ("ForceMergeObjects", {"a": None, "b": None})]
)
def test_nulls_of_a_merged_object_count_only_where_the_new_one_wins(policy: str, merged: Object) -> None:
    one = {"fromFieldPath": "spec.object", "toFieldPath": "spec.to", "policy": {"toFieldPath": policy}}
    base = {"apiVersion": "example.org/v1", "kind": "Thing", "spec": {"to": {"a": 1}}}
    spec = resources({"name": "thing", "base": base, "patches": [one]})
    xr = {"metadata": {"name": "xr"}, "spec": {"object": {"a": None, "b": None}}}
    response = function(FunctionRequest(observed=State(Resource(xr)), input=spec))
    assert response.desired.resources["thing"].resource["spec"]["to"] == merged
