"""Which Composition and which revision an XR uses: every rule of the spec, without any I/O."""

from __future__ import annotations

import re
from typing import Any

import pytest

from planform.api.xr import Style
from planform.compositions.revisions import new_revision
from planform.compositions.selection import (
    NoComposition,
    NoRevision,
    PipelineNotValid,
    Policy,
    RevisionChoice,
    RevisionRefused,
    Rule,
    WrongCompositeType,
    check_revision,
    choose_composition,
    choose_revision,
    effective_policy,
    named_composition,
)

Object = dict[str, Any]
STYLES: tuple[Style, ...] = ("modern", "legacy")
STABLE = {"matchLabels": {"channel": "stable"}}
NO_SELECTOR: Object = {"matchLabels": {}}


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest) -> Style:
    found: Style = request.param
    return found


def xr(style: Style = "modern", **fields: Any) -> Object:
    spec = {"crossplane": fields} if style == "modern" else fields
    return {"apiVersion": "example.org/v1", "kind": "XDatabase", "metadata": {"name": "db"}, "spec": spec}


def composition(name: str, *, version: str = "v1", created: str = "2026-01-01T00:00:00Z", **labels: str) -> Object:
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": created, "labels": labels},
        "spec": {"compositeTypeRef": {"apiVersion": f"example.org/{version}", "kind": "XDatabase"}},
    }


def revision(number: int, *, of: str = "gcp", **labels: str) -> Object:
    made = new_revision(composition(of, **labels), number)
    made["metadata"]["name"] = f"{of}-{number}"
    return made


def ref(name: str) -> Object:
    return {"name": name}


# Compositions


def test_a_reference_is_kept_and_the_selector_ignored(style: Style) -> None:
    obj = xr(style, compositionRef=ref("aws"), compositionSelector={"matchLabels": {"provider": "gcp"}})
    choice = choose_composition(obj, {}, [composition("gcp", provider="gcp")], style=style)
    assert (choice.name, choice.rule, choice.write) == ("aws", Rule.REF, False)


def test_the_enforced_composition_beats_everything_and_is_written_once(style: Style) -> None:
    spec = {"enforcedCompositionRef": ref("gcp"), "defaultCompositionRef": ref("aws")}
    before = choose_composition(xr(style, compositionRef=ref("azure")), spec, [], style=style)
    assert (before.name, before.rule, before.write) == ("gcp", Rule.ENFORCED, True)
    assert not choose_composition(xr(style, compositionRef=ref("gcp")), spec, [], style=style).write


def test_the_default_composition_is_used_only_without_reference_and_selector(style: Style) -> None:
    spec = {"defaultCompositionRef": ref("aws")}
    gcp = composition("gcp", provider="gcp")
    chosen = choose_composition(xr(style), spec, [gcp], style=style)
    assert (chosen.name, chosen.rule, chosen.write) == ("aws", Rule.DEFAULT, True)
    selecting = xr(style, compositionSelector={"matchLabels": {"provider": "gcp"}})
    assert choose_composition(selecting, spec, [gcp], style=style).name == "gcp"
    assert choose_composition(xr(style, compositionRef=ref("x")), spec, [gcp], style=style).name == "x"


def test_nothing_has_to_be_listed_when_a_composition_is_named(style: Style) -> None:
    assert named_composition(xr(style), {}, style=style) is None
    found = named_composition(xr(style), {"defaultCompositionRef": ref("aws")}, style=style)
    assert found is not None and found.name == "aws"


def test_a_selector_chooses_among_those_of_exactly_this_version_and_kind(style: Style) -> None:
    obj = xr(style, compositionSelector={"matchLabels": {"provider": "gcp"}})
    offered = [
        composition("old", version="v1alpha1", provider="gcp", created="2020-01-01T00:00:00Z"),
        composition("other", provider="aws", created="2020-01-01T00:00:00Z"),
        composition("gcp", provider="gcp"),
    ]
    choice = choose_composition(obj, {}, offered, style=style)
    assert (choice.name, choice.rule, choice.write) == ("gcp", Rule.SELECTOR, True)


def test_of_several_that_fit_the_oldest_is_chosen_then_the_first_by_name_where_upstream_picks_at_random() -> None:
    newer, older = composition("a", created="2026-02-01T00:00:00Z"), composition("z")
    assert choose_composition(xr(), {}, [newer, older], style="modern").name == "z"
    twins = [composition("c"), composition("b")]
    assert {choose_composition(xr(), {}, order, style="modern").name for order in (twins, twins[::-1])} == {"b"}


