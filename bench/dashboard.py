"""The dashboard in a real browser on a fleet: how soon it shows something, and what it costs while nothing happens.

    python -m bench dashboard [--xrs 1000] [--dashboards 10] [--rest 20] [--rows 10000] [--quick]

Control plane and dashboard are programs of their own, on loopback. Needs chromium and Playwright.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright
from tests.browser import platform
from tests.browser.screenshots import chromium
from tests.browser.served import DATABASE, Served, served

from bench.report import Report
from planform.client.protocol import Patch, PatchType

ROW = ".xr[role=option]"
_ROUNDS = 5
_LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => { for (const each of list.getEntries()) window.longTasks.push(each.duration); })
  .observe({ type: "longtask" });
"""
"""The browser itself tells of every task above 50 ms."""
_SCROLL = """async (rows) => {
  const box = document.querySelector(".virtual");
  const frame = () => new Promise((done) => requestAnimationFrame(() => done()));
  const until = performance.now() + 120000;
  let known = 0;
  while (performance.now() < until) {
    box.scrollTop += 1760;
    await frame();
    known = Math.round(box.querySelector(".spacer").offsetHeight / 44);
    if (known >= rows && box.scrollTop + box.clientHeight >= box.scrollHeight - 4) break;
  }
  for (let top = box.scrollTop; top > 0; top -= 8800) { box.scrollTop = top; await frame(); }
  return known;
}"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench dashboard", description=__doc__)
    parser.add_argument("--xrs", type=int, default=1000)
    parser.add_argument("--dashboards", type=int, default=10, help="pages that are open at rest")
    parser.add_argument("--rest", type=float, default=20.0, metavar="SECONDS", help="how long to measure at rest")
    parser.add_argument("--rows", type=int, default=10_000, help="rows to scroll through, paused XRs; 0: none")
    parser.add_argument("--quick", action="store_true", help="100 XRs, 8 seconds at rest, 1,000 rows")
    options = parser.parse_args(arguments)
    xrs, rest, rows = (100, 8.0, 1000) if options.quick else (options.xrs, options.rest, options.rows)
    return asyncio.run(_run(xrs, options.dashboards, rest, rows))


async def _run(xrs: int, dashboards: int, rest: float, rows: int) -> int:
    report = Report(f"dashboard over {xrs:,} XRs")
    with tempfile.TemporaryDirectory(prefix="planform-bench-") as folder:
        async with served(Path(folder), databases=xrs) as found, async_playwright() as tools:
            browser = await tools.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = await browser.new_page()
            await page.goto(found.login)
            await page.wait_for_selector(ROW)
            await _settled(found)
            await _loading(report, page, found, xrs)
            await _updating(report, page, found)
            cookies = await page.context.cookies()
            await page.context.close()
            await _resting(report, browser, found, dashboards, rest, cookies)
            if rows:
                await _scrolling(report, browser, found, rows, cookies)
            await browser.close()
    return 1 if report.failures else 0


async def _loading(report: Report, page: Page, found: Served, xrs: int) -> None:
    first, listed = [], []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        await page.goto(found.base)
        await page.wait_for_selector(ROW)
        listed.append((time.perf_counter() - started) * 1000)
        painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        first.append(float(await page.evaluate(painted)))
    report.at_most("first content, median", statistics.median(first), 300, "ms")
    report.at_most(f"list of {xrs:,} XRs is shown, median", statistics.median(listed), 1000, "ms")


async def _updating(report: Report, page: Page, found: Served) -> None:
    """From before a write of the API to the page that says so, the write itself and its answer included."""
    await page.goto(f"{found.base}xr/Database.{platform.GROUP}/team-a/orders")
    await page.wait_for_selector("[data-action=pause]")
    taken = []
    for number in range(2 * _ROUNDS):
        paused = number % 2 == 0
        patch = Patch(
            PatchType.MERGE, {"metadata": {"annotations": {"crossplane.io/paused": "true" if paused else None}}}
        )
        started = time.perf_counter()
        await found.client.patch(DATABASE, "orders", patch, namespace="team-a")
        await page.wait_for_selector(f"[data-action={'resume' if paused else 'pause'}]")
        taken.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(0.5)
    report.at_most("a write is shown, median", statistics.median(taken), 500, "ms")
    report.at_most("a write is shown, slowest", max(taken), 1000, "ms")


async def _resting(
    report: Report, browser: Browser, found: Served, dashboards: int, rest: float, cookies: list[Any]
) -> None:
    for _ in range(dashboards):
        # A profile for each: one browser keeps six connections to a server, and every page holds one.
        context = await browser.new_context()
        await context.add_cookies(cookies)
        page = await context.new_page()
        await page.goto(found.base)
        await page.wait_for_selector(ROW)
    await asyncio.sleep(3.0)
    pid = found.dashboard.process.pid
    revision, cpu, started = await _revision(found), _cpu(pid), time.perf_counter()
    await asyncio.sleep(rest)
    share = (_cpu(pid) - cpu) / (time.perf_counter() - started) * 100
    written = await _revision(found) - revision
    report.at_most(f"CPU of the server with {dashboards} dashboards at rest", share, 2, "% of a core")
    report.at_most("revisions of the store written meanwhile", written, 0, "writes")


async def _scrolling(report: Report, browser: Browser, found: Served, rows: int, cookies: list[Any]) -> None:
    """To the last of many rows and back while one of them changes; they are paused, so that nothing else happens."""
    await _add_paused(found, rows)
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    await context.add_cookies(cookies)
    page = await context.new_page()
    await page.add_init_script(_LONG_TASKS)
    await page.goto(found.base)
    await page.wait_for_selector(ROW)
    await page.evaluate("window.longTasks.length = 0")
    reached = int(await page.evaluate(_SCROLL, rows))
    patch = Patch(PatchType.MERGE, {"metadata": {"labels": {"bench": "changed"}}})
    await found.client.patch(DATABASE, "row-00001", patch, namespace="team-a")
    await asyncio.sleep(6.0)
    kept = int(await page.evaluate("Math.round(document.querySelector('.virtual .spacer').offsetHeight / 44)"))
    tasks = [float(each) for each in await page.evaluate("window.longTasks")]
    report.at_least("rows that were scrolled through", reached, rows, "rows")
    report.at_least("rows that are still there after a change", kept, rows, "rows")
    report.at_most(f"longest task of the page while {rows:,} rows scroll", max(tasks, default=0.0), 50, "ms")
    await context.close()


async def _add_paused(found: Served, rows: int) -> None:
    gate = asyncio.Semaphore(16)

    async def add(number: int) -> None:
        obj = platform.database(f"row-{number:05d}", "team-a")
        obj["metadata"]["annotations"] = {"crossplane.io/paused": "true"}
        async with gate:
            await found.client.create(obj)

    await asyncio.gather(*(add(number) for number in range(rows)))
    await _settled(found)


async def _settled(found: Served) -> None:
    """Wait until the control plane writes no more: what is measured is the dashboard."""
    deadline, before = time.monotonic() + 120, -1
    while time.monotonic() < deadline:
        now = await _revision(found)
        if now == before:
            return
        before = now
        await asyncio.sleep(3.0)


async def _revision(found: Served) -> int:
    """The store's revision, which every write raises."""
    listed = await found.client.list(DATABASE, limit=1)
    return int(listed.resource_version)


def _cpu(pid: int) -> float:
    """Seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
