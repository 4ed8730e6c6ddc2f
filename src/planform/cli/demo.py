"""`planform demo`: a control plane at work before your eyes, in seconds, leaving nothing behind."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from planform.api.kinds import Object, gvk
from planform.client import Client
from planform.errors import ApplyConflict, Invalid

_CRD = gvk("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_SITE = gvk("demo.planform.dev/v1", "Site")

_DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sites.demo.planform.dev"},
    "spec": {
        "group": "demo.planform.dev",
        "scope": "Namespaced",
        "names": {"plural": "sites", "kind": "Site"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["domain"],
                                "properties": {
                                    "domain": {"type": "string", "pattern": "^[a-z.]+$"},
                                    "replicas": {"type": "integer", "minimum": 1, "default": 2},
                                    "theme": {"type": "string"},
                                },
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "self.replicas <= 5 || self.domain.endsWith('.org')",
                                        "message": "more than five replicas are for .org domains",
                                    }
                                ],
                            },
                            "status": {"type": "object", "properties": {"url": {"type": "string"}}},
                        },
                    }
                },
            }
        ],
    },
}


@click.command()
def demo() -> None:
    """Watch a control plane work, in a minute and without leaving a trace.

    Starts an ephemeral control plane, teaches it a new kind, and shows defaults, validation, watches, ownership of
    fields and garbage collection.
    """
    from planform.app import run_loop
    from planform.telemetry.logs import set_up_logging

    set_up_logging(sys.stderr, level="error", format="text")
    run_loop(_demo())


async def _demo() -> None:
    from planform.app import Settings, open_control_plane

    _step("Starting an ephemeral control plane")
    async with open_control_plane(Settings(data=None)) as plane:
        _done(f"ready at {plane.url} after {plane.started_in:.2f} s; kubectl would use {plane.kubeconfig}")
        seen: list[str] = []
        await _teach(plane.client)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_watch(plane.client, seen))
            await _objects(plane.client)
            await _ownership(plane.client)
            await _garbage(plane.client)
            watching.cancel()
        _step("What a watch saw meanwhile, each change once and in order")
        for line in seen:
            _done(line)
    click.secho("\nDone. Next: `planform up`, then `planform apply -f FILE` or any Kubernetes client.", bold=True)


async def _teach(client: Client) -> None:
    _step("Teaching it a new kind: Site, with a default, a pattern and a CEL rule")
    await client.create(_DEFINITION)
    async with client.watch(_CRD, fields="metadata.name=sites.demo.planform.dev") as changes:
        async for change in changes:
            conditions = change.object.get("status", {}).get("conditions", [])
            if any(found["type"] == "Established" and found["status"] == "True" for found in conditions):
                break
    _done("sites.demo.planform.dev is established and served")


async def _objects(client: Client) -> None:
    _step("Creating objects")
    blog = await client.create(_site("blog", domain="blog.example.org"))
    _done(f"site/blog created; replicas defaulted to {blog['spec']['replicas']}")
    try:
        await client.create(_site("shop", domain="shop.example.com", replicas=9))
    except Invalid as refusal:
        _done(f"site/shop refused: {refusal.causes[0]['message']}")
    blog["status"] = {"url": "https://blog.example.org"}
    await client.update(blog, subresource="status")
    _done("site/blog has a status, written apart from its spec")


async def _ownership(client: Client) -> None:
    _step("Two managers, one object: server-side apply knows who owns which field")
    await client.apply(_site("blog", domain="blog.example.org", theme="dark"), manager="designer")
    _done('"designer" applied theme=dark')
    try:
        await client.apply(_site("blog", domain="blog.example.org", theme="light"), manager="marketing")
    except ApplyConflict as conflict:
        _done(f'"marketing" wanted theme=light: {conflict.causes[0]["message"]} on {conflict.causes[0]["field"]}')
    await client.apply(_site("blog", domain="blog.example.org", theme="light"), manager="marketing", force=True)
    _done('"marketing" forced it, and owns the field now')


async def _garbage(client: Client) -> None:
    _step("Deleting an owner takes what it owns with it")
    blog = await client.get(_SITE, "blog", namespace="default")
    owner = {key: blog[key] for key in ("apiVersion", "kind")} | {key: blog["metadata"][key] for key in ("name", "uid")}
    page: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "blog-page", "namespace": "default", "ownerReferences": [owner]},
        "data": {"index.html": "<h1>Hello</h1>"},
    }
    await client.create(page)
    async with client.watch(gvk("v1", "ConfigMap"), fields="metadata.name=blog-page") as changes:
        await client.delete(_SITE, "blog", namespace="default")
        async for change in changes:
            if change.type == "DELETED":
                break
    _done("site/blog deleted, configmap/blog-page followed")


async def _watch(client: Client, seen: list[str]) -> None:
    async with client.watch(_SITE) as events:
        async for event in events:
            metadata = event.object["metadata"]
            seen.append(f"{event.type:9}site/{metadata['name']} at resource version {metadata['resourceVersion']}")


def _site(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": _SITE.api_version,
        "kind": "Site",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def _step(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _done(text: str) -> None:
    click.echo(click.style("  ✓ ", fg="green") + text)
