"""The functions that ship with planform, one folder each; they run in this process on plain values.

`find_builtin` is the door. A function's module is imported when the function is first asked for.
"""

from __future__ import annotations

from planform.builtin.catalogue import BuiltinName, find_builtin, find_builtin_name, list_builtins

__all__ = ["BuiltinName", "find_builtin", "find_builtin_name", "list_builtins"]
