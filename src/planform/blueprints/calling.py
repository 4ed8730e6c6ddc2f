"""Calls one phase function once: a fresh instance, in a thread where it blocks, ended when its time is up."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any, Final

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, PhaseFunction, Progress
from planform.blueprints.errors import PhaseFailed, PhaseTimedOut
from planform.client.waits import time_limit
from planform.clock import Clock
from planform.errors import PlanformError

POLL_SECONDS: Final = 5.0
"""How often a function is asked for its progress that does not tell it by itself."""
CANCEL_SECONDS: Final = 10.0
"""How long a thread that was told to stop is waited for."""


async def call(function: PhaseFunction, context: PhaseContext, args: Arguments, timeout: float | None) -> Any:
    """What the function gives. Raises a PlanformError for whatever it raises, PhaseTimedOut when its time is up."""
    made: Any = function.run() if inspect.isclass(function.run) else function.run
    run: Callable[..., Any] = made
    poller = _poller(run, context)
    deadline = None if timeout is None else context.clock.monotonic() + timeout
    try:
        if timeout is None:
            return await _called(run, context, args)
        async with time_limit(context.clock, timeout):
            return await _called(run, context, args)
    except TimeoutError as error:
        if deadline is None or context.clock.monotonic() < deadline:
            raise PhaseFailed(f"{function.title}: {_message_of(error)}") from error  # a limit of the function's own
        raise PhaseTimedOut(f"{function.title} took longer than {timeout:g} s") from error
    except PlanformError:
        raise
    except Exception as error:  # whatever a stranger's function raises ends its phase, and nothing else
        raise PhaseFailed(f"{function.title}: {_message_of(error)}") from error
    finally:
        context.stop.set()
        if poller is not None:
            poller.cancel()


async def _called(run: Callable[..., Any], context: PhaseContext, args: Arguments) -> Any:
    if not _blocks(run):
        return await run(context, args)
    result = await _in_thread(lambda: run(context, args), context)
    return await result if inspect.isawaitable(result) else result


def _blocks(run: Callable[..., Any]) -> bool:
    """Whether it is a plain function, which may keep its thread busy."""
    return not (inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(getattr(run, "__call__", None)))  # noqa: B004


async def _in_thread(work: Callable[[], Any], context: PhaseContext) -> Any:
    """Run in a thread of its own, which must not keep the process alive; cancelling tells it and waits a while."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def body() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = work()
        except StopIteration as stopped:
            error = RuntimeError(f"the function raised {stopped!r}")
        except BaseException as raised:  # also SystemExit: it ends the phase, not the process
            error = raised if isinstance(raised, Exception) else RuntimeError(f"the function raised {raised!r}")
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            pass  # the loop is gone, and with it whoever wanted to know

    threading.Thread(target=body, name=f"phase {context.phase}", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        context.stop.set()
        await asyncio.wait([done], timeout=CANCEL_SECONDS)
        if done.done() and not done.cancelled():
            done.exception()  # seen: nobody else will ask
        raise


def _poller(run: Callable[..., Any], context: PhaseContext) -> asyncio.Task[None] | None:
    """Ask an object that has a `progress` method how far it is, now and then."""
    ask = getattr(run, "progress", None)
    if inspect.isfunction(run) or not callable(ask):
        return None
    return asyncio.create_task(_poll(ask, context, context.clock), name=f"progress {context.phase}")


async def _poll(ask: Callable[[], Any], context: PhaseContext, clock: Clock) -> None:
    while True:
        await clock.sleep(POLL_SECONDS)
        try:
            progress = ask()
            if isinstance(progress, Progress):
                if context.on_progress is not None:
                    context.on_progress(progress)
            elif progress is not None:
                context.progress(float(progress))
        except Exception as error:  # progress is a comfort: what goes wrong with it ends only itself
            context.log(f"progress is not known any more: {_message_of(error)}")
            return


def _message_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
