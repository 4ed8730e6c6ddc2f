"""Makes `data-2ef0d5a.tar.xz`: the data directory of a control plane of commit 2ef0d5a, for `test_upgrade`.

That was the last commit before objects had authors and random values a key. Run it with the code of that commit:

    python tests/golden/upgrade/make.py data-2ef0d5a.tar.xz

What a start makes anew is left out: certificates would expire, and keys do not belong into a repository.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import lzma
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.app import ControlPlane, Settings, open_control_plane
from planform.client.protocol import Client

LEFT_OUT = ("pki", "kubeconfig", "address", "store/planform.lock")
EXPECTED = "expected.json"
"""In the archive: `KIND NAMESPACE/NAME` of every object that somebody could miss, with its uid; the data of Secrets."""
PASSING = frozenset({"Event", "Lease"})
GROUP = "upgrade.example.org"
TEAM = "team"
_ATTEMPTS = 1200
_FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PASSWORD = """
apiVersion: v1
kind: Secret
metadata:
  name: {{ .observed.composite.resource.metadata.name }}-password
  annotations:
    gotemplating.fn.crossplane.io/composition-resource-name: password
    gotemplating.fn.crossplane.io/ready: "True"
stringData:
  password: {{ randAlphaNum 24 }}
  id: {{ uuidv4 }}
