"""Models made from schemas: valid, typed, and true to the objects they describe."""

from __future__ import annotations

import copy
import random
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from planform_sdk.models import ModelError, generate

SPEC: dict[str, Any] = {
    "type": "object",
    "description": 'What is wanted. Ends with a "quote"',
    "required": ["region", "class"],
    "properties": {
        "region": {"type": "string", "description": 'Where. Has """quotes""" and a back\\slash.', "enum": ["eu", "us"]},
        "class": {"type": "string", "minLength": 1},
        "size": {"type": "integer", "minimum": 1, "maximum": 10, "exclusiveMaximum": True, "default": 3},
        "ratio": {"type": "number"},
        "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "rules": {
            "type": "array",
            "maxItems": 5,
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        },
        "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "pools": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"dbURL": {"type": "string"}}},
        },
        "note": {"type": "string", "nullable": True},
        "any": {},
        "str": {"type": "string"},
        "x-odd key": {"type": "boolean"},
        "1st": {"type": "integer"},
        "fooBar": {"type": "string"},
        "foo_bar": {"type": "string"},
        "level": {"type": "integer", "enum": [1, 2]},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {"kind": {"type": "string"}},
        },
    },
}
STATUS = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {"region": {"type": "object", "properties": {"zone": {"type": "string"}}}},
}
XRD: dict[str, Any] = {
    "apiVersion": "apiextensions.crossplane.io/v2",
    "kind": "CompositeResourceDefinition",
    "spec": {
        "group": "example.org",
        "names": {"kind": "Bucket", "plural": "buckets"},
        "versions": [
            {"name": "v1alpha1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"old": {}}}}},
            {
                "name": "v1",
                "referenceable": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {"spec": SPEC, "status": STATUS, "metadata": {"type": "object"}},
                    }
                },
            },
        ],
    },
}
BUCKET: dict[str, Any] = {
    "apiVersion": "example.org/v1",
    "kind": "Bucket",
    "metadata": {"name": "b"},
    "spec": {
        "region": "eu",
        "class": "fast",
        "port": "http",
        "ratio": 1,
        "tags": {"a": "b"},
        "rules": [{"name": "one"}],
        "matrix": [[1], []],
        "free": {"x": {"y": 1}},
        "pools": {"main": {"dbURL": "u"}},
        "note": None,
        "any": [1, "a"],
        "str": "s",
        "x-odd key": True,
        "1st": 1,
        "fooBar": "camel",
        "foo_bar": "snake",
        "level": 2,
        "template": {"kind": "K", "more": 1},
    },
}


def module_of(source: str, name: str = "made") -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module  # msgspec looks annotations up there
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module


def test_an_object_read_as_its_model_is_written_as_it_was() -> None:
    made = module_of(generate(XRD))
    bucket = msgspec.convert(BUCKET, made.Bucket)
    assert bucket.spec.region == "eu"
    assert bucket.spec.class_ == "fast"
    assert bucket.spec.pools["main"].db_url == "u"
    assert (bucket.spec.foo_bar, bucket.spec.foo_bar_2) == ("camel", "snake")
    assert bucket.spec.size is msgspec.UNSET
    assert msgspec.to_builtins(bucket) == BUCKET


def test_a_new_object_says_what_it_is_and_only_what_was_set() -> None:
    made = module_of(generate(XRD))
    bucket = made.Bucket(spec=made.BucketSpec(region="us", class_="slow"))
    assert msgspec.to_builtins(bucket) == {
        "apiVersion": "example.org/v1",
        "kind": "Bucket",
        "spec": {"region": "us", "class": "slow"},
    }


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("region", "mars", r"Invalid enum value 'mars' - at `\$.spec.region`"),
        ("size", 10, r"Expected `int` <= 9 - at `\$.spec.size`"),
        ("class", "", r"length >= 1 - at `\$.spec.class`"),
        ("rules", [{}], r"missing required field `name` - at `\$.spec.rules\[0\]`"),
        ("port", 1.5, r"Expected `int | str`"),
        ("1st", "x", r"Expected `int`, got `str` - at `\$.spec.1st`"),
    ],
)
def test_an_object_that_does_not_fit_is_refused_with_the_name_of_the_field(field: str, value: Any, error: str) -> None:
    made = module_of(generate(XRD))
    wrong = copy.deepcopy(BUCKET)
    wrong["spec"][field] = value
    with pytest.raises(msgspec.ValidationError, match=error):
        msgspec.convert(wrong, made.Bucket)


