"""The dashboard's server without a control plane: who may log in, who may ask, what is shown of an object."""

from __future__ import annotations

import gzip
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from planform.apiserver.wire.http import HttpRequest
from planform.clock import VirtualClock
from planform.errors import PlanformError
from planform.web import guard, policy_views, preview_views, rollout_views, rows, usage_series
from planform.web.api import ROUTES, openapi, route_of
from planform.web.metrics import Metrics
from planform.web.page import Page
from planform.web.sessions import MAX_CODES, Sessions, is_csrf

ROOT = Path(__file__).parents[2]
HOSTS = ["127.0.0.1:7443", "localhost:7443"]


def request(method: str = "GET", target: str = "/ui/", **headers: str) -> HttpRequest:
    sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return HttpRequest(method, target.encode(), {b"host": b"127.0.0.1:7443", **sent}, b"")


def test_code_works_once() -> None:
    sessions: Sessions[str] = Sessions(VirtualClock())
    code = sessions.mint("alice")
    cookie = sessions.redeem(code)
    assert cookie is not None
    assert sessions.redeem(code) is None
    session = sessions.find(cookie)
    assert session is not None
    assert session.who == "alice"


async def test_code_works_for_a_minute() -> None:
    clock = VirtualClock()
    sessions: Sessions[str] = Sessions(clock)
    code = sessions.mint("alice")
    await clock.advance(61)
    assert sessions.redeem(code) is None


async def test_session_ends_after_twelve_hours() -> None:
    clock = VirtualClock()
    sessions: Sessions[str] = Sessions(clock)
    cookie = sessions.open("alice")
    await clock.advance(12 * 3600 + 1)
    assert sessions.find(cookie) is None


def test_a_flood_of_codes_is_bounded_and_keeps_the_newest() -> None:
    sessions: Sessions[str] = Sessions(VirtualClock())
    codes = [sessions.mint("alice") for _ in range(MAX_CODES + 5)]
    assert sessions.redeem(codes[0]) is None
    assert sessions.redeem(codes[-1]) is not None


def test_neither_code_nor_cookie_is_kept_as_it_is() -> None:
    sessions: Sessions[str] = Sessions(VirtualClock())
    code = sessions.mint("alice")
    cookie = sessions.open("alice")
    kept = repr(sessions)
    assert code not in kept
    assert cookie not in kept


def test_csrf_token_is_compared_whole() -> None:
    sessions: Sessions[str] = Sessions(VirtualClock())
    session = sessions.find(sessions.open("alice"))
    assert session is not None
    assert is_csrf(session, session.csrf)
    assert not is_csrf(session, "")
    assert not is_csrf(session, session.csrf[:-1])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param(request(host="evil.example:7443"), "not", id="DNS rebinding: a name that is not ours"),
        pytest.param(request(host="127.0.0.1"), "not", id="no port"),
        pytest.param(request("POST", origin="https://evil.example", cookie="a=b"), "may not ask", id="another origin"),
        pytest.param(request("POST", origin="null", cookie="a=b"), "may not ask", id="a sandboxed frame"),
        pytest.param(request(sec_fetch_site="cross-site", sec_fetch_mode="cors"), "another site", id="fetch elsewhere"),
        pytest.param(request(sec_fetch_site="same-site", sec_fetch_mode="no-cors"), "another site", id="another port"),
        pytest.param(request("POST", cookie="a=b"), "where it comes from", id="no origin"),
        pytest.param(
            request("POST", transfer_encoding="chunked", content_length="3"), "one length", id="request smuggling"
        ),
    ],
)
def test_request_of_another_site_is_refused(asked: HttpRequest, why: str) -> None:
    with pytest.raises(PlanformError, match=why):
        guard.check(asked, HOSTS, scheme="http")


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(request(), id="a typed address"),
        pytest.param(request(host="localhost:7443"), id="localhost"),
        pytest.param(request(sec_fetch_site="cross-site", sec_fetch_mode="navigate"), id="a followed link"),
        pytest.param(request("POST", origin="http://127.0.0.1:7443", cookie="a=b"), id="our own page"),
    ],
)
def test_our_own_page_and_people_may_ask(asked: HttpRequest) -> None:
    guard.check(asked, HOSTS, scheme="http")


@pytest.mark.parametrize(
    "path",
    ["assets/../../../etc/passwd", "../../../../etc/passwd", "assets/%2e%2e/secret", "assets/x\x00.js", "assets//etc"],
)
def test_path_never_leaves_the_page(tmp_path: Path, path: str) -> None:
    (tmp_path / "index.html").write_text("<p>page</p>")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "x.js").write_text("1")
    (tmp_path.parent / "secret").write_text("secret")
    answer = Page(tmp_path).answer(request(), path)
    assert answer.body in (b"<p>page</p>", b"not found\n")


