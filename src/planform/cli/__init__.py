"""The command line. Commands load when they are called, so that `planform version` does not pay for a server."""

from planform.cli.main import main

__all__ = ["main"]
