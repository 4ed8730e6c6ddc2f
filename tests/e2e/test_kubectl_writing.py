"""What a current kubectl changes: create in protobuf and YAML, patch, label, edit, replace, scale, delete, wait."""

from __future__ import annotations

import base64
import json
import shlex

import pytest

from tests.e2e.control_plane import PATIENCE_SECONDS, Program, RunningPlane, config_map, manifest
from tests.e2e.widgets import widget

pytestmark = pytest.mark.xdist_group("e2e")


# -- create: these kubectl generators send protobuf


def test_create_configmap_from_literals_and_files(kubectl: Program, plane: RunningPlane) -> None:
    (plane.directory / "motd.txt").write_text("grüß Gott\n")
    (plane.directory / "noise.bin").write_bytes(bytes(range(256)))
    kubectl("create", "configmap", "c", "--from-literal=k=v", "--from-file=motd.txt", "--from-file=noise.bin")
    found = kubectl("get", "cm", "c", "-o", "json").json()
    assert found["data"] == {"k": "v", "motd.txt": "grüß Gott\n"}
    assert base64.b64decode(found["binaryData"]["noise.bin"]) == bytes(range(256))


def test_create_secret_generic_tls_and_registry(kubectl: Program) -> None:
    kubectl("create", "secret", "generic", "s", "--from-literal=password=hunter2", "--type=example.org/login")
    found = kubectl("get", "secret", "s", "-o", "json").json()
    assert base64.b64decode(found["data"]["password"]) == b"hunter2"
    assert found["type"] == "example.org/login"
    kubectl(
        "create",
        "secret",
        "docker-registry",
        "r",
        "--docker-server=registry.invalid",
        "--docker-username=u",
        "--docker-password=p",
    )
    assert kubectl("get", "secret", "r", "-o", "jsonpath={.type}").out == "kubernetes.io/dockerconfigjson"


def test_create_namespace_gives_it_a_default_service_account(kubectl: Program, namespace: str) -> None:
    assert kubectl("get", "namespace", namespace, "-o", "jsonpath={.status.phase}").out == "Active"
    kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=10s")


def test_create_serviceaccount_and_a_token_that_authenticates(
    kubectl: Program, plane: RunningPlane, namespace: str
) -> None:
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot", "--duration=10m").out.strip()
    assert token.count(".") == 2
    stranger = with_token(plane, token)
    who = stranger("auth", "whoami", "-o", "json").json()["status"]["userInfo"]
    assert who["username"] == f"system:serviceaccount:{namespace}:robot"
    assert "system:serviceaccounts" in who["groups"]
    refused = stranger("get", "secrets", "-n", namespace, code=1).err
    assert f'User "system:serviceaccount:{namespace}:robot" cannot list resource "secrets"' in refused


def test_create_role_and_binding_take_effect_at_once(kubectl: Program, plane: RunningPlane, namespace: str) -> None:
    kubectl("create", "serviceaccount", "robot")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps", "--resource-name=c")
    kubectl("create", "role", "lister", "--verb=list,watch", "--resource=secrets,widgets.e2e.planform.dev/status")
    for role in ("reader", "lister"):
        kubectl("create", "rolebinding", role, f"--role={role}", f"--serviceaccount={namespace}:robot")
    robot = with_token(plane, kubectl("create", "token", "robot").out.strip()).with_("-n", namespace)
    assert robot("get", "secrets", "-o", "name").out == ""
    kubectl("create", "configmap", "c")
    kubectl("create", "configmap", "d")
    assert robot("get", "cm", "c", "-o", "name").out == "configmap/c\n"
    assert "Forbidden" in robot("get", "cm", "d", code=1).err
    assert "Forbidden" in robot("delete", "cm", "c", code=1).err


