"""One control plane, one dashboard and one chromium for all browser tests of a worker.

Every byte that the dashboard's server sends to any page is looked through for canary secrets, whatever a test is about.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, sync_playwright

from tests.browser import platform
from tests.browser.screenshots import chromium
from tests.browser.served import Served, served

T = TypeVar("T")


@dataclass
class Background:
    """An event loop in a thread, for the programs that browser tests look at."""

    loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 120.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)


@dataclass
class Site:
    """What a test looks at, and with."""

    served: Served
    background: Background
    browser: Browser
    directory: Path
    cookies: list[Any]
    problems: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.background.run(work)

    def context(self, *, scheme: str = "light", logged_in: bool = True, **more: Any) -> BrowserContext:
        context = self.browser.new_context(color_scheme=scheme, reduced_motion="reduce", **more)  # type: ignore[arg-type]
        if logged_in:
            context.add_cookies(self.cookies)
        return context

    def page(self, path: str = "", **how: Any) -> Page:
        page = self.context(**how).new_page()
        self.listen(page)
        page.goto(self.served.base + path)
        return page

    def listen(self, page: Page) -> None:
        def console(message: Any) -> None:
            if message.type == "error":
                self.problems.append(f"{page.url}: {message.text}")

        def answered(response: Response) -> None:
            kind = response.headers.get("content-type", "")
            if "event-stream" in kind:
                return  # never over; the tests of secrets read streams by themselves
            try:
                body = response.body()
            except Exception:  # a page that was closed meanwhile has no bodies any more
                return
            if platform.CANARY.encode() in body:
                self.leaks.append(response.url)

        page.on("console", console)
        page.on("pageerror", lambda error: self.problems.append(f"{page.url}: {error}"))
        page.on("response", answered)


# Not for the session: Playwright keeps an event loop running in this thread, beside which no test of asyncio can run.
@pytest.fixture(scope="package")
def background() -> Iterator[Background]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield Background(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.fixture(scope="package")
def site(background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("browser")
    manager = served(directory)
    found = background.run(manager.__aenter__())
    try:
        with sync_playwright() as tools:
            browser = tools.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            context = browser.new_context()
            page = context.new_page()
            page.goto(found.login)
            page.wait_for_selector(".xr[role=option]")
            cookies = context.cookies()
            context.close()
            result = Site(found, background, browser, directory, cookies)
            yield result
            browser.close()
            assert result.leaks == [], "a canary secret was sent to a browser"
    finally:
        background.run(manager.__aexit__(None, None, None))
