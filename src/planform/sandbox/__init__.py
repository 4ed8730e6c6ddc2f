"""Child processes that may be wrong, slow or hostile: bounded in memory, time and output, and cut off where possible.

limits        what a child may use and see
isolation     how this machine can cut a child off, and what the spawner is told to do it
visible       what of this machine a child may see
spawning      our side of the spawner, the process that children come from; its own side is in confinement/
ports         a program for children that would listen on all addresses
leftovers     what killed control planes left behind
child         one process: its start, its end
once          run a command to its end: bytes in, bytes out, at once or as they come
supervised    keep a server running: restarts with backoff, last log lines
"""

from planform.sandbox.isolation import (
    Isolation,
    SandboxUnavailable,
    available_isolation,
    best_isolation,
    detect_isolation,
)
from planform.sandbox.limits import Limits, Network
from planform.sandbox.once import Ended, Finished, run_in_sandbox, run_once
from planform.sandbox.supervised import Supervised

__all__ = [
    "Ended",
    "Finished",
    "Isolation",
    "Limits",
    "Network",
    "SandboxUnavailable",
    "Supervised",
    "available_isolation",
    "best_isolation",
    "detect_isolation",
    "run_in_sandbox",
    "run_once",
]
