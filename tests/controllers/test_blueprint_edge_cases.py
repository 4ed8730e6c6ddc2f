"""The numbered edge cases of the Blueprint specification: where each is tested, and those that stand nowhere else.

Functions that nobody versioned go on as they were when versions are added beside them; the last tests show that with
one set of claims, made of the function alone and then again beside newer versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from planform.api.names import EVENT
from planform.blueprints.arguments import Arguments
from planform.blueprints.catalogue import Ask, PhaseCatalogue
from planform.blueprints.children import child_of
from planform.blueprints.contract import PhaseContext, PhaseFunction
from planform.blueprints.controller import ActionSetController
from planform.blueprints.discovery import answer
from planform.blueprints.errors import PhaseFailed, VersionsInvalid
from planform.blueprints.uses import FunctionUses
from planform.client.informer import InformerEvent
from planform.functions.resolution import Catalogue, Request, Rule, Version, resolve
from tests.controllers.acting import RELEASES, Theatre, action, catalogue, phase
from tests.harness.contexts import embedded_context
from tests.harness.edge_cases import Where, missing

HERE: Final = "controllers/test_blueprint_edge_cases.py"
VERSIONS: Final = "unit/test_blueprint_versions.py"
REGISTRY: Final = "unit/test_blueprint_registry.py"
RESOLVER: Final = "unit/test_functions_resolution.py"
STATUS: Final = "unit/test_blueprint_execution.py"
ADMISSION: Final = "unit/test_blueprint_validation.py"
DISCOVERY: Final = "unit/test_blueprint_discovery.py"
MARKERS: Final = "unit/test_phase_functions_markers.py"
RUNS: Final = "controllers/test_blueprints.py"
CHOICE: Final = "controllers/test_blueprint_version_choice.py"
COURSES: Final = "controllers/test_blueprint_runs.py"
RESTARTS: Final = "controllers/test_blueprint_restarts.py"
CRASHES: Final = "controllers/test_blueprints_crashes.py"

WHERE: Final[dict[int, Where]] = {
    1: {
        VERSIONS: (
            "test_a_pin_comes_before_a_hint_and_a_hint_before_the_stable_version",
            "test_what_is_asked_for_and_not_there_is_an_error_that_says_where_to_look",
        ),
        CHOICE: ("test_a_hint_is_followed_by_the_functions_that_know_it_and_told_for_the_others",),
    },
    2: {
        VERSIONS: (
            "test_a_pin_comes_before_a_hint_and_a_hint_before_the_stable_version",
            "test_what_is_asked_for_and_not_there_is_an_error_that_says_where_to_look",
        ),
        REGISTRY: ("test_spellings_of_one_version_find_and_exclude_each_other", "test_what_is_no_version_is_refused"),
    },
    3: {VERSIONS: ("test_without_a_stable_version_only_the_unversioned_one_is_a_default",)},
    4: {
        VERSIONS: ("test_a_custom_function_runs_unversioned_and_can_be_pinned_only_to_what_it_registered",),
        REGISTRY: ("test_a_callable_object_is_registered_by_the_name_it_says_without_any_other_member",),
        CHOICE: ("test_a_plain_class_without_any_further_member_runs",),
    },
    5: {
        RESOLVER: ("test_the_rules_choose_in_their_order", "test_what_cannot_be_met_is_refused_by_name"),
        HERE: ("test_labels_of_two_active_revisions_take_the_newer_and_a_rollback_makes_the_older_the_newest",),
    },
    6: {
        VERSIONS: (
            "test_the_choice_keeps_every_hard_constraint_and_the_order_of_rules",
            "test_the_choice_does_not_depend_on_the_order_of_registration",
            "test_taking_away_a_version_that_was_not_chosen_changes_nothing",
            "test_a_removed_version_never_runs",
        ),
        RESOLVER: ("test_what_is_chosen_meets_every_constraint_whatever_the_order",),
    },
    7: {
        VERSIONS: (
            "test_a_deprecated_version_works_then_warns_twice_then_is_refused",
            "test_a_file_that_contradicts_itself_is_refused_with_the_reason",
            "test_a_downgrade_of_the_control_plane_revives_a_removed_version",
        ),
        CHOICE: ("test_four_releases_pass_over_a_pinned_blueprint_and_one_that_follows",),
    },
    8: {
        VERSIONS: (
            "test_a_file_that_contradicts_itself_is_refused_with_the_reason",
            "test_a_build_whose_file_and_code_disagree_does_not_start",
            "test_a_listed_function_needs_a_stable_version",
            "test_a_broken_overlay_is_refused_whole_and_the_one_before_stays",
            "test_an_overlay_file_is_followed_and_a_broken_one_leaves_what_was_there",
        ),
        HERE: ("test_a_tombstone_cannot_be_stable_and_its_number_is_never_used_again",),
    },
    9: {
        VERSIONS: ("test_promotion_moves_whoever_does_not_pin_and_is_announced_a_release_earlier",),
        CHOICE: ("test_a_blueprint_that_locks_its_versions_stays_on_them_after_a_promotion",),
    },
    10: {
        REGISTRY: (
            "test_a_map_of_versions_is_registered_whole_or_not_at_all",
            "test_a_set_of_functions_of_which_one_is_refused_leaves_no_trace",
            "test_readers_see_whole_registrations_while_others_register",
        )
    },
    11: {
        STATUS: ("test_warnings_are_kept_once_for_each_action_function_and_code_and_bounded",),
        ADMISSION: ("test_warnings_are_told_once_and_fit_into_a_header", "test_warnings_come_back_with_the_answer"),
        CHOICE: ("test_a_warning_reaches_status_event_log_and_metric_once",),
        HERE: ("test_a_phase_that_is_tried_again_warns_once",),
    },
    12: {
        DISCOVERY: (
            "test_all_functions_are_listed_custom_ones_and_removed_versions_too",
            "test_a_removed_version_is_gone_and_says_what_replaces_it",
            "test_who_has_the_answer_gets_none_until_something_changes",
        ),
        HERE: ("test_discovery_tells_nothing_of_anybodys_objects",),
    },
    13: {
        RUNS: ("test_a_removed_version_anywhere_keeps_everything_from_starting",),
        RESTARTS: ("test_a_locked_version_that_an_upgrade_removed_fails_its_phase_and_the_defer_phase_runs",),
        STATUS: ("test_a_run_that_goes_on_is_bound_to_the_versions_it_began_with",),
        HERE: ("test_another_try_keeps_its_version_over_a_promotion_and_another_run_does_not",),
    },
    14: {
        CHOICE: (
            "test_arguments_are_those_of_the_version_that_runs",
            "test_a_version_may_render_its_arguments_itself_where_another_does_not",
        )
    },
    15: {
        RUNS: (
            "test_an_error_of_the_defer_phase_does_not_hide_the_first_one",
            "test_a_missing_secret_of_the_defer_phase_fails_the_actionset",
        )
    },
    16: {
        RUNS: (
            "test_no_action_at_all_is_complete_at_once",
            "test_a_preflight_that_fails_without_phases_is_told_too",
            "test_an_action_of_a_defer_phase_only_runs_it",
            "test_two_phases_of_one_name_in_an_action_are_refused",
        ),
        ADMISSION: ("test_what_is_only_unwise_is_a_warning",),
        HERE: ("test_two_actions_may_name_their_phases_alike",),
    },
    17: {COURSES: ("test_actions_run_side_by_side_and_are_kept_apart",)},
    18: {
        COURSES: (
            "test_deleting_ends_the_phase_and_waits_for_the_defer_phase",
            "test_a_new_actionset_of_the_same_name_is_another_one",
            "test_a_run_goes_by_the_blueprint_as_it_was",
            "test_a_storm_of_writes_by_others_does_not_stop_a_run",
        ),
        RESTARTS: (
            "test_a_phase_that_can_be_run_again_is_and_the_run_goes_on",
            "test_a_phase_that_cannot_be_run_again_fails_and_the_defer_phase_runs",
        ),
        CRASHES: ("test_a_run_of_resumable_phases_completes_wherever_it_was_cut_off",),
    },
    19: {
        RUNS: ("test_outputs_are_kept_as_json_or_refused",),
        COURSES: ("test_fifty_runs_of_one_class_share_nothing",),
        HERE: (
            "test_outputs_that_fit_alone_are_refused_when_they_no_longer_fit_together",
            "test_fifty_runs_keep_their_progress_apart",
        ),
    },
    20: {
        CHOICE: ("test_an_artifact_of_a_version_that_the_reader_does_not_know_is_refused",),
        DISCOVERY: ("test_a_child_keeps_the_hint_the_overrides_and_who_made_the_artifacts",),
        HERE: ("test_a_backup_of_before_a_promotion_is_restored_by_a_version_that_reads_it_or_not_at_all",),
    },
    21: {
        STATUS: (
            "test_values_are_rendered_through_and_through",
            "test_what_cannot_be_rendered_is_an_error_and_never_harm",
        ),
        REGISTRY: ("test_arguments_are_read_weakly",),
        RUNS: ("test_arguments_keep_their_types_and_keys_are_templates_too",),
    },
    22: {
        RUNS: (
            "test_objects_of_a_phase_cannot_use_what_phases_leave",
            "test_every_root_of_the_parameters_is_there",
            "test_the_defer_phase_is_seen_by_artifacts_under_its_own_root",
            "test_a_template_that_misses_something_fails_its_phase_and_says_what",
            "test_time_is_the_same_for_all_phases_of_an_action",
        )
    },
    23: {
        STATUS: (
            "test_values_are_rendered_through_and_through",
            "test_what_cannot_be_rendered_is_an_error_and_never_harm",
        ),
        ADMISSION: ("test_what_cannot_run_is_an_error_at_its_field",),
    },
    24: {
        MARKERS: (
            "test_a_marker_may_be_cut_anywhere",
            "test_two_markers_may_share_a_line_and_a_later_value_wins",
            "test_malformed_output_fails_with_what_is_wrong",
        )
    },
}


@pytest.mark.parametrize("number", range(1, 25))
def test_every_numbered_edge_case_is_a_test(number: int) -> None:
    assert missing(WHERE[number]) == []


async def ran(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
    return {"ran": context.version}


def versions_of(name: str, *versions: str, **more: Any) -> list[PhaseFunction]:
    return [PhaseFunction(name=name, run=ran, version=version, **more) for version in versions]


# Resolution


def test_labels_of_two_active_revisions_take_the_newer_and_a_rollback_makes_the_older_the_newest() -> None:
    """Case 5: going back to an older package gives its revision the highest number."""

    def chosen(*numbered: tuple[str, int]) -> tuple[str, Rule]:
        versions = [Version("fn", name, number=number, labels={"channel": "a"}) for name, number in numbered]
        resolution = resolve(Catalogue(versions), Request("fn", selector={"channel": "a"}))
        return resolution.version.id, resolution.rule

    assert chosen(("fn-old", 1), ("fn-new", 2)) == ("fn-new", Rule.SELECTOR)
    assert chosen(("fn-old", 3), ("fn-new", 2)) == ("fn-old", Rule.SELECTOR)


# Lifecycle and file

LIFE = """
    stable: {stable}
    versions:
      v0.0.0: {{introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.4", replacement: v0.1.0}}
      v0.1.0: {{introducedIn: "0.1", promotedIn: "0.2"}}
"""


def file(stable: str, *names: str) -> str:
    """Functions of which v0.1.0 takes the place of v0.0.0 in release 0.2."""
    return RELEASES + "functions:\n" + "".join(f"  {name}:{LIFE.format(stable=stable)}" for name in names)


@pytest.mark.parametrize(
    ("stable", "registered", "complaint"),
    [
        ("v0.0.0", ["v0.1.0"], "v0.0.0 is marked stable, and in release 0.4 it is v0.1.0"),
        ("v0.1.0", ["v0.0.0", "v0.1.0"], "Dump v0.0.0 is registered and removed in release 0.4"),
    ],
)
def test_a_tombstone_cannot_be_stable_and_its_number_is_never_used_again(
    stable: str, registered: list[str], complaint: str
) -> None:
    """Case 8."""
    with pytest.raises(VersionsInvalid) as caught:
        catalogue(*versions_of("Dump", *registered), versions=file(stable, "Dump"), release="0.4")
    assert complaint in str(caught.value)


async def test_a_phase_that_is_tried_again_warns_once(unique: str, caplog: pytest.LogCaptureFixture) -> None:
    """Case 11: by its pin, and with three attempts."""

    async def flaky(context: PhaseContext, args: Arguments) -> None:
        if context.attempt < 3:
            raise PhaseFailed("not yet")

    dumps = [PhaseFunction(name="Dump", run=flaky), PhaseFunction(name="Dump", run=flaky, version="v0.1.0")]
    async with (
        embedded_context() as context,
        Theatre.open(context, unique, *dumps, versions=file("v0.1.0", "Dump"), release="0.3") as theatre,
    ):
        retry = {"limit": 2, "backoff": "1ms"}
        await theatre.blueprint({"b": action(phase("p", "Dump", funcVersion="v0.0.0", retry=retry))})
        with caplog.at_level("WARNING", logger="planform.blueprints.controller"):
            done = await theatre.run("b")
        assert done["status"]["actions"][0]["phases"][0]["attempts"] == 3
        (warning,) = done["status"]["warnings"]
        assert sum(warning["message"] in record.getMessage() for record in caplog.records) == 1
        await context.events.written()
        events = (await context.client.list(EVENT, namespace=unique)).items
        assert sum(each["reason"] == "VersionDeprecated" and each.get("count", 1) for each in events) == 1


def test_discovery_tells_nothing_of_anybodys_objects() -> None:
    """Case 12: it counts who uses a version, and neither names them nor shows what they pass."""
    uses = FunctionUses()
    phases = [{"func": "Dump", "funcVersion": "v0.1.0", "args": {"password": "hush"}}]
    blueprint = {"metadata": {"name": "ledger", "namespace": "bank"}, "actions": {"a": {"phases": phases}}}
    uses._blueprint(InformerEvent("ADDED", blueprint))
    known = catalogue(*versions_of("Dump", "v0.0.0", "v0.1.0", arguments=("password",)))
    for path in ("/v1/functions", "/v1/functions/Dump", "/v1/functions/Dump/versions/v0.1.0"):
        status, _, body = answer(known, path, {}, uses=uses)
        assert status == 200 and b'"blueprints":1' in body
        assert not any(word in body for word in (b"ledger", b"bank", b"hush"))


# Execution


async def test_another_try_keeps_its_version_over_a_promotion_and_another_run_does_not(unique: str) -> None:
    """Case 13: a run is bound to what it began with; whoever runs again gets what is stable by then."""
    used: list[str] = []

    async def promoted_meanwhile(context: PhaseContext, args: Arguments) -> None:
        used.append(context.version)
        if len(used) == 1:
            known.load_overlay("functions: {Dump: {stable: v0.1.0}}")
            assert known.resolve(Ask("Dump")).version == "v0.1.0"
            raise PhaseFailed("not yet")

    dumps = [PhaseFunction(name="Dump", run=promoted_meanwhile, version=each) for each in ("v0.0.0", "v0.1.0")]
    async with embedded_context() as context, Theatre.open(context, unique, start=False) as theatre:
        known: PhaseCatalogue = catalogue(*theatre.functions(), *dumps, versions=file("v0.0.0", "Dump"))
        ActionSetController(context, known).start()
        await theatre.blueprint({"b": action(phase("p", "Dump", retry={"limit": 1, "backoff": "1ms"}))})
        for name in ("first", "second"):
            assert (await theatre.run("b", name=name))["status"]["state"] == "complete"
    assert used == ["v0.0.0", "v0.0.0", "v0.1.0"]


async def test_two_actions_may_name_their_phases_alike(unique: str) -> None:
    """Case 16: within an ActionSet that runs both, each action sees its own phase."""
    async with embedded_context() as context, Theatre.open(context, unique) as theatre:
        outputs = {"x": {"keyValue": {"a": "{{ .Phases.p.Output.text }}"}}}
        await theatre.blueprint(
            {name: action(phase("p", args={"text": name}), outputs=outputs) for name in ("one", "two")}
        )
        done = await theatre.run("one", "two")
        artifacts = [entry["artifacts"]["x"]["keyValue"]["a"] for entry in done["status"]["actions"]]
        assert (done["status"]["state"], artifacts) == ("complete", ["one", "two"])


async def test_outputs_that_fit_alone_are_refused_when_they_no_longer_fit_together(unique: str) -> None:
    """Case 19: what was kept stays, the phase that does not fit fails, and the status can still be stored."""

    async def much(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
        return {"much": "x" * 400_000}

    async with (
        embedded_context() as context,
        Theatre.open(context, unique, PhaseFunction(name="Much", run=much)) as theatre,
    ):
        await theatre.blueprint({"b": action(*(phase(f"p{n}", "Much") for n in range(4)), defer=phase("d"))})
        done = await theatre.run("b")
        assert theatre.states(done) == ["complete", "complete", "failed", "pending", "complete"]
        assert theatre.errors(done) == [("p2", "OutputInvalid")]
        kept = [len((each.get("output") or {}).get("much", "")) for each in done["status"]["actions"][0]["phases"]]
        assert kept == [400_000, 400_000, 0, 0]


async def test_fifty_runs_keep_their_progress_apart(unique: str) -> None:
    """Case 19: all of them are in the same phase of the same function when they tell how far they are."""
    everybody = asyncio.Barrier(50)

    async def stuck(context: PhaseContext, args: Arguments) -> None:
        async with asyncio.timeout(60):
            await everybody.wait()
        context.progress(args.integer("n"))
        async with asyncio.timeout(60):
            await everybody.wait()
        raise PhaseFailed(f"stuck at {args.text('n')}")

    async with (
        embedded_context() as context,
        Theatre.open(context, unique, PhaseFunction(name="Stuck", run=stuck)) as theatre,
    ):
        await theatre.blueprint({"b": action(phase("p", "Stuck", {"n": "{{ .Options.n }}"}))})
        submitted = [await theatre.submit(theatre.request("b", options={"n": str(n)})) for n in range(50)]
        ended = [await theatre.ended(each) for each in submitted]
        told = [each["status"]["actions"][0]["phases"][0]["progress"]["progressPercent"] for each in ended]
        assert told == [str(n) for n in range(50)]
        assert [each["status"]["error"]["message"] for each in ended] == [f"stuck at {n}" for n in range(50)]


async def test_a_backup_of_before_a_promotion_is_restored_by_a_version_that_reads_it_or_not_at_all(unique: str) -> None:
    """Case 20: what is stable by now does not read it; the hint that made the backup leads to what does."""
    functions = [
        *versions_of("Dump", "v0.0.0", "v0.1.0"),
        PhaseFunction(name="Load", run=ran, reads={"Dump": "<0.1.0"}),
        PhaseFunction(name="Load", run=ran, version="v0.1.0", reads={"Dump": ">=0.1.0"}),
    ]
    async with embedded_context() as context, Theatre.open(context, unique, start=False) as theatre:
        outputs = {"copy": {"keyValue": {"path": "/x"}}}
        await theatre.blueprint(
            {"backup": action(phase("a", "Dump"), outputs=outputs), "restore": action(phase("b", "Load"))}
        )
        theatre.use(*functions, versions=file("v0.0.0", "Dump", "Load"), release="0.1")
        plain = await theatre.run("backup")
        hinted = await theatre.run(theatre.request("backup", preferredVersion="v0.0.0"))
        await context.manager.stop("actionsets")
        theatre.use(*functions, versions=file("v0.1.0", "Dump", "Load"), release="0.2")

        refused = await theatre.run(child_of(plain, "restore")["spec"]["actions"][0])
        assert theatre.errors(refused) == [("b", "ArtifactIncompatible")]
        restored = await theatre.run(child_of(hinted, "restore")["spec"]["actions"][0])
        assert restored["status"]["actions"][0]["phases"][0]["output"] == {"ran": "v0.0.0"}


# Functions that nobody versioned


class Greet:
    """A function as one writes it who never heard of versions: it has a name and can be called."""

    name = "Greet"

    async def __call__(self, context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
        if not args.text("name", ""):
            raise PhaseFailed("nobody to greet")
        return {"greeting": f"hello {args.text('name')}"}


async def politely(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
    return {**await Greet()(context, args), "politely": True}


OTHERS: Final[dict[str, list[Any]]] = {
    "alone": [Greet()],
    "beside a preview": [Greet(), PhaseFunction(name="Greet", run=politely, version="v0.1.0")],
    "beside a stable version": [Greet(), PhaseFunction(name="Greet", run=politely, version="v0.1.0", stable=True)],
}


@pytest.mark.parametrize("others", OTHERS)
async def test_a_function_without_versions_serves_its_users_as_before_when_versions_are_added(
    others: str, unique: str
) -> None:
    """Those who name no version, v0.0.0 by pin, and v0.0.0 or something unknown by hint; and those who err."""
    async with embedded_context() as context, Theatre.open(context, unique, *OTHERS[others]) as theatre:
        args = {"name": "{{ .Object.metadata.name }}"}
        await theatre.blueprint(
            {
                "plain": action(phase("p", "Greet", args)),
                "pinned": action(phase("p", "Greet", args, funcVersion="v0.0.0")),
                "nobody": action(phase("p", "Greet", {"name": ""})),
            }
        )
        for request in (
            theatre.request("plain"),
            theatre.request("pinned"),
            theatre.request("plain", preferredVersion="v0.0.0"),
            theatre.request("plain", preferredVersion="v7.0.0"),
        ):
            done = await theatre.run(request)
            assert done["status"]["actions"][0]["phases"][0]["output"]["greeting"] == "hello target", request
        failed = await theatre.run("nobody")
        assert failed["status"]["error"] == {"message": "nobody to greet"}
