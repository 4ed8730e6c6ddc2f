"""`kubectl planform ...`: kubectl runs the script kubectl-planform, and kubectl_complete-planform for the Tab key."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

COMPLETER: Final = "kubectl_complete-planform"
_ALSO_FILES: Final = 0
_NO_FILES: Final = 4
"""What kubectl's shell scripts do beside offering the words: cobra's directives."""


def use_kubectls_control_plane() -> None:
    """A plugin asks whom kubectl would ask, even where a control plane of planform runs on the machine."""
    config = Path.home() / ".kube" / "config"
    if not os.environ.get("KUBECONFIG") and config.exists():
        os.environ["KUBECONFIG"] = str(config)
    if os.environ.get("KUBECONFIG"):
        os.environ.pop("PLANFORM_KUBECONFIG", None)


def complete(root: click.Command, words: Sequence[str]) -> None:
    """Print what may follow: the last word is unfinished. A line is a word, a tab and what it means."""
    from click.shell_completion import ShellComplete

    *before, unfinished = words or [""]
    offered = ShellComplete(root, {}, "planform", "").get_completions(before, unfinished)
    for each in offered:
        if each.type == "plain":
            click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    click.echo(f":{_NO_FILES if all(each.type == 'plain' for each in offered) else _ALSO_FILES}")
