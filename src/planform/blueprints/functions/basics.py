"""The functions that need nothing: say something, wait a while, fail."""

from __future__ import annotations

from typing import Any

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.durations import seconds_of


@phase_function("Echo", arguments=["message", "output"], resumable=True)
async def echo(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Tells a message, and gives `output`, a map, as the phase's output."""
    message = args.text("message", "")
    if message:
        context.log(message)
    return {**args.table("output", {}), **({"message": message} if message else {})}


@phase_function("Sleep", required=["duration"], resumable=True)
async def sleep(context: PhaseContext, args: Arguments) -> None:
    """Waits a while, such as `90s` or `5m`."""
    seconds = seconds_of(args, "duration")
    step = max(seconds / 100, 1.0)
    waited = 0.0
    while waited < seconds:
        context.progress(100 * waited / seconds)
        await context.clock.sleep(min(step, seconds - waited))
        waited += step


@phase_function("Fail", arguments=["message"])
async def fail(context: PhaseContext, args: Arguments) -> None:
    """Fails with a message: for branches of a template that must not be reached."""
    raise PhaseFailed(args.text("message", "the blueprint says so"))
