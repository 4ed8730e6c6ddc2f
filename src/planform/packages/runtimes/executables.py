"""What a revision is run from, and how its users want it run. Values only; nothing is started here.

A package's files lie unpacked in a directory. Its entrypoint is an argument list as images have it: a path is looked up
in the package first, and `python` is the interpreter that runs the control plane.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Final

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.apimachinery.quantity import parse_quantity
from planform.errors import PlanformError

RUNTIME_CONTAINER: Final = "package-runtime"
WEBHOOK_PORT: Final = 9443
"""Where providers serve webhooks, and functions their calls, in a pod of their own."""
_WEBHOOK: Final = "webhook"
_PYTHONS: Final = ("python", "python3")
_ROOT: Final = "{root}"
_MAX_REPLICAS: Final = 32
NETWORK_ANNOTATION: Final = "planform.dev/function-network"
"""Of a DeploymentRuntimeConfig: `host` or `none`, whatever `--function-network` says."""
NO_SHARE: Final = "resources.limits.cpu (no cgroup is ours to divide; limit the service that planform runs as)"
"""A process can be limited in how long it computes in all, which would end a server. A share of the CPU takes a cgroup,
and that of a service is ours to divide only if it was delegated, and nothing runs in it but what we put below."""
_IGNORED: Final = "of its DeploymentRuntimeConfig, this does not apply on this machine: "
_IN_DIRECTORY: Final = ("/bin/sh", "-c", 'cd "$0" && exec "$@"')


class NotRunnable(PlanformError):
    """A package cannot be run here; the message says why."""

    reason = "NotRunnable"


class Way(StrEnum):
    """How a package's program runs on this machine."""

    PROCESS = "process"
    ONESHOT = "oneshot"
    """Started for each call: request on standard input, response on standard output."""
    CONTAINER = "container"
    CONTAINER_ONESHOT = "container-oneshot"

    @property
    def is_oneshot(self) -> bool:
        return self in (Way.ONESHOT, Way.CONTAINER_ONESHOT)

    @property
    def is_container(self) -> bool:
        return self in (Way.CONTAINER, Way.CONTAINER_ONESHOT)


@dataclass(frozen=True, slots=True)
class Executable:
    """The program of a package. In values of `environment`, `{root}` stands for the directory of its files.

    Without a `working_directory`, a process starts in a scratch directory, the only one that it may write to.
    """

    way: Way
    root: Path
    entrypoint: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""

    def command(self) -> list[str]:
        """The entrypoint as this machine runs it. Raises NotRunnable."""
        if not self.entrypoint:
            raise NotRunnable("the package does not say which program to run: its image has no entrypoint")
        program, *rest = self.entrypoint
        found = [self._program(program), *rest]
        return [*_IN_DIRECTORY, self.working_directory, *found] if self.working_directory else found

    def variables(self) -> dict[str, str]:
        return {name: value.replace(_ROOT, str(self.root)) for name, value in self.environment.items()}

    def _program(self, program: str) -> str:
        if program in _PYTHONS or program == sys.executable:
            return sys.executable
        if Path(program).is_relative_to(self.root):
            program = str(Path(program).relative_to(self.root))
        inside = [PurePosixPath(program.lstrip("/"))]
        if "/" not in program:
            inside = [PurePosixPath(place, program) for place in ("bin", "usr/bin", "usr/local/bin", ".")]
        for path in inside:
            found = self.root / path
            if ".." not in path.parts and found.is_file():
                return str(found)
        raise NotRunnable(f'the package has no file "{program}" to run')


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """What of a DeploymentRuntimeConfig applies to programs on this machine.

    `ignored` names what does not; as it makes no difference to a program, settings are equal that differ only there.
    """

    replicas: int = 1
    args: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    memory: int | None = None
    cpus: float | None = None
    network: str = ""
    """`host` or `none`; empty for what the control plane has for all."""
    webhook_port: int = WEBHOOK_PORT
    """Where a provider serves webhooks: the port that is named so."""
    ignored: tuple[str, ...] = field(default=(), compare=False)

    def remark(self, *, shares_cpu: bool) -> str:
        """What users should know of it; empty if everything applies. `shares_cpu` says whether CPU can be limited."""
        ignored = [*self.ignored, *([NO_SHARE] if self.cpus is not None and not shares_cpu else [])]
        return _IGNORED + ", ".join(ignored) if ignored else ""

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> RuntimeSettings:
        """Read it from the object; raises NotRunnable for a value that means nothing."""
        template = (config or {}).get("spec") or {}
        spec = (template.get("deploymentTemplate") or {}).get("spec") or {}
        pod = (spec.get("template") or {}).get("spec") or {}
        containers: Sequence[Object] = pod.get("containers") or ()
        runtime = next((each for each in containers if each.get("name") == RUNTIME_CONTAINER), {})
        replicas = spec.get("replicas", 1)
        if not isinstance(replicas, int) or not 0 <= replicas <= _MAX_REPLICAS:
            raise NotRunnable(f"a runtime configuration may ask for 0 to {_MAX_REPLICAS} replicas, not {replicas!r}")
        variables = runtime.get("env") or ()
        ignored = [
            *_ignored_of_container(runtime, variables),
            *(["containers beside package-runtime"] if len(containers) > (1 if runtime else 0) else []),
            *(f"{name} of the pod" for name in _others(pod, "containers")),
            *(f"{name} of the deployment" for name in _others(spec, "replicas", "selector", "template")),
            *_others(template, "deploymentTemplate"),
        ]
        return cls(
            replicas,
            tuple(map(str, runtime.get("args") or ())),
            tuple((str(each["name"]), str(each.get("value") or "")) for each in variables if "valueFrom" not in each),
            _memory(runtime),
            _cpus(runtime),
            network_in(config or {}),
            _webhook_port(runtime),
            tuple(ignored),
        )


