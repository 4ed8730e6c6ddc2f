"""Requests for patch-and-transform as a composition might make them, from a seed: mostly sensible, partly not."""

from __future__ import annotations

import random
from typing import Any

from planform.functions.values import FunctionRequest, Object, Ready, Resource, State

ENVIRONMENT = "apiextensions.crossplane.io/environment"

TEXTS = ("blue", "eu-west-1", "Team A", "12", "true", "1Gi", "aGVsbG8=", '{"a":[1]}', "[1,2]", "", "x<y>&z")
PATHS = (
    *("spec.text", "spec.other", "spec.number", "spec.ratio", "spec.flag", "spec.object", "spec.list", "spec.texts"),
    *("spec.nothing", "spec.missing", "spec.missing.deeper", "spec.object.a", "spec.object.deep.b", "spec.list[0]"),
    *("spec.list[7]", "spec.text.x", "metadata.name", "metadata.labels[example.org/team]", "spec.list[0].name"),
)
TARGETS = (
    *("spec.a", "spec.b.c", "spec.object", "spec.list", "spec.list[1]", "spec.list[3].x", "spec.rules[*].port"),
    *("spec.rules[*].missing", "metadata.labels[example.org/x]", "metadata.annotations[y]", "spec.text", "spec.text.x"),
    "spec.object.deep.z",
)
POLICIES = (
    *("Replace", "MergeObjects", "ForceMergeObjects", "MergeObjectsAppendArrays", "ForceMergeObjectsAppendArrays"),
    *("MergeObject", "AppendArray"),
)
TRANSFORMS: tuple[Object, ...] = (
    {"type": "string", "string": {"type": "Format", "fmt": "pre-%v-post"}},
    {"type": "string", "string": {"type": "Format", "fmt": "%v|%v"}},
    {"type": "string", "string": {"type": "Format", "fmt": "%s"}},
    *(
        {"type": "string", "string": {"type": "Convert", "convert": kind}}
        for kind in ("ToUpper", "ToLower", "ToBase64", "FromBase64", "ToJson", "ToSha1", "ToSha256", "ToAdler32")
    ),
    {"type": "string", "string": {"type": "TrimPrefix", "trim": "eu-"}},
    {"type": "string", "string": {"type": "TrimSuffix", "trim": "1"}},
    {"type": "string", "string": {"type": "Regexp", "regexp": {"match": "([a-z]+)-([a-z]+)?", "group": 1}}},
    {"type": "string", "string": {"type": "Regexp", "regexp": {"match": "[0-9]+"}}},
    {"type": "map", "map": {"blue": "red", "eu-west-1": {"zone": ["a", "b"]}, "12": 12, "true": True}},
    {
        "type": "match",
        "match": {
            "patterns": [
                {"type": "literal", "literal": "blue", "result": {"colour": 1}},
                {"type": "regexp", "regexp": "^eu-", "result": "europe"},
            ],
            "fallbackValue": "elsewhere",
        },
    },
    {
        "type": "match",
        "match": {"patterns": [{"type": "literal", "literal": "12", "result": None}], "fallbackTo": "Input"},
    },
    {"type": "math", "math": {"type": "Multiply", "multiply": 3}},
    {"type": "math", "math": {"type": "ClampMin", "clampMin": 5}},
    {"type": "math", "math": {"type": "ClampMax", "clampMax": 2}},
    *({"type": "convert", "convert": {"toType": kind}} for kind in ("string", "int64", "int", "float64", "bool")),
    {"type": "convert", "convert": {"toType": "float64", "format": "quantity"}},
    {"type": "convert", "convert": {"toType": "object", "format": "json"}},
    {"type": "convert", "convert": {"toType": "array", "format": "json"}},
)
CHECKS: tuple[Object, ...] = (
    {"type": "None"},
    {"type": "NonEmpty", "fieldPath": "status.address"},
    {"type": "MatchString", "fieldPath": "status.state", "matchString": "RUNNING"},
    {"type": "MatchTrue", "fieldPath": "status.up"},
    {"type": "MatchFalse", "fieldPath": "status.up"},
    {"type": "MatchCondition", "matchCondition": {"type": "Ready", "status": "True"}},
    {"type": "MatchCondition", "matchCondition": {"type": "Synced", "status": "Unknown"}},
    {"type": "MatchString", "fieldPath": "status.up", "matchString": "yes"},
)
DETAILS: tuple[Object, ...] = (
    {"name": "user", "type": "FromConnectionSecretKey", "fromConnectionSecretKey": "username"},
    {"name": "none", "type": "FromConnectionSecretKey", "fromConnectionSecretKey": "nope"},
    {"name": "address", "type": "FromFieldPath", "fromFieldPath": "status.address"},
    {"name": "conditions", "type": "FromFieldPath", "fromFieldPath": "status.conditions"},
    {"name": "missing", "type": "FromFieldPath", "fromFieldPath": "status.missing"},
    {"name": "scheme", "type": "FromValue", "value": "https"},
)


