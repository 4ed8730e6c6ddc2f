"""What of a Composition its tests reached: each step, and each patch of patch-and-transform whose source was there.

A step is reached by a case in which its function answered. A patch is reached by a case in which the field it reads
exists; one that reads the environment, by a case that reached its step.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.apimachinery.fieldpath import FieldPathError, parse_path
from planform.cli.dev.excerpts import line_of
from planform.pipeline.render import Rendered


@dataclass(frozen=True)
class Reached:
    """One case: the Composition that was run, where it is written, and what came of it."""

    file: Path
    composition: Object
    rendered: Rendered


@dataclass(frozen=True)
class Part:
    """A step or a patch, and how many cases reached it."""

    file: Path
    line: int
    name: str
    hits: int


def coverage_of(cases: Iterable[Reached]) -> list[Part]:
    """The parts of all Compositions in the order in which they are written."""
    by_file: dict[Path, list[Reached]] = {}
    for case in cases:
        by_file.setdefault(case.file, []).append(case)
    return [part for file, mine in sorted(by_file.items()) for part in _parts(file, mine)]


def _parts(file: Path, cases: Sequence[Reached]) -> Iterator[Part]:
    pipeline = cases[0].composition["spec"].get("pipeline") or ()
    for number, step in enumerate(pipeline):
        path, name = f"spec.pipeline[{number}]", str(step.get("step", number))
        went = [case for case in cases if _answered(case.rendered, name)]
        yield Part(file, line_of(file, 1, path), f'step "{name}"', len(went))
        given = step.get("input") or {}
        for index, resource in enumerate(given.get("resources") or ()):
            for place, patch in enumerate(resource.get("patches") or ()):
                where = f"{path}.input.resources[{index}].patches[{place}]"
                hits = sum(_applies(patch, str(resource.get("name")), case.rendered) for case in went)
                yield Part(file, line_of(file, 1, where), f'patch {_source(patch)} of "{resource.get("name")}"', hits)


def _answered(rendered: Rendered, step: str) -> bool:
    return any(trace.step == step and trace.calls and trace.error is None for trace in rendered.outcome.steps)


def _source(patch: Mapping[str, Any]) -> str:
    if patch.get("patchSetName"):
        return f"set {patch['patchSetName']}"
    fields = [str(each.get("fromFieldPath")) for each in (patch.get("combine") or {}).get("variables") or ()]
    return ", ".join(fields) or str(patch.get("fromFieldPath", ""))


def _applies(patch: Mapping[str, Any], resource: str, rendered: Rendered) -> bool:
    kind = str(patch.get("type") or "FromCompositeFieldPath")
    if kind in ("FromCompositeFieldPath", "CombineFromComposite"):
        return _has(rendered.given, patch)
    if kind in ("ToCompositeFieldPath", "CombineToComposite"):
        return any(
            _has(obj, patch)
            for obj in rendered.composed
            if annotations_of(obj).get(RESOURCE_NAME_ANNOTATION) == resource
        )
    return True


def _has(obj: Object, patch: Mapping[str, Any]) -> bool:
    variables = (patch.get("combine") or {}).get("variables") or (patch,)
    for each in variables:
        try:
            if parse_path(str(each.get("fromFieldPath", ""))).get(obj) is None:
                return False
        except FieldPathError:
            return False
    return True


# -- as text, HTML and Cobertura's XML


def as_text(parts: Sequence[Part]) -> Iterator[str]:
    """What no test reached, then how much was."""
    for part in parts:
        if not part.hits:
            yield f"  {part.file}:{part.line}: no test reaches {part.name}"
    yield f"coverage: {sum(bool(part.hits) for part in parts)} of {len(parts)} steps and patches ({_rate(parts):.0%})"


def as_html(parts: Sequence[Part]) -> str:
    """Each Composition with its lines: those of reached parts green, the others red."""
    body = [f"<h1>Coverage: {_rate(parts):.0%}</h1>"]
    for file in dict.fromkeys(part.file for part in parts):
        hits = {part.line: part for part in parts if part.file == file}
        body.append(f"<h2>{html.escape(str(file))}</h2><pre>")
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1):
            part = hits.get(number)
            colour = "" if part is None else "reached" if part.hits else "missed"
            title = f"{part.name}: {part.hits} cases" if part is not None else ""
            text = f"{number:4} {html.escape(line)}"
            body.append(f'<span class="{colour}" title="{html.escape(title)}">{text}</span>' if part else text)
        body.append("</pre>")
    style = "pre{line-height:1.4}.reached{background:#cfc}.missed{background:#fcc}body{font-family:sans-serif}"
    inner = "\n".join(body)
    return f'<!doctype html><meta charset="utf-8"><title>Coverage</title><style>{style}</style>\n{inner}\n'


def as_cobertura(parts: Sequence[Part]) -> bytes:
    """What CI systems read; a line is a step or a patch."""
    root = ElementTree.Element("coverage", {"line-rate": f"{_rate(parts):.4f}", "branch-rate": "0", "version": "1"})
    package = ElementTree.SubElement(
        ElementTree.SubElement(root, "packages"),
        "package",
        {"name": "compositions", "line-rate": f"{_rate(parts):.4f}"},
    )
    classes = ElementTree.SubElement(package, "classes")
    for file in dict.fromkeys(part.file for part in parts):
        mine = [part for part in parts if part.file == file]
        described = {"name": file.name, "filename": str(file), "line-rate": f"{_rate(mine):.4f}"}
        lines = ElementTree.SubElement(ElementTree.SubElement(classes, "class", described), "lines")
        for part in mine:
            ElementTree.SubElement(lines, "line", {"number": str(part.line), "hits": str(part.hits)})
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _rate(parts: Sequence[Part]) -> float:
    return sum(bool(part.hits) for part in parts) / len(parts) if parts else 1.0