"""


def obj(kind: GroupVersionKind, name: str, namespace: str = "", **content: Any) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **content.pop("metadata", {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}


def kind(api_version: str, name: str) -> GroupVersionKind:
    group, _, version = api_version.rpartition("/")
    return GroupVersionKind(group, version, name)


APP = kind(f"{GROUP}/v1", "App")
CONFIG_MAP, SECRET = kind("v1", "ConfigMap"), kind("v1", "Secret")
ACTION_SET, BLUEPRINT = kind("cr.kanister.io/v1alpha1", "ActionSet"), kind("cr.kanister.io/v1alpha1", "Blueprint")
OPERATION = kind("ops.crossplane.io/v1alpha1", "Operation")
CRON_OPERATION = kind("ops.crossplane.io/v1alpha1", "CronOperation")
COMPOSITION = kind("apiextensions.crossplane.io/v1", "Composition")
USAGE = kind("protection.crossplane.io/v1beta1", "Usage")


def definition() -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _FREE, "status": _FREE}}}
    version = {"name": "v1", "served": True, "referenceable": True, "schema": schema}
    spec = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "App", "plural": "apps"},
        "versions": [version],
    }
    return obj(kind("apiextensions.crossplane.io/v2", "CompositeResourceDefinition"), f"apps.{GROUP}", spec=spec)


def composition(name: str, *steps: Object) -> Object:
    target = {"apiVersion": APP.api_version, "kind": APP.kind}
    return obj(COMPOSITION, name, spec={"compositeTypeRef": target, "mode": "Pipeline", "pipeline": list(steps)})


def templating() -> Object:
    given = {"apiVersion": "gotemplating.fn.crossplane.io/v1beta1", "kind": "GoTemplate", "source": "Inline"}
    return {
        "step": "password",
        "functionRef": {"name": "function-go-templating"},
        "input": {**given, "inline": {"template": PASSWORD}},
    }


def patching() -> Object:
    base = {**obj(CONFIG_MAP, "", data={"colour": "red"}), "metadata": {"labels": {"app": "colour"}}}
    patch = {"type": "FromCompositeFieldPath", "fromFieldPath": "spec.colour", "toFieldPath": "data.colour"}
    resource = {"name": "colour", "base": base, "patches": [patch], "readinessChecks": [{"type": "None"}]}
    given = {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": [resource]}
    return {"step": "colour", "functionRef": {"name": "function-patch-and-transform"}, "input": given}


def xr(name: str, made_by: str) -> Object:
    spec = {"colour": "blue", "crossplane": {"compositionRef": {"name": made_by}}}
    return obj(APP, name, TEAM, spec=spec)


def blueprint() -> Object:
    made = obj(CONFIG_MAP, "{{ .Object.metadata.name }}-copy", TEAM, data={"from": "{{ .Object.data.colour }}"})
    phase = {"name": "copy", "func": "KubeOps", "args": {"operation": "create", "spec": json.dumps(made)}}
    return obj(BLUEPRINT, "copies", TEAM, actions={"copy": {"phases": [phase]}})


def action_set(name: str, about: str) -> Object:
    target = {"apiVersion": "v1", "resource": "configmaps", "name": about, "namespace": TEAM}
    return obj(ACTION_SET, name, TEAM, spec={"actions": [{"name": "copy", "blueprint": "copies", "object": target}]})


def operating(name: str) -> Object:
    """The spec of an Operation that writes a ConfigMap."""
    wanted = obj(CONFIG_MAP, name, TEAM, data={"by": "an operation"})
    text = f"OBJECT = {wanted!r}\ndef main(req):\n"
    text += "    return {'desired': {'resources': {'it': {'resource': OBJECT}}}}\n"
    script = {"apiVersion": "starlark.fn.planform.dev/v1", "kind": "StarlarkScript", "script": text}
    return {
        "mode": "Pipeline",
        "pipeline": [{"step": "s", "functionRef": {"name": "function-starlark"}, "input": script}],
    }


async def fill(client: Client) -> None:
    """Everything, and wait until all of it is at rest."""
    await client.create(obj(kind("v1", "Namespace"), TEAM))
    await client.create(definition())
    await until(client, definition(), lambda found: condition(found, "Established"))
    await client.create(obj(SECRET, "login", TEAM, data={"password": base64.b64encode(b"by-hand").decode()}))
    await client.create(obj(CONFIG_MAP, "first", TEAM, data={"colour": "green"}))
    await client.create(obj(CONFIG_MAP, "second", TEAM, data={"colour": "yellow"}))
    await client.create(composition("passwords", templating()))
    await client.create(composition("colours", patching()))
    for wanted in (xr("one", "passwords"), xr("two", "passwords"), xr("three", "colours")):
        await client.create(wanted)
        await until(client, wanted, lambda found: condition(found, "Ready"))
    await client.create(blueprint())
    done = await client.create(action_set("done", "first"))
    await until(client, done, lambda found: (found.get("status") or {}).get("state") == "complete")
    await client.create(obj(OPERATION, "once", spec=operating("by-once")))
    await until(client, obj(OPERATION, "once"), lambda found: condition(found, "Succeeded"))
    scheduled = {"schedule": "0 0 1 1 *", "operationTemplate": {"spec": operating("by-schedule")}}
    await client.create(obj(CRON_OPERATION, "yearly", spec=scheduled))
    of = {"apiVersion": "v1", "kind": "Secret", "resourceRef": {"name": "login"}}
    usage = obj(USAGE, "holds-login", TEAM, spec={"of": of, "reason": "somebody logs in with it"})
    await client.create(usage)
    await until(client, usage, lambda found: condition(found, "Ready"))


async def inventory(plane: ControlPlane) -> Object:
    """What there is."""
    uids, secrets = {}, {}
    for served in plane.core.registry:
        if "list" not in served.kind.verbs or served.kind.kind in PASSING:
            continue
        what = GroupVersionKind(served.kind.group, served.kind.version, served.kind.kind)
        for found in (await plane.client.list(what)).items:
            metadata = found["metadata"]
            key = f"{what.api_version}/{what.kind} {metadata.get('namespace') or ''}/{metadata['name']}"
            uids[key] = metadata["uid"]
            if what == SECRET:
                secrets[key] = found.get("data") or {}
    return {"uids": uids, "secrets": secrets}


def condition(found: Object, name: str) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each["type"] == name and each["status"] == "True" for each in conditions)


async def until(client: Client, wanted: Object, check: Callable[[Object], object]) -> None:
    what, metadata = gvk_of(wanted), wanted["metadata"]
    for _ in range(_ATTEMPTS):
        if check(await client.get(what, metadata["name"], namespace=metadata.get("namespace") or "")):
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"{what.kind} {metadata['name']} does not come to rest")


def pack(directory: Path) -> bytes:
    """The directory as an archive that depends on its contents alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(directory.rglob("*")):
            name = str(path.relative_to(directory))
            if not path.is_file() or any(name == each or name.startswith(f"{each}/") for each in LEFT_OUT):
                continue
            member = tarfile.TarInfo(name)
            member.size, member.mode = path.stat().st_size, 0o600
            archive.addfile(member, io.BytesIO(path.read_bytes()))
    return lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME)


async def left_by_a_control_plane(data: Path) -> Object:
    async with open_control_plane(Settings(data=data)) as plane:
        await fill(plane.client)
        return await inventory(plane)


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        expected = asyncio.run(left_by_a_control_plane(data))
        (data / EXPECTED).write_text(json.dumps(expected, indent=1, sort_keys=True))
        target.write_bytes(pack(data))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
