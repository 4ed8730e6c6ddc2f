"""Previews of a stock Crossplane from outside: what they say is what Crossplane does, and nothing is written.

A real API server, Crossplane's own binary and functions of others. Somebody who may only read asks what a change would
do; then the change is applied, Crossplane acts, and every field is compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml

from planform.api.kinds import Object
from planform.cli.previews.answers import Answer
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.credentials import Credentials
from planform.packages.programs import executable_program
from planform.packages.references import parse_reference
from planform.packages.registry import RegistryClient
from planform.packages.xpkg import package_of
from tests.e2e.control_plane import PLANFORM
from tests.e2e.registries import serving_registry
from tests.harness.auditing import Audit, Write
from tests.harness.crossplane import Crossplane, UpstreamFunction, stock_crossplane
from tests.harness.kubernetes import real_kubernetes
from tests.harness.packaging import meta
from tests.harness.programs import programs
from tests.preview.fleets import READY, config_map, patched, templated
from tests.preview.truth import Effects, Place, differences, happened, predicted

pytestmark = [pytest.mark.xdist_group("stock-crossplane"), pytest.mark.timeout(420)]

NAMES = ("function-patch-and-transform", "function-go-templating", "function-auto-ready")
READER = "system:serviceaccount:default:reader"
GROUP = "stock.example.org"
COMPOSED = ("configmaps", f"widgets.{GROUP}")
XRS = int(os.environ.get("PREVIEW_STOCK_XRS", "8"))
CHANGES = int(os.environ.get("PREVIEW_STOCK_CHANGES", "6"))


@dataclass(frozen=True)
class Stock:
    """A cluster with Crossplane, and somebody who may only read."""

    crossplane: Crossplane
    audit: Audit
    kubeconfig: Path
    directory: Path

    def preview(self, *manifests: Object, more: Sequence[str] = ()) -> Answer:
        """What somebody who may only read is told; nothing of it reaches the cluster."""
        change = self.directory / "change.yaml"
        change.write_text("\n---\n".join(json.dumps(each) for each in manifests))
        mark = self.audit.mark()
        command = [str(PLANFORM), "preview", "--kubeconfig", str(self.kubeconfig), "-f", str(change), "-o", "json"]
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode in (0, 3), done.stderr
        assert self.writes(mark) == []
        return msgspec.json.decode(done.stdout, type=Answer)

    def writes(self, since: int) -> list[Write]:
        """What the reader wrote, or tried to; asking what one may do has the form of a write, and is none."""
        found = [each for each in self.audit.writes(since, ours=False) if each.user == READER]
        return [each for each in found if each.resource != "selfsubjectaccessreviews.authorization.k8s.io"]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    directory = tmp_path_factory.mktemp("stock")
    found = programs(*NAMES)
    audit = Audit(directory / "audit")
    with ExitStack() as stack:
        cluster = stack.enter_context(
            # With the garbage collector: Crossplane deletes in the foreground, so without one nothing ever goes, and
            # what comes back under its old name is applied to an object that is on its way out.
            real_kubernetes(directory / "cluster", unsafe_no_fsync=True, api_flags=audit.flags())
        )
        registry = stack.enter_context(serving_registry(directory / "registry"))
        packages = asyncio.run(_published(registry, directory / "blobs", found))
        crossplane = stack.enter_context(
            stock_crossplane(
                cluster,
                directory / "crossplane",
                [UpstreamFunction(name, package, found / name) for name, package in packages.items()],
                [int(registry.rpartition(":")[2])],
            )
        )
        yield Stock(crossplane, audit, _reader(crossplane, directory), directory)


async def _published(address: str, blobs: Path, found: Path) -> dict[str, str]:
    """Push the functions as packages; gives each one's."""
    packages = {name: f"{address}/acme/{name}:v1.0.0" for name in NAMES}
    async with RegistryClient(BlobStore(blobs), Credentials({}), rng=Random(1)) as registry:
        for name, package in packages.items():
            about = meta("Function", name, capabilities=["composition"])
            image = assemble(registry.blobs, Source(package_of([("package", about)])), executable_program(found / name))
            await registry.push(image, parse_reference(package))
    return packages


ROLE: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "preview"},
    "rules": [
        {
            "apiGroups": ["apiextensions.crossplane.io", "pkg.crossplane.io", "protection.crossplane.io"],
            "resources": ["*"],
            "verbs": ["get", "list"],
        },
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get", "list"]},
        {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
    ],
}


