"""Who may see what of a run, and which replica may ask another."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from planform.cluster.journal_peers import is_peer, peer_token
from planform.cluster.webhook import WebhookSettings
from planform.journal.records import Part, Read, Run, StepRun
from planform.journal.withholding import REVISION, Shown, shown_by, withheld, xr_of


def part(kind: str, name: str = "x", namespace: str = "team", **more: object) -> Part:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return Part({"apiVersion": "v1", "kind": kind, "metadata": metadata, **more})


RUN = Run(
    uid="u",
    api_version="example.org/v1",
    kind="App",
    name="web",
    namespace="team",
    started=datetime(2026, 1, 1, tzinfo=UTC),
    observed={"db": part("ConfigMap", data={"a": "1"}), "key": part("Secret")},
    steps=(
        StepRun(
            step="one",
            function="f",
            input=Part({"kind": "Input"}),
            reads={"all": Read(api_version="v1", kind="Node", found=(part("Node", namespace="", spec={"x": 1}),))},
            resources={"new": part("Service", namespace="", spec={"y": 1})},
            context=Part({"seen": 1}),
        ),
        StepRun(step="two", function="f", context=Part({"seen": 1})),
    ),
)
CONFIG_MAPS, NODES, SERVICES = (Shown("v1", kind, "team") for kind in ("ConfigMap", "Node", "Service"))


def test_a_run_shows_what_it_composes_and_reads_but_secrets() -> None:
    assert shown_by(RUN) == {CONFIG_MAPS, NODES, SERVICES, REVISION}
    assert xr_of(RUN) == Shown("example.org/v1", "App", "team")


def test_who_may_read_all_of_it_is_shown_all() -> None:
    assert withheld(RUN, []) is RUN


def test_what_may_not_be_read_is_left_as_kind_and_name() -> None:
    run = withheld(RUN, [CONFIG_MAPS])
    assert run.observed["db"] == part("ConfigMap")
    assert run.steps == RUN.steps


def test_without_what_a_step_read_there_is_no_context_either() -> None:
    run = withheld(RUN, [NODES])
    assert run.steps[0].reads["all"].found == (part("Node", namespace=""),)
    assert [step.context for step in run.steps] == [None, None]
    assert run.steps[0].input is not None


def test_inputs_are_for_those_who_may_read_composition_revisions() -> None:
    assert withheld(RUN, [REVISION]).steps[0].input is None


KEY, PATH, NOW = b"a key", "/planform/v1/runs/u", 1_000_000


@pytest.mark.parametrize(
    ("token", "fits"),
    [
        (peer_token(KEY, PATH, NOW + 60), True),
        (peer_token(KEY, PATH, NOW - 1), False),
        (peer_token(KEY, PATH, NOW + 100_000), False),
        (peer_token(KEY, "/planform/v1/runs/other", NOW + 60), False),
        (peer_token(b"another", PATH, NOW + 60), False),
        ("", False),
        ("1000060.", False),
        ("x.y", False),
        ("\u0661.00", False),
    ],
    ids=["whole", "expired", "far ahead", "other path", "other key", "none", "no digest", "no number", "other digits"],
)
def test_only_a_token_of_the_shared_key_for_this_path_and_time_fits(token: str, fits: bool) -> None:
    assert is_peer(KEY, PATH, token, NOW) is fits


@pytest.mark.parametrize(
    ("host", "peer_host", "address"),
    [
        ("0.0.0.0", "10.1.2.3", "https://10.1.2.3:9443"),
        ("0.0.0.0", "", ""),
        ("::", "fd00::1", "https://[fd00::1]:9443"),
        ("127.0.0.1", "", "https://127.0.0.1:9443"),
    ],
)
def test_a_replica_is_reached_where_it_says_or_listens(host: str, peer_host: str, address: str) -> None:
    settings = WebhookSettings(host=host, port=0, namespace="planform-system", peer_host=peer_host)
    assert settings.peer_address(9443) == address
