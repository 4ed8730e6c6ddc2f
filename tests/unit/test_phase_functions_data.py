"""Directories to a location and back: a file system, and a bucket whose server checks every signature."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from planform.blueprints.contract import PhaseEnvironment
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions import Policy
from planform.blueprints.functions.archives import unpack
from planform.blueprints.functions.repository import CHUNK, Damaged, WrongKey
from tests.harness.phases import PhaseRunner, file_profile, s3_profile
from tests.harness.s3 import KEY, SECRET, S3Server, s3_server

PREFIX = "app/daily"


@pytest.fixture
async def bucket() -> AsyncIterator[S3Server]:
    async with s3_server() as server:
        yield server


@pytest.fixture(params=["fileSystem", "s3Compliant"])
def runner(request: pytest.FixtureRequest, tmp_path: Path, bucket: S3Server) -> PhaseRunner:
    profile = (
        file_profile(str(tmp_path / "location"), "team-a")
        if request.param == "fileSystem"
        else s3_profile(bucket.url, KEY, SECRET, prefix="team-a")
    )
    return PhaseRunner(params={"Profile": profile}, policy=Policy(directories=(tmp_path,)))


def filled(directory: Path) -> Path:
    """Files of all sorts."""
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "empty").mkdir()
    (directory / "a.txt").write_text("alpha")
    (directory / "nothing").write_bytes(b"")
    (directory / "deep" / "er" / "big").write_bytes(os.urandom(CHUNK + 1234))
    (directory / "name with spaces \u00e9").write_text("x")
    (directory / "link").symlink_to("a.txt")
    (directory / "a.txt").chmod(0o640)
    (directory / "nothing").chmod(0o666)
    (directory / "empty").chmod(0o2775)
    if os.geteuid() == 0:
        os.chown(directory / "deep", 12345, 54321)
        os.chown(directory / "a.txt", 12345, 54321)
    return directory


def contents(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))  # noqa: PTH115  # the text itself
        else:
            status = path.stat()
            owner = (status.st_mode & 0o7777, status.st_uid, status.st_gid)
            found[name] = (*owner, path.read_bytes() if path.is_file() else None)
    return found


def kept(runner: PhaseRunner, bucket: S3Server) -> dict[str, bytes]:
    """Everything in the location, by its key below the profile's prefix."""
    location = runner.params["Profile"]["Location"]
    if location["Type"] == "s3Compliant":
        return {key.removeprefix("team-a/"): data for key, data in bucket.buckets["backups"].items()}
    root = Path(location["Path"]) / "team-a"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def backup(runner: PhaseRunner, directory: Path, version: str = "v1.0.0", **more: Any) -> dict[str, Any]:
    names = {"namespace": "n", "pod": "p", "container": "c"} if version == "v0.0.0" else {}
    return await runner.run(
        "BackupData", version, includePath=str(directory), backupArtifactPrefix=PREFIX, **names, **more
    )


async def restore(runner: PhaseRunner, target: Path, backup_id: str, version: str = "v1.0.0", **more: Any) -> Any:
    names = {"namespace": "n", "image": "i"} if version == "v0.0.0" else {}
    return await runner.run(
        "RestoreData",
        version,
        backupArtifactPrefix=PREFIX,
        backupTag=backup_id,
        restorePath=str(target),
        **names,
        **more,
    )


@pytest.mark.parametrize("version", ["v0.0.0", "v1.0.0"])
@pytest.mark.parametrize("key", ["", "correct horse"], ids=["plain", "encrypted"])
async def test_a_directory_comes_back_as_it_was(
    runner: PhaseRunner, bucket: S3Server, tmp_path: Path, version: str, key: str
) -> None:
    source, target = filled(tmp_path / "source"), tmp_path / "target"
    made = await backup(runner, source, version, encryptionKey=key)
    await restore(runner, target, made["backupID"], version, encryptionKey=key)
    assert contents(target) == contents(source)
    assert (made["fileCount"], made["version"]) == ("4", version)
    assert int(made["size"]) == CHUNK + 1234 + 5 + 1
    assert bucket.refused == 0
    assert runner.progress[-1].percent == 100
    assert (b"alpha" in b"".join(kept(runner, bucket).values())) is (key == "")


async def test_a_second_backup_stores_only_what_changed(runner: PhaseRunner, bucket: S3Server, tmp_path: Path) -> None:
    source = filled(tmp_path / "source")
    first = await backup(runner, source, phase="one")
    (source / "a.txt").write_text("beta")
    second = await backup(runner, source, phase="two")
    assert int(first["phySize"]) > CHUNK > 100 > int(second["phySize"]) > 0
    await restore(runner, tmp_path / "old", first["backupID"])
    await restore(runner, tmp_path / "new", second["backupID"])
    assert ((tmp_path / "old" / "a.txt").read_text(), (tmp_path / "new" / "a.txt").read_text()) == ("alpha", "beta")