def test_the_source_is_the_same_for_equal_documents_and_passes_mypy(tmp_path: Path) -> None:
    shuffled = copy.deepcopy(XRD)
    spec = shuffled["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"] = dict(reversed(spec["properties"].items()))
    assert generate(XRD) == generate(shuffled)
    path = tmp_path / "made.py"
    path.write_text(generate(XRD))
    strict = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(path)]
    checked = subprocess.run(strict, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_descriptions_become_docstrings_that_cannot_break_out() -> None:
    source = generate(XRD)
    made = module_of(source)
    assert made.BucketSpec.__doc__ == 'What is wanted. Ends with a "quote"'
    assert r'Has \"\""quotes\"\"" and a back\\slash.' in source
    assert "Other fields than these are allowed too" in made.BucketStatus.__doc__
    assert all(len(line) <= 120 for line in source.splitlines())


def test_a_crd_gives_the_stored_version_or_the_one_asked_for() -> None:
    crd = copy.deepcopy(XRD) | {"kind": "CustomResourceDefinition"}
    crd["spec"]["versions"][1] = {**crd["spec"]["versions"][1], "storage": True, "referenceable": None}
    assert 'api_version: str = "example.org/v1"' in generate(crd)
    assert 'api_version: str = "example.org/v1alpha1"' in generate(crd, version="v1alpha1")
    with pytest.raises(ModelError, match=r"no version v9 \(there are: v1alpha1, v1\)"):
        generate(crd, version="v9")


def test_the_schema_of_an_input_gives_a_model_with_defaults() -> None:
    made = module_of(generate(SPEC | {"title": "My Input"}, defaults=True))
    value = msgspec.convert({"region": "eu", "class": "x", "kind": "ignored"}, made.MyInput)
    assert value.size == 3


@pytest.mark.parametrize("document", [{}, {"kind": "Pod"}, {"kind": "CustomResourceDefinition", "spec": {}}], ids=str)
def test_a_document_without_a_schema_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        generate(document)


def test_a_field_that_msgspec_cannot_name_is_refused() -> None:
    with pytest.raises(ModelError, match="T: no model can have a field named"):
        generate({"title": "T", "properties": {'a"b': {}}})


def made_up_schema(randomness: random.Random, depth: int = 3) -> dict[str, Any]:
    kind = randomness.choice(["string", "integer", "number", "boolean"] + ["object", "array"] * (depth > 0))
    schema: dict[str, Any] = {"type": kind, "description": made_up_text(randomness, 40)}
    if kind == "object":
        names = [made_up_name(randomness) for _ in range(randomness.randrange(5))]
        schema["properties"] = {name: made_up_schema(randomness, depth - 1) for name in names if name}
    elif kind == "array":
        schema["items"] = made_up_schema(randomness, depth - 1)
    return schema


def made_up_name(randomness: random.Random) -> str:
    return re.sub(r'["\\\n]', "", made_up_text(randomness, 8))


def made_up_text(randomness: random.Random, maximum: int) -> str:
    """Text with everything in it that could hurt: quotes, escapes, keywords, letters from elsewhere."""
    parts = [
        "a",
        "B",
        "1",
        "_",
        "-",
        " ",
        '"',
        "\\",
        "'",
        "\n",
        "class",
        "None",
        "é",
        "ß",
        "名",
        "{",
        "$",
        '"""',
        "Unset",
    ]
    return "".join(randomness.choices(parts, k=randomness.randrange(maximum)))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_fields_are_called_the_source_is_valid_and_an_empty_object_fits(seed: int) -> None:
    randomness = random.Random(seed)
    names = {made_up_name(randomness) for _ in range(6)} - {""}
    properties = {name: made_up_schema(randomness) for name in sorted(names)}
    made = module_of(generate({"type": "object", "properties": properties, "title": "T"}))
    assert msgspec.to_builtins(msgspec.convert({}, made.T)) == {}
    assert set(made.T.__struct_encode_fields__) == set(properties)
