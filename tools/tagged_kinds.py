"""The kinds of a provider that have `spec.forProvider.tags` as a map of texts, read from the CRDs of its Go module.

    python tools/tagged_kinds.py MODULE@VERSION SUFFIX

prints lines for `planform/builtin/tag_manager/kinds.py`: a group without SUFFIX, and its kinds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml


def module_directory(module: str) -> Path:
    done = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, check=True)
    return Path(json.loads(done.stdout)["Dir"])


def takes_tags(definition: dict[str, Any]) -> bool:
    schemas = [version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"]]
    for schema in schemas:
        for name in ("spec", "forProvider", "tags"):
            schema = schema.get("properties", {}).get(name, {})
        if schema.get("type") == "object" and "additionalProperties" in schema:
            return True
    return False


def main(module: str, suffix: str) -> None:
    kinds: dict[str, list[str]] = defaultdict(list)
    for file in sorted((module_directory(module) / "package" / "crds").glob("*.yaml")):
        definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if takes_tags(definition):
            kinds[definition["spec"]["group"].removesuffix(f".{suffix}")].append(definition["spec"]["names"]["kind"])
    for group, names in sorted(kinds.items()):
        print(f"{group}: {' '.join(sorted(names))}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
