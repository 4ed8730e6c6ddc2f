"""Runs a command where the kernel refuses some of what sandboxes are made of, as containers and hardened systems do.

    python -m tests.harness.without [--landlock] COMMAND...

Namespaces and mounts are refused; with `--landlock`, Landlock as well.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_COLUMN = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine, 0)
_NUMBERS = {"mount": (165, 40), "pivot_root": (155, 41), "unshare": (272, 97), "setns": (308, 268)}
_LANDLOCK = (444, 444)
_CLONE, _CLONE3 = (56, 220), (435, 435)
_NEW_NAMESPACES = 0x7E020080
_PR_SET_NO_NEW_PRIVS = 38


def refuse(*, landlock: bool) -> None:
    """From now on, for this process and all it starts."""

    def returned(number: int) -> tuple[int, int, int, int]:
        return (0x06, 0, 0, 0x00050000 | number)

    program: list[tuple[int, int, int, int]] = [(0x20, 0, 0, 0)]
    for numbers in (*_NUMBERS.values(), *((_LANDLOCK,) if landlock else ())):
        program += [(0x15, 0, 1, numbers[_COLUMN]), returned(errno.EPERM)]
    program += [(0x15, 0, 1, _CLONE3[_COLUMN]), returned(errno.ENOSYS)]
    program += [(0x15, 0, 3, _CLONE[_COLUMN]), (0x20, 0, 0, 16), (0x45, 0, 1, _NEW_NAMESPACES), returned(errno.EPERM)]
    program.append((0x06, 0, 0, 0x7FFF0000))
    code = b"".join(struct.pack("=HBBI", *each) for each in program)
    held = ctypes.create_string_buffer(code, len(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(22, 2, struct.pack("@HP", len(program), ctypes.addressof(held))) != 0:
        raise OSError(ctypes.get_errno(), "cannot refuse calls")


if __name__ == "__main__":
    words = sys.argv[1:]
    refuse(landlock="--landlock" in words)
    command = [word for word in words if word != "--landlock"]
    os.execvp(command[0], command)
