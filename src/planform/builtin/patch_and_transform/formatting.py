"""Go's Sprintf for values that came out of JSON, where an integer and a float are the same number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from planform.gotemplate.printf import sprintf

MISFIT: Final = "%!"
"""What Sprintf leaves in the text where a verb does not fit its operand."""


def format_values(template: str, values: Sequence[Any]) -> str:
    """Sprintf; an integer that its verb refuses is given to it as a float, so that `%.2f` prints 3 as `3.00`."""
    text = sprintf(template, values)
    if MISFIT not in text:
        return text
    operands = list(values)
    for index, value in enumerate(values):
        if type(value) is int:
            operands[index] = float(value)
            attempt = sprintf(template, operands)
            if attempt.count(MISFIT) < text.count(MISFIT):
                text = attempt
            else:
                operands[index] = value
    return text
