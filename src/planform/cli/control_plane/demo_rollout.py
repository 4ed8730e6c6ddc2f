"""The last act of `planform demo`: a policy, a fleet of fifty, a bad change that is stopped, and a good one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import click

from planform.api.conditions import is_true
from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ROLLOUT, XRD
from planform.api.rollouts import FINAL
from planform.apimachinery import yaml_loader
from planform.cli.output import is_terminal
from planform.cli.rollouts.drawing import phase_of, picture
from planform.client import Client

SITE: Final = GroupVersionKind("demo.planform.dev", "v1", "Site")
_SITES: Final = 50
_MANAGER: Final = "demo"
_PLATFORM: Final = """
apiVersion: apiextensions.crossplane.io/v2
kind: CompositeResourceDefinition
metadata: {name: sites.demo.planform.dev}
spec:
  group: demo.planform.dev
  names: {kind: Site, plural: sites}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      referenceable: true
      schema:
        openAPIV3Schema: {type: object, properties: {spec: {type: object}}}
---
apiVersion: rollout.planform.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: sites}
spec:
  for: {compositions: {names: [site]}}
  waves:
    - {name: canary, max: 5}
    - {name: everybody, percent: [50, 100]}
"""


async def roll_out_in_waves(client: Client, *, step: Callable[[str], None], done: Callable[[str], None]) -> None:
    step(f"Now a fleet: {_SITES} Sites, and a RolloutPolicy with a canary of five")
    xrd, policy = yaml_loader.load_all(_PLATFORM)
    await client.create(xrd)
    await _until(lambda: _is_established(client))
    await client.apply(_composition("hello"), manager=_MANAGER)
    for number in range(_SITES):
        metadata = {"name": f"site-{number:02}", "namespace": "default"}
        await client.create({"apiVersion": SITE.api_version, "kind": SITE.kind, "metadata": metadata, "spec": {}})
    await _until(lambda: _are_ready(client))
    await client.apply(policy, manager=_MANAGER)
    done(f"{_SITES} Sites are ready")
    # That Sites fail is what is shown here, and shown better than the log does.
    logging.getLogger("planform.reconcile.controller").setLevel(logging.CRITICAL)
    step("A change that no Site gets on with: five of them try it, and everybody is back by itself")
    await client.apply(_composition("broken", check='fail("this change is broken")'), manager=_MANAGER)
    await _follow(client, 2)
    step("A good change goes through, wave by wave")
    await client.apply(_composition("hello, world"), manager=_MANAGER)
    await _follow(client, 3)


def _composition(text: str, *, check: str = "pass") -> Object:
    script = {
        "step": "page",
        "functionRef": {"name": "function-starlark"},
        "input": {
            "apiVersion": "starlark.fn.planform.dev/v1",
            "kind": "StarlarkScript",
            "script": _TEXT.format(text=text, check=check),
        },
    }
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": "site"},
        "spec": {
            "compositeTypeRef": {"apiVersion": SITE.api_version, "kind": SITE.kind},
            "mode": "Pipeline",
            "pipeline": [script],
        },
    }


_TEXT: Final = """
def main(req):
    {check}
    page = {{"apiVersion": "v1", "kind": "ConfigMap", "data": {{"text": "{text}"}}}}
    return {{"desired": {{"resources": {{"page": {{"resource": page, "ready": True}}}}}}}}
"""


async def _is_established(client: Client) -> bool:
    return is_true(await client.get(XRD, "sites.demo.planform.dev"), "Established")


async def _are_ready(client: Client) -> bool:
    listed = await client.list(SITE)
    return len(listed.items) == _SITES and all(is_true(xr, "Ready") for xr in listed.items)


async def _follow(client: Client, number: int) -> None:
    """Show the Rollout of the Composition's revision of this number until it has ended."""
    drawn, last = 0, ""
    while True:
        found = next((each for each in (await client.list(ROLLOUT)).items if _number(each) == number), None)
        if found is not None:
            lines = list(picture(found, datetime.now(UTC)))
            if is_terminal():
                back = f"\x1b[{drawn}F\x1b[J" if drawn else ""
                click.echo(back + "\n".join(f"  {line}" for line in lines))
                drawn = len(lines)
            elif phase_of(found) != last:
                last = phase_of(found)
                click.echo("\n".join(f"  {line}" for line in lines))
            if phase_of(found) in FINAL:
                return
        await asyncio.sleep(0.1)


def _number(rollout: Object) -> int:
    return int(rollout["spec"]["changes"][0]["toNumber"])


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await check():
            return
        await asyncio.sleep(0.05)
