"""A real database: backed up by one action of a Blueprint, destroyed, and restored by another."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINT, PROFILE, SECRET
from planform.reconcile.context import ControllerContext
from tests.controllers.blueprint_child import acting
from tests.harness.contexts import embedded_context, eventually, read
from tests.harness.postgres import DATABASE, Postgres, postgres
from tests.harness.processes import dies_with_us
from tests.harness.s3 import KEY, REGION, S3Server, s3_server
from tests.harness.s3 import SECRET as S3_SECRET

TABLES = """
CREATE TABLE customers (id serial PRIMARY KEY, name text NOT NULL, photo bytea, born date);
CREATE TABLE orders (id serial PRIMARY KEY, customer int REFERENCES customers, total numeric(12, 2), note jsonb);
INSERT INTO customers (name, photo, born)
  SELECT 'customer ' || i || ' \u00e9\u4e2d', decode(md5(i::text), 'hex'), date '2000-01-01' + i
  FROM generate_series(1, 500) i;
INSERT INTO orders (customer, total, note)
  SELECT 1 + i % 500, i * 1.37, jsonb_build_object('i', i, 'odd', i % 2 = 1) FROM generate_series(1, 5000) i;
CREATE VIEW big AS SELECT * FROM orders WHERE total > 6000;
"""
SNAPSHOT = """
SELECT md5(string_agg(c::text, '|' ORDER BY id)) FROM customers c;
SELECT md5(string_agg(o::text, '|' ORDER BY id)) FROM orders o;
SELECT count(*) FROM big;
SELECT last_value FROM orders_id_seq;
SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1;
"""
CONNECTION = {
    "host": '{{ index .Options "host" }}',
    "port": '{{ index .Options "port" }}',
    "username": "app",
    "password": '{{ index .Phases.PHASE.Secrets.login.Data "password" | toString }}',
    "database": DATABASE,
    "backupArtifactPrefix": "postgres/{{ .Object.metadata.name }}",
    "encryptionKey": '{{ index .Phases.PHASE.Secrets.login.Data "key" | toString }}',
}
LOGIN = {"login": {"apiVersion": "v1", "kind": "Secret", "name": "login", "namespace": "default"}}


def connection(phase: str) -> dict[str, str]:
    return {key: value.replace("PHASE", phase) for key, value in CONNECTION.items()}


ACTIONS: Object = {
    "backup": {
        "outputArtifacts": {
            "database": {
                "keyValue": {"id": "{{ .Phases.dump.Output.backupID }}", "size": "{{ .Phases.dump.Output.size }}"}
            }
        },
        "phases": [{"name": "dump", "func": "PostgresBackup", "objects": LOGIN, "args": connection("dump")}],
        "deferPhase": {"name": "tell", "func": "Echo", "args": {"message": "backup is over"}},
    },
    "restore": {
        "inputArtifactNames": ["database"],
        "phases": [
            {
                "name": "load",
                "func": "PostgresRestore",
                "objects": LOGIN,
                "args": {**connection("load"), "backupID": "{{ .ArtifactsIn.database.KeyValue.id }}"},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(server.programs), prepend=os.pathsep)  # phases dump with the server's own release
        yield server


@pytest.fixture
async def bucket() -> AsyncIterator[S3Server]:
    async with s3_server() as server:
        yield server


async def create(context: ControllerContext, kind: Any, name: str, **content: Any) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return await context.client.create(
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}
    )


async def run(context: ControllerContext, database: Postgres, action: str, artifacts: Object | None = None) -> Object:
    """Run an action of the blueprint to its end; gives the ActionSet's status."""
    return await ending(context, await submit(context, database, action, artifacts))


async def submit(
    context: ControllerContext, database: Postgres, action: str, artifacts: Object | None = None
) -> Object:
    request = {
        "name": action,
        "blueprint": "postgres",
        "object": {
            "apiVersion": "v1",
            "resource": "namespaces",
            "kind": "Namespace",
            "name": "default",
            "namespace": "default",
        },
        "profile": {"name": "place", "namespace": "default"},
        "options": {"host": "127.0.0.1", "port": str(database.port)},
        **({"artifacts": artifacts} if artifacts else {}),
    }
    name = f"{action}-{'again' if artifacts else 'first'}"
    return await create(context, ACTION_SET, name, spec={"actions": [request]})


async def ending(context: ControllerContext, made: Object) -> Object:
    """The status of an ActionSet that is over."""

    async def ended() -> Object | None:
        found = await read(context.client, ACTION_SET, made["metadata"]["name"], "default")
        status: Object = (found or {}).get("status") or {}
        return status if status.get("state") in ("complete", "failed") else None

    return await eventually(ended, f"{made['metadata']['name']} is over", seconds=60)


def encoded(**data: str) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}


async def prepare(context: ControllerContext, database: Postgres, endpoint: str, tmp_path: Path) -> None:
    """The blueprint with its secrets, and a profile: a bucket at the endpoint, or a directory."""
    await create(context, SECRET, "login", data=encoded(password=database.password, key="backup key"))
    await create(context, SECRET, "bucket", data=encoded(id=KEY, secret=S3_SECRET))
    pair = {"idField": "id", "secretField": "secret", "secret": {"name": "bucket", "namespace": "default"}}
    location = {"type": "fileSystem", "path": str(tmp_path / "backups")}
    if endpoint:
        location = {"type": "s3Compliant", "bucket": "backups", "endpoint": endpoint, "region": REGION, "prefix": "pg"}
    await create(context, PROFILE, "place", location=location, credential={"type": "keyPair", "keyPair": pair})
    await create(context, BLUEPRINT, "postgres", actions=ACTIONS)


