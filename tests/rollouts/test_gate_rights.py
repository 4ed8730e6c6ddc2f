"""With whose rights gates act: with those of the policy's author, whom the server records and nobody can forge."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from planform.api.authors import AUTHOR_ANNOTATION, author_of, authority_annotations
from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ROLLOUT, ROLLOUT_POLICY
from planform.client.rights import ClusterRights
from planform.clock import SystemClock
from planform.errors import Forbidden
from planform.rollouts.gates.measurements import Verdict
from planform.rollouts.gates.measuring import measure
from tests.harness.tenants import Tenants, obj, open_tenants, rule
from tests.rollouts.gating import ROLLOUT as PLAIN
from tests.rollouts.gating import facts, gate, site, tools

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

ENGINES = [
    pytest.param("embedded", marks=pytest.mark.xdist_group("gate-rights")),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]
SECRET = GroupVersionKind("", "v1", "Secret")
FORGED = '{"user":"root","groups":["system:masters"]}'


@pytest_asyncio.fixture(scope="module", params=ENGINES, loop_scope="module")
async def tenants(request: pytest.FixtureRequest) -> AsyncIterator[Tenants]:
    cluster = request.getfixturevalue("kubernetes_engine") if request.param == "kubernetes" else None
    async with open_tenants(cluster) as opened:
        await opened.grant("alice", rule("rollout.planform.dev", "rolloutpolicies", "rollouts"))
        yield opened


def policy(name: str) -> Object:
    made = obj(ROLLOUT_POLICY, name, spec={"for": {"compositions": {"names": [name]}}})
    made["metadata"]["annotations"] = {AUTHOR_ANNOTATION: FORGED}
    return made


async def test_who_writes_a_policy_is_recorded_whatever_they_say_and_nobody_writes_a_rollout(tenants: Tenants) -> None:
    name = tenants.name()
    author = author_of(await tenants.of("alice").create(policy(name)))
    assert author is not None
    assert author.user == tenants.user("alice").user
    assert "system:masters" not in author.groups
    change = {"composition": name, "to": f"{name}-b", "toNumber": 2}
    rollout = obj(ROLLOUT, name, spec={"changes": [change], "strategy": {}})
    rollout["metadata"]["annotations"] = {AUTHOR_ANNOTATION: FORGED}
    with pytest.raises(Forbidden, match="only the control plane makes Rollouts"):
        await tenants.of("alice").create(rollout)


async def test_a_gate_reads_a_secret_only_if_the_author_of_its_policy_may(tenants: Tenants) -> None:
    name = tenants.name()
    token = base64.b64encode(b"s3cr3t").decode()
    await tenants.admin.create(obj(SECRET, name, tenants.team, data={"token": token}))
    written = await tenants.of("alice").create(policy(name))
    annotations = authority_annotations(written)
    rollout: Any = {**PLAIN, "metadata": {**PLAIN["metadata"], "annotations": annotations}}
    on = tools(tenants.admin, SystemClock(), rights=ClusterRights(tenants.admin))
    async with site() as served:
        asked = gate(http={"url": served.url, "secretRef": {"namespace": tenants.team, "name": name}})
        refused = await measure(asked, facts(rollout=rollout), on)
        assert refused.verdict == Verdict.ERROR
        assert "rights of the policy's author" in refused.message
        assert not served.heard
        await tenants.grant("alice", rule("", "secrets"), namespace=tenants.team)
        found = await measure(asked, facts(rollout=rollout), on)
        assert found.verdict == Verdict.PASSED, found
        assert served.heard[-1][2]["Authorization"] == "Bearer s3cr3t"
