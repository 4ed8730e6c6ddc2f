"""A file for a command's options: what stands in it is the default that flags and the environment override."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planform.errors import UsageError


def _read(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is None:
        return None
    from planform.apimachinery import yaml_loader

    try:
        settings = yaml_loader.load(path.read_bytes()) or {}
    except ValueError as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{path} must hold one mapping of option names to values")
    known = {option: param.name for param in context.command.params for option in param.opts}
    defaults: dict[str, Any] = {}
    for name, value in settings.items():
        target = known.get(f"--{name}")
        if target is None or name == "config":
            raise UsageError(
                f'{path}: there is no option "{name}"',
                hint="options are spelled as on the command line, without the dashes in front",
            )
        defaults[target] = value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_read,
    help="YAML file with any of these options.",
)
