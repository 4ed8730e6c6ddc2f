"""What the journal answers over HTTP, below `/planform/v1/runs`:

    GET /planform/v1/runs/UID            the runs of an object, the newest first (?limit=N)
    GET /planform/v1/runs/UID/latest     its latest run, with everything it holds
    GET /planform/v1/runs/UID/steps      of its latest run, which revision of which function ran each step
    GET /planform/v1/runs/UID/ID         one of its runs

These are no resources, so that only those may read them whom RBAC lets read such paths: runs show what functions were
sent, which is more than the object's users see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from planform.errors import ApiError, BadRequest, NotFound
from planform.journal.journal import Journal
from planform.journal.records import Run, StepRun, served

PREFIX: Final = ("planform", "v1", "runs")
PATH: Final = "/" + "/".join(PREFIX)
MAX: Final = 1000


async def answer(journal: Journal, path: str, query: Mapping[str, Sequence[str]]) -> tuple[int, bytes]:
    """The status and body of a GET; a refusal is a Status object."""
    try:
        return 200, await _answer(journal, path, query)
    except ApiError as error:
        return error.code, orjson.dumps(error.to_status())


async def _answer(journal: Journal, path: str, query: Mapping[str, Sequence[str]]) -> bytes:
    parts = tuple(part for part in path.split("/") if part)
    if parts[: len(PREFIX)] != PREFIX:
        raise NotFound("the server could not find the requested resource")
    match parts[len(PREFIX) :]:
        case (uid,):
            return served({"items": await journal.runs(uid, _limit(query))})
        case (uid, "latest"):
            return served(await _latest(journal, uid))
        case (uid, "steps"):
            return served({"items": [step_of(step) for step in (await _latest(journal, uid)).steps]})
        case (uid, number) if number.isascii() and number.isdecimal() and len(number) < 19:
            return served(await _run(journal, uid, int(number)))
        case _:
            raise NotFound(f"ask for {PATH}/UID, {PATH}/UID/latest, {PATH}/UID/steps or {PATH}/UID/ID")


async def _latest(journal: Journal, uid: str) -> Run:
    newest = await journal.runs(uid, 1)
    if not newest:
        raise NotFound(f'the journal holds no run of the object with uid "{uid}"')
    return await _run(journal, uid, newest[0].id)


async def _run(journal: Journal, uid: str, number: int) -> Run:
    run = await journal.run(number)
    if run is None or run.uid != uid:
        raise NotFound(f'the journal holds no run {number} of the object with uid "{uid}"')
    return run


def step_of(step: StepRun) -> dict[str, str]:
    """Which revision ran a step, and what chose it."""
    return {"step": step.step, "function": step.function, "revision": step.revision, "rule": step.rule}


def _limit(query: Mapping[str, Sequence[str]]) -> int:
    text = next(iter(query.get("limit", ())), "10")
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= MAX):
        raise BadRequest(f'limit must be a number from 1 to {MAX}, not "{text}"')
    return int(text)
