"""Which revisions a Composition must have, and which may go: decided without any I/O."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.names import label_value_problems, subdomain_problems
from planform.compositions.revisions import (
    DEFAULT_HISTORY,
    RevisionPlan,
    composition_label,
    identity_of,
    new_revision,
    number_of,
    plan_revisions,
    revision_name,
    superfluous,
)
from planform.pipeline.revision_selectors import RevisionSelector

Object = dict[str, Any]
NAME, HASH, SPEC_HASH = (f"crossplane.io/composition-{what}" for what in ("name", "hash", "spec-hash"))


def selector(**labels: str) -> RevisionSelector:
    return RevisionSelector.of({"matchLabels": labels})


def composition(region: str = "eu", *, name: str = "example", labels: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": labels or {}},
        "spec": {
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "XDatabase"},
            "pipeline": [{"step": "a", "functionRef": {"name": "f"}, "input": {"region": region}}],
            **spec,
        },
    }


def carried_out(found: Object, revisions: list[Object]) -> list[Object]:
    """The revisions after what is planned has been done."""
    plan = plan_revisions(found, revisions)
    after = copy.deepcopy(revisions)
    for each in after:
        if each["metadata"]["name"] in {one["metadata"]["name"] for one in plan.adopt}:
            each["metadata"]["ownerReferences"] = new_revision(found, 0)["metadata"]["ownerReferences"]
        if plan.renumber is not None and plan.current and each["metadata"]["name"] == plan.current["metadata"]["name"]:
            each["spec"]["revision"] = plan.renumber
    return [*after, plan.create] if plan.create else after


def history(*versions: Object) -> list[Object]:
    revisions: list[Object] = []
    for version in versions:
        revisions = carried_out(version, revisions)
    return revisions


def numbers(revisions: list[Object]) -> dict[str, int]:
    return {each["spec"]["pipeline"][0]["input"]["region"]: number_of(each) for each in revisions}


# Identity


def test_a_revision_holds_the_spec_its_number_both_hashes_the_labels_and_its_owner() -> None:
    found = composition(labels={"channel": "stable"}, writeConnectionSecretsToNamespace="system")
    revision = new_revision(found, 4)
    labels, digest = revision["metadata"]["labels"], identity_of(found)
    assert revision["spec"] == {**found["spec"], "revision": 4}
    assert labels == {
        "channel": "stable",
        NAME: "example",
        HASH: digest.digest[:63],
        SPEC_HASH: digest.spec_digest[:16],
    }
    assert revision["metadata"]["name"] == f"example-{digest.digest[:12]}"
    assert revision["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "apiextensions.crossplane.io/v1",
            "kind": "Composition",
            "name": "example",
            "uid": "uid-of-example",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_annotations_are_neither_part_of_the_identity_nor_copied_where_the_specs_list_says_they_make_a_revision() -> (
    None
):
    plain, annotated = composition(), composition()
    annotated["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "x"}
    assert identity_of(plain) == identity_of(annotated)
    assert "annotations" not in new_revision(annotated, 1)["metadata"]


def test_a_label_changes_the_identity_but_not_the_hash_of_the_spec() -> None:
    one, other = identity_of(composition()), identity_of(composition(labels={"channel": "dev"}))
    assert one.digest != other.digest
    assert one.spec_digest == other.spec_digest


@pytest.mark.parametrize(
    "label", ["app.kubernetes.io/managed-by", "helm.sh/chart", "argocd.argoproj.io/instance", "helm.sh/anything"]
)
def test_labels_of_tools_neither_count_nor_reach_the_revision(label: str) -> None:
    stamped = composition(labels={label: "x", "channel": "dev"})
    assert identity_of(stamped) == identity_of(composition(labels={"channel": "dev"}))
    assert label not in new_revision(stamped, 1)["metadata"]["labels"]


def test_which_labels_are_tools_can_be_configured() -> None:
    stamped = composition(labels={"ci.example.org/build": "7", "helm.sh/chart": "x"})
    ignored = ["ci.example.org/*"]
    assert identity_of(stamped, ignored_labels=ignored) == identity_of(
        composition(labels={"helm.sh/chart": "x"}), ignored_labels=ignored
    )
    assert identity_of(stamped, ignored_labels=["ci.example.org/"]) == identity_of(stamped, ignored_labels=[])


def test_a_label_of_ours_on_the_composition_does_not_overrule_the_revisions_own() -> None:
    found = composition(labels={NAME: "somebody-else"})
    assert new_revision(found, 1)["metadata"]["labels"][NAME] == "example"


def test_the_order_of_keys_and_the_spelling_of_numbers_do_not_matter() -> None:
    one = composition(deletionBudget={"maxShare": 50, "a": 1.5})
    other = composition(deletionBudget={"a": 1.5, "maxShare": 50.0})
    assert identity_of(one) == identity_of(other)
    assert identity_of(one) != identity_of(composition(deletionBudget={"maxShare": 50, "a": True}))


def test_how_many_revisions_to_keep_is_not_part_of_a_revision() -> None:
    assert identity_of(composition(revisionHistoryLimit=3)) == identity_of(composition())
    assert "revisionHistoryLimit" not in new_revision(composition(revisionHistoryLimit=3), 1)["spec"]


@given(name=st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,250}[a-z0-9])?", fullmatch=True))
def test_names_and_labels_of_revisions_are_valid_however_long_the_compositions_name_is(name: str) -> None:
    revised = revision_name(name, identity_of(composition()))
    assert label_value_problems(revised) == [] and label_value_problems(composition_label(name)) == []
    if not subdomain_problems(name):
        assert subdomain_problems(revised) == []


def test_long_names_that_begin_alike_do_not_share_revisions() -> None:
    one, other = ("x" * 70 + tail for tail in "ab")
    identity = identity_of(composition())
    assert revision_name(one, identity) != revision_name(other, identity)
    assert composition_label(one) != composition_label(other)


# What to do about the revisions


def test_the_first_revision_has_number_one() -> None:
    plan = plan_revisions(composition(), [])
    assert plan.create is not None and number_of(plan.create) == 1
    assert plan.changes


def test_the_same_spec_and_labels_need_nothing() -> None:
    revisions = history(composition())
    plan = plan_revisions(composition(), revisions)
    assert plan == RevisionPlan(current=revisions[0])
    assert not plan.changes


def test_a_new_spec_makes_a_revision_with_the_next_number() -> None:
    assert numbers(history(composition("eu"), composition("us"))) == {"eu": 1, "us": 2}


def test_a_rollback_reuses_the_revision_and_gives_it_the_highest_number() -> None:
    revisions = history(composition("eu"), composition("us"), composition("eu"))
    assert numbers(revisions) == {"eu": 3, "us": 2}
    assert not plan_revisions(composition("eu"), revisions).changes


def test_revisions_without_a_controller_are_adopted_and_keep_their_numbers() -> None:
    revisions = history(composition("eu"), composition("us"))
    for each in revisions:
        del each["metadata"]["ownerReferences"]
    plan = plan_revisions(composition("us"), revisions)
    assert (len(plan.adopt), plan.renumber, plan.create) == (2, None, None)
    after = carried_out(composition("us"), revisions)
    assert numbers(after) == {"eu": 1, "us": 2}
    assert not plan_revisions(composition("us"), after).changes


def test_a_revision_that_crossplane_made_is_recognised_by_what_it_holds() -> None:
    found = composition(labels={"channel": "stable", "helm.sh/chart": "x"})
    theirs = new_revision(composition(labels={"channel": "stable"}), 3)
    del theirs["metadata"]["labels"][SPEC_HASH]
    theirs["metadata"]["labels"] |= {HASH: "0123abc", "helm.sh/chart": "older"}
    theirs["metadata"]["name"] = "example-0123abc"
    assert plan_revisions(found, [theirs]) == RevisionPlan(current=theirs)
    assert plan_revisions(composition("us"), [theirs]).create is not None


def test_a_revision_of_another_controller_is_told_and_not_touched() -> None:
    revisions = history(composition("eu"), composition("us"))
    revisions[0]["metadata"]["ownerReferences"][0]["kind"] = "Deployment"
    plan = plan_revisions(composition("us"), revisions)
    assert plan.foreign == (revisions[0],)
    assert not plan.changes
    assert plan_revisions(composition("eu"), revisions).create is None  # its name is taken


def test_a_revision_of_a_deleted_namesake_is_waited_for() -> None:
    revisions = history(composition())
    revisions[0]["metadata"]["ownerReferences"][0]["uid"] = "gone"
    plan = plan_revisions(composition(), revisions)
    assert plan.awaits == revisions[0]["metadata"]["name"]
    assert not plan.changes and not plan.foreign


def test_a_new_revision_outnumbers_what_a_deleted_namesake_left_behind() -> None:
    revisions = history(composition("eu"), composition("us"))
    for each in revisions:
        each["metadata"]["ownerReferences"][0]["uid"] = "gone"
    plan = plan_revisions(composition("ap"), revisions)
    assert plan.create is not None and number_of(plan.create) == 3
    assert plan.adopt == () and plan.foreign == ()


def test_two_revisions_with_the_same_number_are_told_apart_by_renumbering_the_current_one() -> None:
    revisions = history(composition("eu"), composition("us"))
    revisions[0]["spec"]["revision"] = 2
    assert plan_revisions(composition("us"), revisions).renumber == 3


def test_a_number_that_was_given_is_not_given_again_though_its_revision_was_deleted() -> None:
    revisions = history(composition("eu"), composition("us"))[:1]
    found = composition("us")
    found["status"] = {"latestRevision": {"name": "example-x", "revision": 2}}
    plan = plan_revisions(found, revisions)
    assert plan.create is not None and number_of(plan.create) == 3


def test_a_composition_that_is_being_deleted_needs_no_revision() -> None:
    found = composition()
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert plan_revisions(found, []) == RevisionPlan()


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_whatever_the_history_the_current_version_is_newest_and_numbers_only_grow(regions: list[str]) -> None:
    revisions: list[Object] = []
    for region in regions:
        before = numbers(revisions)
        revisions = carried_out(composition(region), revisions)
        after = numbers(revisions)
        assert all(after[each] >= number for each, number in before.items())
        assert max(after, key=after.__getitem__) == region
        assert len(set(after.values())) == len(after) == len({*before, region})
        assert not plan_revisions(composition(region), revisions).changes


# Which may go


def regions(found: tuple[Object, ...]) -> list[str]:
    return [each["spec"]["pipeline"][0]["input"]["region"] for each in found]


def many(count: int) -> list[Object]:
    return history(*(composition(f"r{number}") for number in range(1, count + 1)))


def test_by_default_ten_unused_revisions_are_kept_beside_the_newest() -> None:
    assert DEFAULT_HISTORY == 10
    assert superfluous(composition(), many(11), used=(), selectors=()) == ()
    assert regions(superfluous(composition(), many(13), used=(), selectors=())) == ["r1", "r2"]


def test_a_limit_of_zero_keeps_all() -> None:
    assert superfluous(composition(revisionHistoryLimit=0), many(30), used=(), selectors=()) == ()


def test_the_newest_is_kept_though_nobody_uses_it() -> None:
    assert regions(superfluous(composition(revisionHistoryLimit=1), many(3), used=(), selectors=())) == ["r1"]


def test_a_revision_in_use_is_kept_and_does_not_count() -> None:
    revisions = many(5)
    used = {revisions[0]["metadata"]["name"], revisions[2]["metadata"]["name"]}
    found = superfluous(composition(revisionHistoryLimit=1), revisions, used=used, selectors=())
    assert regions(found) == ["r2"]


def test_a_revision_whose_labels_an_xr_selects_is_kept() -> None:
    labelled = composition("r0", labels={"channel": "stable", "tier": "gold"})
    revisions = history(labelled, *(composition(f"r{number}") for number in range(1, 4)))
    keep = composition(revisionHistoryLimit=1)
    selecting = superfluous(keep, revisions, used=(), selectors=[selector(channel="stable")])
    assert regions(selecting) == ["r1"]
    others = superfluous(keep, revisions, used=(), selectors=[selector(channel="dev"), selector()])
    assert regions(others) == ["r0", "r1"]


def test_revisions_of_others_and_those_on_their_way_out_are_left_alone() -> None:
    revisions = many(4)
    revisions[0]["metadata"]["ownerReferences"][0]["uid"] = "other"
    revisions[1]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert superfluous(composition(revisionHistoryLimit=1), revisions, used=(), selectors=()) == ()
