"""Packages come from strangers: each of these is refused with a reason, and takes neither disk nor memory with it."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.packages.blobs import BlobStore, Image, load_image, store_image
from planform.packages.errors import DigestMismatch, InvalidPackage, PackageError, PackageTooLarge, UnsafePackage
from planform.packages.extraction import Links, extract_image, extract_layers
from planform.packages.oci import (
    CONFIG_BYTES,
    MANIFEST_BYTES,
    OCI_INDEX,
    OCI_LAYER_GZIP,
    OCI_MANIFEST,
    Descriptor,
    Index,
    Manifest,
    choose,
    digest_of,
    parse_manifest,
)
from planform.packages.streams import ArchiveLimits
from planform.packages.tarballs import read_image
from planform.packages.xpkg import parse_package, read_package
from tests.unit.archives import FUNCTION_META, Entry, layer, package_yaml, tar, upstream_xpkg

ROOT = Path(__file__).parents[2]
DIRECTORY, SYMLINK, HARDLINK = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A file that no package may touch; it is as it was at the end of every test."""
    file = tmp_path / "outside"
    file.write_text("mine")
    yield file
    assert file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blobs", "outside"], "something was left behind"


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        pytest.param([Entry("../outside", b"x")], "leads out of the package", id="parent"),
        pytest.param([Entry("a/../../outside", b"x")], "leads out of the package", id="parent-in-the-middle"),
        pytest.param([Entry("/etc/passwd", b"x")], "is an absolute path", id="absolute"),
        pytest.param([Entry("link", kind=SYMLINK, link="/etc")], "outside of the package", id="absolute-link"),
        pytest.param([Entry("a/link", kind=SYMLINK, link="../../outside")], "outside of the package", id="link-up"),
        pytest.param(
            [Entry("link", kind=SYMLINK, link="a/../../outside")], "outside of the package", id="link-hidden-up"
        ),
        pytest.param(
            [
                Entry("a/b/up", kind=SYMLINK, link="../.."),
                Entry("a/b/up/escape", kind=SYMLINK, link="../../../outside"),
            ],
            "outside of the package",
            id="link-counted-from-where-it-seems-to-be",
        ),
        pytest.param([Entry("link", kind=HARDLINK, link="../outside")], "leads out of the package", id="hard-link-up"),
        pytest.param(
            [Entry("link", kind=HARDLINK, link="/etc/passwd")], "is an absolute path", id="hard-link-absolute"
        ),
        pytest.param([Entry("link", kind=HARDLINK, link="nothing")], "not in the package", id="hard-link-to-nothing"),
        pytest.param(
            [Entry("d", kind=DIRECTORY, mode=0o755), Entry("link", kind=HARDLINK, link="d")],
            "no regular file",
            id="hard-link-to-directory",
        ),
        pytest.param([Entry("null", kind=tarfile.CHRTYPE)], "device or pipe", id="device"),
        pytest.param([Entry("pipe", kind=tarfile.FIFOTYPE)], "device or pipe", id="pipe"),
        pytest.param([Entry("a/.wh...", b"")], "removes what is not in the package", id="whiteout-of-parent"),
        pytest.param([Entry("/".join("d" * 80), b"x")], "deeper than", id="deep"),
    ],
)
def test_layer_cannot_reach_beyond_its_directory(
    entries: list[Entry], problem: str, blobs: BlobStore, tmp_path: Path, outside: Path
) -> None:
    with pytest.raises(UnsafePackage, match=problem):
        extract_layers(blobs, [layer(blobs, *entries)], tmp_path / "root")


@pytest.mark.parametrize("target", ["/", "../../../..", "..", "/../.."])
def test_writing_through_a_link_stays_below_the_root(target: str, blobs: BlobStore, tmp_path: Path) -> None:
    """In the root of a container any link is normal; what a later layer puts behind it lands within."""
    first = layer(blobs, Entry("up", kind=SYMLINK, link=target))
    second = layer(blobs, Entry("up/outside", b"theirs"), Entry("up/d/file", b"too"))
    (tmp_path / "outside").write_text("mine")
    extract_layers(blobs, [first, second], tmp_path / "root", links=Links.ROOTED)
    assert (tmp_path / "outside").read_text() == "mine"
    assert (tmp_path / "root" / "outside").read_text() == "theirs"
    assert (tmp_path / "root" / "d" / "file").read_text() == "too"