def test_a_composition_that_is_being_deleted_is_not_chosen() -> None:
    dying = composition("a")
    dying["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    assert choose_composition(xr(), {}, [dying, composition("b")], style="modern").name == "b"
    with pytest.raises(NoComposition, match='"a" is being deleted'):
        choose_composition(xr(), {}, [dying], style="modern")


def test_no_fitting_composition_is_an_error_that_names_the_near_misses() -> None:
    obj = xr(compositionSelector={"matchLabels": {"provider": "gcp", "tier": "gold"}})
    unrelated = composition("network")
    unrelated["spec"]["compositeTypeRef"]["kind"] = "XNetwork"
    offered = [composition("beta", version="v1beta1"), composition("aws", provider="aws"), unrelated]
    with pytest.raises(NoComposition) as error:
        choose_composition(obj, {}, offered, style="modern")
    assert str(error.value) == (
        "no composition is for XDatabase (example.org/v1) with the labels provider=gcp,tier=gold: "
        '"aws" has provider=aws and lacks tier; "beta" is for version v1beta1'
    )
    assert error.value.hint


def test_many_near_misses_are_counted_and_not_all_told() -> None:
    offered = [composition(f"c{number}", version="v2") for number in range(5)]
    with pytest.raises(NoComposition, match=r'"c2" is for version v2; and 2 more$'):
        choose_composition(xr(), {}, offered, style="modern")


# Policies


@pytest.mark.parametrize(
    ("own", "xrd_spec", "expected"),
    [
        pytest.param(None, {}, Policy.AUTOMATIC, id="nobody says"),
        pytest.param("Manual", {}, Policy.MANUAL, id="the XR says"),
        pytest.param(None, {"defaultCompositionUpdatePolicy": "Manual"}, Policy.MANUAL, id="the XRD's default"),
        pytest.param("Automatic", {"defaultCompositionUpdatePolicy": "Manual"}, Policy.AUTOMATIC, id="XR over default"),
        pytest.param("Automatic", {"enforceCompositionUpdatePolicy": "Manual"}, Policy.MANUAL, id="enforced Manual"),
        pytest.param("Manual", {"enforceCompositionUpdatePolicy": "Automatic"}, Policy.AUTOMATIC, id="enforced Auto"),
    ],
)
def test_the_policy_is_enforced_by_the_xrd_or_the_xrs_own_or_the_default(
    own: str | None, xrd_spec: Object, expected: Policy, style: Style
) -> None:
    obj = xr(style, **({"compositionUpdatePolicy": own} if own else {}))
    assert effective_policy(obj, xrd_spec, style=style) is expected


# Revisions


def chosen(
    obj: Object, *revisions: Object, xrd: Object | None = None, last: Object | None = None, style: Style = "modern"
) -> RevisionChoice:
    return choose_revision(obj, xrd or {}, "gcp", revisions, style=style, last_selector=last)


def manual(style: Style = "modern", **fields: Any) -> Object:
    return xr(style, compositionUpdatePolicy="Manual", **fields)


def test_automatic_moves_the_reference_to_the_newest_revision(style: Style) -> None:
    choice = chosen(xr(style, compositionRevisionRef=ref("gcp-1")), revision(1), revision(3), revision(2), style=style)
    assert (choice.name, choice.write_ref, choice.rule) == ("gcp-3", True, Rule.NEWEST)


def test_automatic_writes_nothing_when_the_reference_is_the_newest_already(style: Style) -> None:
    choice = chosen(xr(style, compositionRevisionRef=ref("gcp-2")), revision(1), revision(2), style=style)
    assert (choice.name, choice.write_ref, choice.write_selector) == ("gcp-2", False, None)


def test_an_explicit_edit_of_the_reference_does_not_survive_under_automatic() -> None:
    edited = xr(compositionRevisionRef=ref("gcp-1"))
    assert chosen(edited, revision(1), revision(2), last=NO_SELECTOR).write_ref


def test_manual_with_a_reference_stays_put_though_there_are_newer_ones(style: Style) -> None:
    choice = chosen(manual(style, compositionRevisionRef=ref("gcp-1")), revision(1), revision(2), style=style)
    assert (choice.name, choice.write_ref, choice.policy, choice.rule) == ("gcp-1", False, Policy.MANUAL, Rule.REF)


def test_manual_without_a_reference_pins_the_newest(style: Style) -> None:
    choice = chosen(manual(style), revision(1), revision(2), style=style)
    assert (choice.name, choice.write_ref) == ("gcp-2", True)


def test_a_selector_narrows_what_automatic_follows(style: Style) -> None:
    obj = xr(style, compositionRevisionSelector=STABLE)
    found = chosen(obj, revision(1, channel="stable"), revision(2, channel="dev"), style=style)
    assert (found.name, found.rule, found.resolved_selector) == ("gcp-1", Rule.SELECTOR, STABLE)


EXPRESSIONS: dict[str, tuple[list[Object], str]] = {
    "In": ([{"key": "channel", "operator": "In", "values": ["stable", "beta"]}], "gcp-2"),
    "NotIn": ([{"key": "channel", "operator": "NotIn", "values": ["dev", "beta"]}], "gcp-4"),
    "Exists": ([{"key": "channel", "operator": "Exists"}], "gcp-3"),
    "DoesNotExist": ([{"key": "channel", "operator": "DoesNotExist"}], "gcp-4"),
    "all of several": (
        [{"key": "channel", "operator": "Exists"}, {"key": "channel", "operator": "NotIn", "values": ["dev", "beta"]}],
        "gcp-1",
    ),
}


@pytest.mark.parametrize("case", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_expressions_of_the_selector_hold_for_the_xrs_own_and_for_the_xrds_default(
    case: tuple[list[Object], str], style: Style
) -> None:
    expressions, wanted = case
    revisions = [revision(1, channel="stable"), revision(2, channel="beta"), revision(3, channel="dev"), revision(4)]
    selector = {"matchExpressions": expressions}
    own = chosen(xr(style, compositionRevisionSelector=selector), *revisions, style=style)
    assert (own.name, own.resolved_selector, own.write_selector) == (wanted, {"matchLabels": {}, **selector}, None)
    default = chosen(xr(style), *revisions, xrd={"defaultCompositionRevisionSelector": selector}, style=style)
    assert (default.name, default.write_selector) == (wanted, {"matchLabels": {}, **selector})


def test_labels_and_expressions_must_both_hold() -> None:
    selector = {**STABLE, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["free"]}]}
    obj = xr(compositionRevisionSelector=selector)
    tiers = revision(1, channel="stable", tier="paid"), revision(2, channel="stable", tier="free"), revision(3)
    assert chosen(obj, *tiers).name == "gcp-1"
    with pytest.raises(NoRevision, match=re.escape("channel=stable,tier notin (free)")) as error:
        chosen(obj, *tiers[1:])
    assert '"gcp-2" is not tier notin (free)' in str(error.value)


