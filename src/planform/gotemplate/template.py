"""The door: templates that are parsed once, cached by what they are made of, and rendered many times."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from types import TracebackType
from typing import Any, Final

from planform.gotemplate import nodes
from planform.gotemplate.builtins import builtins
from planform.gotemplate.compiler import Unit, compile_unit
from planform.gotemplate.errors import (
    CallFailed,
    Fault,
    LimitReached,
    TemplateError,
    TemplateExecutionError,
    TemplateLimitExceeded,
    TemplateSyntaxError,
)
from planform.gotemplate.expressions import Site
from planform.gotemplate.functions import Function
from planform.gotemplate.helm import helm
from planform.gotemplate.parser import parse
from planform.gotemplate.quoting import quote
from planform.gotemplate.runtime import MISSING_KEY, Body, Limits, State
from planform.gotemplate.sprig import REFUSED, sprig
from planform.gotemplate.values import MISSING, Value, byte_length, from_bytes, to_bytes

MAX_TEXT: Final = 4 << 20  # characters of a template
CACHE_SIZE: Final = 512


@dataclass(frozen=True, slots=True)
class Options:
    """How templates are read and what rendering may do.

    `functions` come on top of Go's own and, unless switched off, of sprig's and Helm's; of one name the later wins.
    `missing_key` is Go's option of that name: `default`, `zero` or `error`. Functions that ask for the time or for
    randomness ask `clock` (seconds since 1970) and `rng`; without an rng they draw from the operating system.
    """

    left: str = "{{"
    right: str = "}}"
    missing_key: str = "default"
    functions: Mapping[str, Function | Callable[..., Any]] = field(default_factory=dict)
    sprig: bool = True
    helm: bool = True
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time
    rng: random.Random | None = None
    zone: str = "UTC"
    refused_may_be_named: bool = True
    """Whether a template may name what sprig has and templates do not get, as long as it does not call it."""


class TemplateSet:
    """Templates that can invoke each other by name."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        if self.options.missing_key not in MISSING_KEY:
            raise TemplateSyntaxError(f"unrecognized option: missingkey={self.options.missing_key}")
        self._functions = _functions(self.options)
        self._bodies: dict[str, Body] = {}

    def parse(self, name: str, text: str) -> None:
        """Add the template `name` and those that its text defines; later definitions replace earlier ones."""
        unit = _compiled(name, text, self.options, self._functions)
        for defined, body in unit.bodies.items():
            if defined in self._bodies and defined in unit.blank:
                continue  # white space does not replace a template that says something
            self._bodies[defined] = body

    def names(self) -> list[str]:
        return sorted(self._bodies)

    def render(self, name: str, data: Value = None, *, rng: random.Random | None = None) -> str:
        """The text of a template over `data`, with a generator of its own if need be. Raises TemplateExecutionError."""
        if name not in self._bodies:
            raise TemplateExecutionError(f"template: no template {quote(name)} associated with this set", name=name)
        options = self.options
        state = State(
            self._bodies,
            self,
            options.limits,
            clock=options.clock,
            rng=rng or options.rng or random.SystemRandom(),
            zone=options.zone,
        )
        return _run(state, self._bodies[name], data)

    def include(self, state: State, name: str, data: Value) -> str:
        """The `include` function: a template as a string, within a render."""
        body = state.bodies.get(name)
        if body is None:
            raise CallFailed(f"template: no template {quote(name)} associated with template {quote('gotpl')}")
        return _nested(state, body, data)

    def tpl(self, state: State, text: str, data: Value) -> str:
        """The `tpl` function: a string as a template; what it defines is known to it alone."""
        try:
            unit = _compiled("gotpl", text, self.options, self._functions)
        except TemplateSyntaxError as error:
            raise CallFailed(f"cannot parse template {quote(text)}: {error}") from None
        outer, state.bodies = state.bodies, {**state.bodies, **unit.bodies}
        try:
            return _nested(state, unit.bodies["gotpl"], data)
        finally:
            state.bodies = outer


class Template:
    """One text, ready to render.

    >>> Template("Hello, {{ .name | upper }}!").render({"name": "World"})
    'Hello, WORLD!'
    """

    def __init__(self, text: str, *, name: str = "template", options: Options | None = None, **changes: Any) -> None:
        """`changes` are fields of Options, for short: `Template(text, missing_key="error")`."""
        chosen = options or Options()
        self.name = name
        self.set = TemplateSet(replace(chosen, **changes) if changes else chosen)
        self.set.parse(name, text)

    def render(self, data: Value = None) -> str:
        return self.set.render(self.name, data)


