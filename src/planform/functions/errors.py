"""What can go wrong between a pipeline step and its function; each has one name, and says what to do.

    FunctionError                 step, function and revision, then what happened
    ├── ResolutionError           no revision can be called: every candidate is listed with why not
    │   ├── FunctionNotFound  VersionNotFound  VersionRemoved  MissingCapability
    │   └── VersionInactive   VersionNotReady
    ├── FunctionUnavailable       nobody took the call; nothing was sent
    ├── FunctionTimedOut          no answer within the deadline
    ├── FunctionCrashed           the connection or the process ended before the answer
    ├── FunctionFailed            the function raised an error of its own
    ├── FunctionRefused           it answered that it will not do this
    ├── FunctionRequestTooLarge   FunctionAnswerTooLarge
    ├── FunctionAnswerInvalid     the answer is not one
    ├── FatalResult               it ended the pipeline, as functions may
    ├── UnstableRequirements      it asks for something else each time
    ├── RequirementDenied         it asks for what this step may not read
    ├── RequirementUnreadable     what it asks for could not be read
    └── InputUnavailable  CredentialsUnavailable

A transport does not know for which step it calls, so the pipeline adds the step to an error on its way up. Messages end
up in conditions: they hold no addresses, counts of attempts or measured times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

from planform.errors import PlanformError

if TYPE_CHECKING:
    from planform.functions.runner import FunctionRevision


MAX_ANSWER_SIZE_ANNOTATION: Final = "planform.dev/max-answer-size"
"""Of a Function: how large its answers may be, as a quantity such as `16Mi`."""


class FunctionError(PlanformError):
    """A step could not be carried out. `detail` is the message without the names in front of it."""

    reason = "FunctionError"

    def __init__(
        self,
        detail: str,
        *,
        revision: FunctionRevision | None = None,
        function: str = "",
        step: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.function = function or (revision.function if revision else "")
        self.revision = revision.name if revision else ""
        self.step = step
        if hint is not None:
            self.hint = hint

    def at_step(self, step: str, function: str = "", revision: FunctionRevision | None = None) -> Self:
        """The same error, which from now on names the step, function and revision unless it did already."""
        self.step = self.step or step
        self.function = self.function or function
        self.revision = self.revision or (revision.name if revision else "")
        return self

    def __str__(self) -> str:
        where = [f'step "{self.step}"'] if self.step else []
        if self.function:
            known = self.revision and self.revision != self.function
            where.append(f'function "{self.function}"' + (f' (revision "{self.revision}")' if known else ""))
        return ": ".join([*where, self.detail])


class ResolutionError(FunctionError):
    """No revision can be called. `rejected` says for every candidate why it is not the one."""

    reason = "FunctionNotResolved"

    def __init__(
        self, detail: str, *, function: str, rejected: Sequence[tuple[str, str]] = (), hint: str | None = None
    ) -> None:
        listed = "; ".join(f"{name}: {why}" for name, why in rejected)
        super().__init__(f"{detail} ({listed})" if listed else detail, function=function, hint=hint)
        self.rejected = tuple(rejected)


class FunctionNotFound(ResolutionError):
    """No function of this name is installed or built in."""

    reason = "FunctionNotFound"


class VersionNotFound(ResolutionError):
    """The function is there, but nothing meets what was asked for by name, label or version."""

    reason = "VersionNotFound"


class VersionRemoved(ResolutionError):
    """The version existed once and is not run any more."""

    reason = "VersionRemoved"


class VersionInactive(ResolutionError):
    """What was asked for is installed but not active."""

    reason = "VersionInactive"


class VersionNotReady(ResolutionError):
    """What was asked for is active and does not serve yet."""

    reason = "VersionNotReady"
    retryable = True


class MissingCapability(ResolutionError):
    """The revision is not made for this use."""

    reason = "MissingCapability"


class FunctionUnavailable(FunctionError):
    """Nobody took the call, and nothing was sent."""

    reason = "FunctionUnavailable"
    retryable = True
    hint = "see whether the function runs: planform function list"


class FunctionTimedOut(FunctionError):
    """No answer came within the deadline."""

    reason = "FunctionTimedOut"
    retryable = True
    hint = "look for what the function waits for, or give the step a longer timeout"


class FunctionCrashed(FunctionError):
    """The connection or the process ended while the function was working on the call."""

    reason = "FunctionCrashed"
    retryable = True
    hint = "the function's last log lines say why: planform function logs NAME"


class FunctionFailed(FunctionError):
    """The function raised an error of its own instead of answering."""

    reason = "FunctionFailed"
    retryable = True
    hint = "this is a fault of the function: a result of severity fatal would say more"


class FunctionRefused(FunctionError):
    """The function, or what stands before it, will not take this call; another try would end alike."""

    reason = "FunctionRefused"


class FunctionRequestTooLarge(FunctionError):
    """The request is larger than what the function takes."""

    reason = "FunctionRequestTooLarge"
    hint = "raise the function's limit for received messages, or let it ask for less"


class FunctionAnswerTooLarge(FunctionError):
    """The answer, or one object in it, is larger than what is taken."""

    reason = "FunctionAnswerTooLarge"
    hint = f"let the function answer with less, or raise its limit: {MAX_ANSWER_SIZE_ANNOTATION} on the Function"


class FunctionAnswerInvalid(FunctionError):
    """The answer is not one that the protocol knows, or what it wants cannot be."""

    reason = "FunctionAnswerInvalid"


class FatalResult(FunctionError):
    """The function ended the pipeline with a result of severity fatal; the message is its own."""

    reason = "FatalResult"


class UnstableRequirements(FunctionError):
    """The function asks for something else each time it is called."""

    reason = "UnstableRequirements"
    hint = "a function must ask for the same when it is sent the same; if it needs more rounds, raise maxIterations"


class RequirementDenied(FunctionError):
    """The function asks for what this step may not read. Nothing was read."""

    reason = "RequirementDenied"


class RequirementUnreadable(FunctionError):
    """What the step or its function asks for could not be read."""

    reason = "RequirementUnreadable"
    retryable = True


class InputUnavailable(FunctionError):
    """The object that a step's inputRef names cannot be had."""

    reason = "InputUnavailable"
    retryable = True