def test_other_expressions_count_as_another_selector_of_a_manual_xr() -> None:
    first = {"matchExpressions": [{"key": "channel", "operator": "In", "values": ["stable"]}]}
    second = {"matchExpressions": [{"key": "channel", "operator": "In", "values": ["dev"]}]}
    obj = manual(compositionRevisionSelector=second, compositionRevisionRef=ref("gcp-1"))
    both = revision(1, channel="stable"), revision(2, channel="dev")
    assert chosen(obj, *both, last=second).name == "gcp-1"
    assert chosen(obj, *both, last=first).name == "gcp-2"


@pytest.mark.parametrize(
    "expression", [{"key": "channel", "operator": "Like"}, {"key": "channel", "operator": "In", "values": []}]
)
def test_an_expression_that_means_nothing_is_an_error_that_says_so(expression: Object) -> None:
    obj = xr(compositionRevisionSelector={"matchExpressions": [expression]})
    with pytest.raises(NoRevision, match="the selector of composition revisions is not valid"):
        chosen(obj, revision(1, channel="stable"))


@pytest.mark.parametrize("policy", ["Automatic", "Manual"])
def test_a_selector_that_nothing_matches_is_an_error_that_names_the_near_misses(policy: str) -> None:
    obj = xr(compositionUpdatePolicy=policy, compositionRevisionSelector=STABLE)
    with pytest.raises(NoRevision) as error:
        chosen(obj, revision(1), revision(2, channel="dev"))
    assert str(error.value) == (
        'no revision of composition "gcp" has the labels channel=stable: "gcp-2" has channel=dev; "gcp-1" lacks channel'
    )


