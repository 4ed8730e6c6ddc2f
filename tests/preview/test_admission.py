"""What the API server would refuse fails in the preview, in the server's words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from planform.api.kinds import GroupVersionKind, Object
from planform.client.protocol import Client
from planform.errors import PlanformError
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually
from tests.harness.webhook_server import webhook_server
from tests.preview.fleets import READY, config_map, patched, previews

GROUP = "admissionregistration.k8s.io"
POLICY, BINDING, WEBHOOKS = (
    GroupVersionKind(GROUP, "v1", kind)
    for kind in (
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    )
)
CONFIG_MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
RULE = {**CONFIG_MAPS, "operations": ["CREATE", "UPDATE"]}


def named(kind: GroupVersionKind, name: str, **content: object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **content}


@asynccontextmanager
async def present(client: Client, *objects: Object) -> AsyncIterator[None]:
    """These are there in the block, and in force: a cluster is shared, so that they must go again."""
    made: list[Object] = []
    try:
        for each in objects:
            made.append(await client.create(each))
        yield
    finally:
        for each in reversed(made):
            kind = GroupVersionKind(GROUP, "v1", each["kind"])
            await client.delete(kind, each["metadata"]["name"])


async def refused(client: Client, name: str, **data: str) -> None:
    """Wait until such a ConfigMap is refused."""
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}

    async def no() -> bool:
        try:
            await client.apply(obj, manager="probe", force=True, dry_run=True)
        except PlanformError as error:
            return "forbidden-here" in str(error)
        return False

    await eventually(no, "the rule is enforced")


async def test_what_a_policy_rejects_fails_in_its_words(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await asked.fleet(2)
        said = {
            "expression": f"!has(object.data) || !('forbidden' in object.data) || object.data.forbidden != '{unique}'",
            "message": f"{unique} is forbidden-here",
        }
        spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [said]}
        bound = {"policyName": unique, "validationActions": ["Deny"]}
        async with present(context.client, named(POLICY, unique, spec=spec), named(BINDING, unique, spec=bound)):
            await refused(context.client, unique, forbidden=unique)
            found = await asked.of(platform.composition(patched(config_map("web", {"forbidden": unique})), READY))
            assert found.classes.summary.failed == 2
            assert f"{unique} is forbidden-here" in found.entries[0].message
            [one] = found.classes.classes()
            assert (one.risk, one.changes[0].action, one.changes[0].resource) == ("Fails", "Fail", "web")
            allowed = await asked.of(platform.composition(patched(config_map("web", {"forbidden": "no"})), READY))
            assert allowed.classes.summary.changed == 2


async def test_what_a_webhook_rejects_fails_and_it_is_asked_about_dry_runs_alone(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    with webhook_server(tmp_path) as server:
        server.answers["/no"] = lambda _: {"allowed": False, "status": {"message": "forbidden-here"}}
        hook = {
            "name": f"{unique}.example.org",
            "clientConfig": server.client_config("/no"),
            "rules": [RULE],
            "sideEffects": "NoneOnDryRun",
            "admissionReviewVersions": ["v1"],
            "objectSelector": {"matchLabels": {"judged": unique}},  # nobody else's: the cluster is shared
        }
        async with previews(context, unique) as asked:
            platform = asked.platform
            await platform.compose(patched(config_map("web")), READY)
            await asked.fleet(1)
            judged = config_map("web")
            judged["base"]["metadata"] = {"labels": {"judged": unique}}
            async with present(context.client, named(WEBHOOKS, unique, webhooks=[hook])):

                async def rejects() -> bool:
                    found = await asked.of(platform.composition(patched(judged), READY))
                    return found.classes.summary.failed == 1 and "forbidden-here" in found.entries[0].message

                await eventually(rejects, "the webhook is asked")
                assert all(each["dryRun"] for each in server.asked("/no"))