def test_file_in_the_way_is_replaced_and_not_written_through(blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    link = Entry("file", kind=SYMLINK, link=str(tmp_path / "outside"))
    extract_layers(blobs, [layer(blobs, link, Entry("file", b"theirs"))], tmp_path / "root", links=Links.ROOTED)
    assert (tmp_path / "outside").read_text() == "mine"
    assert not (tmp_path / "root" / "file").is_symlink()


def test_links_that_lead_to_each_other_end(blobs: BlobStore, tmp_path: Path) -> None:
    loop = (Entry("a", kind=SYMLINK, link="b"), Entry("b", kind=SYMLINK, link="a"), Entry("a/file", b"x"))
    with pytest.raises(UnsafePackage, match="more than 40 links"):
        extract_layers(blobs, [layer(blobs, *loop)], tmp_path / "root")


_NAMES = st.lists(st.sampled_from([*"aabbc", ".", "", "..", ".wh.a", ".wh..wh..opq"]), max_size=4).map("/".join)
_TARGETS = st.lists(st.sampled_from(["a", "b", "c", "..", ".", "outside", ""]), max_size=5).map("/".join)
_ENTRIES = st.builds(
    Entry,
    st.one_of(_NAMES, _NAMES, _NAMES, _NAMES.map("/{}".format)),
    kind=st.sampled_from([tarfile.REGTYPE, DIRECTORY, SYMLINK, SYMLINK, HARDLINK]),
    link=_TARGETS,
    mode=st.sampled_from([0o000, 0o644, 0o6777]),
)


@given(st.lists(st.lists(_ENTRIES, max_size=6), min_size=1, max_size=3), st.sampled_from(Links))
@settings(max_examples=300, deadline=None)
def test_no_combination_of_entries_reaches_beyond_the_root(archives: list[list[Entry]], links: Links) -> None:
    with tempfile.TemporaryDirectory() as name:
        around = Path(name)
        (around / "outside").write_text("mine")
        blobs, root = BlobStore(around / "blobs"), around / "root"
        layers = [layer(blobs, *entries) for entries in archives]
        with contextlib.suppress(PackageError):
            extract_layers(blobs, layers, root, links=links)
            for path in root.rglob("*"):
                inside = path.is_symlink() and links is Links.BELOW and not _leads_to_itself(path)
                assert not inside or os.path.commonpath([os.path.realpath(path), root.resolve()]) == str(root.resolve())
                assert path.is_symlink() or path.stat().st_nlink < 2 or not path.samefile(around / "outside")
        assert (around / "outside").read_text() == "mine"
        assert sorted(path.name for path in around.iterdir()) in (["blobs", "outside"], ["blobs", "outside", "root"])


def _leads_to_itself(link: Path) -> bool:
    """A loop leads nowhere; what `os.path.realpath` makes of one may be anywhere (`a -> a//a` is `/a`)."""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def test_whiteouts_remove_what_lower_layers_brought(blobs: BlobStore, tmp_path: Path) -> None:
    lower = layer(blobs, Entry("keep", b"1"), Entry("gone", b"2"), Entry("dir/old", b"3"))
    upper = layer(blobs, Entry(".wh.gone"), Entry("dir/new", b"4"), Entry("dir/.wh..wh..opq"))
    extract_layers(blobs, [lower, upper], tmp_path / "root")
    found = {str(path.relative_to(tmp_path / "root")) for path in (tmp_path / "root").rglob("*") if path.is_file()}
    assert found == {"keep", "dir/new"}


def test_setuid_and_write_for_others_are_dropped(blobs: BlobStore, tmp_path: Path) -> None:
    extract_layers(blobs, [layer(blobs, Entry("su", b"x", mode=0o6777))], tmp_path / "root")
    assert (tmp_path / "root" / "su").stat().st_mode & 0o7777 == 0o755


def bomb(size: int) -> bytes:
    """An archive of one file of zeros, compressed piece by piece."""
    header = tarfile.TarInfo("zeros")
    header.size = size
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = b"\0" * (1 << 20)
    parts = [packer.compress(header.tobuf())]
    parts += [packer.compress(zeros) for _ in range(size >> 20)]
    return b"".join([*parts, packer.compress(b"\0" * 1024), packer.flush()])


def stored(blobs: BlobStore, body: bytes, mark: str = "") -> Descriptor:
    return Descriptor(OCI_LAYER_GZIP, blobs.add(body), len(body), {"io.crossplane.xpkg": mark} if mark else {})


def test_gzip_bomb_is_stopped_by_its_ratio(blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(PackageTooLarge, match="more than 200 times its size"):
        extract_layers(blobs, [stored(blobs, bomb(64 << 20))], tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_sizes_of_all_layers_count_together(blobs: BlobStore, tmp_path: Path) -> None:
    noise = os.urandom(600 << 10)
    layers = [layer(blobs, Entry(f"part{number}", noise)) for number in range(4)]
    with pytest.raises(PackageTooLarge, match=r"once unpacked|bytes unpacked"):
        extract_layers(blobs, layers, tmp_path / "root", limits=ArchiveLimits(unpacked_bytes=2 << 20))
    assert not (tmp_path / "root").exists()


def test_number_of_entries_is_limited(blobs: BlobStore, tmp_path: Path) -> None:
    many = layer(blobs, *(Entry(f"f{number}") for number in range(20)))
    with pytest.raises(PackageTooLarge, match="more than 10 entries"):
        extract_layers(blobs, [many], tmp_path / "root", limits=ArchiveLimits(entries=10))


def test_long_path_is_refused(blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(PackageTooLarge, match="path is longer"):
        extract_layers(blobs, [layer(blobs, Entry("x" * 2000, b"y"))], tmp_path / "root")


def test_header_that_claims_to_be_huge_is_not_read(blobs: BlobStore, tmp_path: Path) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    body = gzip.compress(header.tobuf() + b"\0" * 4096)
    with pytest.raises(PackageTooLarge, match="header of"):
        extract_layers(blobs, [stored(blobs, body)], tmp_path / "root")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"not an archive" * 100, id="noise"),
        pytest.param(gzip.compress(b"not an archive" * 100), id="compressed-noise"),
        pytest.param(gzip.compress(tar(Entry("a", os.urandom(5000))))[:2500], id="truncated"),
        pytest.param(b"\x28\xb5\x2f\xfd" + b"0" * 100, id="zstd"),
        pytest.param(b"\x1f\x8b" + b"0" * 100, id="damaged"),
    ],
)
def test_layer_that_is_no_archive_is_refused(body: bytes, blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidPackage):
        extract_layers(blobs, [stored(blobs, body)], tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_layer_of_another_type_is_refused(blobs: BlobStore, tmp_path: Path) -> None:
    strange = Descriptor("application/x-sh", blobs.add(b"rm -rf"), 6)
    with pytest.raises(UnsafePackage, match="application/x-sh"):
        extract_layers(blobs, [strange], tmp_path / "root")


def test_package_yaml_in_a_bomb_is_not_found_at_any_price(blobs: BlobStore) -> None:
    image = store_image(blobs, {}, [stored(blobs, bomb(64 << 20), mark="base")])
    with pytest.raises(PackageTooLarge):
        read_package(image)


def test_two_base_layers_are_refused(blobs: BlobStore) -> None:
    texts = [package_yaml(FUNCTION_META), package_yaml(FUNCTION_META) + b"#\n"]
    image = store_image(blobs, {}, [layer(blobs, Entry("package.yaml", text), mark="base") for text in texts])
    with pytest.raises(InvalidPackage, match="2 layers are marked"):
        read_package(image)


def test_image_that_is_no_package_is_refused(blobs: BlobStore) -> None:
    with pytest.raises(InvalidPackage, match="this is no package"):
        read_package(store_image(blobs, {}, [layer(blobs, Entry("bin/sh", b"x"))]))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"a: &a [x, x]\nb: &b [*a, *a]\n" + b"c: *b\n", id="no-package-at-all"),
        pytest.param(b"{" * 5000, id="deep"),
        pytest.param(b"\xff\xfe", id="not-text"),
        pytest.param(b"key: [unclosed", id="broken"),
        pytest.param(b"--- just text\n", id="text"),
        pytest.param(b"", id="empty"),
    ],
)
def test_yaml_that_is_no_package_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidPackage):
        parse_package(text)


