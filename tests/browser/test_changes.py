"""Rollouts and Previews in a real browser as their controllers make them: nothing of a status is written by hand."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from playwright.sync_api import Locator, Page, expect

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import COMPOSITION_REVISION, ROLLOUT, ROLLOUT_POLICY
from planform.client.kubernetes import KubernetesClient
from tests.browser import platform
from tests.browser.looking import Site
from tests.browser.served import apply, until_revised, until_served

pytestmark = [pytest.mark.programs, pytest.mark.xdist_group("browser")]
CACHE = GroupVersionKind(platform.GROUP, "v1", "Cache")
XRS = 6
CANARIES = 2
PATIENCE = 60_000


def composition(name: str, version: str) -> Object:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": version}}
    resource = {"name": "settings", "base": settings, "readinessChecks": [{"type": "None"}]}
    resources = {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": [resource]}
    pipeline = [
        {"step": "render", "functionRef": {"name": "function-patch-and-transform"}, "input": resources},
        {"step": "ready", "functionRef": {"name": "function-auto-ready"}},
    ]
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": name},
        "spec": {
            "compositeTypeRef": {"apiVersion": CACHE.api_version, "kind": CACHE.kind},
            "mode": "Pipeline",
            "pipeline": pipeline,
        },
    }


def policy(name: str) -> Object:
    waves = [
        {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}, "soak": "3s"},
        {"name": "others", "xrs": {"matchLabels": {"canary": "false"}}, "soak": "10m"},
    ]
    spec = {"for": {"compositions": {"names": [name]}}, "start": "Automatic", "waves": waves}
    return {
        "apiVersion": ROLLOUT_POLICY.api_version,
        "kind": ROLLOUT_POLICY.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def fleet(client: KubernetesClient, name: str) -> None:
    """XRs that run the first version of a Composition of their own."""
    await apply(client, platform._xrd("Cache", "caches"))
    await until_served(client, CACHE)
    await apply(client, composition(name, "1"))
    for number in range(XRS):
        labels = {"canary": str(number < CANARIES).lower(), "fleet": name}
        metadata = {"name": f"{name}-{number}", "namespace": "team-a", "labels": labels}
        spec = {"crossplane": {"compositionRef": {"name": name}}}
        await apply(client, {"apiVersion": CACHE.api_version, "kind": CACHE.kind, "metadata": metadata, "spec": spec})
    await until_revised(client, CACHE, XRS)


async def on_revisions(client: KubernetesClient, name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in (await client.list(CACHE)).items:
        if each["metadata"]["labels"]["fleet"] != name:
            continue
        revision = each["spec"]["crossplane"]["compositionRevisionRef"]["name"]
        found[revision] = found.get(revision, 0) + 1
    return found


async def held(client: KubernetesClient, name: str) -> None:
    """Wait until the policy has been heard of: the revision that there is counts as released then."""
    deadline = time.monotonic() + 30
    while True:
        listed = (await client.list(COMPOSITION_REVISION)).items
        ours = [each for each in listed if each["metadata"]["labels"]["crossplane.io/composition-name"] == name]
        conditions = [each for found in ours for each in (found.get("status") or {}).get("conditions", ())]
        if any(each["type"] == "Released" and each["status"] == "True" for each in conditions):
            return
        assert time.monotonic() < deadline, conditions
        await asyncio.sleep(0.1)


async def rollout_of(client: KubernetesClient, name: str) -> str:
    deadline = time.monotonic() + 30
    while True:
        listed = (await client.list(ROLLOUT)).items
        for each in listed:
            if each["spec"]["changes"][0]["composition"] == name and each["spec"]["changes"][0].get("from"):
                return str(each["metadata"]["name"])
        assert time.monotonic() < deadline, [each["metadata"]["name"] for each in listed]
        await asyncio.sleep(0.1)


def wave(page: Page, name: str) -> Locator:
    return page.locator(".ladder .wave").filter(has=page.locator("b", has_text=re.compile(f"^{name}$")))


def test_rollout_moves_up_the_ladder_and_is_aborted_by_the_page(site: Site) -> None:
    client, before = site.served.client, len(site.problems)
    site.run(fleet(client, "rolled"))
    site.run(apply(client, policy("rolled")))
    site.run(held(client, "rolled"))
    first = site.run(on_revisions(client, "rolled"))
    page = site.page("rollouts")
    expect(page.locator("h1")).to_contain_text("Rollouts")
    site.run(apply(client, composition("rolled", "2")))
    name = site.run(rollout_of(client, "rolled"))
    page.get_by_role("link", name=name).first.click()
    expect(page.locator("h1")).to_contain_text(name)
    canary, others = wave(page, "canary"), wave(page, "others")
    expect(canary).to_contain_text(f"{CANARIES} ready", timeout=PATIENCE)
    expect(canary).to_contain_text("Finished", timeout=PATIENCE)
    expect(others).to_contain_text("Soaking", timeout=PATIENCE)
    expect(others).to_contain_text(f"{XRS - CANARIES} ready")
    expect(page.locator(".tile").first).to_contain_text(f"{XRS} of {XRS}")
    page.get_by_role("button", name="Abort").click()
    page.get_by_role("textbox", name="Reason").fill("the cache misses")
    page.get_by_role("dialog").get_by_role("button", name="Abort", exact=True).click()
    expect(page.locator(".title")).to_contain_text("Aborted", timeout=PATIENCE)
    done = page.locator(".card").filter(has_text="What was done")
    expect(done).to_contain_text("Abort")
    expect(done).to_contain_text("by planform-admin")
    expect(done).to_contain_text("the cache misses")
    assert site.run(on_revisions(client, "rolled")) == first
    assert site.problems[before:] == []
    page.context.close()


def test_preview_that_the_page_asks_for_shows_its_class_and_the_diff(site: Site) -> None:
    client, before = site.served.client, len(site.problems)
    site.run(fleet(client, "previewed"))
    waits = policy("previewed")
    waits["spec"]["start"] = "Manual"  # so that the revision waits, and there is something to preview
    site.run(apply(client, waits))
    site.run(held(client, "previewed"))
    site.run(apply(client, composition("previewed", "2")))
    site.run(rollout_of(client, "previewed"))
    page = site.page("composition/previewed")
    page.get_by_role("button", name="Preview the newest").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("planform preview --revision previewed/")
    dialog.get_by_role("button", name="Preview the newest").click()
    expect(dialog).to_be_hidden()
    page.goto(site.served.base + "previews")
    page.get_by_role("link", name=re.compile("^previewed-")).first.click()
    expect(page.locator("h1")).to_contain_text(f"0 unchanged, {XRS} changed", timeout=PATIENCE)
    expect(page.locator(".title")).to_contain_text("Complete")
    change = page.locator(".card").filter(has_text="data.version").first
    expect(change).to_contain_text(f"{XRS} XRs")
    expect(change).to_contain_text("settings")
    expect(change.get_by_role("link").first).to_have_attribute(
        "href", re.compile(f"xr/Cache.{platform.GROUP}/team-a/previewed-")
    )
    diff = change.locator(".diff")
    expect(diff).to_contain_text("data.version: 1")
    expect(diff).to_contain_text("data.version: 2")
    assert site.problems[before:] == []
    page.context.close()
