"""What people may not do: a table of attempts by identities with stated rights, each with the refusal that it meets.

Everybody asks over the wire. An attempt counts as refused if the server says no at once, or if the object that was to
do it says that it may not; and in either case what was wanted is not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from planform.api.authors import AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION, Author
from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.names import (
    ACTION_SET,
    BLUEPRINT,
    COMPOSITION,
    COMPOSITION_REVISION,
    CONFIGURATION,
    CRON_OPERATION,
    ENVIRONMENT_CONFIG,
    FUNCTION,
    IMAGE_CONFIG,
    OPERATION,
    PREVIEW,
    PREVIEW_LABEL,
    PREVIEW_REPORT,
    PROFILE,
    PROVIDER,
    RUNTIME_CONFIG,
    USAGE,
    WATCH_OPERATION,
)
from planform.client.protocol import Patch, PatchType
from planform.client.rights import impersonation_headers
from planform.errors import Forbidden
from tests.harness.contexts import eventually
from tests.harness.tenants import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    NAMESPACE,
    RBAC,
    SECRET,
    Tenants,
    obj,
    open_tenants,
    rule,
    said,
    to_cluster_admin,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

ENGINES = [
    pytest.param("embedded", marks=pytest.mark.xdist_group("tenancy")),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]
ROLE, ROLE_BINDING, CLUSTER_ROLE = (
    GroupVersionKind(RBAC, "v1", kind) for kind in ("Role", "RoleBinding", "ClusterRole")
)
FORGED = json.dumps({"user": "root", "groups": ["system:masters"]})
ADMINISTRATOR = {AUTHOR_ANNOTATION: FORGED}


@pytest_asyncio.fixture(scope="module", params=ENGINES, loop_scope="module")
async def tenants(request: pytest.FixtureRequest) -> AsyncIterator[Tenants]:
    cluster = request.getfixturevalue("kubernetes_engine") if request.param == "kubernetes" else None
    async with open_tenants(cluster) as tenants:
        team = tenants.team
        xrs = rule(tenants.app.group, "apps", "sites")
        await tenants.grant("xr-user", xrs, namespace=team)
        await tenants.grant("composer", rule("apiextensions.crossplane.io", "compositions"))
        await tenants.grant("composer", xrs, namespace=team)
        await tenants.grant("runner", rule("cr.kanister.io", "actionsets", "blueprints", "profiles"), namespace=team)
        await tenants.grant("runner", rule("", "configmaps", verbs=["get"]), namespace=team)
        await tenants.grant("operator", rule("ops.crossplane.io", "operations", "cronoperations", "watchoperations"))
        await tenants.grant("installer", rule("pkg.crossplane.io", "functions"))
        await tenants.grant("holder", rule("protection.crossplane.io", "usages"), namespace=team)
        seen = ["get", "list", "watch"]
        await tenants.grant("viewer", rule(tenants.app.group, "apps", verbs=seen), namespace=team)
        await tenants.grant("viewer", rule("cr.kanister.io", "actionsets", "blueprints", verbs=seen), namespace=team)
        await tenants.grant("viewer", rule("apiextensions.crossplane.io", "compositions", verbs=seen))
        # They may preview; what a preview is about is another matter.
        await tenants.grant("previewer", rule("rollout.planform.dev", "previews"))
        await tenants.grant("previewing-composer", rule("rollout.planform.dev", "previews"))
        await tenants.grant("previewing-composer", rule("apiextensions.crossplane.io", "compositions"))
        await tenants.grant("previewing-composer", xrs, namespace=team)
        await tenants.grant("previewing-lister", rule("rollout.planform.dev", "previews"))
        await tenants.grant("previewing-lister", rule("apiextensions.crossplane.io", "compositions"))
        await tenants.grant("previewing-lister", rule(tenants.app.group, "apps", "sites", verbs=seen))
        for role in ("view", "edit", "admin"):
            await tenants.admin.create(
                obj(
                    CLUSTER_ROLE_BINDING,
                    tenants.name(role),
                    roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                    subjects=[{"apiGroup": RBAC, "kind": "User", "name": tenants.user(f"by-role-{role}").user}],
                )
            )
        await tenants.service_account("platform", rule("", "secrets"), where=tenants.vault)
        account = {"annotations": {SERVICE_ACCOUNT_ANNOTATION: "platform"}}
        phases = [kube_ops(obj(SECRET, "by-the-platform", tenants.vault))]
        actions = {"act": {"phases": phases}}
        await tenants.admin.create(obj(BLUEPRINT, "platforms", team, actions=actions, metadata=account))
        yield tenants


class Attempt(NamedTuple):
    """`does` raises Forbidden with the words expected, or fails itself if it was let."""

    who: str
    what: str
    does: Callable[[Tenants, str], Awaitable[None]]
    refusal: str
    engines: tuple[str, ...] = ("embedded", "kubernetes")


# -- ways to try


def creating(make: Callable[[Tenants], Object]) -> Callable[[Tenants, str], Awaitable[None]]:
    async def does(tenants: Tenants, who: str) -> None:
        await tenants.of(who).create(make(tenants))

    return does


def patching(
    kind: GroupVersionKind, name: str, body: Object, space: str = "team"
) -> Callable[[Tenants, str], Awaitable[None]]:
    async def does(tenants: Tenants, who: str) -> None:
        place = getattr(tenants, space) if space else ""
        await tenants.of(who).patch(kind, name, Patch(PatchType.MERGE, body), namespace=place)

    return does


def reading(kind: GroupVersionKind, name: str, space: str) -> Callable[[Tenants, str], Awaitable[None]]:
    async def does(tenants: Tenants, who: str) -> None:
        await tenants.of(who).get(kind, name, namespace=getattr(tenants, space))

    return does


def listing(kind: GroupVersionKind, space: str = "") -> Callable[[Tenants, str], Awaitable[None]]:
    async def does(tenants: Tenants, who: str) -> None:
        await tenants.of(who).list(kind, namespace=getattr(tenants, space) if space else "")

    return does


def watching(kind: GroupVersionKind, space: str) -> Callable[[Tenants, str], Awaitable[None]]:
    async def does(tenants: Tenants, who: str) -> None:
        async with tenants.of(who).watch(kind, namespace=getattr(tenants, space), timeout=1) as events:
            async for _ in events:
                return

    return does


def deleting(kind: GroupVersionKind, name: str, space: str) -> Callable[[Tenants, str], Awaitable[None]]:
    async def does(tenants: Tenants, who: str) -> None:
        await tenants.of(who).delete(kind, name, namespace=getattr(tenants, space))

    return does


def being(author: Author) -> Callable[[Tenants, str], Awaitable[None]]:
    """Ask with somebody else's name, by headers of one's own."""

    async def does(tenants: Tenants, who: str) -> None:
        # We are the admin on the wire and already impersonate `who`: ask the server what `who` may impersonate.
        from planform.client.rights import Access, review

        kind, name = ("groups", author.groups[0]) if author.groups else ("users", author.user)
        assert impersonation_headers(Author("x"))
        if not await review(tenants.admin, tenants.user(who), Access("impersonate", "", kind, "", name)):
            raise Forbidden(f"cannot impersonate {kind}")

    return does


def composing(
    make: Callable[[Tenants], Object], annotations: Object | None = None
) -> Callable[[Tenants, str], Awaitable[None]]:
    """A Composition that composes it, and an XR."""

    async def does(tenants: Tenants, who: str) -> None:
        wanted = make(tenants)
        xr = await tenants.compose(who, wanted, annotations=annotations)
        assert not await tenants.exists(wanted), f"composed: {said(xr)}"
        raise Forbidden(said(xr))

    return does


def running(*phases: Callable[[Tenants], Object], **more: Any) -> Callable[[Tenants, str], Awaitable[None]]:
    """An ActionSet of these phases; what one of them creates must not be there."""

    async def does(tenants: Tenants, who: str) -> None:
        made = [phase(tenants) for phase in phases]
        request = {key: value(tenants) for key, value in more.get("request", {}).items()}
        ended = await tenants.run(who, *made, request=request, annotations=more.get("annotations"))
        assert ended["status"]["state"] == "failed", said(ended)
        assert "c2VjcmV0" not in said(ended) and "jewels" not in said(ended)
        for phase in made:
            wanted = (phase.get("args") or {}).get("spec")
            if isinstance(wanted, dict) and phase["args"]["operation"] == "create":
                assert not await tenants.exists(wanted)
        raise Forbidden(said(ended))

    return does


def operating(make: Callable[[Tenants], Object]) -> Callable[[Tenants, str], Awaitable[None]]:
    async def does(tenants: Tenants, who: str) -> None:
        wanted = make(tenants)
        made = await tenants.of(who).create(obj(OPERATION, tenants.name(), spec={**wanting(wanted), "retryLimit": 1}))

        async def over() -> Object | None:
            found = await tenants.admin.get(OPERATION, made["metadata"]["name"])
            conditions = (found.get("status") or {}).get("conditions") or ()
            done = [each for each in conditions if each["type"] == "Succeeded" and each["status"] != "Unknown"]
            return found if done else None

        ended = await eventually(over, "the Operation's end")
        assert not await tenants.exists(wanted), said(ended)
        raise Forbidden(said(ended))

    return does


def previewing(
    make: Callable[[Tenants], Object], **spec: Callable[[Tenants], Any]
) -> Callable[[Tenants, str], Awaitable[None]]:
    """A Preview of a manifest, to its end: it must have failed, and say nothing of what it is about."""

    async def does(tenants: Tenants, who: str) -> None:
        more = {key: value(tenants) for key, value in spec.items()}
        wanted = obj(PREVIEW, tenants.name(), spec={"change": {"manifests": [make(tenants)]}, **more})
        ended = await preview_ended(tenants, await tenants.of(who).create(wanted))
        assert ended["status"]["phase"] == "Failed", said(ended)
        assert not ended["status"].get("classes") and not ended["status"].get("summary"), said(ended)
        reports = (await tenants.admin.list(PREVIEW_REPORT)).items
        assert not [each for each in reports if wanted["metadata"]["name"] in str(each["metadata"].get("labels"))]
        raise Forbidden(said(ended))

    return does


async def preview_ended(tenants: Tenants, made: Object) -> Object:
    async def over() -> Object | None:
        found = await tenants.admin.get(PREVIEW, made["metadata"]["name"])
        return found if (found.get("status") or {}).get("phase") in ("Complete", "Failed") else None

    return await eventually(over, "the Preview's end", seconds=30)


async def previewing_with_a_stolen_secret(tenants: Tenants, who: str) -> None:
    """A candidate's step is given a Secret that no live revision is given."""
    live = await tenants.admin.create(tenants.composition(obj(CONFIG_MAP, tenants.name(), tenants.team)))
    await tenants.settled(await tenants.admin.create(tenants.xr(live)))
    credentials = {"name": "c", "source": "Secret", "secretRef": {"name": "crown", "namespace": tenants.vault}}
    greedy = {key: value for key, value in live.items() if key in ("apiVersion", "kind", "spec")}
    [step] = greedy["spec"]["pipeline"]
    greedy["spec"] = {**greedy["spec"], "pipeline": [{**step, "credentials": [credentials]}]}
    greedy["metadata"] = {"name": live["metadata"]["name"]}
    wanted = obj(PREVIEW, tenants.name(), spec={"change": {"manifests": [greedy]}})
    ended = await preview_ended(tenants, await tenants.of(who).create(wanted))
    assert ended["status"]["summary"]["changed"] == 0, said(ended)
    labels = f"{PREVIEW_LABEL}={wanted['metadata']['name']}"
    reports = (await tenants.admin.list(PREVIEW_REPORT, labels=labels)).items
    assert "c2VjcmV0" not in str(reports)
    raise Forbidden(str([each["message"] for report in reports for each in report["spec"]["xrs"]]))


