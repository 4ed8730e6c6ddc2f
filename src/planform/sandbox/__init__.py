"""Child processes that may be wrong, slow or hostile: bounded in memory, time and output, and cut off where possible.

limits        what a child may use and see
isolation     how this machine can cut a child off, and the command line that does it
launch        the program between us and the child; it applies the limits and becomes the child
ports         another one, for children that would listen on all addresses
child         one process: its start, its end
once          run a command to its end: bytes in, bytes out
supervised    keep a server running: restarts with backoff, last log lines
"""

from planform.sandbox.isolation import Isolation, available_isolation, detect_isolation
from planform.sandbox.limits import Limits
from planform.sandbox.once import Ended, Finished, run_once
from planform.sandbox.supervised import Supervised

__all__ = [
    "Ended",
    "Finished",
    "Isolation",
    "Limits",
    "Supervised",
    "available_isolation",
    "detect_isolation",
    "run_once",
]
