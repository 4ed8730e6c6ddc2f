"""What a template can do wrong, and the three private exceptions from which the public ones are made.

    TemplateError                     name, line, column
    ├── TemplateSyntaxError           the text does not parse; nothing was rendered
    └── TemplateExecutionError        rendering failed at an action
        └── TemplateLimitExceeded     a limit on steps, depth or size was reached

Messages are worded as Go words them, so that what people find when they search for them is right.
"""

from __future__ import annotations

from planform.errors import PlanformError


class TemplateError(PlanformError):
    """A template that does not parse or cannot be rendered; `line` counts from 1 and `column` from 0, in bytes."""

    reason = "TemplateError"

    def __init__(self, message: str, *, name: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.name = name
        self.line = line
        self.column = column


class TemplateSyntaxError(TemplateError):
    """The text is not a template, or uses a function that does not exist."""

    reason = "TemplateSyntax"


class TemplateExecutionError(TemplateError):
    """An action failed: a wrong type, a missing key under `missingkey=error`, a function that refused."""

    reason = "TemplateExecution"


class TemplateLimitExceeded(TemplateExecutionError):
    """Rendering would take more steps, depth or room than its `Limits` allow."""

    reason = "TemplateLimitExceeded"


class Fault(Exception):
    """Raised while rendering, before anybody knows where: the text that follows the location."""


class CallFailed(Exception):
    """Raised by a template function that refuses; reported as `error calling NAME: ...`."""


class LimitReached(Exception):
    """Raised where a limit is found exceeded; becomes `TemplateLimitExceeded`."""
