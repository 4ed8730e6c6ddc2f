"""Names, labels, annotations, owners and finalizers: what is refused, and in which words."""

from __future__ import annotations

import random
import re
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery import names
from planform.apimachinery.names import NameRule, child_name, generate_name, metadata_warnings, validate_metadata
from planform.errors import FieldError

OWNER: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1"}


def problems(
    metadata: dict[str, Any], *, namespaced: bool = False, rule: NameRule = names.subdomain_problems
) -> list[str]:
    return [str(error) for error in validate_metadata({"name": "n"} | metadata, namespaced=namespaced, name_rule=rule)]


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (
            names.subdomain_problems,
            ["a", "a.b", "0-a.b-c", "a" * 253],
            ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a\n"],
        ),
        (names.label_problems, ["a", "0", "a-b", "a" * 63], ["", "a.b", "a" * 64, "A", "é"]),
        (names.label_1035_problems, ["a", "a0"], ["0a", "a.b", ""]),
        (names.path_segment_problems, ["system:node", "A b", "..."], [".", "..", "a/b", "a%b"]),
        (
            names.qualified_name_problems,
            ["a", "A_b.c", "x.io/Y", "a" * 63],
            ["", "/a", "a/", "a/b/c", "X.io/a", "a" * 64, "a-"],
        ),
        (names.label_value_problems, ["", "A", "a.b_c-d"], ["-a", "a b", "a" * 64, "a\n"]),
        (names.annotation_key_problems, ["X.io/a", "a"], ["a b", ""]),
    ],
)
def test_each_rule_knows_good_from_bad(rule: NameRule, good: list[str], bad: list[str]) -> None:
    assert {text: rule(text) for text in good} == {text: [] for text in good}
    assert [text for text in bad if not rule(text)] == []


def test_a_bad_name_is_refused_in_the_words_of_kubernetes() -> None:
    assert problems({"name": "A_b"}) == [
        'metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
        "characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
        r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    ]


def test_lengths_are_counted_in_bytes() -> None:
    assert names.label_problems("é" * 32)[0] == "must be no more than 63 bytes"
    assert names.subdomain_problems("a" * 254) == ["must be no more than 253 bytes"]


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        ({"name": 3}, "metadata.name: Invalid value: 3: must be a string"),
        ({"namespace": "x"}, "metadata.namespace: Forbidden: not allowed on this type"),
        ({"labels": {"a": 1}}, "metadata.labels.a: Invalid value: 1: must be a string"),
        ({"labels": ["a"]}, 'metadata.labels: Invalid value: ["a"]: must be a map of strings'),
        (
            {"annotations": {"a": "x" * (256 * 1024)}},
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        ({"ownerReferences": "x"}, 'metadata.ownerReferences: Invalid value: "x": must be a list of objects'),
        (
            {"ownerReferences": [OWNER | {"uid": ""}]},
            "metadata.ownerReferences[0].uid: Required value: must not be empty",
        ),
        (
            {"ownerReferences": [OWNER | {"apiVersion": ""}]},
            "metadata.ownerReferences[0].apiVersion: Required value: must not be empty",
        ),
        (
            {"ownerReferences": [OWNER | {"name": ["x"]}]},
            'metadata.ownerReferences[0].name: Invalid value: ["x"]: must be a string',
        ),
        ({"finalizers": [1]}, "metadata.finalizers: Invalid value: [1]: must be a list of strings"),
        (
            {"finalizers": ["orphan", "foregroundDeletion"]},
            'metadata.finalizers: Invalid value: ["orphan", "foregroundDeletion"]: '
            "finalizer orphan and foregroundDeletion cannot be both set",
        ),
    ],
)
def test_metadata_that_is_wrong_says_where_and_why(metadata: dict[str, Any], text: str) -> None:
    assert problems(metadata) == [text]


def test_bad_label_key_and_value_are_two_complaints() -> None:
    first, second = problems({"labels": {"a b": "c d"}})
    assert first.startswith('metadata.labels: Invalid value: "a b": name part must consist of alphanumeric')
    assert second.startswith('metadata.labels: Invalid value: "c d": a valid label must be an empty string or consist')


def test_two_controllers_are_one_too_many() -> None:
    owners: list[dict[str, Any]] = [
        OWNER | {"controller": True},
        OWNER | {"uid": "u2", "name": "p", "controller": True},
    ]
    (text,) = problems({"ownerReferences": owners})
    assert text.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for ConfigMap/o and ConfigMap/p'
    )
    assert problems({"ownerReferences": [owners[0], owners[1] | {"controller": False}]}) == []


def test_a_namespaced_object_needs_a_namespace_that_is_a_label() -> None:
    assert problems({}, namespaced=True) == ["metadata.namespace: Required value"]
    assert problems({"namespace": "a.b"}, namespaced=True)[0].startswith(
        'metadata.namespace: Invalid value: "a.b": a low'
    )
    assert problems({"namespace": "ab"}, namespaced=True) == []


