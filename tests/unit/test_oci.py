"""Names, stores, layouts, logins and rules for images."""

from __future__ import annotations

import base64
import fcntl
import gzip
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from planform.packages.blobs import BlobStore, load_image, store_image
from planform.packages.credentials import (
    Credentials,
    Login,
    credentials_from_files,
    credentials_from_secret,
    credentials_of,
    usual_files,
)
from planform.packages.errors import CredentialsUnusable, InvalidPackage, InvalidReference, PackageNotFound
from planform.packages.image_config import (
    Authority,
    ImageRules,
    InvalidImageConfig,
    Purpose,
    RuntimeConfigRef,
    applied_refs,
    parse_image_config,
)
from planform.packages.layers import File, make_layer
from planform.packages.oci import Descriptor, Platform, choose, parse_platform, this_platform
from planform.packages.oci import Index as ImageIndex
from planform.packages.references import Reference, parse_reference
from planform.packages.registry_session import is_same_place
from planform.packages.tarballs import read_image, write_xpkg
from tests.unit.archives import Entry, hex_of, tar

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


# -- names


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("registry.example.org/team/f:v1", ("registry.example.org", "team/f", "v1", "")),
        ("localhost:5000/f:v1", ("localhost:5000", "f", "v1", "")),
        ("localhost/f:v1", ("localhost", "f", "v1", "")),
        (f"r.io/a/b/c@{DIGEST}", ("r.io", "a/b/c", "", DIGEST)),
        (f"r.io/a:v1@{DIGEST}", ("r.io", "a", "v1", DIGEST)),
        ("[::1]:5000/f:v1", ("[::1]:5000", "f", "v1", "")),
        ("Registry.IO/a_b/c.d--e:V1", ("registry.io", "a_b/c.d--e", "V1", "")),
    ],
)
def test_names_of_packages_are_taken_apart(text: str, parts: tuple[str, ...]) -> None:
    assert parse_reference(text) == Reference(*parts)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("team/f:v1", "names no registry"),
        ("f", "names no registry"),
        ("", "names no registry"),
        ("r.io/f", "neither tag nor digest"),
        ("r.io/F:v1", "no repository"),
        ("r.io/../etc:v1", "no repository"),
        ("r.io/a:-v", "is no tag"),
        ("r.io/a@sha256:abc", "is no digest"),
        ("http://r.io/a:v1", "names no registry"),
        ("r.io/a b:v1", "no repository"),
        ("r.io/" + "a" * 600, "longer than"),
    ],
)
def test_what_is_no_name_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidReference, match=problem):
        parse_reference(text)


@given(
    st.from_regex(r"[a-z]{1,5}\.[a-z]{2,3}(:[0-9]{2,4})?", fullmatch=True),
    st.from_regex(r"[a-z0-9]{1,6}(/[a-z0-9]{1,6}){0,2}", fullmatch=True),
    st.from_regex(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,8})?", fullmatch=True),
    st.sampled_from(["", DIGEST]),
)
def test_name_survives_being_written_and_read(registry: str, repository: str, tag: str, digest: str) -> None:
    reference = Reference(registry, repository, tag, digest)
    assert parse_reference(str(reference), versioned=False) == reference


@pytest.mark.parametrize(
    ("registry", "local"),
    [
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.1.2.3", True),
        ("[::1]:80", True),
        ("r.io", False),
        ("10.0.0.1:5000", False),
    ],
)
def test_loopback_registries_are_known(registry: str, local: bool) -> None:
    assert Reference(registry, "a", "b").is_loopback is local


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://r.io/v2/a/blobs/uploads/1", True),
        ("https://r.io:443/x", True),
        ("https://storage.example.org/x", False),
        ("https://r.io:8443/x", False),
        ("https://r.io.example.org/x", False),
        ("http://r.io/x", False),
    ],
)
def test_logins_are_sent_to_the_registry_itself_only(url: str, own: bool) -> None:
    assert is_same_place(URL("https://r.io/"), URL(url)) is own


# -- the store


def test_what_a_name_meant_is_remembered(blobs: BlobStore) -> None:
    assert blobs.recall("r.io/a:v1") is None
    described = Descriptor("type", DIGEST, 7)
    blobs.remember("r.io/a:v1", described)
    assert BlobStore(blobs.directory).recall("r.io/a:v1") == described


def test_sweeping_keeps_what_is_named(blobs: BlobStore) -> None:
    keep, drop = blobs.add(b"keep"), blobs.add(b"drop me")
    blobs.partial(DIGEST).write_bytes(b"half")
    assert blobs.sweep([keep]) == len(b"drop me") + len(b"half")
    assert blobs.read(keep, 10) == b"keep"
    with pytest.raises(PackageNotFound):
        blobs.read(drop, 10)


