"""A PostgreSQL server on loopback, as a user without privileges, for one test.

It is that of the system's own package, or where none is installed, one that a wheel carries.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.processes import free_ports
from tests.harness.programs import programs

USER, DATABASE = "app", "shop"


@dataclass(frozen=True)
class Postgres:
    """A running server with one database."""

    port: int
    password: str
    programs: Path

    def query(self, sql: str, database: str = DATABASE) -> str:
        """What psql prints, rows as lines with tabs; raises CalledProcessError with its words."""
        command = [str(self.programs / "psql"), "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        environment = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": USER,
            "PGPASSWORD": self.password,
            "PGDATABASE": database,
        }
        done = subprocess.run(
            command, input=sql, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return done.stdout

    @property
    def connection(self) -> dict[str, Any]:
        """The arguments by which a phase connects."""
        return {"host": "127.0.0.1", "port": self.port, "username": USER, "password": self.password}


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a server for the length of the block. Raises ProgramMissing (a skip) where none can be had."""
    here = server_programs()
    # Not below pytest's own directory: an unprivileged user cannot enter that.
    home = Path(tempfile.mkdtemp(prefix="planform-test-postgres-"))
    port, password = free_ports(1)[0], secrets.token_hex(12)
    try:
        (home / "password").write_text(password)
        _owned(home)
        data = home / "data"
        _run(
            [
                here / "initdb",
                f"--pgdata={data}",
                f"--username={USER}",
                "--auth=scram-sha-256",
                f"--pwfile={home / 'password'}",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ],
            home,
        )
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={home} -c fsync=off"
        control: list[str | Path] = [here / "pg_ctl", "-D", data, "-w", "-t", "60", "-l", home / "log"]
        _run([*control, "-o", options, "start"], home)
        try:
            server = Postgres(port, password, here)
            server.query(f"CREATE DATABASE {DATABASE}", database="postgres")
            yield server
        finally:
            _run([*control, "-m", "immediate", "stop"], home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def server_programs() -> Path:
    """The directory of a server's programs; its clients are there too, of the same release."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    for directory in (*found, *map(Path, os.environ.get("PATH", "").split(os.pathsep))):
        if all((directory / name).exists() for name in ("initdb", "pg_ctl", "postgres", "psql", "pg_dump")):
            return directory
    asked = [str(programs("pg_config") / "pg_config"), "--bindir"]
    return Path(subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.strip())


def _run(command: Sequence[str | Path], home: Path) -> None:
    """Run as a user without privileges: the server refuses to be root."""
    who: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    log = home / "setup.log"
    with log.open("ab") as output:
        done = subprocess.run(
            [str(each) for each in command],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
            **who,
        )
    if done.returncode != 0:
        said = log.read_text(errors="replace") + ((home / "log").read_text() if (home / "log").exists() else "")
        raise AssertionError(f"{command[0]} ended with {done.returncode}:\n{said[-2000:]}")


def _owned(home: Path) -> None:
    if os.geteuid() != 0:
        return
    nobody = pwd.getpwnam("nobody")
    for path in (home, *home.iterdir()):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
