"""The real cluster is what it claims to be, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import unittest
import urllib.error
from pathlib import Path

import pytest
from tools import testbins

from tests.harness.kubernetes import RealKubernetes, real_kubernetes
from tests.harness.processes import running
from tests.harness.programs import programs

ROOT = Path(__file__).parents[2]
on_one_worker = pytest.mark.xdist_group("kubernetes")


@pytest.mark.kubernetes
@on_one_worker
def test_cluster_is_the_release_that_was_asked_for(kubernetes_engine: RealKubernetes) -> None:
    version = json.loads(kubernetes_engine.request("/version"))
    assert version["gitVersion"] == f"v{testbins.KUBERNETES}" or "KUBEBUILDER_ASSETS" in os.environ


@pytest.mark.kubernetes
@on_one_worker
def test_plain_user_is_known_and_may_do_nothing(kubernetes_engine: RealKubernetes) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        kubernetes_engine.request("/api/v1/namespaces", token=kubernetes_engine.user_token)
    assert refused.value.code == 403
    assert kubernetes_engine.user_name in refused.value.read().decode()


@pytest.mark.kubernetes
@on_one_worker
def test_controllers_collect_what_lost_its_owner(kubernetes_engine: RealKubernetes) -> None:
    kubectl = kubernetes_engine.kubectl
    kubectl("create", "configmap", "owner")
    uid = kubectl("get", "configmap", "owner", "--output=jsonpath={.metadata.uid}")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [reference]}}
    kubectl("create", "--filename=-", stdin=json.dumps(owned))
    kubectl("delete", "configmap", "owner")
    kubectl("wait", "--for=delete", "configmap/owned", "--timeout=60s")


@pytest.mark.kubernetes
@on_one_worker
def test_same_directory_brings_the_same_cluster_back(tmp_path: Path) -> None:
    with real_kubernetes(tmp_path, controller_manager=False, unsafe_no_fsync=True) as cluster:
        cluster.kubectl("create", "configmap", "kept")
        first = cluster.children
    assert all(child.has_ended() for child in first)
    with real_kubernetes(tmp_path, controller_manager=False, unsafe_no_fsync=True) as cluster:
        assert cluster.kubectl("get", "configmap", "kept", "--output=name").strip() == "configmap/kept"


def test_child_ends_when_the_test_process_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.harness.processes import running\n"
        "with running(['/bin/sleep', '300'], Path(sys.argv[1])) as child:\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(300)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_alive(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.01)


def test_child_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    stubborn = ["/bin/sh", "-c", "trap '' TERM; echo stubborn; while :; do sleep 1; done"]
    with running(stubborn, tmp_path / "log") as child:
        while "stubborn" not in child.output():
            time.sleep(0.01)
        child.stop(grace_seconds=0.1)
        assert child.process.returncode == -signal.SIGKILL


def test_program_that_was_tampered_with_is_not_used(tmp_path: Path) -> None:
    made = tmp_path / "out" / "tool"
    made.parent.mkdir()
    made.write_bytes(b"as it was made")
    published = tmp_path / "tool" / "1.0" / "tool"
    testbins.publish(made, published, version="1.0", origin="a test")
    assert testbins.is_intact(published)
    published.write_bytes(b"as it was found")
    assert not testbins.is_intact(published)


def test_missing_program_is_a_skip_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLANFORM_TEST_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(unittest.SkipTest) as skipped:
        programs.__wrapped__("kubectl")
    assert "kubectl: cannot use the cache" in str(skipped.value)
    assert len(str(skipped.value).splitlines()) == 1


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended but was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
