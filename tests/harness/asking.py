"""A real API server that asks our admission plugins, by the webhook that replicas serve, here in the test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from planform.api.kinds import Object
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.cluster.endpoint import Health
from planform.cluster.registration import MUTATING, NAME, VALIDATING
from planform.cluster.webhook import Surroundings, WebhookSettings, open_webhook
from planform.controllers.actions import PhaseFunctions
from planform.controllers.workbench import Workbench
from planform.errors import Invalid, NotFound
from tests.harness.kubernetes import RealKubernetes
from tests.harness.planes import eventually

_WRONG: Object = {
    "apiVersion": "apiextensions.crossplane.io/v1",
    "kind": "Composition",
    "metadata": {"name": "never-admitted"},
    "spec": {
        "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "App"},
        "mode": "Pipeline",
        "pipeline": [{"step": "a", "functionRef": {"name": "f"}, "timeout": "0s"}],
    },
}


@asynccontextmanager
async def asking_webhook(bench: Workbench, cluster: RealKubernetes) -> AsyncIterator[None]:
    """The webhook is asked from the beginning of the block to its end."""
    connection = find_connection(clock=bench.clock, path=cluster.kubeconfig)
    async with KubernetesClient(connection, clock=bench.clock, rng=bench.rng) as client:
        here = Surroundings(
            client=client,
            clock=bench.clock,
            rng=bench.rng,
            metrics=bench.metrics,
            health=Health(),
            phase_functions=PhaseFunctions(engine="kubernetes"),
        )

        async def asked() -> bool:
            try:
                await client.create(_WRONG, dry_run=True)
            except Invalid:
                return True
            return False

        try:
            async with open_webhook(WebhookSettings(host="127.0.0.1", port=0, namespace="default"), here):
                await eventually(asked, "the API server asks the webhook")
                yield
        finally:
            for kind in (VALIDATING, MUTATING):
                with suppress(NotFound):
                    await client.delete(kind, NAME)
