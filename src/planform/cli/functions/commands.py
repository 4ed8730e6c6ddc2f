"""`planform function`: start a function, run it while you edit it, ask it something, and see which there are."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import orjson

from planform.apimachinery import yaml_loader
from planform.cli.functions.activation import activate, deactivate
from planform.cli.functions.diff import diff
from planform.cli.functions.install import install
from planform.cli.functions.listing import list_functions
from planform.cli.functions.local import LocalFunction, catalogue_of, functions_from, running
from planform.cli.functions.logs import logs
from planform.cli.functions.revisions import describe, revisions
from planform.cli.functions.scaffold import scaffold
from planform.cli.grouping import CommandGroup
from planform.cli.output import say
from planform.cli.packages.building import function_build
from planform.cli.packages.transfer import push
from planform.errors import UsageError
from planform.functions.resolution import Request, resolve
from planform.pipeline.matching import differences

FAILED = 1


@click.group(cls=CommandGroup)
def function() -> None:
    """Write composition functions in Python, and see which there are."""


for command in (list_functions, revisions, describe, logs, diff, activate, deactivate, function_build, install, push):
    function.add_command(command)


@function.command()
@click.argument("name", default="")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where.  [default: ./NAME, or here without one]",
)
@click.option("--template", default="", metavar="DIR|GIT", help="Copy this directory or repository instead.")
@click.option(
    "--language",
    type=click.Choice(["python", "go"]),
    default="python",
    show_default=True,
    help="What it is written in.",
)
def init(name: str, directory: Path | None, template: str, language: str) -> None:
    """Start a new function: code, tests that pass, an example to render, and a package definition.

    Without NAME it is named after the directory, which is this one unless --directory says another.
    """
    target = directory or Path(name)
    name = name or target.resolve().name
    if target.exists() and any(each.name != ".git" for each in target.iterdir()):
        raise UsageError(f"{target} is not empty", hint="choose another --directory")
    if template:
        _copy_template(template, target)
    else:
        for path, text in scaffold(name, language).items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    say(f"{target.resolve() if target == Path() else target} is ready:")
    if target != Path():
        say(f"  cd {target}")
    if language == "go" and not template:
        say("  go mod tidy && go test ./... && CGO_ENABLED=0 go build -o function .")
        say(f"  planform render example/xr.yaml example/composition.yaml --function {name}=./function")
        return
    say("  python -m pytest                                     # its tests")
    say(f"  planform render example/xr.yaml example/composition.yaml --function {name}=function.py")


def _copy_template(template: str, target: Path) -> None:
    if Path(template).is_dir():
        shutil.copytree(template, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        return
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch) / "template"
        command = ["git", "clone", "--depth", "1", "--", _repository(template), str(clone)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            message = (done.stderr.strip().splitlines() or ["git said nothing"])[-1]
            raise UsageError(f"cannot copy template {template}: {message}", hint="give a directory or a git repository")
        _copy_template(str(clone), target)


def _repository(template: str) -> str:
    """What git is asked for: designs and Go write a repository without the scheme, and Crossplane's have moved."""
    name = template.removeprefix("https://").removesuffix(".git").removesuffix("/")
    if name.startswith("github.com/crossplane/fn-template-"):
        return "https://" + name.replace("/fn-template-", "/function-template-")
    return f"https://{template}" if template.startswith("github.com/") else template


@function.command(context_settings={"ignore_unknown_options": True})
@click.argument("file")
@click.option("--address", default="127.0.0.1:9443", show_default=True, help="Where to serve.")
@click.option(
    "--tls-certs-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Serve with mutual TLS."
)
@click.option("--no-reload", is_flag=True, help="Do not restart when a file changes.")
@click.option("--debug", is_flag=True, help="Log more.")
def run(file: str, address: str, tls_certs_dir: Path | None, no_reload: bool, debug: bool) -> None:
    """Serve FILE[:NAME], and start it anew whenever a Python file beside it changes. Ctrl-C ends."""
    path = Path(file.partition(":")[0])
    if not path.exists():
        raise UsageError(f"there is no file {path}")
    security = ["--tls-certs-dir", str(tls_certs_dir)] if tls_certs_dir else ["--insecure"]
    command = [sys.executable, "-m", "planform_sdk", "serve", file, "--address", address, *security]
    command += ["--debug"] if debug else []
    process, seen = None, _stamps(path)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what it started ends with it
    say(f"serving {file} at {address}; Ctrl-C ends")
    try:
        while True:
            if process is None:
                process = subprocess.Popen(command)
            now = _stamps(path)
            if not no_reload and now != seen:
                seen = now
                say("a file changed: starting anew")
                _end(process)
                process = None
                continue
            if process.poll() is not None:
                if no_reload:
                    raise click.exceptions.Exit(process.returncode)
                say(f"it ended with code {process.returncode}; waiting for a change")
                while _stamps(path) == seen:
                    time.sleep(0.1)
                seen, process = _stamps(path), None
                continue
            time.sleep(0.1)
    finally:
        if process is not None:
            _end(process)


def _stamps(path: Path) -> dict[Path, float]:
    return {file: file.stat().st_mtime for file in path.absolute().parent.rglob("*.py") if file.is_file()}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@function.command()
@click.argument("reference")
@click.argument("request_file", metavar="REQUEST", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--expect", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Partial response that must match."
)
@click.option(
    "--repeat",
    default=1,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Ask so often; answers must not differ.",
)
@click.option("--timeout", default=60.0, show_default=True, metavar="SECONDS")
def test(reference: str, request_file: Path, expect: Path | None, repeat: int, timeout: float) -> None:
    """Send REQUEST (JSON or YAML, may be partial) to a function and print its response as JSON.

    REFERENCE is a Python file, an executable, an address, a built-in's name, or a package: a file, or its name in a
    registry. A package is run as the control plane runs it. Exits with 1 if the response is fatal, is not what was
    expected, or differs between repeats.
    """
    [called] = functions_from([], [f"function={reference}"])
    responses = asyncio.run(_ask(called, request_file, repeat, timeout))
    click.echo(orjson.dumps(responses[0], option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode())
    problems = []
    if expect is not None:
        problems += list(differences(_load(expect), responses[0]))
    for number, response in enumerate(responses[1:], start=2):
        if response != responses[0]:
            problems.append(f"answer {number} of {repeat} differs from the first: the function is not deterministic")
            break
    for problem in problems:
        say(click.style("error: ", fg="red", bold=True) + problem)
    fatal = any(result["severity"] == "SEVERITY_FATAL" for result in responses[0].get("results", ()))
    if problems or fatal:
        raise click.exceptions.Exit(FAILED)


async def _ask(called: LocalFunction, request_file: Path, repeat: int, timeout: float) -> list[dict[str, Any]]:
    from planform.functions.jsonform import request_from_json, response_to_json

    request = request_from_json(_load(request_file))
    revision = resolve(catalogue_of([called]), Request(called.name)).revision
    async with running([called]) as runner:
        return [response_to_json(await runner.run(revision, request, timeout=timeout)) for _ in range(repeat)]


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes()) if path.suffix == ".json" else yaml_loader.load(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