async def forging_the_author_of_a_preview(tenants: Tenants, who: str) -> None:
    wanted = obj(PREVIEW, tenants.name(), spec={"change": {"manifests": [binding(tenants)]}})
    wanted["metadata"]["annotations"] = ADMINISTRATOR
    ended = await preview_ended(tenants, await tenants.of(who).create(wanted))
    assert ended["status"]["phase"] == "Failed", said(ended)
    raise Forbidden(said(ended))


# -- what is tried


def kube_ops(wanted: Object) -> Object:
    return {"name": "make", "func": "KubeOps", "args": {"operation": "create", "spec": wanted}}


def referring(operation: str, version: str = "", **more: Any) -> Callable[[Tenants], Object]:
    """A phase that does something to the crown's Secret."""

    def phase(tenants: Tenants) -> Object:
        reference = {
            "apiVersion": "v1",
            "group": "",
            "resource": "secrets",
            "name": "crown",
            "namespace": tenants.vault,
        }
        args = {"operation": operation, "objectReference": reference, **more}
        made: Object = {"name": "touch", "func": "KubeOps", "args": args}
        return {**made, "funcVersion": version} if version else made

    return phase


def wanting(*objects: Object) -> Object:
    text = f"OBJECTS = {list(objects)!r}\ndef main(req):\n"
    text += "    found = {str(i): {'resource': OBJECTS[i]} for i in range(len(OBJECTS))}\n"
    text += "    return {'desired': {'resources': found}}\n"
    script = {"apiVersion": "starlark.fn.planform.dev/v1", "kind": "StarlarkScript", "script": text}
    return {
        "mode": "Pipeline",
        "pipeline": [{"step": "s", "functionRef": {"name": "function-starlark"}, "input": script}],
    }


