"""The edge cases that composition's specification lists: where each is tested, and those that stand nowhere else."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    COMPOSITION,
    COMPOSITION_REVISION,
    ENVIRONMENT_CONFIG,
    FUNCTION_REVISION,
    PAUSED_ANNOTATION,
    SECRET,
)
from planform.client.protocol import Patch, PatchType
from planform.clock import VirtualClock
from planform.reconcile.context import ControllerContext
from planform.xrs.thrash import ThrashGuard
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    Platform,
    a_platform,
    annotated,
    becomes,
    config_map,
    reading,
    script,
    templates,
)
from tests.controllers.test_crds import REFUSED
from tests.controllers.test_xr_composer import references
from tests.controllers.test_xr_protocol import revision
from tests.controllers.test_xr_requirements import answered, who
from tests.controllers.test_xr_selection import name, on, revision_of, version
from tests.harness.contexts import condition_of, eventually, until_condition
from tests.harness.edge_cases import Where, missing
from tests.harness.function_server import function_server

pytestmark = pytest.mark.timeout(120)

HERE: Final = "controllers/test_composition_edge_cases.py"
MADE: Final = "controllers/test_composition_revisions.py"
RULES: Final = "unit/test_revisions.py"
USED: Final = "controllers/test_xr_revisions.py"
CHOSEN: Final = "controllers/test_xr_selection.py"
CHOICE: Final = "unit/test_selection.py"
COMPOSER: Final = "controllers/test_xr_composer.py"
REFUSALS: Final = "controllers/test_xr_refusals.py"
COMPOSITES: Final = "controllers/test_composites.py"
PLAN: Final = "unit/test_plan.py"
CONDITIONS: Final = "controllers/test_xr_conditions.py"
CONNECTIONS: Final = "controllers/test_xr_connections.py"
LIFECYCLE: Final = "controllers/test_xr_lifecycle.py"
REALTIME: Final = "controllers/test_xr_realtime.py"
REQUIREMENTS: Final = "controllers/test_xr_requirements.py"
THRASHING: Final = "controllers/test_xr_thrashing.py"
GUARD: Final = "unit/test_thrash.py"
INDEX: Final = "unit/test_dependency_index.py"
SOURCES: Final = "unit/test_reconcile_sources.py"
PLANE: Final = "unit/test_reconcile_controller.py"
MEMORY: Final = "unit/test_recent_objects.py"
DEFINITIONS: Final = "controllers/test_definitions.py"
WITHDRAWAL: Final = "controllers/test_definition_withdrawal.py"
CRDS: Final = "controllers/test_crds.py"
CLAIMS: Final = "controllers/test_claims.py"
CLAIM_LIFE: Final = "controllers/test_claim_lifecycle.py"
ROLLOUT: Final = "controllers/test_function_rollout.py"
RESOLVER: Final = "unit/test_functions_resolution.py"

REVISIONS: Final[dict[str, Where]] = {
    "an equal hash makes no revision": {
        MADE: ("test_an_unchanged_composition_gets_no_revision_and_no_write",),
        RULES: ("test_the_same_spec_and_labels_need_nothing",),
    },
    "a label makes one; ours: an annotation does not": {
        MADE: (
            "test_a_changed_label_makes_a_revision_that_carries_it",
            "test_what_does_not_change_the_composition_makes_no_revision_where_the_specs_list_counts_annotations",
        ),
    },
    "each has the next number": {
        MADE: ("test_a_composition_tells_its_newest_revision_and_how_many_there_are",),
        RULES: ("test_a_new_spec_makes_a_revision_with_the_next_number",),
    },
    "going back renumbers": {MADE: ("test_a_rollback_reuses_the_first_revision_under_the_highest_number",)},
    "one that lost its owner is adopted": {
        MADE: ("test_revisions_without_owner_as_a_backup_restores_them_are_adopted_with_their_numbers",)
    },
    "one of another controller is an error": {
        MADE: ("test_a_revision_that_somebody_else_controls_is_told_and_left_alone",)
    },
    "a deleted composition needs nothing": {
        MADE: ("test_a_composition_that_is_being_deleted_gets_no_more_revisions_and_one_that_is_gone_needs_nothing",)
    },
    "the newest is looked for among the composition's own": {
        USED: ("test_revisions_that_are_not_the_compositions_are_refused_or_ignored",),
        CHOICE: ("test_the_newest_is_looked_for_only_among_revisions_that_the_composition_controls",),
    },
    "no revision is an error of the XR": {
        CHOSEN: (
            "test_an_xr_without_a_fitting_composition_says_what_is_near_and_is_composed_once_there_is_one",
            "test_an_xr_may_change_its_composition_and_outlives_one_that_is_deleted",
        )
    },
    "automatic moves the reference": {
        USED: ("test_automatic_follows_by_watch_also_back_and_manual_does_not_change_a_byte",)
    },
    "automatic on the newest writes nothing": {
        CHOICE: ("test_automatic_writes_nothing_when_the_reference_is_the_newest_already",),
        REALTIME: ("test_a_restart_costs_no_write_and_no_call_and_still_knows_who_wakes_whom",),
    },
    "manual with a reference stays": {
        USED: ("test_automatic_follows_by_watch_also_back_and_manual_does_not_change_a_byte",)
    },
    "manual without one takes the newest": {
        USED: ("test_automatic_follows_by_watch_also_back_and_manual_does_not_change_a_byte",)
    },
    "a selector narrows automatic": {
        USED: ("test_a_selector_narrows_automatic_and_pins_manual_where_the_specs_list_ignores_it_there",)
    },
    "a selector that nothing matches is an error": {
        USED: ("test_a_selector_narrows_automatic_and_pins_manual_where_the_specs_list_ignores_it_there",)
    },
    "an update reaches an automatic XR by watch": {
        USED: ("test_automatic_follows_by_watch_also_back_and_manual_does_not_change_a_byte",)
    },
    "an update wakes no manual XR": {HERE: ("test_a_new_revision_does_not_even_wake_xrs_that_are_manual",)},
    "a missing capability is refused with its message": {
        CHOSEN: ("test_a_revision_whose_function_cannot_compose_is_refused_with_that_message_until_it_can",)
    },
    "an unknown validity is refused": {
        CHOICE: ("test_a_pipeline_of_which_nothing_is_known_yet_is_refused",),
        HERE: ("test_a_revision_of_which_nobody_knows_whether_it_is_valid_is_refused_until_somebody_does",),
    },
    "ours: a manual reference to another composition's is refused": {
        USED: ("test_revisions_that_are_not_the_compositions_are_refused_or_ignored",)
    },
    "ours: two function revisions serve two composition revisions": {
        ROLLOUT: ("test_xrs_on_alpha_get_the_new_revision_and_the_others_keep_the_old_one",)
    },
    "ours: no active match is a condition and an event": {
        REQUIREMENTS: ("test_steps_call_the_revision_they_name_or_select_and_else_the_newest_active",)
    },
    "ours: a selector picks the highest number": {
        RESOLVER: ("test_what_is_chosen_meets_every_constraint_whatever_the_order",),
        HERE: ("test_of_several_function_revisions_that_a_step_selects_the_highest_number_is_called",),
    },
    "ours: a revision in use is never collected": {
        USED: ("test_a_revision_in_use_is_never_collected_and_statuses_count_their_xrs",),
        MADE: ("test_old_revisions_go_but_never_the_newest_one_in_use_or_one_whose_labels_an_xr_selects",),
    },
}

SELECTION: Final[dict[str, Where]] = {
    "a reference beats the selector": {
        CHOSEN: ("test_a_reference_beats_a_selector_and_the_default_is_for_those_with_neither",)
    },
    "the default is for those with neither": {
        CHOSEN: ("test_a_reference_beats_a_selector_and_the_default_is_for_those_with_neither",)
    },
    "the enforced one beats everything": {
        CHOSEN: ("test_the_enforced_composition_beats_everything_and_the_default_revision_selector_overwrites_nothing",)
    },
    "the enforced one is written once": {
        CHOSEN: (
            "test_the_enforced_composition_beats_everything_and_the_default_revision_selector_overwrites_nothing",
        ),
        CHOICE: ("test_the_enforced_composition_beats_everything_and_is_written_once",),
    },
    "the default revision selector overwrites nothing": {
        CHOSEN: ("test_the_enforced_composition_beats_everything_and_the_default_revision_selector_overwrites_nothing",)
    },
    "the version must be the same": {
        CHOSEN: ("test_an_xr_without_a_fitting_composition_says_what_is_near_and_is_composed_once_there_is_one",)
    },
    "no composition is an error": {
        CHOSEN: ("test_an_xr_without_a_fitting_composition_says_what_is_near_and_is_composed_once_there_is_one",)
    },
    "a label that leaves a claim's selector does not select again": {
        CLAIMS: ("test_a_label_removed_from_the_claims_selector_neither_reselects_nor_reappears",)
    },
    "nor does it come back": {
        CLAIMS: ("test_a_label_removed_from_the_claims_selector_neither_reselects_nor_reappears",)
    },
}

_EARLY: Final = "test_each_point_of_failure_has_its_own_words_and_leaves_no_reference_behind"
_LATE: Final = "test_what_a_server_refuses_is_told_for_each_point_and_references_hold_all_that_exists"
_STRANGERS: Final = "test_references_without_name_or_object_are_skipped_and_what_is_anothers_is_left_alone"
_LET_GO: Final = "test_what_has_no_controller_is_not_deleted_and_what_goes_slowly_is_let_go_first"
_NOT_GONE: Final = "test_a_label_or_an_object_that_cannot_be_taken_away_is_told_and_its_reference_stays"
_AT_HOME: Final = "test_namespaced_xrs_keep_their_resources_beside_them_under_names_of_their_own"
_BOTH_SCOPES: Final = "test_a_cluster_scoped_xr_composes_both_scopes_and_refers_with_namespaces"
_INVALID: Final = "test_an_invalid_resource_holds_up_no_other_but_every_deletion"
_READINESS: Final = "test_readiness_names_three_and_counts_the_rest_unless_a_function_decides"
_CUSTOM: Final = "test_conditions_of_functions_are_set_updated_kept_and_unknown_after_an_error"
_TOLD_CLAIMS: Final = "test_claims_get_the_results_meant_for_them_and_a_claim_that_is_gone_fails_no_xr"

COMPOSING: Final[dict[str, Where]] = {
    "observing fails": {REFUSALS: (_LATE,)},
    "the XR's connection details cannot be read": {REFUSALS: (_LATE,)},
    "an input cannot be read": {COMPOSER: (_EARLY,)},
    "a credential is missing": {COMPOSER: (_EARLY,)},
    "what the composition requires cannot be read": {REFUSALS: (_LATE,)},
    "a function fails": {COMPOSER: (_EARLY,)},
    "metadata cannot be": {COMPOSER: (_EARLY,), PLAN: ("test_what_cannot_be_applied_is_named",)},
    "a name cannot be": {COMPOSER: (_EARLY,)},
    "a deletion fails": {REFUSALS: (_NOT_GONE,)},
    "references cannot be saved": {REFUSALS: (_LATE,)},
    "an apply fails": {REFUSALS: (_LATE,), COMPOSER: (_EARLY,)},
    "the status cannot be written": {REFUSALS: (_LATE,)},
    "a reference without a name is skipped": {COMPOSER: (_STRANGERS,)},
    "an object that is missing is skipped": {COMPOSER: (_STRANGERS,)},
    "what a memory does not know is asked of the server": {
        MEMORY: (
            "test_the_server_is_asked_while_no_watch_is_open_and_for_kinds_without_one",
            "test_an_object_that_is_gone_is_not_found_and_its_namesake_is_another",
            "test_whatever_happens_a_read_is_never_behind_ones_own_writes_or_what_was_told",
        )
    },
    "what somebody else controls is skipped": {COMPOSER: (_STRANGERS,)},
    "a resource without its name is an error": {COMPOSER: (_STRANGERS,)},
    "collecting: what is not ours is never deleted": {
        COMPOSER: (_STRANGERS,),
        PLAN: ("test_what_somebody_else_controls_is_never_deleted",),
    },
    "collecting: what has no controller is left": {COMPOSER: (_LET_GO,)},
    "collecting: what is desired is left": {COMPOSER: (_LET_GO,)},
    "collecting: labels go first": {COMPOSER: (_LET_GO,)},
    "collecting: only the very object is deleted": {
        REFUSALS: ("test_a_namesake_that_took_the_place_of_what_was_to_be_deleted_stays",)
    },
    "collecting: labels that cannot be taken are told": {REFUSALS: (_NOT_GONE,)},
    "collecting: a deletion that fails is told": {REFUSALS: (_NOT_GONE,)},
    "a namespaced XR may not compose cluster-scoped kinds": {COMPOSER: (_EARLY,)},
    "another namespace is overridden with a warning": {COMPOSER: (_AT_HOME,)},
    "the same namespace is no warning": {COMPOSER: (_AT_HOME,)},
    "a cluster-scoped XR composes both": {COMPOSER: (_BOTH_SCOPES,)},
    "references are sorted": {
        COMPOSER: (_AT_HOME,),
        PLAN: ("test_references_cover_what_is_created_and_what_is_still_to_be_deleted_in_order",),
    },
    "references have namespaces only under cluster-scoped XRs": {COMPOSER: (_AT_HOME, _BOTH_SCOPES)},
    "what was deleted comes back under its name": {
        COMPOSITES: ("test_a_resource_deleted_by_somebody_is_made_again_under_its_name",)
    },
    "a name that is none is an error": {COMPOSER: (_EARLY,)},
    "long keys are cut": {
        COMPOSER: (_AT_HOME,),
        PLAN: ("test_a_child_is_named_after_its_parent_and_its_key_as_upstream_names_it",),
    },
    "XRs of different uids share no name": {COMPOSER: (_AT_HOME,)},
    "an invalid object holds up no other": {COMPOSER: (_INVALID,)},
    "an invalid object is named by the XR": {COMPOSER: (_INVALID,)},
    "readiness is still the function's": {COMPOSER: (_INVALID,)},
    "denied verbs are named": {REFUSALS: ("test_what_rbac_denies_is_named_with_its_verb_until_it_is_allowed",)},
    "three unready resources are named in order": {CONDITIONS: (_READINESS,)},
    "a ready XR with unready resources is available": {CONDITIONS: (_READINESS,)},
    "an unready XR with ready resources is being created": {CONDITIONS: (_READINESS,)},
    "a custom condition is updated": {CONDITIONS: (_CUSTOM,)},
    "one that is not returned is kept": {CONDITIONS: (_CUSTOM,)},
    "after an error it is unknown": {
        CONDITIONS: (_CUSTOM, "test_conditions_of_a_run_count_also_if_its_answer_cannot_be_carried_out")
    },
    "the system's own are not touched": {CONDITIONS: (_CUSTOM,)},
    "a claim gets those meant for it": {
        CONDITIONS: (_TOLD_CLAIMS,),
        CLAIMS: ("test_a_claim_gets_only_the_custom_conditions_meant_for_claims",),
    },
    "a missing claim fails no XR": {CONDITIONS: (_TOLD_CLAIMS,)},
}

_PAUSE: Final = "test_a_paused_xr_is_neither_changed_nor_deleted_until_it_goes_on"
_FINALIZERS: Final = "test_finalizers_that_cannot_be_written_are_written_later_and_a_conflict_is_no_news"
_POLLING: Final = "test_an_xr_is_polled_as_often_as_it_asks_but_at_most_once_a_second"
_SECRETS: Final = "test_connection_secrets_are_filtered_kept_and_never_taken_from_others"

LIFE: Final[dict[str, Where]] = {
    "an XR pauses and goes on": {LIFECYCLE: (_PAUSE,)},
    "a paused XR is not deleted": {LIFECYCLE: (_PAUSE,)},
    "a finalizer that cannot be added": {REFUSALS: (_LATE, _FINALIZERS)},
    "a finalizer that cannot be removed": {REFUSALS: (_FINALIZERS, "test_a_finalizer_that_cannot_be_removed_is_told")},
    "conflicts over finalizers": {REFUSALS: (_FINALIZERS,)},
    "an interval above the least": {LIFECYCLE: (_POLLING,)},
    "an interval equal to it": {LIFECYCLE: (_POLLING,)},
    "an interval below it": {LIFECYCLE: (_POLLING,)},
    "an interval that is none": {LIFECYCLE: (_POLLING,)},
    "no interval": {LIFECYCLE: (_POLLING,)},
    "an unchanged status is not written": {
        COMPOSITES: ("test_nothing_is_written_once_an_xr_is_ready",),
        REALTIME: ("test_a_restart_costs_no_write_and_no_call_and_still_knows_who_wakes_whom",),
    },
    "an XRD refuses invalid changes": {
        DEFINITIONS: (
            "test_immutable_and_invalid_changes_are_refused",
            "test_an_invalid_change_leaves_what_is_served_as_it_was",
        )
    },
    "an XRD refuses changes of what is immutable": {
        DEFINITIONS: ("test_immutable_and_invalid_changes_are_refused",),
        CRDS: ("test_immutable",),
    },
    "another referenceable version restarts the controller": {
        DEFINITIONS: ("test_another_referenceable_version_restarts_the_controllers_for_it",)
    },
    "and new XRs take compositions of that version": {
        LIFECYCLE: ("test_another_referenceable_version_takes_compositions_of_that_version",)
    },
    "XRs scale": {DEFINITIONS: ("test_the_scale_subresource_works",)},
    "an XRD waits for its instances": {WITHDRAWAL: ("test_deletion_waits_for_instances",)},
    "a CRD that is not the XRD's stays": {WITHDRAWAL: ("test_a_crd_that_is_not_the_xrds_is_orphaned_and_not_deleted",)},
    "a composition without a pipeline is refused": {CRDS: ("test_refuses",)},
    "a composition with an empty pipeline is refused": {CRDS: ("test_refuses",)},
    "a composition with duplicate steps is refused": {CRDS: ("test_refuses",)},
    "credentials without a Secret are refused": {CRDS: ("test_refuses",)},
    "no place for connection details: no Secret": {
        HERE: ("test_an_xr_without_a_place_for_them_publishes_nothing_and_an_empty_filter_lets_all_keys_pass",)
    },
    "the keys of the XRD filter": {CONNECTIONS: (_SECRETS,)},
    "an empty filter lets all keys pass": {
        HERE: ("test_an_xr_without_a_place_for_them_publishes_nothing_and_an_empty_filter_lets_all_keys_pass",)
    },
    "unchanged details are not written": {CONNECTIONS: (_SECRETS,)},
    "a Secret of somebody else is refused": {CONNECTIONS: (_SECRETS,)},
}

_WAKING: Final = "test_what_a_step_required_wakes_the_xr_and_nothing_else_does"
_DEPENDS: Final = "test_a_change_wakes_whoever_depends_on_the_object"
_SHARED_WATCH: Final = "test_a_kind_is_watched_as_long_as_one_xr_depends_on_it_and_the_other_watches_go_on"
_FIGHT: Final = "test_two_writers_that_undo_each_other_are_slowed_down_and_named_and_the_last_change_counts"
_PROBED: Final = "test_one_that_is_held_back_is_probed_now_and_then_and_free_once_it_was_quiet"
_NUMBERS: Final = "test_sixty_writes_in_three_seconds_are_too_many_and_a_look_every_thirty_seconds_is_left"

WATCHING: Final[dict[str, Where]] = {
    "dependencies by name": {INDEX: (_DEPENDS,), REALTIME: (_WAKING,)},
    "dependencies by label": {INDEX: (_DEPENDS,), REALTIME: (_WAKING,)},
    "no matcher means all": {
        INDEX: (_DEPENDS,),
        REALTIME: ("test_kinds_may_come_go_and_come_again_while_xrs_require_and_compose_them",),
    },
    "namespaces of dependencies": {INDEX: (_DEPENDS,), REALTIME: (_WAKING,)},
    "who depends twice is woken once": {INDEX: ("test_an_xr_that_depends_on_an_object_in_several_ways_is_woken_once",)},
    "tracking replaces": {
        INDEX: ("test_tracking_replaces_all_that_was_known_of_the_xr_and_of_no_other",),
        REALTIME: (_WAKING,),
    },
    "the last reference takes the kind with it": {
        INDEX: ("test_a_kind_is_watched_until_the_last_reference_to_it_goes",),
        HERE: (_SHARED_WATCH,),
    },
    "a required ConfigMap wakes the XR long before a TTL": {
        REALTIME: ("test_what_functions_want_watched_is_in_the_status_and_wakes_the_xr",)
    },
    "only watches that nobody needs are stopped": {REALTIME: (_WAKING,), HERE: (_SHARED_WATCH,)},
    "a watch that was lost starts again": {
        REALTIME: ("test_kinds_may_come_go_and_come_again_while_xrs_require_and_compose_them",),
        SOURCES: (
            "test_a_stream_that_ends_is_resumed_without_listing_again",
            "test_after_an_expiry_only_what_changed_is_told",
        ),
    },
    "stopping what does not run does nothing": {
        PLANE: ("test_controllers_start_and_stop_at_run_time_with_their_watches",)
    },
    "normal use holds nobody back": {
        GUARD: ("test_one_that_writes_seldom_is_never_held_back",),
        THRASHING: (_FIGHT,),
    },
    "sixty updates in three seconds do": {HERE: (_NUMBERS,), THRASHING: (_FIGHT,)},
    "a probe every thirty seconds": {HERE: (_NUMBERS,), GUARD: (_PROBED,)},
    "free again after the cooldown": {GUARD: (_PROBED,), THRASHING: (_FIGHT,)},
    "deletion passes": {THRASHING: (_FIGHT,)},
    "a namesake starts afresh": {GUARD: ("test_one_that_is_forgotten_starts_afresh",), THRASHING: (_FIGHT,)},
    "ours: the last change is never lost": {THRASHING: (_FIGHT,)},
}

CLAIMING: Final[dict[str, Where]] = {
    "a claim makes, binds and syncs": {
        CLAIMS: (
            "test_a_claim_makes_an_xr_and_points_at_it",
            "test_what_changes_on_the_claim_changes_on_the_xr_and_what_leaves_it_goes",
        ),
        CONNECTIONS: ("test_a_claim_is_composed_connected_changed_and_deleted_through_its_xr",),
    },
    "a claim binds an existing XR": {
        CLAIMS: ("test_an_existing_free_xr_is_bound_and_keeps_its_own_fields_and_external_name",)
    },
    "an XR that is bound elsewhere is an error": {
        CLAIMS: ("test_an_xr_that_is_bound_elsewhere_is_refused_until_it_becomes_free",)
    },
    "and nobody comes back for it": {CLAIMS: ("test_a_refused_claim_is_not_requeued_and_not_written_again",)},
    "references in a claim never reach the XR": {CLAIMS: ("test_resource_refs_in_a_claim_never_reach_the_xr",)},
    "a field that leaves the claim leaves the XR": {
        CLAIMS: ("test_what_changes_on_the_claim_changes_on_the_xr_and_what_leaves_it_goes",)
    },
    "also if the XR was bound without apply": {
        CLAIMS: ("test_what_leaves_the_claim_goes_also_if_the_xr_was_bound_without_apply",)
    },
    "the enforced composition overrides the claim": {CLAIMS: ("test_the_enforced_composition_overrides_the_claims",)},
    "foreground deletion waits": {CLAIM_LIFE: ("test_a_claim_with_the_foreground_policy_waits_until_its_xr_is_gone",)},
    "a Secret that is not the XR's is refused": {CLAIMS: ("test_a_secret_that_the_xr_does_not_control_is_not_copied",)},
}

ALL: Final = REVISIONS | SELECTION | COMPOSING | LIFE | WATCHING | CLAIMING


@pytest.mark.parametrize("clause", ALL)
def test_every_edge_case_of_composition_is_a_test(clause: str) -> None:
    assert missing(ALL[clause]) == []


def test_compositions_are_refused_for_each_of_the_listed_mistakes() -> None:
    listed = {"no pipeline", "an empty pipeline", "duplicate steps", "credentials without a secretRef"}
    assert listed <= REFUSED.keys()


def test_no_edge_case_hides_another() -> None:
    assert len(ALL) == sum(map(len, (REVISIONS, SELECTION, COMPOSING, LIFE, WATCHING, CLAIMING)))


# Revisions


def reconciles(context: ControllerContext, platform: Platform) -> int:
    """How often an XR of the platform has been looked at."""
    controller = re.escape(f'controller="composite/apps.{platform.group}"')
    found = re.findall(rf"planform_reconcile_total{{{controller},[^}}]*}} (\d+)", context.metrics.render())
    return sum(map(int, found))


async def test_a_new_revision_does_not_even_wake_xrs_that_are_manual(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(version("1"))
        manual = await platform.create("manual", compositionUpdatePolicy="Manual")
        await on(platform, manual, one)
        before = reconciles(context, platform)
        assert before
        two = await platform.compose(version("2"))
        await platform.at_rest(manual)
        assert reconciles(context, platform) == before
        automatic = await platform.create("automatic")
        await on(platform, automatic, two)
        before = reconciles(context, platform)
        await on(platform, automatic, await platform.compose(version("3")))
        assert reconciles(context, platform) > before


async def test_a_revision_of_which_nobody_knows_whether_it_is_valid_is_refused_until_somebody_does(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        made = await platform.compose(version("1"))
        composition = {"metadata": {"name": f"{unique}-apps"}}
        await platform.edit(COMPOSITION, composition, annotated(**{PAUSED_ANNOTATION: "true"}))
        obj = {"apiVersion": COMPOSITION.api_version, "kind": COMPOSITION.kind, **composition}
        await until_condition(context.client, obj, "Synced", "False", reason="ReconcilePaused")
        unknown = {**(condition_of(made, "ValidPipeline") or {}), "status": "Unknown", "message": "nobody looked"}
        body = Patch(PatchType.MERGE, {"status": {"conditions": [unknown]}})
        await context.client.patch(COMPOSITION_REVISION, name(made), body, subresource="status")
        xr = await platform.create()
        found = await platform.failed(xr, f'composition revision "{name(made)}" cannot be used: nobody looked')
        assert not references(found) and not await platform.composed(xr)
        await platform.edit(COMPOSITION, composition, annotated(**{PAUSED_ANNOTATION: None}))
        assert revision_of(await on(platform, xr, made)) == name(made)


async def test_of_several_function_revisions_that_a_step_selects_the_highest_number_is_called(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    function = f"function-{unique}"
    with ExitStack() as stack:
        servers = [stack.enter_context(function_server(tmp_path, each)) for each in ("one", "two", "three")]
        async with a_platform(context, unique) as platform:
            for number, channel in ((1, "a"), (2, "a"), (3, "b")):
                made = await revision(context, function, number, "Active", endpoint=servers[number - 1].target)
                await platform.edit(FUNCTION_REVISION, made, {"metadata": {"labels": {"channel": channel}}})
            await platform.compose(*who(function, functionRevisionSelector={"matchLabels": {"channel": "a"}}))
            xr = await platform.create()
            await answered(platform, xr, servers[1].child.pid)
            # Of those that are left, and only of those.
            state = Patch(PatchType.MERGE, {"spec": {"desiredState": "Inactive"}})
            await context.client.patch(FUNCTION_REVISION, f"{function}-2", state)
            await answered(platform, xr, servers[0].child.pid)


# Connection details


async def test_an_xr_without_a_place_for_them_publishes_nothing_and_an_empty_filter_lets_all_keys_pass(
    context: ControllerContext, unique: str
) -> None:
    details = {"user": "bWU=", "key": "eA=="}
    text = f"def main(req):\n    return {{'desired': {{'composite': {{'connectionDetails': {details}}}}}}}\n"
    async with a_platform(context, unique, scope="LegacyCluster", xrd={"connectionSecretKeys": []}) as platform:
        await platform.compose(script(text))
        secret = {"name": f"{unique}-details", "namespace": NAMESPACE}
        public = await platform.ready(await platform.create("public", writeConnectionSecretToRef=secret))
        silent = await platform.ready(await platform.create("silent"))
        await platform.at_rest(public, silent)

        async def published(xr: Object) -> list[Object]:
            uid = xr["metadata"]["uid"]
            found = (await platform.client.list(SECRET)).items
            return [
                each for each in found for owner in each["metadata"].get("ownerReferences") or () if owner["uid"] == uid
            ]

        [made] = await published(public)
        assert (name(made), made["data"]) == (f"{unique}-details", details)
        assert await published(silent) == []
        assert "connectionDetails" not in (await platform.get(silent))["status"]


# Watching


async def test_a_kind_is_watched_as_long_as_one_xr_depends_on_it_and_the_other_watches_go_on(
    context: ControllerContext, unique: str
) -> None:
    config = {"apiVersion": ENVIRONMENT_CONFIG.api_version, "kind": ENVIRONMENT_CONFIG.kind}
    wanted = {"it": {**config, "matchName": f"{unique}-it"}}
    async with a_platform(context, unique) as platform:

        async def watched() -> set[GroupVersionKind]:
            sources: Any = context.manager.sources(f"composite/apps.{platform.group}")
            return {source.gvk for source in sources}

        made = await context.client.create({**config, "metadata": {"name": f"{unique}-it"}, "data": {"x": "1"}})
        xrs = {}
        for each in ("one", "two"):
            await platform.compose(reading(wanted), templates(config_map("a"), step="more"), name=f"{unique}-{each}")
            xrs[each] = await platform.create(each, compositionRef={"name": f"{unique}-{each}"})
            await platform.until(
                xrs[each], lambda xr: (xr.get("status") or {}).get("seen") == [f"it/{unique}-it=1"], "it saw it"
            )
        everything = {platform.kind, CONFIG_MAP, ENVIRONMENT_CONFIG}
        await becomes(watched, everything, "all that the two depend on is watched")
        await platform.compose(reading({}), templates(config_map("a"), step="more"), name=f"{unique}-one")
        await platform.until(xrs["one"], lambda xr: xr["status"].get("seen") == [], "the first needs it no more")
        await platform.at_rest(*xrs.values())
        assert await watched() == everything
        await platform.edit(ENVIRONMENT_CONFIG, made, {"data": {"x": "2"}})
        await platform.until(
            xrs["two"], lambda xr: xr["status"].get("seen") == [f"it/{unique}-it=2"], "the second is woken"
        )
        await platform.compose(reading({}), templates(config_map("a"), step="more"), name=f"{unique}-two")
        await becomes(watched, {platform.kind, CONFIG_MAP}, "what nobody depends on is not watched, and the rest is")
        drifted = (await platform.composed(xrs["two"]))["a"]
        await platform.client.delete(CONFIG_MAP, name(drifted), namespace=NAMESPACE)

        async def again() -> bool:
            found = (await platform.composed(xrs["two"])).get("a")
            return found is not None and found["metadata"]["uid"] != drifted["metadata"]["uid"]

        await eventually(again, "what it composes still wakes it")


async def test_sixty_writes_in_three_seconds_are_too_many_and_a_look_every_thirty_seconds_is_left() -> None:
    """The numbers of the specification, for an XR that composes one resource."""
    clock = VirtualClock()
    guard: ThrashGuard[str] = ThrashGuard(clock)
    for _ in range(60):
        guard.wrote("xr", resources=1, why="two writers")
        await clock.advance(0.05)
    assert guard.reason("xr") == "two writers"
    assert 29 < guard.wait("xr") <= 30
    await clock.advance(30)
    assert guard.wait("xr") == 0 and guard.reason("xr"), "one look, and it is not free yet"
    await clock.advance(270)
    assert guard.wait("xr") == 0 and not guard.reason("xr")
    for _ in range(60):  # in a minute they are none
        guard.wrote("calm", resources=1, why="")
        await clock.advance(1)
    assert guard.wait("calm") == 0
