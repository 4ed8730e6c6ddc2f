"""What a cluster is given comes from one chart, which Helm and planform render alike."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tools import deployment

import planform
from planform.api.kinds import Object
from planform.cli.cluster.chart import find_chart, merged, parse_setting, read_chart, render
from planform.cli.main import root
from planform.errors import UsageError
from tests.harness.programs import programs

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "planform"
NAMESPACE = "somewhere"

VALUES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "defaults": ({}, []),
    "everything-on": (
        {
            "namespace": {"create": True},
            "image": {"repository": "registry:5000/planform", "digest": "sha256:abc"},
            "pullSecrets": ["pull"],
            "replicas": 5,
            "controllers": {
                "takeOver": True,
                "featureGates": {"FunctionRevisionSelectors": False},
                "functionNetwork": "none",
                "extraArgs": ["--log-level=debug"],
                "extraEnv": [{"name": "A", "value": "b: c"}],
            },
            "serviceAccount": {"name": "other", "annotations": {"a.b/c": "d"}},
            "rbac": {"composed": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]}]},
            "podLabels": {"team": "web"},
            "podAnnotations": {"note": 'it\'s "quoted"'},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "system-cluster-critical",
            "monitoring": {"labels": {"release": "prometheus"}},
        },
        [deployment.MONITORING],
    ),
    "shards": ({"controllers": {"shards": 3, "extraEnv": [{"name": "A", "value": "b"}]}, "replicas": 9}, []),
    "everything-off": (
        {
            "rbac": {"manageRoles": False, "blueprints": False},
            "webhook": {"enabled": False},
            "podDisruptionBudget": {"enabled": False},
            "monitoring": {"enabled": False},
        },
        [],
    ),
}


@pytest.mark.parametrize("case", VALUES)
def test_helm_renders_what_planform_does(case: str, tmp_path: Path) -> None:
    values, served = VALUES[case]
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    flags = [flag for version in served for flag in ("--api-versions", version)]
    theirs = helm("template", "planform", str(CHART), "--namespace", NAMESPACE, "--values", str(file), *flags)
    ours = render(read_chart(CHART), values, namespace=NAMESPACE, api_versions=served)
    assert by_name(yaml.safe_load_all(theirs)) == by_name(ours)
    assert len(ours) > 15


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_plain_manifests_are_what_the_chart_gives() -> None:
    assert [path.name for path, text in deployment.manifests().items() if path.read_text() != text] == [], (
        "run tools/deployment.py"
    )
    given = helm("template", "planform", str(CHART), "--namespace", deployment.NAMESPACE)
    written = by_name(yaml.safe_load_all((deployment.MANIFESTS / "planform.yaml").read_text()))
    namespace = written.pop(("Namespace", deployment.NAMESPACE))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert written == by_name(yaml.safe_load_all(given))


def test_the_chart_is_of_this_version() -> None:
    chart = find_chart()
    assert chart.version == planform.__version__ == chart.about["version"]


def test_the_controllers_know_every_argument_that_they_are_given() -> None:
    controllers = root.get_command(click.Context(root), "controllers")
    assert controllers is not None
    known = {flag for option in controllers.params for flag in option.opts}
    for given, served in VALUES.values():
        objects = by_name(render(find_chart(), given, namespace=NAMESPACE, api_versions=served))
        [workload] = [obj for (kind, _), obj in objects.items() if kind in ("Deployment", "StatefulSet")]
        container = workload["spec"]["template"]["spec"]["containers"][0]
        command, *flags = container["args"]
        assert command == "controllers"
        assert {flag.partition("=")[0] for flag in flags} <= known


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_alerts_and_dashboards_ask_for_metrics_that_there_are(file: str) -> None:
    table = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", table, re.MULTILINE)
    known = {name: set(re.findall(r"`(\w+)`", labels)) | {"le", "pod"} for name, _, labels in rows}
    for name, kind, _ in rows:
        if kind == "histogram":
            known |= {f"{name}_{part}": known[name] for part in ("bucket", "sum", "count")}
    expressions = questions(yaml.safe_load((CHART / "files" / file).read_text()))
    assert len(expressions) > 5
    for expression in expressions:
        named = set(re.findall(r"\b(?:planform|function)_\w+\b", expression))
        metrics = {name for name in named if name not in {"function_name", "function_revision"}}
        assert metrics, expression
        assert metrics <= set(known), expression
        labels = {
            label
            for group in re.findall(r"by \(([^)]*)\)|\{([^}]*)\}", expression)
            for label in re.findall(r"(?:^|[\s,])(\w+)(?=\s*(?:,|$|=|!))", " ".join(group))
        }
        assert labels <= set().union(*(known[name] for name in metrics)), expression


def questions(value: Any) -> list[str]:
    """Every PromQL expression in a document."""
    if isinstance(value, dict):
        own = [value["expr"]] if isinstance(value.get("expr"), str) else []
        return own + [found for each in value.values() for found in questions(each)]
    return [found for each in value for found in questions(each)] if isinstance(value, list) else []


def test_a_value_that_the_chart_does_not_know_is_refused() -> None:
    with pytest.raises(UsageError, match=r'no value "image\.tagg"') as refused:
        render(find_chart(), {"image": {"tagg": "1"}}, namespace=NAMESPACE)
    assert "repository" in str(refused.value.hint)


def test_settings_are_read_as_yaml_and_merged() -> None:
    values = merged(parse_setting("image.tag=1.2"), parse_setting("image.pullPolicy=Always"))
    assert values == {"image": {"tag": 1.2, "pullPolicy": "Always"}}
    for wrong in ("image.tag", "=1", "a..b=1"):
        with pytest.raises(UsageError):
            parse_setting(wrong)


def test_the_unit_in_the_guide_is_the_one_that_we_ship() -> None:
    guide = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text()
    found = re.search(r"```ini\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    assert found[1] == (ROOT / "deploy" / "systemd" / "planform.service").read_text()


def test_the_image_is_built_from_files_that_there_are() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    assert copied
    assert [name for names in copied for name in names if not (ROOT / name).exists()] == []
    assert 'ENTRYPOINT ["planform"]' in lines
    assert "USER 65532:65532" in lines


def by_name(objects: Any) -> dict[tuple[str, str], Object]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects if obj}


def helm(*arguments: str) -> str:
    command = [str(programs("helm") / "helm"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
