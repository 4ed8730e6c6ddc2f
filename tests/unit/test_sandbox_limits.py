"""What bounds children together: cgroups of either version; and what of killed control planes is swept away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from planform.cli.diagnosis.findings import sandbox_findings
from planform.sandbox import Isolation, Limits, available_isolation, run_once
from planform.sandbox.cgroups import CONTROLLERS, Cgroups, Place, find_controllers
from planform.sandbox.isolation import limits_that_hold, policy
from planform.sandbox.leftovers import is_abandoned, scratch_prefix, sweep_scratch
from planform.sandbox.report import SandboxReport
from planform.telemetry.metrics import MetricsRegistry

V2_MOUNTS = "25 21 0:22 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V2_OWN = "0::/system.slice/planform.service\n"
V1_MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
31 25 0:27 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V1_OWN = "5:pids:/\n4:memory:/docker/abc/plane\n3:cpu,cpuacct:/user.slice\n1:name=systemd:/\n0::/\n"


def recorded(root: Path, mounts: str, own: str) -> Path:
    proc = root / "proc"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text(mounts)
    (proc / "cgroup").write_text(own)
    return proc


@pytest.fixture
def delegated(tmp_path: Path) -> dict[str, Place]:
    """A service of systemd with `Delegate=yes`, of version 2, as it was seen on such a machine."""
    own = tmp_path / "sys/fs/cgroup/system.slice/planform.service"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (own / "cgroup.subtree_control").write_text("")
    (own / "cgroup.type").write_text("domain\n")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    return find_controllers(recorded(tmp_path, V2_MOUNTS, V2_OWN), tmp_path)


def test_controllers_of_version_2_are_found_below_our_own_cgroup(delegated: dict[str, Place], tmp_path: Path) -> None:
    own = tmp_path / "sys/fs/cgroup/system.slice/planform.service"
    assert delegated == dict.fromkeys(CONTROLLERS, Place(2, own))


def test_of_version_2_we_go_into_a_leaf_and_children_get_their_limits(
    delegated: dict[str, Place], tmp_path: Path
) -> None:
    own = tmp_path / "sys/fs/cgroup/system.slice/planform.service"
    group = Cgroups(delegated).take(Limits(processes=10, memory=100 << 20, scratch=0, cpus=0.5))
    assert group is not None
    assert (own / "planform-control-plane" / "cgroup.procs").read_text() == str(os.getpid())
    [directory] = set(group.directories)
    assert (directory / "pids.max").read_text() == "12"
    assert (directory / "memory.max").read_text() == str(164 << 20)
    assert (directory / "cpu.max").read_text() == "50000 100000"


def test_of_version_2_a_cgroup_that_others_are_in_is_not_ours_to_divide(
    delegated: dict[str, Place], tmp_path: Path
) -> None:
    own = tmp_path / "sys/fs/cgroup/system.slice/planform.service"
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    cgroups = Cgroups(delegated)
    assert cgroups.controllers == {}
    assert cgroups.take(Limits()) is None


def test_controllers_of_version_1_are_found_each_in_its_own_hierarchy(tmp_path: Path) -> None:
    found = find_controllers(recorded(tmp_path, V1_MOUNTS, V1_OWN), tmp_path)
    top = tmp_path / "sys/fs/cgroup"
    assert found == {
        "pids": Place(1, top / "pids"),
        "memory": Place(1, top / "memory/plane"),
        "cpu": Place(1, top / "cpu,cpuacct/user.slice"),
    }


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    """Those of this machine, which children of this test are put into."""
    found = Cgroups(find_controllers())
    if not set(CONTROLLERS) <= set(found.controllers):
        pytest.skip("no cgroup here is ours to divide")
    before, policy.cgroups = policy.cgroups, found
    yield found
    policy.cgroups = before
    found.close()


async def test_children_are_held_together_by_the_cgroups_of_this_machine(cgroups: Cgroups) -> None:
    fork = """
import os, time
made = 0
try:
    while made < 200:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except OSError:
    pass
print(made)
"""
    for way in available_isolation():
        done = await run_once([sys.executable, "-I", "-S", "-c", fork], b"", Limits(processes=20), isolation=way)
        assert int(done.stdout) <= 22, way
    assert limits_that_hold().keys() == set(CONTROLLERS)
    assert all(each.startswith("cgroup v") for each in limits_that_hold().values())


_OWN_SHARE = """
import sys
parent, version = sys.argv[1:]
lines = [line.split(":", 2) for line in open("/proc/self/cgroup").read().split()]
own = next(path for _, kinds, path in lines if (version == "2" and not kinds) or "cpu" in kinds.split(","))
file = "cpu.cfs_quota_us" if version == "1" else "cpu.max"
print(open(f"{parent}/{own.rpartition('/')[2]}/{file}").read().split()[0])
"""


async def test_a_share_of_the_cpu_is_applied(cgroups: Cgroups) -> None:
    cpu = cgroups.controllers["cpu"]
    command = [sys.executable, "-I", "-S", "-c", _OWN_SHARE, str(cpu.directory), str(cpu.version)]
    done = await run_once(command, b"", Limits(cpus=0.5), isolation=Isolation.LIMITS_ONLY)
    assert done.ok, done.stderr
    assert done.stdout.split() == [b"50000"]


def test_what_a_killed_control_plane_left_is_swept_and_what_a_running_one_has_is_not(tmp_path: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "from planform.sandbox.leftovers import scratch_prefix; print(scratch_prefix())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    left, ours = tmp_path / f"{gone}abc", tmp_path / f"{scratch_prefix()}abc"
    for directory in (left, ours):
        directory.mkdir()
        (directory / "file").write_text("x")
    assert (is_abandoned(left.name), is_abandoned(ours.name), is_abandoned("other")) == (True, False, False)
    assert sweep_scratch(tmp_path) == 1
    assert (left.exists(), ours.exists()) == (False, True)


async def test_metrics_and_doctor_say_which_sandbox_there_is_and_what_bounds_functions() -> None:
    metrics = MetricsRegistry()
    await SandboxReport(metrics).run()
    [finding] = sandbox_findings(metrics.render())
    assert finding.level == "works"
    assert finding.message.startswith(f"confined by {available_isolation()[0]}; limits: pids by ")


@pytest.mark.parametrize(("unconfined", "level"), [("refused", "stuck"), ("allowed", "differs")])
def test_doctor_warns_where_nothing_hides_files(unconfined: str, level: str) -> None:
    labels = f'isolation="limits-only",unconfined="{unconfined}",pids="rlimit",memory="rlimit",cpu="nothing"'
    findings = list(sandbox_findings(f'planform_sandbox_info{{{labels},function_network="host"}} 1\n'))
    assert findings[0].level == level
    assert "cannot hide its files" in findings[0].message
