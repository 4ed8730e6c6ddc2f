"""What a step's function may ask for, decided from what it asks alone and before anything is read.

A step's `allowedExtraResources` lists kinds, optionally with a pattern for names or for label values. Patterns are RE2:
they must match the whole value, in time linear in its length; `*` alone matches any value. What the Composition itself
requires for a step (bootstrap) is its author's word and is not held against the list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import re2

from planform.functions.errors import RequirementDenied
from planform.functions.values import ResourceSelector

_QUIET: Final = re2.Options()
_QUIET.log_errors = False
_QUIET.max_mem = 1 << 20

IsNamespaced = Callable[[str, str], Awaitable[bool]]
"""Whether a kind, given as api version and kind, lives in namespaces. True for a kind that is not served."""


def canonical(api_version: str, kind: str) -> tuple[str, str]:
    """A kind by the version that it is meant in: EnvironmentConfig is one kind, by whichever of its names."""
    if kind == "EnvironmentConfig" and api_version == "apiextensions.crossplane.io/v1alpha1":
        return "apiextensions.crossplane.io/v1beta1", kind
    return api_version, kind


class PatternInvalid(ValueError):
    """A pattern is not RE2."""


class Pattern:
    """An anchored pattern."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._compiled: Any = None
        if text != "*":
            try:
                self._compiled = re2.compile(text, _QUIET)
            except re2.error as error:
                why = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
                raise PatternInvalid(f'"{text}" is not a pattern: {why}') from None

    def matches(self, value: str) -> bool:
        return self._compiled is None or self._compiled.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class AllowedResource:
    """One entry of the list. With neither pattern it allows every request for the kind."""

    api_version: str
    kind: str
    name: Pattern | None = None
    labels: Mapping[str, Pattern] | None = None

    def allows(self, selector: ResourceSelector) -> bool:
        if canonical(selector.api_version, selector.kind) != canonical(self.api_version, self.kind):
            return False
        if self.name is not None:
            return bool(selector.match_name) and self.name.matches(selector.match_name)
        if self.labels is not None:
            if selector.match_name or selector.match_labels is None:
                return False
            asked = selector.match_labels
            return all(key in asked and pattern.matches(asked[key]) for key, pattern in self.labels.items())
        return True

    def __str__(self) -> str:
        text = f"{self.kind} ({self.api_version})"
        if self.name is not None:
            return f'{text} named like "{self.name.text}"'
        if self.labels is not None:
            return f"{text} with labels {', '.join(f'{key}={each.text}' for key, each in sorted(self.labels.items()))}"
        return text


class ReadPolicy(msgspec.Struct, frozen=True):
    """What one step may read. `allowed` None means that the step says nothing about it."""

    allowed: Sequence[AllowedResource] | None = None
    deny_by_default: bool = False
    requirements_enabled: bool = True
    confined_to: str = ""
    """The namespace of the XR, if its functions may read only that and cluster-scoped kinds."""
    is_namespaced: IsNamespaced | None = None

    async def check(self, requirement: str, selector: ResourceSelector) -> None:
        """Pass, or raise RequirementDenied with what was asked for and what is allowed."""
        what = f'requirement "{requirement}" ({describe(selector)})'
        self.check_enabled(what)
        if self.allowed is None:
            if self.deny_by_default:
                raise RequirementDenied(
                    f"{what} is denied: the step has no allowedExtraResources",
                    hint="list what its function may read in the step's allowedExtraResources",
                )
        elif not any(entry.allows(selector) for entry in self.allowed):
            listed = "; ".join(map(str, self.allowed)) or "nothing"
            raise RequirementDenied(
                f"{what} is denied: the step's allowedExtraResources allows {listed}",
                hint="add it to the step's allowedExtraResources if the function may read it",
            )
        await self._check_namespace(what, selector)

    def check_enabled(self, what: str) -> None:
        """Raise RequirementDenied if requirements are switched off."""
        if not self.requirements_enabled:
            raise RequirementDenied(
                f"{what} is denied: requirements are switched off on this control plane",
                hint="switch on the feature gate CompositionFunctionsExtraResources"
                " (--enable-composition-functions-extra-resources)",
            )

    async def _check_namespace(self, what: str, selector: ResourceSelector) -> None:
        home = self.confined_to
        if not home or selector.namespace == home:
            return
        if self.is_namespaced is not None and not await self.is_namespaced(selector.api_version, selector.kind):
            return
        raise RequirementDenied(
            f'{what} is denied: functions of this XR may read only namespace "{home}" and cluster-scoped kinds',
            hint=f'let the function ask for namespace "{home}"; the feature gate is ConfineNamespacedReads',
        )


def describe(selector: ResourceSelector) -> str:
    """`ConfigMap (v1) "settings" in namespace "apps"`."""
    text = f"{selector.kind} ({selector.api_version})"
    if selector.match_name:
        text += f' "{selector.match_name}"'
    elif selector.match_labels is not None:
        labels = ",".join(f"{key}={value}" for key, value in sorted(selector.match_labels.items()))
        text += f" with labels {labels or '(none)'}"
    else:
        text = f"every {text}"
    return text + (f' in namespace "{selector.namespace}"' if selector.namespace else "")
