"""Make everything that follows from `proto/v1/run_function.proto`: the v1beta1 twin, the descriptors, the type stubs.

    python sdk/tools/generate_proto.py [--check]

Needs grpcio-tools, which only this script uses. `--check` writes nothing and fails if a file is out of date.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

PROTO = Path(__file__).resolve().parents[1] / "src" / "planform_sdk" / "proto"
SOURCE = PROTO / "v1" / "run_function.proto"
STUB_HEAD = b"""# Made by sdk/tools/generate_proto.py.
# mypy: disable-error-code="type-arg"
# ruff: noqa
# fmt: off
"""


def generate() -> dict[Path, bytes]:
    """Give the content of every file that follows from the source."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    source = SOURCE.read_text()
    beta = _beta(source)
    made = {PROTO / "v1beta1" / "run_function.proto": beta.encode()}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for version, text in (("v1", source), ("v1beta1", beta)):
            folder = root / "planform_sdk" / "proto" / version
            folder.mkdir(parents=True)
            (folder / "run_function.proto").write_text(text)
        protos = [f"planform_sdk/proto/{version}/run_function.proto" for version in ("v1", "v1beta1")]
        well_known = files("grpc_tools") / "_proto"
        arguments = ["protoc", f"-I{root}", f"-I{well_known}", f"--pyi_out={root}"]
        arguments += [f"--descriptor_set_out={root}/descriptors.binpb", "--include_imports", *protos]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc refused the source")
        made[PROTO / "descriptors.binpb"] = (root / "descriptors.binpb").read_bytes()
        for version in ("v1", "v1beta1"):
            stub = (root / "planform_sdk" / "proto" / version / "run_function_pb2.pyi").read_bytes()
            made[PROTO / version / "__init__.pyi"] = STUB_HEAD + stub
    return made


def _beta(source: str) -> str:
    """The v1beta1 text: another package, and a head that says where the file comes from."""
    head, _, rest = source.partition('syntax = "proto3";')
    if not head or not rest:
        raise SystemExit(f"{SOURCE} has no syntax line")
    body = rest.replace("package apiextensions.fn.proto.v1;", "package apiextensions.fn.proto.v1beta1;")
    return '// Made from ../v1/run_function.proto by sdk/tools/generate_proto.py.\n\nsyntax = "proto3";' + body


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a file is out of date")
    options = parser.parse_args()
    stale = {path: new for path, new in generate().items() if not path.exists() or path.read_bytes() != new}
    for path, content in stale.items():
        print(f"{'out of date' if options.check else 'wrote'}: {path.relative_to(PROTO)}")
        if not options.check:
            path.write_bytes(content)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
