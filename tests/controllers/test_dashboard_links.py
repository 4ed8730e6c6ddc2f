"""Commands know the screen of what they print, where the control plane serves a dashboard."""

from __future__ import annotations

from pathlib import Path

from planform.api.kinds import GroupVersionKind
from planform.app import Settings, open_control_plane
from planform.cli.connection import connect
from planform.cli.control_plane.up import serving_dashboard
from planform.cli.dashboard_links import link_to, rollout_path, xr_path
from planform.web.page import Page

DATABASE = GroupVersionKind("example.org", "v1", "Database")


async def test_link_is_there_only_while_a_dashboard_is_served(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>planform</title>")
    settings = Settings(data=None)
    async with open_control_plane(settings) as plane, connect(plane.kubeconfig, context="") as connected:
        assert await link_to(connected, rollout_path("r")) == ""
        async with serving_dashboard(plane, settings, Page(tmp_path)):
            assert await link_to(connected, rollout_path("r")) == f"{plane.url}/ui/rollout/r"
        assert await link_to(connected, rollout_path("r")) == ""


def test_paths_are_those_of_the_page() -> None:
    assert xr_path(DATABASE, "team-a", "orders") == "xr/Database.example.org/team-a/orders"
    assert xr_path(DATABASE, "", "orders") == "xr/Database.example.org/-/orders"
    assert rollout_path("a/b") == "rollout/a%2Fb"
