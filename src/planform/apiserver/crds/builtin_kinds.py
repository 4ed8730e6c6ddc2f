"""The built-in kinds as served kinds: the data of `api.builtin` joined with the strategies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from planform.api import builtin
from planform.apiserver.admission.dynamic.configurations import STRATEGIES as ADMISSION_STRATEGIES
from planform.apiserver.crds.builtin_strategies import PLAIN, STRATEGIES, event_from_core, event_to_core
from planform.apiserver.crds.definitions import RESOURCE as CRD_RESOURCE
from planform.apiserver.crds.definitions import CustomResourceDefinitions
from planform.apiserver.crds.registry import ServedKind


def builtin_served_kinds(now: Callable[[], datetime]) -> list[ServedKind]:
    """Every built-in kind; `now` stamps the conditions that a strategy sets."""
    kinds = []
    for kind in builtin.BUILTIN_KINDS:
        strategy = (
            CustomResourceDefinitions(now)
            if kind.resource == CRD_RESOURCE
            else STRATEGIES.get(kind.resource) or ADMISSION_STRATEGIES.get(kind.resource, PLAIN)
        )
        served = ServedKind(kind=kind, strategy=strategy, openapi=builtin.schema_of(kind.gvk), resolve=builtin.resolve)
        if kind.group == "events.k8s.io":
            served.storage_resource = "events"
            served.to_storage, served.from_storage = event_to_core, event_from_core
        kinds.append(served)
    return kinds