@pytest.mark.parametrize("place", ["fileSystem", "s3Compliant"])
async def test_a_database_is_backed_up_destroyed_and_restored(
    database: Postgres, bucket: S3Server, tmp_path: Path, place: str
) -> None:
    database.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public;")
    database.query(TABLES)
    before = database.query(SNAPSHOT)
    async with acting(tmp_path) as context:
        await prepare(context, database, bucket.url if place == "s3Compliant" else "", tmp_path)
        done = await run(context, database, "backup")
        assert done["state"] == "complete", done
        assert done["actions"][0]["phases"][0]["funcVersion"] == "v0.0.0"
        assert done["actions"][0]["deferPhase"]["state"] == "complete"
        artifact = done["actions"][0]["artifacts"]["database"]
        assert int(artifact["keyValue"]["size"]) > 50_000

        database.query("DELETE FROM orders WHERE id % 3 = 0; UPDATE customers SET name = 'gone'; DROP VIEW big;")
        database.query("DROP TABLE orders CASCADE; ALTER TABLE customers DROP COLUMN photo;")
        restored = await run(context, database, "restore", {"database": artifact})
        assert restored["state"] == "complete", restored
    assert database.query(SNAPSHOT) == before
    stored = b"".join(bucket.buckets["backups"].values()) if place == "s3Compliant" else _files(tmp_path / "backups")
    assert len(stored) > 50_000 and b"PGDMP" not in stored  # sealed with the key
    assert bucket.refused == 0


def _dumps(backup: str) -> list[Path]:
    """What is left of a dump outside the location."""
    return list(Path(tempfile.gettempdir()).glob(f"planform-postgres-{backup}"))


def _files(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


async def test_a_restore_that_fails_leaves_the_database_as_it_was(database: Postgres, tmp_path: Path) -> None:
    database.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public;")
    database.query(TABLES)
    async with acting(tmp_path) as context:
        await create(context, SECRET, "login", data=encoded(password=database.password, key="k"))
        location = {"type": "fileSystem", "path": str(tmp_path / "backups")}
        await create(context, PROFILE, "place", location=location, credential={})
        await create(context, BLUEPRINT, "postgres", actions=ACTIONS)
        done = await run(context, database, "backup")
        # Something that the backup does not know depends on a table that it would replace.
        database.query("DELETE FROM orders; CREATE VIEW strange AS SELECT * FROM customers;")
        before = database.query(SNAPSHOT)
        failed = await run(context, database, "restore", done["actions"][0]["artifacts"])
    assert failed["state"] == "failed"
    assert "view public.strange depends on table" in failed["error"]["message"]
    assert database.password not in str(failed)
    assert database.query(SNAPSHOT) == before


async def test_a_wrong_password_fails_the_backup_and_the_defer_phase_runs(database: Postgres, tmp_path: Path) -> None:
    async with acting(tmp_path) as context:
        await create(context, SECRET, "login", data=encoded(password="wrong", key="k"))
        location = {"type": "fileSystem", "path": str(tmp_path / "backups")}
        await create(context, PROFILE, "place", location=location, credential={})
        await create(context, BLUEPRINT, "postgres", actions=ACTIONS)
        failed = await run(context, database, "backup")
    assert failed["state"] == "failed"
    assert "password authentication failed" in failed["error"]["message"]
    assert failed["actions"][0]["deferPhase"]["state"] == "complete"
    assert not (tmp_path / "backups").exists()


async def test_a_control_plane_killed_in_the_middle_of_a_backup_goes_on_with_it(
    database: Postgres, bucket: S3Server, tmp_path: Path
) -> None:
    database.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public;")
    database.query(TABLES)
    before = database.query(SNAPSHOT)
    async with embedded_context(tmp_path / "data") as context:
        await prepare(context, database, bucket.url, tmp_path)
        made = await submit(context, database, "backup")
    bucket.holds = "/chunks/"
    command = [sys.executable, "-m", "tests.controllers.blueprint_child", str(tmp_path)]
    child = await asyncio.to_thread(subprocess.Popen, dies_with_us(command), cwd=Path(__file__).parents[2])
    try:
        async with asyncio.timeout(60):
            await bucket.held.wait()
    finally:
        child.kill()
        await asyncio.to_thread(child.wait)
    bucket.holds = ""
    async with acting(tmp_path) as context:
        done = await ending(context, made)
        (phase,) = done["actions"][0]["phases"]
        assert (done["state"], phase["state"], done["actions"][0]["deferPhase"]["state"]) == ("complete",) * 3
        database.query("DROP TABLE orders CASCADE;")
        restored = await run(context, database, "restore", done["actions"][0]["artifacts"])
        assert restored["state"] == "complete", restored
    assert database.query(SNAPSHOT) == before
    assert len([key for key in bucket.buckets["backups"] if "/backups/" in key]) == 1
    assert not _dumps(phase["output"]["backupID"])
