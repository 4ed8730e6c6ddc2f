"""KubeOps: create, patch, delete and (from v0.1.0) apply and get objects of either engine.

v0.0.0 patches as Kubernetes' own kinds are patched, by strategic merge; kinds that know no such patch, those of CRDs,
get a merge patch instead of a refusal. v0.1.0 can say which patch it is, applies and reads, and says how long to wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from planform.api.kinds import Object, gvk_of
from planform.api.metadata import name_of, namespace_of, uid_of
from planform.apimachinery.yaml_loader import YamlError, load
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid
from planform.blueprints.functions.durations import seconds_of
from planform.blueprints.functions.observing import Reference, reference, until
from planform.client.protocol import Patch, PatchType
from planform.errors import NotFound, UnsupportedMediaType

MANAGER: Final = "planform-blueprints"
DELETE_SECONDS: Final = 600.0
_PATCHES: Final = {"strategic": PatchType.STRATEGIC, "merge": PatchType.MERGE, "json": PatchType.JSON}
_OLD: Final = ("create", "patch", "delete")
_NEW: Final = (*_OLD, "apply", "get")


def _problems_with(operations: tuple[str, ...]) -> Any:
    def problems(args: Mapping[str, Any]) -> Iterable[str]:
        operation = args.get("operation")
        if isinstance(operation, str) and "{{" not in operation and operation not in operations:
            yield f'operation "{operation}" is not one of {", ".join(operations)}'

    return problems


@phase_function(
    "KubeOps",
    stable=True,
    required=["operation"],
    arguments=["spec", "namespace", "objectReference"],
    validate=_problems_with(_OLD),
)
async def kube_ops(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Creates, patches or deletes an object."""
    return await _run(context, args, _OLD)


@phase_function(
    "KubeOps",
    version="v0.1.0",
    required=["operation"],
    arguments=["spec", "namespace", "objectReference", "patchType", "timeout"],
    validate=_problems_with(_NEW),
)
async def kube_ops_v010(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Creates, applies, patches, reads or deletes an object."""
    return await _run(context, args, _NEW)


async def _run(context: PhaseContext, args: Arguments, operations: tuple[str, ...]) -> dict[str, Any]:
    operation = args.text("operation")
    if operation not in operations:
        raise ArgumentInvalid(f'{args.of}: operation "{operation}" is not one of {", ".join(operations)}')
    match operation:
        case "create" | "apply":
            made = await _written(context, _spec(args), args, apply=operation == "apply")
            return await _output_of(context, made)
        case "patch":
            return await _output_of(context, await _patched(context, await _target(context, args), args))
        case "get":
            target = await _target(context, args)
            found = await context.client.get(target.gvk, target.name, namespace=target.namespace)
            return {**await _output_of(context, found), "object": found}
        case _:
            return await _delete(context, await _target(context, args), seconds_of(args, "timeout", DELETE_SECONDS))


def _spec(args: Arguments) -> Any:
    given = args.get("spec")
    if isinstance(given, str):
        try:
            given = load(given)
        except YamlError as error:
            raise ArgumentInvalid(f'{args.of}: argument "spec" is neither YAML nor JSON: {error}') from error
    if not isinstance(given, dict | list) or not given:
        raise ArgumentInvalid(f'{args.of}: argument "spec" is needed for this operation')
    return given


async def _target(context: PhaseContext, args: Arguments) -> Reference:
    namespace = args.text("namespace", "default")
    return await reference(context, args.table("objectReference"), of=args.of, namespace=namespace)


async def _written(context: PhaseContext, spec: Any, args: Arguments, *, apply: bool) -> Object:
    if not isinstance(spec, dict) or not spec.get("kind") or not spec.get("apiVersion"):
        raise ArgumentInvalid(f'{args.of}: argument "spec" must be an object with apiVersion and kind')
    kind = await context.client.kind(gvk_of(spec))
    metadata = dict(spec.get("metadata") or {})
    if kind.namespaced:
        metadata["namespace"] = args.text("namespace", "") or metadata.get("namespace") or "default"
    obj = {**spec, "metadata": metadata}
    if apply:
        return await context.client.apply(obj, manager=MANAGER, force=True)
    return await context.client.create(obj, manager=MANAGER)


async def _patched(context: PhaseContext, target: Reference, args: Arguments) -> Object:
    body, wanted = _spec(args), args.text("patchType", "strategic")
    if wanted not in _PATCHES:
        raise ArgumentInvalid(f'{args.of}: patchType "{wanted}" is not one of {", ".join(_PATCHES)}')
    tries = [_PATCHES[wanted]]
    if "patchType" not in args:
        tries.append(PatchType.MERGE)
    for attempt in tries:
        try:
            return await context.client.patch(
                target.gvk, target.name, Patch(attempt, body), namespace=target.namespace, manager=MANAGER
            )
        except UnsupportedMediaType:
            if attempt is tries[-1]:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


async def _delete(context: PhaseContext, target: Reference, seconds: float) -> dict[str, Any]:
    """Delete, and wait until it is gone: finalizers may take their time. What is not there is deleted already."""
    uid = ""

    async def gone() -> bool:
        try:
            found = await context.client.get(target.gvk, target.name, namespace=target.namespace)
        except NotFound:
            return True
        return uid_of(found) != uid

    kind = await context.client.kind(target.gvk)
    output = _fields(kind.group, kind.version, kind.plural, kind.kind, target.name, target.namespace)
    try:
        found = await context.client.get(target.gvk, target.name, namespace=target.namespace)
        uid = uid_of(found)
        await context.client.delete(target.gvk, target.name, namespace=target.namespace, uid=uid)
    except NotFound:
        return output
    await until(context, [target], gone, seconds=seconds, what=lambda: f"{target} is gone")
    return output


async def _output_of(context: PhaseContext, obj: Object) -> dict[str, Any]:
    kind = await context.client.kind(gvk_of(obj))
    namespace = namespace_of(obj)
    return _fields(kind.group, kind.version, kind.plural, kind.kind, name_of(obj), namespace)


def _fields(group: str, version: str, resource: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "group": group,
        "resource": resource,
        "kind": kind,
        "name": name,
        "namespace": namespace,
    }
