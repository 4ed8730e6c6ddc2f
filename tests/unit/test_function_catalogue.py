"""Which functions there are, which of their revisions are active, and where each of them may be called."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.client.protocol import Client, Patch, PatchType
from planform.functions.endpoints import InProcess, Remote
from planform.functions.errors import FunctionNotFound
from planform.functions.resolution import Request, resolve
from planform.functions.runner import FunctionRevision
from planform.packages.endpoints import (
    TLS_SECRET_ANNOTATION,
    TLS_SERVER_NAME_ANNOTATION,
    SecretRef,
    builtin_endpoint,
    parse_address,
    serving,
    tls_secret_of,
)
from planform.packages.function_catalogue import LiveFunctions
from planform.packages.revision_objects import changes_to, new_revision
from planform.packages.revisions import (
    Known,
    active_revisions,
    content_of,
    number_of,
    revision_name,
    surplus_revisions,
    system_labels,
)
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import embedded_context, eventually

# -- addresses


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("localhost:9443", "dns:///localhost:9443"),
        ("127.0.0.1:1", "dns:///127.0.0.1:1"),
        ("127.8.0.1:1", "dns:///127.8.0.1:1"),
        ("[::1]:9443", "dns:///[::1]:9443"),
        ("dns:///localhost:9443", "dns:///localhost:9443"),
        ("dns:localhost:9443", "dns:localhost:9443"),
        ("ipv4:127.0.0.1:1,127.0.0.2:1", "ipv4:127.0.0.1:1,127.0.0.2:1"),
        ("ipv6:[::1]:1", "ipv6:[::1]:1"),
        ("unix:/run/fn.sock", "unix:/run/fn.sock"),
        ("unix:///run/fn.sock", "unix:///run/fn.sock"),
        ("unix-abstract:fn", "unix-abstract:fn"),
    ],
)
def test_what_cannot_leave_this_machine_is_called_in_plain_text(text: str, target: str) -> None:
    assert parse_address(text).local
    assert serving(text, {}, None).endpoint == Remote(target)


@pytest.mark.parametrize(
    "text",
    [
        "fn.example.org:9443",
        "10.0.0.1:9443",
        "0.0.0.0:9443",
        "dns:///fn.system:9443",
        "dns://10.0.0.1/localhost:9443",
        "ipv4:127.0.0.1:1,10.0.0.1:1",
        "ipv6:[fe80::1]:1",
        "localhost.example.org:1",
        "unix.example.org:1",
    ],
)
def test_what_may_leave_this_machine_needs_certificates(text: str) -> None:
    assert not parse_address(text).local
    refused = serving(text, {}, None)
    assert refused.endpoint is None
    assert "only with TLS" in refused.problem
    assert TLS_SECRET_ANNOTATION in refused.problem


@pytest.mark.parametrize(
    "text",
    [
        "https://fn:1",
        "fn",
        "fn:",
        "fn:x",
        "fn:0",
        "fn:65536",
        ":1",
        "unix:",
        "unix:///",
        "ipv4:",
        "::1:9443",
        "dns:///",
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="the endpoint"):
        parse_address(text)
    assert f'"{text}"' in serving(text, {}, None).problem


# -- certificates

NAMED = {TLS_SECRET_ANNOTATION: "platform/fn-client"}


def secret(**data: bytes) -> dict[str, dict[str, str]]:
    return {"data": {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}}


def test_certificates_come_from_the_named_secret() -> None:
    annotations = {**NAMED, TLS_SERVER_NAME_ANNOTATION: "fn-1"}
    found = serving("fn:1", annotations, secret(ca_crt=b"ca", tls_crt=b"crt", tls_key=b"key")).endpoint
    assert isinstance(found, Remote)
    assert found.tls is not None
    assert (found.tls.authority, found.tls.certificate, found.tls.key) == (b"ca", b"crt", b"key")
    assert found.server_name == "fn-1"
    assert tls_secret_of(annotations) == SecretRef("platform", "fn-client")


@pytest.mark.parametrize(
    ("value", "found", "says"),
    [
        ("fn-client", None, "must be NAMESPACE/NAME"),
        ("a/b/c", None, "must be NAMESPACE/NAME"),
        ("platform/fn-client", None, "Secret platform/fn-client, named by planform.dev/tls-secret, does not exist or"),
        ("platform/fn-client", secret(ca_crt=b"ca", tls_crt=b"crt"), "has no tls.key"),
        ("platform/fn-client", {"data": {"ca.crt": "%", "tls.crt": "%", "tls.key": "%"}}, "is not base64"),
    ],
)
@pytest.mark.parametrize("endpoint", ["fn:1", "localhost:1"])
def test_broken_certificates_never_lead_to_plain_text(
    endpoint: str, value: str, found: dict[str, dict[str, str]] | None, says: str
) -> None:
    refused = serving(endpoint, {TLS_SECRET_ANNOTATION: value}, found)
    assert refused.endpoint is None
    assert says in refused.problem


def test_a_built_in_serves_in_this_process() -> None:
    assert serving(builtin_endpoint("auto-ready"), {}, None).endpoint == InProcess("auto-ready")
    assert "status.endpoint is empty" in serving("", {}, None).problem


# -- which revisions there are


class Packages:
    """A function with its revisions, as its owner changes the package and the limits."""

    def __init__(self, *, history: int, active: int) -> None:
        self.history, self.limit = history, active
        self.known: dict[str, Known] = {}
        self.deleted: list[str] = []

    def install(self, package: str) -> None:
        numbers = list(self.known.values())
        self.known[package] = Known(package, number_of(package, numbers), active=True)
        self.settle(package)

    def settle(self, current: str) -> None:
        active = active_revisions(list(self.known.values()), limit=self.limit)
        self.known = {name: Known(name, each.number, name in active) for name, each in self.known.items()}
        for name in surplus_revisions(list(self.known.values()), current, history=self.history):
            del self.known[name]
            self.deleted.append(name)

    def numbers(self, *, active: bool) -> list[int]:
        return sorted(each.number for each in self.known.values() if each.active is active)


def test_the_worked_states_of_a_rollout() -> None:
    packages = Packages(history=4, active=2)
    packages.install("v1")
    assert packages.numbers(active=True) == [1]
    packages.install("v2")
    assert packages.numbers(active=True) == [1, 2]
    packages.install("v3")
    assert (packages.numbers(active=True), packages.numbers(active=False)) == ([2, 3], [1])
    for package in ("v4", "v5", "v6"):
        packages.install(package)
    assert (packages.numbers(active=True), packages.numbers(active=False)) == ([5, 6], [2, 3, 4])
    assert packages.deleted == ["v1"]
    packages.install("v4")  # back: the same revision under the highest number
    assert packages.known["v4"].number == 7
    assert (packages.numbers(active=True), packages.numbers(active=False)) == ([6, 7], [2, 3, 5])
    packages.limit = 1
    packages.settle("v4")
    assert (packages.numbers(active=True), packages.numbers(active=False)) == ([7], [2, 3, 5, 6])
    packages.limit = 3
    packages.settle("v4")
    assert (packages.numbers(active=True), packages.numbers(active=False)) == ([5, 6, 7], [2, 3])


def test_going_back_to_the_oldest_package_keeps_it_even_over_the_limit() -> None:
    packages = Packages(history=1, active=1)
    packages.install("v1")
    packages.install("v2")
    packages.install("v1")
    assert packages.known["v1"] == Known("v1", 3, active=True)
    assert packages.deleted == []


def test_no_history_limit_means_that_nothing_is_deleted() -> None:
    packages = Packages(history=0, active=1)
    for number in range(20):
        packages.install(f"v{number}")
    assert len(packages.known) == 20


def test_an_older_revision_that_works_stays_active_until_a_newer_one_does() -> None:
    old, new = Known("old", 1, active=True), Known("new", 2, active=True, works=False)
    assert active_revisions([old, new], limit=1) == {"old", "new"}
    assert active_revisions([old, Known("new", 2, active=True)], limit=1) == {"new"}
    asleep = Known("asleep", 0, active=False)
    assert active_revisions([asleep, new], limit=1) == {"new"}  # but none is woken up for it


def test_a_revision_is_named_after_its_content() -> None:
    name = revision_name("function-a", content_of("example.org/a/function-a:v1"))
    assert name == revision_name("function-a", content_of("example.org/a/function-a:v1"))
    others = {
        revision_name("function-a", content_of("example.org/a/function-a:v2")),
        revision_name("function-a", content_of("example.org/a/function-a:v1", "localhost:1")),
        revision_name("function-b", content_of("example.org/a/function-a:v1")),
    }
    assert len(others | {name}) == 4
    pinned = content_of("example.org/a/function-a:v1@sha256:abc")
    assert pinned == content_of("example.org/a/function-a:v2@sha256:abc")  # a tag more or less is no other content
    assert len(revision_name("f" * 63, "x")) == 63
    assert revision_name("a.b", "x").startswith("a-b-")
    assert revision_name("a.b", "x") != revision_name("a-b", "x")


def test_a_tag_becomes_a_label_if_it_can_be_one() -> None:
    labels = system_labels("fn", "example.org:5000/a/fn:v0.8.2@sha256:abc")
    assert labels == {PACKAGE_LABEL: "fn", "pkg.crossplane.io/version": "v0.8.2"}
    assert system_labels("fn", "example.org:5000/a/fn") == {PACKAGE_LABEL: "fn"}


def a_function(**spec: Any) -> Object:
    metadata = {"name": "fn", "uid": "u", "labels": {"a": "1"}, "annotations": {"copied": "x", "other": "y"}}
    return {"apiVersion": "v1", "kind": "F", "metadata": metadata, "spec": {"package": "auto-ready:v1", **spec}}


def test_a_revision_that_is_as_its_package_says_needs_no_change() -> None:
    function = a_function(commonLabels={"team": "t"}, packagePullSecrets=[{"name": "s"}])
    wanted = new_revision(function, FUNCTION_REVISION, "fn-1", 3, active=True, annotations=["copied"])
    assert wanted["metadata"]["annotations"] == {"copied": "x", "planform.dev/copied-labels": "a,team"}
    assert changes_to(wanted, wanted, annotations=["copied"]) == {}


def test_a_revision_gets_only_what_changed_and_loses_only_what_it_was_given() -> None:
    before = new_revision(
        a_function(packagePullSecrets=[{"name": "s"}]),
        FUNCTION_REVISION,
        "fn-1",
        1,
        active=True,
        annotations=["copied"],
    )
    before["metadata"]["labels"]["mine"] = "kept"
    before["metadata"]["annotations"]["mine"] = "kept"
    function = a_function()
    function["metadata"]["labels"], function["metadata"]["annotations"] = {"b": "2"}, {}
    wanted = new_revision(function, FUNCTION_REVISION, "fn-1", 2, active=True, annotations=["copied"])
    assert changes_to(before, wanted, annotations=["copied"]) == {
        "metadata": {
            "labels": {"b": "2", "a": None, "pkg.crossplane.io/revision-number": "2"},
            "annotations": {"copied": None, "planform.dev/copied-labels": "b"},
        },
        "spec": {"revision": 2, "packagePullSecrets": None},
    }


# -- what is known of them


@pytest.fixture
async def context() -> AsyncIterator[ControllerContext]:
    async with embedded_context() as context:
        yield context


@pytest.fixture
async def live(context: ControllerContext) -> AsyncIterator[LiveFunctions]:
    async with LiveFunctions(context) as live:
        await live.synced()
        yield live


def a_revision(name: str, *, function: str = "fn", number: int = 1, state: str = "Active", **more: Any) -> Object:
    return {
        "apiVersion": FUNCTION_REVISION.api_version,
        "kind": "FunctionRevision",
        "metadata": {"name": name, "labels": {PACKAGE_LABEL: function}, **more},
        "spec": {"image": "example.org/acme/fn:v1.2.0", "revision": number, "desiredState": state},
    }


async def set_status(client: Client, name: str, **status: Any) -> None:
    patch = Patch(PatchType.MERGE, {"status": status})
    await client.patch(FUNCTION_REVISION, name, patch, subresource="status")


class Heard:
    """What a subscriber was told."""

    def __init__(self, live: LiveFunctions) -> None:
        self.names: list[str] = []
        self.stop = live.subscribe(lambda names: self.names.extend(sorted(names)))

    async def until(self, *names: str) -> None:
        async def check() -> bool:
            return self.names == list(names)

        await eventually(check, f"told of {names}, was told of {self.names}", seconds=5)
        self.names.clear()


def condition(type_: str, status: str, moment: str = "2026-01-01T00:00:00Z") -> Object:
    return {"type": type_, "status": status, "reason": "R", "lastTransitionTime": moment}


async def test_built_ins_are_there_under_every_name_users_give_them(live: LiveFunctions) -> None:
    for name in ("go-templating", "function-go-templating", "go-templates", "function-go-templates"):
        version = resolve(live.catalogue, Request(name, capability="operation")).version
        assert live.endpoint(version.revision) == InProcess("go-templating")
        assert version.digest == "builtin:go-templating:v1.0.1"
        assert not version.deterministic
    assert resolve(live.catalogue, Request("function-auto-ready")).version.deterministic


async def test_an_installed_function_hides_the_built_in_of_its_name(
    context: ControllerContext, live: LiveFunctions
) -> None:
    heard = Heard(live)
    name = "function-auto-ready"
    await context.client.create(a_revision("r1", function=name, state="Inactive"))
    await heard.until(name)
    assert [each.id for each in live.catalogue.versions(name)] == ["r1"]
    assert [each.id for each in live.catalogue.versions("auto-ready")] == ["builtin"]
    await context.client.delete(FUNCTION_REVISION, "r1")
    await heard.until(name)
    assert [each.id for each in live.catalogue.versions(name)] == ["builtin"]


@pytest.mark.parametrize(
    ("package", "annotations", "stands_in"),
    [
        ("crossplane-contrib/function-auto-ready:v1", {}, True),
        ("acme/function-auto-ready:v1", {}, False),
        ("crossplane-contrib/function-sequencer:v1", {}, False),
        ("crossplane-contrib/function-auto-ready:v1", {"planform.dev/endpoint": "localhost:1"}, False),
    ],
    ids=["the same", "somebody else's", "another", "run elsewhere"],
)
async def test_a_function_without_revisions_is_served_only_by_the_built_in_it_means(
    context: ControllerContext, live: LiveFunctions, package: str, annotations: dict[str, str], stands_in: bool
) -> None:
    heard = Heard(live)
    metadata = {"name": "function-auto-ready", "annotations": annotations}
    await context.client.create(
        {
            "apiVersion": FUNCTION.api_version,
            "kind": "Function",
            "metadata": metadata,
            "spec": {"package": f"example.org/{package}"},
        }
    )
    await context.client.create(a_revision("other"))
    await heard.until(*([] if stands_in else ["function-auto-ready"]), "fn")
    if stands_in:
        resolve(live.catalogue, Request("function-auto-ready"))
    else:
        with pytest.raises(FunctionNotFound):
            resolve(live.catalogue, Request("function-auto-ready"))


async def test_subscribers_hear_only_of_what_may_change_a_pipeline(
    context: ControllerContext, live: LiveFunctions
) -> None:
    client, heard = context.client, Heard(live)
    await client.create(a_revision("r1"))
    await heard.until("fn")
    await set_status(client, "r1", endpoint="localhost:1", conditions=[condition("RuntimeHealthy", "True")])
    await heard.until("fn")
    catalogue = live.catalogue
    [version] = catalogue.versions("fn")
    assert (version.ready, version.reachable, version.semver, version.number) == (True, True, "v1.2.0", 1)

    heartbeat = [condition("RuntimeHealthy", "True", "2026-01-02T00:00:00Z"), condition("Other", "False")]
    await set_status(client, "r1", conditions=heartbeat)
    note = Patch(PatchType.MERGE, {"metadata": {"annotations": {"seen": "today"}}})
    await client.patch(FUNCTION_REVISION, "r1", note)
    await client.create(a_revision("other", function="another"))
    await heard.until("another")

    for change in (
        {"conditions": [condition("RuntimeHealthy", "False")]},
        {"endpoint": "localhost:2"},
        {"endpoint": "elsewhere:2"},
        {"capabilities": ["deterministic"]},
    ):
        await set_status(client, "r1", **change)
        await heard.until("fn")
    [version] = live.catalogue.versions("fn")
    assert (version.ready, version.reachable, version.deterministic) == (False, False, True)
    assert live.endpoint(version.revision) is None

    heard.stop()
    await client.delete(FUNCTION_REVISION, "r1")
    await eventually(_gone(live), "the revision is forgotten")
    assert heard.names == []


def _gone(live: LiveFunctions) -> Any:
    async def check() -> bool:
        return not live.catalogue.versions("fn")

    return check


async def test_the_catalogue_is_the_same_value_until_something_changes(
    context: ControllerContext, live: LiveFunctions
) -> None:
    heard = Heard(live)
    before = live.catalogue
    assert live.catalogue is before
    await context.client.create(a_revision("r1"))
    await heard.until("fn")
    assert live.catalogue is not before


async def test_a_revision_answers_only_for_its_own_function(context: ControllerContext, live: LiveFunctions) -> None:
    heard = Heard(live)
    await context.client.create(a_revision("r1"))
    await heard.until("fn")
    await set_status(context.client, "r1", endpoint="builtin:sequencer")
    await heard.until("fn")
    assert live.endpoint(FunctionRevision("fn", "r1", "")) == InProcess("sequencer")
    assert live.endpoint(FunctionRevision("another", "r1", "")) is None
    await set_status(context.client, "r1", endpoint="builtin:of-a-later-release")
    await heard.until("fn")
    assert live.endpoint(FunctionRevision("fn", "r1", "")) is None


async def test_a_revision_may_move_to_another_function(context: ControllerContext, live: LiveFunctions) -> None:
    heard = Heard(live)
    await context.client.create(a_revision("r1"))
    await heard.until("fn")
    moved = Patch(PatchType.MERGE, {"metadata": {"labels": {PACKAGE_LABEL: "another"}}})
    await context.client.patch(FUNCTION_REVISION, "r1", moved)
    await heard.until("another", "fn")
    assert live.catalogue.versions("fn") == ()
