"""Steps resolved once for a whole fleet, against a catalogue that changes under runs that have begun."""

from __future__ import annotations

from planform.features import FeatureGates
from planform.functions.resolution import Catalogue, Version
from planform.pipeline.running import resolver_of
from planform.pipeline.steps import Step, parse_pipeline


def versions(*names: str) -> Catalogue:
    return Catalogue(Version("function-a", name, number=number) for number, name in enumerate(names))


def step() -> Step:
    [parsed] = parse_pipeline({"pipeline": [{"step": "a", "functionRef": {"name": "function-a"}}]})
    return parsed


class Changing:
    """The catalogue of a control plane, of which there is another one after each change."""

    def __init__(self) -> None:
        self.now = versions("a-1")

    def __call__(self) -> Catalogue:
        return self.now


def test_a_run_that_began_before_a_change_does_not_decide_for_those_after_it() -> None:
    catalogue, asked = Changing(), step()
    resolver = resolver_of(catalogue, FeatureGates({}))
    began_before = resolver("composition")
    catalogue.now = versions("a-1", "a-2")
    begins_after = resolver("composition")
    assert began_before(asked).version.id == "a-1"  # and only now: its first step took long
    assert begins_after(asked).version.id == "a-2"
    assert resolver("composition")(asked).version.id == "a-2"


def test_a_step_is_resolved_once_until_the_catalogue_changes() -> None:
    catalogue, asked = Changing(), step()
    resolver = resolver_of(catalogue, FeatureGates({}))
    found = resolver("composition")(asked)
    assert resolver("composition")(asked) is found
    assert resolver("operation") is not resolver("composition")
    catalogue.now = versions("a-1")
    assert resolver("composition")(asked) is not found
