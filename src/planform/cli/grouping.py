"""Groups of commands whose help says what each of them does, in a whole sentence."""

from __future__ import annotations

from typing import Final

import click

_WHOLE: Final = 400
"""More characters than any summary has: click cuts those that are longer, by default in mid-sentence."""


class CommandGroup(click.Group):
    """A group that wraps the summaries of its commands instead of cutting them."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(_WHOLE)) for name in sorted(self.commands)]
            )
