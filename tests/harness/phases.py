"""One run of a phase function, as a blueprint's phase would make it: rendered over parameters, with its log kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from planform.blueprints.arguments import Arguments
from planform.blueprints.calling import call
from planform.blueprints.contract import Engine, PhaseContext, PhaseEnvironment, PhaseFunction, Progress
from planform.blueprints.functions import Policy, builtin_functions
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.blueprints.rendering import Templates
from planform.client.protocol import Client
from planform.clock import Clock, SystemClock


@dataclass
class PhaseRunner:
    """Calls built-in functions. Without a client only those can run that touch no objects."""

    client: Client | None = None
    clock: Clock = field(default_factory=SystemClock)
    here: PhaseEnvironment = field(default_factory=PhaseEnvironment)
    params: dict[str, Any] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    namespace: str = "default"
    uid: str = "11111111-2222-3333-4444-555555555555"
    log: list[str] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = PhaseFunctionRegistry(plugins=lambda: ())
        self.registry.register(builtin_functions(self.policy))

    def function(self, name: str, version: str = "v0.0.0") -> PhaseFunction:
        found = self.registry.find(name, version)
        assert found is not None, f"{name} {version} is not registered"
        return found

    async def run(self, name: str, version: str = "v0.0.0", /, *, phase: str = "phase", **args: Any) -> dict[str, Any]:
        """The function's output; arguments are rendered over the parameters unless it renders them itself."""
        function = self.function(name, version)
        templates = Templates(lambda: self.clock.now().timestamp())

        def render(value: Any, *, data: Any = None, missing_key: str = "error") -> Any:
            return templates.render(value, self.params if data is None else data, missing_key=missing_key)

        context = PhaseContext(
            client=cast(Client, self.client),
            clock=self.clock,
            here=self.here,
            function=name,
            version=version,
            actionset="run",
            namespace=self.namespace,
            uid=self.uid,
            action="act",
            phase=phase,
            params=self.params,
            renderer=render,
            on_log=self.log.append,
            on_progress=self.progress.append,
        )
        given = args if function.renders_itself else render(args)
        output = await call(function, context, Arguments(given, of=function.title), None)
        return dict(output or {})


def file_profile(path: str, prefix: str = "") -> dict[str, Any]:
    """A profile as templates and functions see it: a directory."""
    location = {"Type": "fileSystem", "Path": path, "Bucket": "", "Endpoint": "", "Prefix": prefix, "Region": ""}
    return {"Location": location, "Credential": {"Type": "", "KeyPair": None, "Secret": None}, "SkipSSLVerify": False}


def s3_profile(endpoint: str, key: str, secret: str, *, bucket: str = "backups", prefix: str = "") -> dict[str, Any]:
    """A profile as templates and functions see it: a bucket."""
    location: Mapping[str, str] = {
        "Type": "s3Compliant",
        "Bucket": bucket,
        "Endpoint": endpoint,
        "Prefix": prefix,
        "Region": "eu-test-1",
    }
    credential = {"Type": "keyPair", "KeyPair": {"ID": key, "Secret": secret}, "Secret": None}
    return {"Location": location, "Credential": credential, "SkipSSLVerify": False}


def surroundings(engine: Engine = "embedded", **more: Any) -> PhaseEnvironment:
    return PhaseEnvironment(engine=engine, **more)
