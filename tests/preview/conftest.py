"""`context`: a ControllerContext on each engine, as controllers have it."""

from __future__ import annotations

from tests.controllers.conftest import context, unique

__all__ = ["context", "unique"]
