"""Fixtures of every suite: one real cluster a worker, started when the first test asks for it."""

from tests.harness.kubernetes import kubernetes_engine

__all__ = ["kubernetes_engine"]