async def test_many_files_are_counted_and_kept_right(runner: PhaseRunner, bucket: S3Server, tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(200):
        (source / f"{number}").write_bytes(os.urandom(number + 1))
    made = await backup(runner, source)
    chunks = {key: data for key, data in kept(runner, bucket).items() if "/chunks/" in key}
    assert int(made["phySize"]) == sum(map(len, chunks.values())) == int(made["size"]) == 200 * 201 // 2
    await restore(runner, tmp_path / "target", made["backupID"])
    assert contents(tmp_path / "target") == contents(source)


async def test_a_phase_that_runs_again_replaces_its_backup(
    runner: PhaseRunner, bucket: S3Server, tmp_path: Path
) -> None:
    source = filled(tmp_path / "source")
    first, second = await backup(runner, source), await backup(runner, source)
    assert first["backupID"] == second["backupID"]
    assert len([key for key in kept(runner, bucket) if "/backups/" in key]) == 1


async def test_the_new_restore_reads_old_backups_and_the_old_one_refuses_new_ones(
    runner: PhaseRunner, tmp_path: Path
) -> None:
    source = filled(tmp_path / "source")
    old, new = await backup(runner, source, "v0.0.0", phase="old"), await backup(runner, source, phase="new")
    await restore(runner, tmp_path / "target", old["backupID"], "v1.0.0")
    assert contents(tmp_path / "target") == contents(source)
    with pytest.raises(PhaseFailed, match=r"format files, which RestoreData v0\.0\.0 does not read"):
        await restore(runner, tmp_path / "other", new["backupID"], "v0.0.0")


async def test_damage_is_found_and_nothing_is_restored(runner: PhaseRunner, bucket: S3Server, tmp_path: Path) -> None:
    made = await backup(runner, filled(tmp_path / "source"))
    location = runner.params["Profile"]["Location"]
    victim = next(key for key, data in kept(runner, bucket).items() if data == b"alpha")
    if location["Type"] == "s3Compliant":
        bucket.buckets["backups"][f"team-a/{victim}"] = b"alphA"
    else:
        (Path(location["Path"]) / "team-a" / victim).write_bytes(b"alphA")
    target = tmp_path / "target"
    target.mkdir()
    (target / "a.txt").write_text("precious")
    with pytest.raises(Damaged, match="checksum is wrong"):
        await restore(runner, target, made["backupID"])
    with pytest.raises(Damaged, match=made["backupID"]):
        await runner.run("CheckRepository", backupArtifactPrefix=PREFIX, verify="true")
    assert {name: found[-1] for name, found in contents(target).items()} == {"a.txt": b"precious"}


async def test_check_repository_tells_a_missing_one_and_a_wrong_key(runner: PhaseRunner, tmp_path: Path) -> None:
    async def check(key: str = "") -> tuple[str, str]:
        said = await runner.run("CheckRepository", backupArtifactPrefix=PREFIX, encryptionKey=key, verify=True)
        return said["passwordIncorrect"], said["repoUnavailable"]

    assert await check() == ("false", "true")
    made = await backup(runner, filled(tmp_path / "source"), encryptionKey="right")
    assert await check("right") == ("false", "false")
    assert await check("wrong") == ("true", "false")
    with pytest.raises(WrongKey, match="another key"):
        await restore(runner, tmp_path / "target", made["backupID"], encryptionKey="wrong")


async def test_deleting_a_backup_frees_what_no_other_needs(
    runner: PhaseRunner, bucket: S3Server, tmp_path: Path
) -> None:
    source = filled(tmp_path / "source")
    first = await backup(runner, source, phase="one")
    (source / "only-second").write_bytes(b"z" * 5000)
    second = await backup(runner, source, phase="two")
    freed = await runner.run(
        "DeleteData", namespace="n", backupArtifactPrefix=PREFIX, backupID=second["backupID"], reclaimSpace="true"
    )
    assert int(freed["spaceFreed"]) == 5000
    with pytest.raises(PhaseFailed, match="no backup"):
        await restore(runner, tmp_path / "t", second["backupID"])
    await restore(runner, tmp_path / "t", first["backupID"])
    stats = await runner.run("BackupDataStats", namespace="n", backupArtifactPrefix=PREFIX, backupID=first["backupID"])
    assert (stats["mode"], stats["fileCount"]) == ("restore-size", "4")


async def test_location_delete_takes_all_below_a_path_and_nothing_beside_it(
    runner: PhaseRunner, bucket: S3Server, tmp_path: Path
) -> None:
    await backup(runner, filled(tmp_path / "source"))
    await runner.run("BackupData", "v1.0.0", includePath=str(tmp_path / "source"), backupArtifactPrefix="app/daily2")
    await runner.run("LocationDelete", artifact=PREFIX)
    assert {key.split("/")[1] for key in kept(runner, bucket)} == {"daily2"}
    for artifact in ("", "/", "../other", "a/../../b"):
        with pytest.raises(PhaseFailed, match="names nothing below"):
            await runner.run("LocationDelete", artifact=artifact)


async def test_a_prefix_may_begin_with_the_bucket_as_kanisters_do(bucket: S3Server, tmp_path: Path) -> None:
    runner = PhaseRunner(
        params={"Profile": s3_profile(bucket.url, KEY, SECRET, prefix="team-a")}, policy=Policy(directories=(tmp_path,))
    )
    args = {"includePath": str(filled(tmp_path / "s")), "backupArtifactPrefix": "backups/team-a/app"}
    await runner.run("BackupData", "v1.0.0", **args)
    assert all(key.startswith("team-a/app/") for key in bucket.buckets["backups"])


async def test_a_wrong_secret_is_refused_by_the_bucket(bucket: S3Server, tmp_path: Path) -> None:
    profile = s3_profile(bucket.url, KEY, "not the secret")
    runner = PhaseRunner(params={"Profile": profile}, policy=Policy(directories=(tmp_path,)))
    with pytest.raises(PhaseFailed, match="SignatureDoesNotMatch") as failure:
        await backup(runner, filled(tmp_path / "source"))
    assert "not the secret" not in str(failure.value)


async def test_a_bucket_that_is_busy_is_asked_again_and_long_listings_are_read_whole(
    bucket: S3Server, tmp_path: Path
) -> None:
    bucket.failures, bucket.page = 2, 2
    runner = PhaseRunner(
        params={"Profile": s3_profile(bucket.url, KEY, SECRET)}, policy=Policy(directories=(tmp_path,))
    )
    await backup(runner, filled(tmp_path / "source"))
    await runner.run("LocationDelete", artifact=PREFIX)
    assert bucket.buckets["backups"] == {}


async def test_phases_use_only_directories_that_are_open_to_them(tmp_path: Path) -> None:
    allowed = tmp_path / "open"
    filled(allowed)
    (allowed / "out").symlink_to(tmp_path)
    profile = {"Profile": file_profile(str(allowed / "location"))}
    runner = PhaseRunner(params=profile, policy=Policy(directories=(allowed,)))
    for path in (tmp_path, allowed / "..", allowed / "out"):
        with pytest.raises(PhaseFailed, match="may not use the directory") as failure:
            await backup(runner, path)
        assert "PLANFORM_PHASE_DIRECTORIES" in str(failure.value.hint)
    closed = PhaseRunner(params=profile, policy=Policy())
    with pytest.raises(PhaseFailed, match="may not use the directory"):
        await backup(closed, allowed)


async def test_relative_paths_are_the_control_planes_own(tmp_path: Path) -> None:
    runner = PhaseRunner(params={"Profile": file_profile("nightly")}, here=PhaseEnvironment(data=tmp_path))
    filled(tmp_path / "directories" / "app")
    made = await runner.run("BackupData", "v1.0.0", includePath="app", backupArtifactPrefix="x")
    await runner.run(
        "RestoreData", "v1.0.0", backupArtifactPrefix="x", backupIdentifier=made["backupID"], restorePath="again"
    )
    assert contents(tmp_path / "directories" / "again") == contents(tmp_path / "directories" / "app")
    with pytest.raises(PhaseFailed, match="leads out of"):
        await runner.run("BackupData", "v1.0.0", includePath="../..", backupArtifactPrefix="x")


async def test_a_restore_does_not_follow_links_out_of_its_target(tmp_path: Path) -> None:
    runner = PhaseRunner(
        params={"Profile": file_profile(str(tmp_path / "location"))}, policy=Policy(directories=(tmp_path,))
    )
    made = await backup(runner, filled(tmp_path / "source"))
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "deep").symlink_to(outside)
    await restore(runner, target, made["backupID"])
    assert list(outside.iterdir()) == []
    assert contents(target) == contents(tmp_path / "source")


