"""The webhook of one replica: it answers admission reviews from memory, and keeps its certificates and registration.

Every replica serves it, whether it leads or not. What the plugins need to know (usages, Blueprints) they hear by
watches of this replica's own.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import parse_qs

from planform.admission import (
    AUTHORSHIP,
    BIND,
    BLUEPRINTS,
    PIPELINES,
    RECORD,
    REVIEW,
    ROLLOUTS,
    USAGES,
    VALIDATE,
    Plugin,
    asked_at,
)
from planform.api.annotations import annotations_of
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import name_of
from planform.api.names import BLUEPRINT, COMPOSITION, COMPOSITION_REVISION, SECRET, USAGE
from planform.apiserver.admission.authorship import Authorship, questions
from planform.apiserver.admission.chain import Admission, AdmissionPlugin
from planform.apiserver.auth.acting import author_from
from planform.apiserver.wire.handler import failure, refusal
from planform.apiserver.wire.http import HttpRequest, HttpResponse, HttpServer, Limits
from planform.blueprints.actions import PhaseFunctions
from planform.client.informer import Informer, InformerEvent, ObjectKey, list_pages
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Patch, PatchType
from planform.client.rights import review
from planform.client.waits import Backoff
from planform.clock import Clock, SystemClock
from planform.cluster.certificates import Kept, renewed
from planform.cluster.endpoint import Health
from planform.cluster.journal_peers import Peers, is_peer
from planform.cluster.journal_reviews import JournalReviews, LocalJournal, journal_review_crd, journal_role
from planform.cluster.registration import (
    VALIDATING,
    Address,
    configurations,
    find,
    register,
    trusted_by,
)
from planform.cluster.reviews import Verdict, parse, validate
from planform.compositions.admission import RevisionGuard
from planform.compositions.field_lints import kinds_in
from planform.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, PlanformError, UsageError
from planform.functions.values import SchemaSelector
from planform.pipeline.running import ClientReader
from planform.reconcile.sources import Watches
from planform.rollouts.admission import ADOPT, RolloutGuard, adopted
from planform.rollouts.admission import questions as rollout_questions
from planform.telemetry.metrics import MetricsRegistry
from planform.usages.controller import KINDS as USAGE_KINDS
from planform.usages.controller import MANAGER as USAGES_MANAGER
from planform.usages.controller import Attempt, UsageGuard, is_marked
from planform.usages.usages import ATTEMPT_ANNOTATION, UsageInvalid, UsageKey, parse_usage
from planform.xrs.last_run import contains

SECRET_NAME: Final = "planform-webhook-tls"
NAME: Final = "webhook"
LOOK_SECONDS: Final = 3600.0
"""How often to ask whether a certificate is due; each replica also hears when another has renewed it."""

_SCHEMA_SECONDS: Final = 2.0
MAX_BYTES: Final = 8 * 1024 * 1024
"""A review holds an object twice, as it was and as it shall be."""

_SELF_REVIEW: Final = GroupVersionKind("authentication.k8s.io", "v1", "SelfSubjectReview")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """Where to listen, and where the API server finds that: a Service in `namespace`, else a URL, else right here."""

    host: str
    port: int
    namespace: str
    service: str = ""
    url: str = ""
    peer_host: str = ""
    """By what other replicas reach this one: its Pod's address."""

    def peer_address(self, port: int) -> str:
        """Where other replicas find this one, which listens on that port; empty if nobody said."""
        host = self.peer_host or ("" if self.host in ("", "0.0.0.0", "::") else self.host)
        if not host:
            return ""
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    def address(self, port: int) -> Address:
        """For the port that we listen on."""
        if self.service:
            return Address(self.namespace, self.service)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Address(self.namespace, url=self.url or f"https://{host}:{port}")


@dataclass(frozen=True, kw_only=True)
class WebhookContext:
    """What the webhook is given by its replica."""

    client: KubernetesClient
    clock: Clock
    rng: Random
    metrics: MetricsRegistry
    health: Health
    phase_functions: PhaseFunctions
    journal: LocalJournal
    identity: str
    leases: tuple[str, ...]