def binding(tenants: Tenants) -> Object:
    return to_cluster_admin("mallory", tenants.name())


def adopted_binding(tenants: Tenants) -> Object:
    return {**binding(tenants), "metadata": {"name": tenants.name(), "annotations": {"planform.dev/adopt": "true"}}}


def team_binding(tenants: Tenants) -> Object:
    return obj(
        ROLE_BINDING,
        tenants.name(),
        tenants.team,
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        subjects=[{"apiGroup": RBAC, "kind": "User", "name": "mallory"}],
    )


def team_role(tenants: Tenants) -> Object:
    return obj(ROLE, tenants.name(), tenants.team, rules=[rule("", "secrets", verbs=["get"])])


def cluster_role(tenants: Tenants) -> Object:
    return obj(CLUSTER_ROLE, tenants.name(), rules=[{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])


def aggregated(tenants: Tenants) -> Object:
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    rules = [rule("", "secrets", verbs=["get"])]
    return obj(CLUSTER_ROLE, tenants.name(), rules=rules, metadata={"labels": labels})


def webhook(kind: str) -> Callable[[Tenants], Object]:
    return lambda tenants: obj(
        GroupVersionKind("admissionregistration.k8s.io", "v1", kind), tenants.name(), webhooks=[]
    )


def policy(tenants: Tenants) -> Object:
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["none.example.org"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["x"]}
            ]
        },
        "validations": [{"expression": "false"}],
    }
    kind = GroupVersionKind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy")
    return obj(kind, tenants.name(), spec=spec)


