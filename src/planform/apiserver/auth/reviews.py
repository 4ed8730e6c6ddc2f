"""Questions put as objects: access reviews, token reviews, and requests for ServiceAccount tokens.

Nothing here is stored. The question comes back with its answer as `status`, shaped as a real API server shapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from planform.api.kinds import Object
from planform.apiserver.auth.authentication import Authentication
from planform.apiserver.auth.jws import BadToken
from planform.apiserver.auth.rbac import Rbac
from planform.apiserver.auth.tokens import ServiceAccountTokens, TokenRequestSpec
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs.requests import Attributes, Request, User
from planform.clock import Clock, timestamp
from planform.errors import BadRequest, FieldError, Invalid

if TYPE_CHECKING:
    from planform.apiserver.wire.routes import ResourcePath

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
T = TypeVar("T")


class _ResourceAttributes(msgspec.Struct, frozen=True):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _PathAttributes(msgspec.Struct, frozen=True):
    path: str = ""
    verb: str = ""


class _AccessSpec(msgspec.Struct, frozen=True, rename="camel"):
    resource_attributes: _ResourceAttributes | None = None
    non_resource_attributes: _PathAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}
    uid: str = ""


class _RulesSpec(msgspec.Struct, frozen=True):
    namespace: str = ""


class _TokenReviewSpec(msgspec.Struct, frozen=True):
    token: str = ""
    audiences: tuple[str, ...] = ()


class Reviews:
    """The kinds that are answered, not stored."""

    def __init__(
        self, *, clock: Clock, rbac: Rbac, authentication: Authentication, tokens: ServiceAccountTokens
    ) -> None:
        self._clock = clock
        self._rbac = rbac
        self._authentication = authentication
        self._tokens = tokens

    async def create(self, served: ServedKind, path: ResourcePath, body: Object, request: Request, /) -> Object | None:
        """The answer, or None for an ordinary kind."""
        kind = served.kind
        match kind.group, kind.plural, path.subresource:
            case "", "serviceaccounts", "token":
                return self._token_request(path, body)
            case "authorization.k8s.io", "selfsubjectaccessreviews", "":
                return self._self_access(body, request.user)
            case "authorization.k8s.io", "subjectaccessreviews", "":
                return self._access(body, "SubjectAccessReview", "")
            case "authorization.k8s.io", "localsubjectaccessreviews", "":
                return self._access(body, "LocalSubjectAccessReview", path.namespace)
            case "authorization.k8s.io", "selfsubjectrulesreviews", "":
                return self._rules(body, request.user)
            case "authentication.k8s.io", "selfsubjectreviews", "":
                return self._self(body, request.user)
            case "authentication.k8s.io", "tokenreviews", "":
                return self._token_review(body)
        return None

    # -- access

    def _self_access(self, body: Object, user: User) -> Object:
        spec = _spec_of(body, _AUTHORIZATION, "SelfSubjectAccessReview", _AccessSpec)
        errors = _attribute_errors(spec)
        if errors:
            raise Invalid.of(_AUTHORIZATION, "SelfSubjectAccessReview", "", errors)
        return _answer(body, _AUTHORIZATION, "SelfSubjectAccessReview", self._decided(user, spec))

    def _access(self, body: Object, kind: str, namespace: str) -> Object:
        spec = _spec_of(body, _AUTHORIZATION, kind, _AccessSpec)
        errors = _attribute_errors(spec)
        if not spec.user and not spec.groups:
            errors.append(_invalid("spec.user", '""', "at least one of user or group must be specified"))
        if namespace:
            errors += _local_errors(spec, namespace)
        if errors:
            raise Invalid.of(_AUTHORIZATION, kind, "", errors)
        user = User(spec.user, spec.groups, spec.uid, spec.extra)
        return _answer(body, _AUTHORIZATION, kind, self._decided(user, spec), namespace=namespace)

    def _decided(self, user: User, spec: _AccessSpec) -> Object:
        asked, path = spec.resource_attributes, spec.non_resource_attributes
        if asked is not None:
            attributes = Attributes(
                asked.verb,
                asked.group,
                asked.version,
                asked.resource,
                asked.subresource,
                asked.namespace,
                asked.name,
            )
        else:
            assert path is not None
            attributes = Attributes(path.verb, path=path.path or "/")
        decision = self._rbac.decide(user, attributes)
        return {"allowed": decision.allowed} | ({"reason": decision.reason} if decision.reason else {})

    def _rules(self, body: Object, user: User) -> Object:
        spec = _spec_of(body, _AUTHORIZATION, "SelfSubjectRulesReview", _RulesSpec)
        if not spec.namespace:
            raise BadRequest("no namespace on request")
        rules = [msgspec.to_builtins(rule) for rule in self._rbac.rules_for(user, spec.namespace)]
        status = {
            "resourceRules": [
                _part(rule, "verbs", "apiGroups", "resources", "resourceNames") for rule in rules if "resources" in rule
            ],
            "nonResourceRules": [
                _part(rule, "verbs", "nonResourceURLs") for rule in rules if "nonResourceURLs" in rule
            ],
            "incomplete": False,
        }
        return _answer(body, _AUTHORIZATION, "SelfSubjectRulesReview", status)

    # -- identity

    def _self(self, body: Object, user: User) -> Object:
        _spec_of(body, _AUTHENTICATION, "SelfSubjectReview", _RulesSpec)
        created = {"creationTimestamp": timestamp(self._clock.now())}
        answer = _answer(body, _AUTHENTICATION, "SelfSubjectReview", {"userInfo": user_info(user)}, metadata=created)
        answer.pop("spec", None)
        return answer

    def _token_review(self, body: Object) -> Object:
        spec = _spec_of(body, _AUTHENTICATION, "TokenReview", _TokenReviewSpec)
        if not spec.token:
            raise BadRequest("token is required for TokenReview in authentication")
        try:
            owner = self._authentication.token_owner(spec.token, spec.audiences)
        except BadToken as error:
            return _answer(body, _AUTHENTICATION, "TokenReview", {"user": {}, "error": str(error)})
        status = {"authenticated": True, "user": user_info(owner.user), "audiences": list(owner.audiences)}
        return _answer(body, _AUTHENTICATION, "TokenReview", status)

    def _token_request(self, path: ResourcePath, body: Object) -> Object:
        spec = _spec_of(body, _AUTHENTICATION, "TokenRequest", TokenRequestSpec)
        metadata = body.get("metadata") or {}
        for field, expected in (("name", path.name), ("namespace", path.namespace)):
            given = metadata.get(field) or expected
            if given != expected:
                detail = f"must match the service account {field} if specified"
                error = _invalid(f"metadata.{field}", f'"{given}"', detail)
                raise Invalid.of(_AUTHENTICATION, "TokenRequest", path.name, [error])
        issued = self._tokens.issue(path.namespace, path.name, spec)
        status = {"token": issued.token, "expirationTimestamp": timestamp(issued.expires)}
        created = {
            "name": path.name,
            "namespace": path.namespace,
            "creationTimestamp": timestamp(self._clock.now()),
        }
        answer = _answer(body, _AUTHENTICATION, "TokenRequest", status, metadata=created)
        answer["spec"] = {
            "audiences": list(spec.audiences or self._tokens.audiences),
            "expirationSeconds": spec.expiration_seconds,
            "boundObjectRef": None if spec.bound_object_ref is None else msgspec.to_builtins(spec.bound_object_ref),
        }
        return answer


def user_info(user: User) -> Object:
    """A user as reviews and the audit log show one; what is empty is left out."""
    info: dict[str, Any] = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {field: value for field, value in info.items() if value}


def _answer(
    body: Object,
    group: str,
    kind: str,
    status: Object,
    *,
    namespace: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> Object:
    """The question with its answer. Metadata that says nothing here is not echoed."""
    given = body.get("metadata") or {}
    kept = {field: given[field] for field in ("name", "labels", "annotations") if given.get(field)}
    if namespace:
        kept["namespace"] = namespace
    return {
        "kind": kind,
        "apiVersion": f"{group}/v1",
        "metadata": {**kept, **(metadata or {})},
        "spec": _without_nulls(body.get("spec") or {}),
        "status": status,
    }


def _spec_of(body: Object, group: str, kind: str, shape: type[T]) -> T:
    """The question's spec, typed; raises BadRequest for another kind or wrong types."""
    given = (body.get("apiVersion") or f"{group}/v1", body.get("kind") or kind)
    if given != (f"{group}/v1", kind):
        raise BadRequest(f'the object provided is a {given[1]} of "{given[0]}", and must be a {kind} of "{group}/v1"')
    if type(body.get("metadata") or {}) is not dict:
        raise BadRequest(f'{kind} in version "v1" cannot be handled as a {kind}: metadata must be an object')
    try:
        return msgspec.convert(_without_nulls(body.get("spec") or {}), shape)
    except msgspec.ValidationError as error:
        text = str(error).replace("`$", "`spec")
        raise BadRequest(f'{kind} in version "v1" cannot be handled as a {kind}: {text}') from error


def _attribute_errors(spec: _AccessSpec) -> list[FieldError]:
    path = spec.non_resource_attributes
    if (spec.resource_attributes is None) is not (path is None):
        return []
    return [_invalid("spec", "null" if path is None else _shown(path), _ONE_OF)]


def _local_errors(spec: _AccessSpec, namespace: str) -> Sequence[FieldError]:
    if spec.non_resource_attributes is not None:
        shown = _shown(spec.non_resource_attributes)
        return [_invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request")]
    if spec.resource_attributes is not None and spec.resource_attributes.namespace != namespace:
        shown = f'"{spec.resource_attributes.namespace}"'
        return [_invalid("spec.resourceAttributes.namespace", shown, "must match metadata.namespace")]
    return []


def _shown(path: _PathAttributes) -> str:
    return msgspec.json.encode({"Path": path.path, "Verb": path.verb}).decode()


def _invalid(field: str, shown: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


def _part(rule: Mapping[str, Any], *fields: str) -> Object:
    return {field: rule[field] for field in fields if rule.get(field)}


def _without_nulls(value: Any) -> Any:
    """Go clients write null where they mean nothing."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