def test_sweeping_leaves_downloads_alone_that_go_on(blobs: BlobStore) -> None:
    with blobs.partial(DIGEST).open("ab") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        assert blobs.sweep([]) == 0
    assert blobs.partial(DIGEST).exists()

    def chunks() -> Iterator[bytes]:
        yield b"first"
        assert blobs.sweep([]) == 0
        yield b"second"

    digest, size = blobs.add_stream(chunks())
    assert (blobs.read(digest, 100), size) == (b"firstsecond", 11)


# -- files of others


def oci_layout(directory: Path, *, platforms: tuple[str, ...] = ("amd64",)) -> list[str]:
    """An unpacked OCI layout made by hand; gives the digests of its manifests."""
    (directory / "blobs" / "sha256").mkdir(parents=True)

    def put(body: bytes) -> dict[str, Any]:
        (directory / "blobs" / "sha256" / hex_of(body)).write_bytes(body)
        return {"digest": f"sha256:{hex_of(body)}", "size": len(body)}

    manifests = []
    for platform in platforms:
        layer = put(gzip.compress(tar(Entry("arch", platform.encode())), mtime=0))
        config = put(json.dumps({"os": "linux", "architecture": platform, "config": {"Entrypoint": ["/x"]}}).encode())
        body = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", **config},
            "layers": [{"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", **layer}],
        }
        described = put(json.dumps(body, indent=3).encode())
        manifests.append(
            {"mediaType": body["mediaType"], "platform": {"os": "linux", "architecture": platform}, **described}
        )
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return [manifest["digest"] for manifest in manifests]


@pytest.mark.parametrize("ending", ["", ".tar", ".tgz"])
def test_oci_layout_is_read_packed_or_not(ending: str, blobs: BlobStore, tmp_path: Path) -> None:
    [expected] = oci_layout(tmp_path / "layout")
    path = tmp_path / "layout"
    if ending:
        path = tmp_path / f"layout{ending}"
        with tarfile.open(path, "w:gz" if ending == ".tgz" else "w") as archive:
            archive.add(tmp_path / "layout", arcname=".")
    image = read_image(path, blobs)
    assert image.digest == expected, "the digest is of the bytes as they were, not as we would write them"
    assert image.settings["Entrypoint"] == ["/x"]


def test_image_for_the_platform_is_chosen(blobs: BlobStore, tmp_path: Path) -> None:
    ours = this_platform().architecture
    here, other = oci_layout(tmp_path / "layout", platforms=(ours, "riscv64"))
    assert read_image(tmp_path / "layout", blobs).digest == here
    assert read_image(tmp_path / "layout", blobs, platform=parse_platform("linux/riscv64")).digest == other
    with pytest.raises(InvalidPackage, match="no image for linux/s390x"):
        read_image(tmp_path / "layout", blobs, platform=Platform("linux", "s390x"))


def test_layout_with_altered_content_is_refused(blobs: BlobStore, tmp_path: Path) -> None:
    [digest] = oci_layout(tmp_path / "layout")
    file = tmp_path / "layout" / "blobs" / "sha256" / digest.removeprefix("sha256:")
    file.write_bytes(file.read_bytes()[:-1] + b" ")
    with pytest.raises(InvalidPackage, match="other content than its name says"):
        read_image(tmp_path / "layout", blobs)


def test_docker_save_with_plain_and_shared_layers_is_read(blobs: BlobStore, tmp_path: Path) -> None:
    plain = tar(Entry("a", b"1"))
    listing = [{"Config": "c.json", "RepoTags": ["x:latest"], "Layers": ["one/layer.tar", "two/layer.tar"]}]
    body = tar(
        Entry("one/layer.tar", plain),
        Entry("two/layer.tar", kind=tarfile.SYMTYPE, link="../one/layer.tar"),
        Entry("c.json", b'{"os": "linux", "architecture": "amd64"}'),
        Entry("manifest.json", json.dumps(listing).encode()),
    )
    (tmp_path / "saved.tgz").write_bytes(gzip.compress(body))
    image = read_image(tmp_path / "saved.tgz", blobs)
    assert [each.media_type for each in image.manifest.layers] == ["application/vnd.oci.image.layer.v1.tar"] * 2