@dataclass
class _Blueprints:
    """Blueprints as far as a watch has told of them, for ActionSets that name them."""

    known: dict[ObjectKey, Object] = field(default_factory=dict)

    def heard(self, change: InformerEvent) -> None:
        if change.type == "DELETED":
            self.known.pop(change.key, None)
        else:
            self.known[change.key] = change.object

    def look(self, namespace: str, name: str) -> Object | None:
        return self.known.get(ObjectKey(namespace, name))


class Reviewer:
    """Answers reviews. A refused deletion is written down on its object, where whoever leads finds it."""

    def __init__(
        self,
        client: KubernetesClient,
        user: str,
        functions: PhaseFunctions,
        journals: JournalReviews,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._journals = journals
        self._user = user
        self._clock = clock or SystemClock()
        self._usages = UsageGuard()
        self._blueprints = _Blueprints()
        self._functions = replace(functions, look=self._blueprints.look)
        self._schemas = ClientReader(client)
        self._plugins: Mapping[Plugin, AdmissionPlugin] = {
            PIPELINES: RevisionGuard([user]),
            USAGES: self._usages,
            BLUEPRINTS: self._functions,
        }

    async def listen(self, watches: Watches) -> None:
        """Hear of what the plugins need to know; usages count as known when all there are have been told."""
        subscriptions = [watches.subscribe(kind, self._usage_changed) for kind in USAGE_KINDS]
        watches.subscribe(BLUEPRINT, self._blueprints.heard)
        for subscription in subscriptions:
            await subscription.synced()
        self._usages.index.is_complete = True

    async def handle(self, request: HttpRequest) -> HttpResponse:
        path, _, query = request.target.decode("latin-1").partition("?")
        if request.method == "GET":
            return await self._answer_peer(path, query, request.header(b"authorization"))
        if request.method != "POST" or path not in (VALIDATE, BIND, RECORD, REVIEW):
            return refusal(404, f"{path}: POST reviews to {VALIDATE}, {BIND}, {RECORD} or {REVIEW}")
        attempts: list[Attempt] = []
        try:
            admission, uid = parse(request.body)
            if path == RECORD:
                return await self._record(admission, uid)
            if path == REVIEW:
                return HttpResponse(200, (await self._journals.handle(admission, uid)).encode())
            await self._look_again(admission)
        except ApiError as error:
            return failure(error)
        self._usages.on_attempt = attempts.append
        schemas = await self._schemas_for(admission)
        plugins = {**self._plugins, PIPELINES: RevisionGuard([self._user], schemas.get)}
        verdict = validate(admission, uid, asked_at(path, plugins))
        for attempt in attempts:  # before the answer: who hears of the refusal may rely on the deletion being replayed
            await self._write_down(verdict, attempt)
        if path == VALIDATE:
            verdict.patch = []  # an API server takes none from a webhook that validates
        return HttpResponse(200, verdict.encode())

    async def _schemas_for(self, admission: Admission) -> dict[GroupVersionKind, Object | None]:
        """Those of the kinds that a Composition patches; without them its fields are not looked at."""
        spec = (admission.new or {}).get("spec")
        if admission.kind.kind != COMPOSITION.kind or not isinstance(spec, dict):
            return {}
        kinds = list(kinds_in(spec))
        asked = (self._schemas.schema(SchemaSelector(kind.api_version, kind.kind)) for kind in kinds)
        try:
            async with asyncio.timeout(_SCHEMA_SECONDS):
                return dict(zip(kinds, await asyncio.gather(*asked), strict=True))
        except (ApiError, TimeoutError):
            return {}  # only a warning is lost

    async def _answer_peer(self, path: str, query: str, authorization: str) -> HttpResponse:
        """What another replica wants to know of this one's journal, to answer somebody whose rights it has checked."""
        peers, token = self._journals.peers, authorization.removeprefix("Bearer ")
        kept = peers.certificates()
        if kept is None or not is_peer(kept.authority_key, path, token, peers.clock.now().timestamp()):
            return refusal(403, f"{path}: only replicas of this control plane may ask")
        return HttpResponse(*await self._journals.local.answer(path, parse_qs(query)))

    async def _record(self, admission: Admission, uid: str) -> HttpResponse:
        """Who writes it, and whether they may name the ServiceAccount that it names: the API server knows."""
        user, controllers = admission.request.user, (self._user,)
        asked = questions(admission, controllers)
        found = {access: await review(self._client, author_from(user), access) for access in asked}
        plugin = Authorship(lambda _, access: found[access], controllers)
        guard = await self._rollout_guard(admission)
        plugins = asked_at(RECORD, {AUTHORSHIP: plugin, ROLLOUTS: guard})
        return HttpResponse(200, validate(admission, uid, plugins).encode())

    async def _rollout_guard(self, admission: Admission) -> RolloutGuard:
        """What decides about RolloutActions and adoptions, with the answers that it will ask for."""
        asker, controllers = author_from(admission.request.user), (self._user,)
        asked = list(rollout_questions(admission, controllers))
        found = {access: await review(self._client, asker, access) for access in asked}
        revision: Object | None = None
        if ADOPT in found:
            try:
                revision = await self._client.get(COMPOSITION_REVISION, adopted(admission))
            except NotFound:
                revision = None
        return RolloutGuard(lambda _, access: found[access], lambda _: revision, self._clock, controllers)

    async def _look_again(self, admission: Admission) -> None:
        """The mark of an object may be here before the watch has told of the usage that it is from: then ask."""
        if admission.operation != "DELETE" or not self._usages.index.is_complete or not is_marked(admission.old):
            return
        kind, index = admission.kind, self._usages.index
        if index.protecting(kind.group, kind.kind, admission.namespace, admission.name):
            return
        for usages in USAGE_KINDS:
            if usages == USAGE and not admission.namespace:
                continue
            async for page in list_pages(self._client, usages):  # a Usage may be of something in another namespace
                for usage in page.items:
                    self._usage_changed(InformerEvent("MODIFIED", usage))

    def _usage_changed(self, change: InformerEvent) -> None:
        index, key = self._usages.index, UsageKey.of(change.object)
        try:
            if change.type == "DELETED":
                index.drop(key)
            else:
                index.put(parse_usage(change.object))
        except UsageInvalid:
            index.drop(key)

    async def _write_down(self, verdict: Verdict, attempt: Attempt) -> None:
        admission = verdict.admission
        old = admission.old or {}
        if annotations_of(old).get(ATTEMPT_ANNOTATION) == attempt.policy.value:
            return
        body = {"metadata": {"uid": attempt.uid, "annotations": {ATTEMPT_ANNOTATION: attempt.policy.value}}}
        try:
            await self._client.patch(
                admission.kind.gvk,
                admission.name,
                Patch(PatchType.MERGE, body),
                namespace=admission.namespace,
                manager=USAGES_MANAGER,
            )
        except (Conflict, NotFound):
            pass  # it is gone, or another now: nobody has tried to delete that
        except PlanformError as error:
            _logger.warning("a refused deletion could not be written down: %s", error)


class Certificates:
    """Keeps the Secret, the server's TLS context and the registration level with each other."""

    def __init__(self, client: KubernetesClient, clock: Clock, user: str = "") -> None:
        self._client = client
        self._clock = clock
        self._user = user
        self._loaded: Kept | None = None
        self.changed = asyncio.Event()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])

    @property
    def loaded(self) -> Kept | None:
        """What is in use."""
        return self._loaded

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    async def ensure(self, address: Address) -> None:
        """One look: renew what is due, show what the Secret holds, and have the API server trust it.

        A new authority is trusted first and signs afterwards, which takes a second round.
        """
        for _ in range(2):
            kept = await self._renew(address)
            self._load(kept)
            for wanted in configurations(address, kept.bundle, self._user):
                try:
                    await register(self._client, wanted)
                except Forbidden as error:
                    _logger.warning("the webhook is not registered: %s", error)
        await self._serve_journals()

    async def _serve_journals(self) -> None:
        """Have the API server know of JournalReviews, and let who views a cluster create them."""
        for wanted in (journal_review_crd(), journal_role()):
            try:
                if not await self._is_there(wanted):
                    await self._client.apply(wanted, manager="planform-webhook", force=True)
            except Forbidden as error:
                _logger.warning("journals cannot be read through the API server: %s", error)

    async def _is_there(self, wanted: Object) -> bool:
        """Whether the chart made it, or we did before: then it need not be allowed to us."""
        try:
            found = await self._client.get(gvk_of(wanted), name_of(wanted))
        except NotFound:
            return False
        parts = ("rules",) if "rules" in wanted else ("spec",)
        return all(contains(found.get(part), wanted[part]) for part in parts)

    async def _renew(self, address: Address) -> Kept:
        namespace = address.namespace
        while True:
            try:
                secret: Object | None = await self._client.get(SECRET, SECRET_NAME, namespace=namespace)
            except NotFound:
                secret = None
            kept = Kept.of((secret or {}).get("data") or {})
            trusted = trusted_by(await find(self._client, VALIDATING))
            wanted = renewed(kept, address.names, now=self._clock.now(), trusted=trusted)
            if wanted == kept:
                return wanted
            try:
                if secret is None:
                    metadata = {"name": SECRET_NAME, "namespace": namespace}
                    made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
                    await self._client.create({**made, "data": wanted.data()})
                else:
                    await self._client.update({**secret, "data": {**(secret.get("data") or {}), **wanted.data()}})
                return wanted
            except (AlreadyExists, Conflict, NotFound):
                continue  # another replica was first: take what it wrote

    def _load(self, kept: Kept) -> None:
        """From the next handshake on; connections that are open go on."""
        if self._loaded is not None and (kept.certificate, kept.key) == (self._loaded.certificate, self._loaded.key):
            return
        with tempfile.TemporaryDirectory(prefix="planform-") as directory:
            file = Path(directory) / "server.pem"
            file.touch(mode=0o600)
            file.write_bytes(kept.certificate + b"\n" + kept.key)
            self.context.load_cert_chain(file)
        self._loaded = kept

    async def keep(self, address: Address, rng: Random) -> None:
        """Look now and then, and whenever the Secret changes, until cancelled."""
        backoff, failures = Backoff(first=1, maximum=60), 0
        while True:
            self.changed.clear()
            try:
                await self.ensure(address)
                failures = 0
            except PlanformError as error:
                failures += 1
                _logger.warning("keeping the webhook's certificates: %s; trying again", error)
            wait = backoff.delay(failures, rng) if failures else LOOK_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await self.changed.wait()
            except TimeoutError:
                pass


