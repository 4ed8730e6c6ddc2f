"""Our CustomResourceDefinitions beside Crossplane's own: every field that it has is here, and reads the same.

Limits on lengths and counts are ours, and rules are compared by what they refuse elsewhere; whatever else differs
stands in `upstream_crds.yaml` with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from planform.api.extensions import crds
from planform.api.kinds import Object
from tests.harness.go_modules import go_module

FACTS = ("type", "format", "enum", "default", "nullable", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
FREE = "x-kubernetes-preserve-unknown-fields"
MEANT: dict[str, str] = yaml.safe_load(Path(__file__).with_name("upstream_crds.yaml").read_text())


@pytest.fixture(scope="module")
def upstream() -> dict[str, Object]:
    module = go_module(
        "github.com/crossplane/crossplane/v2", "2.4.0", "h1:atHTxD+8jOOiM1Xf6UMlyZqPYMedRVDSGU10Znt4KR8="
    )
    found = [yaml.safe_load(path.read_text()) for path in sorted((module / "cluster" / "crds").glob("*.yaml"))]
    assert len(found) == 21
    return {crd["metadata"]["name"]: crd for crd in found}


def fields(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    yield path, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from fields(inner, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields(schema["additionalProperties"], f"{path}{{}}")


def schemas(crd: Object) -> dict[str, Object]:
    return {each["name"]: each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"]}


def differences(theirs: Object, ours: Object) -> Iterator[str]:
    if theirs["spec"]["scope"] != ours["spec"]["scope"]:
        yield "scope"
    for version, schema in schemas(theirs).items():
        if version not in schemas(ours):
            yield f"{version}: not served"
            continue
        known = dict(fields(schemas(ours)[version]))
        for path, field in fields(schema):
            if path in known:
                yield from (f"{version}{path}: {what}" for what in _field_differences(field, known[path]))
            elif not _is_free(path, known):
                yield f"{version}{path}: missing"


def _is_free(path: str, known: dict[str, Object]) -> bool:
    """Whether what stands there is kept without being described."""
    return any(path.startswith(above) and field.get(FREE) for above, field in known.items() if above)


def _field_differences(theirs: Object, ours: Object) -> Iterator[str]:
    for fact in FACTS:
        if fact.startswith("x-kubernetes-list") and theirs.get(fact) is None:
            continue  # where nothing is said, a list is replaced as a whole: as ours says
        if theirs.get(fact) != ours.get(fact):
            yield f"{fact} {_shown(theirs.get(fact))} -> {_shown(ours.get(fact))}"
    for name in sorted(set(ours.get("required") or ()) - set(theirs.get("required") or ())):
        yield f"requires {name}"


def _shown(value: Any) -> str:
    return "-" if value is None else ",".join(map(str, value)) if isinstance(value, list) else str(value)


def test_every_kind_of_crossplane_is_served(upstream: dict[str, Object]) -> None:
    assert set(upstream) <= {crd["metadata"]["name"] for crd in crds()}


def test_what_differs_from_crossplanes_schemas_is_meant(upstream: dict[str, Object]) -> None:
    ours = {crd["metadata"]["name"]: crd for crd in crds()}
    found = [f"{name} {each}" for name, theirs in upstream.items() for each in differences(theirs, ours[name])]
    assert [each for each in found if not any(fnmatchcase(each, pattern) for pattern in MEANT)] == []
    unused = [pattern for pattern in MEANT if not any(fnmatchcase(each, pattern) for each in found)]
    assert unused == [], "no longer differs"


def test_every_difference_has_a_reason() -> None:
    assert all(MEANT.values())