def test_writing_replaces_a_file_only_once_it_is_whole(blobs: BlobStore, tmp_path: Path) -> None:
    made = make_layer(blobs, [File("a", b"1")])
    image = store_image(blobs, {}, [made.descriptor])
    (tmp_path / "out.xpkg").write_text("before")
    blobs.path(made.descriptor.digest).unlink()
    with pytest.raises(PackageNotFound):
        write_xpkg(image, tmp_path / "out.xpkg")
    assert (tmp_path / "out.xpkg").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blobs", "out.xpkg"]


def test_single_image_of_an_index_is_taken_whatever_its_platform() -> None:
    only = Descriptor("application/vnd.oci.image.manifest.v1+json", DIGEST, 1, platform=Platform("linux", "s390x"))
    assert choose(ImageIndex((only,))) is only
    notes = Descriptor(only.media_type, DIGEST, 2, platform=Platform("unknown", "unknown"))
    assert choose(ImageIndex((only, notes))) is only


def test_stored_image_is_loaded_by_its_digest(blobs: BlobStore) -> None:
    image = store_image(blobs, {"os": "linux", "architecture": "arm64"}, [])
    assert load_image(BlobStore(blobs.directory), image.digest).platform == Platform("linux", "arm64")


# -- logins


def auth(username: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{username}:{password}".encode()).decode()}


def login(credentials: Credentials, name: str) -> Login | None:
    return credentials.login_for(parse_reference(name))


def test_longest_path_of_a_login_counts() -> None:
    found = credentials_of(
        {"auths": {"r.io": auth("all", "1"), "r.io/team": auth("team", "2:3"), "https://other.io/v2/": auth("o", "4")}},
        where="config.json",
    )
    assert login(found, "r.io/team/f:v1") == Login("team", "2:3")
    assert login(found, "r.io/teams/f:v1") == Login("all", "1")
    assert login(found, "other.io/f:v1") == Login("o", "4")
    assert login(found, "third.io/f:v1") is None


@pytest.mark.parametrize(
    "config",
    [
        {"credHelpers": {"r.io": "ecr-login"}},
        {"auths": {"r.io": {}}, "credsStore": "ecr-login"},
    ],
)
def test_helper_programs_are_refused_with_a_hint(config: dict[str, Any]) -> None:
    found = credentials_of(config, where="config.json")
    assert login(found, "else.io/f:v1") is None
    with pytest.raises(CredentialsUnusable, match="docker-credential-ecr-login, which is not run") as caught:
        login(found, "r.io/f:v1")
    assert "docker --config DIR login r.io" in (caught.value.hint or "")


def test_login_in_the_file_beats_the_helper() -> None:
    config = {"auths": {"r.io": auth("a", "b")}, "credHelpers": {"r.io": "x"}}
    assert login(credentials_of(config, where="c"), "r.io/f:v1") == Login("a", "b")


def test_first_file_that_has_a_login_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps({"auths": {"r.io": auth("first", "1")}}))
    second.write_text(json.dumps({"auths": {"r.io": auth("second", "1"), "s.io": auth("second", "2")}}))
    found = credentials_from_files([tmp_path / "absent.json", first, second])
    assert login(found, "r.io/f:v1") == Login("first", "1")
    assert login(found, "s.io/f:v1") == Login("second", "2")
    second.write_text("{")
    with pytest.raises(CredentialsUnusable, match=r"second\.json cannot be read"):
        credentials_from_files([first, second])


def test_files_are_where_docker_and_podman_keep_them() -> None:
    assert usual_files({"DOCKER_CONFIG": "/d"}) == [Path("/d/config.json")]
    assert usual_files({"REGISTRY_AUTH_FILE": "/a.json", "DOCKER_CONFIG": "/d"}) == [Path("/a.json")]
    assert usual_files({"XDG_RUNTIME_DIR": "/run/1"})[-1] == Path("/run/1/containers/auth.json")


@pytest.mark.parametrize("key", [".dockerconfigjson", ".dockercfg"])
def test_pull_secret_is_read_in_both_forms(key: str) -> None:
    auths = {"r.io": auth("a", "b")}
    text = json.dumps({"auths": auths} if key == ".dockerconfigjson" else auths)
    secret = {"metadata": {"name": "s"}, "data": {key: base64.b64encode(text.encode()).decode()}}
    assert login(credentials_from_secret(secret), "r.io/f:v1") == Login("a", "b")


@pytest.mark.parametrize("data", [{}, {".dockerconfigjson": "%"}, {".dockerconfigjson": "Zm9v"}])
def test_pull_secret_of_another_shape_is_refused(data: dict[str, str]) -> None:
    with pytest.raises(CredentialsUnusable, match=r"Secret s|of Secret s"):
        credentials_from_secret({"metadata": {"name": "s"}, "data": data})


