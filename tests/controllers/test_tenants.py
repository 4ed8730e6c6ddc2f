"""A control plane with several tenants, as `--tenants` makes it: what steps are given of Secrets, on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from planform.api.authors import SERVICE_ACCOUNT_ANNOTATION
from planform.api.kinds import Object
from planform.api.names import SECRET
from planform.features import FOR_TENANTS, FeatureGates
from planform.xrs.composed_kinds import parse_composed_kinds
from tests.harness.contexts import condition_of, eventually
from tests.harness.tenants import CONFIG_MAP, Tenants, obj, open_tenants, rule, said

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

ENGINES = [
    pytest.param("embedded", marks=pytest.mark.xdist_group("tenants")),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]


@pytest_asyncio.fixture(scope="module", params=ENGINES, loop_scope="module")
async def tenants(request: pytest.FixtureRequest) -> AsyncIterator[Tenants]:
    cluster = request.getfixturevalue("kubernetes_engine") if request.param == "kubernetes" else None
    async with open_tenants(cluster, features=FeatureGates(dict.fromkeys(FOR_TENANTS, True))) as tenants:
        await tenants.grant("composer", rule("apiextensions.crossplane.io", "compositions"))
        await tenants.admin.create(obj(SECRET, "own", tenants.team, data={"jewels": "b3du"}))
        yield tenants


def sending(tenants: Tenants, namespace: str, name: str, *, kind: str = "App", account: str = "") -> Object:
    """A Composition whose function is sent a Secret, and counts what it was sent."""
    text = (
        "def main(req):\n"
        "    found = sorted(req['credentials']['c']['credentialData']['data'])\n"
        "    return {'desired': {'composite': {'resource': {'status': {'found': ','.join(found)}}}}}\n"
    )
    script = {"apiVersion": "starlark.fn.planform.dev/v1", "kind": "StarlarkScript", "script": text}
    step: Object = {"step": "s", "functionRef": {"name": "function-starlark"}, "input": script}
    step["credentials"] = [{"name": "c", "source": "Secret", "secretRef": {"namespace": namespace, "name": name}}]
    made = tenants.composition(annotations={SERVICE_ACCOUNT_ANNOTATION: account} if account else None)
    made["spec"]["pipeline"], made["spec"]["compositeTypeRef"]["kind"] = [step], kind
    return made


async def told(tenants: Tenants, composition: Object) -> Object:
    """The XR of a Composition, once its function has answered, or could not be asked."""
    kind = tenants.app if composition["spec"]["compositeTypeRef"]["kind"] == "App" else tenants.site
    xr = await tenants.admin.create(tenants.xr(composition, kind))

    async def found() -> Object | None:
        now = await tenants.admin.get(kind, xr["metadata"]["name"], namespace=xr["metadata"].get("namespace") or "")
        synced = condition_of(now, "Synced")
        return now if synced is not None and (synced["status"] == "False" or "found" in now["status"]) else None

    return await eventually(found, "what came of the step")


async def test_a_step_is_not_sent_secrets_that_the_compositions_author_may_not_read(tenants: Tenants) -> None:
    for kind in ("App", "Site"):
        made = await tenants.of("composer").create(sending(tenants, tenants.vault, "crown", kind=kind))
        refused = await told(tenants, made)
        synced = condition_of(refused, "Synced")
        assert synced is not None and synced["status"] == "False"
        assert f'"{tenants.user("composer").user}", who wrote the Composition, cannot get secrets "crown"' in said(
            refused
        )
        assert "found" not in refused["status"]


async def test_whether_a_secret_is_there_is_not_told_to_who_may_not_read_it(tenants: Tenants) -> None:
    made = await tenants.of("composer").create(sending(tenants, tenants.vault, "none"))
    assert 'cannot get secrets "none"' in said(await told(tenants, made))


async def test_a_step_is_sent_secrets_of_its_xrs_namespace_whoever_wrote_it(tenants: Tenants) -> None:
    made = await tenants.of("composer").create(sending(tenants, tenants.team, "own"))
    assert (await told(tenants, made))["status"]["found"] == "jewels"


async def test_a_step_is_sent_what_its_author_or_the_named_serviceaccount_may_read(tenants: Tenants) -> None:
    administrators = await tenants.admin.create(sending(tenants, tenants.vault, "crown"))
    assert (await told(tenants, administrators))["status"]["found"] == "jewels"
    await tenants.grant("reader", rule("apiextensions.crossplane.io", "compositions"))
    await tenants.grant("reader", rule("", "secrets", verbs=["get"], names=["crown"]), namespace=tenants.vault)
    readers = await tenants.of("reader").create(sending(tenants, tenants.vault, "crown"))
    assert (await told(tenants, readers))["status"]["found"] == "jewels"
    await tenants.service_account("nobody")
    account = f"{tenants.team}/nobody"
    named = await tenants.admin.create(sending(tenants, tenants.vault, "crown", account=account))
    assert 'nobody", that the Composition names, cannot get secrets' in said(await told(tenants, named))


async def test_what_the_operator_denies_is_not_composed_whoever_wrote_the_composition() -> None:
    async with open_tenants(None, composed_kinds=parse_composed_kinds([], ["Secret"])) as bounded:
        denied, allowed = obj(SECRET, "denied", bounded.team), obj(CONFIG_MAP, "allowed", bounded.team)
        refused = await bounded.compose("", denied)
        assert "Secret" in said(refused) and not await bounded.exists(denied)
        await bounded.compose("", allowed)
        assert await bounded.exists(allowed)
