#!/usr/bin/env python3
"""Write the page's types from the OpenAPI document that the dashboard serves: one place says what an answer looks like.

tools/ui_types.py            write ui/src/types.ts anew
tools/ui_types.py --check    change nothing; exit with 1 if it is not what would be written
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from planform.web.api import openapi

TARGET: Final = Path(__file__).parents[1] / "ui" / "src" / "types.ts"
HEAD: Final = (
    "// Written by tools/ui_types.py from the dashboard's OpenAPI document. Change the Structs, then run it again.\n"
)


def type_of(schema: Mapping[str, Any]) -> str:
    """A JSON Schema as a TypeScript type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(type_of(each) for each in schema["anyOf"])
    match schema.get("type"):
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array" if "prefixItems" in schema:
            return "[" + ", ".join(type_of(each) for each in schema["prefixItems"]) + "]"
        case "array":
            inner = type_of(schema["items"])
            return f"({inner})[]" if " " in inner and not inner.startswith("[") else f"{inner}[]"
        case "object":
            values = schema.get("additionalProperties")
            return f"Record<string, {type_of(values) if isinstance(values, dict) else 'unknown'}>"
    return "unknown"


def typescript(document: Mapping[str, Any]) -> str:
    parts = [HEAD]
    for name, schema in sorted(document["components"]["schemas"].items()):
        about = str(schema.get("description", "")).strip().splitlines()
        if about:
            parts.append(f"/** {about[0]} */")
        optional = name in ("Act", "Login")  # what the page sends may leave out what has a default
        required = set(schema.get("required", ()))
        parts.append(f"export interface {name} {{")
        for field, inner in schema.get("properties", {}).items():
            mark = "?" if optional and field not in required else ""
            parts.append(f"  {field}{mark}: {type_of(inner)};")
        parts.append("}\n")
    return "\n".join(parts)


def main() -> int:
    written = typescript(openapi("0"))
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.read_text() == written else 1
    TARGET.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