def test_yaml_that_multiplies_itself_is_refused() -> None:
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)]
    with pytest.raises(InvalidPackage):
        parse_package(b"\n".join(lines))


def test_yaml_of_very_many_values_is_refused_before_it_is_parsed() -> None:
    text = package_yaml(FUNCTION_META) + b"spec: [" + b"{}," * 1_000_000 + b"]"
    with pytest.raises(PackageTooLarge, match="more than 2000000 values"):
        parse_package(text)


# -- manifests


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


def manifest(**changes: object) -> bytes:
    value = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": "c", "digest": digest("a"), "size": 2},
        "layers": [],
        **changes,
    }
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("body", "error", "problem"),
    [
        pytest.param(b" " * (MANIFEST_BYTES + 1), PackageTooLarge, "at most", id="huge"),
        pytest.param(b"[]", InvalidPackage, "not an object", id="list"),
        pytest.param(b"{", InvalidPackage, "not JSON", id="broken"),
        pytest.param(b"[" * 100_000, InvalidPackage, "not JSON", id="deep"),
        pytest.param(manifest(config=None), InvalidPackage, "config is not an object", id="no-config"),
        pytest.param(manifest(layers={}), InvalidPackage, "layers is not a list", id="layers"),
        pytest.param(
            manifest(layers=[{"digest": digest("b"), "size": 1}] * 1000),
            PackageTooLarge,
            "1000 layers",
            id="many-layers",
        ),
        pytest.param(
            manifest(layers=[{"digest": "sha256:../../etc", "size": 1}]), InvalidPackage, "no sha256 digest", id="path"
        ),
        pytest.param(manifest(layers=[{"digest": "md5:abc", "size": 1}]), InvalidPackage, "no sha256 digest", id="md5"),
        pytest.param(manifest(layers=[{"digest": digest("b"), "size": -1}]), InvalidPackage, "no size", id="negative"),
        pytest.param(
            manifest(layers=[{"digest": digest("b"), "size": "1"}]), InvalidPackage, "no size", id="text-size"
        ),
        pytest.param(manifest(mediaType="text/html"), InvalidPackage, "neither an image nor an index", id="type"),
        pytest.param(manifest(manifests=[]), InvalidPackage, "neither an image nor an index", id="both"),
        pytest.param(manifest(annotations={"a": 1}), InvalidPackage, "texts by name", id="annotations"),
    ],
)
def test_bad_manifest_is_refused(body: bytes, error: type[PackageError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        parse_manifest(body)


def test_one_content_is_not_taken_for_two_things() -> None:
    with pytest.raises(InvalidPackage, match="is served as"):
        parse_manifest(manifest(), OCI_INDEX)


def test_stored_content_that_changed_is_noticed(blobs: BlobStore) -> None:
    name = blobs.add(b"{}")
    blobs.path(name).write_bytes(b"[]")
    with pytest.raises(DigestMismatch, match="has changed"):
        blobs.read(name, CONFIG_BYTES)


def test_digest_is_never_a_path(blobs: BlobStore) -> None:
    with pytest.raises(InvalidPackage, match="no sha256 digest"):
        blobs.path("sha256:../../../../etc/passwd")


def test_index_without_our_platform_says_what_there_is() -> None:
    parsed = parse_manifest(
        json.dumps(
            {
                "mediaType": OCI_INDEX,
                "manifests": [
                    {
                        "mediaType": OCI_MANIFEST,
                        "digest": digest(c),
                        "size": 1,
                        "platform": {"os": "linux", "architecture": a},
                    }
                    for c, a in (("a", "s390x"), ("b", "riscv64"))
                ],
            }
        ).encode()
    )
    assert isinstance(parsed, Index)
    with pytest.raises(InvalidPackage, match="there: linux/riscv64, linux/s390x"):
        choose(parsed)


# -- files


def renamed(name: str, body: bytes) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda files: {**files, name: body}


def listing(files: dict[str, bytes]) -> dict[str, list[str] | str]:
    found: dict[str, list[str] | str] = json.loads(files["manifest.json"])[0]
    return found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(lambda files: {"a": b"x"}, "holds no image", id="no-image"),
        pytest.param(renamed("manifest.json", b"[]"), "holds 0 images", id="no-entry"),
        pytest.param(renamed("manifest.json", b'[{"Config": "x", "Layers": []}]'), "has no such file", id="no-config"),
        pytest.param(renamed("manifest.json", b'[{"Config": 1}]'), "no Config", id="wrong-config"),
        pytest.param(
            lambda files: {**files, str(listing(files)["Config"]): b"{}"}, "other content than its name", id="altered"
        ),
        pytest.param(
            lambda files: {name: body for name, body in files.items() if not name.endswith(".tar.gz")},
            "has no such file",
            id="no-layers",
        ),
    ],
)
def test_bad_package_file_is_refused(
    change: Callable[[dict[str, bytes]], dict[str, bytes]], problem: str, blobs: BlobStore, tmp_path: Path
) -> None:
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(upstream_xpkg(package_yaml(FUNCTION_META)))) as archive:
        for member in archive:
            opened = archive.extractfile(member)
            assert opened is not None
            files[member.name] = opened.read()
    (tmp_path / "bad.xpkg").write_bytes(tar(*(Entry(name, body) for name, body in change(files).items())))
    with pytest.raises(InvalidPackage, match=problem):
        read_image(tmp_path / "bad.xpkg", blobs)


