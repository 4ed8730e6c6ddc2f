"""JournalReviews: how users of a cluster read the journals of replicas, through the API server and with their rights.

A JournalReview is asked for like a SubjectAccessReview: it is created, always as a dry run, and never stored. The API
server authenticates its user, asks whether they may create JournalReviews, and sends it to the webhook, which fills in
the answer. So there is nothing to expose, no second way to authenticate, and no API group whose absence would trouble
others, as that of an aggregated API does.

What is answered is bounded by the rights of who asks: `planform.journal.withholding` says to what objects a run refers,
and the API server whether they may read those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final

import msgspec
import orjson

from planform.api.authors import Author
from planform.api.crds import crd, version
from planform.api.declarations import Declared, described, schema_of
from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITION_REVISION, JOURNAL_REVIEW
from planform.api.objects import TypedObject
from planform.apiserver.admission.chain import Admission
from planform.apiserver.auth.acting import author_from
from planform.assembly import Controllers
from planform.client.kubernetes import KubernetesClient
from planform.client.rights import Access, review
from planform.cluster.journal_peers import Answer, Peers
from planform.cluster.reviews import Verdict
from planform.errors import ApiError, BadRequest, Forbidden, NotFound
from planform.journal import serving
from planform.journal.records import Run, RunSummary, read_run, read_summaries, served
from planform.journal.withholding import Shown, shown_by, withheld, xr_of
from planform.preview import FUNCTION_DIFFS_PREFIX

PLURAL: Final = "journalreviews"
ROLE: Final = "planform:journal:aggregate-to-view"
_READ: Final = ("get", "list", "watch")
_FOR_PEOPLE: Final = ("admin", "edit", "view")


class JournalReviewSpec(Declared, frozen=True, kw_only=True):
    """What to read."""

    path: Annotated[str, described("Which path below /planform/v1, as of an embedded control plane.", max_length=1024)]
    query: Annotated[dict[str, str], described("The query.")] | msgspec.UnsetType = msgspec.UNSET


class JournalReviewStatus(Declared, frozen=True, kw_only=True):
    """The answer."""

    code: Annotated[int, described("The HTTP status.", format="int32")]
    body: Annotated[str, described("The body, JSON.")] = ""


class JournalReview(TypedObject, frozen=True, kw_only=True):
    """A read of the record of pipeline runs, answered at once and never stored."""

    gvk: ClassVar = JOURNAL_REVIEW

    spec: JournalReviewSpec
    status: JournalReviewStatus | msgspec.UnsetType = msgspec.UNSET


def journal_review_crd() -> Object:
    """Namespaced, so that who may view one namespace may ask about the XRs in it."""
    served_version = version(JOURNAL_REVIEW.version, schema_of(JournalReview), storage=True, status=False)
    return crd(JOURNAL_REVIEW.group, JOURNAL_REVIEW.kind, [served_version], scope="Namespaced", categories=["planform"])


def journal_role() -> Object:
    """Who views a cluster may ask, and may read what the answers are about."""
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in _FOR_PEOPLE}
    labels |= {f"rbac.crossplane.io/aggregate-to-{role}": "true" for role in _FOR_PEOPLE}
    kinds = ["compositeresourcedefinitions", "compositions", "compositionrevisions"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ROLE, "labels": labels},
        "rules": [
            {"apiGroups": [JOURNAL_REVIEW.group], "resources": [PLURAL], "verbs": ["create"]},
            {"apiGroups": [COMPOSITION_REVISION.group], "resources": kinds, "verbs": list(_READ)},
            {
                "apiGroups": ["pkg.crossplane.io"],
                "resources": ["functions", "functionrevisions"],
                "verbs": list(_READ),
            },
        ],
    }


@dataclass
class LocalJournal:
    """What this replica answers, while it works."""

    controllers: Controllers | None = None

    def close(self) -> None:
        self.controllers = None

    async def answer(self, path: str, query: Mapping[str, Sequence[str]]) -> Answer:
        words = tuple(word for word in path.split("/") if word)
        if self.controllers is None:
            return _refused(NotFound("this replica stands by: it holds no run"))
        if words[:3] == serving.PREFIX:
            return await serving.answer(self.controllers.journal, path, query)
        if words[:3] == FUNCTION_DIFFS_PREFIX:
            return await self.controllers.diffs.answer(path, query)
        return _refused(NotFound(f"{path}: there are runs and function-diffs"))


@dataclass
class JournalReviews:
    """Answers reviews from this replica's journal and those of its peers."""

    client: KubernetesClient
    local: LocalJournal
    peers: Peers
    _resources: dict[tuple[str, str], str] = field(default_factory=dict)

    async def handle(self, admission: Admission, uid: str) -> Verdict:
        """The review with its answer; refused if it would be stored."""
        verdict = Verdict(admission, uid)
        if not admission.request.dry_run:
            message = "a JournalReview is never stored: create it with dryRun=All, as planform explain-run does"
            verdict.refusal = BadRequest(message)
            return verdict
        try:
            spec = msgspec.convert((admission.new or {}).get("spec"), JournalReviewSpec)
        except msgspec.ValidationError as error:
            verdict.refusal = BadRequest(f"spec: {error}")
            return verdict
        try:
            code, body = await self._answer(spec.path, spec.query or {}, author_from(admission.request.user))
        except ApiError as error:
            code, body = _refused(error)
        verdict.patch = [{"op": "add", "path": "/status", "value": {"code": code, "body": body.decode()}}]
        return verdict

    async def _answer(self, path: str, query: Mapping[str, str], author: Author) -> Answer:
        words = tuple(word for word in path.split("/") if word)
        if words[:3] == FUNCTION_DIFFS_PREFIX:
            return await self._diffs(path, query, author)
        if words[:3] != serving.PREFIX or len(words) not in (4, 5):
            raise NotFound(f"{path}: there is {serving.PATH}/UID, UID/latest, UID/steps and UID/ID")
        if len(words) == 4:
            return await self._list(path, query, author)
        run = await self._run(f"{serving.PATH}/{words[3]}", "latest" if words[4] == "steps" else words[4])
        await self._require(author, xr_of(run))
        if words[4] == "steps":
            return 200, served({"items": [serving.step_of(step) for step in run.steps]})
        kinds = sorted(shown_by(run))
        allowed = await asyncio.gather(*(self._allows(author, kind) for kind in kinds))
        forbidden = [kind for kind, is_allowed in zip(kinds, allowed, strict=True) if not is_allowed]
        return 200, served(withheld(run, forbidden))

    async def _list(self, path: str, query: Mapping[str, str], author: Author) -> Answer:
        found: list[RunSummary] = []
        for body in await self._everywhere(path, query):
            found += read_summaries(body)
        for kind in {(each.kind, each.namespace) for each in found}:
            name, _, group = kind[0].partition(".")
            await self._require(author, Shown(f"{group}/" if group else "", name, kind[1]))
        found.sort(key=lambda each: each.started, reverse=True)
        return 200, served({"items": found})

    async def _run(self, path: str, which: str) -> Run:
        """The newest of those that the journals hold: an XR may have moved from one replica to another."""
        runs = [read_run(body) for body in await self._everywhere(f"{path}/{which}", {})]
        if not runs:
            raise NotFound("the journal holds no run of this object: has its pipeline run since the replicas started?")
        return max(runs, key=lambda run: run.started)

    async def _diffs(self, path: str, query: Mapping[str, str], author: Author) -> Answer:
        """Each XR is compared where its run is recorded; who asks is shown those that they may read."""
        if not await review(self.client, author, Access("list", COMPOSITION_REVISION.group, "compositionrevisions")):
            raise Forbidden(f'"{author.user}" may not list compositionrevisions, which function diff is about')
        bodies = await self._everywhere(path, query)
        if not bodies:
            code, body = await self.local.answer(path, {name: [value] for name, value in query.items()})
            if code != 200:
                return code, body
            raise NotFound("no replica works at the moment")
        answers = [orjson.loads(body) for body in bodies]
        items: dict[Any, Object] = {}
        for item in (item for answer in answers for item in answer["items"]):
            key = item.get("uid") or (item["kind"], item["namespace"], item["name"])
            if key not in items or items[key].get("outcome") == "skipped":
                items[key] = item
        recorded = [item for item in items.values() if "uid" in item and "name" in item]
        known = {(item["kind"], item["namespace"], item["name"]) for item in recorded}
        readable = [
            item
            for key, item in items.items()
            if "name" in item
            and (isinstance(key, str) or key not in known)
            and await self._allows(author, _xr_of_item(item))
        ]
        return 200, orjson.dumps({"function": answers[0]["function"], "items": readable})

    async def _everywhere(self, path: str, query: Mapping[str, str]) -> list[bytes]:
        """What this replica and its peers answer, without those that know nothing of it."""
        here = self.local.answer(path, {name: [value] for name, value in query.items()})
        local, others = await asyncio.gather(here, self.peers.ask(path, query))
        return [body for code, body in [local, *others] if code == 200]

    async def _require(self, author: Author, kind: Shown) -> None:
        if not await self._allows(author, kind):
            place = f' in the namespace "{kind.namespace}"' if kind.namespace else ""
            raise Forbidden(f'"{author.user}" may not get {kind.kind}{place}, so neither its runs')

    async def _allows(self, author: Author, kind: Shown) -> bool:
        group = kind.api_version.rpartition("/")[0]
        resource = await self._resource(group, kind)
        return bool(resource) and await review(self.client, author, Access("get", group, resource, kind.namespace))

    async def _resource(self, group: str, kind: Shown) -> str:
        """The plural of a kind; empty if it is served no longer."""
        known = self._resources.get((group, kind.kind))
        if known is None:
            try:
                wanted = gvk(kind.api_version, kind.kind)
                known = (await self.client.kind(wanted)).plural if not kind.api_version.endswith("/") else ""
            except NotFound:
                known = ""
            if not known:
                kinds = await self.client.kinds()
                known = next((each.plural for each in kinds if (each.group, each.kind) == (group, kind.kind)), "")
            if known:
                self._resources[(group, kind.kind)] = known
        return known


def _xr_of_item(item: Mapping[str, Any]) -> Shown:
    """Lists name a kind with its group, comparisons with its version."""
    if item.get("apiVersion"):
        return Shown(str(item["apiVersion"]), str(item["kind"]), str(item.get("namespace") or ""))
    name, _, group = str(item["kind"]).partition(".")
    return Shown(f"{group}/" if group else "", name, str(item.get("namespace") or ""))


def _refused(error: ApiError) -> Answer:
    return error.code, orjson.dumps(error.to_status())
