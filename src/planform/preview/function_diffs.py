"""What would be different with another revision of a function: both are run on the recorded inputs of live XRs.

`planform function diff` asks a Preview nowadays; commands of earlier releases ask here.

It answers below `/planform/v1/function-diffs`, in parts, so that whoever asks sees how far it is and can stop:

    GET …/OLD/NEW              the XRs whose pipelines have a step of the function, with what cannot be run again
    GET …/OLD/NEW?xr=UID,UID   how the answers to what these XRs' steps were last sent differ

Nothing is applied, cached or recorded. A revision that is inactive runs for as long as it is asked. These are no
resources: as with the journal, only those may ask whom RBAC lets read such paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

import orjson

from planform.api.kinds import Object
from planform.api.names import COMPOSITION_REVISION, SECRET
from planform.client.protocol import Client
from planform.compositions.usage_index import UsageIndex, XrKey
from planform.errors import ApiError, BadRequest, NotFound, PlanformError
from planform.features import FeatureGates
from planform.functions.resolution import Version
from planform.functions.runner import CredentialSource
from planform.journal.journal import Journal
from planform.journal.masking import RunMask
from planform.journal.records import Run
from planform.packages.function_catalogue import LiveFunctions
from planform.pipeline.modes import InvalidComposition, pipeline_of
from planform.pipeline.pipeline import ReadSettings
from planform.pipeline.running import Pipelines
from planform.pipeline.steps import PipelineInvalid, Step, parse_pipeline
from planform.preview import FUNCTION_DIFFS_PATH, FUNCTION_DIFFS_PREFIX
from planform.preview.differences import Difference, changes_between, masked
from planform.preview.replays import NotReplayable, ReplayContext, replay, runs_of_function, scene_of
from planform.xrs.connections import read_details, secret_reference
from planform.xrs.function_users import FunctionUsers
from planform.xrs.scopes import Scopes

MAX: Final = 100
"""XRs of one question."""

_AT_ONCE: Final = 8


class FunctionDiffs:
    """`temporary_activation` has a revision run while its block does."""

    def __init__(
        self,
        client: Client,
        *,
        functions: LiveFunctions,
        users: FunctionUsers,
        usage_index: UsageIndex,
        pipelines: Pipelines,
        journal: Journal,
        features: FeatureGates,
        temporary_activation: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:
        self._client = client
        self._functions = functions
        self._users = users
        self._usage_index = usage_index
        self._pipelines = pipelines
        self._journal = journal
        self._features = features
        self._temporary_activation = temporary_activation
        self._scopes = Scopes(client)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def answer(self, path: str, query: Mapping[str, Sequence[str]]) -> tuple[int, bytes]:
        """The status and body of a GET; a refusal is a Status object."""
        try:
            return 200, orjson.dumps(await self._answer(path, query))
        except ApiError as error:
            return error.code, orjson.dumps(error.to_status())
        except PlanformError as error:
            refusal = BadRequest(f"{error}; {error.hint}" if error.hint else str(error))
            return refusal.code, orjson.dumps(refusal.to_status())

    async def _answer(self, path: str, query: Mapping[str, Sequence[str]]) -> Object:
        words = tuple(word for word in path.split("/") if word)[len(FUNCTION_DIFFS_PREFIX) :]
        if len(words) != 2:
            raise NotFound(f"ask for {FUNCTION_DIFFS_PATH}/OLD/NEW")
        old, new = map(self._version, words)
        if old.function != new.function:
            raise BadRequest(f'"{old.id}" is a revision of "{old.function}", "{new.id}" one of "{new.function}"')
        uids = [uid for text in query.get("xr", ()) for uid in text.split(",") if uid]
        if len(uids) > MAX:
            raise BadRequest(f"ask for at most {MAX} XRs at a time, not {len(uids)}")
        if not uids:
            return {"function": old.function, "items": await self.xrs(old.function)}
        return {"function": old.function, "items": await self.compare(old, new, uids)}

    async def xrs(self, function: str) -> list[Object]:
        """The XRs that use a function, by kind and name. One that has no uid cannot be run again, and says why.

        An XR that has failed from the start uses no revision yet, but its run followed one.
        """
        using, known = self._users.compositions(function), self._usage_index.revisions()
        found = {xr: {"reason": "no run of it is recorded"} for xr, revision in known.items() if revision in using}
        for run in await self._journal.latest():
            xr = XrKey(run.kind, run.namespace, run.name)
            if xr in found or (not known.get(xr) and run.composition_revision in using):
                found[xr] = {"uid": run.uid}
        return [{**xr._asdict(), **entry} for xr, entry in sorted(found.items())]

    async def compare(self, old: Version, new: Version, uids: Sequence[str]) -> list[Object]:
        """How the answers differ for each of these XRs, in this order."""
        steps: dict[str, tuple[Step, ...]] = {}
        async with self._serving(old), self._serving(new):
            return await asyncio.gather(*(self._one(old, new, uid, steps) for uid in uids))

    async def _one(self, old: Version, new: Version, uid: str, steps: dict[str, tuple[Step, ...]]) -> Object:
        async with self._slots:
            summaries = await self._journal.runs(uid, 1)
            run = await self._journal.run(summaries[0].id) if summaries else None
            if run is None:
                return {"uid": uid, "outcome": "skipped", "reason": "no run of it is recorded"}
            entry: Object = {
                "uid": uid,
                "apiVersion": run.api_version,
                "kind": run.kind,
                "namespace": run.namespace,
                "name": run.name,
            }
            try:
                return entry | await self._compared(run, old, new, await self._steps(run, steps))
            except NotReplayable as error:
                return entry | {"outcome": "skipped", "reason": error.message}

    async def _compared(self, run: Run, old: Version, new: Version, steps: Sequence[Step]) -> Object:
        """The outcome for one XR. Where the answer of a step cannot be compared, that is what is told."""
        changes: list[Difference] = []
        for place in runs_of_function(run, old.function):
            scene = await scene_of(run, place, steps, _LiveSecrets(self._client))
            credentials = _Witness(self._pipelines.credentials)
            around = ReplayContext(
                runner=self._pipelines.runner,
                reader=self._pipelines.reader,
                credentials=credentials,
                clock=self._pipelines.clock,
                reads=self._reads(run.namespace),
            )
            before, after = await asyncio.gather(replay(scene, old, around), replay(scene, new, around))
            secrets = scene.secrets | credentials.values
            if before.failure is not None or after.failure is not None:
                return _failed(before.failure, after.failure, secrets)
            changes += masked(changes_between(scene.step.name, before, after), secrets)
        if not changes:
            return {"outcome": "unchanged"}
        lost = [change.resource for change in changes if change.part == "resource" and change.action == "removed"]
        return {"outcome": "changed", "lost": lost, "changes": [change.value() for change in changes]}

    async def _steps(self, run: Run, known: dict[str, tuple[Step, ...]]) -> tuple[Step, ...]:
        name = run.composition_revision
        if name not in known:
            try:
                spec = (await self._client.get(COMPOSITION_REVISION, name))["spec"]
                known[name] = parse_pipeline({**spec, "pipeline": pipeline_of(spec, run.composition)})
            except NotFound as error:
                raise NotReplayable(f'composition revision "{name}" is gone') from error
            except (InvalidComposition, PipelineInvalid) as error:
                raise NotReplayable(f'composition revision "{name}" cannot be run: {error}') from error
        return known[name]

    def _reads(self, namespace: str) -> ReadSettings:
        """As in the XR's own runs."""
        return ReadSettings(
            deny_by_default=self._features.enabled("DenyExtraResourcesByDefault"),
            requirements_enabled=self._features.enabled("CompositionFunctionsExtraResources"),
            confined_to=namespace if self._features.enabled("ConfineNamespacedReads") else "",
            is_namespaced=self._scopes.is_namespaced,
        )

    def _version(self, name: str) -> Version:
        catalogue = self._functions.catalogue
        for function in catalogue.functions:
            for version in catalogue.versions(function):
                if version.id == name and version.number:
                    return version
        raise NotFound(f'there is no function revision "{name}"')

    @asynccontextmanager
    async def _serving(self, version: Version) -> AsyncIterator[None]:
        """The revision can be called while the block runs. Raises what says why it cannot."""
        async with AsyncExitStack() as stack:
            if not (version.active and version.reachable):
                await stack.enter_async_context(self._temporary_activation(version.id))
            yield


class _LiveSecrets:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def secret(self, namespace: str, name: str, /) -> Object | None:
        try:
            return await self._client.get(SECRET, name, namespace=namespace)
        except NotFound:
            return None

    async def details(self, obj: Object, home: str, /) -> Mapping[str, bytes]:
        secret = secret_reference(obj, home)
        return {} if secret is None else await read_details(self._client, secret)


class _Witness:
    """Credentials, and which values they had."""

    def __init__(self, source: CredentialSource) -> None:
        self._source = source
        self.values: frozenset[bytes] = frozenset()

    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        found = await self._source.read(namespace, name)
        self.values |= frozenset((found or {}).values())
        return found


def _failed(old: PlanformError | None, new: PlanformError | None, secrets: frozenset[bytes]) -> Object:
    def message_of(error: PlanformError | None) -> str:
        return "" if error is None else RunMask(secrets, ()).text(str(error))

    if old is not None and new is not None:
        return {"outcome": "skipped", "reason": f"both revisions fail: {message_of(new)}"}
    entry: dict[str, Any] = (
        {"outcome": "failed", "error": message_of(new)} if new is not None else {"outcome": "mended"}
    )
    return entry | ({"was": message_of(old)} if old is not None else {})
