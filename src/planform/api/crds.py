"""The CustomResourceDefinition of a declared kind: its names, scope, versions, columns and subresources.

    SITE_CRD = crd(
        SITE.group,
        SITE.kind,
        [version("v1alpha1", schema_of(Site), [column("HOST", ".spec.host"), condition_column("Ready")], storage=True)],
        scope="Namespaced",
        categories=["planform"],
    )

A kind of ours is listed in `planform.api.extensions`, from where every engine, the chart and the reference have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from planform.api.declarations import Schema
from planform.api.kinds import Object

AGE: Final = {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def column(name: str, path: str, kind: str = "string", *, priority: int = 0) -> Object:
    """A column that `kubectl get` prints."""
    made: Object = {"name": name, "type": kind, "jsonPath": path}
    return {**made, "priority": priority} if priority else made


def condition_column(type_: str, name: str = "") -> Object:
    """The status of one condition as a column."""
    return column(name or type_.upper(), f".status.conditions[?(@.type=='{type_}')].status")


def version(
    name: str,
    schema: Schema,
    columns: Sequence[Object] = (),
    *,
    storage: bool = False,
    deprecated: str = "",
    status: bool = True,
) -> Object:
    """A served version; `deprecated` is the warning that its users get; without `status`, it has no subresource."""
    made: Object = {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}
    if status:
        made["subresources"] = {"status": {}}
    made["additionalPrinterColumns"] = [*columns, AGE]
    return {**made, "deprecated": True, "deprecationWarning": deprecated} if deprecated else made


def crd(
    group: str,
    kind: str,
    versions: Sequence[Object],
    *,
    scope: Literal["Cluster", "Namespaced"] = "Cluster",
    short: Sequence[str] = (),
    categories: Sequence[str] = ("crossplane",),
    plural: str = "",
) -> Object:
    """The CustomResourceDefinition, complete as a server gives it back, so that the two can be compared."""
    plural = plural or f"{kind.lower()}s"
    names: Object = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    if short:
        names["shortNames"] = list(short)
    names["categories"] = list(categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": scope,
            "versions": list(versions),
            "conversion": {"strategy": "None"},
        },
    }
