"""Calls of the kernel that no function needs, refused by seccomp: the second layer where there are namespaces.

A list of what is refused and not of what is allowed: functions are written in any language, and a call that a runtime
of next year makes must not end them. What is refused either changes the machine, looks into other processes, or makes
new namespaces, in which a process has rights again that nobody gave it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from .syscalls import syscall

_MACHINE = os.uname().machine
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(_MACHINE, -1)
_ARCHITECTURE = (0xC000003E, 0xC00000B7)
_X32 = 0x40000000
_SECCOMP = (317, 277)
_SET_FILTER = 1

REFUSED = {
    # mounts and roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # other namespaces
    "unshare": (272, 97),
    "setns": (308, 268),
    # files by number, which leads past every root
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # what belongs to the machine
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "fanotify_init": (300, 262),
    "kcmp": (312, 272),
}
LOOKING = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}
"""Into other processes. The program that moves ports looks into the one it starts."""
ABSENT = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),  # its flags cannot be read here; without it, libraries call clone, whose flags can
    "shmget": (29, 194),  # memory that no limit of a process counts once it is detached
    "msgget": (68, 186),
}
"""Refused as if the kernel did not have them: libraries then do it another way."""
_MEMFD = (319, 279)
_CLONE, _SOCKET, _CONNECT, _IOCTL = (56, 220), (41, 198), (42, 203), (16, 29)
_SENDING = {3: (44, 206), 2: (46, 211)}  # sendto and sendmsg, by which argument their flags are
_SENDMMSG = (307, 269)
_SIGNALLING = ((62, 129), (200, 130), (234, 131), (129, 138), (297, 240), (424, 424))
NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW flag, CLONE_NEWTIME included
FAST_OPEN = 0x20000000
TIOCSTI = 0x5412
_STREAM = 1

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER = 0


def available() -> bool:
    return _COLUMN >= 0


def restrict(
    *,
    families: list[int] | None = None,
    only_streams: bool = False,
    connects: bool = True,
    memory_files: bool = True,
    looks_into: bool = False,
    signals_only: int | None = None,
) -> None:
    """From now on, for this process and what it becomes. Takes `no_new_privs`.

    `families` are those of which sockets can be made, None for all; `only_streams` refuses datagrams among them.
    `connects` false refuses every way to open a connection. `memory_files` false refuses files that are only memory.
    `signals_only` is the one process that can be signalled, where nothing else keeps signals from others.
    """
    program: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURE[_COLUMN]),
        _refuse(errno.ENOSYS),  # calls in the manner of another machine, which have other numbers
        (_LOAD, 0, 0, _NUMBER),
    ]
    if _MACHINE == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)]
    for numbers in (*REFUSED.values(), *(() if looks_into else LOOKING.values())):
        program += [(_EQUAL, 0, 1, numbers[_COLUMN]), _refuse(errno.EPERM)]
    for numbers in (*ABSENT.values(), *(() if memory_files else (_MEMFD,))):
        program += [(_EQUAL, 0, 1, numbers[_COLUMN]), _refuse(errno.ENOSYS)]
    program += _when(_CLONE, 0, [(_ANY_BIT, 0, 1, NEW_NAMESPACES), _refuse(errno.EPERM)])
    program += _when(_IOCTL, 1, [(_EQUAL, 0, 1, TIOCSTI), _refuse(errno.EPERM)])
    if families is not None:
        passing = [(_EQUAL, len(families) - at, 0, family) for at, family in enumerate(families)]
        program += _when(_SOCKET, 0, [*passing, _refuse(errno.EAFNOSUPPORT)])
    if only_streams:
        kind = [(_AND, 0, 0, 0xF), (_EQUAL, 1, 0, _STREAM), _refuse(errno.EACCES)]
        program += _when(_SOCKET, 1, kind)
    if not connects:
        program += [(_EQUAL, 0, 1, _CONNECT[_COLUMN]), _refuse(errno.EACCES)]
        program += [(_EQUAL, 0, 1, _SENDMMSG[_COLUMN]), _refuse(errno.EACCES)]
        for argument, numbers in _SENDING.items():
            program += _when(numbers, argument, [(_ANY_BIT, 0, 1, FAST_OPEN), _refuse(errno.EACCES)])
    if signals_only is not None:
        for numbers in _SIGNALLING:
            program += _when(numbers, 0, [(_EQUAL, 1, 0, signals_only), _refuse(errno.EPERM)])
    program.append((_RETURN, 0, 0, _ALLOW))
    code = b"".join(struct.pack("=HBBI", *each) for each in program)
    held = ctypes.create_string_buffer(code, len(code))
    filtered = struct.pack("@HP", len(program), ctypes.addressof(held))
    syscall(_SECCOMP[_COLUMN], "filter calls", ctypes.c_uint(_SET_FILTER), ctypes.c_uint(0), filtered)


def _refuse(number: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ERRNO | number)


def _when(
    numbers: tuple[int, int], argument: int, checks: list[tuple[int, int, int, int]]
) -> list[tuple[int, int, int, int]]:
    """Check an argument of this call; then go on with the number of the call, whatever it was."""
    load = (_LOAD, 0, 0, 16 + 8 * argument)  # the lower half, on a machine that stores it first
    return [(_EQUAL, 0, len(checks) + 1, numbers[_COLUMN]), load, *checks, (_LOAD, 0, 0, _NUMBER)]
