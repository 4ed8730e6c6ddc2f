"""What a control plane keeps in an XR for itself, and which inputs make a function look at it.

A pass over an XR ends by writing the XR's conditions and references. A function that looks at neither would answer the
same again, so that it need not be asked; this says of which functions that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from planform.machinery.fieldpath import FieldPathError, parse_path

_OWN: Final = {
    "metadata": frozenset({"finalizers", "generation", "labels", "managedFields", "resourceVersion"}),
    "spec": frozenset(
        {
            "claimRef",
            "compositionRef",
            "compositionRevisionRef",
            "compositionRevisionSelector",
            "compositionSelector",
            "compositionUpdatePolicy",
            "crossplane",
            "resourceRefs",
            "writeConnectionSecretToRef",
        }
    ),
    "status": frozenset(
        {
            "claimConditionTypes",
            "conditions",
            "connectionDetails",
            "lastHandledReconcileAt",
            "planform",
            "watchedResourceRefs",
        }
    ),
}
_FROM_XR: Final = frozenset({None, "", "FromCompositeFieldPath", "CombineFromComposite"})


def sees_bookkeeping(path: str) -> bool:
    """Whether a field path into an XR leads to bookkeeping, or to something that contains it."""
    try:
        segments = parse_path(path).segments
    except FieldPathError:
        return True
    if len(segments) < 2:
        return not segments or segments[0] in _OWN
    own = _OWN.get(str(segments[0]), frozenset())
    return segments[1] in own or segments[1] == "*"


def patches_see_bookkeeping(patches: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of these patches, as patch-and-transform writes them, takes it from the XR."""
    for patch in patches:
        if patch.get("type") == "PatchSet" or patch.get("type") not in _FROM_XR:
            continue
        paths = [patch.get("fromFieldPath")]
        paths += [each.get("fromFieldPath") for each in (patch.get("combine") or {}).get("variables") or ()]
        if any(path is not None and sees_bookkeeping(str(path)) for path in paths):
            return True
    return False