def test_image_whose_layer_is_a_bomb_still_loads_but_does_not_unpack(blobs: BlobStore, tmp_path: Path) -> None:
    image = store_image(blobs, {"config": {}}, [stored(blobs, bomb(64 << 20))])
    loaded: Image = load_image(blobs, image.digest)
    with pytest.raises(PackageTooLarge):
        extract_image(loaded, tmp_path / "root")


_MEASURED = """
import resource, sys
from pathlib import Path
from planform.packages.blobs import BlobStore
from planform.packages.errors import PackageTooLarge
from planform.packages.extraction import extract_layers
from planform.packages.oci import Descriptor, OCI_LAYER_GZIP
from planform.packages.streams import ArchiveLimits
blobs, root = BlobStore(Path(sys.argv[1])), Path(sys.argv[2])
digest, size = sys.argv[3], int(sys.argv[4])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    limits = ArchiveLimits(ratio=10**9, unpacked_bytes=64 << 20)
    extract_layers(blobs, [Descriptor(OCI_LAYER_GZIP, digest, size)], root, limits=limits)
except PackageTooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, root.exists())
"""


def test_refusing_a_bomb_takes_little_memory_and_leaves_no_disk(blobs: BlobStore, tmp_path: Path) -> None:
    body = bomb(256 << 20)
    command = [
        sys.executable,
        "-c",
        _MEASURED,
        str(blobs.directory),
        str(tmp_path / "root"),
        blobs.add(body),
        str(len(body)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
    grown, left = done.stdout.split()
    assert int(grown) < 16 << 10, f"{grown} KiB more"
    assert left == "False"


def test_manifests_we_write_parse_to_what_they_were() -> None:
    made = Manifest(Descriptor("c", digest("a"), 3), (Descriptor("l", digest("b"), 4, {"k": "v"}),), {"x": "y"})
    assert parse_manifest(made.encode()) == made
    assert digest_of(made.encode()) == digest_of(Manifest(made.config, made.layers, {"x": "y"}).encode())
