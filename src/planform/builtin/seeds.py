"""What the random functions of a template are seeded with, so that an XR gets the same values on every run.

A control plane has a key, and seeds with an HMAC under it: whoever reads the XR and the template cannot compute the
values. XRs that are older than the key keep what they were given before there was one, until somebody rotates them; an
annotation says so for those that were moved from elsewhere or rotated. Pure, but for the Protocol that gives the keys.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from planform.builtin.compiled import Refused
from planform.functions.values import Object

if TYPE_CHECKING:
    from planform.gotemplate.drawing import Stream

MARK: Final = "planform.dev/random-seed"
"""An annotation: `KEY/IDENTITY`, the id of a key and what stands for the XR's uid, or `public/IDENTITY`."""
PUBLIC: Final = "public"
_DRAWS: Final = re.compile(r"\b(?:rand|uuidv4|shuffle|encryptAES|gen[A-Z]|bcrypt|htpasswd|tpl)").search


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of a control plane by their ids, the one that is its own, and since when it is."""

    current: str
    since: datetime
    keys: Mapping[str, bytes]


class RandomKeys(Protocol):
    """Where a control plane keeps its keys."""

    async def keyring(self, wanted: str, /) -> Keyring:
        """The keys as they are; `wanted` is an id that should be among them. Raises KeyUnavailable."""


class KeyUnavailable(Exception):
    """The control plane's own key cannot be had; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Seed:
    """`secret` is empty where the values can be computed by anybody; `text` seeds those."""

    text: str
    secret: bytes = b""
    note: str = ""
    """What is to be said if something is drawn."""
    warns: bool = False
    """Whether that is a warning."""
    refusal: str = ""
    """Why nothing can be drawn."""

    def stream(self) -> Stream:
        from planform.gotemplate.drawing import PublicStream, SeededStream

        return SeededStream(self.secret) if self.secret else PublicStream(self.text)


def moment(text: Any) -> datetime | None:
    """A point in time as Kubernetes writes it; None of anything else."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def may_draw(template: str) -> bool:
    """Whether a template may ask for something random; a comment is enough for a yes."""
    return _DRAWS(template) is not None


def digest_of(template: str) -> str:
    return hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()


def local_seed(digest: str, xr: Object) -> Seed:
    """Outside a control plane."""
    note = "random values are not those that a control plane makes: these follow from the XR and the template alone"
    return Seed(f"{digest}/{_public_identity(xr, '')}", note=note)


async def seed_of(keys: RandomKeys, digest: str, xr: Object) -> Seed:
    """What a template draws from for an XR of a control plane. Raises Refused for a mark that says nothing."""
    mark = _mark(xr)
    scheme, _, identity = mark.partition("/")
    if mark and (not scheme or not identity):
        raise Refused(f'the annotation {MARK} of the XR must be KEY/IDENTITY or {PUBLIC}/IDENTITY, not "{mark}"')
    if scheme == PUBLIC:
        return _public_seed(digest, xr, identity)
    try:
        ring = await keys.keyring(scheme)
    except KeyUnavailable as error:
        return Seed("", refusal=str(error))
    if not scheme and _is_older(xr, ring.since):
        return _public_seed(digest, xr, "")
    key = ring.keys.get(scheme or ring.current)
    if key is None:
        return Seed(
            "",
            refusal=f'the random key "{scheme}" that the XR\'s values were made with is not here; bring its Secret'
            f' "planform-random-key-{scheme}" from where the XR was, or make new values: planform random rotate',
        )
    metadata = xr.get("metadata") or {}
    # Who may write an XR may write its annotations: the identity alone must not lead to another XR's values.
    parts = (digest, identity or metadata.get("uid"), xr.get("kind"), metadata.get("namespace"), metadata.get("name"))
    message = "\0".join(str(part or "") for part in parts).encode("utf-8", "surrogatepass")
    return Seed("", hmac.new(key, message, hashlib.sha256).digest())


def seeding_of(xr: Object, ring: Keyring) -> str:
    """How an XR's values are made: `public`, or the id of a key."""
    scheme = _mark(xr).partition("/")[0]
    return scheme or (PUBLIC if _is_older(xr, ring.since) else ring.current)


def mark_for_moving(xr: Object, ring: Keyring) -> str:
    """The mark with which an XR keeps its values where it gets another uid."""
    return _mark(xr) or f"{seeding_of(xr, ring)}/{(xr.get('metadata') or {}).get('uid', '')}"


def _public_seed(digest: str, xr: Object, identity: str) -> Seed:
    note = (
        "random values of this XR were made before the control plane had a key and can be computed by whoever reads it;"
        " planform random rotate makes new ones"
    )
    return Seed(f"{digest}/{_public_identity(xr, identity)}", note=note, warns=True)


def _public_identity(xr: Object, identity: str) -> str:
    metadata = xr.get("metadata")
    known: Mapping[str, Any] = metadata if isinstance(metadata, dict) else {}
    uid = identity or known.get("uid")
    return str(uid or [xr.get("apiVersion"), xr.get("kind"), known.get("namespace"), known.get("name")])


def _mark(xr: Object) -> str:
    metadata = xr.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    found = annotations.get(MARK) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""


def _is_older(xr: Object, since: datetime) -> bool:
    metadata = xr.get("metadata")
    created = moment(metadata.get("creationTimestamp")) if isinstance(metadata, dict) else None
    return created is not None and created < since
