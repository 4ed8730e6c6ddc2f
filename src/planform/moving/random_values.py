"""What keeps passwords that templates drew at random the same when their XRs are moved and get other uids.

The keys go along as Secrets, and an XR whose Composition may draw something gets a mark that says with which key, and
for which uid, its values were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of
from planform.api.names import COMPOSITION_REVISION, SECRET, XRD
from planform.builtin.seeds import MARK, Keyring, KeyUnavailable, mark_for_moving, may_draw
from planform.client.protocol import Client
from planform.definitions.crds import xr_kind
from planform.pipeline.random_keys import CONFIG, CONFIG_MAP, LABEL, StoredRandomKeys


async def keyring_of(client: Client) -> Keyring | None:
    """The keys of the control plane behind a client; None if it has none, or has lost its own."""
    for config in (await client.list(CONFIG_MAP, fields=f"metadata.name={CONFIG}")).items:
        try:
            return await StoredRandomKeys(client, namespace_of(config)).keyring("")
        except KeyUnavailable:
            continue
    return None


async def key_secrets(client: Client) -> list[Object]:
    return (await client.list(SECRET, labels=LABEL)).items


def marked(objects: Iterable[Object], ring: Keyring) -> list[Object]:
    """The objects, with marks on those XRs that need one."""
    known = list(objects)
    kinds = [xr_kind(each) for each in known if each["kind"] == XRD.kind]
    names = {(kind.group, kind.kind) for kind in kinds}
    drawing = {
        name_of(each) for each in known if each["kind"] == COMPOSITION_REVISION.kind and _may_draw(each.get("spec"))
    }
    return [
        _with_mark(each, ring)
        if (each["apiVersion"].rpartition("/")[0], each["kind"]) in names and _revision_of(each) in drawing
        else each
        for each in known
    ]


def _may_draw(spec: Any) -> bool:
    """Whether a pipeline has a template that may draw; what is in an environment cannot be told from here."""
    text = json.dumps(spec)
    return may_draw(text) or '"source": "Environment"' in text


def _revision_of(xr: Mapping[str, Any]) -> str:
    spec = xr.get("spec") or {}
    for place in (spec.get("crossplane") or {}, spec):
        reference = place.get("compositionRevisionRef")
        if isinstance(reference, Mapping) and reference.get("name"):
            return str(reference["name"])
    return ""


def _with_mark(xr: Object, ring: Keyring) -> Object:
    metadata = xr["metadata"]
    annotations = {**(metadata.get("annotations") or {}), MARK: mark_for_moving(xr, ring)}
    return {**xr, "metadata": {**metadata, "annotations": annotations}}
