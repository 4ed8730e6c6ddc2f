"""Feature gates on the command line."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from planform.cli.control_plane.feature_gates import gate_options, gates_of


@click.command()
@gate_options
@click.option("--other", is_flag=True)
def command(other: bool, **options: Any) -> None:
    click.echo(" ".join((*gates_of(options).on, *(("other",) if other else ()))))


@pytest.mark.parametrize(
    ("arguments", "is_on"),
    [
        ((), False),
        (("--enable-provider-deletion-protection",), True),
        (("--enable-provider-deletion-protection", "--other"), True),
        (("--enable-provider-deletion-protection=true",), True),
        (("--enable-provider-deletion-protection=false",), False),
        (("--feature-gates", "ProviderDeletionProtection=true"), True),
        (("--enable-provider-deletion-protection", "--feature-gates", "ProviderDeletionProtection=false"), False),
    ],
)
def test_a_gate_is_set_by_its_name_or_by_the_flag_that_crossplane_has(arguments: tuple[str, ...], is_on: bool) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert ("ProviderDeletionProtection" in result.output) is is_on
    assert ("other" in result.output) is ("--other" in arguments)