def test_create_workloads_services_and_the_rest(kubectl: Program) -> None:
    kubectl("create", "deployment", "d", "--image=example.invalid/app:1", "--replicas=2", "--port=80")
    kubectl("create", "service", "clusterip", "s", "--tcp=80:8080")
    kubectl("create", "job", "j", "--image=example.invalid/app:1", "--", "true")
    kubectl("create", "cronjob", "cj", "--image=example.invalid/app:1", "--schedule=0 3 * * *", "--", "true")
    kubectl("create", "ingress", "i", "--rule=example.org/*=s:80")
    kubectl("create", "quota", "q", "--hard=pods=3")
    kubectl("create", "poddisruptionbudget", "p", "--selector=app=d", "--min-available=1")
    kubectl("run", "lonely", "--image=example.invalid/app:1")
    kubectl("expose", "deployment", "d", "--name=d2", "--port=80")
    kubectl("autoscale", "deployment", "d", "--max=5")
    kubectl("set", "image", "deployment/d", "app=example.invalid/app:2")
    found = kubectl("get", "deploy,svc,job,cj,ing,quota,pdb,pod,hpa", "-o", "name").lines
    assert found == [
        "deployment.apps/d",
        "service/d2",
        "service/s",
        "job.batch/j",
        "cronjob.batch/cj",
        "ingress.networking.k8s.io/i",
        "resourcequota/q",
        "poddisruptionbudget.policy/p",
        "pod/lonely",
        "horizontalpodautoscaler.autoscaling/d",
    ]
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    assert kubectl("get", "deploy", "d", "-o", image).out == "example.invalid/app:2"


def test_create_refuses_what_exists_and_what_is_wrong(kubectl: Program, widgets: None) -> None:
    kubectl("create", "configmap", "c")
    assert 'configmaps "c" already exists' in kubectl("create", "configmap", "c", code=1).err
    bad = kubectl("create", "-f", "-", stdin=manifest(widget("a", replicas=9)), code=1).err
    assert 'The Widget "a" is invalid: spec: Invalid value:' in bad
    assert "red widgets come in threes at most" in bad
    bad = kubectl("create", "-f", "-", stdin=manifest(widget("a", colour="pink")), code=1).err
    assert 'spec.colour: Unsupported value: "pink": supported values: "red", "green", "blue"' in bad
    bad = kubectl("create", "-f", "-", stdin=manifest(widget("a", colours="red")), code=1).err
    assert 'strict decoding error: unknown field "spec.colours"' in bad


def test_create_validates_by_warning_or_not_at_all_when_asked(kubectl: Program, widgets: None) -> None:
    warned = kubectl("create", "--validate=warn", "-f", "-", stdin=manifest(widget("a", colours="red")))
    assert 'Warning: unknown field "spec.colours"' in warned.err
    silent = kubectl("create", "--validate=false", "-f", "-", stdin=manifest(widget("b", colours="red")))
    assert silent.err == ""
    assert "colours" not in kubectl("get", "widget", "a", "b", "-o", "yaml").out


def test_create_makes_names_up_and_dry_runs_leave_nothing(kubectl: Program) -> None:
    draft = config_map("x")
    draft["metadata"] = {"generateName": "made-"}
    name = kubectl("create", "-f", "-", "-o", "name", stdin=manifest(draft)).out.strip()
    assert name.startswith("configmap/made-")
    assert len(name) == len("configmap/made-") + 5
    kubectl("create", "configmap", "ghost", "--dry-run=server")
    kubectl("get", "configmap", "ghost", code=1)


# -- patch, label, annotate, edit, replace, scale


