"""The edge cases that the function protocol's specification lists: where each is tested, and those that stand nowhere
else."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from planform.clock import VirtualClock
from planform.functions.cache import CacheOutcome, ResponseCache
from planform.functions.calling import call_once
from planform.functions.endpoints import FixedEndpoints, Remote
from planform.functions.errors import FatalResult, FunctionError, FunctionUnavailable, RequirementUnreadable
from planform.functions.grpc_transport import GrpcRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import (
    FunctionRequest,
    FunctionResponse,
    Object,
    Requirements,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    respond,
)
from planform.functions.wire import CallerCodec
from planform.telemetry.metrics import MetricsRegistry
from planform_sdk.proto import v1
from tests.harness.edge_cases import Where, missing
from tests.harness.function_server import FunctionServer, function_server
from tests.unit.test_pipeline import CONFIG_MAP, Functions, World, config_map, failure, require, run, step

HERE: Final = "unit/test_function_protocol_edge_cases.py"
GRPC: Final = "unit/test_functions_grpc.py"
RESOLVER: Final = "unit/test_functions_resolution.py"
PIPELINE: Final = "unit/test_pipeline.py"
CACHE: Final = "unit/test_functions_cache.py"
STRUCTS: Final = "unit/test_sdk_structs.py"
FAULTS: Final = "faults/test_function_faults.py"
SDK: Final = "interop/test_sdk_server.py"
REQUIREMENTS: Final = "controllers/test_xr_requirements.py"
PROTOCOL: Final = "controllers/test_xr_protocol.py"
REALTIME: Final = "controllers/test_xr_realtime.py"
CONDITIONS: Final = "controllers/test_xr_conditions.py"
DELETION: Final = "controllers/test_xr_deletion.py"
COMPOSITES: Final = "controllers/test_composites.py"
CLAIMS: Final = "controllers/test_claims.py"

TRANSPORT: Final[dict[str, Where]] = {
    "v1 works": {GRPC: ("test_every_field_goes_there_and_comes_back",)},
    "a server of v1beta1 alone works": {GRPC: ("test_a_function_that_only_serves_v1beta1_is_remembered",)},
    "no other status is tried again as v1beta1": {
        HERE: ("test_a_call_that_failed_is_not_made_again_as_v1beta1_unless_v1_is_unknown",)
    },
    "no revision, none active, no endpoint: three errors": {
        RESOLVER: ("test_what_cannot_be_met_is_refused_by_name",),
        PROTOCOL: ("test_a_function_without_revisions_without_an_active_one_or_an_endpoint_is_told_apart",),
    },
    "a changed endpoint swaps the channel": {
        GRPC: ("test_a_changed_endpoint_is_used_at_once_and_calls_on_the_old_one_end_in_peace",),
        HERE: ("test_a_channel_is_used_again_until_the_endpoint_changes_and_closed_then",),
    },
    "an unchanged endpoint keeps its channel": {
        HERE: ("test_a_channel_is_used_again_until_the_endpoint_changes_and_closed_then",)
    },
    "only channels of functions that are gone are closed": {
        HERE: ("test_only_channels_of_functions_that_are_gone_are_closed",)
    },
    "with no channel open there is nothing to close": {
        HERE: ("test_with_no_channel_open_letting_go_of_channels_does_nothing",)
    },
    "a caller without a client certificate is rejected": {
        GRPC: ("test_both_sides_prove_who_they_are_and_strangers_are_refused",),
        SDK: ("test_with_tls_only_callers_whose_certificate_the_authority_signed_get_in",),
    },
    "another authority is rejected": {
        GRPC: ("test_both_sides_prove_who_they_are_and_strangers_are_refused",),
        SDK: ("test_with_tls_only_callers_whose_certificate_the_authority_signed_get_in",),
    },
    "insecure wins over certificates": {SDK: ("test_insecure_wins_over_certificates",)},
    "an answer over the limit is a readable error of the XR": {
        FAULTS: ("test_a_fault_has_its_name_on_the_right_step",),
        REQUIREMENTS: ("test_a_function_that_hangs_dies_or_talks_nonsense_is_told_on_the_xr_within_its_time",),
    },
    "a function that is down fails within its deadline": {
        GRPC: ("test_a_function_that_is_down_fails_soon_and_by_name",),
        PROTOCOL: ("test_a_function_that_is_down_is_told_on_the_xr_before_its_time_is_over",),
    },
}

LOOP: Final[dict[str, Where]] = {
    "no requirements: one call": {PIPELINE: ("test_without_requirements_there_is_one_call",)},
    "an empty message of requirements: one call": {HERE: ("test_an_empty_message_of_requirements_is_as_good_as_none",)},
    "the same again in the second call: two calls": {
        PIPELINE: ("test_what_a_function_requires_is_there_in_its_next_call_only_for_that_step",)
    },
    "a seed that fits: one call": {PIPELINE: ("test_seeds_of_the_last_run_save_the_second_call",)},
    "a bootstrap that fits: one call": {HERE: ("test_what_the_composition_requires_already_costs_no_second_call",)},
    "a seed that fits no more: a second call": {PIPELINE: ("test_a_seed_that_fits_no_more_costs_a_second_call",)},
    "requirements that never settle: an error after six calls": {
        PIPELINE: ("test_requirements_that_never_settle_are_an_error_after_the_allowed_calls",),
        REQUIREMENTS: ("test_a_function_that_hangs_dies_or_talks_nonsense_is_told_on_the_xr_within_its_time",),
    },
    "a fatal answer ends the loop without a read": {
        PIPELINE: ("test_a_fatal_answer_ends_the_loop_without_a_read",),
        HERE: ("test_a_fatal_answer_of_a_later_call_ends_the_loop_as_well",),
    },
    "a name that is not there: an entry without items": {
        PIPELINE: ("test_a_resource_that_is_not_there_gives_an_empty_entry",),
        REQUIREMENTS: ("test_required_resources_come_by_name_by_labels_and_all_and_what_is_missing_is_empty",),
    },
    "a read that fails fails the step": {PIPELINE: ("test_a_read_that_fails_fails_the_step",)},
    "no matcher: all of the kind": {
        REALTIME: ("test_kinds_may_come_go_and_come_again_while_xrs_require_and_compose_them",)
    },
    "a list over namespaces is sorted": {
        REQUIREMENTS: ("test_required_resources_come_by_name_by_labels_and_all_and_what_is_missing_is_empty",)
    },
    "bootstrap survives what the function adds": {
        PIPELINE: ("test_bootstrap_requirements_are_there_from_the_first_call_and_survive_dynamic_ones",),
        REQUIREMENTS: ("test_required_resources_come_by_name_by_labels_and_all_and_what_is_missing_is_empty",),
    },
    "of one name, what the function asks for wins": {
        HERE: ("test_under_one_name_what_the_function_asks_for_wins_over_the_composition",),
        REQUIREMENTS: ("test_required_resources_come_by_name_by_labels_and_all_and_what_is_missing_is_empty",),
    },
    "both hold for schemas": {
        HERE: ("test_schemas_of_the_composition_survive_those_of_the_function_and_give_way_under_one_name",)
    },
    "extra and required resources have maps of their own": {
        PIPELINE: ("test_deprecated_extra_resources_are_answered_in_their_own_map",)
    },
    "context passes to the next iteration": {
        PIPELINE: ("test_context_passes_to_the_next_iteration_and_desired_state_does_not",)
    },
    "desired state does not": {PIPELINE: ("test_context_passes_to_the_next_iteration_and_desired_state_does_not",)},
    "schema of a core kind": {
        REQUIREMENTS: ("test_schemas_are_had_for_built_in_and_custom_kinds_and_are_empty_for_unknown_ones",)
    },
    "schema of a kind of a group": {
        REQUIREMENTS: ("test_schemas_are_had_for_built_in_and_custom_kinds_and_are_empty_for_unknown_ones",)
    },
    "references in schemas are inlined": {
        REQUIREMENTS: ("test_schemas_are_had_for_built_in_and_custom_kinds_and_are_empty_for_unknown_ones",),
        PROTOCOL: ("test_a_schema_holds_no_reference_and_what_many_kinds_share_has_none",),
    },
    "what many kinds share has no schema": {
        PROTOCOL: ("test_a_schema_holds_no_reference_and_what_many_kinds_share_has_none",)
    },
    "an unknown group or kind: an entry without a schema": {
        REQUIREMENTS: ("test_schemas_are_had_for_built_in_and_custom_kinds_and_are_empty_for_unknown_ones",)
    },
    "what is no apiVersion has no schema: an error": {
        HERE: ("test_a_schema_of_what_is_no_api_version_fails_the_step",),
        PROTOCOL: ("test_a_function_that_asks_for_the_schema_of_no_api_version_fails_its_step",),
    },
}

KEPT_ANSWERS: Final[dict[str, Where]] = {
    "an empty tag calls": {
        CACHE: ("test_only_answers_that_stay_true_are_kept",),
        HERE: ("test_a_request_without_a_tag_is_asked_every_time",),
    },
    "nothing kept calls": {HERE: ("test_what_is_not_kept_or_has_expired_is_asked_and_kept_anew",)},
    "what cannot be read, is empty or garbage calls": {
        HERE: ("test_no_answer_is_kept_in_a_file_where_the_specs_list_has_files_that_may_be_broken",)
    },
    "what has expired calls": {
        CACHE: ("test_an_answer_is_given_with_the_rest_of_its_ttl_until_that_has_passed",),
        HERE: ("test_what_is_not_kept_or_has_expired_is_asked_and_kept_anew",),
    },
    "a valid answer is given without a call": {
        PIPELINE: ("test_a_second_run_with_nothing_changed_calls_no_deterministic_function",),
        HERE: ("test_what_is_not_kept_or_has_expired_is_asked_and_kept_anew",),
    },
    "a TTL above the limit is cut": {CACHE: ("test_a_ttl_beyond_a_day_is_cut_and_a_sweep_drops_only_what_expired",)},
    "a TTL of nothing is not kept": {CACHE: ("test_only_answers_that_stay_true_are_kept",)},
    "an error is passed on and nothing kept": {
        HERE: ("test_an_error_of_the_function_is_passed_on_and_nothing_is_kept",)
    },
    "a sweep takes only what has expired": {
        CACHE: ("test_a_ttl_beyond_a_day_is_cut_and_a_sweep_drops_only_what_expired",)
    },
    "ours: another revision misses": {CACHE: ("test_another_revision_never_meets_an_old_answer",)},
    "ours: a changed required resource misses": {
        CACHE: ("test_everything_that_is_sent_is_in_the_tag",),
        PIPELINE: ("test_a_second_run_with_nothing_changed_calls_no_deterministic_function",),
    },
    "ours: a changed credential misses": {CACHE: ("test_everything_that_is_sent_is_in_the_tag",)},
}

SEMANTICS: Final[dict[str, Where]] = {
    "a step sees desired state and context of the one before": {
        PIPELINE: ("test_desired_state_and_context_pass_from_step_to_step",)
    },
    "the last context is dropped": {PROTOCOL: ("test_what_the_last_step_left_in_the_context_is_gone_in_the_next_run",)},
    "observed state is the same for all steps": {
        PIPELINE: ("test_every_step_sees_the_same_observed_state_without_bookkeeping",)
    },
    "results before a fatal one are kept, later ones dropped": {
        PIPELINE: ("test_a_fatal_result_stops_with_the_name_of_its_step_and_keeps_what_came_before",),
        CONDITIONS: ("test_what_was_said_before_a_fatal_result_is_told_and_what_came_after_is_not",),
    },
    "conditions of the fatal answer count": {
        PIPELINE: ("test_a_fatal_result_stops_with_the_name_of_its_step_and_keeps_what_came_before",),
        CONDITIONS: ("test_conditions_of_functions_are_set_updated_kept_and_unknown_after_an_error",),
    },
    "reason and target have defaults": {
        CONDITIONS: (
            "test_results_become_events_with_step_and_reason_and_each_is_told_once",
            "test_claims_get_the_results_meant_for_them_and_a_claim_that_is_gone_fails_no_xr",
        )
    },
    "an unknown severity is a warning for the XR only": {
        CONDITIONS: ("test_results_become_events_with_step_and_reason_and_each_is_told_once",),
        PROTOCOL: ("test_an_unknown_severity_and_the_systems_own_conditions_never_reach_the_claim",),
    },
    "conditions of the system are not the functions' to set": {
        CONDITIONS: ("test_conditions_of_functions_are_set_updated_kept_and_unknown_after_an_error",),
        PROTOCOL: ("test_an_unknown_severity_and_the_systems_own_conditions_never_reach_the_claim",),
    },
    "a condition's target reaches the claim": {
        CONDITIONS: ("test_claims_get_the_results_meant_for_them_and_a_claim_that_is_gone_fails_no_xr",),
        CLAIMS: ("test_a_claim_gets_only_the_custom_conditions_meant_for_claims",),
    },
    "ours: no desired state in the last answer is refused": {
        COMPOSITES: ("test_nothing_desired_any_more_waits_for_a_human",),
        DELETION: ("test_a_single_resource_may_go_a_silent_last_step_may_take_nothing_and_shares_are_kept",),
        FAULTS: ("test_a_fault_has_its_name_on_the_right_step",),
    },
    "large integers, nulls, empty maps and lists survive": {
        STRUCTS: (
            "test_decoding_undoes_encoding_and_numbers_that_are_integral_become_integers",
            "test_the_bytes_are_what_protobuf_reads_as_the_same_object",
        ),
        GRPC: ("test_every_field_goes_there_and_comes_back",),
        REQUIREMENTS: ("test_values_survive_a_pipeline",),
    },
}

ALL: Final = TRANSPORT | LOOP | KEPT_ANSWERS | SEMANTICS


@pytest.mark.parametrize("clause", ALL)
def test_every_edge_case_of_the_function_protocol_is_a_test(clause: str) -> None:
    assert missing(ALL[clause]) == []


# Transport

FN: Final = FunctionRevision("fn", "fn-1", "sha256:1")
OTHER: Final = FunctionRevision("other", "other-1", "sha256:2")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionServer]:
    with function_server(tmp_path_factory.mktemp("fn"), "server") as running:
        yield running


def asking(mode: str = "echo", **options: Any) -> FunctionRequest:
    return FunctionRequest(input={"apiVersion": "t/v1", "kind": "Mode", "mode": mode, **options}, tag="t")


@pytest.mark.parametrize(
    ("code", "calls"),
    [
        ("INVALID_ARGUMENT", {"v1": 1}),
        ("PERMISSION_DENIED", {"v1": 1}),
        ("INTERNAL", {"v1": 1}),
        ("RESOURCE_EXHAUSTED", {"v1": 1}),
        ("UNAVAILABLE", {"v1": 1}),
        ("UNIMPLEMENTED", {"v1": 1, "v1beta1": 1}),
    ],
)
async def test_a_call_that_failed_is_not_made_again_as_v1beta1_unless_v1_is_unknown(
    server: FunctionServer, code: str, calls: dict[str, int]
) -> None:
    metrics = MetricsRegistry()
    async with GrpcRunner(FixedEndpoints({"fn": Remote(server.target)}), metrics=metrics) as runner:
        with pytest.raises(FunctionError):
            await runner.run(FN, asking("refuse", code=code), timeout=20)
    labels = 'function_run_function_request_total{function_name="fn",function_revision="fn-1",grpc_method='
    counted = [line.removeprefix(labels) for line in metrics.render().splitlines() if line.startswith(labels)]
    assert sorted(counted) == sorted(f'"{version}"}} {count}' for version, count in calls.items())


class Channels:
    """Every channel that is opened, and where to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[tuple[str, Any]] = []
        self._open = grpc.aio.insecure_channel
        monkeypatch.setattr(grpc.aio, "insecure_channel", self._opening)

    def _opening(self, target: str, options: Any) -> Any:
        channel = self._open(target, options)
        self.opened.append((target, channel))
        return channel

    @property
    def targets(self) -> list[str]:
        return [target for target, _ in self.opened]

    @property
    def closed(self) -> list[bool]:
        return [channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN for _, channel in self.opened]

    async def until_closed(self, *wanted: bool) -> None:
        async with asyncio.timeout(20):
            while self.closed != list(wanted):  # noqa: ASYNC110  (a channel does not tell)
                await asyncio.sleep(0.01)


