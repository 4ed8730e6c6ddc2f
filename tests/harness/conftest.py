"""Fixtures of the harness's own tests."""

from tests.harness.kubernetes import kubernetes_engine

__all__ = ["kubernetes_engine"]
