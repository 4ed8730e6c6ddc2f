"""The phase functions that come with planform, one module for each family.

basics         Echo, Sleep, Fail
tasks          KubeTask, PrepareData, MultiContainerRun: commands in pods, containers or processes
commands       KubeExec, KubeExecAll: commands in containers that run already
waiting        Wait, WaitV2
objects        KubeOps
scaling        ScaleWorkload
http_request   HTTPRequest
data           BackupData, RestoreData, CopyVolumeData, DeleteData, BackupDataStats, CheckRepository, LocationDelete
data_all       BackupDataAll, RestoreDataAll, DeleteDataAll
postgres       PostgresBackup, PostgresRestore
elsewhere      names of functions that cannot run here, and why

Below them: `markers` and `durations` read what users write; `processes`, `containers`, `pods` and `cluster` run
commands; `observing` waits for objects; `backups`, `archives`, `repository`, `locations` and `s3` keep data; `policy`
is what the operator opens to phases.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Final

from planform.blueprints.contract import DECLARED, PhaseFunction
from planform.blueprints.functions.policy import Policy

__all__ = ["Policy", "builtin_functions"]

FAMILIES: Final = (
    "basics",
    "tasks",
    "commands",
    "waiting",
    "objects",
    "scaling",
    "http_request",
    "data",
    "data_all",
    "postgres",
)


def builtin_functions(policy: Policy | None = None) -> tuple[PhaseFunction, ...]:
    """All of them, for `PhaseFunctionRegistry.register`; the policy is by default what the environment says."""
    allowed = Policy.from_environment() if policy is None else policy
    elsewhere = import_module("planform.blueprints.functions.unsupported").FUNCTIONS
    return (*(_bound(each, allowed) for family in FAMILIES for each in _declared(family)), *elsewhere)


def _declared(family: str) -> Iterator[PhaseFunction]:
    module = import_module(f"planform.blueprints.functions.{family}")
    for value in vars(module).values():
        if getattr(value, "__module__", "") == module.__name__:
            yield from getattr(value, "__dict__", {}).get(DECLARED, ())


def _bound(function: PhaseFunction, policy: Policy) -> PhaseFunction:
    """The function, with the policy where it asks for one."""
    if "policy" not in inspect.signature(function.run).parameters:
        return function
    return replace(function, run=partial(function.run, policy=policy))
