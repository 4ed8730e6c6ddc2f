"""The admission plugin that records authors: what it keeps, what it overwrites, and whom it asks about."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.annotations import annotation
from planform.api.authors import (
    AUTHOR_ANNOTATION,
    NOBODY,
    SERVICE_ACCOUNT_ANNOTATION,
    Author,
    author_of,
    encode_author,
    service_account_of,
)
from planform.api.kinds import Kind, Object
from planform.apiserver.admission.authorship import IMPORT_MANAGER, Authorship, questions
from planform.apiserver.admission.chain import Admission
from planform.apiserver.verbs.requests import CONTROL_PLANE, Request, User
from planform.client.rights import Access, impersonating
from planform.compositions.revisions import new_revision, rights_to_take
from planform.errors import Forbidden

ALICE, BOB = User("alice", ("devs",), "u-1"), User("bob")
COMPOSITIONS = Kind("apiextensions.crossplane.io", "v1", "Composition", "compositions", False)
ACTION_SETS = Kind("cr.kanister.io", "v1alpha1", "ActionSet", "actionsets", True)
RECORD = encode_author(Author("carol", groups=("ops",)))


def composition(annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": "apps", "uid": "u", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "apiextensions.crossplane.io/v1", "kind": "Composition", "metadata": metadata, "spec": spec}


def admitted(
    new: Object,
    old: Object | None = None,
    *,
    user: User = ALICE,
    manager: str = "kubectl",
    allowed: frozenset[Access] = frozenset(),
    kind: Kind = COMPOSITIONS,
) -> Object:
    operation: Any = "CREATE" if old is None else "UPDATE"
    namespace = str(new["metadata"].get("namespace") or "")
    request = Request(user=user, manager=manager)
    admission = Admission(operation, kind, namespace, new["metadata"]["name"], new, old, "", request)
    asked = set(questions(admission, (CONTROL_PLANE.name,)))

    def allows(_: User, access: Access) -> bool:
        assert access in asked, "the webhook would not have an answer"
        return access in allowed

    Authorship(allows).admit(admission)
    return new


def test_the_creator_is_recorded_with_uid_and_groups() -> None:
    assert author_of(admitted(composition({AUTHOR_ANNOTATION: "forged"}))) == Author("alice", "u-1", ("devs",))


def test_a_change_of_metadata_keeps_the_author_and_a_change_of_substance_does_not() -> None:
    old = composition({AUTHOR_ANNOTATION: RECORD}, mode="Pipeline")
    assert author_of(admitted(composition({"a": "b"}, mode="Pipeline"), old)) == Author("carol", groups=("ops",))
    assert author_of(admitted(composition({AUTHOR_ANNOTATION: RECORD}, mode="Resources"), old, user=BOB)) == Author(
        "bob"
    )


def test_what_was_stored_without_a_record_stays_so_until_it_is_changed() -> None:
    old = composition(mode="Pipeline")
    assert author_of(admitted(composition({AUTHOR_ANNOTATION: RECORD}, mode="Pipeline"), old)) is None
    assert author_of(admitted(composition(mode="Resources"), old)) is not None


def test_the_control_plane_writes_records_that_it_copied_and_loses_none() -> None:
    made = admitted(composition({AUTHOR_ANNOTATION: RECORD}), user=CONTROL_PLANE)
    assert annotation(made, AUTHOR_ANNOTATION) == RECORD
    again = admitted(composition(mode="Pipeline"), made, user=CONTROL_PLANE)
    assert annotation(again, AUTHOR_ANNOTATION) == RECORD


def test_an_import_brings_a_record_along_if_it_may_be_whom_the_record_names() -> None:
    being = frozenset({Access("impersonate", "", "users", "", "carol"), Access("impersonate", "", "groups", "", "ops")})

    def brought(manager: str, allowed: frozenset[Access]) -> Author | None:
        return author_of(admitted(composition({AUTHOR_ANNOTATION: RECORD}), manager=manager, allowed=allowed))

    assert brought(IMPORT_MANAGER, being) == Author("carol", groups=("ops",))
    assert brought(IMPORT_MANAGER, frozenset(list(being)[:1])) == Author("alice", "u-1", ("devs",))


def test_a_serviceaccount_is_named_and_an_object_that_names_one_changed_only_by_who_may_impersonate_it() -> None:
    named = {SERVICE_ACCOUNT_ANNOTATION: "team/writer"}
    access = frozenset({impersonating("team", "writer")})
    old = admitted(composition(named, mode="Pipeline"), allowed=access)
    with pytest.raises(Forbidden, match='impersonate serviceaccounts "writer" in the namespace "team"'):
        admitted(composition(named, mode="Pipeline"))
    with pytest.raises(Forbidden, match="impersonate"):
        admitted(composition(named, mode="Resources"), old, user=BOB)
    admitted(composition({**named, "a": "b"}, mode="Pipeline"), old, user=BOB)  # a label needs nothing


def test_a_usage_of_another_namespace_needs_the_right_to_create_usages_there() -> None:
    usages = Kind("protection.crossplane.io", "v1beta1", "Usage", "usages", True)

    def usage(namespace: str = "", *, side: str = "resourceRef", label: str = "") -> Object:
        metadata: Object = {"name": "u", "namespace": "team", "labels": {"a": label}}
        of = {"apiVersion": "v1", "kind": "Secret", side: {"name": "s", "namespace": namespace}}
        return {"metadata": metadata, "spec": {"of": of, "by": {}}}

    there = frozenset({Access("create", "protection.crossplane.io", "usages", "vault")})
    for side in ("resourceRef", "resourceSelector"):
        with pytest.raises(Forbidden, match='cannot create usages in the namespace "vault", which holding'):
            admitted(usage("vault", side=side), kind=usages)
        admitted(usage("vault", side=side), kind=usages, allowed=there)
    for own in ("", "team"):
        admitted(usage(own), kind=usages)
    admitted(usage("vault", label="b"), usage("vault"), kind=usages)  # a label needs nothing
    admitted(usage("vault"), kind=usages, user=CONTROL_PLANE)
    with pytest.raises(Forbidden, match="vault"):
        admitted(usage("vault"), usage("team"), kind=usages)


def test_only_the_control_plane_says_that_an_actionset_runs() -> None:
    metadata = {"name": "backup", "namespace": "team"}
    running = {"metadata": metadata, "spec": {}, "status": {"state": "running"}}
    with pytest.raises(Forbidden, match="only the control plane"):
        admitted(dict(running), kind=ACTION_SETS)
    admitted({**running, "metadata": dict(metadata)}, running, kind=ACTION_SETS)
    admitted(dict(running), user=CONTROL_PLANE, kind=ACTION_SETS)


def test_a_record_that_cannot_be_read_is_of_somebody_without_rights() -> None:
    assert author_of(composition({AUTHOR_ANNOTATION: "{"})) == NOBODY


@pytest.mark.parametrize(
    ("text", "namespace", "found"),
    [("writer", "team", ("team", "writer")), ("a/writer", "team", ("a", "writer")), ("writer", "", ("", "writer"))],
)
def test_a_serviceaccount_is_of_the_objects_namespace_unless_it_says_another(
    text: str, namespace: str, found: tuple[str, str]
) -> None:
    assert service_account_of(composition({SERVICE_ACCOUNT_ANNOTATION: text}), namespace) == found


def test_a_revision_takes_the_rights_of_its_composition_unless_it_holds_something_else() -> None:
    old = composition({AUTHOR_ANNOTATION: RECORD}, mode="Pipeline")
    made = new_revision(old, 1)
    assert author_of(made) == Author("carol", groups=("ops",)) and rights_to_take(old, made) == {}
    now = composition({AUTHOR_ANNOTATION: encode_author(Author("bob"))}, mode="Pipeline")
    assert list(rights_to_take(now, made)) == [AUTHOR_ANNOTATION]
    forged = {**made, "spec": {**made["spec"], "mode": "Resources"}}
    assert rights_to_take(now, forged) == {}