def test_a_name_prefix_may_end_in_a_hyphen() -> None:
    assert problems({"generateName": "web-"}) == []
    assert problems({"generateName": "Web-"})[0].startswith('metadata.generateName: Invalid value: "Web-"')


def test_the_kind_chooses_the_rule_for_its_name() -> None:
    assert problems({"name": "system:admin"}, rule=names.path_segment_problems) == []
    assert problems({"name": "a/b"}, rule=names.path_segment_problems) == [
        "metadata.name: Invalid value: \"a/b\": may not contain '/'"
    ]


def test_unwise_metadata_is_warned_about() -> None:
    assert metadata_warnings({"finalizers": ["orphan", "x.io/y"], "ownerReferences": [OWNER]}) == []
    assert metadata_warnings({"finalizers": ["mine"]}, {"finalizers": ["mine"]}) == []
    finalizer, owner = metadata_warnings({"finalizers": ["mine"], "ownerReferences": [OWNER, OWNER]})
    assert finalizer.startswith('metadata.finalizers: "mine": prefer a domain-qualified finalizer name')
    assert "u1" in owner


def test_a_generated_name_keeps_the_base_and_fits_a_label() -> None:
    assert re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{5}", generate_name("web-", random.Random(1)))
    assert len(generate_name("a" * 200, random.Random(1))) == 63
    assert generate_name("web-", random.Random(7)) == generate_name("web-", random.Random(7))


def test_a_child_is_named_as_crossplane_names_it() -> None:
    uid = "75e4a668-035f-4ce8-8c45-f4d3ac850155"
    key = "test-resource-with-a-super-duper-really-long-name-to-test-compaction"
    assert child_name("parent-xr-", uid, key) == "parent-xr-e5ac98dc40a2"
    assert child_name("parent-xr", uid, key) == "parent-xr-e5ac98dc40a2"


@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?){0,3}", fullmatch=True),
    st.text(),
)
def test_a_valid_parent_has_children_with_valid_names(parent: str, key: str) -> None:
    name = child_name(parent, "uid", key.encode("utf-8", "replace").decode())
    assert len(name) <= 63
    assert names.subdomain_problems(name) == []


GOOD_METADATA: dict[str, Any] = {
    "name": "n",
    "namespace": "a",
    "generateName": "n-",
    "labels": {"a/b": "c", "d": ""},
    "annotations": {"A/b": "any thing"},
    "ownerReferences": [{**OWNER, "controller": True}],
    "finalizers": ["a/b", "c.d"],
}
TEXTS = ["", "a", "a-", "-a", "a b", "ä", "\u212a", "a/B", "/a", "a/", "a/b/c", "Event", "orphan", "foregroundDeletion"]
TEXTS += ["a" * 63, "a" * 64, "b" * 253 + "/" + "a" * 63, "b" * 254 + "/a"]
OWNERS = [{**OWNER, "controller": True}] * 2
LONG = {"a": "ä" * (names.ANNOTATIONS_SIZE // 2)}
VALUES: list[Any] = [*TEXTS, None, 1, True, [], {}, ["a"], {"a": "b"}, OWNERS[1:], OWNERS, LONG]


def altered(draw: random.Random, value: Any) -> Any:
    """A value in which one thing is another, which may be wrong."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(list(value))
        if draw.random() < 0.5:
            return {**value, key: altered(draw, value[key])}
        return {draw.choice(TEXTS) if name == key else name: item for name, item in value.items()}
    if isinstance(value, list) and value and draw.random() < 0.8:
        return [*value[:-1], altered(draw, value[-1])] if draw.random() < 0.7 else [*value, draw.choice(VALUES)]
    return draw.choice(VALUES)


@pytest.mark.parametrize("seed", range(20))
def test_the_quick_way_accepts_nothing_that_the_slow_one_refuses(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    cases = []
    for _ in range(200):
        metadata = {name: value for name, value in GOOD_METADATA.items() if name == "name" or draw.random() < 0.8}
        if draw.random() < 0.7:
            member = draw.choice(list(metadata))
            metadata = {**metadata, member: altered(draw, metadata[member])}
        cases.append((metadata, draw.random() < 0.8, draw.random() < 0.6))

    def judged() -> list[list[FieldError]]:
        return [
            validate_metadata(metadata, namespaced=namespaced, bare_finalizers=bare_finalizers)
            for metadata, namespaced, bare_finalizers in cases
        ]

    quick = judged()
    monkeypatch.setattr(names, "_is_plainly_valid", lambda *_: False)
    assert judged() == quick
    assert [] in quick


def test_a_uid_is_a_random_uuid_of_version_4() -> None:
    found = {names.new_uid(random.Random(seed)) for seed in range(200)}
    assert len(found) == 200
    for text in found:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)