def action_set(tenants: Tenants, **metadata: Any) -> Object:
    action = {"name": "act", "blueprint": "none", "object": target(tenants)}
    return obj(ACTION_SET, tenants.name(), tenants.team, spec={"actions": [action]}, metadata=metadata)


def pretending(tenants: Tenants) -> Object:
    """An ActionSet that says of itself that it runs, and what."""
    made = action_set(tenants)
    return {**made, "status": {"state": "running", "runner": "x", "actions": [{"name": "act", "phases": []}]}}


def target(tenants: Tenants, space: str = "") -> Object:
    where = space or tenants.team
    return {"apiVersion": "v1", "resource": "configmaps", "name": "target", "namespace": where}


def blueprint(tenants: Tenants, **metadata: Any) -> Object:
    actions = {"act": {"phases": [kube_ops(binding(tenants))]}}
    return obj(BLUEPRINT, tenants.name(), tenants.team, actions=actions, metadata=metadata)


def operation(tenants: Tenants) -> Object:
    return obj(OPERATION, tenants.name(), spec=wanting(binding(tenants)))


def cron_operation(tenants: Tenants) -> Object:
    template = {"spec": wanting(binding(tenants))}
    return obj(CRON_OPERATION, tenants.name(), spec={"schedule": "* * * * *", "operationTemplate": template})


def watch_operation(tenants: Tenants) -> Object:
    template = {"spec": wanting(binding(tenants))}
    watch = {"apiVersion": "v1", "kind": "Secret"}
    return obj(WATCH_OPERATION, tenants.name(), spec={"watch": watch, "operationTemplate": template})


def package(kind: GroupVersionKind) -> Callable[[Tenants], Object]:
    return lambda tenants: obj(kind, tenants.name(), spec={"package": "example.org/mallory/p:v1"})


def preview_of_nothing(tenants: Tenants) -> Object:
    return obj(PREVIEW, tenants.name(), spec={"change": {"manifests": [composition(tenants)]}})


def composition(tenants: Tenants) -> Object:
    return tenants.composition(binding(tenants))


def naming(make: Callable[[Tenants], Object], account: str) -> Callable[[Tenants], Object]:
    """The object, with a ServiceAccount named."""

    def made(tenants: Tenants) -> Object:
        wanted = make(tenants)
        named = account.replace("TEAM", tenants.team).replace("VAULT", tenants.vault)
        annotations = {**(wanted["metadata"].get("annotations") or {}), SERVICE_ACCOUNT_ANNOTATION: named}
        return {**wanted, "metadata": {**wanted["metadata"], "annotations": annotations}}

    return made


def revision(tenants: Tenants) -> Object:
    spec = {**tenants.composition(binding(tenants))["spec"], "revision": 99}
    return obj(COMPOSITION_REVISION, tenants.name(), spec=spec)


def xr_in(space: str) -> Callable[[Tenants], Object]:
    return lambda tenants: obj(tenants.app, tenants.name(), getattr(tenants, space), spec={})


def secret_in(space: str) -> Callable[[Tenants], Object]:
    return lambda tenants: obj(SECRET, tenants.name(), getattr(tenants, space), data={"a": "Yg=="})


def usage_in_vault(tenants: Tenants) -> Object:
    of = {"apiVersion": "v1", "kind": "Secret", "resourceRef": {"name": "crown"}}
    return obj(USAGE, tenants.name(), tenants.vault, spec={"of": of, "reason": "mine"})


def usage_of_vault(tenants: Tenants) -> Object:
    """A Usage at home that holds what is elsewhere, for a user that is at home, too."""
    of = {"apiVersion": "v1", "kind": "Secret", "resourceRef": {"name": "crown", "namespace": tenants.vault}}
    by = {"apiVersion": "v1", "kind": "ConfigMap", "resourceRef": {"name": "target"}}
    return obj(USAGE, tenants.name(), tenants.team, spec={"of": of, "by": by})


def usage_of_a_choice_in_vault(tenants: Tenants) -> Object:
    made = usage_of_vault(tenants)
    made["spec"]["of"] = {"apiVersion": "v1", "kind": "Secret"}
    made["spec"]["of"]["resourceSelector"] = {"matchLabels": {"a": "b"}, "namespace": tenants.vault}
    return made


async def by_a_usage_that_was_at_home(tenants: Tenants, who: str) -> None:
    elsewhere = usage_of_vault(tenants)
    harmless = usage_of_vault(tenants)
    harmless["spec"]["of"]["resourceRef"] = {"name": "none"}
    made = await tenants.of(who).create(harmless)
    await tenants.of(who).patch(
        USAGE, made["metadata"]["name"], Patch(PatchType.MERGE, {"spec": elsewhere["spec"]}), namespace=tenants.team
    )


def profile_of_vault(tenants: Tenants) -> Object:
    reference = {"name": "crown", "namespace": tenants.vault}
    return obj(
        PROFILE,
        "greedy",
        tenants.team,
        location={"type": "s3Compliant", "bucket": "b", "endpoint": "http://127.0.0.1:1"},
        credential={
            "type": "keyPair",
            "keyPair": {"idField": "jewels", "secretField": "jewels", "secret": reference},
        },
    )


