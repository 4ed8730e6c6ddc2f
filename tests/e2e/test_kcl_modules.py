"""KCL programs with modules of a real registry: pinned by digest, from where the operator allows it, and no others."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITION, IMAGE_CONFIG, SECRET, SYSTEM_NAMESPACE, XRD
from planform.app import Settings, open_control_plane
from planform.builtin.kcl import Kcl
from planform.clock import SystemClock
from planform.functions.values import FunctionRequest, FunctionResponse, Resource, State
from planform.packages.blobs import BlobStore, Image
from planform.packages.credentials import Credentials, Login
from planform.packages.fetching import RegistryPackages
from planform.packages.kcl_modules import RegistryModules
from planform.packages.oci import OCI_LAYER, Descriptor, Manifest
from planform.packages.references import parse_reference
from planform.packages.registry import RegistryClient
from tests.e2e.registries import PASSWORD, USER, serving_registry
from tests.harness.contexts import embedded_context, eventually, read, until_condition

pytest.importorskip("kcl_lib", reason="the extra `kcl` is not installed")

POD = "schema Pod:\n    name: str\n    replicas: int = 3\n"
XR: Object = {"apiVersion": "example.org/v1", "kind": "XApp", "metadata": {"name": "shop"}, "spec": {"size": 2}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_registry(tmp_path_factory.mktemp("registry"), with_login=True) as address:
        yield address


class Author:
    """Pushes modules as `kcl mod push` does: a tar of the files is the one layer of an artifact."""

    def __init__(self, directory: Path, address: str) -> None:
        self._directory = directory
        self._address = address

    async def push(self, repository: str, files: Mapping[str, str], *, dependencies: str = "") -> str:
        """Gives the digest."""
        named = parse_reference(f"{self._address}/{repository}:0.1.0")
        about = f'[package]\nname = "{repository.rpartition("/")[2]}"\nversion = "0.1.0"\n'
        body = _tar({"kcl.mod": f"{about}\n[dependencies]\n{dependencies}\n", **files})
        credentials = Credentials({self._address: Login(USER, PASSWORD)})
        async with RegistryClient(BlobStore(self._directory), credentials, rng=Random(1)) as registry:
            blobs = registry.blobs
            config = Descriptor(OCI_LAYER, blobs.add(b"{}"), 2)
            manifest = Manifest(config, (Descriptor(OCI_LAYER, blobs.add(body), len(body)),))
            text = manifest.encode()
            described = Descriptor(manifest.media_type, blobs.add(text), len(text))
            return (await registry.push(Image(described, manifest, {}, blobs), named)).digest


def _tar(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


@pytest.fixture
def author(tmp_path: Path, address: str) -> Author:
    return Author(tmp_path / "author", address)


class Runner:
    """The function with the modules of a control plane that has a login for the registry."""

    def __init__(self, packages: RegistryPackages, directory: Path, *allowed: str) -> None:
        self.directory = directory
        self._function = Kcl(RegistryModules(directory, packages, allowed, clock=SystemClock()))

    async def run(self, source: str, **spec: Any) -> FunctionResponse:
        given = {"apiVersion": "krm.kcl.dev/v1alpha1", "kind": "KCLInput", "spec": {"source": source, **spec}}
        request = FunctionRequest(observed=State(Resource(XR)), input=given)
        return await self._function.run(request, timeout=30)

    async def resources(self, source: str, **spec: Any) -> list[Object]:
        response = await self.run(source, **spec)
        assert response.fatal is None, response.fatal
        assert response.deterministic
        return [each.resource for each in response.desired.resources.values()]

    async def refusal(self, source: str, **spec: Any) -> str:
        response = await self.run(source, **spec)
        assert response.fatal is not None
        return response.fatal.message


def login(address: str) -> list[Object]:
    """The objects of an operator that give a login for whatever comes from this registry."""
    config = {"auths": {address: {"username": USER, "password": PASSWORD}}}
    about = {"name": "modules", "namespace": SYSTEM_NAMESPACE}
    matched = {"matchImages": [{"type": "Prefix", "prefix": f"{address}/"}]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": SECRET.kind,
            "metadata": about,
            "stringData": {".dockerconfigjson": json.dumps(config)},
        },
        {
            "apiVersion": IMAGE_CONFIG.api_version,
            "kind": IMAGE_CONFIG.kind,
            "metadata": {"name": "modules"},
            "spec": {**matched, "registry": {"authentication": {"pullSecretRef": {"name": "modules"}}}},
        },
    ]


@pytest.fixture
async def packages(tmp_path: Path, address: str) -> AsyncIterator[RegistryPackages]:
    async with embedded_context() as context:
        for obj in login(address):
            await context.client.apply(obj, manager="operator", force=True)
        yield RegistryPackages(tmp_path / "packages", context.client, clock=context.clock, rng=context.rng)


@pytest.fixture
def kcl(packages: RegistryPackages, tmp_path: Path, address: str) -> Runner:
    return Runner(packages, tmp_path / "modules", f"{address}/platform")


def pinned(address: str, repository: str, digest: str) -> str:
    name = repository.rpartition("/")[2]
    return f'{name} = {{ oci = "oci://{address}/{repository}", tag = "0.1.0", digest = "{digest}" }}\n'


async def test_a_program_imports_a_module_that_is_pinned_and_needs_the_registry_once(
    kcl: Runner, author: Author, address: str, tmp_path: Path
) -> None:
    digest = await author.push("platform/pods", {"v1/pod.k": POD})
    source = 'import pods.v1 as p\nitems = [p.Pod{name = option("params").oxr.metadata.name}]'
    dependencies = pinned(address, "platform/pods", digest)
    assert await kcl.resources(source, dependencies=dependencies) == [{"name": "shop", "replicas": 3}]
    assert [path.name for path in kcl.directory.iterdir()] == [digest.partition(":")[2]]
    async with embedded_context() as context:  # which has no login
        without = RegistryPackages(tmp_path / "others", context.client, clock=context.clock, rng=context.rng)
        again = Runner(without, kcl.directory, f"{address}/platform")
        assert await again.resources(source, dependencies=dependencies) == [{"name": "shop", "replicas": 3}]


@pytest.mark.parametrize("form", ["oci://{}/platform/app@{}", "oci://{}/platform/app?tag=0.1.0&digest={}"])
async def test_a_program_that_is_a_module_runs_with_those_it_needs(
    kcl: Runner, author: Author, address: str, form: str
) -> None:
    pods = await author.push("platform/pods", {"v1/pod.k": POD})
    program = "import pods.v1 as p\nimport sub\nitems = [p.Pod{name = sub.name, replicas = size}]\n"
    files = {"main.k": program, "size.k": 'size = option("params").oxr.spec.size\n', "sub/name.k": 'name = "web"\n'}
    digest = await author.push("platform/app", files, dependencies=pinned(address, "platform/pods", pods))
    assert await kcl.resources(form.format(address, digest)) == [{"name": "web", "replicas": 2}]


async def test_the_input_pins_what_a_module_does_not(kcl: Runner, author: Author, address: str) -> None:
    pods = await author.push("platform/pods", {"v1/pod.k": POD})
    files = {"app.k": "import pods.v1 as p\nschema App(p.Pod):\n    team: str\n"}
    apps = await author.push("platform/apps", files, dependencies='pods = "0.1.0"')
    source = 'import apps\nitems = [apps.App{name = "a", team = "b"}]'
    needed = pinned(address, "platform/apps", apps)
    refused = await kcl.refusal(source, dependencies=needed)
    assert 'kcl.mod of apps: "pods" is not pinned by its digest' in refused
    needed += pinned(address, "platform/pods", pods)
    assert await kcl.resources(source, dependencies=needed) == [{"name": "a", "replicas": 3, "team": "b"}]


async def test_what_is_not_pinned_not_allowed_or_in_git_is_refused_by_name(
    kcl: Runner, author: Author, address: str
) -> None:
    digest = await author.push("elsewhere/pods", {"v1/pod.k": POD})
    inline = "items = []"
    assert "is not pinned by its digest" in await kcl.refusal(f"oci://{address}/platform/app?tag=0.1.0")
    assert '"pods" is not pinned by its digest' in await kcl.refusal(inline, dependencies='pods = "0.1.0"')
    beyond = await kcl.refusal(inline, dependencies=pinned(address, "elsewhere/pods", digest))
    assert f"not fetched from {address}/elsewhere/pods" in beyond and "--allow-kcl-modules" in beyond
    prefix = await kcl.refusal(inline, dependencies=pinned(address, "platforms/pods", digest))
    assert "not fetched from" in prefix, "a prefix ends where a part of the name does"
    commit = f'pods = {{ git = "https://git.example.org/pods", commit = "{"a" * 40}" }}'
    assert "in Git are not fetched" in await kcl.refusal(inline, dependencies=commit)
    assert "in Git are not fetched" in await kcl.refusal("git://git.example.org/pods?commit=" + "a" * 40)
    assert not list(kcl.directory.iterdir())


async def test_what_cannot_be_fetched_or_reads_files_is_told(kcl: Runner, author: Author, address: str) -> None:
    inline = "items = []"
    missing = await kcl.refusal(inline, dependencies=pinned(address, "platform/none", f"sha256:{'0' * 64}"))
    assert "cannot be fetched" in missing
    digest = await author.push("platform/nosy", {"a.k": 'import file\na = file.read("/etc/passwd")\n'})
    assert "no files to read" in await kcl.refusal(inline, dependencies=pinned(address, "platform/nosy", digest))
    digest = await author.push("platform/far", {"a.k": "a = 1\n"}, dependencies='up = { path = "../up" }')
    assert 'module "up" of far is not in its artifact' in await kcl.refusal(
        inline, dependencies=pinned(address, "platform/far", digest)
    )
    digest = await author.push("platform/wrong", {"a.k": "a = b\n"})
    refused = await kcl.refusal(
        "import wrong\nitems = [wrong.a]", dependencies=pinned(address, "platform/wrong", digest)
    )
    assert "a.k:1" in refused and str(kcl.directory) not in refused


async def test_modules_that_ask_for_the_time_make_answers_that_end(kcl: Runner, author: Author, address: str) -> None:
    digest = await author.push("platform/clock", {"a.k": "import datetime\nnow = datetime.now()\n"})
    source = 'import clock\nitems = [{kind = "A", metadata.name = "a", at = clock.now}]'
    response = await kcl.run(source, dependencies=pinned(address, "platform/clock", digest))
    assert response.fatal is None and not response.deterministic and response.ttl


async def test_an_xr_is_composed_with_a_module_where_the_operator_allows_it(
    author: Author, address: str, tmp_path: Path
) -> None:
    digest = await author.push("platform/maps", {"map.k": "schema Map:\n    size: str\n"})
    program = 'import maps\nitems = [{apiVersion = "v1", kind = "ConfigMap", metadata.name = "map"'
    program += ", data = maps.Map{size = str(option('params').oxr.spec.size)}}]"
    spec = {"source": program, "dependencies": pinned(address, "platform/maps", digest)}
    step = {
        "step": "kcl",
        "functionRef": {"name": "function-kcl"},
        "input": {"apiVersion": "krm.kcl.dev/v1alpha1", "kind": "KCLInput", "spec": spec},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}
    kind = gvk("example.org/v1", "App")
    xrd = {"group": "example.org", "names": {"plural": "apps", "kind": "App"}, "versions": [version]}
    composition = {"compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "App"}, "pipeline": [step]}
    async with open_control_plane(Settings(data=tmp_path / "data", kcl_modules=(f"{address}/platform",))) as plane:
        for obj in login(address):
            await plane.client.apply(obj, manager="operator", force=True)
        for named, name, body in ((XRD, "apps.example.org", xrd), (COMPOSITION, "apps", composition)):
            about = {"apiVersion": named.api_version, "kind": named.kind, "metadata": {"name": name}}
            await plane.client.create({**about, "spec": body})

        defined = {"apiVersion": XRD.api_version, "kind": XRD.kind, "metadata": {"name": "apps.example.org"}}
        await until_condition(plane.client, defined, "Established")
        about = {"apiVersion": kind.api_version, "kind": kind.kind}
        await plane.client.create({**about, "metadata": {"name": "shop", "namespace": "default"}, "spec": {"size": 2}})

        async def composed() -> Object | None:
            return await read(plane.client, gvk("v1", "ConfigMap"), "map", "default")

        found = await eventually(composed, "the XR has its ConfigMap")
        assert found["data"] == {"size": "2"}