def _reader(crossplane: Crossplane, directory: Path) -> Path:
    """A kubeconfig of a ServiceAccount that may read, and no more."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "default"}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "preview"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "preview"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    }
    crossplane.apply(account, ROLE, binding)
    token = crossplane.cluster.kubectl("create", "token", "reader", "-n", "default").strip()
    config: Any = json.loads(crossplane.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = directory / "reader.kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


# -- what lives there


def definition(plural: str, kind: str) -> Object:
    fields = {
        "size": {"type": "string"},
        "tier": {"type": "string", "default": "free"},
        "words": {"type": "array", "items": {"type": "string"}},
    }
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": fields},
            "status": {"type": "object", "properties": {"words": {"type": "string"}}},
        },
    }
    return {
        "apiVersion": "apiextensions.crossplane.io/v2",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "mode": {"type": "string", "default": "auto"},
                                    "note": {"type": "string"},
                                    "size": {"type": "string"},
                                    "ports": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "port": {"type": "integer"},
                                                "protocol": {"type": "string", "default": "TCP"},
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}

TEMPLATE = """
{{- range $i, $name := list %(names)s }}
---
apiVersion: stock.example.org/v1
kind: Widget
metadata:
  annotations:
    gotemplating.fn.crossplane.io/composition-resource-name: "{{ $name }}"
    gotemplating.fn.crossplane.io/ready: "True"
