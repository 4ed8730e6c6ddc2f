"""Which form of an answer a client wants, and which form of a body it sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import orjson

from planform.errors import BadRequest, NotAcceptable, UnsupportedMediaType
from planform.machinery import jsonbody, kubeproto, yamlish

Shape = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"]

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY_YAML = "application/apply-patch+yaml"
_BODY_TYPES = (JSON, YAML, PROTOBUF)
_TRANSFORMS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})


@dataclass(frozen=True, slots=True)
class Form:
    """JSON or YAML, of the object itself or of a projection of it."""

    yaml: bool = False
    shape: Shape = ""
    version: str = ""

    @property
    def content_type(self) -> bytes:
        if self.shape == "APIGroupDiscoveryList":
            return f"{JSON};g=apidiscovery.k8s.io;v={self.version};as=APIGroupDiscoveryList".encode()
        return YAML.encode() if self.yaml else JSON.encode()


_PLAIN = Form()


@lru_cache(maxsize=256)
def accepted(accept: str, *, discovery: bool = False) -> Form:
    """The first form in the list that can be served; raises NotAcceptable if none can."""
    if not accept:
        return _PLAIN
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        as_ = options.get("as", "")
        if media not in ("*/*", "application/*", JSON, YAML, "text/*"):
            continue
        yaml = media == YAML
        if not as_:
            return Form(yaml=yaml)
        group, version = options.get("g", ""), options.get("v", "")
        if discovery and as_ == "APIGroupDiscoveryList" and version in ("v2", "v2beta1"):
            return Form(shape="APIGroupDiscoveryList", version=version)
        if not discovery and as_ in _TRANSFORMS and group == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return Form(yaml=yaml, shape=as_, version=version)  # type: ignore[arg-type]  # checked to be a Shape
    raise NotAcceptable(
        f"only the following media types are accepted: {JSON}, {YAML}, "
        f"{JSON};as=Table;v=v1;g=meta.k8s.io, {JSON};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    )


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded request body and the paths of fields that stood in it twice."""

    value: Any
    duplicates: tuple[str, ...] = ()


def decode_body(data: bytes, content_type: str, *, validation: str = "Ignore") -> Body:
    """The value a client sent; a missing content type means JSON. Raises BadRequest or UnsupportedMediaType."""
    media = content_type.partition(";")[0].strip().lower() or JSON
    if media == PROTOBUF or (media not in _BODY_TYPES and data.startswith(kubeproto.MAGIC)):
        return _decode_protobuf(data)
    if media in (YAML, APPLY_YAML, "text/yaml", "application/x-yaml"):
        return decode_yaml(data, reporting=validation != "Ignore")
    if media != JSON and not media.endswith("+json"):
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(_BODY_TYPES)
        )
    return decode_json(data, reporting=validation != "Ignore")


def decode_json(data: bytes, *, reporting: bool = True) -> Body:
    try:
        if not reporting:
            return Body(jsonbody.loads(data))
        value, duplicates = jsonbody.loads_reporting_duplicates(data)
    except ValueError as error:
        raise BadRequest(f"couldn't decode the body as JSON: {error}") from error
    return Body(value, tuple(duplicates))


def decode_yaml(data: bytes, *, reporting: bool = True) -> Body:
    duplicates: list[str] = []
    try:
        value = yamlish.load(data, duplicates=duplicates if reporting else None)
    except ValueError as error:
        raise BadRequest(f"error decoding YAML: {error}") from error
    return Body(value, tuple(duplicates))


def _decode_protobuf(data: bytes) -> Body:
    from planform.api.builtin import protobuf_table

    try:
        return Body(kubeproto.decode(data, protobuf_table()))
    except kubeproto.KubeProtoError as error:
        raise BadRequest(f"couldn't decode the body as protobuf: {error}") from error


def encode_value(value: Any, form: Form, *, pretty: bool = False) -> bytes:
    if form.yaml:
        return yamlish.dump(value).encode()
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else None) + b"\n"
