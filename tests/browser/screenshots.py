"""`make screenshots`: every screen, light and dark, as small PNGs in docs/images."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page, async_playwright

from tests.browser import platform
from tests.browser.served import Served, served

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
_LOCK: Final = Path(tempfile.gettempdir()) / "planform-chromium.lock"
SIZE: Final = {"width": 1280, "height": 800}
XR: Final = f"xr/Site.{platform.GROUP}/team-a/shop"
SCREENS: Final = {
    "fleet": "",
    "xr": XR,
    "composition": "composition/database",
    "function": "function/function-patch-and-transform",
    "rollout": "rollout/database-r3",
    "preview": "preview/database-4f1c",
    "policies": "policies",
    "control-plane": "control-plane",
}


def chromium() -> str:
    """Debian's chromium, installed if that is possible; the libraries that it needs cannot be brought along."""
    for attempt in (False, True):
        if attempt and shutil.which("apt-get") and os.geteuid() == 0:
            with _LOCK.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
                    subprocess.run(["apt-get", *command], check=False, capture_output=True, timeout=600)
        for name in ("chromium", "chromium-headless-shell", "google-chrome"):
            if found := shutil.which(name):
                return found
    raise AssertionError("no chromium on the PATH: apt-get install chromium")


async def run_of(page: Page) -> str:
    """The address of the first run of an XR."""
    script = f"fetch('/ui/api/v1/xrs/Database.{platform.GROUP}/team-a/orders').then(r => r.json())"
    detail = await page.evaluate(script)
    first = detail["runs"][-1]
    return f"run/{first['uid']}/{first['id']}"


async def take(browser: Browser, found: Served) -> None:
    cookies = None
    for scheme in ("light", "dark"):
        context = await browser.new_context(color_scheme=scheme, viewport=SIZE, reduced_motion="reduce")  # type: ignore[arg-type]
        page = await context.new_page()
        if cookies is None:
            await page.goto(found.login)
            await page.wait_for_selector(".xr[role=option]")
            cookies = await context.cookies()
        else:
            await context.add_cookies(cookies)  # type: ignore[arg-type]
            await page.goto(found.base)
            await page.wait_for_selector(".xr[role=option]")
        for name, path in {**SCREENS, "run": await run_of(page)}.items():
            await page.goto(found.base + path)
            await page.wait_for_selector("main .card")
            await page.wait_for_timeout(700)
            await page.screenshot(path=IMAGES / f"{name}-{scheme}.png", animations="disabled")
        await context.close()


async def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        async with served(Path(directory)) as found, async_playwright() as tools:
            browser = await tools.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            await take(browser, found)
            await browser.close()
    if quantise := shutil.which("pngquant"):  # a third of the size; nobody sees the difference
        images = [str(path) for path in sorted(IMAGES.glob("*-light.png")) + sorted(IMAGES.glob("*-dark.png"))]
        command = [quantise, "--force", "--skip-if-larger", "--ext", ".png", "--quality", "70-95", *images]
        await (await asyncio.create_subprocess_exec(*command)).wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
