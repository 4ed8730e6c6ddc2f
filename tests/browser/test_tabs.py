"""Many tabs of one browser: they share one stream, since a browser keeps six connections to a server."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import platform
from tests.browser.looking import Site
from tests.browser.test_screens import annotate

pytestmark = [pytest.mark.programs, pytest.mark.xdist_group("browser")]
TABS = 8
XR = f"xr/Database.{platform.GROUP}/team-c/ledger"


def shown(page: Page) -> Locator:
    """Where a tab says how the XR is: in its row, or in its title."""
    return page.locator(".xr[role=option]" if "?q=" in page.url else ".title").first


def test_screens_of_eight_tabs_of_one_browser_are_all_live(site: Site) -> None:
    before = len(site.problems)
    context = site.context()
    pages = []
    for number in range(TABS):
        page = context.new_page()
        site.listen(page)
        page.goto(site.served.base + ("?q=ledger" if number % 2 else XR))
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator(".live")).to_contain_text("Live")
        pages.append(page)
    annotate(site, "ledger", "team-c", "true")
    for page in pages:
        expect(shown(page)).to_contain_text("Paused", timeout=10_000)
    pages[0].close()  # whichever tab goes, the others stay live
    annotate(site, "ledger", "team-c", None)
    for page in pages[1:]:
        expect(shown(page)).not_to_contain_text("Paused", timeout=10_000)
    pages[2].goto(site.served.base + "functions")
    expect(pages[2].locator("h1")).to_contain_text("Functions")
    expect(pages[2].locator(".live")).to_contain_text("Live")
    assert site.problems[before:] == []
    context.close()
