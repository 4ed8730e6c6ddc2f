"""`planform test`: run declarative tests of compositions, as `go test` would."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import orjson

from planform.cli.compositions.cases import CaseResult, find_suites, run_suite
from planform.cli.compositions.coverage import as_cobertura, as_html, as_text, coverage_of
from planform.cli.output import output_option, say
from planform.errors import PlanformError, UsageError

FAILED = 1


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--run", "select", default="", metavar="TEXT", help="Only cases whose name holds this.")
@click.option("--update", is_flag=True, help="Rewrite golden files that differ.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write a JUnit report.")
@click.option("--coverage", is_flag=True, help="Say which steps and patches no case reached.")
@click.option("--coverage-html", type=click.Path(dir_okay=False, path_type=Path), help="Write that as HTML.")
@click.option("--coverage-xml", type=click.Path(dir_okay=False, path_type=Path), help="Write that as Cobertura does.")
@click.option(
    "--fail-under", type=click.IntRange(0, 100), default=0, metavar="PERCENT", help="Fail if less than this is reached."
)
@click.option("--mutate", is_flag=True, help="Change one field of each XR at a time, and say which nobody notices.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Run again whenever a file changes. Ctrl-C ends.")
@click.option("-v", "--verbose", is_flag=True, help="Show passing cases too.")
@output_option("text", "json", default="text")
def test(paths: tuple[Path, ...], watching: bool, **options: Any) -> None:
    """Run declarative tests of compositions: files named *_test.yaml below PATHS, or the files themselves.

    Exits with 1 if a case failed or could not be run.
    """
    if watching:
        _watch(paths or (Path(),), options)
    elif not _run(paths or (Path(),), **options):
        raise click.exceptions.Exit(FAILED)


def _watch(paths: Sequence[Path], options: dict[str, Any]) -> None:
    """Now, and after every change below the paths or beside the files."""
    from planform.cli.dev.directory import stamps
    from planform.cli.main import explain

    seen: dict[Path, tuple[int, int]] = {}
    while True:
        now = {file: stamp for path in paths for file, stamp in stamps(path if path.is_dir() else path.parent).items()}
        if now != seen:
            if sys.stdout.isatty():
                click.clear()
            try:
                _run(paths, **options)
            except PlanformError as error:
                explain(error)
            sys.stdout.flush()
            say("waiting for a change (Ctrl-C ends)")
            # Golden files that were just rewritten are no news.
            seen = {f: at for path in paths for f, at in stamps(path if path.is_dir() else path.parent).items()}
        time.sleep(0.1)


def _run(
    paths: Sequence[Path],
    *,
    select: str,
    update: bool,
    junit: Path | None,
    coverage: bool,
    coverage_html: Path | None,
    coverage_xml: Path | None,
    fail_under: int,
    mutate: bool,
    verbose: bool,
    output: str,
) -> bool:
    """Run and report; whether all is well."""
    suites = find_suites(paths)
    if not suites:
        raise UsageError(
            "no tests found", hint="tests are files named *_test.yaml; see docs/how-to/test-a-composition.md"
        )
    results: list[CaseResult] = []
    for suite in suites:
        mine: list[CaseResult] = []
        try:
            mine += run_suite(suite, select=select, update=update, mutate=mutate)
        except PlanformError as error:
            mine.append(CaseResult(suite, "(the file)", problems=[error.message], broken=True))
        results += mine
        if output == "text" and mine:
            _print_suite(suite, mine, verbose=verbose)
            for path in unnoticed(mine):
                click.echo(f"  [!] no case notices {path}: all would pass whatever it is")
    for note in dict.fromkeys(note for result in results for note in result.notes):
        say(f"note: {note}")
    failed = sum(not result.passed for result in results)
    if output == "json":
        click.echo(orjson.dumps([_data(result) for result in results], option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(f"{len(results) - failed} passed, {failed} failed")
    if junit is not None:
        junit.write_bytes(_junit(results))
    parts = coverage_of(result.reached for result in results if result.reached is not None)
    if coverage and output == "text":
        for line in as_text(parts):
            click.echo(line)
    if coverage_html is not None:
        coverage_html.write_text(as_html(parts))
    if coverage_xml is not None:
        coverage_xml.write_bytes(as_cobertura(parts))
    if not results:
        say("no case matches --run")
    reached = 100 * sum(bool(part.hits) for part in parts) / len(parts) if parts else 100.0
    if reached < fail_under:
        say(f"{reached:.0f} % of steps and patches are reached, and {fail_under} % are asked for")
        return False
    return not failed


def unnoticed(results: Sequence[CaseResult]) -> list[str]:
    """The fields that some case was run with another value of, and that no case noticed."""
    tried = dict.fromkeys(path for result in results for path in result.mutated)
    noticed = {path for result in results for path in result.mutated if path not in result.unnoticed}
    return [path for path in tried if path not in noticed]


def _print_suite(suite: Path, results: Sequence[CaseResult], *, verbose: bool) -> None:
    seconds = sum(result.seconds for result in results)
    state = "ok  " if all(result.passed for result in results) else "FAIL"
    click.echo(f"{state} {suite}  {seconds:.3f}s")
    for result in results:
        if result.passed and not verbose and not result.updated:
            continue
        mark = "[✓]" if result.passed else "[!]" if result.broken else "[x]"
        click.echo(f"  {mark} {result.name}" + (" (golden file rewritten)" if result.updated else ""))
        for problem in result.problems:
            click.echo(f"      {problem}")


def _data(result: CaseResult) -> dict[str, object]:
    state = "passed" if result.passed else "error" if result.broken else "failed"
    return {
        "file": str(result.file),
        "name": result.name,
        "result": state,
        "seconds": round(result.seconds, 6),
        "problems": result.problems,
        **({"unnoticed": result.unnoticed} if result.mutated else {}),
    }


def _junit(results: Sequence[CaseResult]) -> bytes:
    root = ElementTree.Element("testsuites")
    for file in dict.fromkeys(result.file for result in results):
        mine = [result for result in results if result.file == file]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=str(file),
            tests=str(len(mine)),
            failures=str(sum(not one.passed and not one.broken for one in mine)),
            errors=str(sum(one.broken for one in mine)),
            time=f"{sum(one.seconds for one in mine):.3f}",
        )
        for one in mine:
            case = ElementTree.SubElement(suite, "testcase", name=one.name, time=f"{one.seconds:.3f}")
            if not one.passed:
                kind = "error" if one.broken else "failure"
                ElementTree.SubElement(case, kind, message=one.problems[0]).text = "\n".join(one.problems)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
