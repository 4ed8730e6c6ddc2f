"""When a built-in serves for a package, and what is told of it."""

from __future__ import annotations

import pytest

from planform.builtin import find_builtin_name
from planform.features import BuiltInUse
from planform.packages.endpoints import RUNTIME_ANNOTATION
from planform.packages.shipped_functions import difference, stand_in

HOME = "registry.example.org/crossplane-contrib/function-go-templating"
DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("reference", "runtime", "use", "replaced"),
    [
        ("function-go-templating", "", BuiltInUse.NEVER, True),
        (f"{HOME}:v0.9.0", "", BuiltInUse.ALWAYS, True),
        (f"{HOME}:v0.9.0", "", BuiltInUse.MATCHING, False),
        (f"{HOME}:v0.12.3", "", BuiltInUse.MATCHING, True),
        (f"{HOME}:v0.12.3", "", BuiltInUse.NEVER, False),
        (f"{HOME}:v0.9.0", "Package", BuiltInUse.ALWAYS, False),
        (f"{HOME}:v0.9.0", "BuiltIn", BuiltInUse.NEVER, True),
        (f"{HOME}@{DIGEST}", "", BuiltInUse.ALWAYS, False),
        (f"{HOME}:v0.12.3@{DIGEST}", "", BuiltInUse.MATCHING, False),
        (f"{HOME}@{DIGEST}", "BuiltIn", BuiltInUse.ALWAYS, True),
        ("registry.example.org/negz/function-starlark:v0.1.0", "", BuiltInUse.ALWAYS, False),
        ("starlark", "", BuiltInUse.ALWAYS, True),
    ],
)
def test_a_built_in_stands_in_for_a_package_unless_the_package_is_asked_for(
    reference: str, runtime: str, use: BuiltInUse, replaced: bool
) -> None:
    annotations = {RUNTIME_ANNOTATION: runtime} if runtime else {}
    assert (stand_in(reference, annotations, use) is not None) is replaced


def test_what_serves_for_another_version_is_told_with_what_to_do() -> None:
    entry = find_builtin_name("go-templating")
    assert entry is not None
    assert difference(entry, "function-go-templating") == ""
    assert difference(entry, f"{HOME}:v0.12.3") == ""
    assert difference(entry, f"{HOME}:v0.9.0") == (
        f"spec.package names v0.9.0, and what serves is planform's own go-templating {entry.version}, which behaves"
        " like v0.12.3. To run the package itself, annotate the Function with planform.dev/runtime: Package"
    )
    assert "names the digest sha256:000000000000…" in difference(entry, f"{HOME}@{DIGEST}")
    assert "names no version" in difference(entry, HOME)
