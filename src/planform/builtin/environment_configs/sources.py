"""EnvironmentConfigs made an environment: each over the one before, over what the context holds, over default data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planform.builtin.compiled import Refused
from planform.builtin.environment import ENVIRONMENT_KEY, environment_of, merged, typed_environment
from planform.builtin.selection import SelectedConfig, SelectionPolicy, choose, fetched, selector_for
from planform.functions.values import FunctionRequest, FunctionResponse, Object
from planform.machinery.fieldpath import FieldPathError, parse_path

API_VERSION: Final = "apiextensions.crossplane.io/v1beta1"
KIND: Final = "EnvironmentConfig"


@dataclass(frozen=True, slots=True)
class EnvironmentSources:
    """Which configs a step wants, and how it makes an environment of them."""

    entries: Sequence[SelectedConfig]
    default_data: Object
    policy: SelectionPolicy

    def environment(self, request: FunctionRequest, response: FunctionResponse) -> Object | None:
        """The environment, or None while configs that the response asks for have not been fetched. Raises Refused."""
        if not self.entries and not self.default_data:
            return environment_of(request.context)
        xr = request.observed.composite.resource
        selectors = [selector_for(entry, xr, api_version=API_VERSION, kind=KIND) for entry in self.entries]
        wanted = {f"environment-config-{index}": each for index, each in enumerate(selectors) if each is not None}
        found = fetched(request, response, wanted)
        if found is None:
            return None
        given = request.context.get(ENVIRONMENT_KEY)
        environment = merged(self.default_data, given if isinstance(given, dict) else {})
        for index, entry in enumerate(self.entries):
            objects = found.get(f"environment-config-{index}")
            if objects is None:
                continue
            for config in choose(entry, objects, optional=self.policy.optional, what=KIND):
                environment = merged(environment, _data(config, entry.to_field_path))
        return typed_environment(environment)


def _data(config: Object, path: str) -> Object:
    data = config.get("data")
    if not isinstance(data, dict):
        return {}
    if not path:
        return data
    wrapped: Object = {}
    try:
        parse_path(path).set(wrapped, data)
    except FieldPathError as error:
        raise Refused(f'cannot put the data of an {KIND} under "{path}": {error}') from None
    return wrapped
