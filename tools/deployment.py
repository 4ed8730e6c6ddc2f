"""Writes what is made from the Helm chart for those who use no Helm: deploy/manifests.

    deployment.py          write the files that differ, and say which
    deployment.py --check  exit with 1 if one differs

A test checks the same, and that the real Helm renders the same objects.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from planform.api.kinds import Object
from planform.apimachinery import yaml_loader
from planform.cli.cluster.chart import find_chart, render

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "deploy" / "manifests"
NAMESPACE = "planform-system"
MONITORING = "monitoring.coreos.com/v1"


def manifests() -> dict[Path, str]:
    """The text of each file."""
    chart, values = find_chart(), {"namespace": {"create": True}}
    everything = render(chart, values, namespace=NAMESPACE, api_versions=[MONITORING])
    return {
        MANIFESTS / "planform.yaml": _text(obj for obj in everything if obj["apiVersion"] != MONITORING),
        MANIFESTS / "monitoring.yaml": _text(obj for obj in everything if obj["apiVersion"] == MONITORING),
    }


def _text(objects: Iterable[Object]) -> str:
    head = "# Written by tools/deployment.py from deploy/helm/planform. Change the chart, then run it again.\n"
    return head + "".join(f"---\n{yaml_loader.dump(obj)}" for obj in objects)


def main(arguments: list[str]) -> int:
    differing = [path for path, text in manifests().items() if not path.exists() or path.read_text() != text]
    for path in differing:
        print(f"{'stale' if '--check' in arguments else 'wrote'} {path.relative_to(ROOT)}")
        if "--check" not in arguments:
            path.write_text(manifests()[path])
    return 1 if differing and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