class Places:
    """Endpoints that may be changed."""

    def __init__(self, **targets: str) -> None:
        self.targets = targets

    def endpoint(self, revision: FunctionRevision, /) -> Remote | None:
        target = self.targets.get(revision.function)
        return None if target is None else Remote(target)


async def test_a_channel_is_used_again_until_the_endpoint_changes_and_closed_then(
    server: FunctionServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels, places = Channels(monkeypatch), Places(fn=server.target)
    with function_server(tmp_path, "moved") as moved:
        async with GrpcRunner(places) as runner:
            for _ in range(3):
                await runner.run(FN, asking(), timeout=20)
            assert (channels.targets, channels.closed) == ([server.target], [False])
            places.targets["fn"] = moved.target
            for _ in range(3):
                await runner.run(FN, asking(), timeout=20)
            assert channels.targets == [server.target, moved.target]
            await channels.until_closed(True, False)


async def test_only_channels_of_functions_that_are_gone_are_closed(
    server: FunctionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = Channels(monkeypatch)
    async with GrpcRunner(Places(fn=server.target, other=server.target)) as runner:
        for revision in (FN, OTHER):
            await runner.run(revision, asking(), timeout=20)
        runner.retain([FN, OTHER])
        runner.retain([FN])
        await channels.until_closed(False, True)
        await runner.run(FN, asking(), timeout=20)
        assert len(channels.opened) == 2, "the one that stays has its channel still"


async def test_with_no_channel_open_letting_go_of_channels_does_nothing(
    server: FunctionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = Channels(monkeypatch)
    async with GrpcRunner(Places(fn=server.target)) as runner:
        runner.retain([])
        runner.retain([FN])
        assert channels.opened == []
        await runner.run(FN, asking(), timeout=20)
        assert channels.closed == [False]


# The requirements loop


async def test_an_empty_message_of_requirements_is_as_good_as_none() -> None:
    message = v1.RunFunctionResponse()
    message.desired.SetInParent()
    message.requirements.SetInParent()
    data = message.SerializeToString()
    assert v1.RunFunctionResponse.FromString(data).HasField("requirements")

    async def answer(request: FunctionRequest) -> FunctionResponse:
        return dataclasses.replace(await CallerCodec().decode(data, request), tag=request.tag)

    functions, world = Functions(empty=answer), World()
    outcome = await run(functions, step("empty"), world=world)
    assert (outcome.failure, len(functions.requests), world.reads) == (None, 1, [])


def bootstrap(*resources: Object, schemas: tuple[Object, ...] = ()) -> Object:
    return {"requiredResources": list(resources), "requiredSchemas": list(schemas)}


def wanted(requirement: str, **more: Any) -> Object:
    return {"requirementName": requirement, "apiVersion": "v1", "kind": "ConfigMap", **more}


async def test_what_the_composition_requires_already_costs_no_second_call() -> None:
    functions, world = Functions(ask=require(it=CONFIG_MAP)), World(config_map("settings"))
    outcome = await run(functions, step("ask", requirements=bootstrap(wanted("it", name="settings"))), world=world)
    assert (outcome.steps[0].iterations, len(functions.requests)) == (1, 1)
    assert functions.requests[0].required_resources["it"][0].resource["metadata"]["name"] == "settings"


async def test_under_one_name_what_the_function_asks_for_wins_over_the_composition() -> None:
    functions = Functions(ask=require(it=CONFIG_MAP))
    world = World(config_map("settings"), config_map("other"))
    await run(functions, step("ask", requirements=bootstrap(wanted("it", name="other"))), world=world)
    seen = [[each.resource["metadata"]["name"] for each in one.required_resources["it"]] for one in functions.requests]
    assert seen == [["other"], ["settings"]]


class Schemas(World):
    """Every kind has a schema that names it."""

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        return {"title": selector.kind}


async def test_schemas_of_the_composition_survive_those_of_the_function_and_give_way_under_one_name() -> None:
    def ask(request: FunctionRequest) -> FunctionResponse:
        schemas = {name: SchemaSelector("v1", "Secret") for name in ("same", "own")}
        return dataclasses.replace(respond(request), requirements=Requirements(schemas=schemas))

    functions = Functions(ask=ask)
    given = bootstrap(schemas=(wanted("boot"), wanted("same")))
    await run(functions, step("ask", requirements=given), world=Schemas())
    first, second = (
        {name: (each or {})["title"] for name, each in one.required_schemas.items()} for one in functions.requests
    )
    assert first == {"boot": "ConfigMap", "same": "ConfigMap"}
    assert second == {"boot": "ConfigMap", "same": "Secret", "own": "Secret"}


@pytest.mark.parametrize("api_version", ["", "a/b/v1", "apps/", "/v1"])
async def test_a_schema_of_what_is_no_api_version_fails_the_step(api_version: str) -> None:
    def ask(request: FunctionRequest) -> FunctionResponse:
        odd = Requirements(schemas={"odd": SchemaSelector(api_version, "Deployment")})
        return dataclasses.replace(respond(request), requirements=odd)

    failed = failure(await run(Functions(ask=ask), step("ask"), world=Schemas()), RequirementUnreadable, "ask")
    assert f'"{api_version}" is no apiVersion' in str(failed)


async def test_a_fatal_answer_of_a_later_call_ends_the_loop_as_well() -> None:
    def ask(request: FunctionRequest) -> FunctionResponse:
        if not request.required_resources:
            return require(it=CONFIG_MAP)(request)  # type: ignore[return-value]  # it does not wait
        another = Requirements({"more": ResourceSelector("v1", "ConfigMap", "another")})
        return dataclasses.replace(respond(request), results=[Result(Severity.FATAL, "no")], requirements=another)

    world = World(config_map("settings"))
    functions = Functions(ask=ask)
    failure(await run(functions, step("ask"), world=world), FatalResult, "ask")
    assert (len(functions.requests), world.reads) == (2, [CONFIG_MAP])


# Kept answers


class Answering:
    """A runner that counts its calls; each answer may be kept for a minute."""

    def __init__(self, error: FunctionError | None = None) -> None:
        self.calls = 0
        self.error = error

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return dataclasses.replace(respond(request), ttl=60.0, context={"call": self.calls})

    async def ask(self, cache: ResponseCache, clock: VirtualClock, tag: str = "t") -> tuple[int, CacheOutcome]:
        """Which call it was that answered, and what the cache had to say."""
        request = FunctionRequest(tag=tag)
        call = await call_once(FN, request, runner=self, cache=cache, clock=clock, timeout=5)
        return call.response.context["call"], call.cache


async def test_a_request_without_a_tag_is_asked_every_time() -> None:
    clock, function = VirtualClock(), Answering()
    cache = ResponseCache(clock)
    asked = [await function.ask(cache, clock, tag="") for _ in range(2)]
    assert asked == [(1, CacheOutcome.EMPTY_TAG), (2, CacheOutcome.EMPTY_TAG)]
    assert len(cache) == 0


async def test_what_is_not_kept_or_has_expired_is_asked_and_kept_anew() -> None:
    clock, function = VirtualClock(), Answering()
    cache = ResponseCache(clock)
    assert await function.ask(cache, clock) == (1, CacheOutcome.NOT_CACHED)
    assert await function.ask(cache, clock) == (1, CacheOutcome.HIT)
    await clock.advance(60)
    assert await function.ask(cache, clock) == (2, CacheOutcome.EXPIRED)
    assert await function.ask(cache, clock) == (2, CacheOutcome.HIT)
    assert function.calls == 2


async def test_no_answer_is_kept_in_a_file_where_the_specs_list_has_files_that_may_be_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So none can be unreadable, empty or garbage: whoever starts anew begins with nothing."""
    monkeypatch.chdir(tmp_path)
    clock, function = VirtualClock(), Answering()
    cache = ResponseCache(clock)
    await function.ask(cache, clock)
    assert await function.ask(cache, clock) == (1, CacheOutcome.HIT)
    assert files_in(tmp_path) == []
    assert await function.ask(ResponseCache(clock), clock) == (2, CacheOutcome.NOT_CACHED)


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_an_error_of_the_function_is_passed_on_and_nothing_is_kept() -> None:
    clock, function = VirtualClock(), Answering(FunctionUnavailable("nobody answers", revision=FN))
    cache = ResponseCache(clock)
    with pytest.raises(FunctionUnavailable) as caught:
        await function.ask(cache, clock)
    assert caught.value is function.error and len(cache) == 0
    function.error = None
    assert await function.ask(cache, clock) == (2, CacheOutcome.NOT_CACHED)
