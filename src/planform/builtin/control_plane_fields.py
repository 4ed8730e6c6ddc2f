"""What a control plane keeps in an XR for itself, and which inputs make a function look at it.

A reconcile of an XR ends by writing the XR's conditions and references. A function that looks at neither would answer
the same again, so that it need not be asked; this says of which functions that is known.
"""

from __future__ import annotations

from typing import Final

from planform.api.xr import LEGACY_FIELDS, STATUS_FIELDS
from planform.apimachinery.fieldpath import WILDCARD, FieldPathError, parse_path

_OWN: Final = {
    "metadata": frozenset({"finalizers", "generation", "labels", "managedFields", "resourceVersion"}),
    "spec": frozenset({*LEGACY_FIELDS, "crossplane"}),
    "status": frozenset({*STATUS_FIELDS, "conditions"}),
}


def reads_control_plane_fields(path: str) -> bool:
    """Whether a field path into an XR leads to a control-plane field, or to something that contains one."""
    try:
        segments = parse_path(path).segments
    except FieldPathError:
        return True
    if not segments or segments[0] == WILDCARD:
        return True
    if len(segments) == 1:
        return segments[0] in _OWN
    own = _OWN.get(str(segments[0]), frozenset())
    return segments[1] in own or segments[1] == WILDCARD
