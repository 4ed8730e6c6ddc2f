"""Looking at a change before it touches anything: recorded runs are run again with what is to come.

`replays` runs a step again on what it was sent; `differences` says how two answers differ.
"""

from typing import Final

FUNCTION_DIFFS_PREFIX: Final = ("planform", "v1", "function-diffs")
FUNCTION_DIFFS_PATH: Final = "/" + "/".join(FUNCTION_DIFFS_PREFIX)
"""Where a control plane answers what another revision of a function would do differently."""
