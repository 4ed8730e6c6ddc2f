"""Declarative tests of compositions: a YAML file of cases, each an input and what must come out of it.

apiVersion: test.planform.dev/v1alpha1
kind: CompositionTest
common: {composition: composition.yaml, functions: functions.yaml}   # for every case
cases:
- name: a small app has one bucket
  xr: xr.yaml                       # a path beside this file, or the object itself
  xrd: xrd.yaml                     # its defaults are applied, and the XR must fit it
  observed: observed.yaml           # likewise: required, credentials, context
  untilStable: true                 # simulate readiness first
  expect:
    resources: [...]                # partial objects, found by resource name, kind or name
    absent: [database]              # resource names that must not be there
    count: 1
    xr: {status: {...}}             # a partial match of the XR
    fails: "text"                   # the pipeline must fail and say this
    invalid: "text"                 # the XRD must refuse the XR and say this
    golden: expected.yaml           # the whole output; --update rewrites it
  assertions:                       # CEL over xr, composed (by resource name), results and context
  - composed.bucket.spec.region == xr.spec.region
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.apimachinery import yaml_loader
from planform.cli.compositions.coverage import Reached
from planform.cli.compositions.mutation import mutants
from planform.cli.compositions.render import with_defaults
from planform.cli.compositions.render_inputs import FileCredentials, FileReader, read_documents
from planform.cli.functions.local import functions_from, running, used_by
from planform.cli.functions.local_resolver import FIELD, local_resolver, unlabelled_notes
from planform.cli.objects.manifests import TEST_GROUP
from planform.clock import SystemClock
from planform.errors import PlanformError, UsageError
from planform.pipeline.matching import differences
from planform.pipeline.render import RenderContext, Rendered, render, render_until_stable

KIND: Final = "CompositionTest"
API_VERSION: Final = f"{TEST_GROUP}/v1alpha1"
_CASE_FIELDS: Final = frozenset(
    {
        "name",
        "xr",
        "xrd",
        "composition",
        "functions",
        "function",
        "observed",
        "required",
        "credentials",
        "context",
        "untilStable",
        "expect",
        "assertions",
    }
)
_EXPECT_FIELDS: Final = frozenset({"resources", "absent", "count", "xr", "fails", "invalid", "golden"})


@dataclass
class CaseResult:
    """How one case went; `problems` is empty if it passed. `broken` means it could not be run at all."""

    file: Path
    name: str
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    broken: bool = False
    updated: bool = False
    notes: list[str] = field(default_factory=list)
    """What was taken for something else; said once, however many cases it is true of."""
    reached: Reached | None = None
    """What was run, unless it could not be."""
    unnoticed: list[str] = field(default_factory=list)
    """Fields of the XR's spec that could be anything: the case would still pass."""
    mutated: list[str] = field(default_factory=list)
    """Those that were tried."""

    @property
    def passed(self) -> bool:
        return not self.problems


def find_suites(paths: Sequence[Path]) -> list[Path]:
    """Files that hold tests: those named, and those called *_test.yaml below directories."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted([*path.rglob("*_test.yaml"), *path.rglob("*_test.yml")])
        elif path.exists():
            found.append(path)
        else:
            raise UsageError(f"{path} does not exist")
    return found


def run_suite(file: Path, *, select: str = "", update: bool = False, mutate: bool = False) -> Iterator[CaseResult]:
    """Run the cases of one file, in order; raises UsageError if it is not a test file."""
    documents = yaml_loader.load_all(file.read_bytes())
    for document in documents:
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise UsageError(f"{file} is not a {KIND}", hint=f"it must say apiVersion: {API_VERSION}, kind: {KIND}")
        common = document.get("common") or {}
        for number, case in enumerate(document.get("cases") or [], start=1):
            if not isinstance(case, dict) or not case.get("name"):
                raise UsageError(f"{file}: case {number} has no name")
            if select and select not in case["name"]:
                continue
            whole = {**common, **case}
            result = _run_case(file, whole, update=update)
            if mutate and result.passed:
                _mutate(file, whole, result)
            yield result


def _mutate(file: Path, case: Mapping[str, Any], result: CaseResult) -> None:
    """Run the case again with each field of the XR's spec changed, and note those that it does not notice."""
    for path, xr in mutants(_one(file.parent, case, "xr")):
        result.mutated.append(path)
        if _run_case(file, {**case, "xr": xr}, update=False).passed:
            result.unnoticed.append(path)


