"""A reconcile is one trace: a span for the reconcile, one for each step, and the trace goes on in the function."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from planform.reconcile.context import ControllerContext
from planform.telemetry.tracing import TelemetryTracer
from tests.controllers.composing import Platform, auto_ready, config_map, templates
from tests.harness.contexts import all_controllers


async def test_a_reconcile_is_a_trace_with_a_span_for_each_step(context: ControllerContext, unique: str) -> None:
    sdk: Any = pytest.importorskip("opentelemetry.sdk.trace")
    export: Any = import_module("opentelemetry.sdk.trace.export")
    memory: Any = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    async with all_controllers(context, tracer=TelemetryTracer(provider)):
        platform = Platform(context.client, unique)
        await platform.define()
        await platform.compose(templates(config_map("a", x="1")), auto_ready())
        await platform.ready(await platform.create())
    spans = memory.get_finished_spans()
    passes = {
        each.context.span_id: each
        for each in spans
        if each.name == "reconcile" and str(each.attributes["controller"]).startswith("composite/")
    }
    steps = [each for each in spans if each.name == "step" and each.parent.span_id in passes]
    assert {each.attributes["step"] for each in steps} == {"compose", "ready"}
    assert all(each.context.trace_id == passes[each.parent.span_id].context.trace_id for each in steps)
    assert {each.attributes["revision"] for each in steps} == {"builtin"}
