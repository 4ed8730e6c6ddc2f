"""A compiled input at work: from a request to the desired state, in the order that users rely on.

The environment comes first, then each template in its order: base, identity, connection details, readiness, patches.
What the request holds is never changed; the desired XR and the environment are copied when a patch first writes there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from planform.apimachinery.fieldpath import FieldNotFound
from planform.builtin.compiled import Program, Refused, warn
from planform.builtin.environment import ENVIRONMENT_KEY, environment_of
from planform.builtin.environment_configs.sources import EnvironmentSources
from planform.builtin.inputs import InputError
from planform.builtin.patch_and_transform.connection import compile_details, compile_secret
from planform.builtin.patch_and_transform.inputs import Patch, Resources, Template
from planform.builtin.patch_and_transform.patches import (
    ENVIRONMENT_ROUTES,
    TEMPLATE_ROUTES,
    CompiledPatch,
    Place,
    compile_patches,
)
from planform.builtin.patch_and_transform.readiness import Check, CheckFailed, compile_checks
from planform.builtin.patch_and_transform.validation import PATCH_SET, mistakes
from planform.builtin.patch_and_transform.values import PatchFailed, fresh
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    name: str
    base: bytes | None
    """As JSON: parsing it is the fastest way to a copy of one's own."""
    what: str
    """What messages call it."""
    patches: tuple[CompiledPatch, ...]
    details: Callable[[Resource], dict[str, bytes]] | None
    is_ready: Check


class _Draft:
    """An object that belongs to the request until somebody writes to it."""

    __slots__ = ("_own", "object")

    def __init__(self, found: Object) -> None:
        self.object = found
        self._own = False

    def writable(self) -> Object:
        if not self._own:
            self.object, self._own = fresh(self.object), True
        return self.object


def compile_program(spec: Resources) -> Program:
    """The program of a validated input."""
    sets = {patch_set.name: patch_set.patches for patch_set in spec.patch_sets}
    templates = [_compile_template(template, sets) for template in spec.resources]
    environment = spec.environment
    environment_patches = compile_patches(environment.patches, ENVIRONMENT_ROUTES)
    sources = EnvironmentSources(environment.environment_configs, environment.default_data, environment.policy)
    compose_secret = compile_secret(spec.write_connection_secret_to_ref)

    mistaken = list(mistakes(spec))

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        for mistake in mistaken:
            warn(response, mistake)
        found = environment_of(request.context) if sources.empty else sources.environment(request, response)
        if found is None:
            return
        call = _Call(request, response, found)
        call.patch_environment(environment_patches)
        for template in templates:
            call.render(template)
        call.finish()
        composite = response.desired.composite
        secret = compose_secret(call.observed_xr, composite.connection_details)
        if secret is not None:
            response.desired.resources[secret[0]] = secret[1]

    return run


def _compile_template(template: Template, sets: Mapping[str, Sequence[Patch]]) -> CompiledTemplate:
    patches: list[Patch] = []
    for patch in template.patches:
        patches.extend(sets[patch.patch_set_name] if patch.type == PATCH_SET else (patch,))
    base = template.base
    if base is not None and not (isinstance(base, dict) and isinstance(base.get("kind"), str) and base["kind"]):
        raise InputError(f'cannot parse base template of composed resource "{template.name}": it has no kind')
    return CompiledTemplate(
        template.name,
        None if base is None else msgspec.json.encode(fresh(base)),
        f'composed resource "{template.name}"',
        compile_patches(patches, TEMPLATE_ROUTES),
        compile_details(template.connection_details) if template.connection_details else None,
        compile_checks(template.readiness_checks),
    )


