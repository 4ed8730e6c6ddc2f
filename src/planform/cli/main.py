"""The root command: finds the others, and turns every error into words, a hint and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 timed out, 130 interrupted. Data goes to stdout, words to stderr.
"""

from __future__ import annotations

import gc
import importlib
import keyword
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn

import click

from planform import __version__
from planform.cli.spellings import respelled
from planform.errors import PlanformError, UsageError, system_words

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TIMED_OUT: Final = 3
_CONTAINERS_BEFORE_COLLECTION: Final = 50_000
"""Imports make many and no garbage: by its own measure Python would look through them dozens of times meanwhile."""

_SECTIONS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Run a control plane": {
        "up": ("planform.cli.control_plane.up", "Start a control plane on this machine."),
        "demo": ("planform.cli.control_plane.demo", "Watch a control plane at work, without leaving a trace."),
        "status": ("planform.cli.control_plane.status", "Show whether a control plane runs, and what it holds."),
        "kubeconfig": ("planform.cli.control_plane.kubeconfig", "Give somebody access, or take it back."),
        "random": ("planform.cli.control_plane.random", "See and renew what templates draw at random for XRs."),
        "backup": ("planform.cli.control_plane.backups", "Copy the data of a control plane into one file."),
        "restore": ("planform.cli.control_plane.backups", "Make a data directory from a backup."),
        "export": ("planform.cli.control_plane.export", "Write a whole control plane into an archive, to move it."),
        "import": ("planform.cli.control_plane.import_", "Put an exported control plane into another engine."),
    },
    "Work with objects": {
        "apply": ("planform.cli.objects.commands", "Create or change objects from files."),
        "get": ("planform.cli.objects.getting", "Show objects."),
        "describe": ("planform.cli.objects.commands", "Show one object with its conditions and events."),
        "diff": ("planform.cli.objects.editing", "Show what applying files would change."),
        "edit": ("planform.cli.objects.editing", "Change an object in your editor."),
        "patch": ("planform.cli.objects.editing", "Change fields of an object."),
        "label": ("planform.cli.objects.editing", "Set and remove labels."),
        "annotate": ("planform.cli.objects.editing", "Set and remove annotations."),
        "explain": ("planform.cli.objects.explaining", "Show the fields of a kind."),
        "delete": ("planform.cli.objects.commands", "Delete objects."),
        "wait": ("planform.cli.objects.commands", "Wait for a condition, a field or a deletion."),
        "events": ("planform.cli.objects.events", "Show what happened, newest last."),
    },
    "See how things are, and why": {
        "dashboard": ("planform.cli.control_plane.dashboard", "See the fleet in a browser, and act on it."),
        "trace": ("planform.cli.objects.trace", "Show what an object is made of, as a tree."),
        "explain-run": ("planform.cli.objects.explain_run", "Show what each step of a pipeline run did, and why."),
        "doctor": ("planform.cli.diagnosis.doctor", "Say what works, what differs and what is stuck."),
    },
    "Change a fleet": {
        "preview": ("planform.cli.previews.command", "Show what a change would do to every live XR."),
        "freeze": ("planform.cli.rollouts.freeze", "Let no Rollout move XRs for a while."),
        "window": ("planform.cli.rollouts.window", "See when Rollouts may move XRs."),
    },
    "Write compositions": {
        "init": ("planform.cli.dev.init", "Start a platform: XRD, Composition, function, tests."),
        "dev": ("planform.cli.dev.command", "Apply, serve and test a directory whenever a file in it is saved."),
        "render": ("planform.cli.compositions.render", "Show what a composition makes of an XR."),
        "test": ("planform.cli.compositions.test", "Run declarative tests of compositions."),
        "validate": ("planform.cli.compositions.validate", "Check objects against the schemas of CRDs and XRDs."),
        "xrd": ("planform.cli.compositions.generate", "Draft XRDs from examples."),
        "composition": ("planform.cli.compositions.generate", "Draft Compositions for XRDs."),
        "convert": ("planform.cli.compositions.convert", "Turn a Composition in Resources mode into a pipeline."),
    },
    "Write functions and packages": {
        "function": ("planform.cli.functions.commands", "Write composition functions, and see which there are."),
        "models": ("planform.cli.functions.models", "Write typed Python models from schemas."),
        "xpkg": ("planform.cli.packages.xpkg", "Build, look into, move and install packages."),
    },
    "Act on what runs": {
        "actionset": ("planform.cli.blueprints.actionset", "Run actions of Blueprints, and follow them."),
        "blueprint": ("planform.cli.blueprints.blueprint", "Check Blueprints."),
        "rollout": ("planform.cli.rollouts.rollout", "See how changes reach a fleet, and decide about them."),
        "phase-functions": ("planform.cli.blueprints.phase_functions", "List the functions of Blueprints."),
    },
    "On Kubernetes": {
        "install": ("planform.cli.cluster.install", "Install the controllers on a Kubernetes cluster."),
        "upgrade": ("planform.cli.cluster.install", "Upgrade an installation on a Kubernetes cluster."),
        "uninstall": ("planform.cli.cluster.install", "Take the controllers off a Kubernetes cluster."),
        "controllers": ("planform.cli.control_plane.controllers", "Run the controllers on a Kubernetes cluster."),
    },
    "About planform": {
        "features": ("planform.cli.about", "List the feature gates."),
        "version": ("planform.cli.about", "Show the versions of planform and of a control plane."),
        "completion": ("planform.cli.about", "Print the completion script for a shell."),
        "compat": ("planform.cli.compat", "Run command lines that were written for other tools."),
    },
}
_COMMANDS: Final = {name: found for commands in _SECTIONS.values() for name, found in commands.items()}


