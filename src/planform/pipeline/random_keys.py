"""The keys that random values of templates are made with: Secrets of the control plane, the same for all replicas.

Each key is a Secret named after its id, so that keys of other control planes can stand beside it when their XRs are
moved here. A ConfigMap says which one is this control plane's own, and since when: if it names a key whose Secret is
gone, values cannot be made, instead of being made anew and replacing live passwords.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import name_of
from planform.api.names import SECRET
from planform.builtin.seeds import Keyring, KeyUnavailable
from planform.client.protocol import Client
from planform.errors import AlreadyExists, ApiError, NotFound

CONFIG_MAP: Final = GroupVersionKind("", "v1", "ConfigMap")
NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
LABEL: Final = "planform.dev/random-key"
SECRET_TYPE: Final = "planform.dev/random-key"
CONFIG: Final = "planform-random-key"
MANAGER: Final = "planform-random-keys"
_BYTES: Final = 32
_ID_LENGTH: Final = 16
_ATTEMPTS: Final = 5

_log = logging.getLogger(__name__)


def key_id(key: bytes) -> str:
    """What a key is called: it tells nothing of the key, and a Secret that was changed no longer fits its name."""
    return hashlib.sha256(b"planform random key " + key).hexdigest()[:_ID_LENGTH]


def secret_name(identifier: str) -> str:
    return f"planform-random-key-{identifier}"


class StoredRandomKeys:
    """The keys of the control plane behind a client. They are read once, and again when an unknown one is named."""

    def __init__(
        self, client: Client, namespace: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._now = now
        self._ring: Keyring | None = None

    async def ensure(self) -> None:
        """Have a key, made here if there is none. What stands in the way is told when a value is needed."""
        try:
            await self.keyring("")
        except KeyUnavailable as error:
            _log.warning("random values cannot be made: %s", error)

    async def keyring(self, wanted: str, /) -> Keyring:
        """Raises KeyUnavailable."""
        ring = self._ring
        if ring is None or (wanted and wanted not in ring.keys):
            try:
                ring = self._ring = await self._read(wanted)
            except ApiError as error:
                raise KeyUnavailable(f"the control plane's key cannot be read: {error.message}") from error
        return ring

    async def _read(self, wanted: str) -> Keyring:
        for _ in range(_ATTEMPTS):
            config = await self._config()
            keys = await self._keys(self._namespace)
            if wanted and wanted not in keys:  # it may have come with XRs from a control plane with another namespace
                keys = {**await self._keys(None), **keys}
            if config is not None:
                return self._ring_of(config, keys)
            await self._make()
        raise KeyUnavailable("the control plane's key cannot be made: others make and delete it at the same time")

    def _ring_of(self, config: Object, keys: dict[str, bytes]) -> Keyring:
        data = config.get("data") or {}
        current, since = str(data.get("current") or ""), str(data.get("since") or "")
        if current not in keys:
            raise KeyUnavailable(
                f'the control plane\'s key is gone: Secret "{secret_name(current)}" in namespace "{self._namespace}"'
                " is missing or was changed; restore it from a backup, or give up the values that were made with it:"
                f' delete ConfigMap "{CONFIG}" there'
            )
        try:
            return Keyring(current, datetime.fromisoformat(since), keys)
        except ValueError:
            where = f'ConfigMap "{CONFIG}" in namespace "{self._namespace}"'
            raise KeyUnavailable(f"{where} does not say since when the key is there") from None

    async def _config(self) -> Object | None:
        try:
            return await self._client.get(CONFIG_MAP, CONFIG, namespace=self._namespace)
        except NotFound:
            return None

    async def _keys(self, namespace: str | None) -> dict[str, bytes]:
        """Those of a namespace, or of all. A key is known by its id, so that nobody can put another in its place."""
        found = await self._client.list(SECRET, namespace=namespace or "", labels=LABEL)
        keys = {}
        for secret in found.items:
            key = _decoded((secret.get("data") or {}).get("key"))
            if key and name_of(secret) == secret_name(key_id(key)):
                keys[key_id(key)] = key
        return keys

    async def _make(self) -> None:
        """A key and then the ConfigMap that names it. Of two replicas that do so at once, one's ConfigMap counts, and
        the other's key stays as one that nothing was made with."""
        await self._have_namespace()
        key = secrets.token_bytes(_BYTES)
        identifier = key_id(key)
        await self._create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": secret_name(identifier),
                    "namespace": self._namespace,
                    "labels": {LABEL: identifier},
                },
                "type": SECRET_TYPE,
                "data": {"key": base64.b64encode(key).decode()},
            }
        )
        since = self._now().replace(microsecond=0).isoformat()
        await self._create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": CONFIG, "namespace": self._namespace},
                "data": {"current": identifier, "since": since},
            }
        )

    async def _have_namespace(self) -> None:
        try:
            await self._client.get(NAMESPACE, self._namespace)
        except NotFound:
            await self._create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}})

    async def _create(self, obj: Object) -> None:
        try:
            await self._client.create(obj, manager=MANAGER)
        except AlreadyExists:
            return


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        return b""
