"""EnvironmentConfigs made an environment: each over the one before, over what the context holds, over default data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planform.apimachinery.fieldpath import FieldPathError, parse_path
from planform.builtin.compiled import Refused
from planform.builtin.environment import ENVIRONMENT_KEY, merged, typed_environment
from planform.builtin.selection import SelectedConfig, SelectionPolicy, choose_by_labels, fetched, selector_for
from planform.functions.values import FunctionRequest, FunctionResponse, Object, ResourceSelector
from planform.gotemplate.quoting import quote

API_VERSION: Final = "apiextensions.crossplane.io/v1beta1"
KIND: Final = "EnvironmentConfig"


@dataclass(frozen=True, slots=True)
class EnvironmentSources:
    """Which configs a step wants, and how it makes an environment of them."""

    entries: Sequence[SelectedConfig]
    default_data: Object
    policy: SelectionPolicy

    @property
    def empty(self) -> bool:
        """Whether there is nothing to make an environment of."""
        return not self.entries and not self.default_data

    def environment(self, request: FunctionRequest, response: FunctionResponse) -> Object | None:
        """The environment, or None while configs that the response asks for have not been fetched, or if it asks for
        none and has no data of its own. Raises Refused."""
        found = self._fetched(request, response)
        if found is None or not (found or self.default_data):
            return None
        chosen = list(self._chosen(found))
        given = request.context.get(ENVIRONMENT_KEY)
        environment = merged(self.default_data, given if isinstance(given, dict) else {})
        for config, path in chosen:
            environment = merged(environment, _data(config, path))
        return typed_environment(environment)

    def _fetched(self, request: FunctionRequest, response: FunctionResponse) -> Mapping[str, Sequence[Object]] | None:
        xr, given = request.observed.composite.resource, request.context.get(ENVIRONMENT_KEY)
        environment = given if isinstance(given, dict) else {}
        wanted: dict[str, ResourceSelector] = {}
        for index, entry in enumerate(self.entries):
            try:
                selector = selector_for(entry, xr, environment, api_version=API_VERSION, kind=KIND)
            except Refused as error:
                raise Refused(f"cannot build requirements: {error}") from None
            if selector is not None:
                wanted[_name(index)] = selector
        return fetched(request, response, wanted)

    def _chosen(self, found: Mapping[str, Sequence[Object]]) -> Iterator[tuple[Object, str]]:
        """The configs in the order in which they are merged, with the paths that their data go under."""
        for index, entry in enumerate(self.entries):
            objects = found.get(_name(index))
            if objects is None:
                continue
            source = f'"{_name(index)}" by selector'
            if entry.ref is not None and entry.type == "Reference":
                source = f'{quote(entry.ref.name)} by reference, "{_name(index)}"'
            try:
                for config in self._choose(entry, objects):
                    yield config, entry.to_field_path
            except Refused as error:
                cause = f"cannot process environment config {source}: {error}"
                raise Refused(f"cannot get selected environment configs: {cause}") from None

    def _choose(self, entry: SelectedConfig, found: Sequence[Object]) -> Sequence[Object]:
        if entry.ref is not None and entry.type == "Reference":
            name = quote(entry.ref.name)
            if not found and not self.policy.optional:
                raise Refused(f"Required environment config {name} not found")
            if len(found) > 1:
                raise Refused(f"expected exactly one required resource {name}, got {len(found)}")
            return found
        if entry.selector is None or entry.type != "Selector":
            return ()
        match entry.selector.mode:
            case "Single":
                if len(found) != 1:
                    raise Refused(f"expected exactly one required resource, got {len(found)}")
                return found
            case "Multiple":
                return choose_by_labels(entry.selector, found, what="required resource")
        raise Refused(f"unknown selector mode {quote(entry.selector.mode)}")


def _name(index: int) -> str:
    return f"environment-config-{index}"


def _data(config: Object, path: str) -> Object:
    metadata = config.get("metadata")
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    if not path:
        data = config.get("data") or {}
        if "data" not in config or not isinstance(data, dict):
            cause = "data: not an object" if "data" in config else "data: no such field"
            cause = f"cannot get data from environment config {quote(name)}: {cause}"
            raise Refused(f"cannot merge environment data: {cause}")
        return data
    wrapped: Object = {}
    try:
        parse_path(path).set(wrapped, config.get("data"))
    except FieldPathError:
        cause = f"cannot get data from environment config {name} into path {quote(path)}"
        raise Refused(f"cannot merge environment data: {cause}") from None
    return wrapped
