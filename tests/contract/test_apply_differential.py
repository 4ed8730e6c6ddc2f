"""Server-side apply and update tracking next to a real kube-apiserver, one write at a time.

Seeded sequences of applies, replacements and patches by several managers run on the real server. Before each write we
hold the object as the server stores it, so our functions can say what the write must lead to: the object, every
managedFields entry with its time and place in the list, or the words of the refusal.
"""

from __future__ import annotations

import copy
import http.client
import json
import random
import ssl
import time
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from planform.apimachinery import apply as ssa
from planform.apimachinery.apply_fast_path import fast_apply
from planform.apimachinery.patches import merge_patch
from planform.apimachinery.typed import TypedError, compile_type
from planform.errors import ApplyConflict
from tests.harness.kubernetes import RealKubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]

Object = dict[str, Any]
GROUP, VERSION = "apply.planform.test", "apply.planform.test/v1"
SEQUENCES, STEPS = 60, 14
TEXT: Object = {"type": "string"}
ITEM: Object = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": TEXT,
        "v": TEXT,
        "w": TEXT,
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    },
}
PORT: Object = {
    "type": "object",
    "required": ["port"],
    "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": TEXT},
}
SPEC: Object = {
    "type": "object",
    "properties": {
        "a": TEXT,
        "b": TEXT,
        "struct": {"type": "object", "properties": {"x": TEXT, "y": TEXT}},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "structs": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": TEXT, "y": TEXT}}},
        "atomMap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT},
        "atom": {"type": "array", "items": TEXT},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "map": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": ITEM,
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": PORT,
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SCHEMA: Object = {
    "type": "object",
    "properties": {"spec": SPEC, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}
NODE = compile_type(SCHEMA)
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
CHOICES: dict[str, Any] = {
    "a": ["1", "2"],
    "b": ["1", "2"],
    "struct": [{}, {"x": "1"}, {"x": "2", "y": "1"}, {"y": "2"}],
    "labels": [{}, {"k": "1"}, {"k": "2", "l": "1"}, {"l": "2"}],
    "structs": [{}, {"k": {}}, {"k": {"x": "1"}}, {"k": {"y": "1"}, "l": {"x": "1"}}],
    "atomMap": [{}, {"k": "1"}, {"k": "2", "l": "1"}],
    "atom": [[], ["p"], ["p", "q"]],
    "set": [[], ["p"], ["q", "p"], ["r"], ["p", "s", "q", "r"]],
    "map": [
        [],
        [{"name": "x"}],
        [{"name": "x", "v": "1"}],
        [{"name": "y", "w": "1"}, {"name": "x", "w": "1"}],
        [{"name": "x", "tags": ["p"]}, {"name": "z"}],
        [{"name": "z", "tags": ["q", "p"]}, {"name": "y", "v": "2"}],
    ],
    "ports": [
        [{"port": 80}],
        [{"port": 80, "protocol": "UDP", "name": "u"}],
        [{"port": 443, "name": "s"}, {"port": 80, "protocol": "TCP", "name": "w"}],
    ],
    "free": [{}, {"m": {"n": 1}}, {"m": {"n": 2, "o": [1]}, "s": "t"}, {"m": "text"}, {"m": {}}, {"m": None}],
}
METADATA: dict[str, Any] = {
    "labels": [{"l": "1"}, {"l": "2", "m": "1"}],
    "annotations": [{"n": "1"}, {"o": "1"}],
    "finalizers": [["planform.test/f"], ["planform.test/g", "planform.test/f"]],
}
STATUS: dict[str, Any] = {"s": [1, 2], "m": [{}, {"n": "1"}, {"o": "1"}], "l": [[], [1], [1, 2]]}


class Server:
    """One connection to the real server; every call gives the HTTP code and the decoded answer."""

    def __init__(self, cluster: RealKubernetes) -> None:
        self._context = ssl.create_default_context(cafile=cluster.ca_file)
        self._place, self._token = urlsplit(cluster.url).netloc, cluster.token
        self._connection = http.client.HTTPSConnection(self._place, context=self._context, timeout=30)

    def call(self, method: str, path: str, body: Object | None = None, type_: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": type_}
        self._connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content.startswith(b"{") else content.decode()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def server(kubernetes_engine: RealKubernetes) -> Iterator[Server]:
    server = Server(kubernetes_engine)
    code, answer = server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
    assert code in (201, 409), answer
    deadline = time.monotonic() + 30
    while server.call("PATCH", f"{widgets('probe')}?dryRun=All&fieldManager=p", widget("probe"), APPLY)[0] != 201:
        assert time.monotonic() < deadline, "the CRD is not served"
        time.sleep(0.1)
    yield server
    server.close()


def widgets(name: str = "") -> str:
    return f"/apis/{GROUP}/v1/namespaces/default/widgets" + (f"/{name}" if name else "")


def widget(name: str) -> Object:
    return {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": name, "namespace": "default"}}


def some(rng: random.Random, choices: dict[str, Any], maximum: int) -> Object:
    names = rng.sample(sorted(choices), rng.randint(0, min(maximum, len(choices))))
    return {name: copy.deepcopy(rng.choice(choices[name])) for name in names}


def random_widget(rng: random.Random, name: str) -> Object:
    obj = widget(name)
    if rng.random() < 0.9:
        obj["spec"] = some(rng, CHOICES, 5)
    if rng.random() < 0.4:
        obj["metadata"] |= some(rng, METADATA, 2)
    if rng.random() < 0.3:
        obj["status"] = some(rng, STATUS, 2)
    return obj


def with_defaults(obj: Object) -> Object:
    """What the server adds to or drops from a written object of this CRD."""
    obj = copy.deepcopy(obj)
    for port in (obj.get("spec") or {}).get("ports") or ():
        port.setdefault("protocol", "TCP")
    for name in ("labels", "annotations", "finalizers"):
        if not obj["metadata"].get(name):
            obj["metadata"].pop(name, None)
    return obj


def comparable(obj: Object) -> Object:
    """What the two must agree on. Null and empty are one: see where nulls are refused below."""
    kept = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
    metadata = {name: obj["metadata"][name] for name in kept if obj["metadata"].get(name)}
    parts = copy.deepcopy({name: obj[name] for name in ("spec", "status") if name in obj})
    for part in (parts.get("spec", {}).get("free", {}), parts.get("status", {})):
        part |= {name: {} for name, value in part.items() if value is None}
    return {"metadata": metadata} | parts


def loses_empty_lists(live: Object, after: Object) -> bool:
    return any(live.get("spec", {}).get(name) == [] and name not in after.get("spec", {}) for name in ("set", "map"))


def without_entries(obj: Object) -> Object:
    obj = comparable(obj)
    obj["metadata"].pop("managedFields", None)
    return obj


def without_times(obj: Object) -> Object:
    obj = comparable(obj)
    entries = obj["metadata"].get("managedFields", ())
    timeless = [{key: item[key] for key in sorted(item) if key != "time"} for item in entries]
    obj["metadata"]["managedFields"] = sorted(timeless, key=str)
    return obj


class Write:
    """One request, and what it must lead to."""

    def __init__(self, rng: random.Random, name: str, live: Object | None) -> None:
        self.live = live
        self.subresource = "status" if live is not None and rng.random() < 0.2 else ""
        sorts = ["apply", "apply", "apply", "put", "merge"] if live is not None else ["apply", "post"]
        self.sort = rng.choice(sorts)
        self.manager = rng.choice("abc" if self.sort == "apply" else "auvw")
        self.force = self.sort == "apply" and rng.random() < 0.5
        self.body = random_widget(rng, name)
        if self.sort == "put" and live is not None:
            kept = {key: live["metadata"][key] for key in ("uid", "resourceVersion")}
            self.body["metadata"] |= kept
            if rng.random() < 0.5:
                self.body["spec"] = copy.deepcopy(live.get("spec", {})) | self.body.get("spec", {})
            if rng.random() < 0.3 and live["metadata"].get("managedFields"):
                self.body["metadata"]["managedFields"] = rewritten(rng, live["metadata"]["managedFields"])
        if self.sort == "merge":
            self.body = {name: value for name, value in self.body.items() if name in ("spec", "status")}
            if rng.random() < 0.1:
                self.body["metadata"] = {"managedFields": [{}]}

    def send(self, server: Server, name: str) -> tuple[int, Any]:
        query = {"fieldManager": self.manager} | ({"force": "true"} if self.force else {})
        path = widgets("" if self.sort == "post" else name) + (f"/{self.subresource}" if self.subresource else "")
        method, type_ = {
            "post": ("POST", "application/json"),
            "put": ("PUT", "application/json"),
            "merge": ("PATCH", MERGE),
            "apply": ("PATCH", APPLY),
        }[self.sort]
        return server.call(method, f"{path}?{urlencode(query)}", self.body, type_)  # type: ignore[no-any-return]

    def expect(self, now: str) -> Object:
        """The object after this write; raises ApplyConflict or TypedError if it must be refused."""
        options: dict[str, Any] = {"node": NODE, "manager": self.manager, "api_version": VERSION, "now": now}
        options |= {"subresource": self.subresource, "status_subresource": True}
        if self.sort == "apply":
            return with_defaults(ssa.apply(self.live, self.body, force=self.force, **options))
        new = self.body
        if self.sort == "merge":
            new = merge_patch(self.live, self.body)
        new = with_defaults(self._prepared(new))
        entries = ssa.track_update(self.live, new, **options)
        new["metadata"]["managedFields"] = entries
        return new

    def _prepared(self, new: Object) -> Object:
        if self.live is None:
            return {name: value for name, value in new.items() if name != "status"}
        taken, kept = (new, self.live) if self.subresource else (self.live, new)
        result = {name: value for name, value in kept.items() if name != "status"}
        return result | ({"status": taken["status"]} if "status" in taken else {})

    def __str__(self) -> str:
        flags = f"{' forced' * self.force}{f' on {self.subresource}' * bool(self.subresource)}"
        return f"{self.sort}{flags} by {self.manager}: {json.dumps(self.body)}\non: {json.dumps(self.live)}"


def rewritten(rng: random.Random, entries: list[Object]) -> list[Object]:
    """What a client that moves ownership writes back."""
    moved = copy.deepcopy(entries)
    entry = rng.choice(moved)
    if entry["operation"] == "Update":
        entry |= {"manager": "moved", "operation": "Apply"}
    elif len(moved) > 1:
        moved.remove(entry)
    return moved


@pytest.mark.parametrize(
    "spec",
    [
        {"zork": 1},
        {"map": [{"name": "q"}, {"name": "q"}]},
        {"map": [{"name": "q", "zork": 1}]},
        {"map": [{"v": "1"}]},
        {"map": [None]},
        {"map": ["q"]},
        {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
        {"ports": [{"port": 1}, {"port": 2, "zork": 1}]},
        {"set": [None]},
        {"structs": {"k": {"zork": 1}}},
    ],
    ids=json.dumps,
)
def test_a_configuration_is_refused_in_the_words_of_the_real_server(server: Server, spec: Object) -> None:
    config = widget("refused") | {"spec": spec}
    _, answer = server.call("PATCH", f"{widgets('refused')}?fieldManager=a", config, APPLY)
    with pytest.raises(TypedError) as refusal:
        ssa.apply(None, config, node=NODE, manager="a", api_version=VERSION, now="")
    assert str(refusal.value) == answer["message"]


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_a_sequence_of_writes_leads_where_the_real_server_leads(server: Server, seed: int) -> None:
    rng, name = random.Random(seed), f"w{seed}"
    live: Object | None = None
    for _ in range(STEPS):
        write = Write(rng, name, live)
        code, answer = write.send(server, name)
        if code == 409:
            with pytest.raises(ApplyConflict) as refusal:
                write.expect("")
            assert str(refusal.value) == answer["message"], str(write)
            assert sorted(map(str, refusal.value.causes)) == sorted(
                str({key: cause[key] for key in ("reason", "message", "field")})
                for cause in answer["details"]["causes"]
            )
            continue
        if code == 422 and "null" in answer["message"]:
            # The real server leaves null where the last key or item was pruned, and then refuses it; we leave it empty.
            write.expect("")
            continue
        assert code in (200, 201), f"{answer}\n{write}"
        stamps = [item.get("time", "") for item in answer["metadata"].get("managedFields", ())]
        expected = write.expect(max(stamps, default=""))
        if live is not None and ssa.same_but_server_metadata(comparable(live), comparable(expected)):
            timed = all("time" in item for item in live["metadata"].get("managedFields", ()))
            same_version = answer["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
            assert same_version or not timed, str(write)
            expected = live if same_version else expected
        if live is not None and loses_empty_lists(live, answer) and not loses_empty_lists(live, expected):
            # The real server forgets empty lists when it prunes, and drops the structure around one though it is owned.
            live = answer
            continue
        only_owners_changed = live is not None and without_entries(answer) == without_entries(live)
        if write.sort == "apply" and only_owners_changed:
            # The real server stamps no entry then, and leaves a new one without a time; we stamp it.
            expected, result = without_times(expected), without_times(answer)
        else:
            expected, result = comparable(expected), comparable(answer)
        assert expected == result, str(write)
        live = answer


@pytest.mark.parametrize(
    ("sent", "meanwhile", "spec"),
    [
        pytest.param({"a": "1"}, {}, {"a": "2"}, id="taken over"),
        pytest.param({"a": "1"}, {"a": "3"}, {"a": "2"}, id="changed meanwhile"),
        pytest.param(
            {"a": "1", "map": [{"name": "x", "v": "1"}]}, {}, {"map": [{"name": "x", "v": "2"}]}, id="an item"
        ),
        pytest.param({"a": "1", "labels": {"k": "1"}}, {"b": "1"}, {"a": "2", "b": "2"}, id="one of two"),
        pytest.param({"labels": {"k": "1"}}, {}, {"labels": {"k": "2", "l": "<&>"}}, id="special characters"),
    ],
)
def test_kubectl_takes_over_what_it_applied_from_the_client(
    server: Server, request: pytest.FixtureRequest, sent: Object, meanwhile: Object, spec: Object
) -> None:
    name = f"taken{zlib.crc32(request.node.name.encode())}"
    config = widget(name) | {"spec": sent}
    noted = copy.deepcopy(config)
    noted["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(config) + "\n"}
    _, live = server.call("POST", f"{widgets()}?fieldManager=kubectl-client-side-apply", noted)
    if meanwhile:
        _, live = server.call("PATCH", f"{widgets(name)}?fieldManager=other", {"spec": meanwhile}, MERGE)
    config["spec"] = spec
    code, answer = server.call("PATCH", f"{widgets(name)}?fieldManager=kubectl", config, APPLY)
    options: dict[str, Any] = {"node": NODE, "manager": "kubectl", "api_version": VERSION, "status_subresource": True}
    if code == 409:
        with pytest.raises(ApplyConflict) as refusal:
            ssa.apply(live, config, now="", **options)
        assert str(refusal.value) == answer["message"]
        return
    assert code == 200, answer
    stamp = max(item["time"] for item in answer["metadata"]["managedFields"])
    mine = ssa.apply(live, config, now=stamp, **options)
    for obj in (mine, answer):
        [annotation] = obj["metadata"]["annotations"].values()
        obj["metadata"]["annotations"] = json.loads(annotation)
    assert comparable(mine) == comparable(answer)


def with_other_values(rng: random.Random, value: Any, name: str = "") -> Any:
    """The same fields, some of them with another text."""
    if isinstance(value, dict):
        return {key: with_other_values(rng, below, key) for key, below in value.items()}
    if isinstance(value, list):
        return [with_other_values(rng, item, name) for item in value]
    keeps = name in ("apiVersion", "kind", "name", "namespace", "uid", "protocol", "set", "tags", "finalizers")
    return rng.choice(("1", "2", value)) if isinstance(value, str) and not keeps else value


def test_stating_the_same_fields_again_leads_where_the_real_server_leads(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []

    def counted(*args: Any) -> Any:
        found = fast_apply(*args)
        answers.append(found is not None)
        return found

    monkeypatch.setattr(ssa, "fast_apply", counted)
    for seed in range(20):
        rng, name = random.Random(seed), f"again{seed}"
        configs: dict[str, Object] = {}
        live: Object | None = None
        for manager in "abababab":
            known = configs.get(manager) or configs.get("a")
            config = with_other_values(rng, known) if known else random_widget(rng, name) | {"status": {}}
            force = rng.random() < 0.6
            query = {"fieldManager": manager} | ({"force": "true"} if force else {})
            code, answer = server.call("PATCH", f"{widgets(name)}?{urlencode(query)}", config, APPLY)
            options: dict[str, Any] = {"node": NODE, "manager": manager, "api_version": VERSION, "now": ""}
            options |= {"status_subresource": True, "sets_fit": True, "force": force}
            if code == 409:
                with pytest.raises(ApplyConflict) as refusal:
                    ssa.apply(live, config, **options)
                assert str(refusal.value) == answer["message"]
                continue
            assert code in (200, 201), answer
            assert without_times(with_defaults(ssa.apply(live, config, **options))) == without_times(answer), (
                seed,
                config,
            )
            configs[manager], live = config, answer
    assert sum(answers) > 30


def test_the_oldest_updaters_fold_as_on_the_real_server(server: Server) -> None:
    name = "folded"
    live: Object | None = None
    for number in range(14):
        body = {"spec": {"labels": {f"k{number}": "v"}}}
        path = widgets(name) if live is not None else widgets()
        method, type_ = ("PATCH", MERGE) if live is not None else ("POST", "application/json")
        manager = f"u{number * 7 % 14:02}"
        _, answer = server.call(method, f"{path}?fieldManager={manager}", body if live else widget(name) | body, type_)
        stamp = max(item["time"] for item in answer["metadata"]["managedFields"])
        new = merge_patch(live, body) if live is not None else widget(name) | body
        options: dict[str, Any] = {"node": NODE, "api_version": VERSION, "now": stamp, "status_subresource": True}
        assert ssa.track_update(live, new, manager=manager, **options) == answer["metadata"]["managedFields"]
        live = answer


def deployment(**spec: Any) -> Object:
    reference = {"apiVersion": "v1", "fieldPath": "metadata.name"}
    container = {
        "name": "app",
        "image": "example.org/app",
        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP", "name": "u"}],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": reference}}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "command": ["run"],
        "securityContext": {"capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    volume = {
        "name": "v",
        "projected": {"sources": [{"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}]},
    }
    template = {
        "metadata": {"labels": {"app": "x"}, "annotations": {"n": "1"}},
        "spec": {
            "containers": [container],
            "volumes": [volume],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "nodeSelector": {"disk": "ssd"},
            "imagePullSecrets": [{"name": "s"}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "applied", "namespace": "default", "labels": {"app": "x"}},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template} | spec,
    }


def test_a_deployment_is_claimed_as_on_the_real_server_with_the_schema_it_publishes(server: Server) -> None:
    """References, default keys and the list types of the built-in kinds."""
    _, document = server.call("GET", "/openapi/v3/apis/apps/v1")
    schemas = document["components"]["schemas"]
    node = compile_type(
        {"$ref": "#/components/schemas/io.k8s.api.apps.v1.Deployment"}, resolve=lambda ref: schemas[ref.split("/")[-1]]
    )
    path = "/apis/apps/v1/namespaces/default/deployments/applied"
    options: dict[str, Any] = {"node": node, "api_version": "apps/v1", "status_subresource": True}
    _, first = server.call("PATCH", f"{path}?fieldManager=a", deployment(replicas=1), APPLY)
    mine = ssa.apply(None, deployment(replicas=1), manager="a", now="", **options)
    assert entries_of(mine, "a") == entries_of(first, "a")

    config = deployment(minReadySeconds=5)
    del config["spec"]["template"]["spec"]["containers"][0]["ports"][0]
    _, second = server.call("PATCH", f"{path}?fieldManager=a", config, APPLY)
    mine = ssa.apply(first, config, manager="a", now="", **options)
    assert entries_of(mine, "a") == entries_of(second, "a")
    pod = mine["spec"]["template"]["spec"]
    assert pod == second["spec"]["template"]["spec"]
    assert "replicas" not in mine["spec"]  # the real server defaults it to 1 again

    code, refusal = server.call("PATCH", f"{path}?fieldManager=b", deployment(minReadySeconds=6), APPLY)
    assert code == 409
    with pytest.raises(ApplyConflict) as conflict:
        ssa.apply(second, deployment(minReadySeconds=6), manager="b", now="", **options)
    assert str(conflict.value) == refusal["message"]


def entries_of(obj: Object, manager: str) -> list[Any]:
    return [item["fieldsV1"] for item in obj["metadata"]["managedFields"] if item["manager"] == manager]
