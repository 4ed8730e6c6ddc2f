"""`planform test`: run declarative tests of compositions, as `go test` would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import click
import orjson

from planform.cli.composition_tests import CaseResult, find_suites, run_suite
from planform.cli.output import output_option, say
from planform.errors import PlanformError, UsageError

FAILED = 1


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--run", "select", default="", metavar="TEXT", help="Only cases whose name holds this.")
@click.option("--update", is_flag=True, help="Rewrite golden files that differ.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write a JUnit report.")
@click.option("-v", "--verbose", is_flag=True, help="Show passing cases too.")
@output_option("text", "json", default="text")
def test(paths: tuple[Path, ...], select: str, update: bool, junit: Path | None, verbose: bool, output: str) -> None:
    """Run declarative tests of compositions: files named *_test.yaml below PATHS, or the files themselves.

    Exits with 1 if a case failed or could not be run.
    """
    suites = find_suites(paths or (Path(),))
    if not suites:
        raise UsageError(
            "no tests found", hint="tests are files named *_test.yaml; see docs/how-to/test-a-composition.md"
        )
    results: list[CaseResult] = []
    for suite in suites:
        mine: list[CaseResult] = []
        try:
            mine += run_suite(suite, select=select, update=update)
        except PlanformError as error:
            mine.append(CaseResult(suite, "(the file)", problems=[error.message], broken=True))
        results += mine
        if output == "text" and mine:
            _print_suite(suite, mine, verbose=verbose)
    failed = sum(not result.passed for result in results)
    if output == "json":
        click.echo(orjson.dumps([_data(result) for result in results], option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(f"{len(results) - failed} passed, {failed} failed")
    if junit is not None:
        junit.write_bytes(_junit(results))
    if failed:
        raise click.exceptions.Exit(FAILED)
    if not results:
        say("no case matches --run")


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