def _run_case(file: Path, case: Mapping[str, Any], *, update: bool) -> CaseResult:
    result = CaseResult(file, str(case["name"]))
    started = time.perf_counter()
    try:
        _check_fields(case, _CASE_FIELDS, "the case")
        _check_fields(case.get("expect") or {}, _EXPECT_FIELDS, "expect")
        xr, refusals = _admitted(file.parent, case)
        result.problems += _compare_refusals(refusals, (case.get("expect") or {}).get("invalid"))
        if not refusals and not result.problems:
            rendered = asyncio.run(_render(file.parent, {**case, "xr": xr}, result))
            result.problems += _compare_expected(file.parent, case, rendered, result, update=update)
    except PlanformError as error:
        result.problems.append(error.message)
        result.problems += [f"  hint: {error.hint}"] if error.hint else []
        result.broken = True
    result.seconds = time.perf_counter() - started
    return result


def _check_fields(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            raise UsageError(f'{where} has a field "{name}" that means nothing' + (f'; "{close[0]}"?' if close else ""))


def _admitted(base: Path, case: Mapping[str, Any]) -> tuple[Object, list[str]]:
    """The XR as an API server with the case's XRD would store it, and why it would not."""
    xr, xrds = _one(base, case, "xr"), _many(base, case, "xrd")
    if not xrds:
        return xr, []
    from planform.cli.compositions.validate import Schemas

    verdict = Schemas(xrds).check(xr)
    if verdict.status == "missingSchema":
        raise UsageError(f"xrd: no XRD of {xr['kind']} ({xr['apiVersion']}) is given")
    return with_defaults(xr, xrds)[0], [error["message"] for error in verdict.errors]


def _compare_refusals(refusals: Sequence[str], wanted: Any) -> Iterator[str]:
    if wanted is None:
        yield from (f"the XR is invalid: {refusal}" for refusal in refusals)
    elif not refusals:
        yield f'the XR was to be refused with "{wanted}", and is valid'
    elif not any(str(wanted) in refusal for refusal in refusals):
        yield f'the XR was to be refused with "{wanted}", and was with: {"; ".join(refusals)}'


async def _render(base: Path, case: Mapping[str, Any], result: CaseResult) -> Rendered:
    xr, composition = _one(base, case, "xr"), _one(base, case, "composition")
    overrides = [f"{name}={_resolved(base, where)}" for name, where in (case.get("function") or {}).items()]
    declared = functions_from(_many(base, case, "functions"), overrides)
    used = used_by([composition], declared)
    result.notes += unlabelled_notes([composition], used)
    credentials = _many(base, case, "credentials")
    async with running(used) as runner:
        around = RenderContext(
            resolver=local_resolver([*declared, *used], how=FIELD),
            runner=runner,
            reader=FileReader(_many(base, case, "required"), {}),
            clock=SystemClock(),
            credentials=FileCredentials(credentials) if credentials else None,
            context=dict(case.get("context") or {}),
        )
        observed = _many(base, case, "observed")
        if case.get("untilStable"):
            rendered = (await render_until_stable(xr, composition, observed, around))[-1]
        else:
            rendered = await render(xr, composition, observed, around)
    if isinstance(written := case.get("composition"), str) and (base / written).is_file():
        result.reached = Reached((base / written).resolve(), composition, rendered)
    return rendered


def _resolved(base: Path, where: str) -> str:
    path = base / where.partition(":")[0]
    return str(base / where) if path.exists() else where


def _one(base: Path, case: Mapping[str, Any], name: str) -> Object:
    found = _many(base, case, name)
    if len(found) != 1:
        raise UsageError(f"{name}: expected one object, found {len(found)}")
    return found[0]


def _many(base: Path, case: Mapping[str, Any], name: str) -> list[Object]:
    """A path, a list of paths, an object, or a list of objects."""
    value = case.get(name)
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    found: list[Object] = []
    for item in items:
        if isinstance(item, str):
            found += read_documents(base / item)
        elif isinstance(item, dict):
            found.append({"metadata": {}, **item})
        else:
            raise UsageError(f"{name} must be a path or an object")
    return found


# -- judging


def _compare_expected(
    base: Path, case: Mapping[str, Any], rendered: Rendered, result: CaseResult, *, update: bool
) -> Iterator[str]:
    expect = case.get("expect") or {}
    failure = rendered.outcome.failure
    wanted = expect.get("fails")
    if failure is not None and wanted is None:
        yield f"the pipeline failed: {failure}"
        yield from (f"  {line}" for line in rendered.outcome.traceback)
        if failure.hint:
            yield f"  hint: {failure.hint}"
        return
    if wanted is not None:
        if failure is None:
            yield f'the pipeline was to fail with "{wanted}", and did not'
        elif str(wanted) not in str(failure):
            yield f'the pipeline was to fail with "{wanted}", and failed with: {failure}'
    composed = {_key(obj): obj for obj in rendered.composed}
    for partial in expect.get("resources") or ():
        yield from _expected_resource(partial, composed)
    for name in expect.get("absent") or ():
        if name in composed:
            yield f'resource "{name}" is composed, and was to be absent'
    if "count" in expect and expect["count"] != len(composed):
        yield f"expected {expect['count']} resources, found {len(composed)}: {', '.join(sorted(composed)) or 'none'}"
    if "xr" in expect:
        yield from (f"xr: {line}" for line in differences(expect["xr"], rendered.xr))
    yield from _assertions(case.get("assertions") or (), rendered, composed)
    if "golden" in expect:
        yield from _golden(base / str(expect["golden"]), rendered, result, update=update)


def _expected_resource(partial: Any, composed: Mapping[str, Object]) -> Iterator[str]:
    if not isinstance(partial, dict):
        yield f"expect.resources must hold objects, not {partial!r}"
        return
    name = annotations_of(partial).get(RESOURCE_NAME_ANNOTATION)
    candidates = [obj for key, obj in composed.items() if name in (None, key)]
    same_kind = [obj for obj in candidates if obj.get("kind") == partial.get("kind", obj.get("kind"))]
    best: list[str] | None = None
    for obj in same_kind:
        found = list(differences(partial, obj))
        if not found:
            return
        if best is None or len(found) < len(best):
            best = [f"{obj['kind']}/{_key(obj)}: {line}" for line in found]
    if best is None:
        kinds = ", ".join(sorted(f"{obj['kind']}/{key}" for key, obj in composed.items())) or "none"
        yield f"no resource matches {partial.get('kind', '')} {name or ''}".rstrip() + f" (composed: {kinds})"
    else:
        yield from best


def _assertions(texts: Sequence[str], rendered: Rendered, composed: Mapping[str, Object]) -> Iterator[str]:
    from planform.apimachinery.cel import CelError, compile_expression

    bindings = {
        "xr": {**rendered.given, **rendered.xr, "spec": rendered.given.get("spec", {})},
        "composed": dict(composed),
        "results": list(rendered.results),
        "context": rendered.context,
    }
    for text in texts:
        try:
            value = compile_expression(str(text), dict.fromkeys(bindings, "dyn")).evaluate(bindings)
        except CelError as error:
            yield f"assertion cannot be evaluated: {error}"
            continue
        if value is not True:
            yield f"assertion is {value!r}: {text}"


def _golden(path: Path, rendered: Rendered, result: CaseResult, *, update: bool) -> Iterator[str]:
    actual = yaml_loader.dump_all([rendered.xr, *rendered.composed])
    before = path.read_text() if path.exists() else ""
    if actual == before:
        return
    if update:
        path.write_text(actual)
        result.updated = True
        return
    if not before:
        yield f"{path} does not exist; --update writes it"
        return
    yield from difflib.unified_diff(
        before.splitlines(), actual.splitlines(), f"{path.name} (golden)", f"{path.name} (rendered)", lineterm="", n=2
    )


def _key(obj: Object) -> str:
    return str(annotations_of(obj)[RESOURCE_NAME_ANNOTATION])
