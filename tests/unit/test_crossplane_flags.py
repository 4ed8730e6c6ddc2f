"""The flags by which Crossplane switches what planform always does are understood."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from planform.cli.control_plane.crossplane_flags import ALWAYS_ON, crossplane_flags, note_flags


@click.command()
@crossplane_flags
def command(debug: bool, **options: Any) -> None:
    note_flags(options)
    click.echo("debug" if debug else "done")


@pytest.mark.parametrize("flag", ALWAYS_ON)
def test_a_flag_is_taken_and_whoever_switches_it_off_is_told(flag: str) -> None:
    on = CliRunner().invoke(command, [f"--{flag}", "--debug"])
    assert (on.exit_code, on.stdout) == (0, "debug\n")
    off = CliRunner().invoke(command, [f"--{flag}=false"])
    assert (off.exit_code, off.stdout) == (0, "done\n")
    assert f"--{flag}=false changes nothing: planform always does it" in off.output


def test_the_help_does_not_show_them() -> None:
    assert "--enable" not in CliRunner().invoke(command, ["--help"]).output
