"""Who may do what: rules against a slow obvious model, bindings, aggregation, refusals and escalation."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.api.kinds import Kind, Object
from planform.apiserver.admission.chain import Admission
from planform.apiserver.admission.escalation import EscalationCheck
from planform.apiserver.auth.rbac import GROUP, Rbac, RoleRef
from planform.apiserver.auth.rbac_rules import FULL_AUTHORITY, PolicyRule, parse_rules, permits, uncovered
from planform.apiserver.verbs.requests import AUTHENTICATED, MASTERS, Attributes, Request, User
from planform.clock import VirtualClock
from planform.errors import ApiError, Forbidden, NotFound
from planform.store import Key, Store, open_store

BOB = User("bob", ("dev", AUTHENTICATED))
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await open_store(None, clock=VirtualClock()) as opened:
        yield opened


def role(name: str, *rules: Object, namespace: str = "", **more: Any) -> Object:
    metadata: Object = {"name": name, "labels": more.pop("labels", {})}
    kind = "Role" if namespace else "ClusterRole"
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "rules": list(rules), **more}


def binding(name: str, ref: str, *subjects: str, namespace: str = "") -> Object:
    """`ref` is `ClusterRole/x` or `Role/x`; subjects are `User/x`, `Group/x` or `ServiceAccount/ns/x`."""
    kind, _, role_name = ref.partition("/")
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
        "subjects": [_subject(text) for text in subjects],
    }


def _subject(text: str) -> Object:
    kind, *rest = text.split("/")
    return {"kind": kind, "name": rest[-1]} | ({"namespace": rest[0]} if len(rest) > 1 else {})


def key_of(obj: Object) -> Key:
    return Key(f"{obj['kind'].lower()}s.{GROUP}", obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


async def put(store: Store, *objects: Object) -> None:
    for obj in objects:
        await store.stage(key_of(obj), orjson.dumps(obj))


def asks(verb: str, resource: str, *, group: str = "", namespace: str = "default", name: str = "") -> Attributes:
    plural, _, subresource = resource.partition("/")
    return Attributes(verb, group, "v1", plural, subresource, namespace, name)


# -- rules


@pytest.mark.parametrize(
    ("rule", "request_", "allowed"),
    [
        (READ_PODS, asks("get", "pods"), True),
        (READ_PODS, asks("delete", "pods"), False),
        (READ_PODS, asks("get", "pods", group="apps"), False),
        (READ_PODS, asks("get", "pods/log"), False),
        ({**READ_PODS, "resources": ["pods/log"]}, asks("get", "pods/log"), True),
        ({**READ_PODS, "resources": ["pods/log"]}, asks("get", "pods"), False),
        ({**READ_PODS, "resources": ["*/scale"]}, asks("get", "deployments/scale"), True),
        ({**READ_PODS, "resources": ["*/scale"]}, asks("get", "deployments/status"), False),
        ({**READ_PODS, "resources": ["*/scale"]}, asks("get", "deployments"), False),
        ({**READ_PODS, "resources": ["*"]}, asks("get", "deployments/status"), True),
        ({**READ_PODS, "resources": ["pods/*"]}, asks("get", "pods/log"), False),
        ({**READ_PODS, "apiGroups": ["*"]}, asks("get", "pods", group="anything"), True),
        ({**READ_PODS, "verbs": ["*"]}, asks("made-up", "pods"), True),
        ({**READ_PODS, "resourceNames": ["a"]}, asks("get", "pods", name="a"), True),
        ({**READ_PODS, "resourceNames": ["a"]}, asks("get", "pods", name="b"), False),
        ({**READ_PODS, "resourceNames": ["a"]}, asks("list", "pods"), False),
        ({**READ_PODS, "resourceNames": ["a"]}, asks("list", "pods", name="a"), True),
        ({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, Attributes("get", path="/metrics"), True),
        ({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, Attributes("get", path="/metrics/x"), False),
        ({"nonResourceURLs": ["/apis/*"], "verbs": ["get"]}, Attributes("get", path="/apis/x/v1"), True),
        ({"nonResourceURLs": ["/apis/*"], "verbs": ["get"]}, Attributes("get", path="/apis"), False),
        ({"nonResourceURLs": ["*"], "verbs": ["*"]}, Attributes("get", path="/"), True),
        ({"nonResourceURLs": ["*"], "verbs": ["*"]}, asks("get", "pods"), False),
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, Attributes("get", path="/metrics"), False),
        ({"verbs": ["*"]}, asks("get", "pods"), False),
    ],
)
def test_a_rule_permits_what_kubernetes_says_it_permits(rule: Object, request_: Attributes, allowed: bool) -> None:
    assert permits(parse_rules([rule])[0], request_) is allowed


VERBS, GROUPS, PLURALS, SUBRESOURCES, NAMES = ["get", "list"], ["", "g"], ["a", "b"], ["", "scale", "x"], ["", "n", "m"]
PATHS = ["/a", "/a/b", "/b"]


def lists(values: Sequence[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=3, unique=True).map(tuple)


RULES = st.builds(
    PolicyRule,
    api_groups=lists([*GROUPS, "*"]),
    resources=lists([*PLURALS, "*", "a/scale", "a/x", "b/scale", "*/scale", "*/x"]),
    resource_names=lists(["n", "m"]),
    verbs=lists([*VERBS, "*"]),
) | st.builds(PolicyRule, non_resource_urls=lists([*PATHS, "/a*", "/a/*", "*"]), verbs=lists([*VERBS, "*"]))
EVERYTHING = [
    Attributes(verb, group, "v1", plural, subresource, "", name)
    for verb in [*VERBS, "other"]
    for group in [*GROUPS, "h"]
    for plural in [*PLURALS, "c"]
    for subresource in SUBRESOURCES
    for name in [*NAMES, "o"]
] + [Attributes(verb, path=path) for verb in [*VERBS, "other"] for path in [*PATHS, "/a/b/c", "/c"]]


def model(rules: Sequence[PolicyRule], wants: Attributes) -> bool:
    """The same by brute force: spell out every single thing that a rule says."""

    def one(rule: PolicyRule) -> bool:
        for verb in rule.verbs or ():
            if verb not in ("*", wants.verb):
                continue
            for url in rule.non_resource_urls or ():
                if wants.path and (url == wants.path or (url[-1] == "*" and wants.path.startswith(url[:-1]))):
                    return True
            for group in rule.api_groups or ():
                for resource in rule.resources or ():
                    if wants.path or group not in ("*", wants.group):
                        continue
                    asked = "/".join(filter(None, (wants.resource, wants.subresource)))
                    spellings = {"*", asked} | ({f"*/{wants.subresource}"} if wants.subresource else set())
                    if resource in spellings and (not rule.resource_names or wants.name in rule.resource_names):
                        return True
        return False

    return any(one(rule) for rule in rules)


@settings(deadline=None)
@given(st.lists(RULES, max_size=3))
def test_rules_permit_exactly_what_the_slow_model_permits(rules: list[PolicyRule]) -> None:
    for wants in EVERYTHING:
        assert any(permits(rule, wants) for rule in rules) is model(rules, wants), wants


@settings(deadline=None)
@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=2))
def test_whoever_covers_rules_may_do_all_that_they_permit(held: list[PolicyRule], wanted: list[PolicyRule]) -> None:
    missing = uncovered(held, wanted)
    for wants in EVERYTHING:
        if model(wanted, wants) and not model(held, wants):
            assert missing
        if model(missing, wants):
            assert model(wanted, wants)
    assert uncovered([*held, *missing], wanted) == []
    assert uncovered(FULL_AUTHORITY, wanted) == []


# -- bindings


async def test_a_binding_works_for_users_groups_and_service_accounts(store: Store) -> None:
    rbac = Rbac(store)
    await put(
        store,
        role("reader", READ_PODS),
        binding("one", "ClusterRole/reader", "User/alice", "Group/dev", namespace="default"),
        binding("two", "ClusterRole/reader", "ServiceAccount/ci/robot", namespace="default"),
        binding("three", "ClusterRole/reader", "ServiceAccount/robot", namespace="other"),
    )
    wants = asks("get", "pods")
    assert rbac.allows(User("alice"), wants)
    assert rbac.allows(BOB, wants)
    assert rbac.allows(User("system:serviceaccount:ci:robot"), wants)
    assert not rbac.allows(User("robot"), wants)
    assert not rbac.allows(User("carol", ("ops",)), wants)
    assert rbac.allows(User("system:serviceaccount:other:robot"), asks("get", "pods", namespace="other"))


async def test_a_role_binding_reaches_its_namespace_only_and_never_a_path(store: Store) -> None:
    rbac = Rbac(store)
    everything = role("everything", *({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},))
    everything["rules"].append({"nonResourceURLs": ["*"], "verbs": ["*"]})
    await put(store, everything, binding("b", "ClusterRole/everything", "User/bob", namespace="default"))
    assert rbac.allows(BOB, asks("delete", "pods"))
    assert not rbac.allows(BOB, asks("delete", "pods", namespace="other"))
    assert not rbac.allows(BOB, asks("list", "pods", namespace=""))
    assert not rbac.allows(BOB, Attributes("get", path="/metrics"))


async def test_what_was_there_before_the_start_counts(store: Store) -> None:
    await put(store, role("reader", READ_PODS), binding("b", "ClusterRole/reader", "User/bob"))
    assert Rbac(store).allows(BOB, asks("get", "pods"))


async def test_a_change_of_role_or_binding_counts_from_its_commit_on(store: Store) -> None:
    rbac, wants = Rbac(store), asks("get", "pods")
    await put(store, binding("b", "Role/reader", "User/bob", namespace="default"))
    assert not rbac.allows(BOB, wants)
    await put(store, role("reader", READ_PODS, namespace="default"))
    assert rbac.allows(BOB, wants)
    await put(store, role("reader", {**READ_PODS, "verbs": ["watch"]}, namespace="default"))
    assert not rbac.allows(BOB, wants)
    await put(store, role("reader", READ_PODS, namespace="default"))
    await put(store, binding("b", "Role/reader", "User/alice", namespace="default"))
    assert not rbac.allows(BOB, wants)
    assert rbac.allows(User("alice"), wants)
    await store.stage(Key(f"rolebindings.{GROUP}", "default", "b"), None)
    assert not rbac.allows(User("alice"), wants)


async def test_masters_may_do_anything(store: Store) -> None:
    Rbac(store).authorize(User("root", (MASTERS,)), asks("anything", "at-all"))


async def test_a_stored_role_that_cannot_be_read_grants_nothing(store: Store) -> None:
    rbac = Rbac(store)
    await store.stage(Key(f"clusterroles.{GROUP}", "", "odd"), b'{"metadata":{},"rules":"all of them"}')
    await put(store, binding("b", "ClusterRole/odd", "User/bob"))
    assert not rbac.allows(BOB, asks("get", "pods"))


async def test_aggregated_roles_gather_rules_through_several_steps_and_survive_circles(store: Store) -> None:
    rbac = Rbac(store)

    def gathering(label: str) -> Object:
        return {"clusterRoleSelectors": [{"matchLabels": {label: "yes"}}]}

    await put(
        store,
        role("admin", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, aggregationRule=gathering("to-admin")),
        role("edit", aggregationRule=gathering("to-edit"), labels={"to-admin": "yes"}),
        role("pods", READ_PODS, labels={"to-edit": "yes"}),
        role("circle", aggregationRule=gathering("to-admin"), labels={"to-edit": "yes"}),
        binding("b", "ClusterRole/admin", "User/bob"),
    )
    assert rbac.allows(BOB, asks("get", "pods"))
    assert not rbac.allows(BOB, asks("delete", "pods")), "an aggregated role's own rules do not count"
    await put(store, role("more", {**READ_PODS, "verbs": ["delete"]}, labels={"to-edit": "yes"}))
    assert rbac.allows(BOB, asks("delete", "pods"))


# -- words


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            asks("list", "configmaps"),
            'configmaps is forbidden: User "bob" cannot list resource "configmaps" in API '
            'group "" in the namespace "default"',
        ),
        (
            asks("get", "configmaps", name="x"),
            'configmaps "x" is forbidden: User "bob" cannot get resource "configmaps" in API '
            'group "" in the namespace "default"',
        ),
        (
            asks("update", "widgets/status", group="example.org", namespace="", name="x"),
            'widgets.example.org "x" is forbidden: User "bob" cannot update resource "widgets/status" in API group '
            '"example.org" at the cluster scope',
        ),
        (Attributes("get", path="/metrics"), 'forbidden: User "bob" cannot get path "/metrics"'),
    ],
)
async def test_refusals_are_worded_as_kubernetes_words_them(store: Store, attributes: Attributes, text: str) -> None:
    with pytest.raises(Forbidden) as refusal:
        Rbac(store).authorize(BOB, attributes)
    assert str(refusal.value) == text
    if attributes.resource:
        assert refusal.value.details["kind"] == attributes.resource


async def test_a_refusal_names_the_role_that_a_binding_misses(store: Store) -> None:
    rbac = Rbac(store)
    await put(store, binding("b", "ClusterRole/ghost", "User/bob"))
    with pytest.raises(Forbidden, match=r': rbac: RBAC: clusterrole.rbac.authorization.k8s.io "ghost" not found$'):
        rbac.authorize(BOB, asks("list", "pods"))


async def test_a_role_missing_elsewhere_is_no_excuse_here(store: Store) -> None:
    rbac = Rbac(store)
    await put(store, binding("b", "Role/ghost", "User/bob", namespace="other"))
    with pytest.raises(Forbidden, match=r'in the namespace "default"$'):
        rbac.authorize(BOB, asks("list", "pods"))


async def test_what_is_remembered_is_bounded_in_number_and_size(store: Store) -> None:
    rbac = Rbac(store)
    for number in range(20_000):
        assert not rbac.allows(BOB, Attributes("get", path=f"/{number}"))
    assert len(rbac._answers) <= 16_384
    rbac.allows(BOB, Attributes("get", path="/" + "x" * 10_000))
    rbac.allows(BOB, asks("get", "y" * 10_000))
    assert all(sum(map(len, question)) < 1000 for question in rbac._answers)


async def test_a_decision_says_which_binding_allowed_it(store: Store) -> None:
    rbac = Rbac(store)
    await put(
        store,
        role("reader", READ_PODS),
        binding("wide", "ClusterRole/reader", "Group/dev"),
        binding("near", "ClusterRole/reader", "ServiceAccount/ci/robot", namespace="default"),
    )
    decision = rbac.decide(BOB, asks("get", "pods"))
    assert decision.allowed
    assert decision.reason == 'RBAC: allowed by ClusterRoleBinding "wide" of ClusterRole "reader" to Group "dev"'
    decision = rbac.decide(User("system:serviceaccount:ci:robot"), asks("get", "pods"))
    assert decision.reason == (
        'RBAC: allowed by RoleBinding "near/default" of ClusterRole "reader" to ServiceAccount "robot/ci"'
    )
    assert not rbac.decide(BOB, asks("delete", "pods")).allowed


async def test_a_remembered_decision_takes_microseconds_however_many_names_are_asked_for(store: Store) -> None:
    rbac = Rbac(store)
    await put(store, role("reader", READ_PODS), binding("b", "ClusterRole/reader", "Group/dev"))
    questions = [asks("get", "pods", name=f"pod-{number}") for number in range(2000)]
    best = 1.0
    for _ in range(5):
        started = time.perf_counter()
        for question in questions:
            rbac.authorize(BOB, question)
        best = min(best, (time.perf_counter() - started) / len(questions))
    assert best < 20e-6  # about 1 us on an idle machine


# -- escalation


async def admit(store: Store, rbac: Rbac, user: User, new: Object, old: Object | None = None) -> None:
    plural = f"{new['kind'].lower()}s"
    namespace = new["metadata"].get("namespace", "")
    kind = Kind(GROUP, "v1", new["kind"], plural, bool(namespace))
    operation = Admission(
        "CREATE" if old is None else "UPDATE",
        kind,
        namespace,
        new["metadata"]["name"],
        new,
        old,
        "",
        Request(user=user),
    )
    EscalationCheck(rbac, store).admit(operation)


async def test_nobody_writes_a_role_beyond_what_they_hold(store: Store) -> None:
    rbac = Rbac(store)
    await put(store, role("reader", READ_PODS), binding("b", "ClusterRole/reader", "User/bob", namespace="default"))
    await admit(store, rbac, BOB, role("mine", READ_PODS, namespace="default"))
    with pytest.raises(Forbidden) as refusal:
        await admit(
            store,
            rbac,
            BOB,
            role(
                "mine",
                {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "drop"]},
                namespace="default",
            ),
        )
    assert str(refusal.value) == (
        'roles.rbac.authorization.k8s.io "mine" is forbidden: user "bob" (groups=["dev" "system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["nodes"], Verbs:["get" "drop"]}\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["drop"]}'
    )
    with pytest.raises(Forbidden):
        await admit(store, rbac, BOB, role("mine", READ_PODS))  # cluster-wide is more than one namespace


async def test_only_an_update_for_the_garbage_collector_needs_no_permissions(store: Store) -> None:
    rbac = Rbac(store)
    old = role("big", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})

    def updated(**metadata: Any) -> Object:
        return {**old, "metadata": {**old["metadata"], **metadata}}

    await admit(store, rbac, BOB, updated(finalizers=["a/b"], managedFields=[{}], resourceVersion="2"), old)
    with pytest.raises(Forbidden):  # a label can put a role into an aggregation
        await admit(store, rbac, BOB, updated(labels={"to-admin": "yes"}), old)


async def test_escalate_and_bind_are_permissions_of_their_own(store: Store) -> None:
    rbac = Rbac(store)
    big = role("big", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
    await put(store, big)
    bound = binding("b", "ClusterRole/big", "User/bob", namespace="default")
    with pytest.raises(Forbidden, match="not currently held"):
        await admit(store, rbac, BOB, bound)
    may_bind = {"apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["big"], "verbs": ["bind"]}
    may_escalate = {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]}
    await put(store, role("may", may_bind, may_escalate), binding("may", "ClusterRole/may", "User/bob"))
    await admit(store, rbac, BOB, bound)
    await admit(store, rbac, BOB, role("r", *big["rules"], namespace="default"))
    with pytest.raises(Forbidden):
        await admit(store, rbac, BOB, role("r", *big["rules"]))


async def test_a_binding_is_measured_by_the_role_as_it_is_about_to_be(store: Store) -> None:
    rbac = Rbac(store)
    await put(store, role("r", READ_PODS), role("reader", READ_PODS), binding("b", "ClusterRole/reader", "User/bob"))
    wanted = binding("new", "ClusterRole/r", "User/bob")
    await admit(store, rbac, BOB, wanted)
    bigger = role("r", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
    committing = store.stage(key_of(bigger), orjson.dumps(bigger))
    with pytest.raises(Forbidden):
        await admit(store, rbac, BOB, wanted)
    await committing


async def test_a_binding_to_a_role_that_is_not_there_is_refused_for_those_who_may_not_bind_it(store: Store) -> None:
    with pytest.raises(NotFound, match=r'roles.rbac.authorization.k8s.io "ghost" not found'):
        await admit(store, Rbac(store), BOB, binding("b", "Role/ghost", "User/bob", namespace="default"))


async def test_an_aggregation_rule_is_for_cluster_admins(store: Store) -> None:
    rbac = Rbac(store)
    gathering = role("all", aggregationRule={"clusterRoleSelectors": [{}]})
    with pytest.raises(Forbidden, match="must have cluster-admin privileges to use the aggregationRule"):
        await admit(store, rbac, BOB, gathering)
    await put(store, role("escalates", {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["escalate"]}))
    await put(store, binding("b", "ClusterRole/escalates", "User/bob"))
    await admit(store, rbac, BOB, gathering)


async def test_other_kinds_and_masters_pass_the_escalation_check(store: Store) -> None:
    rbac = Rbac(store)
    big = role("big", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
    await admit(store, rbac, User("root", (MASTERS,)), big)
    kind = Kind("", "v1", "ConfigMap", "configmaps", True)
    operation = Admission("CREATE", kind, "default", "c", {"metadata": {}}, None, "", Request(user=BOB))
    EscalationCheck(rbac, store).admit(operation)


async def test_a_role_with_wrong_types_is_a_bad_request(store: Store) -> None:
    odd = role("odd")
    odd["rules"] = ["everything"]
    with pytest.raises(ApiError, match="cannot be read"):
        await admit(store, Rbac(store), BOB, odd)


async def test_role_rules_are_none_for_a_role_that_is_not_there(store: Store) -> None:
    rbac = Rbac(store)
    assert rbac.role_rules(RoleRef("ClusterRole", "x"), "") is None
    assert rbac.role_rules(RoleRef("Role", "x"), "default") is None
