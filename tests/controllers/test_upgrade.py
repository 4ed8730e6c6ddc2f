"""A data directory that commit 2ef0d5a left, from before there were authors and random keys: it goes on as it was.

`tests/golden/upgrade/make.py` made it with the code of that commit.
"""

from __future__ import annotations

import asyncio
import base64
import json
import lzma
import os
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from planform.api.authors import AUTHORED, author_of
from planform.api.kinds import Object
from planform.api.names import RECONCILE_REQUESTED_ANNOTATION
from planform.app import ControlPlane, Settings, open_control_plane
from planform.client.protocol import Patch, PatchType
from planform.usages.usages import InUse
from tests.golden.upgrade import make
from tests.golden.upgrade.make import ACTION_SET, APP, CONFIG_MAP, SECRET, TEAM
from tests.harness.contexts import condition_of, eventually, until_condition

ARCHIVE = Path(make.__file__).with_name("data-2ef0d5a.tar.xz")


def unpacked(directory: Path) -> Object:
    """Have the data directory; gives what was in it by the account of who left it."""
    with tarfile.open(fileobj=BytesIO(lzma.decompress(ARCHIVE.read_bytes()))) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            path = directory / member.name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_bytes(content.read())
            path.chmod(0o600)
    expected: Object = json.loads((directory / make.EXPECTED).read_text())
    (directory / make.EXPECTED).unlink()
    return expected


async def reconciled(plane: ControlPlane, name: str) -> Object:
    """The XR after a run that takes nothing from memory."""
    asked = Patch(PatchType.MERGE, {"metadata": {"annotations": {RECONCILE_REQUESTED_ANNOTATION: "again"}}})
    await plane.client.patch(APP, name, asked, namespace=TEAM)

    async def handled() -> Object | None:
        found = await plane.client.get(APP, name, namespace=TEAM)
        done = (found.get("status") or {}).get("lastHandledReconcileAt") == "again"
        ready = condition_of(found, "Ready")
        return found if done and ready is not None and ready["status"] == "True" else None

    return await eventually(handled, f"XR {name} is reconciled")


async def command(plane: ControlPlane, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "planform", *words),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig), "NO_COLOR": "1"},
    )
    output, _ = await process.communicate()
    return output.decode()


async def test_a_data_directory_from_before_authors_and_random_keys_goes_on_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    expected = unpacked(data)
    async with open_control_plane(Settings(data=data)) as plane:
        client = plane.client
        for name in ("one", "two", "three"):
            await reconciled(plane, name)
        now = await make.inventory(plane)
        # Nothing is lost, nothing was made anew, and no Secret has another value: a live password is still that.
        assert {key: now["uids"].get(key) for key in expected["uids"]} == expected["uids"]
        assert {key: now["secrets"].get(key) for key in expected["secrets"]} == expected["secrets"]
        one = await client.get(SECRET, "one-password", namespace=TEAM)
        assert len(base64.b64decode(one["data"]["password"])) == 24

        await an_old_blueprint_acts_as_an_administrators(plane)
        await usages_hold_what_they_held(plane)
        await nobody_is_their_author(plane, expected)
        await doctor_lists(plane)
        told = await command(plane, "explain-run", f"app.{make.GROUP}", "one", "-n", TEAM, "-o", "json")
        assert "function-go-templating" in told

        # An XR that is made now has values that nobody can compute, of the same Composition.
        await client.create(make.xr("four", "passwords"))
        await until_condition(client, make.xr("four", "passwords"), "Ready")
        made_with = await seedings(plane)
        assert made_with["one"] == made_with["two"] == "public" and made_with["four"] != "public"
        await rotating_makes_new_values(plane)
        assert await seedings(plane) == {**made_with, "one": made_with["four"]}
        rotated = f"v1/Secret {TEAM}/one-password"
        kept = {key: value for key, value in expected["secrets"].items() if key != rotated}
    async with open_control_plane(Settings(data=data)) as plane:
        again = await make.inventory(plane)
        assert {key: again["uids"].get(key) for key in now["uids"]} == now["uids"]
        assert {key: again["secrets"].get(key) for key in kept} == kept


async def seedings(plane: ControlPlane) -> dict[str, str]:
    listed = json.loads(await command(plane, "random", "list", "-o", "json"))
    return {each["name"]: each["madeWith"] for each in listed}


async def rotating_makes_new_values(plane: ControlPlane) -> None:
    """Of the XR that is named, and of no other."""
    before = await plane.client.get(SECRET, "one-password", namespace=TEAM)
    assert "gets new random values" in await command(plane, "random", "rotate", "App/one", "-n", TEAM)

    async def changed() -> bool:
        now = await plane.client.get(SECRET, "one-password", namespace=TEAM)
        return all(now["data"][key] != before["data"][key] for key in ("password", "id"))

    await eventually(changed, "other values")


async def an_old_blueprint_acts_as_an_administrators(plane: ControlPlane) -> None:
    """A run that was over stays so, and the Blueprint does what it did, with rights for everything."""
    before = await plane.client.get(ACTION_SET, "done", namespace=TEAM)
    assert before["status"]["state"] == "complete" and author_of(before) is None
    await plane.client.create(make.action_set("new", "second"))

    async def complete() -> bool:
        found = await plane.client.get(ACTION_SET, "new", namespace=TEAM)
        return (found.get("status") or {}).get("state") == "complete"

    await eventually(complete, "the ActionSet's end")
    copy = await plane.client.get(CONFIG_MAP, "second-copy", namespace=TEAM)
    assert copy["data"] == {"from": "yellow"}


async def usages_hold_what_they_held(plane: ControlPlane) -> None:
    async def refused() -> bool:
        try:
            await plane.client.delete(SECRET, "login", namespace=TEAM, dry_run=True)
        except InUse:
            return True
        return False

    await eventually(refused, "the Usage protects its Secret")


async def nobody_is_their_author(plane: ControlPlane, expected: Object) -> None:
    seen = set()
    for key in expected["uids"]:
        where, _, name = key.partition(" ")
        api_version, _, kind = where.rpartition("/")
        if kind not in AUTHORED.get(api_version.rpartition("/")[0], ()):
            continue
        namespace, _, name = name.partition("/")
        found = await plane.client.get(make.kind(api_version, kind), name, namespace=namespace)
        assert author_of(found) is None, key
        seen.add(kind)
    assert seen == {"Composition", "CompositionRevision", "Operation", "CronOperation", "Blueprint", "ActionSet"}


async def doctor_lists(plane: ControlPlane) -> None:
    """All that acts without a record is an administrator's, which somebody should know."""
    findings = json.loads(await command(plane, "doctor", "-o", "json"))
    told = str([each for each in findings["findings"] if each["check"] == "no-author"])
    for name in ("passwords", "colours", "copies", "yearly"):
        assert name in told, told
    for kind in make.obj(APP, "x")["kind"], "Secret":
        assert f"{kind} " not in told
