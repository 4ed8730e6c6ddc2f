"""Requests as metrics: how many, of what, and how they ended."""

from __future__ import annotations

from planform.apiserver.verbs.requests import Attributes, User
from planform.apiserver.wire.http import HttpRequest, HttpResponse
from planform.telemetry.metrics import MetricsRegistry


class RequestMetrics:
    """Counts every answer. Resources are counted by name, everything else by its first path segment."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._requests = metrics.counter(
            "planform_api_requests_total",
            "Requests answered, by verb, resource and code.",
            ["verb", "resource", "code"],
        )

    def answered(self, request: HttpRequest, user: User, attributes: Attributes | None, response: HttpResponse) -> None:
        if attributes is None:
            labels = ("", "")
        elif attributes.path:
            labels = (attributes.verb, "/" + attributes.path.split("/", 2)[1])
        else:
            resource = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
            labels = (attributes.verb, f"{resource}/{attributes.subresource}" if attributes.subresource else resource)
        if response.status in (401, 404):  # names that strangers make up must not become time series
            labels = ("", "")
        self._requests.labels(*labels, str(response.status)).inc()
