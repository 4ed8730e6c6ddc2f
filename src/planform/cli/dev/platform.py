"""What `planform init` writes: a whole platform that works, is tested, and is small enough to read."""

from __future__ import annotations

import re
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.apimachinery import yaml_loader
from planform.cli.compositions.inference import composition_for, xrd_from
from planform.cli.functions.scaffold import PROJECT, check_function_name
from planform.errors import UsageError

EXAMPLE: Final[Object] = {
    "apiVersion": "platform.example.org/v1",
    "kind": "App",
    "metadata": {"name": "shop", "namespace": "default"},
    "spec": {"team": "checkout", "size": "small"},
}

_FUNCTION = '''"""{function}: composes what {article} {kind} is made of."""

from planform_sdk import Ready, Request, Response, function, serve


@function(deterministic=True)
def compose(req: Request, rsp: Response) -> None:
    """Everything a function does not mention is passed on: other steps' resources stay as they are."""
    spec = req.xr.get("spec")
    rsp.desired.resources["settings"] = {{
        "apiVersion": "v1",
        "kind": "ConfigMap",{namespace}
        "data": {{name: str(value) for name, value in spec.items() if isinstance(value, str | int)}},
    }}
    if "settings" in req.observed.resources:
        rsp.desired.resources["settings"].ready = Ready.TRUE


if __name__ == "__main__":
    serve(compose)
'''

_FUNCTION_TEST = '''"""Run with `python -m pytest`."""

from function import compose
from planform_sdk.testing import assert_resource, converge, run

XR = {xr}


def test_what_the_xr_says_is_in_the_settings() -> None:
    assert_resource(run(compose, xr=XR), "settings", {{"data": {data}}})


def test_it_becomes_ready() -> None:
    assert converge(compose, xr=XR).ready == {{"settings"}}
'''

_META = """apiVersion: meta.pkg.crossplane.io/v1
kind: Function
metadata:
  name: {function}
spec:
  capabilities:
  - composition
  - deterministic
"""

_CI = """# Put planform's wheels of a release into dist/, or install it from wherever your team keeps it.
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
    - uses: actions/checkout@v4
    - uses: actions/setup-python@v5
      with: {{python-version: "3.11"}}
    - run: pip install dist/planform-*.whl dist/planform_sdk-*.whl pytest
    - run: planform validate apis apis,examples
    - run: planform test --junit results.xml
    - run: cd functions/{directory} && python -m pytest
"""

_README = """# {name}

| where | what |
|---|---|
| `apis/` | the API that this platform offers: an XRD, and the Composition that says what an XR is made of |
| `functions/{directory}/` | the function that the Composition calls, in Python, with tests of its own |
| `examples/` | XRs as users write them |
| `tests/` | what must come out of the Composition |

    planform dev .                                  # whatever is saved is applied, and what that changes is shown
    planform test                                   # the Composition's tests
    (cd functions/{directory} && python -m pytest)         # the function's

To run it for others: `planform up`, then

    planform function install functions/{directory} --tag v0.1.0
    planform apply -f apis -f examples
    planform trace {kind_lower} {example}
"""


def platform(name: str, example: Object | None = None) -> dict[str, str]:
    """The files of a new platform by path, around an example XR. Raises UsageError."""
    xr = example or EXAMPLE
    xrd = xrd_from([xr])
    kind = str(xr["kind"])
    directory = f"compose-{kind.lower()}"
    function = f"function-{directory}"
    check_function_name(function)
    composition = composition_for(xrd, functions=[function])
    scalars = {key: str(value) for key, value in (xr.get("spec") or {}).items() if _is_shown(value)}
    namespaced = xrd["spec"]["scope"] == "Namespaced"
    words = {
        "name": name,
        "kind": kind,
        "kind_lower": kind.lower(),
        "article": "an" if kind[0] in "AEIOU" else "a",
        "directory": directory,
        "function": function,
        "example": name_of(xr),
        "namespace": "" if namespaced else '\n        "metadata": {"namespace": "default"},',
        "xr": repr({"spec": xr.get("spec") or {}}),
        "data": repr(scalars),
    }
    home = f"functions/{directory}"
    return {
        "apis/xrd.yaml": yaml_loader.dump(xrd),
        "apis/composition.yaml": yaml_loader.dump(composition),
        f"examples/{name_of(xr)}.yaml": yaml_loader.dump(xr),
        f"{home}/function.py": _FUNCTION.format(**words),
        f"{home}/tests/test_function.py": _FUNCTION_TEST.format(**words),
        f"{home}/package/crossplane.yaml": _META.format(**words),
        f"{home}/pyproject.toml": PROJECT.format(name=function),
        f"tests/{kind.lower()}_test.yaml": yaml_loader.dump(_test(xr, directory, scalars)),
        ".github/workflows/test.yaml": _CI.format(**words),
        "README.md": _README.format(**words),
        ".gitignore": "__pycache__/\n*.xpkg\nresults.xml\n",
    }


def _test(xr: Object, directory: str, scalars: dict[str, str]) -> Object:
    function = f"function-{directory}"
    return {
        "apiVersion": "test.planform.dev/v1alpha1",
        "kind": "CompositionTest",
        "common": {
            "xr": f"../examples/{name_of(xr)}.yaml",
            "composition": "../apis/composition.yaml",
            "function": {function: f"../functions/{directory}/function.py"},
        },
        "cases": [
            {
                "name": "the settings say what the XR says",
                "expect": {"count": 1, "resources": [{"kind": "ConfigMap", "data": scalars}]},
            },
            {
                "name": "it becomes ready",
                "untilStable": True,
                "assertions": ['xr.status.conditions.exists(c, c.type == "Ready" && c.status == "True")'],
            },
        ],
    }


def _is_shown(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool | float)


def example_of(kind: str, group: str) -> Object:
    """The example that a platform begins with if its author has none."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]{0,62}", kind):
        raise UsageError(f'"{kind}" cannot be the name of a kind', hint="one word in capitals, such as Database")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", group) or "." not in group:
        raise UsageError(
            f'"{group}" cannot be the group of an API', hint="a domain of yours, such as platform.example.org"
        )
    metadata = EXAMPLE["metadata"] if kind == "App" else {"name": f"my-{kind.lower()}", "namespace": "default"}
    return {**EXAMPLE, "apiVersion": f"{group}/v1", "kind": kind, "metadata": dict(metadata)}