class _Call:
    """One request on its way to its response."""

    def __init__(self, request: FunctionRequest, response: FunctionResponse, environment: Object) -> None:
        self.request = request
        self.response = response
        self.observed_xr = request.observed.composite.resource
        identity: Object = {key: self.observed_xr[key] for key in ("apiVersion", "kind") if key in self.observed_xr}
        self.desired_xr = _Draft({**request.desired.composite.resource, **identity})
        self.environment = _Draft(environment)
        self.details: dict[str, bytes] = {}
        self.skipped = False

    def patch_environment(self, patches: Sequence[CompiledPatch]) -> None:
        for patch in patches:
            from_xr = patch.source is Place.COMPOSITE
            source = self.observed_xr if from_xr else self.environment.object
            target = self.environment if from_xr else self.desired_xr
            try:
                self._note_misfit("environment", patch, patch.apply(source, target.writable()))
            except FieldNotFound as error:
                if patch.required:
                    raise Refused(_environment_failure(patch, error)) from None
            except PatchFailed as error:
                raise Refused(_environment_failure(patch, error)) from None

    def render(self, template: CompiledTemplate) -> None:
        """Put what a template makes into the desired state, unless it still lacks something it needs."""
        name = template.name
        observed = self.request.observed.resources.get(name)
        desired = self._start(template)
        if observed is not None:
            _adopt_identity(desired.resource, observed.resource)
            if template.details is not None:
                self.details |= template.details(observed)
            try:
                if template.is_ready(observed.resource):
                    desired.ready = Ready.TRUE
            except CheckFailed as error:
                warn(self.response, f'cannot check readiness of composed resource "{name}": {error}')
        if self._patch(template, observed, desired.resource):
            kind = desired.resource.get("kind")
            if not isinstance(kind, str) or not kind:
                problem = "is missing" if kind in (None, "") else "is no string"
                raise Refused(f'cannot set desired composed resources: composed resource "{name}": its kind {problem}')
            self.response.desired.resources[name] = desired
        else:
            self.skipped = True

    def finish(self) -> None:
        composite = self.response.desired.composite
        composite.resource = self.desired_xr.object
        if self.details:
            composite.connection_details = {**composite.connection_details, **self.details}
        if self.skipped:
            composite.ready = Ready.FALSE
        self.response.context[ENVIRONMENT_KEY] = self.environment.object

    def _start(self, template: CompiledTemplate) -> Resource:
        if template.base is not None:
            return Resource(_decode(template.base))
        earlier = self.request.desired.resources.get(template.name)
        if earlier is None:
            raise Refused(
                f'composed resource "{template.name}" has no base template, and was not produced by a previous '
                "Function in the pipeline"
            )
        return Resource(fresh(earlier.resource), earlier.connection_details, earlier.ready)

    def _patch(self, template: CompiledTemplate, observed: Resource | None, desired: Object) -> bool:
        """Apply the patches; false if a new resource has to wait for a field that it requires."""
        what = template.what
        for patch in template.patches:
            if patch.source is Place.COMPOSED:
                if observed is None:
                    continue
                source = observed.resource
            elif patch.source is Place.COMPOSITE:
                source = self.observed_xr
            else:
                source = self.environment.object
            if patch.target is Place.COMPOSED:
                target = desired
            elif patch.target is Place.COMPOSITE:
                target = self.desired_xr.writable()
            else:
                target = self.environment.writable()
            try:
                misfit = patch.apply(source, target)
            except FieldNotFound as error:
                if not patch.required:
                    continue
                if observed is None:
                    warn(
                        self.response,
                        f"not adding new {what} to desired state because {patch.label} has "
                        f"'policy.fromFieldPath: Required': {error}",
                    )
                    return False
                warn(
                    self.response,
                    f"cannot render {what} {patch.label}: ignoring 'policy.fromFieldPath: Required' because 'to' "
                    f"resource already exists: {error}",
                )
            except PatchFailed as error:
                raise Refused(f"cannot render {what} {patch.label}: {error}") from None
            else:
                if misfit is not None:
                    self._note_misfit(what, patch, misfit)
        return True

    def _note_misfit(self, what: str, patch: CompiledPatch, misfit: str | None) -> None:
        if misfit is not None:
            warn(self.response, f'{what} {patch.label}: the format "{misfit}" does not fit the values it is given')


def _environment_failure(patch: CompiledPatch, error: Exception) -> str:
    kind, _, rest = patch.label.partition(" patch ")
    return f"cannot apply the {kind} environment patch {rest}: {error}"


def _adopt_identity(desired: Object, observed: Object) -> None:
    """A resource that exists keeps its name, whatever its template says; a patch can still change it."""
    found = observed.get("metadata")
    known: dict[str, Any] = found if isinstance(found, dict) else {}
    for key in ("namespace", "name"):
        value = known.get(key)
        metadata = desired.get("metadata")
        if value:
            if not isinstance(metadata, dict):
                desired["metadata"] = metadata = {}
            metadata[key] = value
        elif isinstance(metadata, dict):
            metadata.pop(key, None)


_decode = msgspec.json.Decoder().decode