def test_patch_json_merge_and_strategic(kubectl: Program) -> None:
    kubectl("create", "deployment", "d", "--image=example.invalid/app:1")
    kubectl("patch", "deploy", "d", "--type=json", "-p", '[{"op":"replace","path":"/spec/replicas","value":4}]')
    kubectl("patch", "deploy", "d", "--type=merge", "-p", '{"metadata":{"annotations":{"a":"1"}}}')
    container = {"name": "sidecar", "image": "example.invalid/side:1"}
    strategic = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
    kubectl("patch", "deploy", "d", "-p", strategic)
    found = kubectl("get", "deploy", "d", "-o", "json").json()
    assert found["spec"]["replicas"] == 4
    assert found["metadata"]["annotations"]["a"] == "1"
    names = [container["name"] for container in found["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["app", "sidecar"]


def test_patch_that_fails_its_test_changes_nothing(kubectl: Program) -> None:
    kubectl("create", "configmap", "c", "--from-literal=k=v")
    patch = '[{"op":"test","path":"/data/k","value":"w"},{"op":"remove","path":"/data/k"}]'
    kubectl("patch", "cm", "c", "--type=json", "-p", patch, code=1)
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.k}").out == "v"


def test_patch_of_a_status_leaves_the_spec_alone(kubectl: Program, widgets: None) -> None:
    kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    patch = '{"spec":{"colour":"blue"},"status":{"phase":"Ready"}}'
    kubectl("patch", "widget", "a", "--subresource=status", "--type=merge", "-p", patch)
    assert kubectl("get", "widget", "a", "-o", "jsonpath={.spec.colour} {.status.phase}").out == "red Ready"
    kubectl("patch", "widget", "a", "--type=merge", "-p", '{"status":{"phase":"Gone"}}')
    assert kubectl("get", "widget", "a", "-o", "jsonpath={.status.phase} {.metadata.generation}").out == "Ready 1"


def test_label_and_annotate_add_overwrite_and_remove(kubectl: Program) -> None:
    kubectl("create", "configmap", "c")
    kubectl("label", "cm", "c", "tier=web")
    assert "already has a value (web)" in kubectl("label", "cm", "c", "tier=db", code=1).err
    kubectl("label", "cm", "c", "tier=db", "--overwrite")
    kubectl("annotate", "cm", "c", "note=two words")
    metadata = kubectl("get", "cm", "c", "-o", "json").json()["metadata"]
    assert metadata["labels"] == {"tier": "db"}
    assert metadata["annotations"] == {"note": "two words"}
    kubectl("label", "cm", "c", "tier-")
    kubectl("annotate", "cm", "--all", "note-")
    metadata = kubectl("get", "cm", "c", "-o", "json").json()["metadata"]
    assert "labels" not in metadata
    assert "annotations" not in metadata


def test_edit_saves_what_the_editor_changed(kubectl: Program) -> None:
    kubectl("create", "configmap", "c", "--from-literal=colour=red")
    edited = kubectl("edit", "cm", "c", env={"KUBE_EDITOR": "sed -i s/red/blue/"})
    assert edited.out == "configmap/c edited\n"
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.colour}").out == "blue"
    unchanged = kubectl("edit", "cm", "c", env={"KUBE_EDITOR": "true"})
    assert "Edit cancelled, no changes made." in unchanged.out + unchanged.err


def test_edit_tells_the_editor_why_a_change_was_refused(kubectl: Program, plane: RunningPlane, widgets: None) -> None:
    kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    seen = plane.directory / "seen.yaml"
    script = plane.directory / "editor.sh"
    # The first visit makes the widget pink; the second finds the refusal as a comment and gives up.
    script.write_text(
        f'#!/bin/sh\nif grep -q pink "$1"; then cp "$1" {shlex.quote(str(seen))}; exit 0; fi\nsed -i s/red/pink/ "$1"\n'
    )
    script.chmod(0o700)
    kubectl("edit", "widget", "a", code=1, env={"KUBE_EDITOR": str(script)})
    assert 'Unsupported value: "pink"' in seen.read_text()
    assert kubectl("get", "widget", "a", "-o", "jsonpath={.spec.colour}").out == "red"


