"""How declared kinds name other objects: by name, by kind, by labels."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, UnsetType

from planform.api.declarations import Declared, described, ruled

Labels = Annotated[dict[str, str], described("The labels, each of which must be there with this value.")]


class NameRef(Declared, frozen=True, kw_only=True):
    """A reference by name to an object of a known kind."""

    name: Annotated[str, described("Name of the object.", max_length=253)]


class SecretRef(Declared, frozen=True, kw_only=True):
    """A reference to a Secret."""

    name: Annotated[str, described("Name of the Secret.", max_length=253)]
    namespace: Annotated[str, described("Namespace of the Secret.", max_length=253)]


class KindRef(Declared, frozen=True, kw_only=True):
    """The name of a kind in one version."""

    api_version: Annotated[str, described("API version of the kind, such as example.org/v1.", max_length=317)]
    kind: Annotated[str, described("The kind, such as Bucket.", max_length=63)]


class ObjectRef(Declared, frozen=True, kw_only=True):
    """The name of one object of any kind."""

    api_version: Annotated[str, described("API version of the object.")]
    kind: Annotated[str, described("Kind of the object.")]
    name: Annotated[str, described("Name of the object.")]
    namespace: Annotated[str, described("Namespace of the object, if its kind is namespaced.")] | UnsetType = UNSET


class MatchLabels(Declared, frozen=True, kw_only=True):
    """A selector of equal labels."""

    match_labels: Labels


class LabelRequirement(Declared, frozen=True, kw_only=True):
    """One condition on a label."""

    key: Annotated[str, described("The label.")]
    operator: Annotated[str, described("How it is compared: In, NotIn, Exists or DoesNotExist.")]
    values: (
        Annotated[list[Annotated[str, described("A value.")]], described("For In and NotIn: the values.")] | UnsetType
    ) = UNSET


class LabelSelector(Declared, frozen=True, kw_only=True):
    """A LabelSelector as Kubernetes has it: labels and expressions, all of which must hold."""

    SCHEMA: ClassVar = ruled(**{"x-kubernetes-map-type": "atomic"})

    match_labels: Labels | UnsetType = UNSET
    match_expressions: (
        Annotated[list[LabelRequirement], described("Conditions on labels, all of which must hold.")] | UnsetType
    ) = UNSET
