"""A snapshot of a control plane, opened in this process: CI previews changes without credentials for production.

It is an export without Secrets, put into an engine of its own in a directory that goes with the command. So dry runs,
rules and defaults work as they do live, and no controller runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from planform.client.protocol import Client
from planform.clock import SystemClock


@asynccontextmanager
async def opened_snapshot(path: Path) -> AsyncIterator[Client]:
    """The snapshot as a client sees it. Raises UsageError for a file that is none."""
    from planform.app import open_at_rest
    from planform.moving.archive import read_archive
    from planform.moving.importing import import_contents

    contents = read_archive(path)
    with TemporaryDirectory(prefix="planform-snapshot-") as directory:
        async with open_at_rest(Path(directory)) as control_plane:
            await import_contents(control_plane.client, contents, clock=SystemClock(), overwrite=True)
            yield control_plane.client
