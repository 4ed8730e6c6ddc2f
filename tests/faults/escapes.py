"""Attempts to get out of the sandbox, or to use more than it allows. Runs inside of it, with the standard library only.

    python escapes.py '{"secret": PATH, "pid": PID, ...}'

Prints what came of each as JSON: `held`, or `escaped` with what it got. Each attempt is a process of its own, as some
of them end it; that counts as held.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
ATTEMPTS: dict[str, Callable[[dict[str, Any]], object]] = {}


def attempt(function: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    """What it returns is what it got; nothing, or an OSError, means that it held."""
    ATTEMPTS[function.__name__] = function
    return function


def call(name: str, *arguments: Any) -> bool:
    """Whether the kernel did it."""
    return bool(getattr(libc, name)(*arguments) == 0)


def number(x86: int, arm: int) -> int:
    return x86 if os.uname().machine == "x86_64" else arm


# -- files


def read(path: str) -> object:
    with open(path, "rb") as file:  # noqa: PTH123
        return len(file.read(100))


@attempt
def read_kubeconfig(given: dict[str, Any]) -> object:
    return read(given["kubeconfig"])


@attempt
def read_authority_key(given: dict[str, Any]) -> object:
    return read(given["key"])


@attempt
def read_shadow(_: dict[str, Any]) -> object:
    return read("/etc/shadow")


@attempt
def list_home(given: dict[str, Any]) -> object:
    """An interpreter that is installed in a home is there to be run; nothing beside it is."""
    found = set(os.listdir(given["home"])) - set(given["interpreter"])  # noqa: PTH208
    if not found:
        raise FileNotFoundError(given["home"])
    return found


@attempt
def read_in_home(given: dict[str, Any]) -> object:
    return read(given["in_home"])


@attempt
def list_etc_ssh(_: dict[str, Any]) -> object:
    return os.listdir("/etc/ssh")  # noqa: PTH208


@attempt
def list_private_keys(_: dict[str, Any]) -> object:
    return os.listdir("/etc/ssl/private")  # noqa: PTH208


@attempt
def list_tmp_of_the_machine(given: dict[str, Any]) -> object:
    return given["marker"] in os.listdir("/tmp") or None  # noqa: PTH208


@attempt
def read_by_root_of_another(given: dict[str, Any]) -> object:
    return read(f"/proc/{given['pid']}/root{given['kubeconfig']}")


@attempt
def read_by_first_process(_: dict[str, Any]) -> object:
    return read("/proc/1/root/etc/shadow")


@attempt
def read_by_directory_of_another(given: dict[str, Any]) -> object:
    return os.listdir(f"/proc/{given['pid']}/cwd/")  # noqa: PTH208


@attempt
def read_environment_of_another(given: dict[str, Any]) -> object:
    return read(f"/proc/{given['pid']}/environ")


@attempt
def open_by_handle(given: dict[str, Any]) -> object:
    class Handle(ctypes.Structure):
        _fields_ = (("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128))

    handle = Handle(128, 0)
    if libc.name_to_handle_at(-100, b"/usr", ctypes.byref(handle), ctypes.byref(ctypes.c_int()), 0) != 0:
        return None
    return libc.open_by_handle_at(-100, ctypes.byref(handle), os.O_RDONLY) >= 0 or None


@attempt
def write_a_program(_: dict[str, Any]) -> object:
    with open("/usr/bin/planted", "w") as file:  # noqa: PTH123
        return file.write("x")


@attempt
def write_beside_our_files(given: dict[str, Any]) -> object:
    with open(given["code"] + "/planted.py", "w") as file:  # noqa: PTH123
        return file.write("x")


@attempt
def change_the_kernel(_: dict[str, Any]) -> object:
    with open("/proc/sys/kernel/core_pattern", "w") as file:  # noqa: PTH123
        return file.write("|/tmp/x")


@attempt
def make_a_device(_: dict[str, Any]) -> object:
    os.mknod("disk", 0o600 | 0o060000, os.makedev(254, 0))
    os.close(os.open("disk", os.O_RDONLY))
    return "a disk"


@attempt
def read_the_disk(_: dict[str, Any]) -> object:
    return [name for name in ("/dev/vda", "/dev/sda", "/dev/mem", "/dev/kmsg") if os.open(name, os.O_RDONLY) >= 0]


# -- sockets and network


def connect(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> object:
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        return "connected"


@attempt
def connect_to_a_unix_socket(given: dict[str, Any]) -> object:
    return connect(socket.AF_UNIX, given["socket"])


@attempt
def connect_to_docker(_: dict[str, Any]) -> object:
    for path in (
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/dbus/system_bus_socket",
    ):
        if os.path.exists(path):  # noqa: PTH110
            return connect(socket.AF_UNIX, path)
    return None


@attempt
def connect_to_an_abstract_socket(given: dict[str, Any]) -> object:
    return connect(socket.AF_UNIX, "\0" + given["abstract"])


@attempt
def send_to_an_abstract_socket(given: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        return made.sendto(b"x", "\0" + given["abstract"] + "-datagrams")


@attempt
def connect_to_the_loopback(given: dict[str, Any]) -> object:
    return None if given["has_network"] else connect(socket.AF_INET, ("127.0.0.1", given["port"]))


@attempt
def open_while_sending(given: dict[str, Any]) -> object:
    if given["has_network"]:
        return None
    with socket.socket() as made:
        return made.sendto(b"x", 0x20000000, ("127.0.0.1", given["port"]))


@attempt
def send_a_datagram(given: dict[str, Any]) -> object:
    if given["has_network"]:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.sendto(b"x", ("127.0.0.1", given["port"]))
        made.connect(("192.0.2.1", 9))
        return "sent"


@attempt
def listen_to_the_wire(_: dict[str, Any]) -> object:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    return "a raw socket"


# -- processes


@attempt
def signal_another(given: dict[str, Any]) -> object:
    os.kill(given["pid"], signal.SIGUSR1)
    return "signalled"


@attempt
def signal_the_control_plane(given: dict[str, Any]) -> object:
    os.kill(given["parent"], 0)
    return "signalled"


@attempt
def trace_another(given: dict[str, Any]) -> object:
    return libc.ptrace(16, given["pid"], 0, 0) == 0 or None


@attempt
def read_memory_of_another(given: dict[str, Any]) -> object:
    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    buffer = ctypes.create_string_buffer(8)
    here, there = Vector(ctypes.addressof(buffer), 8), Vector(given["address"], 8)
    got = libc.process_vm_readv(given["pid"], ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return got > 0 or None


@attempt
def open_memory_of_another(given: dict[str, Any]) -> object:
    return os.open(f"/proc/{given['pid']}/mem", os.O_RDONLY) >= 0


@attempt
def take_a_file_of_another(given: dict[str, Any]) -> object:
    held = os.pidfd_open(given["pid"])
    return libc.syscall(438, held, 1, 0) >= 0 or None


@attempt
def become_root(_: dict[str, Any]) -> object:
    if os.getuid() == 0:
        with open("/proc/self/status") as file:  # noqa: PTH123
            rights = next(line.split()[1] for line in file if line.startswith("CapEff"))
        return rights if int(rights, 16) & ~4 else None
    os.setuid(0)
    return "root"


# -- mounts and namespaces


@attempt
def mount_something(_: dict[str, Any]) -> object:
    os.makedirs("here", exist_ok=True)  # noqa: PTH103
    return call("mount", b"tmpfs", b"here", b"tmpfs", 0, None) or None


@attempt
def mount_writable(_: dict[str, Any]) -> object:
    return call("mount", None, b"/usr", None, 32 | 4096, None) or None


@attempt
def unmount(_: dict[str, Any]) -> object:
    return call("umount2", b"/proc", 2) or None


@attempt
def change_root(_: dict[str, Any]) -> object:
    os.chroot("/usr")
    return "another root"


@attempt
def new_namespaces(_: dict[str, Any]) -> object:
    return call("unshare", 0x10000000) or call("unshare", 0x00020000) or None


@attempt
def clone_into_namespaces(_: dict[str, Any]) -> object:
    made = libc.syscall(number(56, 220), 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if made == 0:
        os._exit(0)
    return made > 0 or None


@attempt
def enter_namespaces_of_another(given: dict[str, Any]) -> object:
    held = os.open(f"/proc/{given['pid']}/ns/mnt", os.O_RDONLY)
    return call("setns", held, 0) or None


@attempt
def load_a_program_into_the_kernel(_: dict[str, Any]) -> object:
    attributes = ctypes.create_string_buffer(128)
    return libc.syscall(number(321, 280), 0, attributes, 128) >= 0 or None


@attempt
def read_keys(_: dict[str, Any]) -> object:
    return libc.syscall(number(250, 219), 0, -3, 0) > 0 or None


@attempt
def read_the_log_of_the_kernel(_: dict[str, Any]) -> object:
    return libc.klogctl(10, None, 0) >= 0 or None


# -- limits


@attempt
def fork_without_end(_: dict[str, Any]) -> object:
    made: list[int] = []
    try:
        for _unused in range(600):
            pid = os.fork()
            if not pid:
                time.sleep(30)
                os._exit(0)
            made.append(pid)
    except OSError:
        pass
    finally:
        for pid in made:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return len(made) if len(made) > 300 else None


@attempt
def leave_a_process_behind(_: dict[str, Any]) -> object:
    pid = os.fork()
    if not pid:
        os.setsid()
        if os.fork() == 0:
            for stream in (0, 1, 2):
                os.close(stream)
            os.execvp("sleep", ["sleep", "86399"])
        os._exit(0)
    os.waitpid(pid, 0)
    return None  # whether it is gone is seen from outside


@attempt
def take_memory(_: dict[str, Any]) -> object:
    held = [bytearray(b"x" * (64 << 20)) for _unused in range(24)]
    return len(held)


@attempt
def take_shared_memory(_: dict[str, Any]) -> object:
    held = mmap.mmap(-1, 6 << 30)
    for at in range(0, 6 << 30, 1 << 20):
        held[at : at + 4096] = b"x" * 4096
    return "6 GiB"


@attempt
def fill_shared_memory_files(_: dict[str, Any]) -> object:
    return fill("/dev/shm")


@attempt
def fill_memory_files(_: dict[str, Any]) -> object:
    held = []
    for _unused in range(40):
        made = os.memfd_create("x")
        held.append(made)
        for _part in range(32):
            os.write(made, b"x" * (1 << 20))
    return "1.25 GiB"


@attempt
def keep_system_v_memory(_: dict[str, Any]) -> object:
    return libc.shmget(0, 1 << 20, 0o1600) >= 0 or None


@attempt
def fill_the_scratch_directory(_: dict[str, Any]) -> object:
    return fill(os.getcwd())  # noqa: PTH109


def fill(directory: str) -> object:
    names = []
    try:
        for each in range(24):
            name = f"{directory}/fill-{each}"
            names.append(name)
            with open(name, "wb") as file:  # noqa: PTH123
                file.writelines(b"x" * (1 << 20) for _unused in range(32))
            time.sleep(0.05)
    finally:
        for name in names:
            if os.path.exists(name):  # noqa: PTH110
                os.unlink(name)  # noqa: PTH108
    return "768 MiB"


def tried(name: str, given: dict[str, Any]) -> str:
    """What came of one attempt, made in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, one(name, given).encode())
        os._exit(0)
    os.close(writing)
    said = os.read(reading, 1000).decode(errors="replace")
    os.close(reading)
    os.waitpid(pid, 0)
    return said or "held: it was ended"


def one(name: str, given: dict[str, Any]) -> str:
    try:
        got = ATTEMPTS[name](given)
    except (OSError, MemoryError, AttributeError) as error:
        return f"held: {type(error).__name__}"
    return "held" if got is None or got is False else f"escaped: {got}"


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    print(json.dumps({name: tried(name, options) for name in options["attempts"]}))
