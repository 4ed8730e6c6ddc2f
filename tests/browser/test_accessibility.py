"""For everybody: axe finds nothing serious on any screen in either theme, and a keyboard is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser import platform
from tests.browser.looking import Site
from tests.browser.test_screens import SCREENS

pytestmark = [pytest.mark.programs, pytest.mark.xdist_group("browser")]
AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SCREENS)
def test_axe_finds_nothing_serious(site: Site, name: str, scheme: str) -> None:
    path, title = SCREENS[name]
    page = site.page(path, scheme=scheme)
    expect(page.locator("h1")).to_contain_text(title)
    page.wait_for_timeout(300)
    page.evaluate(AXE.read_text())  # by the tools' protocol, which the page's policy does not bind
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
    serious = [
        f"{each['id']}: {each['nodes'][0]['html'][:160]} {each['nodes'][0].get('failureSummary', '')[:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    page.context.close()
    assert serious == []


def test_keyboard_alone_finds_the_broken_xr_sees_why_and_aborts_the_rollout(site: Site) -> None:
    page = site.page()
    page.wait_for_selector(".xr[role=option]")
    page.keyboard.press("/")
    page.keyboard.type("invoices")
    expect(page.locator("#found-0")).to_contain_text("invoices")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("invoices")
    expect(page.locator("main")).to_contain_text("database-typo")
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page.locator("h1")).to_contain_text("Rollouts")
    expect(page.locator("main tbody a").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("database-r3")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.action") == "Abort":
            break
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]").first).to_contain_text("database-r3")
    page.keyboard.type("p99 doubled")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.type") == "submit":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("Abort of Rollout database-r3 is recorded")
    page.context.close()


def test_keyboard_moves_through_the_fleet_and_help_says_how(site: Site) -> None:
    page = site.page()
    page.wait_for_selector(".xr[role=option]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator(".xr[aria-selected=true]")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".crumbs")).to_contain_text("Fleet")
    page.keyboard.press("?")
    expect(page.locator("dialog[open]").first).to_contain_text("Keyboard")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.locator("h1")).to_contain_text("Fleet")
    page.context.close()


def test_keyboard_walks_the_tree(site: Site) -> None:
    page = site.page(f"xr/Site.{platform.GROUP}/team-a/shop")
    page.locator("[role=treeitem]").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[role=treeitem]")).to_have_count(1)
    page.context.close()