def _memory(runtime: Mapping[str, Any]) -> int | None:
    limit = ((runtime.get("resources") or {}).get("limits") or {}).get("memory")
    if limit is None:
        return None
    try:
        return parse_quantity(limit).value
    except ValueError as error:
        raise NotRunnable(f"the memory limit {limit!r} of the runtime configuration is no quantity") from error


def _cpus(runtime: Mapping[str, Any]) -> float | None:
    limit = ((runtime.get("resources") or {}).get("limits") or {}).get("cpu")
    if limit is None:
        return None
    try:
        return parse_quantity(limit).milli_value / 1000
    except ValueError as error:
        raise NotRunnable(f"the CPU limit {limit!r} of the runtime configuration is no quantity") from error


def _webhook_port(runtime: Mapping[str, Any]) -> int:
    named = [each.get("containerPort") for each in runtime.get("ports") or () if each.get("name") == _WEBHOOK]
    port = named[0] if named else WEBHOOK_PORT
    if not isinstance(port, int) or not 0 < port < 1 << 16:
        raise NotRunnable(f"the port {_WEBHOOK} of the runtime configuration must be from 1 to 65535, not {port!r}")
    return port


def network_in(config: Mapping[str, Any]) -> str:
    """What a DeploymentRuntimeConfig says of the network; empty if nothing. Raises NotRunnable."""
    given = annotations_of(config).get(NETWORK_ANNOTATION, "")
    if given not in ("", "host", "none"):
        raise NotRunnable(
            f"the annotation {NETWORK_ANNOTATION} of the runtime configuration is host or none, not {given}"
        )
    return str(given)


def _ignored_of_container(runtime: Mapping[str, Any], variables: Iterable[Object]) -> Iterator[str]:
    yield from _others(runtime, "name", "args", "env", "resources", "ports")
    if any(each.get("name") != _WEBHOOK for each in runtime.get("ports") or ()):
        yield f"ports beside {_WEBHOOK}"
    if any("valueFrom" in each for each in variables):
        yield "env.valueFrom"
    resources = runtime.get("resources") or {}
    for name in _others(resources.get("limits") or {}, "memory", "cpu"):
        yield f"resources.limits.{name}"
    yield from (f"resources.{name}" for name in _others(resources, "limits"))


def _others(given: Mapping[str, Any], *applied: str) -> list[str]:
    """What is given beside what applies."""
    return sorted(name for name, value in given.items() if value and name not in applied)