def test_manual_without_a_reference_pins_the_newest_that_the_selector_matches_where_upstream_ignores_it() -> None:
    obj = manual(compositionRevisionSelector=STABLE)
    choice = chosen(obj, revision(1, channel="stable"), revision(2, channel="dev"))
    assert (choice.name, choice.write_ref, choice.resolved_selector) == ("gcp-1", True, STABLE)


def test_manual_does_not_follow_a_newer_match_of_an_unchanged_selector() -> None:
    obj = manual(compositionRevisionSelector=STABLE, compositionRevisionRef=ref("gcp-1"))
    choice = chosen(obj, revision(1, channel="stable"), revision(2, channel="stable"), last=STABLE)
    assert (choice.name, choice.write_ref) == ("gcp-1", False)


def test_manual_pins_the_newest_match_again_when_the_selector_changed_since_it_was_resolved() -> None:
    obj = manual(compositionRevisionSelector={"matchLabels": {"channel": "dev"}}, compositionRevisionRef=ref("gcp-1"))
    revisions = revision(1, channel="stable"), revision(2, channel="dev"), revision(3, channel="dev")
    choice = chosen(obj, *revisions, last=STABLE)
    assert (choice.name, choice.write_ref) == ("gcp-3", True)
    assert choice.resolved_selector == {"matchLabels": {"channel": "dev"}}


def test_an_explicit_edit_of_a_manual_reference_wins_until_the_selector_changes() -> None:
    revisions = revision(1, channel="stable"), revision(2, channel="stable"), revision(3, channel="dev")
    edited = manual(compositionRevisionSelector=STABLE, compositionRevisionRef=ref("gcp-3"))
    assert chosen(edited, *revisions, last=STABLE).name == "gcp-3"
    selector = {"matchLabels": {"channel": "dev"}}
    changed = manual(compositionRevisionSelector=selector, compositionRevisionRef=ref("gcp-1"))
    assert chosen(changed, *revisions, last=STABLE).name == "gcp-3"


def test_a_selector_added_to_a_manual_xr_that_had_none_counts_as_changed() -> None:
    revisions = revision(1, channel="stable"), revision(2)
    before = chosen(manual(compositionRevisionRef=ref("gcp-2")), *revisions)
    assert before.resolved_selector == NO_SELECTOR
    obj = manual(compositionRevisionRef=ref("gcp-2"), compositionRevisionSelector=STABLE)
    assert chosen(obj, *revisions, last=before.resolved_selector).name == "gcp-1"


def test_a_manual_xr_that_comes_with_reference_and_selector_keeps_its_reference() -> None:
    obj = manual(compositionRevisionRef=ref("gcp-2"), compositionRevisionSelector=STABLE)
    choice = chosen(obj, revision(1, channel="stable"), revision(2), last=None)
    assert (choice.name, choice.write_ref, choice.resolved_selector) == ("gcp-2", False, STABLE)


def test_removing_the_selector_moves_no_manual_xr() -> None:
    obj = manual(compositionRevisionRef=ref("gcp-1"))
    choice = chosen(obj, revision(1, channel="stable"), revision(2), last=STABLE)
    assert (choice.name, choice.resolved_selector) == ("gcp-1", NO_SELECTOR)


def test_a_changed_selector_that_matches_nothing_leaves_the_manual_reference_and_is_an_error() -> None:
    obj = manual(compositionRevisionRef=ref("gcp-1"), compositionRevisionSelector=STABLE)
    with pytest.raises(NoRevision, match="channel=stable"):
        chosen(obj, revision(1), last=NO_SELECTOR)


def test_an_enforced_policy_decides_whether_a_reference_stays() -> None:
    pinned, both = manual(compositionRevisionRef=ref("gcp-1")), (revision(1), revision(2))
    assert chosen(pinned, *both, xrd={"enforceCompositionUpdatePolicy": "Automatic"}).name == "gcp-2"
    free = xr(compositionUpdatePolicy="Automatic", compositionRevisionRef=ref("gcp-1"))
    assert chosen(free, *both, xrd={"enforceCompositionUpdatePolicy": "Manual"}).name == "gcp-1"


def test_the_default_revision_selector_is_copied_only_to_an_xr_with_neither_reference_nor_selector(
    style: Style,
) -> None:
    xrd = {"defaultCompositionRevisionSelector": STABLE}
    revisions = revision(1, channel="stable"), revision(2, channel="dev")
    copied = chosen(xr(style), *revisions, xrd=xrd, style=style)
    assert (copied.name, copied.write_selector) == ("gcp-1", STABLE)
    referring = chosen(xr(style, compositionRevisionRef=ref("gcp-2")), *revisions, xrd=xrd, style=style)
    assert (referring.name, referring.write_selector) == ("gcp-2", None)
    dev = {"matchLabels": {"channel": "dev"}}
    selecting = chosen(xr(style, compositionRevisionSelector=dev), *revisions, xrd=xrd, style=style)
    assert (selecting.name, selecting.write_selector) == ("gcp-2", None)