@asynccontextmanager
async def open_webhook(settings: WebhookSettings, here: WebhookContext) -> AsyncIterator[int]:
    """Serve until the block ends; gives the port. The API server is told where once we listen."""
    user = await _own_name(here.client)
    certificates = Certificates(here.client, here.clock, user)
    here.health.ready[NAME] = lambda: None if certificates.is_loaded else "no certificate yet"
    async with AsyncExitStack() as stack:
        watches = await stack.enter_async_context(
            Watches(here.client, clock=here.clock, rng=here.rng, metrics=here.metrics)
        )
        here.health.hears(NAME, watches)
        stack.callback(here.health.forget, NAME)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        peers = Peers(
            client=here.client,
            clock=here.clock,
            rng=here.rng,
            namespace=settings.namespace,
            identity=here.identity,
            leases=here.leases,
            certificates=lambda: certificates.loaded,
            server_name=settings.address(0).names[0],
        )
        journals = JournalReviews(here.client, here.journal, peers)
        reviewer = Reviewer(here.client, user, here.phase_functions, journals, here.clock)
        running = [tasks.create_task(reviewer.listen(watches), name="webhook watches")]
        server = HttpServer(
            reviewer.handle, refusal, limits=Limits(connections=1000, body_bytes=MAX_BYTES), tls=certificates.context
        )
        try:
            port = await server.start(settings.host, settings.port)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
                hint="choose another with --webhook-listen HOST:PORT",
            ) from error
        stack.push_async_callback(server.stop)
        running.append(
            tasks.create_task(certificates.keep(settings.address(port), here.rng), name="webhook certificates")
        )
        secret = Informer(
            here.client,
            SECRET,
            lambda _: certificates.changed.set(),
            clock=here.clock,
            rng=here.rng,
            namespace=settings.namespace,
            fields=f"metadata.name={SECRET_NAME}",
        )
        running.append(tasks.create_task(secret.run(), name="webhook secret"))
        for task in running:
            stack.callback(task.cancel)
        yield port


async def _own_name(client: KubernetesClient) -> str:
    """Whom the API server takes us for."""
    answer = await client.create({"apiVersion": _SELF_REVIEW.api_version, "kind": _SELF_REVIEW.kind})
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")
