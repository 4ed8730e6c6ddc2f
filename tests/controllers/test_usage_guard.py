"""What is in use cannot be deleted: the guard in the embedded engine's admission chain, and behind a webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from planform.api.kinds import Object
from planform.api.names import CLUSTER_NOP_RESOURCE, LEGACY_USAGE, NOP_RESOURCE
from planform.api.xr import COMPOSITE_LABEL
from planform.client.protocol import Propagation
from planform.errors import Conflict
from planform.reconcile.context import ControllerContext
from planform.usages.controller import UsageController
from planform.usages.usages import InUse
from tests.controllers.composing import a_platform, templates
from tests.controllers.conftest import ENGINES
from tests.controllers.using import (
    attempt,
    deleted,
    guarded,
    idle,
    is_marked,
    nop,
    pair,
    side,
    stored,
    until_gone,
    usage,
)
from tests.harness.asking import asking_webhook
from tests.harness.contexts import eventually, kubernetes_context, until_condition
from tests.harness.kubernetes import RealKubernetes

REFUSED = (InUse, Conflict)
"""A real API server keeps reason and words of a refusal, not its class."""


@pytest.fixture(params=ENGINES)
async def guarded_context(request: pytest.FixtureRequest) -> AsyncIterator[ControllerContext]:
    if request.param == "kubernetes":
        cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
        async with kubernetes_context(cluster) as context, asking_webhook(context, cluster):
            UsageController(context).start()
            yield context
    else:
        async with guarded() as context:
            yield context


async def test_what_is_in_use_cannot_be_deleted_until_the_usage_is(
    guarded_context: ControllerContext, unique: str
) -> None:
    context = guarded_context
    used, _ = await pair(context, unique)
    created = await context.client.create(
        usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by"), reason="data")
    )
    await until_condition(context.client, created, "Ready")
    with pytest.raises(REFUSED) as refused:
        await deleted(context, used)
    assert refused.value.message.endswith(
        f'This resource is in-use by 1 usage(s), including the Usage "{unique}" (in namespace "default") '
        f'by resource NopResource/{unique}-by with reason: "data".'
    )
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert await stored(context, used) is not None
    await deleted(context, created)
    await until_gone(context, created)
    await deleted(context, used)
    assert await stored(context, used) is None


async def test_a_collection_with_something_in_use_is_not_deleted_and_no_controller_tries_again_at_once() -> None:
    async with guarded() as context:
        used = await context.client.create(nop("n"))
        await until_condition(
            context.client, await context.client.create(usage("u", of=side("n"), reason="r")), "Ready"
        )
        with pytest.raises(InUse) as refused:
            await context.client.delete_collection(NOP_RESOURCE, namespace="default")
        assert not isinstance(refused.value, Conflict)
        assert await stored(context, used) is not None


async def test_the_user_can_be_deleted_and_takes_the_protection_with_it() -> None:
    async with guarded() as context:
        used, using = await pair(context, "n", namespace="")
        wanted = usage("u", cluster=True, of=side("n-of", cluster=True), by=side("n-by", cluster=True))
        created = await context.client.create(wanted)
        await until_condition(context.client, created, "Ready")
        with pytest.raises(InUse, match=r'the ClusterUsage "u" by resource ClusterNopResource/n-by\.$'):
            await deleted(context, used)
        await deleted(context, using)
        await until_gone(context, created)
        await deleted(context, used)


async def test_a_refused_deletion_is_recorded_and_a_dry_run_is_not(
    guarded_context: ControllerContext, unique: str
) -> None:
    context = guarded_context
    used = await context.client.create(nop(unique))
    await until_condition(
        context.client, await context.client.create(usage(unique, of=side(unique), reason="r")), "Ready"
    )
    with pytest.raises(REFUSED):
        await context.client.delete(NOP_RESOURCE, unique, namespace="default", dry_run=True)
    await idle()
    assert attempt(await stored(context, used)) is None
    with pytest.raises(REFUSED):
        await deleted(context, used)

    async def recorded() -> bool:
        return attempt(await stored(context, used)) == "Background"

    await eventually(recorded, "the attempt is recorded on the object")


async def test_a_recorded_deletion_is_replayed_when_the_last_usage_ends(
    guarded_context: ControllerContext, unique: str
) -> None:
    context = guarded_context
    used = await context.client.create(nop(unique))
    usages = [
        await context.client.create(usage(f"{unique}{n}", of=side(unique), reason="r", replayDeletion=True))
        for n in range(2)
    ]
    for each in usages:
        await until_condition(context.client, each, "Ready")
    with pytest.raises(REFUSED):
        await deleted(context, used)
    await deleted(context, usages[0])
    await until_gone(context, usages[0])
    await idle()
    assert await stored(context, used) is not None
    await deleted(context, usages[1])
    await until_gone(context, usages[1])
    assert await stored(context, used) is None


async def test_without_an_attempt_or_without_the_wish_nothing_is_replayed_and_the_attempt_is_forgotten(
    guarded_context: ControllerContext, unique: str
) -> None:
    context = guarded_context
    first, second = await context.client.create(nop(f"{unique}a")), await context.client.create(nop(f"{unique}b"))
    untried = await context.client.create(usage(f"{unique}a", of=side(f"{unique}a"), reason="r", replayDeletion=True))
    unwished = await context.client.create(usage(f"{unique}b", of=side(f"{unique}b"), reason="r"))
    for each in (untried, unwished):
        await until_condition(context.client, each, "Ready")
    with pytest.raises(REFUSED):
        await deleted(context, second)
    for each in (untried, unwished):
        await deleted(context, each)
        await until_gone(context, each)
    assert await stored(context, first) is not None
    left = await stored(context, second)
    assert attempt(left) is None and not is_marked(left or {})


async def test_a_composed_usage_protects_while_it_waits_and_then_replays(
    guarded_context: ControllerContext, unique: str
) -> None:
    context = guarded_context
    used, using = await pair(context, unique)
    created = await context.client.create(
        usage(
            unique,
            labels={COMPOSITE_LABEL: "xr"},
            of=side(f"{unique}-of"),
            by=side(f"{unique}-by"),
            replayDeletion=True,
        )
    )
    await until_condition(context.client, created, "Ready")
    await deleted(context, created)
    await until_condition(context.client, created, "Ready", "False", reason="WaitingUsingDeleted")
    with pytest.raises(REFUSED):
        await deleted(context, used)
    await deleted(context, using)
    await until_gone(context, created)
    await until_gone(context, used)


async def test_the_garbage_collector_does_not_take_what_is_in_use_and_takes_it_afterwards() -> None:
    async with guarded() as context:
        xr = await context.client.create(nop("xr"))
        owner = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": "xr", "uid": xr["metadata"]["uid"]}
        used = await context.client.create(nop("n", ownerReferences=[owner]))
        created = await context.client.create(usage("u", of=side("n"), reason="r", replayDeletion=True))
        await until_condition(context.client, created, "Ready")
        await deleted(context, xr)

        async def refused() -> bool:
            return attempt(await stored(context, used)) == "Background"

        await eventually(refused, "the collector was refused")
        assert await stored(context, used) is not None
        await deleted(context, created)
        await until_gone(context, used)


async def test_a_deletion_in_the_foreground_waits_for_what_is_in_use() -> None:
    async with guarded() as context:
        xr = await context.client.create(nop("xr"))
        owner = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": "xr", "uid": xr["metadata"]["uid"]}
        used = await context.client.create(nop("n", ownerReferences=[{**owner, "blockOwnerDeletion": True}]))
        created = await context.client.create(usage("u", of=side("n"), reason="r", replayDeletion=True))
        await until_condition(context.client, created, "Ready")
        await deleted(context, xr, Propagation.FOREGROUND)

        async def refused() -> bool:
            return attempt(await stored(context, used)) is not None

        await eventually(refused, "the collector was refused")
        assert await stored(context, used) is not None and await stored(context, xr) is not None
        await deleted(context, created)
        await until_gone(context, used)
        await until_gone(context, xr)


async def test_the_sequencer_composes_usages_as_they_were_called_before(
    context: ControllerContext, unique: str
) -> None:
    """With `usageVersion: v1`, as functions made for Crossplane 1 do."""
    async with a_platform(context, unique, scope="Cluster") as platform:
        kind = {"apiVersion": CLUSTER_NOP_RESOURCE.api_version, "kind": CLUSTER_NOP_RESOURCE.kind}
        parts: list[Object] = [{"_key": key, **kind, "spec": {"forProvider": {}}} for key in ("network", "server")]
        sequence = {
            "step": "sequence",
            "functionRef": {"name": "function-sequencer"},
            "input": {
                "apiVersion": "sequencer.fn.crossplane.io/v1beta1",
                "kind": "Input",
                "enableDeletionSequencing": True,
                "usageVersion": "v1",
                "rules": [{"sequence": ["network", "server"]}],
            },
        }
        await platform.compose(templates(*parts), sequence)
        xr = await platform.ready(await platform.create())

        async def marked() -> bool:
            composed = await platform.composed(xr, CLUSTER_NOP_RESOURCE)
            return "network" in composed and is_marked(composed["network"])

        await eventually(marked, "what the server needs is in use")
        [usage] = (await platform.composed(xr, LEGACY_USAGE)).values()
        assert usage["spec"]["by"]["kind"] == CLUSTER_NOP_RESOURCE.kind
        await context.client.delete(platform.kind, xr["metadata"]["name"])
        await platform.gone(xr)
