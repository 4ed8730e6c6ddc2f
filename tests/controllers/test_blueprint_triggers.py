"""ActionSets that nobody creates by hand: an Operation composes them, by the clock or for each change of an object."""

from __future__ import annotations

from datetime import UTC, datetime

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ACTION_SET, BLUEPRINT, CRON_OPERATION, OPERATION, WATCH_OPERATION
from planform.client.protocol import Client, Patch, PatchType
from planform.clock import VirtualClock
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import all_controllers, embedded_context, eventually, until_condition

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
NAMESPACE = GroupVersionKind("", "v1", "Namespace")
ALMOST_TWO = datetime(2026, 6, 1, 1, 59, 30, tzinfo=UTC)

# The name follows from what changed: an Operation that is tried again applies the same ActionSet again.
FOR_A_CHANGE = """
{{ $object := (index (getExtraResources . "ops.crossplane.io/watched-resource") 0).resource }}
apiVersion: cr.kanister.io/v1alpha1
kind: ActionSet
metadata:
  name: copy-{{ $object.metadata.name }}-{{ $object.data | toJson | sha256sum | trunc 8 }}
  namespace: {{ $object.metadata.namespace }}
  annotations: {gotemplating.fn.crossplane.io/composition-resource-name: run}
spec:
  actions:
    - name: copy
      blueprint: notes
      object:
        apiVersion: v1
        resource: configmaps
        name: {{ $object.metadata.name }}
        namespace: {{ $object.metadata.namespace }}
"""
BY_THE_CLOCK = """
apiVersion: cr.kanister.io/v1alpha1
kind: ActionSet
metadata:
  name: copy-{{ now | date "2006-01-02" }}
  namespace: default
  annotations: {gotemplating.fn.crossplane.io/composition-resource-name: run}
spec:
  actions:
    - name: copy
      blueprint: notes
      object: {apiVersion: v1, resource: configmaps, name: notes, namespace: default}
"""


def composing(template: str) -> Object:
    step = {
        "step": "compose",
        "functionRef": {"name": "function-go-templating"},
        "input": {
            "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
            "kind": "GoTemplate",
            "source": "Inline",
            "inline": {"template": template},
        },
    }
    return {"spec": {"mode": "Pipeline", "pipeline": [step]}}


def blueprint(namespace: str) -> Object:
    args = {"output": {"text": "{{ .Object.data.text }}"}}
    actions = {"copy": {"phases": [{"func": "Echo", "name": "read", "args": args}]}}
    metadata = {"name": "notes", "namespace": namespace}
    return {"apiVersion": BLUEPRINT.api_version, "kind": BLUEPRINT.kind, "metadata": metadata, "actions": actions}


def notes(namespace: str, text: str, **labels: str) -> Object:
    metadata = {"name": "notes", "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}


async def texts_copied(client: Client, namespace: str, count: int) -> list[str]:
    """What so many complete ActionSets read, the oldest first."""

    async def check() -> list[Object] | None:
        found = (await client.list(ACTION_SET, namespace=namespace)).items
        over = [each for each in found if (each.get("status") or {}).get("state") == "complete"]
        return over if len(over) >= count else None

    complete = await eventually(check, f"{count} ActionSets are complete")
    phases = [each["status"]["actions"][0]["phases"][0] for each in complete]
    assert {phase["funcVersion"] for phase in phases} == {"v0.0.0"}
    return sorted(phase["output"]["text"] for phase in phases)


async def test_each_change_of_a_watched_object_leads_to_an_actionset_on_it(
    context: ControllerContext, unique: str
) -> None:
    client = context.client
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    async with all_controllers(context):
        await client.create(blueprint(unique))
        await client.create(notes(unique, "first", watched=unique))
        watch = await client.create(
            {
                "apiVersion": WATCH_OPERATION.api_version,
                "kind": WATCH_OPERATION.kind,
                "metadata": {"name": unique},
                "spec": {
                    "watch": {"apiVersion": "v1", "kind": "ConfigMap", "matchLabels": {"watched": unique}},
                    "operationTemplate": composing(FOR_A_CHANGE),
                },
            }
        )
        await until_condition(client, watch, "Watching")
        assert await texts_copied(client, unique, 1) == ["first"]
        await client.patch(CONFIG_MAP, "notes", Patch(PatchType.MERGE, {"data": {"text": "second"}}), namespace=unique)
        assert await texts_copied(client, unique, 2) == ["first", "second"]
        await client.delete(WATCH_OPERATION, unique)
        await client.delete_collection(ACTION_SET, namespace=unique)
    await client.delete(NAMESPACE, unique)


async def test_an_actionset_is_made_when_the_clock_says_so_and_once() -> None:
    clock = VirtualClock(ALMOST_TWO)
    async with embedded_context(clock=clock) as context, all_controllers(context):
        client = context.client
        await client.create(blueprint("default"))
        await client.create(notes("default", "nightly"))
        cron = await client.create(
            {
                "apiVersion": CRON_OPERATION.api_version,
                "kind": CRON_OPERATION.kind,
                "metadata": {"name": "nightly"},
                "spec": {"schedule": "0 2 * * *", "operationTemplate": composing(BY_THE_CLOCK)},
            }
        )
        await until_condition(client, cron, "Scheduling")
        assert (await client.list(ACTION_SET)).items == []
        await clock.advance(60)
        assert await texts_copied(client, "default", 1) == ["nightly"]
        [made] = (await client.list(OPERATION)).items
        await until_condition(client, made, "Succeeded")
        assert len((await client.list(ACTION_SET)).items) == 1
