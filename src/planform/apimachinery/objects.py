"""What an object is to those who know nothing of its kind."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
"""One decoded instance: a JSON-shaped dict with apiVersion, kind and metadata."""