def test_password_is_never_shown() -> None:
    assert "hunter2" not in repr(Login("ada", "hunter2", "hunter2", "hunter2"))


# -- rules


def config(name: str, *prefixes: str, **spec: Any) -> dict[str, Any]:
    matches = [{"type": "Prefix", "prefix": prefix} for prefix in prefixes]
    return {"metadata": {"name": name}, "spec": {"matchImages": matches, **spec}}


def secret(name: str) -> dict[str, Any]:
    return {"authentication": {"pullSecretRef": {"name": name}}}


def cosign(*authorities: dict[str, Any], provider: str = "Cosign") -> dict[str, Any]:
    return {"provider": provider, "cosign": {"authorities": list(authorities)}}


KEY = {"name": "us", "key": {"secretRef": {"name": "keys", "key": "cosign.pub"}}}


def rules(*configs: dict[str, Any]) -> ImageRules:
    return ImageRules(parse_image_config(each) for each in configs)


def test_longest_prefix_counts_and_then_the_name() -> None:
    found = rules(
        config("c", "r.io/", registry=secret("all")),
        config("b", "r.io/team", registry=secret("b")),
        config("a", "r.io/team", "x.io/", registry=secret("a")),
    )
    assert found.treatment("r.io/team/f:v1").pull_secret == "a"
    assert found.treatment("r.io/other/f:v1").pull_secret == "all"
    assert found.treatment("s.io/f:v1").pull_secret == ""
    assert found.concern("x.io/f:v1")
    assert not found.concern("s.io/f:v1")


def test_each_purpose_has_its_own_rule_and_rewriting_comes_first() -> None:
    found = rules(
        config("mirror", "r.io/", "r.io/team/", rewriteImage={"prefix": "mirror.local:5000/r/"}),
        config("login-old", "r.io/", registry=secret("old")),
        config("login-new", "mirror.local:5000/", registry=secret("new")),
        config("check", "mirror.local:5000/r", verification=cosign(KEY)),
        config("run", "mirror.local:5000/", runtime={"configRef": {"name": "big"}}),
    )
    treatment = found.treatment("r.io/team/f:v1")
    assert treatment.image == "mirror.local:5000/r/f:v1", "the longest matching prefix of the rule is replaced"
    assert treatment.pull_secret == "new"
    assert treatment.verification is not None
    assert treatment.verification.authorities == (Authority("us", "keys", "cosign.pub"),)
    assert treatment.runtime == RuntimeConfigRef("pkg.crossplane.io/v1beta1", "DeploymentRuntimeConfig", "big")
    assert applied_refs(treatment) == [
        {"name": "mirror", "reason": Purpose.REWRITE},
        {"name": "login-new", "reason": Purpose.PULL_SECRET},
        {"name": "check", "reason": Purpose.VERIFY},
        {"name": "run", "reason": Purpose.RUNTIME},
    ]


@pytest.mark.parametrize(
    ("verification", "problem"),
    [
        (cosign(provider="Notary"), "only Cosign"),
        (cosign(), "names no authorities"),
        (cosign({"name": "k", "keyless": {}}), "authority k asks for keyless signatures, and keyless is not supported"),
        (cosign({"name": "k"}), "authority k has no key"),
        (cosign({**KEY, "attestations": [{}]}), "attestations"),
        (cosign({"name": "k", "key": {**KEY["key"], "hashAlgorithm": "sha512"}}), "only sha256"),  # type: ignore[dict-item]
    ],
)
def test_verification_that_cannot_be_done_fails_instead_of_being_left_out(
    verification: dict[str, Any], problem: str
) -> None:
    found = rules(config("check", "r.io/", verification=verification))
    assert found.treatment("s.io/f:v1").verification is None
    with pytest.raises(InvalidImageConfig, match=problem):
        found.treatment("r.io/f:v1")


@pytest.mark.parametrize(
    "match", [{"type": "Regex", "prefix": "a"}, {"type": "Prefix"}, {"type": "Prefix", "prefix": ""}]
)
def test_rule_that_matches_otherwise_is_refused(match: dict[str, str]) -> None:
    with pytest.raises(InvalidImageConfig):
        parse_image_config({"metadata": {"name": "x"}, "spec": {"matchImages": [match]}})


def test_layers_do_not_depend_on_who_made_them(blobs: BlobStore, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    first = make_layer(blobs, [File("b/x", file), File("a", b"1", executable=True)])
    os.utime(file, (1, 1))
    file.chmod(0o600)
    assert make_layer(blobs, [File("a", b"1", executable=True), File("b/x", file)]) == first
