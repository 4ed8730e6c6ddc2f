"""What plug-ins import of the contract of phase functions."""

from __future__ import annotations

from planform.blueprints import contract

FORMER_NAME = "Surroundings"


def test_plug_ins_find_the_environment_of_a_phase_under_its_former_name() -> None:
    assert getattr(contract, FORMER_NAME) is contract.PhaseEnvironment
    assert not hasattr(contract, "NeverThere")