def test_replace_puts_another_object_in_its_place(kubectl: Program) -> None:
    kubectl("create", "-f", "-", stdin=manifest(config_map("c", {"a": "1", "b": "2"})))
    kubectl("replace", "-f", "-", stdin=manifest(config_map("c", {"b": "3"})))
    assert kubectl("get", "cm", "c", "-o", "json").json()["data"] == {"b": "3"}
    stale = config_map("c", {"b": "4"}, resourceVersion="1")
    refused = kubectl("replace", "-f", "-", stdin=manifest(stale), code=1).err
    assert "the object has been modified; please apply your changes to the latest version and try again" in refused
    before = kubectl("get", "cm", "c", "-o", "jsonpath={.metadata.uid}").out
    kubectl("replace", "--force", "-f", "-", stdin=manifest(config_map("c", {"b": "5"})))
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.metadata.uid}").out != before


def test_scale_changes_replicas_of_built_in_and_defined_kinds(kubectl: Program, widgets: None) -> None:
    kubectl("create", "deployment", "d", "--image=example.invalid/app:1")
    kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    assert kubectl("scale", "deploy/d", "--replicas=3").out == "deployment.apps/d scaled\n"
    kubectl("scale", "widget/a", "--replicas=2", "--current-replicas=1")
    replicas = "jsonpath={.items[*].spec.replicas}"
    assert kubectl("get", "deploy", "-o", replicas).out == "3"
    assert kubectl("get", "widgets", "-o", replicas).out == "2"
    assert (
        "Expected replicas to be 7, was 2"
        in kubectl("scale", "widget/a", "--replicas=1", "--current-replicas=7", code=1).err
    )
    refused = kubectl("scale", "widget/a", "--replicas=4", code=1).err
    assert "red widgets come in threes at most" in refused


# -- delete and wait


def owned_by(kubectl: Program, owner: str, child: str, *, blocking: bool = False) -> None:
    """Create a ConfigMap that belongs to another."""
    uid = kubectl("get", "cm", owner, "-o", "jsonpath={.metadata.uid}").out
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": blocking}
    kubectl("create", "-f", "-", stdin=manifest(config_map(child, ownerReferences=[reference])))


def test_background_deletion_takes_dependents_later(kubectl: Program) -> None:
    kubectl("create", "configmap", "owner")
    owned_by(kubectl, "owner", "child")
    owned_by(kubectl, "child", "grandchild")
    kubectl("delete", "cm", "owner", "--cascade=background")
    kubectl("wait", "--for=delete", "cm/grandchild", "--timeout=10s")
    kubectl("get", "cm", "owner", "child", code=1)


