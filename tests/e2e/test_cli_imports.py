"""What each everyday command may import: a budget in modules, which a loaded machine cannot blur as it does times.

`python -m bench cli` has the times.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.control_plane import Program

SEVEN_STEPS = Path(__file__).parents[2] / "examples" / "seven-steps"
RUN = """
import sys
from planform.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sys.modules, file=sys.stderr)
"""
SERVERS = {"aiohttp", "grpc", "uvloop", "sqlite3", "cryptography", "planform.store", "planform.apiserver"}
"""What serves, pools or stores: tens of milliseconds each."""
TEMPLATES = {"jinja2", "planform.gotemplate", "planform.apimachinery.cel", "planform.apimachinery.schema"}


@pytest.mark.parametrize(
    ("words", "never", "at_most"),
    [
        (["get", "namespaces"], SERVERS | TEMPLATES | {"planform.apimachinery.yaml_loader"}, 300),
        (["get", "namespaces", "-o", "json"], SERVERS | TEMPLATES | {"planform.apimachinery.yaml_loader"}, 300),
        (["trace", "namespace", "default"], SERVERS | TEMPLATES | {"planform.journal"}, 310),
        (["version"], SERVERS | TEMPLATES, 290),
        (["completion", "bash"], SERVERS | TEMPLATES | {"ssl", "yaml", "msgspec"}, 220),
        (["--help"], SERVERS | TEMPLATES | {"asyncio", "ssl", "yaml", "msgspec"}, 170),
        (["render", str(SEVEN_STEPS / "xr.yaml"), str(SEVEN_STEPS / "composition.yaml")], SERVERS, 430),
    ],
    ids=["get", "get as JSON", "trace", "version", "completion", "help", "render"],
)
def test_a_command_imports_no_more_than_it_needs(
    planform: Program, words: list[str], never: set[str], at_most: int
) -> None:
    asking = Program((sys.executable, "-c", RUN), planform.env, planform.directory)
    loaded = asking(*words).err.splitlines()[-1].split()
    assert not never & set(loaded)
    assert len(loaded) <= at_most, sorted(loaded)
