"""Templates of a Blueprint over the parameters of an action: Go's text/template with sprig; missing keys are errors.

Texts are rendered; lists element by element; maps with their keys; everything else, null too, passes as it is. What a
text renders to is a text. Templates cannot see the machine that renders them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from planform.blueprints.errors import PhaseFailed
from planform.gotemplate import Limits, Options, Template, TemplateError, TemplateSyntaxError

LIMITS: Final = Limits(steps=100_000, output=4 << 20, items=100_000, depth=50)
_NO_ENTRY: Final = re.compile(r'map has no entry for key ("(?:[^"\\]|\\.)*")')


class RenderFailed(PhaseFailed):
    """A template could not be rendered."""

    reason = "RenderFailed"


def options(clock: Callable[[], float], missing_key: str = "error") -> Options:
    """How templates of Blueprints are read. What they cannot call they cannot name, so that it is told early."""
    return Options(missing_key=missing_key, helm=False, limits=LIMITS, clock=clock, refused_may_be_named=False)


class Templates:
    """Renders values. `clock` is asked by templates that want the time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._options = options(clock)

    def render(self, value: Any, data: Mapping[str, Any], *, where: str = "", missing_key: str = "error") -> Any:
        """The value with all templates in it rendered. Raises RenderFailed, which says where the template stands."""
        chosen = self._options if missing_key == "error" else replace(self._options, missing_key=missing_key)
        return _rendered(value, data, where, chosen)


def _rendered(value: Any, data: Mapping[str, Any], where: str, chosen: Options) -> Any:
    if isinstance(value, str):
        return _text(value, data, where, chosen)
    if isinstance(value, list | tuple):
        return [_rendered(each, data, f"{where}[{index}]", chosen) for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        made: dict[str, Any] = {}
        for key, each in value.items():
            name = _text(str(key), data, f"{where}.{key}", chosen)
            if name in made:
                raise RenderFailed(f'{where}: two keys of the map render to "{name}"')
            made[name] = _rendered(each, data, f"{where}.{name}" if where else name, chosen)
        return made
    return value


def _text(text: str, data: Mapping[str, Any], where: str, chosen: Options) -> str:
    if chosen.left not in text:
        return text
    try:
        return Template(text, name=where or "template", options=chosen).render(data)
    except TemplateError as error:
        missing = _NO_ENTRY.search(str(error))
        problem = f"failed to render, key not found: {missing[1]}" if missing else f"failed to render: {error}"
        raise RenderFailed(f"{where}: {problem}" if where else problem) from error


def template_errors(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Where a value holds a template that does not parse, and why not."""
    if isinstance(value, str):
        if "{{" in value:
            try:
                Template(value, name=where, options=options(_no_time))
            except TemplateSyntaxError as error:
                yield where, str(error)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from template_errors(each, f"{where}[{index}]")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from template_errors(str(key), f"{where}.{key}")
            yield from template_errors(each, f"{where}.{key}")


def _no_time() -> float:
    return 0.0
