"""Section 12: what follows a deletion. Each scenario begins at once and is waited for afterwards."""

from __future__ import annotations

from typing import Any

from tests.contract.engines import Engine, case
from tests.contract.kinds import at, config_map, owner, plain


def create(engine: Engine, ns: str, name: str, *owners: Any, **metadata: Any) -> Any:
    references: dict[str, Any] = {"ownerReferences": list(owners)} if owners else {}
    return engine.post(at("configmaps", ns), config_map(name, **references, **metadata)).ok(201)


@case("12-background", "12-default-policy")
def test_dependents_follow_their_owner(engine: Engine, ns: str) -> None:
    root = create(engine, ns, "root")
    child = create(engine, ns, "child", owner(root))
    create(engine, ns, "grandchild", owner(child))
    engine.delete(at("configmaps", ns, "root")).ok()
    engine.get(at("configmaps", ns, "root")).refused(404)
    engine.gone(at("configmaps", ns, "child"))
    engine.gone(at("configmaps", ns, "grandchild"))


@case("12-foreground")
def test_a_foreground_owner_waits_for_those_that_block_it(engine: Engine, ns: str) -> None:
    root = create(engine, ns, "root")
    create(engine, ns, "blocking", owner(root, blockOwnerDeletion=True), finalizers=["e.org/hold"])
    create(engine, ns, "careless", owner(root), finalizers=["e.org/hold"])
    path = at("configmaps", ns, "root")
    marked = engine.delete(path, {"propagationPolicy": "Foreground"}).ok()
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    for name in ("blocking", "careless"):
        engine.eventually(
            at("configmaps", ns, name), lambda response: "deletionTimestamp" in response.json()["metadata"]
        )
    assert engine.get(path).ok()["metadata"]["finalizers"] == ["foregroundDeletion"]
    engine.patch(at("configmaps", ns, "blocking"), {"metadata": {"finalizers": None}}).ok()
    engine.gone(path)
    assert engine.get(at("configmaps", ns, "careless")).ok()
    engine.patch(at("configmaps", ns, "careless"), {"metadata": {"finalizers": None}}).ok()


@case("12-orphan")
def test_orphans_lose_their_reference_and_stay(engine: Engine, ns: str) -> None:
    root = create(engine, ns, "root")
    create(engine, ns, "child", owner(root))
    engine.delete(at("configmaps", ns, "root"), {"propagationPolicy": "Orphan"}).ok()
    engine.gone(at("configmaps", ns, "root"))
    left = engine.get(at("configmaps", ns, "child")).ok()
    assert not left["metadata"].get("ownerReferences")


@case("12-several-owners")
def test_a_dependent_of_two_owners_lives_until_the_last_is_gone(engine: Engine, ns: str) -> None:
    one, two = create(engine, ns, "one"), create(engine, ns, "two")
    create(engine, ns, "child", owner(one), owner(two))
    path = at("configmaps", ns, "child")
    engine.delete(at("configmaps", ns, "one")).ok()
    left = engine.eventually(path, lambda response: len(response.json()["metadata"]["ownerReferences"]) == 1)
    assert left["metadata"]["ownerReferences"] == [owner(two)]
    engine.delete(at("configmaps", ns, "two")).ok()
    engine.gone(path)


@case("12-absent-owner")
def test_a_dependent_of_nobody_is_collected(engine: Engine, ns: str) -> None:
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "0b1f5d6e-0000-4000-8000-000000000000"}
    create(engine, ns, "child", nobody)
    engine.gone(at("configmaps", ns, "child"))


@case("12-owner-scope")
def test_an_owner_may_be_cluster_scoped_but_not_in_another_namespace(engine: Engine, ns: str) -> None:
    other = engine.new_namespace()
    stranger = owner(create(engine, other, "stranger"))
    space = owner(engine.get(f"/api/v1/namespaces/{ns}").ok())
    create(engine, ns, "kept", space)
    create(engine, ns, "child", stranger)
    engine.gone(at("configmaps", ns, "child"))
    engine.get(at("configmaps", other, "stranger")).ok()
    engine.get(at("configmaps", ns, "kept")).ok()


@case("12-custom-owner")
def test_custom_kinds_own_and_are_owned(engine: Engine, ns: str) -> None:
    root = engine.post(at("plains", ns), plain("root")).ok(201)
    engine.post(at("plains", ns), plain("child", ownerReferences=[owner(root)])).ok(201)
    create(engine, ns, "map", owner(root))
    engine.delete(at("plains", ns, "root"), {"propagationPolicy": "Background"}).ok()
    engine.gone(at("plains", ns, "child"))
    engine.gone(at("configmaps", ns, "map"))