class _Commands(click.Group):
    """A group whose commands are imported when they are used; help needs only the table above."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        found = _COMMANDS.get(name)
        if found is None:
            return None
        attribute = f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")
        command = getattr(importlib.import_module(found[0]), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, (_, summary) in commands.items()])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table, too: click would import every command whose name begins so."""
        from click.shell_completion import CompletionItem

        named = {name: summary for name, (_, summary) in _COMMANDS.items() if name.startswith(incomplete)}
        offered = [CompletionItem(name, help=summary) for name, summary in named.items()]
        return offered + click.Command.shell_complete(self, context, incomplete)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-") and not context.resilient_parsing:
            raise UsageError(f'there is no command "{args[0]}"', hint=_suggestion(args[0]))
        return super().resolve_command(context, args)


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="planform", message="%(prog)s %(version)s")
@click.pass_context
def root(context: click.Context) -> None:
    """A control plane for platform teams: one process on one machine, or unchanged on Kubernetes.

    To begin: `planform demo` shows one at work, `planform up` starts yours.
    """
    if context.invoked_subcommand is None:
        click.echo(_welcome())


_NEXT: Final = (
    ("planform demo", "watch a control plane at work; it leaves nothing behind"),
    ("planform init my-platform", "start a platform: an API, what it is made of, a function, tests"),
    ("planform up", "start a control plane on this machine, kept in ~/.local/share/planform"),
)


def _welcome() -> str:
    """What somebody who does not know where to begin is told."""
    lines = [f"planform {__version__}: a control plane for platform teams. To begin:", ""]
    lines += [f"  {click.style(command.ljust(26), fg='cyan')} {text}" for command, text in _NEXT]
    return "\n".join([*lines, "", "planform --help lists all commands."])


_NAMES: Final = {
    "kubectl-planform": "kubectl planform",
    "kubectl-crossplane": "kubectl crossplane",
    "crossplane": "crossplane",
}
"""What users call this program, by the name of the file that they ran."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code. What it is called by says which tool it stands for."""
    gc.set_threshold(_CONTAINERS_BEFORE_COLLECTION)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its library tells of each fork otherwise, on our stderr
    called = os.path.basename(sys.argv[0])  # noqa: PTH119  # pathlib is for commands that need it
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if called.startswith("kubectl"):
            from planform.cli import kubectl_plugin

            kubectl_plugin.use_kubectls_control_plane()
            if called == kubectl_plugin.COMPLETER:
                kubectl_plugin.complete(root, words)
                sys.exit(0)
        code = root.main(respelled(words), prog_name=_NAMES.get(called, "planform"), standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except click.UsageError as error:
        explain(_in_our_words(error))
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except PlanformError as error:
        explain(error)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None:  # not about a file, so it is ours to mend
            raise
        explain(PlanformError(f"{os.fsdecode(error.filename)}: {system_words(error)}"))
        sys.exit(1)
    gc.freeze()  # else Python looks at everything once more before it ends
    sys.exit(code if isinstance(code, int) else 0)


def _in_our_words(error: click.UsageError) -> PlanformError:
    """What click found wrong, in the same shape as everything else."""
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "planform"
    return UsageError(message[:1].lower() + message[1:], hint=f"{command} --help")


def explain(error: PlanformError) -> None:
    click.echo(click.style("error: ", fg="red", bold=True) + error.message, err=True)
    if error.hint:
        click.echo(click.style("hint: ", fg="cyan") + error.hint, err=True)


def exit_code(error: PlanformError) -> int:
    if isinstance(error, UsageError):
        return 2
    if error.reason in ("TimedOut", "WaitTimedOut"):
        return TIMED_OUT
    return 1


def _suggestion(word: str) -> str:
    import difflib

    close = difflib.get_close_matches(word, _COMMANDS, n=1)
    return f'did you mean "{close[0]}"?' if close else "planform --help lists all commands"
