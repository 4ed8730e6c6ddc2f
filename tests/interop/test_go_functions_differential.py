"""go-templating and cel-filter answer generated requests as the published Go functions do; and all four, many more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planform.functions.jsonform import response_to_json
from planform.functions.values import FunctionRequest
from tests.interop import test_auto_ready_differential, test_patch_and_transform_differential
from tests.interop.comparing import IDS, compare, differences
from tests.interop.generated import filters, templates
from tests.interop.published import serving
from tests.interop.test_upstream_tables import answer

FEW = 60
MANY = 2_000
SEEDS = (1_000_003, 2_000_003, 3_000_017)

pytestmark = pytest.mark.xdist_group("go-functions")


async def compared(name: str, make: Callable[[int], FunctionRequest], seeds: range, directory: Path) -> None:
    found = []
    async with serving(f"function-{name}", directory) as published:
        for seed in seeds:
            request = make(seed)
            theirs = response_to_json(await published(request))
            case, used = compare(name, request, answer(name, request), theirs)
            found += [f"seed {seed}: {each}" for each in differences(case.ours, case.theirs)]
            assert used <= IDS
    assert found == []


@pytest.mark.parametrize(("name", "make"), [("go-templating", templates), ("cel-filter", filters)])
async def test_generated_requests_have_the_same_answer_from_both(
    name: str, make: Callable[[int], FunctionRequest], tmp_path: Path
) -> None:
    await compared(name, make, range(FEW), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "make"), [("go-templating", templates), ("cel-filter", filters)])
async def test_thousands_of_requests_have_the_same_answer_from_both(
    name: str, make: Callable[[int], FunctionRequest], seed: int, tmp_path: Path
) -> None:
    await compared(name, make, range(seed, seed + MANY), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
async def test_thousands_of_resources_are_found_ready_by_both(seed: int, tmp_path: Path) -> None:
    ours = test_auto_ready_differential
    async with serving("function-auto-ready", tmp_path) as published:
        for each in range(seed, seed + MANY):
            asked = ours.request(each)
            assert answer("auto-ready", asked).desired == (await published(asked)).desired, f"seed {each}"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
async def test_thousands_of_compositions_are_rendered_alike_by_both(seed: int, tmp_path: Path) -> None:
    ours = test_patch_and_transform_differential
    async with serving("function-patch-and-transform", tmp_path) as published:
        for each in range(seed, seed + MANY):
            asked = ours._request(each)
            case = ours.Comparison(asked, answer("patch-and-transform", asked), await published(asked))
            assert case.ours == case.theirs, f"seed {each}"
            assert case.used <= ours.RULES
