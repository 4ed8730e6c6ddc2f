"""The kinds that planform brings to any engine: their CustomResourceDefinitions, one module for each family."""

from __future__ import annotations

from functools import cache

from planform.api.extensions.blueprints import action_set, blueprint, profile
from planform.api.extensions.compositions import composition, composition_revision, environment_config
from planform.api.extensions.definitions import composite_resource_definition
from planform.api.extensions.managed import activation_policy, managed_resource_definition
from planform.api.extensions.nop import cluster_nop_resource, nop_resource
from planform.api.extensions.operations import cron_operation, operation, watch_operation
from planform.api.extensions.package_settings import deployment_runtime_config, image_config, lock
from planform.api.extensions.packages import (
    configuration,
    configuration_revision,
    function,
    function_revision,
    provider,
    provider_revision,
)
from planform.api.extensions.policies import policies
from planform.api.extensions.previews import preview, preview_report
from planform.api.extensions.protection import cluster_usage, legacy_usage, usage
from planform.api.kinds import Object
from planform.api.rollout_gates import change_window
from planform.api.rollouts import rollout, rollout_action, rollout_policy

__all__ = ["crds", "policies"]


@cache
def _made() -> tuple[Object, ...]:
    return (
        composite_resource_definition(),
        composition(),
        composition_revision(),
        environment_config(),
        function(),
        function_revision(),
        provider(),
        provider_revision(),
        configuration(),
        configuration_revision(),
        deployment_runtime_config(),
        image_config(),
        lock(),
        usage(),
        cluster_usage(),
        legacy_usage(),
        managed_resource_definition(),
        activation_policy(),
        operation(),
        cron_operation(),
        watch_operation(),
        nop_resource(),
        cluster_nop_resource(),
        blueprint(),
        action_set(),
        profile(),
        preview(),
        preview_report(),
        change_window(),
        rollout_policy(),
        rollout(),
        rollout_action(),
    )


def crds() -> list[Object]:
    """All of them. The list is the caller's; what is in it is shared and must not be changed."""
    return list(_made())
