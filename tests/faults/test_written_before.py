"""What was written before files moved and names changed is understood after it: it opens, rests, and nothing is
written and no function called.

tests/golden/before_one_house holds a data directory with its journal, and an export of it:
tests/faults/written_before.py had the program of the commit before write them. Time stands where it stood then, so
that no certificate is renewed and no event expires.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from planform.api.kinds import gvk
from planform.clock import VirtualClock
from tests.faults.test_at_rest import Activity, quiet, running, total, virtual_plane
from tests.harness.contexts import condition_of, eventually

FOLDER = Path(__file__).parents[1] / "golden" / "before_one_house"
PLANFORM = Path(sys.executable).with_name("planform")
APP = gvk("before.example.org/v1", "App")
BUCKET = gvk("before.example.org/v1", "Bucket")
XRS = {"composite/apps.before.example.org": 2, "composite/xbuckets.before.example.org": 1}
STEPS = ["environment", "compose", "ready"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(FOLDER / "data.tar.xz") as archive:
        archive.extractall(tmp_path)  # our own, and the oldest Python has no filters
    return tmp_path / "data"


@pytest.fixture
def clock() -> VirtualClock:
    about = yaml.safe_load((FOLDER / "about.yaml").read_text())
    return VirtualClock(datetime.fromisoformat(about["stopped"]).astimezone(UTC))


def newer_functions() -> set[str]:
    """Built-in functions that have had another version since: they are asked again, once, and answer the same here."""
    names = yaml.load((FOLDER.parent / "public_names.yaml").read_text(), Loader=yaml.CSafeLoader)
    about = yaml.safe_load((FOLDER / "about.yaml").read_text())
    return set(about["functions"]) - set(names["built-in functions"])


def newest(data: Path) -> int:
    """The last resource version that was given."""
    (found,) = rows(data / "store" / "planform.db", "SELECT max(rv) FROM log")
    return int(found[0])


def rows(database: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def written_since(data: Path, version: int) -> list[str]:
    """Objects that were written and say something else than before.

    A release that ships another CRD than the one before says so in the CRD, and in nothing else.
    """
    query = f"SELECT rv, resource, namespace, name, value FROM log WHERE rv > {version} ORDER BY rv"
    found = rows(data / "store" / "planform.db", query)
    return [
        f"{resource} {namespace}/{name}"
        for _, resource, namespace, name, value in found
        if not ("customresourcedefinitions" in resource and _is_upgrade(data, version, resource, name, value))
    ]


def _is_upgrade(data: Path, version: int, resource: str, name: str, value: bytes) -> bool:
    query = f"SELECT value FROM log WHERE rv <= {version} AND resource = '{resource}' AND name = '{name}' ORDER BY rv"
    earlier = rows(data / "store" / "planform.db", query)
    return not earlier or orjson.loads(earlier[-1][0])["spec"] != orjson.loads(value)["spec"]


async def test_a_data_directory_opens_and_rests_and_nothing_is_written_or_called(
    data: Path, clock: VirtualClock
) -> None:
    before = newest(data)
    runs = rows(data / "journal.sqlite", "SELECT count(*), max(id) FROM runs")
    async with virtual_plane(data, clock) as plane, running(clock):

        async def all_looked_at() -> bool:
            return all(
                total(plane.metrics, "planform_reconcile_total", f'controller="{controller}"') >= count
                for controller, count in XRS.items()
            )

        await eventually(all_looked_at, "every XR has been looked at", seconds=120)
        await quiet(plane)
        after = Activity.of(plane)
        for name in ("shop", "blog"):
            xr = await plane.client.get(APP, name, namespace="default")
            assert (condition_of(xr, "Ready") or {})["status"] == "True"
        claim = await plane.client.get(BUCKET, "photos", namespace="default")
        assert (condition_of(claim, "Ready") or {})["status"] == "True"
    if not newer_functions():
        assert (after.calls, after.runs) == (0, 0)
        assert rows(data / "journal.sqlite", "SELECT count(*), max(id) FROM runs") == runs
    assert written_since(data, before) == []


async def test_the_journal_says_what_each_step_did(data: Path, clock: VirtualClock) -> None:
    async with virtual_plane(data, clock) as plane, running(clock):
        xr = await plane.client.get(APP, "shop", namespace="default")
        journal = plane.controllers.journal
        summaries = await journal.runs(xr["metadata"]["uid"])
        run = await journal.run(summaries[0].id)
    assert run is not None
    assert [step.step for step in run.steps] == STEPS
    assert run.composition == "apps"
    composed = run.steps[1]
    assert sorted(composed.resources) == ["server", "settings"]
    assert composed.resources["settings"].value["data"] == {"kind": "settings", "region": "eu", "size": "3"}


async def test_a_change_is_still_carried_out(data: Path, clock: VirtualClock) -> None:
    async with virtual_plane(data, clock) as plane, running(clock):
        xr = await plane.client.get(APP, "shop", namespace="default")
        xr["spec"]["region"] = "ap"
        await plane.client.update(xr)

        async def carried_out() -> bool:
            found = await plane.client.get(APP, "shop", namespace="default")
            return bool((found.get("status") or {}).get("region") == "ap")

        await eventually(carried_out, "the new region is in the status", seconds=120)


def imported(data: Path, *options: str) -> list[dict[str, Any]]:
    command = [str(PLANFORM), "import", str(FOLDER / "export.tar.gz"), "--data", str(data), "-o", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    objects: list[dict[str, Any]] = json.loads(done.stdout)["objects"]
    return objects


async def test_an_export_is_imported_and_once_it_is_there_nothing_is_written(tmp_path: Path) -> None:
    data = tmp_path / "fresh"
    first = await asyncio.to_thread(imported, data)
    assert {"App", "Bucket", "XBucket", "Composition", "Blueprint", "ActionSet"} <= {each["kind"] for each in first}
    await asyncio.to_thread(imported, data)  # which opens it, and so puts the aggregated roles together
    before = newest(data)
    again = await asyncio.to_thread(imported, data)
    assert {each["outcome"] for each in again} == {"unchanged"}
    assert written_since(data, before) == []


async def test_an_export_that_was_imported_becomes_what_it_was(tmp_path: Path, clock: VirtualClock) -> None:
    data = tmp_path / "fresh"
    await asyncio.to_thread(imported, data)
    shutil.rmtree(data / "pki", ignore_errors=True)  # of the present, and the clock stands before it
    async with virtual_plane(data, clock) as plane, running(clock):

        async def all_ready() -> bool:
            found = [*(await plane.client.list(APP)).items, *(await plane.client.list(BUCKET)).items]
            return len(found) == 3 and all(
                (condition_of(each, "Ready") or {}).get("status") == "True" for each in found
            )

        await eventually(all_ready, "both XRs and the claim are ready", seconds=120)
        await quiet(plane)
        before = Activity.of(plane).revision
        names = {each["metadata"]["name"] for each in (await plane.client.list(gvk("v1", "ConfigMap"))).items}
        assert _names_in_the_export("ConfigMap") <= names, "what was composed before is what is composed now"
        await quiet(plane)
        assert Activity.of(plane).revision == before


def _names_in_the_export(kind: str) -> set[str]:
    with tarfile.open(FOLDER / "export.tar.gz") as archive:
        stream = archive.extractfile("manifest.yaml")
        assert stream is not None
        manifest = yaml.load(stream.read(), Loader=yaml.CSafeLoader)
    return {each["name"] for each in manifest["objects"] if each["kind"] == kind}