async def with_greedy_profile(tenants: Tenants, who: str) -> None:
    """The profile is the runner's own; the Secret that it names is not."""
    await tenants.of(who).create(profile_of_vault(tenants))
    where = {"name": "greedy", "namespace": tenants.team}
    await running(lambda t: kube_ops(secret_in("team")(t)), request={"profile": lambda t: where})(tenants, who)


async def with_foreign_profile(tenants: Tenants, who: str) -> None:
    where = {"name": "theirs", "namespace": tenants.vault}
    await running(lambda t: kube_ops(secret_in("team")(t)), request={"profile": lambda t: where})(tenants, who)


async def of_objects(tenants: Tenants, who: str) -> None:
    crown = {"kind": "Secret", "name": "crown", "namespace": tenants.vault}
    phase = {**kube_ops(secret_in("team")(tenants)), "objects": {"crown": crown}}
    await running(lambda t: phase)(tenants, who)


async def in_a_defer_phase(tenants: Tenants, who: str) -> None:
    wanted, name = binding(tenants), tenants.name("blueprint")
    look: Object = {"name": "look", "func": "KubeOps", "funcVersion": "v0.1.0"}
    look["args"] = {"operation": "get", "objectReference": {**target(tenants), "group": ""}}
    actions = {"act": {"phases": [look], "deferPhase": kube_ops(wanted)}}
    await tenants.of(who).create(obj(BLUEPRINT, name, tenants.team, actions=actions))
    ended = await tenants.run_blueprint(who, name)
    assert ended["status"]["state"] == "failed" and not await tenants.exists(wanted)
    raise Forbidden(said(ended))


async def of_the_platforms_blueprint(tenants: Tenants, who: str) -> None:
    ended = await tenants.run_blueprint(who, "platforms")
    assert ended["status"]["state"] == "failed", said(ended)
    assert not await tenants.exists(obj(SECRET, "by-the-platform", tenants.vault))
    raise Forbidden(said(ended))


async def in_an_administrators_composition(tenants: Tenants, who: str) -> None:
    """Who changes it is its author from then on."""
    theirs = await tenants.admin.create(tenants.composition(obj(CONFIG_MAP, tenants.name(), tenants.team)))
    await tenants.revision_of(theirs)  # or what is changed at once has one revision alone, the changer's
    wanted = binding(tenants)
    greedy = tenants.composition(wanted)
    body = {"spec": {"pipeline": greedy["spec"]["pipeline"]}}
    name = theirs["metadata"]["name"]
    await tenants.of(who).patch(COMPOSITION, name, Patch(PatchType.MERGE, body))
    edited = await tenants.admin.get(COMPOSITION, name)
    assert tenants.user(who).user in edited["metadata"]["annotations"][AUTHOR_ANNOTATION]

    async def followed() -> Object | None:
        found = await tenants.revision_of(theirs)
        return found if found["spec"]["revision"] > 1 else None

    made = await eventually(followed, "a revision of what was changed")
    assert tenants.user(who).user in made["metadata"]["annotations"][AUTHOR_ANNOTATION]
    raise Forbidden("the revision is the changer's own")


async def in_a_composition_that_names_an_account(tenants: Tenants, who: str) -> None:
    theirs = naming(lambda t: t.composition(obj(CONFIG_MAP, t.name(), t.team)), "TEAM/platform")(tenants)
    made = await tenants.admin.create(theirs)
    body = {"spec": {"pipeline": composition(tenants)["spec"]["pipeline"]}}
    await tenants.of(who).patch(COMPOSITION, made["metadata"]["name"], Patch(PatchType.MERGE, body))


def command(text: str) -> Callable[[Tenants], Object]:
    """A task that fails unless it finds what it looks for."""
    return lambda tenants: {
        "name": "task",
        "func": "KubeTask",
        "funcVersion": "v0.1.0",
        "args": {"runtime": "process", "command": ["sh", "-c", text]},
    }


def inside_a_function(expression: str) -> Callable[[Tenants, str], Awaitable[None]]:
    """Inline Python of a Composition that tries something and tells what came of it."""

    async def does(tenants: Tenants, _: str) -> None:
        text = (
            "def compose(req, rsp):\n"
            "    import os, socket, signal\n"
            "    try:\n"
            f"        found = repr({expression})\n"
            "    except BaseException as error:\n"
            "        found = 'refused: ' + repr(error)\n"
            "    rsp.desired.composite.resource.update({'status': {'found': found}})\n"
        )
        script = {"apiVersion": "python.fn.crossplane.io/v1beta1", "kind": "Script", "script": text}
        made = tenants.composition()
        made["spec"]["pipeline"] = [{"step": "s", "functionRef": {"name": "function-python"}, "input": script}]
        made["spec"]["compositeTypeRef"]["kind"] = "App"
        xr = await tenants.admin.create(tenants.xr(await tenants.admin.create(made)))

        async def told() -> str:
            found = await tenants.admin.get(tenants.app, xr["metadata"]["name"], namespace=tenants.team)
            return str((found.get("status") or {}).get("found") or "")

        raise Forbidden(await eventually(told, "what the function found"))

    return does