def _functions(options: Options) -> dict[str, Function]:
    functions: dict[str, Function] = dict(builtins)
    if options.sprig:
        if options.refused_may_be_named:
            functions.update({name: _refusing(name, why) for name, why in REFUSED.items()})
        functions.update(sprig)
    if options.helm:
        functions.update(helm)
    for name, given in options.functions.items():
        functions[name] = given if isinstance(given, Function) else Function(given)
    return functions


@lru_cache(maxsize=64)
def _refusing(name: str, why: str) -> Function:
    """A function that templates may name and not call: what is never reached need not be forbidden."""

    def refuse(*arguments: Value) -> Value:
        raise CallFailed(f"it is refused: {why}")

    refuse.__name__ = name
    return Function(refuse, "func(...interface {}) (interface {}, error)")


# --- compiled texts, by digest ---------------------------------------------------------------------------------------

_cache: OrderedDict[tuple[object, ...], Unit] = OrderedDict()
_cache_lock = threading.Lock()


def _compiled(name: str, text: str, options: Options, functions: Mapping[str, Function]) -> Unit:
    if len(text) > MAX_TEXT:
        raise TemplateSyntaxError(f"template: {name}: text is longer than {MAX_TEXT} characters", name=name)
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
    own = frozenset(options.functions.items())
    library = (options.sprig, options.helm, options.refused_may_be_named)
    key = (digest, name, options.left, options.right, options.missing_key, library, own)
    with _cache_lock:
        unit = _cache.get(key)
        if unit is not None:
            _cache.move_to_end(key)
            return unit
    unit = _compile(name, text, options, functions)
    with _cache_lock:
        _cache[key] = unit
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return unit


def _compile(name: str, text: str, options: Options, functions: Mapping[str, Function]) -> Unit:
    trees = parse(name, text, functions, options.left, options.right)
    unit = compile_unit(name, text, trees, functions, options.missing_key)
    unit.blank = frozenset(tree.name for tree in trees.values() if nodes.is_blank(tree.root))
    return unit


# --- rendering, and where it went wrong ------------------------------------------------------------------------------


def _run(state: State, body: Body, data: Value) -> str:
    parts: list[str] = []
    try:
        body(state, parts, MISSING if data is None else data)
        return _settled(state.finish(parts))
    except (Fault, CallFailed, LimitReached, RecursionError, UnboundLocalError) as error:
        raise _located(error) from error


def _nested(state: State, body: Body, data: Value) -> str:
    """Render within a render: what goes wrong is told with its own location, as the failure of a function."""
    parts: list[str] = []
    try:
        body(state, parts, MISSING if data is None else data)
    except (Fault, CallFailed) as error:
        raise CallFailed(str(_located(error))) from error
    text = state.finish(parts)
    state.reserve_text(len(text))
    return text


def _settled(text: str) -> str:
    """Bytes that were cut apart and met again are characters again."""
    if text.isascii():
        return text
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return from_bytes(to_bytes(text))


def _located(error: Exception) -> TemplateError:
    """The error that users see, with the place in the template at which it arose."""
    message = str(error)
    kind: type[TemplateExecutionError] = TemplateExecutionError
    match error:
        case LimitReached():
            kind = TemplateLimitExceeded
        case RecursionError():
            kind, message = TemplateLimitExceeded, "templates or values are nested too deeply"
        case UnboundLocalError():
            message = "undefined variable"
    found = _site(error.__traceback__)
    if found is None:
        return kind(f"template: {message}")
    unit, site = found
    if isinstance(error, CallFailed) and site.function:
        message = f"error calling {site.function}: {message}"
    before = unit.text[: site.node.pos]
    line = 1 + before.count("\n")
    column = byte_length(before[before.rfind("\n") + 1 :])
    where = f"template: {unit.name}:{line}:{column}: executing {quote(site.template)} at <{site.node}>"
    return kind(f"{where}: {message}", name=unit.name, line=line, column=column)


def _site(traceback: TracebackType | None) -> tuple[Unit, Site] | None:
    """The innermost line of generated source in a traceback."""
    found: tuple[Unit, Site] | None = None
    while traceback is not None:
        unit = traceback.tb_frame.f_globals.get("__unit__")
        if unit is not None and traceback.tb_lineno in unit.sites:
            found = unit, unit.sites[traceback.tb_lineno]
        traceback = traceback.tb_next
    return found