def archive(*members: tarfile.TarInfo) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    stream.seek(0)
    return stream


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(made, key, value)
    return made


@pytest.mark.parametrize(
    "hostile",
    [
        [member("../outside", size=1)],
        [member("a/../../outside", size=1)],
        [member("link", type=tarfile.LNKTYPE, linkname="../outside")],
        [member("link", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [member("link", type=tarfile.SYMTYPE, linkname=".."), member("link/outside", size=1)],
        [
            member("link", type=tarfile.SYMTYPE, linkname=".."),
            member("hard", type=tarfile.LNKTYPE, linkname="link/outside"),
        ],
    ],
    ids=["dots", "inner dots", "hard link", "absolute hard link", "through a link", "hard link through a link"],
)
def test_an_archive_cannot_reach_out_of_its_target(tmp_path: Path, hostile: list[tarfile.TarInfo]) -> None:
    target = tmp_path / "target"
    (tmp_path / "outside").write_text("mine")
    with pytest.raises(PhaseFailed, match="cannot restore"):
        unpack(archive(member("good", size=1), *hostile), target)
    assert (tmp_path / "outside").read_text() == "mine"
    assert list(target.iterdir()) == []


def test_what_an_archive_holds_twice_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    twice = [
        member("file", type=tarfile.SYMTYPE, linkname=str(outside / "file")),
        member("file", size=1),
        member("directory", type=tarfile.SYMTYPE, linkname=str(outside)),
        member("directory", type=tarfile.DIRTYPE, mode=0o777),
        member("directory/inner", size=1),
    ]
    unpack(archive(*twice), tmp_path / "target")
    assert (list(outside.iterdir()), outside.stat().st_mode & 0o777) == ([], 0o700)
    assert contents(tmp_path / "target").keys() >= {"file", "directory/inner"}
    assert not (tmp_path / "target" / "directory").is_symlink()


def test_a_directory_that_may_not_be_written_to_gets_its_files_its_mode_and_its_time(tmp_path: Path) -> None:
    closed = member("closed", type=tarfile.DIRTYPE, mode=0o555, mtime=1_000_000)
    unpack(archive(closed, member("closed/file", size=1, mode=0o640, mtime=2_000_000)), tmp_path / "target")
    found = {path.name: path.stat() for path in (tmp_path / "target").rglob("*")}
    assert {name: (each.st_mode & 0o7777, each.st_mtime) for name, each in found.items()} == {
        "closed": (0o555, 1_000_000),
        "file": (0o640, 2_000_000),
    }


def test_devices_and_privileged_bits_are_not_restored(tmp_path: Path) -> None:
    unpack(archive(member("null", type=tarfile.CHRTYPE), member("su", size=1, mode=0o4755)), tmp_path / "target")
    assert {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "target").iterdir()} == {"su": 0o755}


async def test_a_volume_is_a_directory_without_a_cluster(tmp_path: Path) -> None:
    runner = PhaseRunner(params={"Profile": file_profile("place")}, here=PhaseEnvironment(data=tmp_path))
    filled(tmp_path / "directories" / "vol")
    made = await runner.run("CopyVolumeData", namespace="n", volume="vol", dataArtifactPrefix="v")
    assert (made["backupArtifactLocation"], made["fileCount"]) == ("v/n/vol", "4")
    shutil.rmtree(tmp_path / "directories" / "vol" / "deep")
    await runner.run(
        "RestoreData", "v1.0.0", backupArtifactPrefix=made["backupArtifactLocation"], backupTag=made["backupTag"]
    )
    assert (tmp_path / "directories" / "vol" / "deep" / "er" / "big").stat().st_size == CHUNK + 1234


async def test_which_backup_must_be_said_once(tmp_path: Path) -> None:
    runner = PhaseRunner(params={"Profile": file_profile(str(tmp_path))}, policy=Policy(directories=(tmp_path,)))
    for which in ({}, {"backupTag": "a", "backupIdentifier": "b"}):
        with pytest.raises(ArgumentInvalid, match="exactly one of backupTag and backupIdentifier"):
            await runner.run("RestoreData", "v1.0.0", backupArtifactPrefix="x", restorePath=str(tmp_path), **which)


async def test_without_a_profile_or_with_a_strange_one_the_phase_says_so() -> None:
    with pytest.raises(PhaseFailed, match="the action has no profile"):
        await PhaseRunner(params={"Profile": None}).run("LocationDelete", artifact="x")
    strange = {"Profile": {"Location": {"Type": "gcs"}, "Credential": {}}}
    with pytest.raises(PhaseFailed, match='location of type "gcs" cannot be used'):
        await PhaseRunner(params=strange).run("LocationDelete", artifact="x")
