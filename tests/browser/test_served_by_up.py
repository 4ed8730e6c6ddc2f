"""The dashboard that `planform up` serves at /ui/: by a link or a token, with nobody else's rights."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planform.client.kubernetes import KubernetesClient
from tests.browser import platform
from tests.browser.looking import Site

pytestmark = [pytest.mark.programs, pytest.mark.xdist_group("browser")]


class Browser:
    """Just enough of one: it keeps a cookie and sends its origin."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        trust = ssl.create_default_context()
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
        wire = http.client.HTTPSConnection("127.0.0.1", self.port, context=trust, timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent["origin"] = f"https://127.0.0.1:{self.port}"
        if self.cookie:
            sent["cookie"] = self.cookie
        data = None
        if body is not None:
            data = json.dumps(body)
            sent["content-type"] = "application/json"
        wire.request(method, path, body=data, headers=sent)
        answer = wire.getresponse()
        found = answer.read()
        if given := answer.getheader("set-cookie"):
            assert "Secure" in given
            assert "HttpOnly" in given
            self.cookie = given.partition(";")[0]
        wire.close()
        return answer.status, json.loads(found) if "json" in (answer.getheader("content-type") or "") else found


def link(kubeconfig: Path) -> str:
    command = [sys.executable, "-m", "planform", "dashboard", "--link", "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


async def make_viewer(client: KubernetesClient) -> str:
    """A ServiceAccount that may look at databases, and its token."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer", "namespace": "default"}}
    rules = [
        {
            "apiGroups": [platform.GROUP, "apiextensions.crossplane.io"],
            "resources": ["*"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "viewer"}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
    }
    for obj in (account, role, binding):
        await client.apply(obj, manager="tests", force=True)
    path = "/api/v1/namespaces/default/serviceaccounts/viewer/token"
    body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600}}'
    answer = await client.transport.request("POST", path, body=body)
    return str(answer.json()["status"]["token"])


def test_screens_below_up_open_with_a_link_that_works_once(site: Site) -> None:
    given = link(site.served.kubeconfig)
    assert given.startswith(f"https://127.0.0.1:{site.served.port}/ui/#code=")
    browser = Browser(site.served.port)
    assert browser.ask("GET", "/ui/api/v1/overview")[0] == 401
    code = given.partition("#code=")[2]
    status, session = browser.ask("POST", "/ui/api/v1/session", {"code": code})
    assert status == 200
    assert session["user"] == "planform-admin"
    assert session["engine"] == "embedded"
    assert browser.ask("GET", "/ui/api/v1/overview")[1]["total"] > 20
    assert Browser(site.served.port).ask("POST", "/ui/api/v1/session", {"code": code})[0] == 401
    assert browser.ask("GET", "/ui/")[0] == 200
    assert browser.ask("GET", "/healthz")[0] == 200, "the API is where it was"


def test_attacks_below_up_without_credentials_get_no_link(site: Site) -> None:
    assert Browser(site.served.port).ask("POST", "/ui/api/v1/links", {})[0] == 401
    assert Browser(site.served.port).ask("POST", "/ui/api/v1/session", {"token": "guess"})[0] == 401


def test_screens_below_up_show_a_viewer_what_they_may_not_do(site: Site) -> None:
    token = site.run(make_viewer(site.served.client))
    browser = Browser(site.served.port)
    status, session = browser.ask("POST", "/ui/api/v1/session", {"token": token})
    assert status == 200, session
    assert session["user"] == "system:serviceaccount:default:viewer"
    _, xr = browser.ask("GET", f"/ui/api/v1/xrs/Database.{platform.GROUP}/team-a/orders")
    pause = next(each for each in xr["actions"] if each["action"] == "pause")
    assert not pause["allowed"]
    assert "needs verb patch on databases" in pause["why"]
    asked = {
        "action": "pause",
        "kind": f"Database.{platform.GROUP}",
        "namespace": "team-a",
        "name": "orders",
        "confirm": "orders",
    }
    status, refusal = browser.ask("POST", "/ui/api/v1/actions", asked, x_planform_csrf=session["csrf"])
    assert status == 403
    assert "cannot patch" in refusal["message"]
