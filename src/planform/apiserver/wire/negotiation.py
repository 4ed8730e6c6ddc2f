"""Which form of an answer a client wants, and which form of a body it sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import orjson

from planform.apimachinery import kubeproto, yaml_loader
from planform.apiserver.wire.offload import LARGE_JSON, LARGE_YAML, Offload, decode
from planform.errors import BadRequest, NotAcceptable, UnsupportedMediaType

Shape = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"]

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY_YAML = "application/apply-patch+yaml"
_BODY_TYPES = (JSON, YAML, PROTOBUF)
_MAX_ACCEPT_LENGTH = 4096
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
    if len(accept) > _MAX_ACCEPT_LENGTH:
        raise NotAcceptable(f"the Accept header is longer than {_MAX_ACCEPT_LENGTH} characters")
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


async def decode_body(
    data: bytes, content_type: str, *, validation: str = "Ignore", offload: Offload | None = None
) -> Body:
    """The value a client sent; a missing content type means JSON. Raises BadRequest or UnsupportedMediaType.

    Large bodies leave the loop if there is somewhere to go.
    """
    media = content_type.partition(";")[0].strip().lower() or JSON
    if media == PROTOBUF or (media not in _BODY_TYPES and data.startswith(kubeproto.MAGIC)):
        return _decode_protobuf(data)
    yaml = media in (YAML, APPLY_YAML, "text/yaml", "application/x-yaml")
    if not yaml and media != JSON and not media.endswith("+json"):
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(_BODY_TYPES)
        )
    reporting = validation != "Ignore"
    try:
        if offload is not None and len(data) > (LARGE_YAML if yaml else LARGE_JSON):
            return Body(*await offload.decode(data, yaml=yaml, reporting=reporting))
        value, duplicates = decode(data, yaml=yaml, reporting=reporting)
        return Body(value, tuple(duplicates))
    except ValueError as error:
        what = "error decoding YAML" if yaml else "couldn't decode the body as JSON"
        raise BadRequest(f"{what}: {error}") from error


def _decode_protobuf(data: bytes) -> Body:
    from planform.api.builtin import protobuf_table

    try:
        return Body(kubeproto.decode(data, protobuf_table()))
    except kubeproto.KubeProtoError as error:
        raise BadRequest(f"couldn't decode the body as protobuf: {error}") from error


def encode_value(value: Any, form: Form, *, pretty: bool = False) -> bytes:
    if form.yaml:
        return yaml_loader.dump(value).encode()
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else None) + b"\n"
