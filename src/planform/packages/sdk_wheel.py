"""A wheel of the SDK that this interpreter has, for builds whose index carries none.

Whoever works in a checkout has an SDK that was never published. A function that was written and tested with it is built
with it too.
"""

from __future__ import annotations

import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

SDK: Final = "planform-sdk"
_MODULE: Final = "planform_sdk"
_WHEEL: Final = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_sdk_wheel(directory: Path) -> bool:
    """Write the wheel into `directory`, which is made; False if this interpreter has no SDK.

    It asks for what the SDK asks for, so pip finds the rest as usual.
    """
    try:
        installed = distribution(SDK)
    except PackageNotFoundError:
        return False
    metadata, spec = installed.read_text("METADATA"), find_spec(_MODULE)
    if metadata is None or spec is None or not spec.submodule_search_locations:
        return False
    package = Path(spec.submodule_search_locations[0])
    name = f"{_MODULE}-{installed.version}"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(directory / f"{name}-py3-none-any.whl", "w") as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path(_MODULE) / path.relative_to(package))
        for file, text in (("METADATA", metadata), ("WHEEL", _WHEEL), ("RECORD", "")):
            archive.writestr(f"{name}.dist-info/{file}", text)
    return True
