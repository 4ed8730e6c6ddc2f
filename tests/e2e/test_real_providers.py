"""Providers made for Crossplane, built from their published source, manage resources without a cluster.

Each is packed with the definitions of its own package, pushed to a real registry, installed from there, and run as a
process or a container with an account of its own.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from planform.packages.oci import this_platform
from tests.e2e.control_plane import RunningPlane, manifest, planform, running_plane, stop
from tests.e2e.registries import serving_registry
from tests.harness.programs import container_runtime, programs
from tests.unit.archives import Entry, hex_of, tar

pytestmark = [pytest.mark.xdist_group("real-providers"), pytest.mark.timeout(300)]

PATIENCE_SECONDS = 90.0
HELD = "finalizer.managedresource.crossplane.io"
"""Real providers hold their resources with it; the built-in provider of NopResources does not."""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_registry(tmp_path_factory.mktemp("registry")) as served:
        yield served


def publish(registry: str, directory: Path, provider: str, *, as_image: bool = False) -> str:
    """Pack a provider with what its authors pack, and push it; gives what to install."""
    found = programs(provider, f"{provider}-package")
    directory.mkdir(parents=True)
    documents = subprocess.run([found / f"{provider}-package"], capture_output=True, check=True, timeout=30).stdout
    (directory / "crossplane.yaml").write_bytes(documents)
    program = ("--executable", str(found / provider))
    if as_image:
        (directory / "image.tar").write_bytes(image_of((found / provider).read_bytes()))
        program = ("--embed-runtime-image-tarball", "image.tar")
    run = planform(directory)
    run("xpkg", "build", *program, "--package-file", "built.xpkg")
    package = f"{registry}/{'images' if as_image else 'programs'}/{provider}:v1"
    run("xpkg", "push", package, "-f", "built.xpkg")
    return package


def image_of(program: bytes) -> bytes:
    """An image of one program, as `docker save` writes it."""
    layer = tar(Entry("usr/local/bin/provider", program, mode=0o755))
    config = {
        "architecture": this_platform().architecture,
        "os": "linux",
        "config": {"Entrypoint": ["/usr/local/bin/provider"], "User": "65532"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hex_of(layer)}"]},
    }
    about = json.dumps(config).encode()
    listing = [{"Config": f"{hex_of(about)}.json", "RepoTags": None, "Layers": [f"{hex_of(layer)}.tar"]}]
    return tar(
        Entry(f"{hex_of(about)}.json", about),
        Entry(f"{hex_of(layer)}.tar", layer),
        Entry("manifest.json", json.dumps(listing).encode()),
    )


@contextmanager
def plane_on(directory: Path, **env: str) -> Iterator[RunningPlane]:
    with running_plane(directory, "--data", str(directory / "data"), env=env) as plane:
        yield plane


def eventually(check: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := check()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.1)
    return found


def read(plane: RunningPlane, *what: str) -> dict[str, Any]:
    """The object, or nothing if there is none."""
    done = plane.kubectl("get", *what, "--ignore-not-found", "-o", "json")
    return dict(done.json()) if done.out else {}


def items(plane: RunningPlane, kind: str) -> list[dict[str, Any]]:
    return list(plane.kubectl("get", kind, "-o", "json").json()["items"])


def condition(obj: dict[str, Any], type_: str) -> dict[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == type_), {})


def until(plane: RunningPlane, what: str, type_: str) -> dict[str, Any]:
    def check() -> dict[str, Any] | None:
        found = read(plane, *what.split())
        return found if condition(found, type_).get("status") == "True" else None

    found: dict[str, Any] = eventually(check, f"{type_} of {what}")
    return found


def install(plane: RunningPlane, packages: Mapping[str, str]) -> None:
    for name, package in packages.items():
        plane.planform("xpkg", "install", "provider", package, name)
    for name in packages:
        until(plane, f"provider/{name}", "Healthy")


def nop(name: str) -> dict[str, Any]:
    after = [{"time": "0s", "conditionType": "Ready", "conditionStatus": "True", "conditionReason": "Available"}]
    return {
        "apiVersion": "nop.crossplane.io/v1alpha1",
        "kind": "NopResource",
        "metadata": {"name": name},
        "spec": {"forProvider": {"conditionAfter": after}},
    }


def until_held(plane: RunningPlane, name: str) -> dict[str, Any]:
    """Wait until the real provider has made it ready."""
    eventually(lambda: HELD in read(plane, f"nopresource/{name}")["metadata"].get("finalizers", ()), f"{name} is held")
    return until(plane, f"nopresource/{name}", "Ready")


class Notes(http.server.BaseHTTPRequestHandler):
    """A web service that keeps notes: the thing that provider-http manages.

    A note of the same text is the same note: provider-http reads its object from a cache before it writes what it was
    answered, and posts again if that lags behind and the write is refused.
    """

    kept: dict[int, dict[str, Any]]

    def do_POST(self) -> None:
        note = self._body()
        same = (number for number, each in self.kept.items() if each["text"] == note["text"])
        number = next(same, len(self.kept) + 1)
        self.kept[number] = {**note, "id": number}
        self._answer(201, self.kept[number])

    def do_GET(self) -> None:
        found = self.kept.get(self._number())
        self._answer(200 if found else 404, found or {"error": "no such note"})

    def do_PUT(self) -> None:
        self.kept[self._number()] = {**self._body(), "id": self._number()}
        self._answer(200, self.kept[self._number()])

    def do_DELETE(self) -> None:
        self._answer(200, self.kept.pop(self._number(), {}))

    def _number(self) -> int:
        return int(self.path.rpartition("/")[2])

    def _body(self) -> dict[str, Any]:
        return dict(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def keeping_notes() -> Iterator[tuple[str, dict[int, dict[str, Any]]]]:
    """The service's address, and what it keeps."""
    kept: dict[int, dict[str, Any]] = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("TheseNotes", (Notes,), {"kept": kept}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/notes", kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_SECONDS)


def note(url: str, text: str) -> dict[str, Any]:
    one = '(.payload.baseUrl + "/" + (.response.body.id|tostring))'
    return {
        "apiVersion": "http.crossplane.io/v1alpha2",
        "kind": "Request",
        "metadata": {"name": "note"},
        "spec": {
            "forProvider": {
                "waitTimeout": "10s",
                "headers": {"Content-Type": ["application/json"]},
                "payload": {"baseUrl": url, "body": json.dumps({"text": text})},
                "mappings": [
                    {"method": "POST", "body": "{text: .payload.body.text}", "url": ".payload.baseUrl"},
                    {"method": "GET", "url": one},
                    {"method": "PUT", "body": "{text: .payload.body.text}", "url": one},
                    {"method": "DELETE", "url": one},
                ],
            },
            "providerConfigRef": {"name": "default"},
        },
    }


NOTE = "requests.http.crossplane.io/note"
USAGES = "providerconfigusages.http.crossplane.io"
CONFIG = {
    "apiVersion": "http.crossplane.io/v1alpha1",
    "kind": "ProviderConfig",
    "metadata": {"name": "default"},
    "spec": {"credentials": {"source": "None"}},
}


def test_real_providers_side_by_side_survive_the_control_plane_and_leave_nothing_behind(
    registry: str, tmp_path: Path
) -> None:
    packages = {name: publish(registry, tmp_path / name, f"provider-{name}") for name in ("nop", "http")}
    with keeping_notes() as (url, kept):
        with plane_on(tmp_path / "plane") as plane:
            plane.kubectl("apply", "-f", "-", stdin=manifest(nop("before")))
            assert HELD not in until(plane, "nopresource/before", "Ready")["metadata"].get("finalizers", ())
            install(plane, packages)
            has_what_its_package_brought(plane, "nop", {"nopresources", "clusternopresources"})
            is_asked_by_webhook(plane)
            has_an_account_of_its_own(plane, tmp_path / "plane" / "data" / "accounts" / "nop" / "kubeconfig")
            plane.kubectl("apply", "-f", "-", stdin=manifest(nop("after"), CONFIG, note(url, "buy milk")))
            made = {name: until_held(plane, name)["metadata"]["uid"] for name in ("before", "after")}
            until(plane, NOTE, "Ready")
            assert kept == {1: {"text": "buy milk", "id": 1}}
            assert [each["resourceRef"]["name"] for each in items(plane, USAGES)] == ["note"]
            stop(plane.child, signal.SIGKILL)

        with plane_on(tmp_path / "plane") as plane:
            for name in packages:
                until(plane, f"provider/{name}", "Healthy")
            for name, uid in made.items():
                found = until_held(plane, name)["metadata"]
                assert (found["uid"], found.get("deletionTimestamp")) == (uid, None)
            plane.kubectl("apply", "-f", "-", stdin=manifest(nop("later"), note(url, "buy bread")))
            until_held(plane, "later")
            eventually(lambda: kept == {1: {"text": "buy bread", "id": 1}}, "the note is what it should be")
            # Of what it made less than half a minute ago, a provider does not believe that it is gone.
            forget = ("crossplane.io/external-create-pending-", "crossplane.io/external-create-succeeded-")
            plane.kubectl("annotate", NOTE, *forget)
            plane.kubectl("delete", NOTE, "--wait=false")
            plane.kubectl("delete", "nopresources", "--all", "--wait=false")
            eventually(lambda: not read(plane, NOTE), "the note is gone")
            assert (kept, items(plane, USAGES)) == ({}, [])
            eventually(lambda: not items(plane, "nopresources"), "the NopResources are gone")

            plane.kubectl("delete", *(f"provider/{name}" for name in packages))
            eventually(lambda: not items(plane, "providerrevisions"), "their revisions are gone")
            account = ("serviceaccount/nop", "-n", "crossplane-system")
            eventually(lambda: not read(plane, *account), "the account is gone")
            eventually(lambda: not read(plane, "crd/requests.http.crossplane.io"), "the kinds are gone")
            eventually(lambda: is_built_in(plane), "NopResources are the built-in ones again")
            assert items(plane, "validatingwebhookconfigurations") == []
            plane.kubectl("apply", "-f", "-", stdin=manifest(nop("ours")))
            assert HELD not in until(plane, "nopresource/ours", "Ready")["metadata"].get("finalizers", ())


def test_real_providers_run_side_by_side_in_containers(registry: str, tmp_path: Path) -> None:
    runc = container_runtime()
    packages = {name: publish(registry, tmp_path / name, f"provider-{name}", as_image=True) for name in ("nop", "http")}
    path = f"{runc}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    with keeping_notes() as (url, kept), plane_on(tmp_path / "plane", PATH=path) as plane:
        install(plane, packages)
        plane.kubectl("apply", "-f", "-", stdin=manifest(nop("one"), CONFIG, note(url, "buy milk")))
        until_held(plane, "one")
        is_asked_by_webhook(plane)
        until(plane, NOTE, "Ready")
        assert kept == {1: {"text": "buy milk", "id": 1}}


def has_what_its_package_brought(plane: RunningPlane, provider: str, kinds: set[str]) -> None:
    revision = read(plane, "providerrevision", read(plane, f"provider/{provider}")["status"]["currentRevision"])
    brought = [each["name"] for each in revision["status"]["objectRefs"] if each["kind"] == "ManagedResourceDefinition"]
    assert {name.partition(".")[0] for name in brought} == kinds
    for name in brought:
        owners = read(plane, f"crd/{name}")["metadata"]["ownerReferences"]
        assert [each["name"] for each in owners if each.get("controller")] == [revision["metadata"]["name"]]


def has_an_account_of_its_own(plane: RunningPlane, kubeconfig: Path) -> None:
    theirs = plane.kubectl.with_("--kubeconfig", str(kubeconfig))
    who = theirs("auth", "whoami", "-o", "json").json()["status"]["userInfo"]["username"]
    assert who == "system:serviceaccount:crossplane-system:nop"
    assert read(plane, "serviceaccount/nop", "-n", "crossplane-system")
    theirs("get", "nopresources")
    for forbidden in ("providers", "clusterroles", "requests.http.crossplane.io"):
        assert "forbidden" in theirs("get", forbidden, code=1).err


def is_asked_by_webhook(plane: RunningPlane) -> None:
    """What its package says about webhooks leads to the provider, which is asked before a NopResource is stored."""
    configuration = read(plane, "validatingwebhookconfiguration/crossplane-provider-nop")
    asked = {each["name"]: each for each in configuration["webhooks"]}
    webhook = asked["nopresources.nop.crossplane.io"]
    service = {"name": "nop", "namespace": "crossplane-system", "port": 9443}
    path = "/validate-nop-crossplane-io-v1alpha1-nopresource"
    assert webhook["clientConfig"]["service"] == {**service, "path": path}
    assert (webhook["clientConfig"]["caBundle"], webhook["failurePolicy"]) != ("", "Ignore")
    before = calls_of(plane, "nopresources.nop.crossplane.io")
    plane.kubectl("create", "-f", "-", "--dry-run=server", stdin=manifest(nop("asked")))
    assert calls_of(plane, "nopresources.nop.crossplane.io") == before + 1


def calls_of(plane: RunningPlane, webhook: str) -> float:
    """How often a webhook let a creation pass."""
    wanted = f'planform_admission_webhook_requests_total{{name="{webhook}",operation="CREATE",outcome="allowed"}} '
    lines = plane.kubectl("get", "--raw", "/metrics").out.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted)), 0.0)


def is_built_in(plane: RunningPlane) -> bool:
    found = read(plane, "crd/nopresources.nop.crossplane.io")
    served = condition(found, "Established").get("status") == "True"
    return served and not found["metadata"].get("ownerReferences")
