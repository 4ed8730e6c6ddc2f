"""The Helm chart in `deploy/helm/planform`, rendered without Helm: it is the one source of what a cluster is given.

`planform install` and the plain manifests come from here, and a test holds the result against the real Helm's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from planform.api.kinds import Object
from planform.apimachinery import yaml_loader
from planform.errors import UsageError
from planform.gotemplate import Record, TemplateError, TemplateSet
from planform.gotemplate.values import Strings

RELEASE: Final = "planform"
_PACKAGED: Final = Path(__file__).parents[2] / "chart"
_CHECKED_OUT: Final = Path(__file__).parents[4] / "deploy" / "helm" / "planform"

_ORDER: Final = (
    "Namespace",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "Deployment",
)
"""What comes first is needed by what comes later; kinds that are not named here come last."""


class Files(Record):
    """`.Files`: what lies in the chart beside its templates."""

    go_type: ClassVar[str] = "engine.files"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, name: str) -> str:
        path = (self._directory / name).resolve()
        if self._directory.resolve() not in path.parents or not path.is_file():
            return ""
        return path.read_text()

    methods: ClassVar[Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]]] = {"Get": (get, ("string",))}

    def go_string(self) -> str:
        return "files"


@dataclass(frozen=True)
class Chart:
    """A chart that was read: its description, its default values and its templates by file name."""

    directory: Path
    about: Mapping[str, Any]
    defaults: Mapping[str, Any]
    templates: Mapping[str, str]

    @property
    def version(self) -> str:
        return str(self.about["appVersion"])


def find_chart() -> Chart:
    """The chart of this planform: the installed package's own, or the checkout's."""
    for directory in (_PACKAGED, _CHECKED_OUT):
        if (directory / "Chart.yaml").is_file():
            return read_chart(directory)
    raise UsageError("this installation has no chart in it", hint="install with Helm from a checkout: deploy/helm")


def read_chart(directory: Path) -> Chart:
    templates = {path.name: path.read_text() for path in sorted((directory / "templates").iterdir())}
    about = yaml_loader.load((directory / "Chart.yaml").read_bytes())
    defaults = yaml_loader.load((directory / "values.yaml").read_bytes())
    return Chart(directory, about, defaults, templates)


def render(
    chart: Chart, values: Mapping[str, Any], *, namespace: str, api_versions: Iterable[str] = ()
) -> list[Object]:
    """The objects of the chart, in the order in which they are needed. Raises UsageError for values it cannot use."""
    check_values(chart.defaults, values)
    data = {
        "Values": merged(chart.defaults, values),
        "Chart": {"Name": chart.about["name"], "Version": chart.about["version"], "AppVersion": chart.version},
        "Release": {"Name": RELEASE, "Namespace": namespace, "Service": "planform"},
        "Capabilities": {"APIVersions": Strings(api_versions)},
        "Files": Files(chart.directory),
    }
    templates = TemplateSet()
    for name, text in chart.templates.items():
        templates.parse(name, text)
    objects: list[Object] = []
    for name in chart.templates:
        if name.endswith(".yaml"):
            try:
                objects += [each for each in yaml_loader.load_all(templates.render(name, data)) if each is not None]
            except (TemplateError, ValueError) as error:
                raise UsageError(f"{name}: {error}", hint="which value is unusual? See values.yaml") from error
    return sorted(objects, key=_place)


def merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values over values: maps are merged, anything else is replaced."""
    result: dict[str, Any] = deepcopy(dict(defaults))
    for key, value in values.items():
        before = result.get(key)
        result[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, Mapping) else value
    return result


def check_values(defaults: Mapping[str, Any], values: Mapping[str, Any], path: str = "") -> None:
    """Raises UsageError for a value that the chart does not know, which is mostly a slip of the pen."""
    for key, value in values.items():
        where = f"{path}.{key}" if path else key
        if key not in defaults:
            raise UsageError(f'there is no value "{where}"', hint=f"known here: {', '.join(sorted(defaults))}")
        if isinstance(defaults[key], dict) and defaults[key] and isinstance(value, Mapping):
            check_values(defaults[key], value, where)


def parse_setting(text: str) -> dict[str, Any]:
    """`a.b=c` as values; what stands behind the = is read as YAML."""
    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")):
        raise UsageError(f'"{text}" sets nothing', hint="write --set image.tag=1.2, with dots between the keys")
    try:
        result = yaml_loader.load(value)
    except ValueError as error:
        raise UsageError(f"--set {text}: {error}") from error
    for key in reversed(path.split(".")):
        result = {key: result}
    made: dict[str, Any] = result
    return made


def _place(obj: Object) -> int:
    return _ORDER.index(obj["kind"]) if obj["kind"] in _ORDER else len(_ORDER)
