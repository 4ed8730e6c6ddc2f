"""What a claim and its XR mean for each other, case by case; and the laws of telling what an apply would change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.api.names import CLAIM_MANAGER, EXTERNAL_NAME_ANNOTATION
from planform.apimachinery import apply as ssa
from planform.apimachinery.typed import compile_type
from planform.claims.applied import is_applied
from planform.claims.claims import (
    Offer,
    XrTaken,
    before_the_xr,
    claim_from_xr,
    claim_status,
    is_bound_to,
    must_be_free,
    offer_of,
    ownership_for_claim,
    readiness,
    update_policy,
    xr_from_claim,
    xr_name,
)
from planform.claims.secrets import SecretRefused, details_place, has_published, secret_for_claim
from planform.definitions.crds import InvalidDefinition

Object = dict[str, Any]

XRD: Object = {
    "apiVersion": "apiextensions.crossplane.io/v2",
    "kind": "CompositeResourceDefinition",
    "metadata": {"name": "xdbs.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "LegacyCluster",
        "names": {"kind": "XDb", "plural": "xdbs"},
        "claimNames": {"kind": "Db", "plural": "dbs"},
        "versions": [{"name": "v1", "served": True}, {"name": "v2", "served": True, "referenceable": True}],
    },
}
CLAIM_REF = {"apiVersion": "example.org/v2", "kind": "Db", "namespace": "shop", "name": "orders"}


def offered(**spec: Any) -> Offer:
    return offer_of({**XRD, "spec": {**XRD["spec"], **spec}})


def claim(spec: Object | None = None, status: Object | None = None, **metadata: Any) -> Object:
    made = {"name": "orders", "namespace": "shop", "uid": "c1", "generation": 4, **metadata}
    obj = {"apiVersion": "example.org/v2", "kind": "Db", "metadata": made, "spec": spec or {}}
    return obj if status is None else {**obj, "status": status}


def xr(spec: Object | None = None, status: Object | None = None, **metadata: Any) -> Object:
    made = {"name": "orders-x", "uid": "x1", **metadata}
    obj = {"apiVersion": "example.org/v2", "kind": "XDb", "metadata": made, "spec": spec or {}}
    return obj if status is None else {**obj, "status": status}


def condition(type_: str, status: str, reason: str = "Because", message: str = "") -> Object:
    said = {"type": type_, "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**said, "message": message} if message else said


# -- offers and names


def test_an_offer_is_read_in_the_referenceable_version() -> None:
    offer = offered(enforcedCompositionRef={"name": "strict"}, defaultCompositionUpdatePolicy="Manual")
    assert (str(offer.claim), str(offer.composite)) == ("Db.v2.example.org", "XDb.v2.example.org")
    assert (offer.enforces_composition, offer.default_policy, offer.enforced_policy) == (True, "Manual", None)


@pytest.mark.parametrize(
    ("spec", "text"),
    [({"claimNames": None}, "it offers no claims"), ({"versions": [{"name": "v1"}]}, "none is referenceable")],
)
def test_an_xrd_without_an_offer_is_refused(spec: Object, text: str) -> None:
    with pytest.raises(InvalidDefinition, match=text):
        offered(**spec)


def test_the_name_of_an_xr_follows_from_the_claims_uid_unless_the_claim_names_one() -> None:
    assert xr_name(claim()) == xr_name(claim({"size": 2}))
    assert xr_name(claim()) != xr_name(claim(uid="c2"))
    assert xr_name(claim()).rpartition("-")[0] == "orders"
    assert len(xr_name(claim(name="n" * 63))) == 63
    assert xr_name(claim({"resourceRef": {"name": "mine"}})) == "mine"


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        pytest.param({}, True, id="its own"),
        pytest.param({"apiVersion": "example.org/v1"}, True, id="in another version"),
        pytest.param({"apiVersion": "other.org/v2"}, False, id="of another group"),
        pytest.param({"kind": "Cache"}, False, id="of another kind"),
        pytest.param({"namespace": "bank"}, False, id="in another namespace"),
        pytest.param({"name": "other"}, False, id="of another name"),
    ],
)
def test_an_xr_is_bound_by_group_kind_namespace_and_name(change: Object, bound: bool) -> None:
    found = xr({"claimRef": {**CLAIM_REF, **change}})
    assert is_bound_to(found, claim()) is bound
    if bound:
        must_be_free(claim(), found)
    else:
        with pytest.raises(XrTaken, match="bound to another claim"):
            must_be_free(claim({"resourceRef": {"name": "orders-x"}}), found)


def test_a_free_xr_is_taken_only_by_name() -> None:
    must_be_free(claim(), None)
    must_be_free(claim({"resourceRef": {"name": "orders-x"}}), xr())
    with pytest.raises(XrTaken, match=r"name it in spec\.resourceRef"):
        must_be_free(claim(), xr())


def test_a_claim_points_at_its_xr_and_is_held_by_a_finalizer_in_one_write() -> None:
    reference = {"apiVersion": "example.org/v2", "kind": "XDb", "name": "orders-x"}
    body = before_the_xr(claim(finalizers=["a/b"]), None, offered(), "orders-x")
    assert body == {
        "metadata": {"finalizers": ["a/b", "finalizer.apiextensions.crossplane.io"]},
        "spec": {"resourceRef": reference},
    }
    done = claim({"resourceRef": reference}, finalizers=body["metadata"]["finalizers"])
    assert before_the_xr(done, xr(), offered(), "orders-x") is None


# -- claim to XR


@pytest.mark.parametrize(
    ("key", "goes"),
    [
        ("team", True),
        ("example.org/team", True),
        ("crossplane.io/reconcile-requested-at", True),
        ("kubernetes.io/x", False),
        ("app.kubernetes.io/name", False),
        ("kubectl.kubernetes.io/last-applied-configuration", False),
        ("k8s.io/x", False),
        ("deep.sub.k8s.io/x", False),
        ("example.org/kubernetes.io", True),
        ("kubernetes.io", True),
    ],
)
def test_labels_and_annotations_go_to_the_xr_but_for_those_of_kubernetes(key: str, goes: bool) -> None:
    wanted = xr_from_claim(claim(labels={key: "1"}, annotations={key: "2"}), None, offered(), "n")["metadata"]
    assert (key in wanted["labels"], key in wanted.get("annotations", {})) == (goes, goes)


def test_the_binding_labels_win_over_labels_of_the_user() -> None:
    wanted = xr_from_claim(claim(labels={"crossplane.io/claim-name": "forged"}), None, offered(), "n")
    assert wanted["metadata"]["labels"] == {
        "crossplane.io/claim-name": "orders",
        "crossplane.io/claim-namespace": "shop",
    }


def test_an_external_name_goes_to_the_xr_unless_it_has_one_and_comes_back() -> None:
    mine, theirs = {EXTERNAL_NAME_ANNOTATION: "mine"}, {EXTERNAL_NAME_ANNOTATION: "theirs"}
    for has, wanted in ((None, mine), (xr(), mine), (xr(annotations=theirs), theirs)):
        made = xr_from_claim(claim(annotations=mine), has, offered(), "n")
        assert made["metadata"]["annotations"] == wanted
    assert claim_from_xr(claim(annotations=mine), xr(annotations=theirs), offered()) == {
        "metadata": {"annotations": theirs}
    }
    assert claim_from_xr(claim(annotations=theirs), xr(annotations=theirs), offered()) is None
    assert claim_from_xr(claim(annotations=mine), xr(), offered()) is None


EVERYTHING: Object = {
    "size": 3,
    "compositeDeletePolicy": "Foreground",
    "resourceRef": {"name": "x"},
    "writeConnectionSecretToRef": {"name": "details"},
    "resourceRefs": [{"name": "injected"}],
    "claimRef": {"name": "forged"},
    "compositionRef": {"name": "small"},
    "compositionSelector": {"matchLabels": {"a": "b"}},
    "compositionRevisionRef": {"name": "small-1"},
    "compositionRevisionSelector": {"matchLabels": {"c": "d"}},
}
ALWAYS = {"size", "claimRef", "compositionSelector", "compositionRevisionSelector"}


@pytest.mark.parametrize(
    ("policy", "has", "xrd", "more"),
    [
        pytest.param(None, None, {}, {"compositionRef"}, id="automatic by default"),
        pytest.param("Automatic", None, {}, {"compositionRef", "compositionUpdatePolicy"}, id="automatic"),
        pytest.param(
            "Manual",
            None,
            {},
            {"compositionRef", "compositionUpdatePolicy", "compositionRevisionRef"},
            id="manual: the pin goes along when the XR is made",
        ),
        pytest.param(None, "Manual", {}, {"compositionRef", "compositionRevisionRef"}, id="manual on the XR"),
        pytest.param(
            None,
            None,
            {"defaultCompositionUpdatePolicy": "Manual"},
            {"compositionRef", "compositionRevisionRef"},
            id="manual by default",
        ),
        pytest.param(
            "Manual",
            None,
            {"enforceCompositionUpdatePolicy": "Automatic"},
            {"compositionRef"},
            id="an enforced policy is not the claim's to set",
        ),
        pytest.param(None, None, {"enforcedCompositionRef": {"name": "strict"}}, set(), id="enforced composition"),
    ],
)
def test_of_the_claims_spec_goes_what_is_meant_for_the_xr(
    policy: str | None, has: str | None, xrd: Object, more: set[str]
) -> None:
    spec = {**EVERYTHING, **({"compositionUpdatePolicy": policy} if policy else {})}
    before = xr({"compositionUpdatePolicy": has}) if has else None
    wanted = xr_from_claim(claim(spec), before, offered(**xrd), "n")
    assert wanted["spec"].keys() == ALWAYS | more
    assert wanted["spec"]["claimRef"] == CLAIM_REF
    assert "status" not in wanted


def test_the_policy_is_the_enforced_one_then_the_claims_then_the_xrs_then_the_default() -> None:
    enforced, default = offered(enforceCompositionUpdatePolicy="Manual"), offered()
    automatic = claim({"compositionUpdatePolicy": "Automatic"})
    assert update_policy(automatic, None, enforced) == "Manual"
    assert update_policy(automatic, xr({"compositionUpdatePolicy": "Manual"}), default) == "Automatic"
    assert update_policy(claim(), xr({"compositionUpdatePolicy": "Manual"}), default) == "Manual"
    assert update_policy(claim(), None, default) == "Automatic"


@pytest.mark.parametrize(
    ("ours", "theirs", "unpinned"),
    [
        pytest.param({}, {}, True, id="a new selector"),
        pytest.param({"compositionRevisionSelector": {"matchLabels": {"c": "old"}}}, {}, False, id="the same selector"),
        pytest.param({"compositionRevisionSelector": None}, {}, False, id="no selector"),
        pytest.param({"compositionRevisionRef": {"name": "small-9"}}, {}, False, id="a new pin beside it"),
        pytest.param({"compositionUpdatePolicy": "Automatic"}, {}, False, id="automatic now"),
        pytest.param({}, {"compositionUpdatePolicy": "Automatic"}, False, id="automatic until now"),
    ],
)
def test_a_new_selector_takes_back_the_pin_that_the_xr_has(ours: Object, theirs: Object, unpinned: bool) -> None:
    manual = {"compositionUpdatePolicy": "Manual", "compositionRevisionRef": {"name": "small-1"}}
    new, old = ({"compositionRevisionSelector": {"matchLabels": {"c": text}}} for text in ("new", "old"))
    body = before_the_xr(claim({**manual, **new, **ours}), xr({**manual, **old, **theirs}), offered(), "orders-x")
    assert ("compositionRevisionRef" in (body or {})["spec"]) is unpinned


# -- XR to claim


@pytest.mark.parametrize(
    ("ours", "theirs", "xrd", "comes"),
    [
        pytest.param({}, {}, {}, {}, id="nothing chosen yet"),
        pytest.param(
            {},
            {"compositionRef": {"name": "a"}, "compositionRevisionRef": {"name": "a-1"}},
            {},
            {"compositionRef": {"name": "a"}, "compositionRevisionRef": {"name": "a-1"}},
            id="what was chosen",
        ),
        pytest.param(
            {"compositionRef": {"name": "b"}}, {"compositionRef": {"name": "a"}}, {}, {}, id="the claim's own choice"
        ),
        pytest.param(
            {"compositionRef": {"name": "b"}},
            {"compositionRef": {"name": "a"}},
            {"enforcedCompositionRef": {"name": "a"}},
            {"compositionRef": {"name": "a"}},
            id="an enforced choice",
        ),
        pytest.param(
            {"compositionUpdatePolicy": "Manual", "compositionRevisionRef": {"name": "a-1"}},
            {"compositionUpdatePolicy": "Manual", "compositionRevisionRef": {"name": "a-2"}},
            {},
            {},
            id="a manual revision stays the claim's",
        ),
        pytest.param(
            {"compositionRevisionRef": {"name": "a-1"}},
            {"compositionRevisionRef": {"name": "a-2"}},
            {},
            {"compositionRevisionRef": {"name": "a-2"}},
            id="an automatic revision follows the XR's",
        ),
        pytest.param(
            {},
            {"compositionRevisionSelector": {"matchLabels": {"a": "b"}}},
            {},
            {"compositionRevisionSelector": {"matchLabels": {"a": "b"}}},
            id="a default selector",
        ),
        pytest.param(
            {"compositionRevisionSelector": {"matchLabels": {"c": "d"}}},
            {"compositionRevisionSelector": {"matchLabels": {"a": "b"}}},
            {},
            {},
            id="the claim's own selector",
        ),
        pytest.param(
            {},
            {"compositionSelector": {"matchLabels": {"a": "b"}}, "compositionUpdatePolicy": "Automatic", "size": 1},
            {},
            {},
            id="nothing else comes back",
        ),
    ],
)
def test_what_was_decided_for_the_xr_comes_back_to_the_claim(
    ours: Object, theirs: Object, xrd: Object, comes: Object
) -> None:
    body = claim_from_xr(claim(ours), xr(theirs), offered(**xrd))
    assert body == ({"spec": comes} if comes else None)


def test_the_claims_status_is_the_xrs_beside_its_own_conditions_and_publishing_time() -> None:
    own = [condition("Ready", "False", "Waiting"), condition("Mine", "True")]
    before = {"conditions": own, "connectionDetails": {"lastPublishedTime": "t1"}, "address": "old", "gone": 1}
    theirs = {
        "address": "new",
        "conditions": [condition("Ready", "True"), condition("Backup", "True", "Done"), condition("Inner", "True")],
        "claimConditionTypes": ["Backup", "Ready", "Absent"],
        "connectionDetails": {"lastPublishedTime": "t2"},
        "planform": {"problems": []},
        "watchedResourceRefs": [],
        "lastHandledReconcileAt": "now",
    }
    assert claim_status(claim(status=before), xr(status=theirs)) == {
        "address": "new",
        "lastHandledReconcileAt": "now",
        "connectionDetails": {"lastPublishedTime": "t1"},
        "conditions": [*own, {**condition("Backup", "True", "Done"), "observedGeneration": 4}],
    }


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        pytest.param([], 'XDb "orders-x" is not ready', id="nothing said"),
        pytest.param([condition("Ready", "False", "Creating")], 'XDb "orders-x" is not ready: Creating', id="a reason"),
        pytest.param(
            [condition("Ready", "False", "Creating", "Unready resources: a")],
            'XDb "orders-x" is not ready: Unready resources: a',
            id="a message",
        ),
        pytest.param(
            [
                condition("Ready", "False", "Creating", "x"),
                condition("Synced", "False", "ReconcileError", "no function"),
            ],
            'XDb "orders-x" is not ready: no function',
            id="an error explains more",
        ),
    ],
)
def test_a_waiting_claim_says_what_its_xr_waits_for(conditions: list[Object], message: str) -> None:
    found = readiness(xr(status={"conditions": conditions}))
    assert (found.status, found.reason, found.message) == ("False", "Waiting", message)


def test_a_claim_is_available_when_its_xr_is_ready() -> None:
    found = readiness(xr(status={"conditions": [condition("Ready", "True")]}))
    assert (found.type, found.status, found.reason, found.message) == ("Ready", "True", "Available", "")


# -- connection details


def secret(name: str = "details", *, owner: Object | None = None, data: Object | None = None, **more: Any) -> Object:
    metadata: Object = {"name": name, "namespace": "shop"}
    if owner is not None:
        metadata["ownerReferences"] = [
            {"kind": owner["kind"], "name": "o", "uid": owner["metadata"]["uid"], "controller": True}
        ]
    return {"metadata": metadata, "type": "connection.crossplane.io/v1alpha1", "data": data or {}, **more}


WANTS = {"writeConnectionSecretToRef": {"name": "details"}}


def test_details_are_copied_to_a_secret_that_the_claim_controls() -> None:
    source = secret("source", owner=xr(), data={"user": "YQ=="}, type="anything")
    made = secret_for_claim(claim(WANTS), xr(), source, None)
    assert made is not None
    assert (made["data"], made["type"]) == ({"user": "YQ=="}, "connection.crossplane.io/v1alpha1")
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == ("shop", "details")
    assert [(each["uid"], each["controller"]) for each in made["metadata"]["ownerReferences"]] == [("c1", True)]
    assert secret_for_claim(claim(WANTS), xr(), source, made) is None
    changed = secret_for_claim(claim(WANTS), xr(), secret("source", owner=xr()), made)
    assert changed is not None
    assert changed == {**made, "data": {}}


def test_details_of_a_secret_that_is_not_the_xrs_are_not_copied() -> None:
    for source in (secret("s"), secret("s", owner=xr(uid="x2"))):
        with pytest.raises(SecretRefused, match='Secret shop/s is not controlled by XDb "orders-x"'):
            secret_for_claim(claim(WANTS), xr(), source, None)
    merely_owned = secret("s", owner=xr())
    merely_owned["metadata"]["ownerReferences"][0]["controller"] = False
    with pytest.raises(SecretRefused):
        secret_for_claim(claim(WANTS), xr(), merely_owned, None)


def test_a_secret_of_somebody_else_is_not_overwritten() -> None:
    source = secret("source", owner=xr())
    with pytest.raises(SecretRefused, match="controlled by Db"):
        secret_for_claim(claim(WANTS), xr(), source, secret(owner=claim(uid="c2")))
    with pytest.raises(SecretRefused, match="not for connection details"):
        secret_for_claim(claim(WANTS), xr(), source, secret(type="Opaque"))


def test_an_xr_says_where_its_details_are_and_that_they_were_published() -> None:
    assert details_place(xr()) is None
    assert details_place(xr({"writeConnectionSecretToRef": {"name": "a", "namespace": "b"}})) == ("b", "a")
    assert not has_published(xr())
    assert has_published(xr(status={"connectionDetails": {"lastPublishedTime": "2026-01-01T00:00:00Z"}}))


# -- what an apply would change

NODE = compile_type(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "whole": {"type": "object", "x-kubernetes-map-type": "atomic"},
                    "plain": {"type": "array", "items": {"type": "string"}},
                },
            }
        },
    }
)
words = st.sampled_from(["a", "b"])
free = st.recursive(
    st.one_of(
        words, st.booleans(), st.integers(0, 1), st.lists(st.one_of(st.booleans(), st.integers(0, 1)), max_size=2)
    ),
    lambda below: st.dictionaries(words, below, max_size=2),
    max_leaves=4,
)
clear = {"free": free, "other": free, "plain": st.lists(words, max_size=2)}
unclear = {"tags": st.lists(words, unique=True), "whole": st.dictionaries(words, words)}
clear_specs = st.fixed_dictionaries({}, optional=clear)
specs = st.fixed_dictionaries({}, optional={**clear, **unclear})
labels = st.dictionaries(words, words, max_size=2)


def configured(spec: Object, labelled: Object) -> Object:
    metadata = {"name": "x", "labels": labelled} if labelled else {"name": "x"}
    return {"apiVersion": "example.org/v2", "kind": "XDb", "metadata": metadata, "spec": spec}


def applied(live: Object | None, config: Object, manager: str = CLAIM_MANAGER) -> Object:
    return ssa.apply(live, config, node=NODE, manager=manager, api_version="example.org/v2", force=True, now="t0")


def written(live: Object | None, spec: Object, manager: str = "kubectl-edit") -> Object:
    """An object after somebody wrote these fields without applying them."""
    before = live or configured({}, {})
    after: Object = {**before, "metadata": dict(before["metadata"]), "spec": {**before["spec"], **spec}}
    after["metadata"]["managedFields"] = ssa.track_update(
        live, after, node=NODE, manager=manager, api_version="example.org/v2", now="t1"
    )
    return after


@settings(deadline=None)
@given(st.builds(configured, clear_specs, labels))
def test_what_was_just_applied_is_known_to_be_applied(config: Object) -> None:
    assert is_applied(applied(None, config), config, manager=CLAIM_MANAGER)


@settings(deadline=None)
@given(
    st.builds(configured, specs, labels),
    st.builds(configured, specs, labels),
    specs,
    st.builds(configured, specs, labels),
)
def test_an_apply_that_is_left_out_would_have_changed_nothing(
    first: Object, others: Object, edit: Object, wanted: Object
) -> None:
    live = written(applied(applied(None, first), others, "somebody"), edit)
    for config in (wanted, first, configured({**first["spec"], **edit}, {})):
        if is_applied(live, config, manager=CLAIM_MANAGER):
            assert applied(copy.deepcopy(live), config) == live


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda live: live["spec"].update(size=2), id="another value"),
        pytest.param(lambda live: live["spec"].pop("size"), id="a value gone"),
        pytest.param(lambda live: live["spec"].update(size=True), id="true is not 1"),
        pytest.param(lambda live: live["metadata"].update(labels={}), id="a label gone"),
        pytest.param(lambda live: live["metadata"].update(managedFields=[]), id="not owned"),
    ],
)
def test_what_differs_is_applied_again(change: Any) -> None:
    config = configured({"size": 1}, {"a": "b"})
    live = applied(None, config)
    assert is_applied(live, config, manager=CLAIM_MANAGER)
    change(live)
    assert not is_applied(live, config, manager=CLAIM_MANAGER)


def test_what_is_no_longer_wanted_is_applied_away() -> None:
    live = applied(None, configured({"size": 1, "region": "eu"}, {}))
    assert not is_applied(live, configured({"size": 1}, {}), manager=CLAIM_MANAGER)


def test_what_was_applied_in_another_version_or_by_another_manager_is_applied_again() -> None:
    config = configured({"size": 1}, {})
    live = applied(None, config)
    assert not is_applied(live, {**config, "apiVersion": "example.org/v1"}, manager=CLAIM_MANAGER)
    assert not is_applied(live, config, manager="somebody")


def test_a_value_that_somebody_else_put_there_is_applied_to_be_owned() -> None:
    live = written(applied(None, configured({"free": {}}, {})), {"free": {"a": "b"}})
    assert not is_applied(live, configured({"free": {"a": "b"}}, {}), manager=CLAIM_MANAGER)


def test_those_who_wrote_without_apply_give_up_their_fields_once() -> None:
    live = written(None, {"size": 1, "region": "eu", "claimRef": {"name": "orders"}}, "velero")
    live = applied(live, configured({"resourceRefs": [{"name": "kept"}]}, {}), "composite")
    entries = ownership_for_claim(live)
    assert entries is not None
    assert [entry["manager"] for entry in entries] == ["composite", CLAIM_MANAGER]
    live["metadata"]["managedFields"] = entries
    assert ownership_for_claim(live) is None
    live = applied(live, configured({"size": 1, "region": "eu", "claimRef": {"name": "orders"}}, {}))
    live = applied(live, configured({"size": 1, "claimRef": {"name": "orders"}}, {}))
    assert live["spec"] == {"size": 1, "claimRef": {"name": "orders"}, "resourceRefs": [{"name": "kept"}]}
