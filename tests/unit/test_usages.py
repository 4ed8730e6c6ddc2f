"""Usages as values: what they say, what they pick, whom they protect and which changes concern them."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.usages.usages import (
    IN_USE_LABEL,
    UsageIndex,
    UsageInvalid,
    UsageKey,
    choose,
    details,
    in_use,
    label_selector,
    parse_usage,
    refusal,
    resolved_ref,
    unresolved_message,
)

APP, DATABASE = ("example.org/v1", "App"), ("example.org/v1", "Database")


def side(kind: tuple[str, str], name: str = "", namespace: str = "", **selector: Any) -> Object:
    found: Object = {"apiVersion": kind[0], "kind": kind[1]}
    if name:
        found["resourceRef"] = {"name": name} | ({"namespace": namespace} if namespace else {})
    if selector:
        found["resourceSelector"] = selector | ({"namespace": namespace} if namespace else {})
    return found


def usage(
    name: str = "u", namespace: str = "team", *, uid: str = "", metadata: Object | None = None, **spec: Any
) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "protection.crossplane.io/v1beta1",
        "kind": "Usage" if namespace else "ClusterUsage",
        "metadata": {"name": name, "uid": uid or f"uid-{name}", **place, **(metadata or {})},
        "spec": spec,
    }


def thing(
    kind: tuple[str, str],
    name: str,
    namespace: str = "team",
    *,
    labels: Any = None,
    controller: str = "",
    uid: str = "",
) -> Object:
    metadata: Object = {"name": name, "uid": uid or f"uid-{name}", "labels": labels or {}}
    if namespace:
        metadata["namespace"] = namespace
    if controller:
        metadata["ownerReferences"] = [
            {"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": controller, "controller": True}
        ]
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata}


# -- reading


def test_a_usage_without_a_namespace_in_its_references_is_about_its_own() -> None:
    found = parse_usage(usage(of=side(DATABASE, "db"), by=side(APP, "app"), replayDeletion=True))
    assert (found.of.namespace, found.of.name, found.of.gvk) == (
        "team",
        "db",
        GroupVersionKind("example.org", "v1", "Database"),
    )
    assert found.by is not None and (found.by.namespace, found.by.name) == ("team", "app")
    assert found.replays_deletion and found.kind == "Usage"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        pytest.param(usage(of=side(DATABASE, "db")), 'spec: either "by" or "reason" must be specified', id="no why"),
        pytest.param(
            usage(of=side(DATABASE, "db", "other"), reason="r"),
            'spec.of: a resource of another namespace can only be protected with "by"',
            id="elsewhere without a user",
        ),
        pytest.param(
            usage(of=side(DATABASE, namespace="other", matchLabels={"a": "b"}), reason="r"),
            'spec.of: a resource of another namespace can only be protected with "by"',
            id="selected elsewhere without a user",
        ),
        pytest.param(
            usage(of=side(DATABASE, "db"), by=side(APP, "app", "other")),
            "spec.by: the using resource must be in the namespace of its Usage",
            id="user elsewhere",
        ),
        pytest.param(
            usage(namespace="", of=side(DATABASE, "db", "team"), by=side(APP, "app")),
            "spec.of: a ClusterUsage protects resources that have no namespace",
            id="cluster usage of a namespaced object",
        ),
        pytest.param(
            usage(of=side(DATABASE), reason="r"),
            "spec.of: either a resource reference or a resource selector must be set",
            id="no object",
        ),
        pytest.param(
            usage(of=side(DATABASE, matchLabels={}), reason="r"),
            "spec.of.resourceSelector: set matchLabels or matchControllerRef",
            id="empty selector",
        ),
        pytest.param(usage(reason="r"), "spec: object missing required field `of`", id="no of"),
        pytest.param(
            usage(of={"kind": "Database", "resourceRef": {"name": 3}}, reason="r"),
            "spec.of.resourceRef.name: expected `str`, got `int`",
            id="wrong type",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_path(wrong: Object, complaint: str) -> None:
    with pytest.raises(UsageInvalid) as caught:
        parse_usage(wrong)
    assert str(caught.value).startswith(complaint)


def test_an_object_of_another_namespace_is_protected_with_a_user() -> None:
    assert parse_usage(usage(of=side(DATABASE, "db", "other"), by=side(APP, "app"))).of.namespace == "other"


def test_all_complaints_come_at_once() -> None:
    with pytest.raises(UsageInvalid) as caught:
        parse_usage(usage(of=side(DATABASE), by=side(APP, "app", "other")))
    assert [error.field for error in caught.value.errors] == ["spec.of", "spec.by"]


# -- resolving


def test_a_selector_picks_the_first_match_by_name_whatever_the_order_of_candidates() -> None:
    found = parse_usage(usage(of=side(DATABASE, matchLabels={"tier": "gold"}), reason="r"))
    candidates = [
        thing(DATABASE, "c", labels={"tier": "gold"}),
        thing(DATABASE, "a", labels={"tier": "tin"}),
        thing(DATABASE, "b", labels={"tier": "gold", "more": "labels"}),
    ]
    for order in (candidates, candidates[::-1]):
        chosen = choose(found, found.of, order)
        assert chosen is not None and resolved_ref(found, chosen) == {"name": "b"}
    assert label_selector(found.of) == "tier=gold"


def test_a_selector_may_ask_for_the_same_controller() -> None:
    owned = thing(APP, "u", controller="xr-1")["metadata"]["ownerReferences"]
    wanted = side(DATABASE, matchControllerRef=True, matchLabels={"tier": "gold"})
    found = parse_usage(usage(of=wanted, reason="r", metadata={"ownerReferences": owned}))
    theirs = thing(DATABASE, "a", labels={"tier": "gold"}, controller="xr-2")
    ours = thing(DATABASE, "b", labels={"tier": "gold"}, controller="xr-1")
    assert choose(found, found.of, [theirs, ours]) is ours
    assert choose(found, found.of, [theirs, thing(DATABASE, "c", labels={"tier": "gold"})]) is None
    assert unresolved_message(found.of, "spec.of") == (
        'spec.of.resourceSelector: no "Database" found matching labels {"tier": "gold"} and with the same controller'
    )


def test_a_usage_without_a_controller_shares_it_with_nobody() -> None:
    found = parse_usage(usage(of=side(DATABASE, matchControllerRef=True), reason="r"))
    assert choose(found, found.of, [thing(DATABASE, "a")]) is None


def test_the_namespace_of_a_choice_is_kept_where_it_is_not_the_usages_own() -> None:
    found = parse_usage(usage(of=side(DATABASE, namespace="other", matchLabels={"a": "b"}), by=side(APP, "app")))
    chosen = choose(found, found.of, [thing(DATABASE, "db", "other", labels={"a": "b"})])
    assert chosen is not None and resolved_ref(found, chosen) == {"name": "db", "namespace": "other"}


# -- words


@pytest.mark.parametrize(
    ("obj", "told", "refused"),
    [
        (
            usage(of=side(DATABASE, "db"), by=side(APP, "app")),
            "App/app uses Database/db",
            'This resource is in-use by 1 usage(s), including the Usage "u" (in namespace "team") by resource App/app.',
        ),
        (
            usage(of=side(DATABASE, "db", "other"), by=side(APP, "app")),
            "App/app uses Database/db in namespace other",
            'This resource is in-use by 1 usage(s), including the Usage "u" (in namespace "team") by resource App/app.',
        ),
        (
            usage(namespace="", of=side(DATABASE, "db"), reason='the "crown" jewels'),
            'the "crown" jewels',
            'This resource is in-use by 1 usage(s), including the ClusterUsage "u" with reason: '
            '"the \\"crown\\" jewels".',
        ),
        (
            usage(of=side(DATABASE, "db"), by=side(APP, "app"), reason="data"),
            "data",
            'This resource is in-use by 1 usage(s), including the Usage "u" (in namespace "team") by resource App/app '
            'with reason: "data".',
        ),
    ],
    ids=["by", "elsewhere", "reason", "both"],
)
def test_the_words_name_the_usage_its_user_and_its_reason(obj: Object, told: str, refused: str) -> None:
    found = parse_usage(obj)
    assert details(found) == told
    assert refusal([found]) == refused


def test_a_refusal_is_a_409_conflict_on_the_wire() -> None:
    error = in_use("example.org", "databases", "db", [parse_usage(usage(of=side(DATABASE, "db"), reason="r"))])
    status = error.to_status()
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["details"] == {"name": "db", "group": "example.org", "kind": "databases"}


# -- the index


def indexed(*objects: Object) -> UsageIndex:
    index = UsageIndex()
    for obj in objects:
        index.put(parse_usage(obj))
    return index


def protecting(index: UsageIndex, name: str = "db", namespace: str = "team") -> list[str]:
    return [found.key.name for found in index.protecting("example.org", "Database", namespace, name)]


def test_an_object_is_protected_by_every_usage_of_it_whatever_their_version() -> None:
    newer = ("example.org/v2", "Database")
    index = indexed(
        usage("b", of=side(newer, "db"), reason="r"),
        usage("a", of=side(DATABASE, "db"), by=side(APP, "app")),
        usage("c", of=side(DATABASE, "other"), reason="r"),
        usage("d", of=side(("other.org/v1", "Database"), "db"), reason="r"),
        usage("e", "elsewhere", of=side(DATABASE, "db"), reason="r"),
        usage("f", "elsewhere", of=side(DATABASE, "db", "team"), by=side(APP, "app")),
    )
    assert sorted(protecting(index)) == ["a", "b", "f"]


def test_the_user_is_not_protected() -> None:
    index = indexed(usage(of=side(DATABASE, "db"), by=side(DATABASE, "replica")))
    assert protecting(index, "replica") == []


def test_a_cluster_scoped_object_is_protected_by_cluster_usages_only() -> None:
    index = indexed(
        usage("a", "one", of=side(DATABASE, "db"), reason="r"), usage("b", "", of=side(DATABASE, "db"), reason="r")
    )
    assert protecting(index, namespace="") == ["b"]


def test_a_selector_protects_nothing_until_it_is_resolved() -> None:
    index = indexed(usage(of=side(DATABASE, matchLabels={"a": "b"}), reason="r"))
    assert protecting(index) == []
    resolved = usage(
        of={**side(DATABASE, "db"), **side(DATABASE, matchLabels={"a": "b"}), "resourceRef": {"name": "db"}}, reason="r"
    )
    index.put(parse_usage(resolved))
    assert protecting(index) == ["u"]


def test_a_usage_that_changed_or_went_leaves_nothing_behind() -> None:
    index = indexed(usage(of=side(DATABASE, "db"), reason="r"))
    index.put(parse_usage(usage(of=side(DATABASE, "other"), by=side(APP, "app"))))
    assert (protecting(index), protecting(index, "other")) == ([], ["u"])
    assert index.mentions(GroupVersionKind("example.org", "v1", "App"))
    index.drop(UsageKey("team", "u"))
    index.drop(UsageKey("team", "u"))
    assert (protecting(index, "other"), len(index)) == ([], 0)
    assert not index.mentions(GroupVersionKind("example.org", "v1", "App"))
    assert not index.mentions(GroupVersionKind("example.org", "v1", "Database"))


def test_a_released_usage_does_not_come_back_with_a_late_event_but_its_namesake_protects() -> None:
    ending = usage(of=side(DATABASE, "db"), reason="r", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    index = indexed(ending)
    assert protecting(index) == ["u"]
    index.release(parse_usage(ending))
    index.put(parse_usage(ending))
    assert protecting(index) == []
    index.put(parse_usage(usage(uid="another", of=side(DATABASE, "db"), reason="r")))
    assert protecting(index) == ["u"]


def test_of_usages_that_end_together_exactly_one_is_the_last() -> None:
    ending = [parse_usage(usage(name, of=side(DATABASE, "db"), reason="r")) for name in "abc"]
    index = UsageIndex()
    for each in ending:
        index.put(each)
    last = []
    for each in ending:
        index.release(each)
        if not protecting(index):
            last.append(each.key.name)
    assert last == ["c"]


def concerned(index: UsageIndex, obj: Object, *, gone: bool = False) -> list[str]:
    return [key.name for key in index.concerned(obj, gone=gone)]


def test_only_a_lost_label_a_new_identity_or_a_deletion_concerns_a_usage() -> None:
    owner = {"apiVersion": APP[0], "kind": APP[1], "name": "app", "uid": "uid-app"}
    index = indexed(usage(of=side(DATABASE, "db"), by=side(APP, "app"), metadata={"ownerReferences": [owner]}))
    marked = thing(DATABASE, "db", labels={IN_USE_LABEL: "true"})
    assert concerned(index, marked) == []
    assert concerned(index, thing(DATABASE, "db")) == ["u"]
    assert concerned(index, marked, gone=True) == ["u"]
    assert concerned(index, thing(DATABASE, "db", "other")) == []
    assert concerned(index, thing(APP, "app")) == []
    assert concerned(index, thing(APP, "app", uid="a namesake")) == ["u"]
    assert concerned(index, thing(APP, "app"), gone=True) == ["u"]


def test_a_new_object_concerns_the_usages_whose_selector_it_meets() -> None:
    index = indexed(usage(of=side(DATABASE, matchLabels={"tier": "gold"}), by=side(APP, "app")))
    assert concerned(index, thing(DATABASE, "db", labels={"tier": "gold"})) == ["u"]
    assert concerned(index, thing(DATABASE, "db", labels={"tier": "tin"})) == []
    assert concerned(index, thing(DATABASE, "db", "other", labels={"tier": "gold"})) == []
    assert concerned(index, thing(DATABASE, "db", labels={"tier": "gold"}), gone=True) == []