class Author:
    """Writes requests; the same seed writes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self) -> FunctionRequest:
        pick = self._random
        names = [f"r{number}" for number in range(pick.randint(1, 4))]
        sets = [{"name": "shared", "patches": self._patches(pick.randint(1, 2))}]
        spec: Object = {
            "apiVersion": "pt.fn.crossplane.io/v1beta1",
            "kind": "Resources",
            "patchSets": sets,
            "resources": [self._template(name) for name in names],
        }
        if pick.random() < 0.4:
            spec["environment"] = {"patches": [self._environment_patch() for _ in range(pick.randint(1, 2))]}
        environment = self._object("internal.crossplane.io/v1alpha1", "Environment", "environment")
        context: Object = {"example.org/other": "stays", ENVIRONMENT: environment}
        return FunctionRequest(
            observed=State(
                Resource(self._object("example.org/v1", "XThing", "xr")),
                {name: self._observed(name) for name in names if pick.random() < 0.6},
            ),
            desired=State(
                Resource({"apiVersion": "example.org/v1", "kind": "XThing", "status": {"earlier": "kept"}}),
                {name: self._earlier(name) for name in (*names, "passed-on") if pick.random() < 0.4},
            ),
            input=spec,
            context=context,
            tag="tag",
        )

    def _template(self, name: str) -> Object:
        pick = self._random
        made: Object = {"name": name, "patches": self._patches(pick.randint(0, 4))}
        if pick.random() < 0.96:
            made["base"] = self._base(name)
        if pick.random() < 0.4:
            made["patches"].insert(0, {"type": "PatchSet", "patchSetName": "shared"})
        if pick.random() < 0.6:
            made["readinessChecks"] = pick.sample(CHECKS, pick.randint(1, 2))
        if pick.random() < 0.5:
            made["connectionDetails"] = pick.sample(DETAILS, pick.randint(1, 4))
        return made

    def _patches(self, count: int) -> list[Object]:
        ways, places = ("From", "From", "To"), ("Composite", "Composite", "Environment")
        return [self._patch(self._random.choice(ways), self._random.choice(places)) for _ in range(count)]

    def _patch(self, way: str, place: str) -> Object:
        pick = self._random
        made: Object
        if pick.random() < 0.3:
            count = pick.randint(1, 3)
            made = {
                "type": f"Combine{way}{place}",
                "combine": {
                    "variables": [{"fromFieldPath": self._path()} for _ in range(count)],
                    "strategy": "string",
                    "string": {"fmt": "-".join(["%v"] * count)},
                },
                "toFieldPath": pick.choice(TARGETS[:4]),
            }
        else:
            made = {"type": f"{way}{place}FieldPath", "fromFieldPath": self._path()}
            if pick.random() < 0.9:
                made["toFieldPath"] = pick.choice(TARGETS if pick.random() < 0.15 else TARGETS[:4])
        if pick.random() < 0.2:
            made["transforms"] = [pick.choice(TRANSFORMS) for _ in range(pick.choice((1, 1, 2)))]
        policy = {}
        if pick.random() < 0.2:
            policy["fromFieldPath"] = pick.choice(("Required", "Optional"))
        if pick.random() < 0.3 and "combine" not in made:
            policy["toFieldPath"] = pick.choice(POLICIES)
        return {**made, "policy": policy} if policy else made

    def _environment_patch(self) -> Object:
        kind = self._random.choice(("FromCompositeFieldPath", "ToCompositeFieldPath"))
        return {"type": kind, "fromFieldPath": self._path(), "toFieldPath": self._random.choice(TARGETS[:4])}

    def _path(self) -> str:
        """Mostly one that exists, so that not every request ends early."""
        return self._random.choice(PATHS if self._random.random() < 0.12 else PATHS[:8])

    def _object(self, api_version: str, kind: str, name: str) -> Object:
        pick = self._random
        spec: dict[str, Any] = {
            "text": pick.choice(TEXTS),
            "other": pick.choice(TEXTS),
            "number": pick.choice((0, 1, 3, 42, -7)),
            "ratio": pick.choice((0.5, 1.25, -2.75)),
            "flag": pick.random() < 0.5,
            "object": {"a": pick.choice(TEXTS), "deep": {"b": pick.choice((1, 2))}, "zero": 0},
            "list": pick.choice(([1, 2], [{"name": "n"}], [], ["a", "b", "a"])),
            "texts": ["one", "two"],
            "nothing": None,
        }
        labels = {"example.org/team": "blue"} if pick.random() < 0.7 else {}
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, "labels": labels},
            "spec": {key: value for key, value in spec.items() if pick.random() < 0.9},
        }

    def _base(self, name: str) -> Object:
        pick = self._random
        base: Object = {"apiVersion": "example.org/v1", "kind": "Thing"}
        if pick.random() < 0.5:
            base["metadata"] = {"name": f"base-{name}", "labels": {"tier": "x"}}
        if pick.random() < 0.8:
            base["spec"] = {
                "text": "base",
                "object": {"a": "", "c": 1, "deep": {"b": 9}},
                "list": [1, "a"],
                "rules": [{"port": 1}, {"port": 2}, {"other": 3}],
            }
        return base

    def _observed(self, name: str) -> Resource:
        pick = self._random
        found = self._object("example.org/v1", "Thing", f"xr-{name}")
        if pick.random() < 0.8:
            conditions = [{"type": "Ready", "status": pick.choice(("True", "False"))}] if pick.random() < 0.8 else []
            found["status"] = {
                "state": pick.choice(("RUNNING", "STARTING")),
                "up": pick.random() < 0.5,
                "address": "10.0.0.1",
                "conditions": conditions,
            }
        details = {"username": b"admin", "binary": b"\x00\xff"} if pick.random() < 0.5 else {}
        return Resource(found, details)

    def _earlier(self, name: str) -> Resource:
        made = {"apiVersion": "example.org/v1", "kind": "Thing", "spec": {"from": f"an earlier step for {name}"}}
        return Resource(made, ready=self._random.choice((Ready.UNSPECIFIED, Ready.TRUE)))
