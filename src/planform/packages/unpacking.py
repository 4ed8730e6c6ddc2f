"""The program of a package, unpacked: what a control plane runs, and what `render` and `function test` run too."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from planform.packages.blobs import Image
from planform.packages.extraction import extract_image
from planform.packages.payloads import PAYLOAD_ROOT, Payload, RuntimeKind, command_in, payload_of, unpack_process
from planform.packages.runtimes.executables import Executable, Way


def unpack_program(
    image: Image, root: Path, *, before_it_counts: Callable[[Path], None] = lambda _: None
) -> Executable | None:
    """The program in an image, its files below `root`; None if it has none. What is there already is used as it is.

    It is unpacked beside `root` and renamed once it is whole, after `before_it_counts`: whatever is found at `root` is
    complete. Raises what unpacking raises.
    """
    payload = payload_of(image)
    if payload is None:
        return None
    if not root.is_dir():
        fresh = root.with_name(f".{root.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            if payload.kind is RuntimeKind.PROCESS:
                unpack_process(image, fresh)
            else:
                extract_image(image, fresh)
            before_it_counts(fresh)
            fresh.rename(root)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # if it was refused
    return _executable(payload, root, image.settings)


def _executable(payload: Payload, root: Path, settings: Mapping[str, Any]) -> Executable:
    if payload.kind is RuntimeKind.PROCESS:
        command = command_in(payload, root / PAYLOAD_ROOT)
        return Executable(Way.PROCESS, root, command.arguments, dict(command.environment), str(command.directory))
    way = Way.CONTAINER if payload.kind is RuntimeKind.CONTAINER else Way.CONTAINER_ONESHOT
    entrypoint = (*(settings.get("Entrypoint") or ()), *(settings.get("Cmd") or ()))
    variables = dict(str(each).partition("=")[::2] for each in settings.get("Env") or ())
    return Executable(way, root, tuple(map(str, entrypoint)), variables, str(settings.get("WorkingDir") or ""))