def test_unknown_path_is_the_page_and_says_its_policy(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>page</p>")
    answer = Page(tmp_path).answer(request(), "xr/Database/team-a/orders")
    headers = dict(answer.headers)
    assert answer.status == 200
    assert b"default-src 'none'" in headers[b"content-security-policy"]
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert b"unsafe" not in headers[b"content-security-policy"]


def test_installation_without_the_page_says_how_to_build_it(tmp_path: Path) -> None:
    answer = Page(tmp_path).answer(request(), "index.html")
    assert answer.status == 503
    assert b"make ui" in answer.body


@pytest.mark.skipif(not Page().built, reason="the page is not built here")
def test_page_is_at_most_eighty_kilobytes() -> None:
    root = ROOT / "src" / "planform" / "web" / "page"
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in root.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= 80_000, sizes


def test_types_of_the_page_are_those_of_the_server() -> None:
    done = subprocess.run([sys.executable, "tools/ui_types.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run tools/ui_types.py"


def test_every_answer_has_a_schema() -> None:
    document = openapi("1")
    for route in ROUTES:
        operation = document["paths"][route.path]["get"]
        named = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        assert named in document["components"]["schemas"]
    msgspec.json.encode(document)


def test_route_takes_what_stands_in_its_braces() -> None:
    route, found = route_of(("xrs", "Database.example.org", "-", "a"))
    assert route.path == "/xrs/{kind}/{namespace}/{name}"
    assert found == ("Database.example.org", "-", "a")
    with pytest.raises(PlanformError):
        route_of(("xrs", "a", "b"))


def xr(*conditions: tuple[str, str, str], **metadata: object) -> dict[str, object]:
    said = [{"type": kind, "status": status, "reason": reason} for kind, status, reason in conditions]
    meta = {"name": "a", "namespace": "n", **metadata}
    return {"apiVersion": "e.org/v1", "kind": "Db", "metadata": meta, "status": {"conditions": said}}


@pytest.mark.parametrize(
    ("obj", "health"),
    [
        (xr(("Synced", "True", "x"), ("Ready", "True", "x")), "Ready"),
        (xr(("Synced", "True", "x"), ("Ready", "False", "Creating")), "NotReady"),
        (xr(("Synced", "False", "ReconcileError"), ("Ready", "True", "x")), "NotSynced"),
        (xr(("Synced", "False", "PlanDeviates")), "Deviating"),
        (xr(("Synced", "True", "x"), annotations={"crossplane.io/paused": "true"}), "Paused"),
        (xr(("Ready", "True", "x"), deletionTimestamp="2026-01-01T00:00:00Z"), "Deleting"),
        (xr(), "Present"),
        ({"metadata": {}, "status": {"conditions": "none"}}, "Present"),
    ],
)
def test_health_is_the_worst_that_is_known(obj: dict[str, object], health: str) -> None:
    assert rows.health_of(obj)[0] == health


def test_token_of_the_deletion_budget_is_found_in_the_condition() -> None:
    obj = xr()
    message = "nothing was deleted; annotate the XR with planform.dev/confirm-deletion=0123456789ab"
    obj["status"] = {"conditions": [{"type": "Synced", "status": "False", "message": message}]}
    assert rows.budget_token(obj) == "0123456789ab"


def test_population_stays_small_and_ends_with_what_is_true() -> None:
    from collections import Counter

    series = usage_series.Series()
    for at in range(5000):
        series.note("db", Counter({"r1": 5000 - at, "r2": at}), at * 10.0)
    samples = series.of("db")
    assert len(samples) <= usage_series.MAX_SAMPLES + 1
    assert samples[-1][1] == {"r1": 1, "r2": 4999}
    assert [moment for moment, _ in samples] == sorted(moment for moment, _ in samples)


def test_population_that_does_not_change_is_one_sample() -> None:
    from collections import Counter

    series = usage_series.Series()
    for at in range(100):
        series.note("db", Counter(r1=3), at * 60.0)
    assert len(series.of("db")) == 1


def test_window_follows_the_clocks_of_its_zone() -> None:
    spec = {"timeZone": "Europe/Zurich", "recurring": [{"days": ["Sun"], "from": "01:00", "to": "04:00"}]}
    begin = datetime(2026, 10, 24, tzinfo=UTC)
    spans = list(policy_views.spans_of(spec, begin, begin + timedelta(days=3)))
    # In the night of the 25th an hour comes twice: from 01:00 to 04:00 it is four hours.
    assert [(end - start) for start, end in spans] == [timedelta(hours=4)]


def test_window_over_midnight_ends_the_next_day() -> None:
    spec = {"recurring": [{"days": ["Mon"], "from": "22:00", "to": "02:00"}]}
    begin = datetime(2026, 11, 16, tzinfo=UTC)
    spans = list(policy_views.spans_of(spec, begin, begin + timedelta(days=7)))
    assert spans == [(begin + timedelta(hours=22), begin + timedelta(hours=26))]


def test_verdict_counts_what_is_risky() -> None:
    summary = {"xrs": 1000, "unchanged": 987, "changed": 11, "deletes": 2, "notPreviewed": 2}
    assert preview_views.verdict(summary) == "987 unchanged, 11 changed (2 delete something), 2 not previewed"


@pytest.mark.parametrize(
    ("xr", "link"),
    [
        ("XDatabase.example.org team-a/pay", "/xr/XDatabase.example.org/team-a/pay"),
        ("XDatabase.example.org pay", "/xr/XDatabase.example.org/-/pay"),
        ("team-a/pay", ""),
    ],
)
def test_xr_of_a_status_becomes_a_link(xr: str, link: str) -> None:
    assert rollout_views.xr_link(xr) == link


def test_metrics_are_summed_over_the_labels_that_are_not_asked_for() -> None:
    metrics = Metrics('# HELP x\na_total{f="x",r="1"} 2\na_total{f="x",r="2"} 3\na_total{f="y\\"z"} 4\nb 1.5\n')
    assert metrics.total("a_total", f="x") == 5
    assert metrics.total("a_total") == 9
    assert metrics.total("b") == 1.5
    assert metrics.total("missing") == 0
