"""kcl: what programs are given, what becomes of what they give, and what keeps them in bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from planform.builtin.catalogue import find_builtin_name
from planform.builtin.kcl import TIME_TTL, ModularRequest, function
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Resource,
    ResourceSelector,
    Result,
    Severity,
    State,
    Status,
    Target,
)

pytest.importorskip("kcl_lib", reason="the extra `kcl` is not installed")

XR: Object = {"apiVersion": "example.org/v1", "kind": "XR", "metadata": {"name": "cool-xr"}, "spec": {"count": 2}}
CD: Object = {"apiVersion": "example.org/v1", "kind": "CD", "metadata": {"name": "cool-cd"}}


def ask(source: str, *, desired: State | None = None, xr: Object = XR, **spec: Any) -> FunctionRequest:
    given = {
        "apiVersion": "krm.kcl.dev/v1alpha1",
        "kind": "KCLInput",
        "metadata": {"name": "basic"},
        "spec": {"source": source, **spec},
    }
    return FunctionRequest(observed=State(Resource(xr)), desired=desired or State(), input=given)


def call(source: str, **given: Any) -> FunctionResponse:
    return function.call(ModularRequest(ask(source, **given)))


def composed(response: FunctionResponse) -> dict[str, Object]:
    assert response.fatal is None, response.fatal
    return {name: one.resource for name, one in response.desired.resources.items()}


def fatal(response: FunctionResponse) -> str:
    assert response.fatal is not None
    return response.fatal.message


def item(kind: str, **members: str) -> str:
    rest = "\n".join(f"{name} = {value}" for name, value in members.items())
    return f'items = [{{\napiVersion = "meta.krm.kcl.dev/v1alpha1"\nkind = "{kind}"\n{rest}\n}}]'


def test_a_lone_object_is_one_resource_named_by_its_metadata() -> None:
    found = composed(call('{apiVersion: "example.org/v1", kind: "Generated", metadata.name: "one"}'))
    assert found == {"one": {"apiVersion": "example.org/v1", "kind": "Generated", "metadata": {"name": "one"}}}


def test_items_are_resources_named_by_their_annotation_which_is_taken_off() -> None:
    source = """
items = [{
    apiVersion = "example.org/v1"
    kind = "Generated"
    metadata.annotations = {"krm.kcl.dev/composition-resource-name" = "n-${i}", "krm.kcl.dev/ready" = "True"}
} for i in range(option("params").oxr.spec.count)]
"""
    response = call(source)
    expected = {"apiVersion": "example.org/v1", "kind": "Generated", "metadata": {"annotations": {}}}
    assert composed(response) == {"n-0": expected, "n-1": expected}
    assert {one.ready for one in response.desired.resources.values()} == {Ready.TRUE}


def test_a_stream_of_documents_is_a_resource_each() -> None:
    source = """
import manifests
manifests.yaml_stream([{kind = "A", metadata.name = "a"}, {kind = "B", metadata.name = "b"}])
"""
    assert sorted(composed(call(source))) == ["a", "b"]
    assert sorted(composed(call('[{kind = "A", metadata.name = "a"}, {kind = "B", metadata.name = "b"}]'))) == [
        "a",
        "b",
    ]


def test_an_object_of_the_xrs_kind_changes_its_status_only() -> None:
    source = """
oxr = option("params").oxr
items = [{**option("params").dxr, status.dummy = "cool", spec.count = 9}]
"""
    response = call(source, desired=State(Resource({"status": {"before": 1}})))
    assert response.desired.composite.resource == {
        "apiVersion": "example.org/v1",
        "kind": "XR",
        "status": {"before": 1, "dummy": "cool"},
    }
    assert composed(response) == {}


def test_a_program_sees_the_whole_request() -> None:
    source = """