class CredentialsUnavailable(FunctionError):
    """A Secret that the step sends to its function cannot be had."""

    reason = "CredentialsUnavailable"
    retryable = True


def answer_too_large(
    size: int, limit: int, revision: FunctionRevision | None = None, *, cut_off: bool = False
) -> FunctionAnswerTooLarge:
    """Of an answer beyond its function's limit, or the first part of one that was `cut_off`. A built-in does not know
    its revision, nor whether a Function installs it."""
    what = f"is more than {mebibytes(size)}" if cut_off else f"is {mebibytes(size)}"
    whose = "the Function" if revision is not None else "a Function that installs it"
    return FunctionAnswerTooLarge(
        f"the answer {what}, and at most {mebibytes(limit)} are taken"
        f" (annotation {MAX_ANSWER_SIZE_ANNOTATION} of {whose})",
        revision=revision,
    )


def object_too_large(detail: str, revision: FunctionRevision | None = None) -> FunctionAnswerTooLarge:
    """Of an answer with an object in it that no store would take, whatever the function's limit is."""
    return FunctionAnswerTooLarge(detail, revision=revision, hint="let the function answer with less")


def mebibytes(size: int) -> str:
    """A size for people; a limit of whole mebibytes is written as such."""
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size / (1 << 20):.1f} MiB"


def without_frames(error: FunctionError) -> FunctionError:
    """The same error without what was on the stack when it was raised, to be kept: frames hold requests and answers."""
    seen: set[int] = set()
    rest: list[BaseException | None] = [error]
    while rest:
        each = rest.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            rest += [each.__cause__, each.__context__]
    return error
