"""Kubernetes semantics as pure functions over JSON-shaped values: no I/O, no clock, no global state."""