def test_foreground_deletion_takes_dependents_first(kubectl: Program) -> None:
    kubectl("create", "configmap", "owner")
    owned_by(kubectl, "owner", "child", blocking=True)
    kubectl("patch", "cm", "child", "--type=merge", "-p", '{"metadata":{"finalizers":["e2e.planform.dev/hold"]}}')
    kubectl("delete", "cm", "owner", "--cascade=foreground", "--wait=false")
    kubectl("wait", "cm/child", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=10s")
    assert "foregroundDeletion" in kubectl("get", "cm", "owner", "-o", "jsonpath={.metadata.finalizers}").out
    kubectl("patch", "cm", "child", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("wait", "--for=delete", "cm/owner", "--timeout=10s")
    kubectl("get", "cm", "child", code=1)


def test_orphaning_deletion_leaves_dependents_without_an_owner(kubectl: Program) -> None:
    kubectl("create", "configmap", "owner")
    owned_by(kubectl, "owner", "child")
    kubectl("delete", "cm", "owner", "--cascade=orphan")
    kubectl("get", "cm", "owner", code=1)
    assert kubectl("get", "cm", "child", "-o", "jsonpath={.metadata.ownerReferences}").out == ""


def test_delete_by_label_all_and_file(kubectl: Program, namespace: str) -> None:
    objects = [config_map("a", labels={"x": "1"}), config_map("b", labels={"x": "1"}), config_map("c"), config_map("d")]
    kubectl("create", "-f", "-", stdin=manifest(*objects))
    deleted = 'configmap "{}" deleted from ' + namespace + " namespace"
    assert kubectl("delete", "cm", "-l", "x=1").lines == [deleted.format("a"), deleted.format("b")]
    assert kubectl("delete", "-f", "-", stdin=manifest(objects[2])).lines == [deleted.format("c")]
    assert kubectl("delete", "cm", "--all").lines == [deleted.format("d")]
    assert 'configmaps "a" not found' in kubectl("delete", "cm", "a", code=1).err
    kubectl("delete", "cm", "a", "--ignore-not-found")


def test_delete_waits_for_finalizers(kubectl: Program) -> None:
    kubectl("create", "-f", "-", stdin=manifest(config_map("c", finalizers=["e2e.planform.dev/hold"])))
    kubectl("delete", "cm", "c", "--timeout=300ms", code=1)
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.metadata.deletionTimestamp}").out
    kubectl("patch", "cm", "c", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
    kubectl("get", "cm", "c", code=1)


def test_deleting_a_namespace_empties_it(plane: RunningPlane, kubectl: Program, namespace: str, widgets: None) -> None:
    kubectl("create", "-f", "-", stdin=manifest(config_map("c"), widget("a")))
    plane.kubectl("delete", "namespace", namespace)
    plane.kubectl("get", "namespace", namespace, code=1)
    assert plane.kubectl("get", "cm,widgets", "-n", namespace, "-o", "name").out == ""
    assert "not found" in plane.kubectl("create", "configmap", "late", "-n", namespace, code=1).err


def test_deleting_a_definition_deletes_its_objects(plane: RunningPlane, kubectl: Program) -> None:
    names = {"plural": "fads", "kind": "Fad"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "fads.e2e.planform.dev"},
        "spec": {"group": "e2e.planform.dev", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    fad = {"apiVersion": "e2e.planform.dev/v1", "kind": "Fad", "metadata": {"name": "f"}}
    for _ in range(2):  # the second time there must be nothing left of the first
        plane.kubectl("create", "-f", "-", stdin=manifest(definition))
        plane.kubectl("wait", "--for=condition=Established", "crd/fads.e2e.planform.dev", "--timeout=10s")
        assert kubectl("get", "fads", "-o", "name").out == ""
        kubectl("create", "-f", "-", stdin=manifest(fad))
        plane.kubectl("delete", "crd", "fads.e2e.planform.dev")
        kubectl("get", "fads", code=1)


def test_wait_for_a_field_a_creation_and_a_deletion(kubectl: Program) -> None:
    kubectl("create", "configmap", "c", "--from-literal=phase=Ready")
    kubectl("wait", "cm/c", "--for=jsonpath={.data.phase}=Ready", "--timeout=10s")
    with kubectl.following("wait", "cm/later", "--for=create", "--timeout=20s") as waiting:
        kubectl("create", "configmap", "later")
        waiting.until("configmap/later condition met")
    with kubectl.following("wait", "cm/c", "--for=delete", "--timeout=20s") as waiting:
        kubectl("delete", "cm", "c")
        assert waiting.process.wait(PATIENCE_SECONDS) == 0
    late = kubectl("wait", "cm/later", "--for=jsonpath={.data.phase}=Ready", "--timeout=200ms", code=1).err
    assert "timed out waiting for the condition" in late


def test_wait_follows_conditions(kubectl: Program, widgets: None) -> None:
    kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    ready = '{"status":{"conditions":[{"type":"Ready","status":"%s"}]}}'
    with kubectl.following("wait", "widget/a", "--for=condition=Ready", "--timeout=20s") as waiting:
        for status in ("False", "True"):
            kubectl("patch", "widget", "a", "--subresource=status", "--type=merge", "-p", ready % status)
        waiting.until("widget.e2e.planform.dev/a condition met")


def with_token(plane: RunningPlane, token: str) -> Program:
    """kubectl as whoever the token names; the administrator's certificate stays out of it."""
    return plane.kubectl.with_(
        *("--kubeconfig", "/dev/null", "--server", plane.url, "--token", token, "--certificate-authority"),
        str(plane.authority),
    )
