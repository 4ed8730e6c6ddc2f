"""The page on the package format says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from planform.packages import oci, payloads, signatures, streams, tarballs, xpkg
from planform.packages.registry import Limits

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "package-format.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]


def row(words: str) -> str:
    [found] = [line for line in ROWS if words in line]
    return found


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("a manifest or index", (f"{oci.MANIFEST_BYTES >> 20} MiB", f"{oci.MAX_LAYERS} layers")),
        ("as it is sent", (f"{Limits().image_bytes >> 30} GiB",)),
        ("| `package.yaml` |", (f"{xpkg.PACKAGE_BYTES >> 20} MiB", f"{xpkg.MAX_OBJECTS:,}", f"{xpkg.MAX_VALUES:,}")),
        (
            "files of a process, unpacked",
            (f"{payloads.PAYLOAD_LIMITS.unpacked_bytes >> 30} GiB", f"{payloads.PAYLOAD_LIMITS.entries:,}"),
        ),
        (
            "an image, unpacked",
            (f"{streams.ArchiveLimits().unpacked_bytes >> 30} GiB", f"{streams.ArchiveLimits().entries:,}"),
        ),
        ("any archive", (f"{streams.ArchiveLimits().ratio} times",)),
        ("a path in an archive", (f"{streams.ArchiveLimits().path_length:,} characters",)),
    ],
)
def test_limits_are_those_of_the_code(words: str, facts: tuple[str, ...]) -> None:
    assert [fact for fact in facts if fact not in row(words)] == []


@pytest.mark.parametrize("kind", xpkg.PackageKind)
def test_kinds_are_those_of_the_code(kind: xpkg.PackageKind) -> None:
    brought = row(f"| `{kind}` |").split("|")[3]
    assert {word.strip() for word in brought.split(",")} == {each.kind for each in xpkg.INSTALLED_KINDS[kind]}


@pytest.mark.parametrize(
    "word",
    [
        f"{tarballs.MARK}: {xpkg.BASE}",
        f"{tarballs.MARK}: {xpkg.EXAMPLES}",
        f"{tarballs.MARK}: {payloads.PAYLOAD}",
        payloads.RUNTIME_LABEL,
        payloads.ONLY_LABEL,
        signatures.signature_tag("sha256:HEX"),
        *payloads.RuntimeKind,
    ],
)
def test_words_are_those_of_the_code(word: str) -> None:
    assert f"`{word}`" in PAGE
