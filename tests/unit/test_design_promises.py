"""The promises of the designs: each says what became of it, its tests exist, and the page says the same.

Those that no other test shows are tested at the end.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tools import reference

from planform.api.names import SECRET
from planform.errors import Invalid
from planform.functions.values import FunctionRequest, FunctionResponse, Requirements, ResourceSelector, respond
from tests.controllers.composing import NAMESPACE, a_platform, python
from tests.harness.contexts import embedded_context, eventually
from tests.harness.edge_cases import missing
from tests.unit.test_pipeline import Functions, World, config_map, run, step

DATA: Final = Path(__file__).parents[1] / "controllers" / "designs" / "promises.yaml"
DESIGNS: Final[list[dict[str, Any]]] = yaml.safe_load(DATA.read_text())
ROWS: Final[dict[str, list[dict[str, Any]]]] = {
    design["design"]: list(chain.from_iterable(section["promises"] for section in design["sections"]))
    for design in DESIGNS
}


@pytest.mark.parametrize("design", ROWS)
def test_every_test_that_shows_a_promise_exists(design: str) -> None:
    named = (test.split("::") for row in ROWS[design] for test in row["tests"])
    assert [gone for file, name in named for gone in missing({file: (name,)})] == []


@pytest.mark.parametrize("design", ROWS)
def test_a_promise_that_is_not_kept_as_designed_says_why(design: str) -> None:
    assert {row["state"] for row in ROWS[design]} <= reference.STATES.keys()
    assert [row["promise"] for row in ROWS[design] if row["state"] != "works" and not row.get("why")] == []


@pytest.mark.parametrize("design", ROWS)
def test_no_promise_and_no_test_of_it_is_listed_twice(design: str) -> None:
    counted = Counter(row["promise"] for row in ROWS[design])
    assert [promise for promise, times in counted.items() if times > 1] == []
    assert [row["promise"] for row in ROWS[design] if len(set(row["tests"])) != len(row["tests"])] == []


def test_all_five_designs_are_listed() -> None:
    assert list(ROWS) == [
        "composition-revisions",
        "composition-functions",
        "extra-resources",
        "controlled-rollout-of-functions",
        "function-version-management",
    ]


def test_the_page_says_what_the_list_says() -> None:
    assert reference.PROMISES.read_text() == reference.promises_page(), "run tools/reference.py"


# -- promises that no other test shows


async def test_an_iteration_is_sent_only_what_the_one_before_asked_for() -> None:
    def follow(request: FunctionRequest) -> FunctionResponse:
        name = "second" if "first" in request.required_resources or request.context else "first"
        wanted = Requirements(resources={name: ResourceSelector("v1", "ConfigMap", name)})
        return dataclasses.replace(respond(request), requirements=wanted, context={"seen": name})

    functions = Functions(follow=follow)
    outcome = await run(functions, step("follow"), world=World(config_map("first"), config_map("second")))
    assert outcome.failure is None
    assert [list(request.required_resources) for request in functions.requests] == [[], ["first"], ["second"]]


@pytest.mark.timeout(60)
async def test_an_update_policy_is_one_of_two() -> None:
    async with embedded_context() as context, a_platform(context, "policies") as platform:
        for policy in ("Automatic", "Manual"):
            await platform.create(policy.lower(), compositionUpdatePolicy=policy)
        with pytest.raises(Invalid, match="compositionUpdatePolicy"):
            await platform.create("other", compositionUpdatePolicy="Sometimes")


TELLING: Final = """
def compose(req, rsp):
    observed = [req.observed.composite, *req.observed.resources.values()]
    rsp.desired.composite.connection_details["user"] = b"me"
    made = rsp.desired.resources["it"]
    made.resource.update({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default"},
        "data": {"seen": str(len(observed)), "ready": str([each.ready for each in observed])},
    })
    made.ready = 1
    made.connection_details["leak"] = b"nobody's"
"""


@pytest.mark.timeout(60)
async def test_requests_say_nothing_of_readiness_and_details_of_desired_resources_go_nowhere() -> None:
    async with embedded_context() as context, a_platform(context, "telling", scope="LegacyCluster") as platform:
        await platform.compose(python(TELLING))
        xr = await platform.create(writeConnectionSecretToRef={"name": "details", "namespace": NAMESPACE})
        await platform.ready(xr)

        async def observed() -> bool:
            return bool((await platform.composed(xr))["it"]["data"] == {"seen": "2", "ready": "[0, 0]"})

        await eventually(observed, "the resource is in the request, and its readiness is not")
        assert (await context.client.get(SECRET, "details", namespace=NAMESPACE))["data"].keys() == {"user"}
