"""Feature gates: what can be switched on or off, with its default and what it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from planform.errors import UsageError


@dataclass(frozen=True, slots=True)
class Feature:
    """One gate. `alias` is the flag by which one of the published designs names it."""

    name: str
    default: bool
    stage: Literal["alpha", "beta", "stable"]
    summary: str
    alias: str = ""


FEATURES: Final[Mapping[str, Feature]] = {
    feature.name: feature
    for feature in (
        Feature(
            "FunctionRevisionSelectors",
            True,
            "beta",
            "A pipeline step may choose a function revision by name or label, and several revisions may be active.",
            alias="enable-function-revision-selectors",
        ),
        Feature(
            "CompositionFunctionsExtraResources",
            True,
            "stable",
            "Functions may ask for resources and schemas that they are not sent; off, a step that needs any fails.",
            alias="enable-composition-functions-extra-resources",
        ),
        Feature(
            "DenyExtraResourcesByDefault",
            False,
            "alpha",
            "A pipeline step without allowedExtraResources may not ask for any resource.",
            alias="deny-extra-resources-by-default",
        ),
        Feature(
            "ConfineNamespacedReads",
            False,
            "beta",
            "Functions of a namespaced XR may read only its own namespace and cluster-scoped kinds, connection details"
            " of its resources included.",
        ),
        Feature(
            "ProviderDeletionProtection",
            False,
            "alpha",
            "A Provider cannot be deleted while there are objects of its kinds: a ClusterUsage says so.",
            alias="enable-provider-deletion-protection",
        ),
        Feature(
            "DependencyVersionUpgrades",
            False,
            "alpha",
            "A package that others need is raised to a version that fits, also if it was installed by hand.",
            alias="enable-dependency-version-upgrades",
        ),
        Feature(
            "DependencyVersionDowngrades",
            False,
            "alpha",
            "A package that others need is raised or lowered to a version that fits, also if it was installed by hand.",
            alias="enable-dependency-version-downgrades",
        ),
        Feature(
            "RevisionPerRuntimeConfig",
            False,
            "alpha",
            "Another runtimeConfigRef makes another revision of a package, as in Crossplane; off, the revision of the"
            " same content goes on and runs otherwise.",
        ),
        Feature(
            "BuiltInNopResources",
            True,
            "stable",
            "NopResource and ClusterNopResource are served without a package; off, only provider-nop brings them.",
        ),
    )
}


FOR_TENANTS: Final = ("ConfineNamespacedReads", "DenyExtraResourcesByDefault")
"""What `--tenants` switches on."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates as they are set for one process."""

    settings: Mapping[str, bool]

    def enabled(self, name: str) -> bool:
        return self.settings.get(name, FEATURES[name].default)

    @property
    def on(self) -> tuple[str, ...]:
        """The names of all that are enabled, in a fixed order."""
        return tuple(sorted(name for name in FEATURES if self.enabled(name)))


def parse_gates(texts: Iterable[str]) -> FeatureGates:
    """`A=true,B=false`, any number of times; the last word on a gate counts. Raises UsageError."""
    settings: dict[str, bool] = {}
    for text in texts:
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = part.partition("=")
            if name not in FEATURES:
                raise UsageError(
                    f'there is no feature gate "{name}"', hint=f"known gates: {', '.join(FEATURES)} (planform features)"
                )
            if not equals or value.lower() not in ("true", "false"):
                raise UsageError(f'feature gate "{part}" must be NAME=true or NAME=false')
            settings[name] = value.lower() == "true"
    return FeatureGates(settings)


class BuiltInUse(StrEnum):
    """For which packages of functions that we ship the built-in serves."""

    ALWAYS = "always"
    MATCHING = "matching"
    NEVER = "never"
