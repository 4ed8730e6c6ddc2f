"""Each effect is attributed to what causes it: the change, drift, or a function that answers differently each time."""

from __future__ import annotations

from planform.api.kinds import Object, gvk
from planform.api.names import CRD
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import CONFIG_MAP, python
from tests.harness.contexts import until_condition
from tests.preview.fleets import READY, actions, config_map, patched, previews, templated


async def test_attribution_of_a_field_that_changes_in_every_xr_is_one_class(
    context: ControllerContext, unique: str
) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await asked.fleet(3)
        found = await asked.of(platform.composition(patched(config_map("web", {"fixed": "2"})), READY))
        assert found.classes.summary.changed == 3, found
        [one] = found.classes.classes()
        assert one.xrs == 3
        assert one.change == 'ConfigMap "web": data.fixed  1 -> 2'
        assert one.risk == ""


async def test_attribution_of_the_same_composition_is_unchanged(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await asked.fleet(2)
        found = await asked.of(platform.composition(patched(config_map("web")), READY))
        assert (found.classes.summary.xrs, found.classes.summary.unchanged) == (2, 2)
        assert found.classes.classes() == []


async def test_attribution_of_creates_deletes_and_recreates(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        secret = {"name": "b", "base": {"apiVersion": "v1", "kind": "Secret"}, "readinessChecks": [{"type": "None"}]}
        await platform.compose(patched(config_map("a"), config_map("b"), config_map("c")), READY)
        await asked.fleet(1)
        found = await asked.of(platform.composition(patched(config_map("c"), secret, config_map("d")), READY))
        [one] = found.classes.classes()
        assert actions(one.changes) == {"a": "Delete", "b": "Recreate", "d": "Create"}
        assert next(each.forced_by for each in one.changes if each.resource == "b") == "kind"
        assert one.risk == "Deletes"
        summary = found.classes.summary
        assert (summary.changed, summary.creates, summary.deletes, summary.recreates) == (1, 1, 1, 1)
        [entry] = found.entries
        expected = {key: each["action"] for key, each in entry.expectation["resources"].items()}
        assert expected == {"a": "Delete", "b": "Recreate", "d": "Create"}


async def test_attribution_of_a_step_that_goes_whoever_wrote_the_composition(
    context: ControllerContext, unique: str
) -> None:
    more = templated(MORE, step="more")
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.client.create(platform.composition(patched(config_map("web")), more, READY))
        await platform.compose(patched(config_map("web")), more, READY)
        await asked.fleet(1)
        found = await asked.of(platform.composition(patched(config_map("web")), READY))
        [one] = found.classes.classes()
        assert actions(one.changes) == {"more": "Delete"}


async def test_attribution_of_a_field_that_an_applied_xr_no_longer_has(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        xr = platform.xr(spec={"size": "1", "note": "old"})
        await platform.client.apply(xr, manager="kubectl", force=True)
        await platform.ready(xr)
        found = await asked.of(platform.xr(spec={"size": "1"}))
        [one] = found.classes.classes()
        assert [(each.resource, [field.path for field in each.fields]) for each in one.changes] == [("", ["spec.note"])]


MORE = """
apiVersion: v1
kind: ConfigMap
metadata:
  annotations:
    gotemplating.fn.crossplane.io/composition-resource-name: more
    gotemplating.fn.crossplane.io/ready: "True"
"""


async def test_attribution_of_drift_is_never_the_change(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        [xr] = await asked.fleet(1)
        await platform.merge(xr, {"metadata": {"annotations": {"crossplane.io/paused": "true"}}})
        await platform.at_rest(xr)
        web = (await platform.composed(xr))["web"]
        await platform.edit(CONFIG_MAP, web, {"data": {"size": "drifted"}})
        found = await asked.of(platform.composition(patched(config_map("web", {"new": "1"})), READY))
        [one] = found.classes.classes()
        assert [each.path for each in one.changes[0].fields] == ["data.new"]
        [entry] = found.entries
        assert entry.drifting == ('ConfigMap "web": data.size',)
        assert found.classes.summary.drifting == 1
        assert any("paused" in each for each in entry.waits)
        # A paused XR does not go, and its XRD with it.
        await platform.merge(xr, {"metadata": {"annotations": {"crossplane.io/paused": None}}})


RANDOM = """
import uuid
def compose(req, rsp):
    rsp.desired.resources["web"].resource.update(
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"token": uuid.uuid4().hex, "fixed": "%s"}}
    )
    rsp.desired.resources["web"].ready = 1
"""


async def test_attribution_of_a_function_that_answers_differently_is_unstable(
    context: ControllerContext, unique: str
) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(python(RANDOM % "1"))
        await asked.fleet(1)
        found = await asked.of(platform.composition(python(RANDOM % "2")))
        [entry] = found.entries
        assert (entry.outcome, entry.message) == ("Changed", "")
        assert entry.unstable == ('ConfigMap "web": data.token',)
        assert entry.drifting == ()
        [one] = found.classes.classes()
        assert [(each.path, each.before, each.after) for each in one.changes[0].fields] == [("data.fixed", "1", "2")]
        assert entry.expectation["resources"]["web"]["unknown"] == ["data.token"]
        summary = found.classes.summary
        assert (summary.changed, summary.unstable, summary.drifting) == (1, 1, 0)


async def test_attribution_of_failing_and_mended_xrs(context: ControllerContext, unique: str) -> None:
    broken = templated("{{ fail `no such thing` }}")
    async with previews(context, unique) as asked:
        platform = asked.platform
        good = (patched(config_map("web")), READY)
        await platform.compose(*good)
        [xr] = await asked.fleet(1)
        found = await asked.of(platform.composition(broken, READY))
        assert found.classes.summary.failed == 1
        assert "no such thing" in found.entries[0].message
        assert found.classes.classes()[0].risk == "Fails"
        await platform.compose(broken, READY)
        await platform.failed(xr, "no such thing")
        found = await asked.of(platform.composition(*good))
        assert found.classes.summary.mended == 1
        found = await asked.of(platform.composition(broken, READY, templated("", step="more")))
        assert found.classes.summary.unchanged == 1
        assert "with the change and without" in found.entries[0].message


async def test_attribution_of_an_immutable_field_is_a_recreation(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await serve_disks(platform.client, platform.group)

        def disk(zone: str) -> Object:
            base = {"apiVersion": f"{platform.group}/v1", "kind": "Disk", "spec": {"zone": zone}}
            return {"name": "disk", "base": base, "readinessChecks": [{"type": "None"}]}

        await platform.compose(patched(disk("a")), READY)
        await asked.fleet(2)
        found = await asked.of(platform.composition(patched(disk("b")), READY))
        assert found.classes.summary.recreates == 2
        [one] = found.classes.classes()
        assert one.risk == "Recreates"
        assert one.changes[0].forced_by == "spec.zone"
        refused = await asked.of(platform.composition(patched(disk("not-a-zone")), READY))
        assert refused.classes.summary.failed == 2
        assert "zones have one letter" in refused.entries[0].message


async def serve_disks(client: object, group: str) -> None:
    rules = [
        {"rule": "self == oldSelf", "message": "zone is immutable"},
    ]
    zone = {"type": "string", "x-kubernetes-validations": rules}
    spec = {
        "type": "object",
        "properties": {"zone": zone},
        "x-kubernetes-validations": [{"rule": "size(self.zone) == 1", "message": "zones have one letter"}],
    }
    crd = {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"disks.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Disk", "plural": "disks", "singular": "disk", "listKind": "DiskList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        },
    }
    await client.create(crd)  # type: ignore[attr-defined]
    await until_condition(client, crd, "Established")  # type: ignore[arg-type]


async def test_attribution_leaves_pinned_and_deleted_xrs_out(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        [follower] = await asked.fleet(1)
        pinned = await platform.create("pinned", spec={"size": "9"}, compositionUpdatePolicy="Manual")
        await platform.ready(pinned)
        going = await platform.create("going", spec={"size": "9"})
        await platform.ready(going)
        await platform.merge(going, {"metadata": {"finalizers": ["example.org/stays"]}})
        await platform.client.delete(platform.kind, going["metadata"]["name"], namespace=platform.namespace)
        candidate = platform.composition(patched(config_map("web", {"fixed": "2"})), READY)
        found = await asked.of(candidate)
        assert (found.classes.summary.xrs, found.classes.summary.pinned) == (1, 1)
        assert [each.name for each in found.entries] == [follower["metadata"]["name"]]
        both = await asked.of(candidate, scope={"includeManual": True})
        assert both.classes.summary.changed == 2
        await platform.merge(await platform.get(going), {"metadata": {"finalizers": None}})


async def test_attribution_of_an_xr_of_another_composition_is_none(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY, labels={"tier": "a"})
        await platform.compose(patched(config_map("web")), READY, name=f"{unique}-other", labels={"tier": "b"})
        mine = await platform.create("a", spec={"size": "1"}, compositionSelector={"matchLabels": {"tier": "a"}})
        other = await platform.create("b", spec={"size": "1"}, compositionSelector={"matchLabels": {"tier": "b"}})
        for xr in (mine, other):
            await platform.ready(xr)
        changed = platform.composition(patched(config_map("web", {"fixed": "2"})), READY, labels={"tier": "a"})
        found = await asked.of(changed)
        assert [each.name for each in found.entries] == [mine["metadata"]["name"]]


async def test_attribution_of_an_environment_config_reaches_those_who_read_it(
    context: ControllerContext, unique: str
) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform

        def environment(color: str) -> Object:
            return {
                "apiVersion": "apiextensions.crossplane.io/v1beta1",
                "kind": "EnvironmentConfig",
                "metadata": {"name": f"{unique}-colors"},
                "data": {"color": color},
            }

        await platform.client.create(environment("red"))
        load = {
            "step": "environment",
            "functionRef": {"name": "function-environment-configs"},
            "input": {
                "apiVersion": "environmentconfigs.fn.crossplane.io/v1beta1",
                "kind": "Input",
                "spec": {"environmentConfigs": [{"type": "Reference", "ref": {"name": f"{unique}-colors"}}]},
            },
        }
        web = config_map("web")
        web["patches"].append(
            {"type": "FromEnvironmentFieldPath", "fromFieldPath": "color", "toFieldPath": "data.color"}
        )
        await platform.compose(load, patched(web), READY)
        await asked.fleet(2)
        found = await asked.of(environment("blue"))
        [one] = found.classes.classes()
        assert (one.xrs, one.change) == (2, 'ConfigMap "web": data.color  red -> blue')
        live = await platform.client.get(
            gvk("apiextensions.crossplane.io/v1beta1", "EnvironmentConfig"), f"{unique}-colors"
        )
        assert live["data"] == {"color": "red"}


async def test_attribution_of_an_xrs_own_spec(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        [xr] = await asked.fleet(1)
        found = await asked.of(platform.xr("x0", spec={"size": "77"}))
        [one] = found.classes.classes()
        assert actions(one.changes) == {"": "Update", "web": "Update"}
        assert (await platform.get(xr))["spec"]["size"] == "0"
        new = await asked.of(platform.xr("brand-new", spec={"size": "1"}))
        assert actions(new.classes.classes()[0].changes) == {"": "Create", "web": "Create"}


async def test_attribution_of_deleted_manifests(context: ControllerContext, unique: str) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await asked.fleet(1)
        name = f"{unique}-apps"
        gone = {"apiVersion": "apiextensions.crossplane.io/v1", "kind": "Composition", "name": name}
        found = await asked.of(deleted=[gone])
        assert found.classes.summary.failed == 1
        xrd = {"apiVersion": "apiextensions.crossplane.io/v2", "kind": "CompositeResourceDefinition"}
        found = await asked.of(deleted=[{**xrd, "name": f"apps.{platform.group}"}])
        assert actions(found.classes.classes()[0].changes) == {"": "Delete", "web": "Delete"}


async def test_attribution_of_a_status_field_that_no_schema_has_is_a_failure(
    context: ControllerContext, unique: str
) -> None:
    async with previews(context, unique) as asked:
        platform = asked.platform
        await platform.compose(patched(config_map("web")), READY)
        await asked.fleet(1)
        web = config_map("web")
        web["patches"].append(
            {"type": "ToCompositeFieldPath", "fromFieldPath": "data.size", "toFieldPath": "status.typo"}
        )
        found = await asked.of(platform.composition(patched(web), READY))
        assert found.classes.summary.failed == 1
        assert "typo" in found.entries[0].message
