"""The command line of a function: the flags and environment variables that control planes and packages rely on.

python -m planform_sdk serve my_functions:buckets --insecure
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from planform_sdk.failures import traceback_text, where_raised
from planform_sdk.functions import Function

if TYPE_CHECKING:
    from planform_sdk.server import Settings


class UnknownFunction(Exception):
    """There is no such function to serve."""


def load(reference: str) -> Function:
    """Find a function by `module:name` or `path/to/file.py:name`; without a name, the only one there is."""
    where, _, name = reference.partition(":")
    module = _load_module(where)
    functions = {key: value for key, value in vars(module).items() if isinstance(value, Function)}
    if not name and len(functions) == 1:
        return next(iter(functions.values()))
    found = functions.get(name)
    if found is None:
        there = ", ".join(sorted(functions)) or "none"
        wanted = f'no function "{name}"' if name else "no single function"
        raise UnknownFunction(f'{wanted} in "{where}" (found: {there})')
    return found


def _load_module(where: str) -> ModuleType:
    try:
        if not where.endswith(".py"):
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(where)
        path = Path(where)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.exists():
            raise UnknownFunction(f'no file "{where}"')
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    except ModuleNotFoundError as error:
        raise UnknownFunction(f'cannot import "{where}": {error}{where_raised(error)}') from error


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--address", help="host:port, or the socket's path with --network unix (0.0.0.0:9443)")
    parser.add_argument("--network", choices=("tcp", "unix"), default="tcp", help="what to listen on (tcp)")
    parser.add_argument("--insecure", action="store_true", help="serve without TLS, even if there are certificates")
    parser.add_argument(
        "--tls-certs-dir", type=Path, help="directory of tls.crt, tls.key and ca.crt (env TLS_SERVER_CERTS_DIR)"
    )
    parser.add_argument(
        "--max-recv-message-size", type=int, default=64, metavar="MIB", help="largest message in MiB (64)"
    )
    parser.add_argument("--metrics-address", metavar="HOST:PORT", help="serve Prometheus metrics at /metrics here")
    parser.add_argument("--grace", type=float, default=5.0, metavar="SECONDS", help="time to drain on SIGTERM (5)")
    parser.add_argument("--debug", "-d", action="store_true", help="readable logs, and more of them")


def settings_from(options: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """Flags first, then the environment, then the conventions."""
    from planform_sdk.server import DEFAULT_ADDRESS, ServeError, Settings

    if options.network == "unix" and not options.address:
        raise ServeError("--network unix needs --address, the path of the socket")
    certificates = options.tls_certs_dir or environment.get("TLS_SERVER_CERTS_DIR") or None
    return Settings(
        address=options.address or DEFAULT_ADDRESS,
        network=options.network,
        insecure=options.insecure,
        tls_certs_dir=Path(certificates) if certificates else None,
        max_message_bytes=options.max_recv_message_size << 20,
        grace_seconds=options.grace,
        metrics_address=options.metrics_address,
    )


def serve(function: Function, arguments: Sequence[str] | None = None) -> None:
    """Serve a function as the arguments say; the process's own if none are given."""
    parser = argparse.ArgumentParser(description=f"Serve the composition function {function.name}.")
    add_flags(parser)
    _serve(function, parser.parse_args(arguments))


def _serve(function: Function, options: argparse.Namespace) -> None:
    from planform_sdk.logs import set_up
    from planform_sdk.server import ServeError, run_until_signalled

    set_up(debug=options.debug)
    try:
        asyncio.run(run_until_signalled(function, settings_from(options, os.environ)))
    except ServeError as error:
        raise SystemExit(f"error: {error}") from error


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m planform_sdk", description="Serve composition functions.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("serve", help="serve a function over gRPC")
    command.add_argument("function", help="module:name or path/to/file.py:name")
    add_flags(command)
    options = parser.parse_args(arguments)
    try:
        function = load(options.function)
    except UnknownFunction as error:
        raise SystemExit(f"error: {error}") from error
    except Exception as error:  # whatever the author's module does when it is imported
        raise SystemExit(f"error: cannot import {options.function}\n{traceback_text(error)}") from error
    _serve(function, options)


if __name__ == "__main__":
    main()
