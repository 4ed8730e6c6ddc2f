"""Every command that the dashboard shows to copy is one that the CLI takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.cli.main import root
from planform.web import actions, composition_views, preview_views
from planform.web.answers import Allowed
from planform.web.mirror import Definition

UI = Path(__file__).parents[2] / "ui" / "src"
_STRING = re.compile(r'"(planform [^"]*)"|`(planform [^`]*)`((?: \+ \(.*? && ` [^`]*`\))*)')
_READER: Any = SimpleNamespace(read_only=True)
"""Nothing is asked for somebody who may do nothing, and commands are shown all the same."""


def shown_by_the_page() -> list[str]:
    found = []
    for path in sorted(UI.rglob("*.tsx")):
        for line in path.read_text().splitlines():
            if "<Command" not in line and "commands=" not in line:
                continue
            for plain, template, more in _STRING.findall(line):
                text = plain or template + "".join(re.findall(r"`( [^`]*)`", more))
                found.append(re.sub(r"\$\{.*?\}", "it", text))
    return found


def parse(arguments: list[str]) -> click.Context:
    """The context of the command that is meant, as far as it can be told without running it."""
    command: click.Command = root
    context = command.make_context("planform", arguments)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return context


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands name as if it were there."""
    monkeypatch.chdir(tmp_path)
    for name in ("xr.yaml", "composition.yaml", "operation.yaml", "rollout-policy.yaml"):
        (tmp_path / name).touch()
    for name in ("DIR", "examples/app/platform"):
        (tmp_path / name).mkdir(parents=True)


def test_there_are_commands_on_many_screens() -> None:
    assert len(shown_by_the_page()) >= 20


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("command", sorted(set(shown_by_the_page())))
def test_page_shows_commands_that_there_are(command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "planform"
    parse(arguments)


def test_example_that_the_empty_fleet_names_is_there() -> None:
    assert (UI.parents[1] / "examples" / "app" / "platform").is_dir()


@pytest.mark.parametrize(
    "command", ["rollout start --preview p", "freeze --until 2027-01-04", "function diff a b c", "preview --xr a"]
)
def test_commands_that_the_cli_does_not_take_are_found_out(command: str) -> None:
    with pytest.raises(click.UsageError):
        parse(shlex.split(command))


def xr(**fields: object) -> Object:
    crossplane = {"compositionRef": {"name": "db"}, "compositionRevisionRef": {"name": "db-1"}, **fields}
    metadata = {"name": "orders", "namespace": "team-a"}
    return {
        "apiVersion": "example.org/v1",
        "kind": "Database",
        "metadata": metadata,
        "spec": {"crossplane": crossplane},
    }


def rollout(phase: str) -> Object:
    return {"metadata": {"name": "db-7c1f"}, "spec": {}, "status": {"phase": phase}}


async def shown_by_the_server() -> list[Allowed]:
    definition = Definition(
        "databases.example.org", GroupVersionKind("example.org", "v1", "Database"), "databases", True
    )
    paused = xr(compositionUpdatePolicy="Manual")
    paused["metadata"]["annotations"] = {"crossplane.io/paused": "true"}
    found: list[Allowed] = []
    for each in (xr(), paused):
        found += await actions.xr_actions(_READER, definition, each, token="abc", newest="db-2")
    for phase in ("Pending", "AwaitingApproval", "Running", "Paused", "Aborted", "Completed", "Undone"):
        found += await actions.rollout_actions(_READER, rollout(phase))
    for state in ("Active", "Inactive"):
        revision = {"metadata": {"name": "render-1"}, "spec": {"desiredState": state}}
        found += await actions.revision_actions(_READER, {"metadata": {"name": "render"}}, revision)
    backup = {"kind": "ActionSet", "metadata": {"name": "backup-1", "namespace": "shop"}}
    found += await actions.actionset_actions(_READER, backup, "running")
    found += await composition_views._actions(_READER, "db", "db-2")
    changes: list[Object] = [
        {"revision": {"composition": "db", "name": "db-2"}},
        {"functionRevision": {"function": "render", "name": "render-2"}},
        {"manifests": [{"kind": "Composition"}]},
    ]
    for change in changes:
        found += await preview_views._actions(_READER, {"spec": {"change": change}})
    return found


@pytest.mark.usefixtures("files")
async def test_actions_show_commands_that_there_are() -> None:
    found = await shown_by_the_server()
    assert {each.action for each in found} >= {*actions.ROLLOUT_ACTIONS, *actions._ACTIONS}
    for each in found:
        program, *arguments = shlex.split(each.command)
        assert program == "planform"
        parse(arguments)
