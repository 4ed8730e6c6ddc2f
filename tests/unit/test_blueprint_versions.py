"""The life of a version: what the file may say, what a release makes of it, and which version then runs."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.blueprints.catalogue import Ask, Chosen, PhaseCatalogue
from planform.blueprints.contract import PhaseFunction
from planform.blueprints.errors import VersionsInvalid
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.blueprints.versions import State, embedded_versions, parse_versions
from planform.functions.errors import FunctionNotFound, ResolutionError, VersionNotFound, VersionRemoved
from planform.functions.resolution import Rule

RELEASES = 'releases: ["0.1", "0.2", "0.3", "0.4"]\n'
WAIT = (
    RELEASES
    + """
functions:
  Wait:
    stable: {stable}
    versions:
      v0.0.0: {{introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.4", replacement: v1.0.0}}
      v1.0.0: {{introducedIn: "0.1", promotedIn: "0.2"}}
      v1.1.0: {{introducedIn: "0.3", labels: {{channel: beta}}}}
"""
)
LIVE = {
    "0.1": ["v0.0.0", "v1.0.0"],
    "0.2": ["v0.0.0", "v1.0.0"],
    "0.3": ["v0.0.0", "v1.0.0", "v1.1.0"],
    "0.4": ["v1.0.0", "v1.1.0"],
}


def registry(name: str, *versions: str, stable: str = "") -> PhaseFunctionRegistry:
    found = PhaseFunctionRegistry(plugins=lambda: ())
    for version in versions:
        found.register(PhaseFunction(name=name, run=print, version=version, stable=version == stable))
    return found


def wait_at(release: str, **more: Any) -> PhaseCatalogue:
    """The function of the design's example in one release, whose build has the code of what lives then."""
    text = WAIT.format(stable="v0.0.0" if release == "0.1" else "v1.0.0")
    return PhaseCatalogue(registry("Wait", *LIVE[release]), versions=parse_versions(text), release=release, **more)


def custom(found: PhaseFunctionRegistry) -> PhaseCatalogue:
    """Functions that no versions file knows."""
    return PhaseCatalogue(found, versions=parse_versions(RELEASES), release="0.1")


def codes(chosen: Chosen) -> list[str]:
    return [warning.code for warning in chosen.warnings]


def told(ask: Ask, catalogue: PhaseCatalogue) -> tuple[str, Rule, list[str]]:
    chosen = catalogue.resolve(ask)
    return chosen.version, chosen.rule, codes(chosen)


def test_the_file_of_this_build_holds_together() -> None:
    versions = embedded_versions()
    assert versions.position("0.1") > versions.position("0.0")


def test_a_deprecated_version_works_then_warns_twice_then_is_refused() -> None:
    pin = Ask("Wait", pin="v0.0.0")
    assert codes(wait_at("0.1").resolve(pin)) == []
    for release in ("0.2", "0.3"):
        (warning,) = wait_at(release).resolve(pin).warnings
        assert warning.message == "Wait v0.0.0: deprecated since 0.2, stops working in 0.4, move to v1.0.0"
        assert (warning.deprecated_in, warning.removed_in, warning.replacement) == ("0.2", "0.4", "v1.0.0")
    with pytest.raises(VersionRemoved, match=r"replaced by v1\.0\.0"):
        wait_at("0.4").resolve(pin)


def test_a_downgrade_of_the_control_plane_revives_a_removed_version() -> None:
    with pytest.raises(VersionRemoved):
        wait_at("0.4").resolve(Ask("Wait", pin="v0.0.0"))
    assert wait_at("0.3").resolve(Ask("Wait", pin="v0.0.0")).version == "v0.0.0"


def test_promotion_moves_whoever_does_not_pin_and_is_announced_a_release_earlier() -> None:
    plain = Ask("Wait")
    assert told(plain, wait_at("0.1")) == ("v0.0.0", Rule.STABLE, ["StableWillChange"])
    assert told(plain, wait_at("0.2")) == ("v1.0.0", Rule.STABLE, [])
    assert told(Ask("Wait", pin="v0.0.0"), wait_at("0.1")) == ("v0.0.0", Rule.PIN, [])
    announcement = wait_at("0.1").resolve(plain).warnings[0]
    assert announcement.message == "Wait: v1.0.0 becomes stable in 0.2; set funcVersion to stay on v0.0.0"


@pytest.mark.parametrize(
    ("release", "ask", "version", "rule", "warnings"),
    [
        ("0.3", Ask("Wait", pin="v1.0.0"), "v1.0.0", Rule.PIN, []),
        ("0.3", Ask("Wait", pin="1.0.0"), "v1.0.0", Rule.PIN, []),
        ("0.3", Ask("Wait", pin="v1.0.0+build"), "v1.0.0", Rule.PIN, []),
        ("0.3", Ask("Wait", pin="v1.0.0", hint="v1.1.0"), "v1.0.0", Rule.PIN, []),
        ("0.3", Ask("Wait", pin="v1.1.0", hint="v0.0.0"), "v1.1.0", Rule.PIN, ["VersionPreview"]),
        ("0.3", Ask("Wait", pin="v0.0.0", hint="v1.0.0"), "v0.0.0", Rule.PIN, ["VersionDeprecated"]),
        ("0.3", Ask("Wait", hint="v1.1.0"), "v1.1.0", Rule.HINT, ["VersionPreview"]),
        ("0.3", Ask("Wait", hint="v0.0.0"), "v0.0.0", Rule.HINT, ["VersionDeprecated"]),
        ("0.3", Ask("Wait", hint=""), "v1.0.0", Rule.STABLE, []),
        ("0.3", Ask("Wait", hint="v1.1"), "v1.1.0", Rule.HINT, ["HintShort", "VersionPreview"]),
        ("0.3", Ask("Wait", hint="v9.9.9"), "v1.0.0", Rule.STABLE, ["HintNotAvailable"]),
        ("0.3", Ask("Wait", hint="latest"), "v1.0.0", Rule.STABLE, ["HintNotAvailable"]),
        ("0.3", Ask("Wait", hint=" v1.0.0"), "v1.0.0", Rule.STABLE, ["HintNotAvailable"]),
        ("0.3", Ask("Wait", hint="v1.0.0-rc.1"), "v1.0.0", Rule.STABLE, ["HintNotAvailable"]),
        ("0.3", Ask("Wait", hint="v1.1.0", lock="v1.0.0"), "v1.0.0", Rule.LOCK, ["HintIgnored"]),
        ("0.2", Ask("Wait", lock="v0.0.0"), "v0.0.0", Rule.LOCK, ["VersionDeprecated"]),
        ("0.1", Ask("Wait", hint="v9.9.9"), "v0.0.0", Rule.STABLE, ["HintNotAvailable", "StableWillChange"]),
        ("0.1", Ask("Wait", hint="v1.0.0"), "v1.0.0", Rule.HINT, ["VersionPreview"]),
        ("0.1", Ask("Wait", lock="v0.0.0"), "v0.0.0", Rule.LOCK, []),
    ],
)
def test_a_pin_comes_before_a_hint_and_a_hint_before_the_stable_version(
    release: str, ask: Ask, version: str, rule: Rule, warnings: list[str]
) -> None:
    assert told(ask, wait_at(release)) == (version, rule, warnings)


@pytest.mark.parametrize(
    ("release", "ask", "error"),
    [
        ("0.3", Ask("Wait", pin="v9.9.9"), VersionNotFound),
        ("0.3", Ask("Wait", pin="v9.9.9", hint="v1.0.0"), VersionNotFound),
        ("0.3", Ask("Wait", pin="v1.0"), VersionNotFound),
        ("0.3", Ask("Wait", pin=" v1.0.0"), VersionNotFound),
        ("0.3", Ask("Wait", pin="latest"), VersionNotFound),
        ("0.3", Ask("Wait", pin="v1.0.0-rc.1"), VersionNotFound),
        ("0.2", Ask("Wait", pin="v1.1.0"), VersionNotFound),
        ("0.4", Ask("Wait", pin="v0.0.0", hint="v1.0.0"), VersionRemoved),
        ("0.4", Ask("Wait", hint="v0.0.0"), VersionRemoved),
        ("0.4", Ask("Wait", lock="v0.0.0"), VersionRemoved),
        ("0.3", Ask("Weit"), FunctionNotFound),
    ],
)
def test_what_is_asked_for_and_not_there_is_an_error_that_says_where_to_look(
    release: str, ask: Ask, error: type[ResolutionError]
) -> None:
    with pytest.raises(error) as caught:
        wait_at(release).resolve(ask)
    assert caught.value.hint == "to see all: planform phase-functions list"


@pytest.mark.parametrize("ask", [Ask("Wait", pin="v0.0.0"), Ask("Wait", hint="v0.0.0"), Ask("Wait", lock="v0.0.0")])
def test_of_a_removed_version_it_is_told_since_when_and_what_replaces_it(ask: Ask) -> None:
    with pytest.raises(VersionRemoved) as caught:
        wait_at("0.4").resolve(ask)
    assert str(caught.value) == 'function "Wait": v0.0.0 was removed in 0.4, replaced by v1.0.0'


def test_without_a_stable_version_only_the_unversioned_one_is_a_default() -> None:
    catalogue = custom(registry("Own", "v1.0.0"))
    with pytest.raises(VersionNotFound, match=r"no version is stable and there is no v0\.0\.0"):
        catalogue.resolve(Ask("Own"))
    assert told(Ask("Own", hint="v1.0.0"), catalogue) == ("v1.0.0", Rule.HINT, [])


def test_a_custom_function_runs_unversioned_and_can_be_pinned_only_to_what_it_registered() -> None:
    catalogue = custom(registry("Own", "v0.0.0"))
    assert told(Ask("Own"), catalogue) == ("v0.0.0", Rule.UNVERSIONED, [])
    assert told(Ask("Own", pin="v0.0.0"), catalogue) == ("v0.0.0", Rule.PIN, [])
    assert told(Ask("Own", hint="v0.1.0"), catalogue) == ("v0.0.0", Rule.UNVERSIONED, ["HintNotAvailable"])
    with pytest.raises(VersionNotFound):
        catalogue.resolve(Ask("Own", pin="v0.1.0"))


def test_a_custom_function_that_gains_versions_keeps_serving_who_asked_for_the_first() -> None:
    catalogue = custom(registry("Own", "v0.0.0", "v0.1.0", stable="v0.1.0"))
    assert told(Ask("Own"), catalogue)[:2] == ("v0.1.0", Rule.STABLE)
    assert told(Ask("Own", hint="v0.0.0"), catalogue)[:2] == ("v0.0.0", Rule.HINT)


def test_an_unknown_pin_falls_back_only_where_the_operator_allows_it_and_a_removed_one_never() -> None:
    catalogue = wait_at("0.4", unknown_version="Fallback")
    assert told(Ask("Wait", pin="v9.9.9"), catalogue) == ("v1.0.0", Rule.STABLE, ["PinNotAvailable"])
    with pytest.raises(VersionRemoved):
        catalogue.resolve(Ask("Wait", pin="v0.0.0"))
    allowed = wait_at("0.4")
    allowed.load_overlay("unknownFuncVersion: Fallback")
    assert allowed.resolve(Ask("Wait", pin="v9.9.9")).version == "v1.0.0"


def test_a_version_registered_later_is_seen() -> None:
    found = registry("Own", "v0.0.0")
    catalogue = custom(found)
    assert catalogue.resolve(Ask("Own")).version == "v0.0.0"
    found.register(PhaseFunction(name="Own", run=print, version="v2.0.0", stable=True))
    assert catalogue.resolve(Ask("Own")).version == "v2.0.0"


# The file


def one(versions: str, stable: str = "v0.0.0") -> str:
    return f"{RELEASES}functions:\n  F:\n    stable: {stable}\n    versions: {{{versions}}}\n"


GOOD = 'v0.0.0: {introducedIn: "0.1", promotedIn: "0.1"}'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the file is empty"),
        ("[]", "the file is no map"),
        ("releases: [", "did not find expected node"),
        ("releases: []", "releases must be a list"),
        ('releases: ["0.1", "0.1"]', "listed twice"),
        (RELEASES + "extra: 1", 'unknown field "extra"'),
        (RELEASES + "functions: {F: {stable: v0.0.0}}", "F: has no version"),
        (RELEASES + "functions: {F: {versions: {}}}", "F: has no version"),
        (RELEASES + "functions: {F: 3}", "F: must be a map"),
        (one(GOOD.replace("}", ", colour: red}")), 'F v0.0.0: unknown field "colour"'),
        (one('v0.0.0: {promotedIn: "0.1"}'), "introducedIn is missing"),
        (one('v0.0.0: {introducedIn: "7.0"}'), 'introducedIn "7.0" is not a listed release'),
        (one(f'{GOOD}, latest: {{introducedIn: "0.1"}}'), '"latest" is not a version'),
        (one(f'{GOOD}, 0.0.0: {{introducedIn: "0.1"}}'), "0.0.0 and v0.0.0 are the same version"),
        (one(f"{GOOD}, {GOOD}"), "already set in map"),
        (one(GOOD, "v9.0.0"), "stable v9.0.0 is not one of its versions"),
        (one(f'{GOOD}, v1.0.0: {{introducedIn: "0.1", promotedIn: "0.1"}}'), "become stable in one release"),
        (one('v0.0.0: {introducedIn: "0.2", promotedIn: "0.1"}'), "promoted before it is introduced"),
        (one('v0.0.0: {introducedIn: "0.1", promotedIn: "0.3", deprecatedIn: "0.2"}'), "deprecated before"),
        (
            one('v0.0.0: {introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.3"}'),
            "less than 2 releases after its deprecation",
        ),
        (
            one(
                'v0.0.0: {introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.3", removedIn: "0.3"},'
                'v1.0.0: {introducedIn: "0.1", promotedIn: "0.2"}'
            ),
            "less than 2 releases",
        ),
        (one('v0.0.0: {introducedIn: "0.1", promotedIn: "0.1", removedIn: "0.4"}'), "without ever being deprecated"),
        (
            one(f'{GOOD}, v1.0.0: {{introducedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.2"}}'),
            "less than 1 releases",
        ),
        (one(GOOD.replace("}", ", replacement: v8.0.0}")), "its replacement v8.0.0 is not one of"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(VersionsInvalid) as caught:
        parse_versions(text)
    assert complaint in str(caught.value)


def test_all_that_is_wrong_with_a_file_is_told_at_once() -> None:
    with pytest.raises(VersionsInvalid) as caught:
        parse_versions(RELEASES + "functions: {A: 1, B: {versions: {x: {}}}}\nextra: 1")
    assert len(caught.value.problems) == 3


def test_a_preview_that_was_never_promoted_may_go_after_one_warned_release() -> None:
    text = one(f'{GOOD}, v0.2.0: {{introducedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.3"}}')
    function = parse_versions(text).functions["F"]
    preview = next(each for each in function.versions.values() if each.version == "v0.2.0")
    states = [function.state_at(preview, release) for release in range(4)]
    assert states == [State.PREVIEW, State.DEPRECATED, State.REMOVED, State.REMOVED]


def test_a_superseded_version_is_deprecated_even_if_nobody_wrote_it_down() -> None:
    function = parse_versions(one(f'{GOOD}, v1.0.0: {{introducedIn: "0.1", promotedIn: "0.3"}}')).functions["F"]
    first = next(each for each in function.versions.values() if each.version == "v0.0.0")
    states = [function.state_at(first, release) for release in range(4)]
    assert states == [State.STABLE, State.STABLE, State.DEPRECATED, State.DEPRECATED]


@pytest.mark.parametrize(
    ("registered", "stable_in_code", "release", "complaint"),
    [
        (["v0.0.0"], "", "0.2", "Wait v1.0.0 is listed and not registered"),
        (["v0.0.0", "v1.0.0", "v3.0.0"], "", "0.2", "Wait v3.0.0 is registered and not listed"),
        (["v0.0.0", "v1.0.0", "v1.1.0"], "", "0.2", "Wait v1.1.0 is registered and coming in release 0.2"),
        (["v0.0.0", "v1.0.0", "v1.1.0"], "", "0.4", "Wait v0.0.0 is registered and removed in release 0.4"),
        (["v0.0.0", "v1.0.0"], "v0.0.0", "0.2", "the code says v0.0.0 is stable, the file says v1.0.0"),
        (["v0.0.0", "v1.0.0"], "", "0.1", "v1.0.0 is marked stable, and in release 0.1 it is v0.0.0"),
        (["v0.0.0", "v1.0.0"], "", "0.9", 'release "0.9" is not listed'),
    ],
)
def test_a_build_whose_file_and_code_disagree_does_not_start(
    registered: list[str], stable_in_code: str, release: str, complaint: str
) -> None:
    with pytest.raises(VersionsInvalid) as caught:
        PhaseCatalogue(
            registry("Wait", *registered, stable=stable_in_code),
            versions=parse_versions(WAIT.format(stable="v1.0.0")),
            release=release,
        )
    assert complaint in str(caught.value)


def test_a_listed_function_needs_a_stable_version() -> None:
    text = RELEASES + 'functions: {F: {versions: {v0.0.0: {introducedIn: "0.1"}}}}'
    with pytest.raises(VersionsInvalid, match=r"no version is stable in release 0\.1"):
        PhaseCatalogue(registry("F", "v0.0.0"), versions=parse_versions(text), release="0.1")


def test_our_own_file_announces_every_removal_two_releases_before() -> None:
    removed = [
        (name, each)
        for name, function in embedded_versions().functions.items()
        for each in function.versions.values()
        if each.removed is not None
    ]
    assert removed
    for name, each in removed:
        assert each.deprecated is not None and each.removed is not None
        assert each.removed - each.deprecated >= 2, f"{name} {each.version}"


# The overlay


def test_an_operator_may_hold_stable_back_and_keeps_being_warned() -> None:
    catalogue = wait_at("0.2")
    before = catalogue.changes
    catalogue.load_overlay("functions: {Wait: {stable: v0.0.0}}")
    assert told(Ask("Wait"), catalogue) == ("v0.0.0", Rule.STABLE, ["VersionDeprecated"])
    assert catalogue.changes > before


def test_an_operator_describes_functions_that_the_file_does_not_know() -> None:
    found = registry("Own", "v0.0.0", "v1.0.0")
    catalogue = custom(found)
    catalogue.load_overlay(
        """
functions:
  Own:
    stable: v0.0.0
    versions:
      v0.0.0: {introducedIn: "0.1", promotedIn: "0.1"}
      v1.0.0: {introducedIn: "0.1", promotedIn: "0.2"}
"""
    )
    assert told(Ask("Own"), catalogue) == ("v0.0.0", Rule.STABLE, ["StableWillChange"])


@pytest.mark.parametrize(
    ("overlay", "complaint"),
    [
        ("functions: [", "did not find expected node"),
        ("", "empty"),
        ("releases: []", 'unknown field "releases"'),
        ("functions: {Wait: {stable: v0.0.0}}", "v0.0.0 cannot be stable, it is removed"),
        ("functions: {Wait: {stable: v7.0.0}}", "v7.0.0 cannot be stable, it is unknown"),
        ("functions: {Wait: {stable: newest}}", "is not a version"),
        ("functions: {Wait: {stable: v1.0.0, versions: {}}}", "only its stable version can be moved"),
        ("functions: {Own: {versions: {v0.0.0: {introducedIn: '0.1'}}}}", "Own v0.0.0 is listed and not registered"),
        ("unknownFuncVersion: Maybe", "must be Fail or Fallback"),
    ],
)
def test_a_broken_overlay_is_refused_whole_and_the_one_before_stays(overlay: str, complaint: str) -> None:
    catalogue = wait_at("0.4")
    catalogue.load_overlay("functions: {Wait: {stable: v1.1.0}}")
    with pytest.raises(VersionsInvalid) as caught:
        catalogue.load_overlay(overlay)
    assert complaint in str(caught.value)
    assert catalogue.resolve(Ask("Wait")).version == "v1.1.0"


def test_an_overlay_file_is_followed_and_a_broken_one_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text("functions: {Wait: {stable: v0.0.0}}")
    catalogue = wait_at("0.2")
    catalogue.follow(file)
    assert catalogue.resolve(Ask("Wait")).version == "v0.0.0"
    file.write_text("functions: {Wait: {stable: v9.0.0}}  # broken")
    catalogue.refresh()
    assert "v9.0.0 cannot be stable" in catalogue.overlay_problem
    assert catalogue.resolve(Ask("Wait")).version == "v0.0.0"
    file.write_text("functions: {Wait: {stable: v1.0.0}}")
    catalogue.refresh()
    assert (catalogue.overlay_problem, catalogue.resolve(Ask("Wait")).version) == ("", "v1.0.0")


# Laws

NUMBERS = ["v0.0.0", "v0.1.0", "v1.0.0", "v1.0.0-rc.1", "v2.0.0"]
some_versions = st.sets(st.sampled_from(NUMBERS), min_size=1)
wishes = st.sampled_from(["", *NUMBERS, "v9.0.0", "latest", "1.0.0"])


def answer(catalogue: PhaseCatalogue, ask: Ask) -> tuple[str, str]:
    try:
        chosen = catalogue.resolve(ask)
    except ResolutionError as error:
        return "error", error.reason
    return chosen.version, chosen.rule


@given(some_versions, st.data(), wishes, wishes)
def test_the_choice_keeps_every_hard_constraint_and_the_order_of_rules(
    versions: set[str], data: st.DataObject, pin: str, hint: str
) -> None:
    stable = data.draw(st.sampled_from(["", *sorted(versions)]))
    catalogue = custom(registry("F", *sorted(versions), stable=stable))
    version, rule = answer(catalogue, Ask("F", pin=pin, hint=hint))
    bare = {each.removeprefix("v"): each for each in versions}
    if pin:
        wanted = bare.get(pin.removeprefix("v"))
        assert (version, rule) == ((wanted, "Pin") if wanted else ("error", "VersionNotFound"))
    elif hint.removeprefix("v") in bare:
        assert (version, rule) == (bare[hint.removeprefix("v")], "Hint")
    elif stable:
        assert (version, rule) == (stable, "Stable")
    else:
        assert (version, rule) == (("v0.0.0", "Unversioned") if "v0.0.0" in versions else ("error", "VersionNotFound"))


@given(some_versions, wishes, wishes)
def test_the_choice_does_not_depend_on_the_order_of_registration(versions: set[str], pin: str, hint: str) -> None:
    ask = Ask("F", pin=pin, hint=hint)
    answers = {answer(custom(registry("F", *order)), ask) for order in list(permutations(sorted(versions)))[:6]}
    assert len(answers) == 1


@given(some_versions, wishes, wishes)
def test_taking_away_a_version_that_was_not_chosen_changes_nothing(versions: set[str], pin: str, hint: str) -> None:
    ask = Ask("F", pin=pin, hint=hint)
    chosen = answer(custom(registry("F", *sorted(versions))), ask)
    for other in sorted(versions - {chosen[0]}):
        left = sorted(versions - {other})
        if left and chosen[0] != "error":
            assert answer(custom(registry("F", *left)), ask) == chosen


@given(st.sampled_from(sorted(LIVE)), wishes, wishes)
def test_a_removed_version_never_runs(release: str, pin: str, hint: str) -> None:
    version, _ = answer(wait_at(release), Ask("Wait", pin=pin, hint=hint))
    assert version == "error" or version in LIVE[release]
