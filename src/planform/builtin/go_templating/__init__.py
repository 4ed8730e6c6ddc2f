"""go-templating: composes resources from Go templates. Reads `GoTemplate` of `gotemplating.fn.crossplane.io/v1beta1`.

A template is compiled in a thread, once, and then rendered here, with limits that keep it within milliseconds. One that
needs more, or is very long, is rendered by a worker process, with limits for large templates, to the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from planform.builtin.compiled import CACHED_INPUTS, Refused, normal, warn
from planform.builtin.durations import seconds as seconds_of
from planform.builtin.environment import environment_of
from planform.builtin.go_templating.certificates import certificates
from planform.builtin.go_templating.data import changes_maps, template_data
from planform.builtin.go_templating.effects import carry_out
from planform.builtin.go_templating.inputs import GoTemplate, read_input
from planform.builtin.go_templating.library import LOOKUPS, rendering
from planform.builtin.inputs import InputError
from planform.builtin.seeds import RandomKeys, Seed, digest_of, local_seed, may_draw, seed_of
from planform.builtin.workers import WorkerGone, Workers
from planform.functions.runner import MAX_ANSWER_SIZE
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Result, Severity, Target, respond
from planform.gotemplate import (
    FunctionError,
    Limits,
    Options,
    TemplateExecutionError,
    TemplateLimitExceeded,
    TemplateSet,
    TemplateSyntaxError,
)

QUICK: Final = Limits(steps=5_000, output=64 << 10, items=2_000)
"""What a render may use here: two or three milliseconds."""
FULL: Final = Limits(steps=2_000_000, output=4 << 20, items=1_000_000)
"""What a render may use in a worker; the output is what a function may answer with over the wire."""
WORKER_SECONDS: Final = 15.0
TIME_TTL: Final = 60.0
"""Seconds for which the answer of a template that asks for the time is valid, unless its input says otherwise."""
MAX_IN_PROCESS: Final = 16 << 10
"""Characters of a template that is compiled here."""
_SLICE: Final = 0.002
"""Seconds for which objects are read before others get their turn."""
_TTL_ANNOTATION: Final = "gotemplating.fn.crossplane.io/ttl"
_NAME: Final = "manifests"

_NO_SEED: Final = Seed("")

_Key = tuple[bytes, str, Limits]


@dataclass(frozen=True, slots=True)
class SeededRequest:
    """What a worker is asked: it has no keys, and gets what one of them gave."""

    request: FunctionRequest
    seed: Seed


class _Templates:
    """One compiled text under one set of limits."""

    def __init__(self, text: str, spec: GoTemplate, limits: Limits) -> None:
        """Raises Refused for a text that does not parse. Takes about 10 microseconds for each character."""
        self._clock_was_read = False
        self._copied = changes_maps(text)
        left, right = spec.delimiters
        self._set = TemplateSet(
            Options(
                left=left,
                right=right,
                missing_key=spec.missing_key,
                functions={**LOOKUPS, **certificates},
                limits=limits,
                clock=self._read_clock,
            )
        )
        try:
            self._set.parse(_NAME, text)
        except TemplateSyntaxError as error:
            raise Refused(f"invalid function input: cannot parse the provided templates: {error.message}") from None

    def _read_clock(self) -> float:
        self._clock_was_read = True
        return time.time()

    def render(self, request: FunctionRequest, response: FunctionResponse, seed: Seed) -> str:
        """The text; the response says whether the next is the same. Raises TemplateLimitExceeded, or Refused.

        Random functions draw the same for the same seed; only templates that ask for the time vary.
        """
        self._clock_was_read = False
        stream = seed.stream()
        data = template_data(request, copied=self._copied)
        try:
            with rendering(data):
                text = self._set.render(_NAME, data, rng=stream)
        except TemplateLimitExceeded:
            raise
        except TemplateExecutionError as error:
            raise Refused(f"cannot execute template: {error.message}") from None
        if stream.drawn and seed.refusal:
            raise Refused(f"cannot execute template: random values cannot be made: {seed.refusal}")
        if stream.drawn and seed.note:
            (warn if seed.warns else normal)(response, seed.note)
        response.deterministic = not self._clock_was_read
        if self._clock_was_read and response.ttl is None:
            response.ttl = TIME_TTL
        return text


class GoTemplating:
    """The function. `run` never holds the loop for long; `call` does everything at once and is for workers.

    Whether an answer stays valid, the answer itself says.
    """

    name = "go-templating"
    deterministic = False
    asked = SeededRequest

    def __init__(self, keys: RandomKeys | None = None) -> None:
        """`keys` are those of a control plane; without them random values follow from the XR and the template alone."""
        self._keys = keys
        self._workers = Workers(__name__)
        self._templates: OrderedDict[_Key, _Templates] = OrderedDict()

        # The text of the input is the key, and what is kept is made from it, so nobody else can change it.
        @lru_cache(maxsize=CACHED_INPUTS)
        def read(text: bytes) -> GoTemplate:
            return read_input(msgspec.json.decode(text))

        self._read = read

    async def run(
        self, request: FunctionRequest, /, *, timeout: float, max_answer_size: int = MAX_ANSWER_SIZE
    ) -> FunctionResponse:
        """Answer, giving way to others between objects. Errors of templates are fatal results."""
        response = respond(request)
        try:
            key, spec, template = self._source(request, response, QUICK)
            seed = await self._seed(template, request)
            text = await self._render(key, spec, seed, request, response)
            if text is None:
                asked = SeededRequest(request, seed)
                seconds = min(WORKER_SECONDS, timeout)
                return await self._workers.call(asked, seconds=seconds, maximum=max_answer_size)
            started = time.perf_counter()
            for _ in carry_out(text, request, response):
                if time.perf_counter() - started > _SLICE:
                    await asyncio.sleep(0)
                    started = time.perf_counter()
        except WorkerGone as error:
            return _refused(request, response, f"cannot execute template: {error}")
        except (InputError, Refused) as error:
            return _refused(request, response, str(error))
        return response

    def call(self, asked: FunctionRequest | SeededRequest, /) -> FunctionResponse:
        """Answer, however long it takes."""
        request, seed = (asked.request, asked.seed) if isinstance(asked, SeededRequest) else (asked, None)
        response = respond(request)
        try:
            key, spec, text = self._source(request, response, FULL)
            seed = seed or local_seed(digest_of(text), request.observed.composite.resource)
            templates = self._templates.get(key) or self._keep(key, _Templates(text, spec, FULL))
            for _ in carry_out(templates.render(request, response, seed), request, response):
                pass
        except TemplateLimitExceeded as error:
            return _refused(request, response, f"cannot execute template: {error.message}")
        except (InputError, Refused) as error:
            return _refused(request, response, str(error))
        return response

    async def _seed(self, text: str, request: FunctionRequest) -> Seed:
        xr = request.observed.composite.resource
        if not may_draw(text):
            return _NO_SEED
        if self._keys is None:
            return local_seed(digest_of(text), xr)
        return await seed_of(self._keys, digest_of(text), xr)

    async def _render(
        self, key: _Key, spec: GoTemplate, seed: Seed, request: FunctionRequest, response: FunctionResponse
    ) -> str | None:
        """What the template gives; None if that takes longer than it may take here."""
        text = key[1]
        if len(text) > MAX_IN_PROCESS:
            return None
        templates = self._templates.get(key)
        if templates is None:
            templates = self._keep(key, await asyncio.to_thread(_Templates, text, spec, QUICK))
        try:
            return templates.render(request, response, seed)
        except TemplateLimitExceeded:
            return None

    def _keep(self, key: _Key, templates: _Templates) -> _Templates:
        self._templates[key] = templates
        if len(self._templates) > CACHED_INPUTS:
            self._templates.popitem(last=False)
        return templates

    def _source(
        self, request: FunctionRequest, response: FunctionResponse, limits: Limits
    ) -> tuple[_Key, GoTemplate, str]:
        """The template's text, and what its compiled form is kept under."""
        entered = msgspec.json.encode(request.input)
        spec = self._read(entered)
        response.ttl = _ttl(spec, request.observed.composite.resource)
        text = _text(spec, request)
        return (entered, text, limits), spec, text

    def __repr__(self) -> str:
        return f"<built-in function {self.name}>"


def _refused(request: FunctionRequest, response: FunctionResponse, message: str) -> FunctionResponse:
    """A fatal answer, with the desired state and the context as they were received."""
    unchanged = respond(request)
    unchanged.results = [*response.results, Result(Severity.FATAL, message, target=Target.COMPOSITE)]
    return unchanged


def _text(spec: GoTemplate, request: FunctionRequest) -> str:
    if spec.environment is None or spec.source != "Environment":
        return spec.inline_text
    key = spec.environment.key
    found = environment_of(request.context).get(key)
    if not isinstance(found, str):
        problem = "is not in the environment" if found is None else "is not a string"
        raise Refused(f'invalid function input: cannot get the template: environment key "{key}" {problem}')
    return found


def _ttl(spec: GoTemplate, xr: Object) -> float | None:
    """The XR's annotation before the input; what is no duration does not count."""
    annotations = _below(_below(xr, "metadata"), "annotations")
    for text in (annotations.get(_TTL_ANNOTATION), spec.ttl):
        try:
            if isinstance(text, str) and (found := seconds_of(text)) is not None and found >= 0:
                return found
        except (FunctionError, ValueError):
            continue
    return None


def _below(value: Object, name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


function: Final = GoTemplating()