p = option("params")
items = [{metadata.name = "seen", data = {
    observed = p.ocds["user"].Resource.spec.name
    secret = p.ocds["user"].ConnectionDetails.key
    desired = p.dcds["cd"].Resource.kind + p.dcds["cd"].Ready
    context = p.ctx["example.org/env"].region
    extra = p.extraResources["all"][0].Resource.kind
    required = [one.Resource.metadata.name for one in p.requiredResources["some"]]
    own = p.own
    version = p.dxr.apiVersion
}}]
"""
    request = ask(source, desired=State(Resource({}), {"cd": Resource(CD, ready=Ready.FALSE)}), params={"own": 7})
    request.observed.resources["user"] = Resource({"spec": {"name": "u"}}, {"key": b"k"})
    request.context = {"example.org/env": {"region": "eu"}}
    request.extra_resources = {"all": [Resource({"kind": "Extra"})]}
    request.required_resources = {"some": [Resource({"metadata": {"name": "r1"}})]}
    seen = composed(function.call(ModularRequest(request)))["seen"]["data"]
    assert seen == {
        "observed": "u",
        "secret": "aw==",
        "desired": "CDFalse",
        "context": "eu",
        "extra": "Extra",
        "required": ["r1"],
        "own": 7,
        "version": "example.org/v1",
    }


def test_the_target_xr_patches_the_desired_xr() -> None:
    source = '{metadata.annotations: {"a.b/c": "true"}, spec.list: [{x: 1}], status.ok = True}'
    response = call(source, target="XR", desired=State(Resource({"spec": {"list": [{"y": 2}, {"z": 3}]}})))
    assert response.desired.composite.resource == {
        "apiVersion": "example.org/v1",
        "kind": "XR",
        "metadata": {"annotations": {"a.b/c": "true"}},
        "spec": {"list": [{"x": 1, "y": 2}, {"z": 3}]},
        "status": {"ok": True},
    }


def test_the_target_patch_desired_patches_by_name_and_keeps_identity() -> None:
    known = Resource({"apiVersion": "v1", "kind": "B", "metadata": {"name": "bucket"}, "spec": {"a": 1, "b": 2}})
    source = '{kind: "Other", metadata.name = "bucket", spec.b = 3}'
    response = call(source, target="PatchDesired", desired=State(Resource({}), {"bucket": known}))
    assert composed(response)["bucket"] == {
        "apiVersion": "v1",
        "kind": "B",
        "metadata": {"name": "bucket"},
        "spec": {"a": 1, "b": 3},
    }


def test_a_patch_that_matches_nothing_names_what_it_looked_for() -> None:
    message = fatal(call('{metadata.name = "bucket"}', target="PatchDesired"))
    assert message.startswith("failed to match all resources, found 0 / 1 patches")
    assert "bucket" in message


def test_the_target_patch_resources_adds_the_bases_of_the_input() -> None:
    base = {"apiVersion": "nobu.dev/v1", "kind": "Bucket", "metadata": {"name": "bucket"}}
    response = call(
        '{metadata.name = "bucket", metadata.annotations: {"krm.kcl.dev/ready": "True"}, spec.network: "n"}',
        target="PatchResources",
        resources=[{"name": "bucket", "base": base}],
    )
    assert composed(response)["bucket"] == {
        **base,
        "metadata": {"name": "bucket", "annotations": {}},
        "spec": {"network": "n"},
    }
    assert response.desired.resources["bucket"].ready is Ready.TRUE
    assert base["metadata"] == {"name": "bucket"}


def test_the_target_resources_lays_members_over_a_desired_resource() -> None:
    known = Resource({"kind": "A", "metadata": {"name": "a"}, "spec": {"x": 1}})
    response = call(
        '{kind: "A", metadata.name = "a", spec.y = 2}', target="Resources", desired=State(Resource({}), {"a": known})
    )
    assert composed(response)["a"] == {"kind": "A", "metadata": {"name": "a"}, "spec": {"y": 2}}


@pytest.mark.parametrize("target", ["Default", "Resources"])
def test_two_resources_of_one_name_are_refused(target: str) -> None:
    source = """
