"""A control plane as users run it, `planform up` in a process of its own, and the programs that talk to it.

Every program runs with an environment made here, never the tester's: its home is a scratch directory, no proxy and no
kubeconfig of the machine leaks in, and every call has a limit.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tests.harness.processes import Child, dies_with_us, running
from tests.harness.programs import programs

PLANFORM = Path(sys.executable).with_name("planform")
PATIENCE_SECONDS = 30.0
_READY = re.compile(r"planform is ready at (https://\S+)")


@dataclass(frozen=True)
class Done:
    """What a program left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Program:
    """A command line to which tests add arguments."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    directory: Path

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        """Run to the end; anything but the exit code that the test expects is an error that shows what was printed."""
        command = [*self.command, *arguments]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            cwd=self.directory,
            env={**self.env, **(env or {})},
        )
        shown = f"{' '.join(command)}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, shown
        return Done(done.returncode, done.stdout, done.stderr)

    def with_(self, *arguments: str, env: Mapping[str, str] | None = None) -> Program:
        """The same program with arguments that every call gets."""
        return replace(self, command=(*self.command, *arguments), env={**self.env, **(env or {})})

    @contextmanager
    def following(self, *arguments: str) -> Iterator[Followed]:
        """Run for the length of the block and read what it prints as it comes."""
        process = subprocess.Popen(
            dies_with_us([*self.command, *arguments]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.directory,
            env=dict(self.env),
        )
        followed = Followed(process)
        try:
            yield followed
        finally:
            followed.stop()


class Followed:
    """A program that goes on printing; lines are read by a thread so that waiting for one has a limit."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.seen: list[str] = []

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def until(self, part: str) -> str:
        """The next line that holds `part`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {part!r}; it printed {self.seen}") from None
            self.seen.append(line)
            if part in line:
                return line

    def has_line(self, seconds: float) -> bool:
        """Whether a line that nobody has read yet comes within this time; it stays there to be read."""
        deadline = time.monotonic() + seconds
        while self._lines.empty() and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self._lines.empty()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass(frozen=True)
class RunningPlane:
    """A control plane that serves, and the tools to reach it as its administrator."""

    url: str
    kubeconfig: Path
    child: Child
    directory: Path

    @property
    def env(self) -> dict[str, str]:
        return clean_env(self.directory, KUBECONFIG=str(self.kubeconfig))

    @property
    def kubectl(self) -> Program:
        return Program((str(programs("kubectl") / "kubectl"),), self.env, self.directory)

    @property
    def helm(self) -> Program:
        return Program((str(programs("helm") / "helm"),), self.env, self.directory)

    @property
    def planform(self) -> Program:
        return planform(self.directory, KUBECONFIG=str(self.kubeconfig))

    @property
    def authority(self) -> Path:
        """A file with the certificate that vouches for the server."""
        path = self.directory / "authority.pem"
        if not path.exists():
            config = yaml.safe_load(self.kubeconfig.read_text())
            path.write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
        return path

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name and labels."""
        samples = {}
        for line in self.kubectl("get", "--raw", "/metrics").lines:
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples


def clean_env(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has nothing but a home and the usual programs."""
    return {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "NO_COLOR": "1", **more}


def in_env(env: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """The command with this environment and nothing else of ours."""
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items()), *command]


def planform(home: Path, **env: str) -> Program:
    """The command line of this installation."""
    return Program((str(PLANFORM),), clean_env(home, **env), home)


@contextmanager
def running_plane(directory: Path, *flags: str, env: Mapping[str, str] | None = None) -> Iterator[RunningPlane]:
    """`planform up` on any free port for the length of the block; raises AssertionError with its log if it ends early.

    It is ephemeral unless the flags say where its data is.
    """
    directory.mkdir(parents=True, exist_ok=True)
    kubeconfig = directory / "admin.kubeconfig"
    kept = any(flag in ("--data", "--config") for flag in flags)
    command = [str(PLANFORM), "up", "--kubeconfig", str(kubeconfig), *([] if kept else ["--ephemeral"])]
    if not any(flag in ("--listen", "--config") for flag in flags):
        command += ["--listen", "127.0.0.1:0"]
    command = in_env(clean_env(directory, **(env or {})), [*command, *flags])
    with running(command, directory / "up.log", name="planform") as child:
        yield RunningPlane(ready_url(child), kubeconfig, child, directory)


def ready_url(child: Child) -> str:
    """Wait for the ready line."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = _READY.search(child.output())
        if found:
            return found[1]
        assert not child.has_ended(), f"planform ended with {child.process.returncode}:\n{child.output()}"
        assert time.monotonic() < deadline, f"not ready:\n{child.output()}"
        time.sleep(0.01)


def stop(child: Child, signal_number: int) -> int:
    """Send a signal and give the exit code."""
    child.process.send_signal(signal_number)
    return child.process.wait(PATIENCE_SECONDS)


def manifest(*objects: Mapping[str, Any]) -> str:
    """Objects as a file that `-f -` reads; JSON documents are YAML documents."""
    return "\n---\n".join(json.dumps(obj) for obj in objects)


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": dict(data or {})}