def test_the_newest_is_looked_for_only_among_revisions_that_the_composition_controls() -> None:
    stray, foreign, stale = revision(5), revision(6), revision(7)
    stray["metadata"]["ownerReferences"] = []
    foreign["metadata"]["ownerReferences"][0]["name"] = "other"
    stale["metadata"]["ownerReferences"][0]["uid"] = "of-a-deleted-namesake"
    assert chosen(xr(), revision(1), stray, foreign).name == "gcp-1"
    revisions = [revision(1), stale]
    found = choose_revision(xr(), {}, "gcp", revisions, style="modern", composition_uid="uid-of-gcp")
    assert found.name == "gcp-1"
    with pytest.raises(NoRevision, match='composition "gcp" has no revisions'):
        chosen(xr(), stray, foreign)


def test_a_manual_reference_to_a_revision_of_another_composition_is_refused() -> None:
    obj = manual(compositionRevisionRef=ref("aws-1"))
    with pytest.raises(RevisionRefused, match='"gcp" has no revision "aws-1": it is another composition\'s') as error:
        chosen(obj, revision(1), revision(1, of="aws"))
    assert error.value.hint


def test_a_manual_reference_to_a_revision_that_somebody_else_controls_is_refused() -> None:
    forged = revision(1)
    forged["metadata"]["ownerReferences"][0]["kind"] = "Deployment"
    with pytest.raises(RevisionRefused):
        chosen(manual(compositionRevisionRef=ref("gcp-1")), forged)


def test_a_manual_reference_to_nothing_is_refused() -> None:
    with pytest.raises(RevisionRefused, match=r'composition "gcp" has no revision "gcp-9"$'):
        chosen(manual(compositionRevisionRef=ref("gcp-9")), revision(1))


def test_a_pinned_revision_that_a_backup_restored_without_its_owner_is_used() -> None:
    restored = revision(1)
    del restored["metadata"]["ownerReferences"]
    assert chosen(manual(compositionRevisionRef=ref("gcp-1")), restored).name == "gcp-1"


# Whether a revision may be used


def judged(status: str, message: str = "") -> Object:
    found = revision(1)
    found["status"] = {"conditions": [{"type": "ValidPipeline", "status": status, "message": message}]}
    return found


def test_a_revision_with_a_valid_pipeline_for_this_type_may_be_used() -> None:
    check_revision(xr(), judged("True"))


def test_an_xr_stays_on_a_judged_revision_until_the_newer_one_has_been_judged_and_follows_it_either_way() -> None:
    unknown, refused = revision(2), revision(2)
    unknown["status"] = {"conditions": [{"type": "ValidPipeline", "status": "Unknown"}]}
    refused["status"] = {"conditions": [{"type": "ValidPipeline", "status": "False"}]}
    following = xr(compositionRevisionRef=ref("gcp-1"))
    assert chosen(following, judged("True"), revision(2)).name == "gcp-1"
    assert chosen(following, judged("True"), unknown).name == "gcp-1"
    assert chosen(following, judged("True"), refused).name == "gcp-2"
    assert chosen(xr(), revision(1), revision(2)).name == "gcp-2"


def test_a_missing_capability_is_refused_with_its_message() -> None:
    with pytest.raises(PipelineNotValid, match='"gcp-1" cannot be used: function "f" lacks it'):
        check_revision(xr(), judged("False", 'function "f" lacks it'))


def test_a_pipeline_of_which_nothing_is_known_yet_is_refused() -> None:
    with pytest.raises(PipelineNotValid, match="nothing has looked at its pipeline yet"):
        check_revision(xr(), revision(1))
    with pytest.raises(PipelineNotValid):
        check_revision(xr(), judged("Unknown"))


def test_a_composition_for_another_version_of_the_type_is_refused() -> None:
    newer = {**xr(), "apiVersion": "example.org/v2"}
    with pytest.raises(WrongCompositeType, match=r'"gcp" is for XDatabase \(example.org/v1\), and this XR is .*v2'):
        check_revision(newer, judged("True"))