items = [
    {kind = "Generated", metadata = {name = "x", annotations = {"krm.kcl.dev/composition-resource-name" = "dup"}}}
    {kind = "Generated", metadata.name = "dup"}
]
"""
    assert fatal(call(source, target=target)) == (
        'multiple composed resources with name "dup" returned: Generated/x and Generated/dup. Set different'
        ' metadata.name or metadata.annotations."krm.kcl.dev/composition-resource-name" to distinguish them.'
    )


def test_a_resource_may_have_the_name_of_the_patched_xr() -> None:
    source = '[{apiVersion: "example.org/v1", kind: "XR", metadata.name = "n"}, {kind: "G", metadata.name = "n"}]'
    response = call(source)
    assert list(composed(response)) == ["n"]
    assert response.desired.composite.resource["status"] == {}


def test_extra_and_required_resources_are_asked_for() -> None:
    extra = item(
        "ExtraResources",
        requirements='{one = {apiVersion = "v1", kind = "K", matchName = "n", matchNamespace = "ns"},'
        ' many = {apiVersion = "v1", kind = "K", matchLabels = {a = "b"}}, every = {apiVersion = "v1", kind = "K"}}',
    )
    assert call(extra).requirements.extra_resources == {
        "one": ResourceSelector("v1", "K", "n", None, "ns"),
        "many": ResourceSelector("v1", "K", "", {"a": "b"}),
        "every": ResourceSelector("v1", "K", "", {}),
    }
    required = item("RequiredResources", requirements='{one = {apiVersion = "v1", kind = "K", name = "n"}}')
    assert call(required).requirements.resources == {"one": ResourceSelector("v1", "K", "n")}


def test_conditions_events_context_and_connection_details() -> None:
    condition = (
        '{target = "CompositeAndClaim", condition = {type = "Db", status = "False", reason = "R", message = "m"}}'
    )
    again = '{force = %s, condition = {type = "Db", status = "True", reason = "S"}}'
    response = call(item("Conditions", conditions=f"[{condition}, {again % 'False'}]"))
    assert response.conditions == [Condition("Db", Status.FALSE, "R", "m", Target.COMPOSITE_AND_CLAIM)]
    response = call(item("Conditions", conditions=f"[{condition}, {again % 'True'}]"))
    assert response.conditions[1:] == [Condition("Db", Status.TRUE, "S", "", Target.COMPOSITE)]

    event = '[{event = {type = "Warning", reason = "Limit", message = "too much"}}, {event = {message = "fine"}}]'
    assert call(item("Events", events=event)).results == [
        Result(Severity.WARNING, "too much", "Limit", Target.COMPOSITE),
        Result(Severity.NORMAL, "fine", "", Target.COMPOSITE),
    ]

    request = ask(item("Context", data='{field = "value"}'))
    request.context = {"before": 1}
    assert function.call(ModularRequest(request)).context == {"before": 1, "field": "value"}

    response = call(item("CompositeConnectionDetails", data='{user = "YWJj", bad = "%%"}'))
    assert response.desired.composite.connection_details == {"user": b"abc"}
    assert [result.severity for result in response.results] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("source", "spec", "message"),
    [
        ("", {}, "invalid Function input: spec.source: Required value: kcl source cannot be empty"),
        ("oci://ghcr.io/kcl-lang/x", {}, "is not pinned by its digest"),
        ("{a: 1}", {"dependencies": 'k8s = "1.31"'}, "spec.dependencies"),
        ("import file\na = file.read('/etc/passwd')", {}, "no files to read"),
        ("{a: 1}", {"target": "PatchResources"}, "spec.resources: Required value"),
        ("a = b", {}, "failed to run the KCL program: main.k:1:5: name 'b' is not defined"),
        ('assert False, "nope"', {}, "failed to run the KCL program: main.k:1: nope"),
        ("import k8s.api.core.v1 as c\na = 1", {}, 'there is no module "k8s.api.core.v1"'),
        ("items = [1]", {}, "item 0 of what the KCL program gives is a number, not an object"),
        (item("ClaimConditions"), {}, 'invalid kind "ClaimConditions"'),
        (item("Conditions", conditions='[{condition = {type = "Ready", status = "True"}}]'), {}, "reserved"),
        ('{metadata = {name = "x", annotations = {"krm.kcl.dev/ready" = "Maybe"}}}', {}, "must be True, False"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_a_fatal_result_that_says_where(source: str, spec: Object, message: str) -> None:
    response = call(source, **spec)
    assert message in fatal(response)
    assert response.desired.resources == {}


async def test_outside_a_control_plane_nothing_is_fetched() -> None:
    response = await function.run(ask(f"oci://registry.example.org/x@sha256:{'0' * 64}"), timeout=30)
    assert "fetched by a control plane only" in fatal(response)


def test_any_api_version_and_kind_of_an_input_and_a_source_beside_them_are_read() -> None:
    request = ask("")
    request.input = {"apiVersion": "template.fn.crossplane.io/v1beta1", "kind": "KCLRun", "source": '{kind: "A"}'}
    assert composed(function.call(ModularRequest(request))) == {"": {"kind": "A"}}


def test_an_answer_stays_valid_unless_the_program_asks_for_time_or_randomness() -> None:
    assert call('{kind: "A"}').deterministic
    varying = call('import datetime\nitems = [{kind: "A", at = datetime.now()}]')
    assert not varying.deterministic
    assert varying.ttl == TIME_TTL


async def test_a_program_runs_in_a_worker_that_stays_and_dies_alone() -> None:
    recursing = "f = lambda x { f(x) }\nitems = [{a = f(1)}]"
    first, broken, again = [
        await asyncio.wait_for(function.run(ask(source), timeout=20.0), 60)
        for source in ('{kind: "A"}', recursing, '{kind: "B"}')
    ]
    assert composed(first) == {"": {"kind": "A"}}
    assert "cannot run the KCL program" in fatal(broken) or "failed to run the KCL program" in fatal(broken)
    assert composed(again) == {"": {"kind": "B"}}


def test_the_published_package_means_the_built_in() -> None:
    for reference in ("function-kcl", "xpkg.crossplane.io/crossplane-contrib/function-kcl:v0.11.4", "kcl"):
        found = find_builtin_name(reference)
        assert found is not None and found.name == "kcl"
