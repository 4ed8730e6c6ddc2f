"""Options of control planes that several teams share: what is on for them, and what Compositions may compose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from planform.xrs.composed_kinds import ComposedKinds, parse_composed_kinds

C = TypeVar("C", bound=Callable[..., Any])


def tenancy_options(command: C) -> C:
    """`--tenants`, and the lists of kinds that may be composed."""
    for name, what in (
        ("deny", "A kind that no Composition may compose, whatever is allowed."),
        ("allow", "A kind that Compositions may compose; once one is named, only those."),
    ):
        command = click.option(
            f"--composed-kinds-{name}", multiple=True, metavar="KIND.GROUP", help=f"{what} * stands for any of either."
        )(command)
    return click.option(
        "--tenants",
        is_flag=True,
        help="For several teams: ConfineNamespacedReads, DenyExtraResourcesByDefault and --function-network=none.",
    )(command)


def composed_kinds_of(options: Mapping[str, Any]) -> ComposedKinds:
    return parse_composed_kinds(options["composed_kinds_allow"], options["composed_kinds_deny"])
