"""The data of the built-in kinds: complete, consistent, without words of others, and cheap to load."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from planform.api import builtin
from planform.api.builtin import BUILTIN_KINDS, OTHER_TYPES, resolve, schema_name, schema_of
from planform.api.kinds import GroupVersionKind, gvk


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def reachable(*roots: GroupVersionKind) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    pending = [schema_name(root) for root in roots]
    while pending:
        name = pending.pop().removeprefix("#/components/schemas/")
        if name not in found:
            found[name] = resolve(name)
            pending += references(found[name])
    return found


ALL_GVKS = [*(kind.gvk for kind in BUILTIN_KINDS), *OTHER_TYPES]


@pytest.mark.parametrize("kind", BUILTIN_KINDS, ids=lambda kind: str(kind.gvk))
def test_every_kind_has_a_schema_that_names_it(kind: Any) -> None:
    schema = schema_of(kind.gvk)
    assert schema["type"] == "object"
    assert schema["x-kubernetes-group-version-kind"] == [kind.gvk._asdict()]
    assert {"apiVersion", "kind", "metadata"} <= set(schema["properties"])


def test_every_reference_leads_somewhere() -> None:
    assert len(reachable(*ALL_GVKS)) > 300


def test_no_schema_carries_words_or_go_zero_values() -> None:
    for name, schema in reachable(*ALL_GVKS).items():
        assert "description" not in schema, name
        for field, value in schema.get("properties", {}).items():
            assert not isinstance(value.get("description"), str), (name, field)
            assert value.get("default", "x") not in ({}, 0, False), (name, field)
            if field in schema.get("required", ()):
                assert "default" not in value, (name, field)


def test_names_are_unique_so_that_discovery_is_unambiguous() -> None:
    assert len({(kind.resource, kind.version) for kind in BUILTIN_KINDS}) == len(BUILTIN_KINDS)
    core = [
        name for kind in BUILTIN_KINDS if not kind.group for name in (kind.plural, kind.singular, *kind.short_names)
    ]
    assert len(core) - len(set(core)) == 1  # endpoints is its own singular


def test_reviews_can_only_be_created() -> None:
    reviews = {kind.kind for kind in BUILTIN_KINDS if kind.verbs == ("create",)}
    assert reviews == {
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
        "TokenReview",
    }


def field_of(api_version: str, kind: str, path: str) -> Mapping[str, Any]:
    """The schema at a dotted path, through references, list items and map values."""
    schema = schema_of(gvk(api_version, kind))
    for step in path.split("."):
        schema = schema["properties"][step]
        if step != path.rpartition(".")[2]:
            schema = schema.get("items") or schema
            ref = schema.get("$ref") or (schema["allOf"][0]["$ref"] if "allOf" in schema else None)
            schema = resolve(ref) if ref else schema
    return schema


@pytest.mark.parametrize(
    ("api_version", "kind", "path", "merge_key"),
    [
        ("v1", "ConfigMap", "metadata.ownerReferences", "uid"),
        ("v1", "ServiceAccount", "secrets", "name"),
        ("v1", "Service", "spec.ports", "port"),
        ("apps/v1", "Deployment", "status.conditions", "type"),
        ("apps/v1", "Deployment", "spec.template.spec.containers", "name"),
        ("apps/v1", "Deployment", "spec.template.spec.containers.env", "name"),
        ("apps/v1", "Deployment", "spec.template.spec.containers.ports", "containerPort"),
        ("apps/v1", "Deployment", "spec.template.spec.containers.volumeMounts", "mountPath"),
        ("apps/v1", "Deployment", "spec.template.spec.containers.volumeDevices", "devicePath"),
        ("apps/v1", "Deployment", "spec.template.spec.hostAliases", "ip"),
        ("apps/v1", "Deployment", "spec.template.spec.imagePullSecrets", "name"),
        ("apps/v1", "Deployment", "spec.template.spec.topologySpreadConstraints", "topologyKey"),
        ("apps/v1", "Deployment", "spec.template.spec.volumes", "name"),
    ],
)
def test_lists_carry_the_merge_keys_of_strategic_patches(
    api_version: str, kind: str, path: str, merge_key: str
) -> None:
    field = field_of(api_version, kind, path)
    assert field["x-kubernetes-patch-merge-key"] == merge_key
    assert "merge" in field["x-kubernetes-patch-strategy"]


def test_finalizers_merge_by_value_and_image_pull_secrets_of_a_service_account_do_not() -> None:
    finalizers = field_of("v1", "ConfigMap", "metadata.finalizers")
    assert (finalizers["x-kubernetes-list-type"], finalizers["x-kubernetes-patch-strategy"]) == ("set", "merge")
    assert "x-kubernetes-patch-strategy" not in field_of("v1", "ServiceAccount", "imagePullSecrets")


def test_a_strategy_besides_a_reference_survives() -> None:
    strategy = field_of("apps/v1", "Deployment", "spec.strategy")
    assert strategy["x-kubernetes-patch-strategy"] == "retainKeys"
    assert strategy["allOf"][0]["$ref"].endswith(".DeploymentStrategy")


def test_defaults_that_list_keys_need_are_there() -> None:
    assert field_of("v1", "Service", "spec.ports.protocol")["default"] == "TCP"
    assert field_of("v1", "Pod", "spec.containers.ports.protocol")["default"] == "TCP"
    assert field_of("v1", "Pod", "spec.imagePullSecrets.name")["default"] == ""


def test_types_that_generic_schema_code_must_not_prune_or_split_say_so() -> None:
    assert resolve("io.k8s.apimachinery.pkg.util.intstr.IntOrString")["x-kubernetes-int-or-string"]
    for name in (
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    ):
        assert resolve(name)["x-kubernetes-preserve-unknown-fields"]


def test_a_bare_name_and_a_reference_resolve_alike_and_a_wrong_one_does_not() -> None:
    name = "io.k8s.api.core.v1.Pod"
    assert resolve(f"#/components/schemas/{name}") is resolve(name)
    with pytest.raises(KeyError):
        schema_of(gvk("example.org/v1", "Widget"))


def test_messages_exist_for_every_kind_and_agree_with_its_schema() -> None:
    table = builtin.protobuf_table()
    for kind in BUILTIN_KINDS:
        fields = {field.json for field in table.root(kind.api_version, kind.kind).fields.values()}
        assert fields | {"apiVersion", "kind"} == set(schema_of(kind.gvk)["properties"]), kind.gvk


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("io.k8s.api.core.v1.ConfigMap", {1: "metadata", 2: "data", 3: "binaryData", 4: "immutable"}),
        ("io.k8s.api.core.v1.Secret", {1: "metadata", 2: "data", 3: "type", 4: "stringData", 5: "immutable"}),
        (
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            {1: "name", 3: "namespace", 5: "uid", 6: "resourceVersion", 11: "labels", 14: "finalizers"}
            | {8: "creationTimestamp", 13: "ownerReferences", 17: "managedFields"},
        ),
    ],
)
def test_field_numbers_are_those_of_the_wire(name: str, numbers: dict[int, str]) -> None:
    fields = builtin.protobuf_table().message(name).fields
    assert {number: fields[number].json for number in numbers} == numbers


def test_named_lists_are_lists_in_json() -> None:
    table = builtin.protobuf_table()
    for kind in ("authentication.v1.AttestationValue", "authentication.v1.ExtraValue", "authorization.v1.ExtraValue"):
        assert table.message(f"io.k8s.api.{kind}").form == "items"


def test_descriptions_are_ours_short_and_about_fields_that_exist() -> None:
    named = 0
    for name, schema in reachable(*ALL_GVKS).items():
        words = builtin.descriptions_of(name)
        named += len(words)
        assert set(words) - {""} <= set(schema.get("properties", ())), name
        assert all(len(text) < 160 and text.endswith(".") for text in words.values()), name
    assert named == sum(map(len, builtin._descriptions().values()))
    undescribed = [kind.gvk for kind in BUILTIN_KINDS if not builtin.descriptions_of(schema_name(kind.gvk)).get("")]
    assert not undescribed


def test_importing_reads_no_data_and_loading_all_of_it_is_quick() -> None:
    program = (
        "import planform.api.builtin as b; assert b._facts.cache_info().currsize == 0; "
        "b.kubernetes_version(); assert b._facts.cache_info().currsize == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

    def load() -> float:
        builtin._facts.cache_clear()
        started = time.perf_counter()
        builtin.kubernetes_version()
        return time.perf_counter() - started

    assert min(load() for _ in range(5)) < 0.060
