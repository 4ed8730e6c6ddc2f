"""The example of a database service, followed as its page says: a real server, a published provider, a real dump."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.control_plane import planform
from tests.e2e.test_tutorial import ROOT, Reader, blocks, package_environment
from tests.harness.postgres import USER, Postgres, postgres
from tests.harness.programs import programs

EXAMPLE = ROOT / "examples" / "database-service"

pytestmark = [pytest.mark.xdist_group("real-providers"), pytest.mark.timeout(600)]


def pack_provider(directory: Path) -> None:
    """What the example's script leaves, with the program that the tests built."""
    found = programs("provider-sql", "provider-sql-package")
    package = directory / "package"
    package.mkdir(parents=True)
    documents = subprocess.run([found / "provider-sql-package"], capture_output=True, check=True, timeout=30).stdout
    (package / "crossplane.yaml").write_bytes(documents)
    built = ("--executable", str(found / "provider-sql"), "--package-file", str(directory / "provider-sql.xpkg"))
    planform(directory)("xpkg", "build", "--package-root", str(package), *built)
    shutil.rmtree(package)


def environment_of(server: Postgres, directory: Path) -> dict[str, str]:
    """What the page asks for: a server, whose programs are on the path, and who administers it."""
    tools = [Path(sys.executable).parent, programs("kubectl"), server.programs]
    return {
        "PATH": os.pathsep.join([*map(str, tools), os.environ.get("PATH", os.defpath)]),
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.port),
        "PGUSER": USER,
        "PGPASSWORD": server.password,
        "PGDATABASE": "postgres",
    } | package_environment(directory)


def test_the_page_of_the_database_service_does_what_it_says(tmp_path: Path) -> None:
    directory = tmp_path / "database-service"
    shutil.copytree(EXAMPLE, directory)
    with postgres() as server, ExitStack() as stack:
        pack_provider(directory)
        reader = Reader(directory, stack, environment_of(server, tmp_path))
        for block in blocks(EXAMPLE / "README.md"):
            reader.follow(block)
