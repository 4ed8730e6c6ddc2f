"""Archives keep what was put in, show nothing that was sealed, and refuse what was changed."""

from __future__ import annotations

import asyncio
import base64
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from planform.api.kinds import Object, gvk
from planform.api.names import SECRET
from planform.app import open_at_rest
from planform.cli.control_plane import import_ as import_command
from planform.cli.main import root
from planform.clock import SystemClock, micro_timestamp
from planform.cluster.running import LEASE_NAME, shard_lease
from planform.errors import UsageError
from planform.moving.archive import MANIFEST, ArchiveDamaged, read_archive, write_archive
from planform.moving.contents import Contents, Identity, LeftOut, identity_of, is_furniture, portable, why_left_out
from planform.moving.exporting import references
from planform.moving.importing import Imported
from planform.moving.ordering import in_order
from planform.moving.remapping import remapped, with_generation
from planform.reconcile.election import LEASE
from tests.harness.contexts import embedded_context

SECRET_TEXT = "the-most-secret-word"
FORMS = ["directory", "file.tar.gz"]

HOOKS = gvk("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")


def an_object(kind: str, name: str, *, namespace: str = "", group: str = "", owners: tuple[Object, ...] = ()) -> Object:
    metadata: Object = {"name": name, "uid": f"uid-of-{name}", "generation": 4}
    if namespace:
        metadata["namespace"] = namespace
    if owners:
        metadata["ownerReferences"] = [
            {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name_of(owner), "uid": uid_of(owner)}
            for owner in owners
        ]
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata}


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def uid_of(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def a_secret(name: str = "login") -> Object:
    data = {"password": base64.b64encode(SECRET_TEXT.encode()).decode()}
    return {**an_object("Secret", name, namespace="default"), "data": data, "type": "Opaque"}


CONTENTS = Contents(
    "embedded",
    (an_object("Namespace", "team"), a_secret(), an_object("ClusterRole", "a:b", group="rbac.authorization.k8s.io")),
    (LeftOut(Identity("", "Secret", "default", "token"), "it holds a token of this engine"),),
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("passphrase", [b"", b"open sesame"], ids=["plain", "sealed"])
def test_what_is_written_comes_back(tmp_path: Path, form: str, passphrase: bytes) -> None:
    write_archive(tmp_path / form, CONTENTS, made="now", passphrase=passphrase)
    assert read_archive(tmp_path / form, passphrase=passphrase) == CONTENTS
    assert (tmp_path / form).stat().st_mode & 0o077 == 0, "it is its owner's alone"
    assert [path.name for path in tmp_path.iterdir()] == [form], "and nothing else is left"
    with pytest.raises(UsageError, match="exists already"):
        write_archive(tmp_path / form, CONTENTS, made="now")


@pytest.mark.parametrize("form", FORMS)
def test_a_sealed_archive_shows_no_secret_and_opens_with_its_passphrase_only(tmp_path: Path, form: str) -> None:
    write_archive(tmp_path / form, CONTENTS, made="now", passphrase=b"open sesame")
    for content in contents_of(tmp_path / form):
        assert SECRET_TEXT.encode() not in content
        assert base64.b64encode(SECRET_TEXT.encode()) not in content
    with pytest.raises(UsageError, match="does not open"):
        read_archive(tmp_path / form, passphrase=b"open barley")
    with pytest.raises(UsageError, match="are sealed"):
        read_archive(tmp_path / form)


def test_a_file_that_was_changed_or_is_missing_is_noticed(tmp_path: Path) -> None:
    write_archive(tmp_path / "it", CONTENTS, made="now")
    secret = tmp_path / "it" / "objects" / "core" / "Secret" / "default" / "login.yaml"
    secret.write_text(secret.read_text().replace("Opaque", "opaque"))
    with pytest.raises(ArchiveDamaged, match="was changed"):
        read_archive(tmp_path / "it")
    secret.unlink()
    with pytest.raises(ArchiveDamaged, match="is missing"):
        read_archive(tmp_path / "it")


def test_a_manifest_cannot_lead_out_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text("kind: Secret")
    write_archive(tmp_path / "it", CONTENTS, made="now")
    file = tmp_path / "it" / MANIFEST
    manifest = yaml.safe_load(file.read_text())
    for path in ("../outside.yaml", "/etc/passwd"):
        manifest["objects"][0]["path"] = path
        file.write_text(yaml.safe_dump(manifest))
        with pytest.raises(ArchiveDamaged, match="outside of the archive"):
            read_archive(tmp_path / "it")


@pytest.mark.parametrize("wrong", ["nothing", "empty", "text", "later"])
def test_what_is_no_archive_is_refused_by_name(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "it"
    if wrong == "empty":
        path.mkdir()
    elif wrong == "text":
        path.write_text("hello")
    elif wrong == "later":
        write_archive(path, CONTENTS, made="now")
        (path / MANIFEST).write_text((path / MANIFEST).read_text().replace("planform-export/1", "planform-export/9"))
    with pytest.raises(UsageError, match=r"it does not exist|not an export|format planform-export/9"):
        read_archive(path)


def test_owners_come_before_what_they_own_and_kinds_before_their_objects() -> None:
    xrd = an_object("CompositeResourceDefinition", "things.example.org", group="apiextensions.crossplane.io")
    crd = an_object("CustomResourceDefinition", "things.example.org", group="apiextensions.k8s.io", owners=(xrd,))
    crd["spec"] = {"group": "example.org", "names": {"kind": "Thing"}}
    thing = an_object("Thing", "a", group="example.org", namespace="team")
    part = an_object("ConfigMap", "part", namespace="team", owners=(thing,))
    stranger = an_object("ConfigMap", "stranger", namespace="team", owners=(an_object("Pod", "elsewhere"),))
    namespace = an_object("Namespace", "team")
    objects = [part, thing, stranger, crd, namespace, xrd]
    ordered = in_order(objects)
    assert sorted(map(identity_of, ordered)) == sorted(map(identity_of, objects))
    place = {identity_of(obj): index for index, obj in enumerate(ordered)}

    def comes_before(one: Object, other: Object) -> bool:
        return place[identity_of(one)] < place[identity_of(other)]

    assert comes_before(namespace, thing)
    assert comes_before(xrd, crd)
    assert comes_before(crd, thing)
    assert comes_before(thing, part)
    assert in_order(list(reversed(objects))) == ordered


def test_what_decides_about_writes_comes_last() -> None:
    group = "admissionregistration.k8s.io"
    hooks = an_object("ValidatingWebhookConfiguration", "a", group=group)
    policy = an_object("ValidatingAdmissionPolicy", "a", group=group)
    thing = an_object("Thing", "z", group="zoo.example.org", namespace="team")
    assert in_order([hooks, policy, thing]) == [thing, policy, hooks]


async def test_a_configuration_travels_and_holds_nothing_up_on_the_way(tmp_path: Path) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    dead = {
        "name": "dead.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    about = {"apiVersion": HOOKS.api_version, "kind": HOOKS.kind, "metadata": {"name": "dead"}}
    async with open_at_rest(tmp_path / "home") as plane:
        await plane.client.create({**about, "webhooks": [dead]})
        await plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    archive, other = str(tmp_path / "moving"), tmp_path / "other"

    def commands() -> None:
        planform("export", archive, "--data", str(tmp_path / "home"))
        assert "Namespace team: created" in planform("import", archive, "--data", str(other))

    await asyncio.to_thread(commands)
    async with open_at_rest(other) as plane:
        found = await plane.client.get(HOOKS, "dead")
        assert found["webhooks"][0]["clientConfig"] == dead["clientConfig"]


def test_objects_that_own_each_other_are_all_there() -> None:
    one, other = an_object("ConfigMap", "one", namespace="a"), an_object("ConfigMap", "other", namespace="a")
    one["metadata"]["ownerReferences"] = an_object("X", "x", owners=(other,))["metadata"]["ownerReferences"]
    other["metadata"]["ownerReferences"] = an_object("X", "x", owners=(one,))["metadata"]["ownerReferences"]
    assert len(in_order([one, other])) == 2


def test_references_by_uid_follow_and_names_made_of_one_stay() -> None:
    owner = an_object("Thing", "owner", group="example.org")
    obj = an_object("ConfigMap", "part", namespace="a", owners=(owner, an_object("Pod", "elsewhere")))
    obj["spec"] = {"claimRef": {"uid": "uid-of-owner"}, "secretName": "uid-of-owner"}
    obj["metadata"]["managedFields"] = [
        {"manager": "m", "fieldsV1": {"f:metadata": {"f:ownerReferences": {'k:{"uid":"uid-of-owner"}': {}}}}}
    ]
    moved = remapped(obj, {"uid-of-owner": "new"})
    assert [each["uid"] for each in moved["metadata"]["ownerReferences"]] == ["new"]
    assert moved["spec"] == {"claimRef": {"uid": "new"}, "secretName": "uid-of-owner"}
    [entry] = moved["metadata"]["managedFields"]
    assert list(entry["fieldsV1"]["f:metadata"]["f:ownerReferences"]) == ['k:{"uid":"new"}']
    assert "uid" not in moved["metadata"]


def test_a_status_that_was_up_to_date_still_is_and_a_stale_one_too() -> None:
    status = {"conditions": [{"observedGeneration": 4}, {"observedGeneration": 3}], "at": {"generation": 4}}
    assert with_generation(status, 4, 1) == {
        "conditions": [{"observedGeneration": 1}, {"observedGeneration": 0}],
        "at": {"generation": 1},
    }


def test_what_only_one_engine_knows_is_not_carried() -> None:
    service = {**an_object("Service", "web", namespace="a"), "spec": {"clusterIP": "10.0.0.1", "ports": []}}
    service["metadata"] |= {"resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    service["status"] = {"loadBalancer": {}}
    carried = portable(service)
    assert carried["spec"] == {"ports": []}
    assert "status" not in carried
    assert set(carried["metadata"]) == {"name", "namespace", "uid", "generation"}
    assert is_furniture(an_object("ConfigMap", "kube-root-ca.crt", namespace="a"))
    assert not is_furniture(an_object("ConfigMap", "mine", namespace="a"))
    deployment = {**an_object("Deployment", "provider-a-1", namespace="a"), "apiVersion": "apps/v1"}
    assert not is_furniture(deployment)
    deployment["metadata"]["labels"] = {"pkg.crossplane.io/revision": "provider-a-1"}
    assert is_furniture(deployment), "an engine makes that of a package itself"
    assert why_left_out({**a_secret(), "type": "kubernetes.io/service-account-token"})
    assert not why_left_out(a_secret())


def test_secrets_that_a_spec_names_are_found_wherever_they_stand() -> None:
    obj = {
        **an_object("Composition", "c"),
        "spec": {
            "writeConnectionSecretToRef": {"name": "connection", "namespace": "a"},
            "pipeline": [{"credentials": [{"secretRef": {"name": "cloud", "namespace": "b"}}]}],
            "resourceRefs": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "part", "namespace": "a"},
                {"name": "of no kind"},
            ],
        },
    }
    found = {(kind.kind, namespace, name) for kind, namespace, name in references(obj)}
    assert found == {("Secret", "a", "connection"), ("Secret", "b", "cloud"), ("ConfigMap", "a", "part")}


# -- commands


def planform(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(root, list(arguments))
    if code == 0:
        assert done.exit_code == 0, done.output + repr(done.exception)
        return done.output
    assert done.exception is not None
    return str(done.exception)


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """The data of a stopped control plane with a Secret in it."""
    async with open_at_rest(tmp_path / "home") as plane:
        await plane.client.create({key: value for key, value in a_secret().items() if key != "status"})
    return tmp_path / "home"


async def test_a_directory_is_exported_and_imported_by_command(home: Path, tmp_path: Path) -> None:
    passphrase, archive, other = tmp_path / "passphrase", tmp_path / "moving.tar.gz", tmp_path / "other"
    passphrase.write_text("open sesame\n")

    def commands() -> None:
        sealed = ("--passphrase-file", str(passphrase))
        assert "exported" in planform("export", str(archive), "--data", str(home), *sealed)
        planned = planform("import", str(archive), "--data", str(other), "--dry-run", *sealed)
        assert "Secret default/login: created" in planned
        assert not other.exists(), "a dry run makes nothing"
        assert "Secret default/login: created" in planform("import", str(archive), "--data", str(other), *sealed)
        again = planform("import", str(archive), "--data", str(other), *sealed, "-o", "json")
        assert '"outcome": "created"' not in again
        bare = planform("export", str(tmp_path / "bare"), "--data", str(home), "--without-secrets")
        assert "left out: Secret default/login: Secrets were excluded" in bare
        open_ = planform("export", str(tmp_path / "open"), "--data", str(home))
        assert "whoever reads it can read" in open_
        assert "holds no control plane" in planform("export", str(tmp_path / "x"), "--data", str(tmp_path), code=2)

    await asyncio.to_thread(commands)
    for content in contents_of(tmp_path / "bare"):
        assert base64.b64encode(SECRET_TEXT.encode()) not in content
    async with open_at_rest(other) as plane:
        found = await plane.client.get(SECRET, "login", namespace="default")
        assert found["data"] == a_secret()["data"]


async def test_an_import_waits_for_no_controllers_and_says_who_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_command, "_PATIENCE", 0.3)
    async with embedded_context() as context:
        lease: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE_NAME, "namespace": "default"},
            "spec": {
                "holderIdentity": "replica-7",
                "leaseDurationSeconds": 3600,
                "renewTime": micro_timestamp(SystemClock().now()),
            },
        }
        await context.client.create(lease)
        connected: Any = SimpleNamespace(client=context.client)
        ran: list[str] = []

        async def work() -> Imported:
            ran.append("ran")
            return Imported()

        with pytest.raises(import_command.ControllersRun, match="replica-7"):
            await import_command._held(connected, "default", work)
        assert ran == []
        assert isinstance(await import_command._held(connected, "not-there", work), Imported)
        await context.client.delete(LEASE, LEASE_NAME, namespace="default")
        shard = {**lease, "metadata": {"name": shard_lease(0, 2), "namespace": "default"}}
        await context.client.create(shard)
        with pytest.raises(import_command.ControllersRun, match="replica-7"):
            await import_command._held(connected, "default", work)
        await context.client.delete(LEASE, shard_lease(0, 2), namespace="default")
        assert isinstance(await import_command._held(connected, "default", work), Imported)
        released = await context.client.get(LEASE, LEASE_NAME, namespace="default")
        assert not released["spec"].get("holderIdentity")


def contents_of(path: Path) -> list[bytes]:
    """Every file of an archive."""
    if path.is_dir():
        return [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    with tarfile.open(path) as archive:
        return [stream.read() for member in archive if (stream := archive.extractfile(member)) is not None]