EMBEDDED = ("embedded",)
CANNOT = r"(?i)cannot|forbidden"
FILES_IN_HOME = "find /root -maxdepth 1 -type f | grep -q ."
"""Files, since an interpreter that is installed there may be seen."""

ATTEMPTS = [
    # Who may create XRs in one namespace, and nothing else.
    Attempt("xr-user", "reads a Secret elsewhere", reading(SECRET, "crown", "vault"), CANNOT),
    Attempt("xr-user", "lists Secrets at home", listing(SECRET, "team"), CANNOT),
    Attempt("xr-user", "lists Secrets everywhere", listing(SECRET), CANNOT),
    Attempt("xr-user", "writes a Secret at home", creating(secret_in("team")), CANNOT),
    Attempt("xr-user", "creates an XR elsewhere", creating(xr_in("vault")), CANNOT),
    Attempt("xr-user", "writes a Composition", creating(composition), CANNOT),
    Attempt("xr-user", "writes a revision", creating(revision), CANNOT),
    Attempt("xr-user", "writes a Blueprint", creating(blueprint), CANNOT),
    Attempt("xr-user", "runs an ActionSet", creating(action_set), CANNOT),
    Attempt("xr-user", "runs an Operation", creating(operation), CANNOT),
    Attempt("xr-user", "schedules Operations", creating(cron_operation), CANNOT),
    Attempt("xr-user", "installs a Function", creating(package(FUNCTION)), CANNOT),
    Attempt("xr-user", "binds cluster-admin", creating(binding), CANNOT),
    Attempt("xr-user", "holds what is elsewhere", creating(usage_in_vault), CANNOT),
    Attempt(
        "xr-user",
        "writes what functions read",
        creating(lambda t: obj(ENVIRONMENT_CONFIG, t.name(), data={"a": "b"})),
        CANNOT,
    ),
    Attempt("xr-user", "is a group of administrators", being(Author("x", groups=("system:masters",))), CANNOT),
    Attempt("xr-user", "is somebody else", being(Author("root")), CANNOT),
    # Who may write Compositions: they give away nothing that they have not.
    Attempt("composer", "composes a binding to cluster-admin", composing(binding), CANNOT),
    Attempt("composer", "composes a binding in a namespace", composing(team_binding), CANNOT),
    Attempt("composer", "composes a Role", composing(team_role), CANNOT),
    Attempt("composer", "composes a ClusterRole", composing(cluster_role), CANNOT),
    Attempt("composer", "composes a role that others gather", composing(aggregated), CANNOT),
    Attempt("composer", "takes a binding over", composing(adopted_binding), CANNOT),
    Attempt("composer", "composes a mutating webhook", composing(webhook("MutatingWebhookConfiguration")), CANNOT),
    Attempt("composer", "composes a validating webhook", composing(webhook("ValidatingWebhookConfiguration")), CANNOT),
    Attempt("composer", "composes an admission policy", composing(policy), CANNOT),
    Attempt("composer", "composes an ActionSet", composing(action_set), CANNOT),
    Attempt("composer", "composes a Blueprint", composing(blueprint), CANNOT),
    Attempt("composer", "composes an Operation", composing(operation), CANNOT),
    Attempt("composer", "composes a CronOperation", composing(cron_operation), CANNOT),
    Attempt("composer", "composes a WatchOperation", composing(watch_operation), CANNOT),
    Attempt("composer", "composes a revision", composing(revision), CANNOT),
    Attempt("composer", "composes a Usage of what is elsewhere", composing(usage_of_vault), CANNOT),
    Attempt("composer", "composes a Function", composing(package(FUNCTION)), CANNOT),
    Attempt("composer", "composes a Provider", composing(package(PROVIDER)), CANNOT),
    Attempt("composer", "composes a Configuration", composing(package(CONFIGURATION)), CANNOT),
    Attempt(
        "composer",
        "composes a namespace with a ServiceAccount",
        composing(naming(lambda t: obj(NAMESPACE, t.name()), "writer")),
        CANNOT,
    ),
    Attempt(
        "composer",
        "composes an ActionSet that says an administrator wrote it",
        composing(lambda t: action_set(t, annotations=dict(ADMINISTRATOR))),
        CANNOT,
    ),
    Attempt("composer", "says that an administrator wrote it", composing(binding, dict(ADMINISTRATOR)), CANNOT),
    Attempt("composer", "names a ServiceAccount", creating(naming(composition, "TEAM/platform")), "impersonate"),
    Attempt("composer", "names one that is not there", creating(naming(composition, "VAULT/none")), "impersonate"),
    Attempt("composer", "names one without a namespace", creating(naming(composition, "platform")), "impersonate"),
    Attempt("composer", "changes an administrator's", in_an_administrators_composition, "changer's own"),
    Attempt("composer", "changes one with a ServiceAccount", in_a_composition_that_names_an_account, "impersonate"),
    Attempt("composer", "writes a revision", creating(revision), CANNOT),
    Attempt("composer", "reads a Secret elsewhere", reading(SECRET, "crown", "vault"), CANNOT),
    # Who may write Blueprints and ActionSets in one namespace.
    Attempt("runner", "binds cluster-admin", running(lambda t: kube_ops(binding(t))), CANNOT),
    Attempt("runner", "binds cluster-admin at home", running(lambda t: kube_ops(team_binding(t))), CANNOT),
    Attempt("runner", "binds cluster-admin at last", in_a_defer_phase, CANNOT),
    Attempt("runner", "writes a Secret elsewhere", running(lambda t: kube_ops(secret_in("vault")(t))), CANNOT),
    Attempt("runner", "writes a Secret at home", running(lambda t: kube_ops(secret_in("team")(t))), CANNOT),
    Attempt("runner", "deletes a Secret elsewhere", running(referring("delete")), CANNOT),
    Attempt(
        "runner", "changes a Secret elsewhere", running(referring("patch", spec={"data": {"jewels": "eA=="}})), CANNOT
    ),
    Attempt("runner", "reads a Secret elsewhere", running(referring("get", "v0.1.0")), CANNOT),
    Attempt("runner", "reads a Secret as an object", of_objects, CANNOT),
    Attempt(
        "runner",
        "refers to a Secret elsewhere",
        running(
            lambda t: kube_ops(secret_in("team")(t)),
            request={"secrets": lambda t: {"s": {"name": "crown", "namespace": t.vault}}},
        ),
        CANNOT,
    ),
    Attempt(
        "runner",
        "refers to a ConfigMap elsewhere",
        running(
            lambda t: kube_ops(secret_in("team")(t)),
            request={"configMaps": lambda t: {"c": {"name": "target", "namespace": t.vault}}},
        ),
        CANNOT,
    ),
    Attempt(
        "runner",
        "acts on an object elsewhere",
        running(lambda t: kube_ops(secret_in("team")(t)), request={"object": lambda t: target(t, t.vault)}),
        CANNOT,
    ),
    Attempt("runner", "uses a Profile elsewhere", with_foreign_profile, CANNOT),
    Attempt("runner", "uses a Secret by a Profile", with_greedy_profile, CANNOT),
    Attempt("runner", "makes an Operation", running(lambda t: kube_ops(operation(t))), CANNOT),
    Attempt("runner", "makes a Composition", running(lambda t: kube_ops(composition(t))), CANNOT),
    Attempt(
        "runner",
        "says that an administrator runs it",
        running(lambda t: kube_ops(binding(t)), annotations=dict(ADMINISTRATOR)),
        CANNOT,
    ),
    Attempt("runner", "names a ServiceAccount for a run", creating(naming(action_set, "platform")), "impersonate"),
    Attempt("runner", "names one elsewhere", creating(naming(action_set, "VAULT/default")), "impersonate"),
    Attempt("runner", "names one for a Blueprint", creating(naming(blueprint, "platform")), "impersonate"),
    Attempt("runner", "runs the platform's Blueprint", of_the_platforms_blueprint, "cannot use blueprints"),
    Attempt(
        "runner",
        "changes the platform's Blueprint",
        patching(BLUEPRINT, "platforms", {"actions": {"act": {"phases": []}}}),
        "impersonate",
    ),
    Attempt("runner", "says that it runs already", creating(pretending), "only the control plane"),
    Attempt("runner", "reads a Secret at the door", reading(SECRET, "crown", "vault"), CANNOT),
    Attempt("runner", "writes a Composition", creating(composition), CANNOT),
    Attempt("runner", "reads the machine's files", running(command("cat /etc/shadow")), "exit code", EMBEDDED),
    Attempt("runner", "reads other people's homes", running(command(FILES_IN_HOME)), "exit code", EMBEDDED),
    Attempt(
        "runner",
        "finds the control plane's keys",
        running(command("ls -d /tmp/planform-ephemeral-*/pki")),
        "exit code",
        EMBEDDED,
    ),
    Attempt("runner", "writes on the machine", running(command("touch /etc/mallory")), "exit code", EMBEDDED),
    # Who may run Operations.
    Attempt("operator", "binds cluster-admin", operating(binding), CANNOT),
    Attempt("operator", "writes a Secret elsewhere", operating(secret_in("vault")), CANNOT),
    Attempt("operator", "writes a ConfigMap", operating(lambda t: obj(CONFIG_MAP, t.name(), t.team)), CANNOT),
    Attempt("operator", "names a ServiceAccount", creating(naming(operation, "TEAM/platform")), "impersonate"),
    Attempt("operator", "names one for a schedule", creating(naming(cron_operation, "TEAM/platform")), "impersonate"),
    Attempt("operator", "names one for a watch", creating(naming(watch_operation, "TEAM/platform")), "impersonate"),
    # Who may write Usages in one namespace.
    Attempt("holder", "holds what is elsewhere", creating(usage_of_vault), "cannot create usages"),
    Attempt("holder", "holds a choice elsewhere", creating(usage_of_a_choice_in_vault), "cannot create usages"),
    Attempt("holder", "turns to what is elsewhere", by_a_usage_that_was_at_home, "cannot create usages"),
    Attempt("holder", "writes a Usage elsewhere", creating(usage_in_vault), CANNOT),
    # Who may install Functions.
    Attempt("installer", "installs a Provider", creating(package(PROVIDER)), CANNOT),
    Attempt("installer", "installs a Configuration", creating(package(CONFIGURATION)), CANNOT),
    Attempt(
        "installer", "decides how packages run", creating(lambda t: obj(RUNTIME_CONFIG, t.name(), spec={})), CANNOT
    ),
    Attempt(
        "installer",
        "decides where packages come from",
        creating(lambda t: obj(IMAGE_CONFIG, t.name(), spec={"matchImages": [{"prefix": "x"}]})),
        CANNOT,
    ),
    Attempt("installer", "writes a Composition", creating(composition), CANNOT),
    Attempt("installer", "lists Secrets everywhere", listing(SECRET), CANNOT),
    # Who may look.
    Attempt("viewer", "creates an XR", creating(xr_in("team")), CANNOT),
    Attempt("viewer", "runs an ActionSet", creating(action_set), CANNOT),
    Attempt("viewer", "reads Secrets", listing(SECRET, "team"), CANNOT),
    Attempt("viewer", "watches Secrets", watching(SECRET, "team"), CANNOT),
    Attempt("viewer", "deletes a Blueprint", deleting(BLUEPRINT, "platforms", "team"), CANNOT),
    Attempt("viewer", "changes a Blueprint", patching(BLUEPRINT, "platforms", {"actions": {}}), CANNOT),
    Attempt("viewer", "looks elsewhere", listing(gvk("v1", "ConfigMap"), "vault"), CANNOT),
    # Who may preview: with their own rights, and nobody reads reports by a default role.
    Attempt("viewer", "previews", creating(preview_of_nothing), CANNOT),
    Attempt("previewer", "previews a Composition", previewing(composition), r"cannot patch .*compositions"),
    Attempt("previewer", "previews a binding", previewing(binding), r"cannot patch .*clusterrolebindings"),
    Attempt("previewer", "previews another's XR", previewing(xr_in("vault")), r"cannot patch .*apps"),
    Attempt("previewer", "previews a Function", previewing(package(FUNCTION)), r"cannot patch .*functions"),
    Attempt("previewer", "previews as somebody else", forging_the_author_of_a_preview, r"cannot patch"),
    Attempt(
        "previewing-composer", "previews XRs it may not list", previewing(composition), r"cannot list .*(apps|sites)"
    ),
    Attempt("previewing-lister", "has a step given a Secret", previewing_with_a_stolen_secret, r"cannot get .*secrets"),
    Attempt("previewing-lister", "reads PreviewReports", listing(PREVIEW_REPORT), CANNOT),
    Attempt("by-role-view", "reads PreviewReports", listing(PREVIEW_REPORT), CANNOT),
    Attempt("by-role-edit", "reads PreviewReports", listing(PREVIEW_REPORT), CANNOT),
    Attempt("by-role-admin", "reads PreviewReports", listing(PREVIEW_REPORT), CANNOT),
    # A function's own process.
    Attempt(
        "function", "reads the machine's files", inside_a_function("open('/etc/shadow').read()"), "refused", EMBEDDED
    ),
    Attempt(
        "function",
        "looks into homes",
        inside_a_function("[each for each in os.scandir('/root') if each.is_file()][0]"),
        "refused",
        EMBEDDED,
    ),
    Attempt("function", "writes on the machine", inside_a_function("open('/etc/mallory', 'w')"), "refused", EMBEDDED),
    Attempt(
        "function",
        "finds the control plane's keys",
        inside_a_function("[n for n in os.listdir('/tmp') if n.startswith('planform-ephemeral')][0]"),
        "refused",
        EMBEDDED,
    ),
    Attempt(
        "function",
        "reads the control plane's environment",
        inside_a_function("open('/proc/%d/environ' % os.getppid()).read().index('PATH=') if os.getppid() else 1 / 0"),
        "refused",
        EMBEDDED,
    ),
    Attempt(
        "function",
        "reaches the network",
        inside_a_function("socket.create_connection(('127.0.0.1', 22), 1)"),
        "refused",
        EMBEDDED,
    ),
    Attempt("function", "ends the control plane", inside_a_function("os.kill(os.getppid(), 15)"), "refused", EMBEDDED),
]


@pytest.mark.parametrize("attempt", [pytest.param(each, id=f"{each.who} {each.what}") for each in ATTEMPTS])
async def test_an_attempt_is_refused(tenants: Tenants, attempt: Attempt) -> None:
    if tenants.engine not in attempt.engines:
        pytest.skip("of processes of this machine, which the embedded engine runs")
    with pytest.raises(Forbidden) as refused:
        await attempt.does(tenants, attempt.who)
    assert re.search(attempt.refusal, refused.value.message or str(refused.value)), refused.value


def test_the_table_is_long_enough() -> None:
    assert len(ATTEMPTS) >= 60
