"""The how-to for authors is true: its code runs, its tests pass, its flags exist."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import planform_sdk
from planform_sdk.__main__ import UnknownFunction, add_flags, load, settings_from
from planform_sdk.server import DEFAULT_ADDRESS, ServeError

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-function.md"
BLOCK = re.compile(r"^```python(?P<note>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(match["note"].strip(), match["code"]) for match in BLOCK.finditer(PAGE.read_text())]


def test_the_files_of_the_how_to_pass_their_own_tests(tmp_path: Path) -> None:
    for note, code in BLOCKS:
        if note.startswith("file="):
            (tmp_path / note.removeprefix("file=")).write_text(code)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_every_other_block_of_the_how_to_runs() -> None:
    space: dict[str, Any] = {}
    ran = 0
    for note, code in BLOCKS:
        if note.startswith("file="):
            continue
        if note != "continue":
            space = {"__name__": "how_to"}
        exec(compile(code, str(PAGE), "exec"), space)
        ran += 1
    assert ran >= 5


def test_the_readme_runs() -> None:
    readme = (Path(__file__).parents[2] / "sdk" / "README.md").read_text()
    space: dict[str, Any] = {"__name__": "readme"}
    for match in BLOCK.finditer(readme):
        exec(compile(match["code"], "sdk/README.md", "exec"), space)
    assert "hello" in space


def test_what_the_package_says_it_has_is_there() -> None:
    assert sorted(planform_sdk.__all__) == planform_sdk.__all__
    assert all(hasattr(planform_sdk, name) for name in planform_sdk.__all__)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_flags(made)
    return made


def test_the_flags_in_the_how_to_are_the_flags_there_are() -> None:
    flags = {option for action in parser()._actions for option in action.option_strings if option.startswith("--")}
    assert set(re.findall(r"^\| `(--[a-z-]+)`", PAGE.read_text(), re.MULTILINE)) == flags - {"--help"}


def test_flags_win_over_the_environment_and_that_over_the_conventions() -> None:
    environment = {"TLS_SERVER_CERTS_DIR": "/tls/server"}
    settings = settings_from(parser().parse_args([]), environment)
    assert (settings.address, settings.tls_certs_dir) == (DEFAULT_ADDRESS, Path("/tls/server"))
    assert settings.max_message_bytes > 4 << 20
    flags = ["--tls-certs-dir", "/mine", "--address", "[::]:1", "--max-recv-message-size", "8"]
    settings = settings_from(parser().parse_args(flags), environment)
    assert (settings.address, settings.tls_certs_dir) == ("[::]:1", Path("/mine"))
    assert settings.max_message_bytes == 8 << 20
    with pytest.raises(ServeError, match="--network unix needs --address"):
        settings_from(parser().parse_args(["--network", "unix"]), {})


def test_a_function_is_found_by_file_and_name(tmp_path: Path) -> None:
    path = tmp_path / "two_functions.py"
    head = "from planform_sdk import function\n"
    path.write_text(head + "@function\ndef one(req, rsp): ...\n")
    assert load(str(path)).name == "one"
    path.write_text(head + "@function\ndef one(req, rsp): ...\n@function\ndef two(req, rsp): ...\n")
    assert load(f"{path}:two").name == "two"
    with pytest.raises(UnknownFunction, match=r"no single function in .* \(found: one, two\)"):
        load(str(path))
    with pytest.raises(UnknownFunction, match=r'no function "three" in .* \(found: one, two\)'):
        load(f"{path}:three")
    with pytest.raises(UnknownFunction, match="no file"):
        load(str(tmp_path / "none.py"))
    with pytest.raises(UnknownFunction, match="cannot import"):
        load("no_such_module:x")


def test_importing_the_package_brings_in_nothing_heavy() -> None:
    program = (
        "import planform_sdk, sys; print(sorted({'grpc', 'google.protobuf', 'asyncio', 'ssl'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "[]"