spec:
  size: "{{ $.observed.composite.resource.spec.size }}-{{ $.observed.composite.resource.spec.tier }}"
  %(more)s
{{- end }}
"""


def generated(random: Random) -> list[Object]:
    """The steps of a Composition."""
    maps = [
        config_map(name, {f"k{number}": str(random.randrange(4)) for number in range(random.randrange(3))})
        for name in sorted(random.sample(["a", "b", "c", "d"], random.randrange(1, 4)))
    ]
    for each in maps:
        if random.random() < 0.4:
            each["base"]["metadata"] = {"labels": {"tier": random.choice("xy")}}
    status = {"type": "ToCompositeFieldPath", "fromFieldPath": "data.size", "toFieldPath": "status.words"}
    if random.random() < 0.4:
        maps[0]["patches"].append(status)
    names = " ".join(f'"{each}"' for each in sorted(random.sample(["n1", "n2"], random.randrange(1, 3))))
    ports = [
        {"name": name, "port": random.randrange(80, 83)} for name in random.sample(["web", "ops"], random.randrange(3))
    ]
    more = [f"ports: {json.dumps(ports)}"] if ports else []
    more += [f"note: {random.choice(['one', 'two'])}"] if random.random() < 0.6 else []
    more += [f"mode: {random.choice(['auto', 'manual'])}"] if random.random() < 0.3 else []
    return [patched(*maps), templated(TEMPLATE % {"names": names, "more": "\n  ".join(more)}, step="widgets"), READY]


@dataclass
class Fleet:
    """XRs of one kind, and their Composition."""

    stock: Stock
    kind: str
    plural: str

    def composition(self, *steps: Object) -> Object:
        return {
            "apiVersion": "apiextensions.crossplane.io/v1",
            "kind": "Composition",
            "metadata": {"name": self.plural},
            "spec": {
                "compositeTypeRef": {"apiVersion": f"{GROUP}/v1", "kind": self.kind},
                "mode": "Pipeline",
                "pipeline": list(steps),
            },
        }

    def create(self, steps: Sequence[Object], count: int) -> None:
        crossplane = self.stock.crossplane
        crossplane.apply(WIDGETS, definition(self.plural, self.kind), self.composition(*steps))
        crossplane.until(self._is_served, f"{self.plural} are served")
        crossplane.apply(
            *(
                {
                    "apiVersion": f"{GROUP}/v1",
                    "kind": self.kind,
                    "metadata": {"name": f"x{number}", "namespace": "default"},
                    "spec": {"size": str(number)},
                }
                for number in range(count)
            )
        )
        self.until_settled()

    def _is_served(self) -> bool:
        found = self.stock.crossplane.get("xrd", f"{self.plural}.{GROUP}").get("status") or {}
        conditions = {each["type"]: each["status"] for each in found.get("conditions") or ()}
        return conditions.get("Established") == "True"

    def xrs(self) -> list[Object]:
        found: list[Object] = self.stock.crossplane.get(f"{self.plural}.{GROUP}", "-n", "default")["items"]
        return found

    def until_settled(self) -> None:
        """Wait until all XRs run the newest revision, and Crossplane says that they are ready."""
        crossplane = self.stock.crossplane

        def newest() -> Object:
            label = f"crossplane.io/composition-name={self.plural}"
            found: list[Object] = crossplane.get("compositionrevisions", "-l", label)["items"]
            return max(found, key=lambda each: int(each["spec"]["revision"]))

        def is_settled() -> bool:
            spec = crossplane.get("composition", self.plural)["spec"]
            revision = newest()
            if any(revision["spec"].get(key) != spec[key] for key in ("pipeline",)):
                return False
            return all(_runs(xr, revision["metadata"]["name"]) for xr in self.xrs())

        try:
            crossplane.until(is_settled, "Crossplane has brought all XRs to the newest revision", seconds=60)
        except AssertionError as error:
            events = crossplane.cluster.kubectl("get", "events", "-A", "--field-selector=type=Warning")
            error.add_note(yaml.safe_dump(self.xrs()[:1]) + events[-3000:])
            raise

    def until_gone(self) -> None:
        """Wait until nothing is on its way out: what is there is then what a preview sees."""
        get = self.stock.crossplane.get

        def is_gone() -> bool:
            items = [each for plural in COMPOSED for each in get(plural, "-n", "default")["items"]]
            return not any(each["metadata"].get("deletionTimestamp") for each in items)

        self.stock.crossplane.until(is_gone, "what was deleted is gone")

    def snapshot(self) -> dict[Place, Object]:
        """All that the XRs compose, by XR and name in the composition."""
        found: dict[Place, Object] = {}
        names = {xr["metadata"]["name"] for xr in self.xrs()}
        for plural in COMPOSED:
            items = self.stock.crossplane.get(plural, "-n", "default", "-l", "crossplane.io/composite")["items"]
            for each in items:
                metadata = each["metadata"]
                owner = metadata["labels"]["crossplane.io/composite"]
                owners = [each["kind"] for each in metadata.get("ownerReferences") or ()]
                if owner in names and owners == [self.kind] and not metadata.get("deletionTimestamp"):
                    found[owner, metadata["annotations"]["crossplane.io/composition-resource-name"]] = each
        return found


def _runs(xr: Object, revision: str) -> bool:
    conditions = {each["type"]: each for each in (xr.get("status") or {}).get("conditions") or ()}
    return ((xr["spec"].get("crossplane") or {}).get("compositionRevisionRef") or {}).get("name") == revision and all(
        (conditions.get(each) or {}).get("status") == "True" for each in ("Ready", "Synced")
    )


def compare(fleet: Fleet, change: Object) -> tuple[Answer, Effects]:
    """Preview a change, apply it, and hold what Crossplane did against what was said."""
    fleet.until_gone()
    before, xrs = fleet.snapshot(), fleet.xrs()
    answer = fleet.stock.preview(change)
    assert answer.summary.xrs == len(xrs)
    assert answer.summary.unchanged + answer.summary.changed == len(xrs), answer.xrs
    assert not answer.summary.drifting, [each.drifting for each in answer.xrs]
    said = predicted(answer.classes, answer.xrs, xrs)
    fleet.stock.crossplane.apply(change)
    fleet.until_settled()
    try:
        fleet.stock.crossplane.until(
            lambda: happened(before, fleet.snapshot()) == said, "what was previewed happens", seconds=20
        )
    finally:
        assert differences(happened(before, fleet.snapshot()), said) == []
    return answer, said


def test_stock_crossplane_does_what_a_reader_was_told(stock: Stock) -> None:
    random = Random(7)
    fleet = Fleet(stock, "App", "apps")
    fleet.create(generated(random), XRS)
    compared = marked = 0
    for _ in range(CHANGES):
        answer, (updates, creates, deletes) = compare(fleet, fleet.composition(*generated(random)))
        compared += sum(map(len, updates.values())) + sum(map(len, creates.values())) + len(deletes)
        marked += sum(len(each.unstable) + len(each.waits) for each in answer.xrs)
    assert compared > CHANGES * XRS
    assert marked == 0
