"""Which calls of the kernel a container may not make: the sandbox's own list, in the words of the OCI runtime spec.

A list of what is refused, for the reason that the sandbox has one: images are written in any language, and a call that
a runtime of next year makes must not end them. The filter is for the machine's own kind of calls; those in the manner
of another one, whose numbers are others, end the program.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from typing import Any, Final

from planform.api.kinds import Object
from planform.sandbox.confinement import seccomp

_ARCHITECTURES: Final = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_EPERM, _EACCES, _ENOSYS, _EAFNOSUPPORT = 1, 13, 38, 97
_AF_UNIX, _AF_ALG, _AF_VSOCK = 1, 38, 40
_SOCK_DGRAM, _SOCK_RAW, _KIND = 2, 3, 0xF
_WORD: Final = 0xFFFFFFFF
_ASK_SECONDS: Final = 10.0


@cache
def can_filter_calls(runc: str) -> bool:
    """Whether this runc was built with seccomp, and we know this machine's calls. Waits for it, the first time."""
    if os.uname().machine not in _ARCHITECTURES:
        return False
    try:
        told = subprocess.run([runc, "--version"], capture_output=True, check=False, timeout=_ASK_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(line.startswith(b"libseccomp:") for line in told.splitlines())


def refused_calls(*, unix_sockets: bool, connects: bool = True) -> Object:
    """`linux.seccomp` of a container. `unix_sockets` false refuses them: with the network of the machine, a container
    shares its abstract ones. `connects` false leaves of that network that it can be called."""
    families = [_AF_ALG, _AF_VSOCK, *([] if unix_sockets else [_AF_UNIX])]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [_ARCHITECTURES[os.uname().machine]],
        "syscalls": [
            _refused([*seccomp.REFUSED, *seccomp.LOOKING], _EPERM),
            _refused([*seccomp.ABSENT], _ENOSYS),
            # One rule for each flag: a rule can ask whether all of some bits are set, but not whether any is.
            *(_refused(["clone"], _EPERM, _masked(0, flag, flag)) for flag in _bits(seccomp.NEW_NAMESPACES)),
            _refused(["ioctl"], _EPERM, _masked(1, _WORD, seccomp.TIOCSTI)),
            *(_refused(["socket"], _EAFNOSUPPORT, _masked(0, _WORD, family)) for family in families),
            *([] if connects else _calling()),
        ],
    }


def _calling() -> list[dict[str, Any]]:
    """Every way to send something to somebody who did not call."""
    return [
        _refused(["connect", "sendmmsg"], _EACCES),
        *(_refused(["socket"], _EACCES, _masked(1, _KIND, kind)) for kind in (_SOCK_DGRAM, _SOCK_RAW)),
        _refused(["sendto"], _EACCES, _masked(3, seccomp.FAST_OPEN, seccomp.FAST_OPEN)),
        _refused(["sendmsg"], _EACCES, _masked(2, seccomp.FAST_OPEN, seccomp.FAST_OPEN)),
    ]


def _refused(names: list[str], number: int, *arguments: dict[str, Any]) -> dict[str, Any]:
    rule = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": number}
    return {**rule, "args": list(arguments)} if arguments else rule


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    """Of an argument, the kernel looks at its lower half; what is in the other one must not matter."""
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _bits(flags: int) -> list[int]:
    return [1 << at for at in range(flags.bit_length()) if flags >> at & 1]
