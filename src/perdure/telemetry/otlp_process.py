"""The process that sends telemetry to a collector, on the OpenTelemetry SDK: records in on a pipe, OTLP out.

It is apart from the host so that a collector that is slow, dead or lying costs the host nothing. At the end of its
input it sends what it has, for a bounded time, and ends.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any, Final

import msgspec
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from perdure import __version__
from perdure.platform import signals

ON: Final = "on"
LAST_S: Final = 4.0
COMPLAIN_S: Final = 60.0
SPANS_MS: Final = 1000
METRICS_MS: Final = 10_000
BOUNDARIES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
KINDS: Final = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}
# What may tell one series from another: names of tools, never of requests or sessions.
MEASURED: Final = (
    "mcp.method.name",
    "gen_ai.tool.name",
    "gen_ai.prompt.name",
    "gen_ai.operation.name",
    "error.type",
    "rpc.response.status_code",
    "mcp.protocol.version",
    "network.transport",
    "network.protocol.name",
    "perdure.mount",
)


class Sender:
    """`where` is the collector's address; "on" leaves that to the standard variables, OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self, where: str) -> None:
        base = where.rstrip("/")
        spans, metrics = (None, None) if where == ON else (f"{base}/v1/traces", f"{base}/v1/metrics")
        name = os.environ.get("OTEL_SERVICE_NAME") or "perdure"
        self._resource = Resource.create({SERVICE_NAME: name, SERVICE_VERSION: __version__})
        self._scope = InstrumentationScope("perdure", __version__)
        self._spans = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=spans),
            schedule_delay_millis=_every("OTEL_BSP_SCHEDULE_DELAY", SPANS_MS),
        )
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=metrics),
            export_interval_millis=_every("OTEL_METRIC_EXPORT_INTERVAL", METRICS_MS),
        )
        self._meters = MeterProvider([reader], resource=self._resource, shutdown_on_exit=False)
        meter = self._meters.get_meter("perdure", __version__)
        self._histograms = {
            name: meter.create_histogram(
                f"mcp.{name}.duration", unit="s", explicit_bucket_boundaries_advisory=BOUNDARIES
            )
            for name in ("server.operation", "client.operation", "server.session", "client.session")
        }

    def take(self, record: dict[str, Any]) -> None:
        attributes = record["attributes"]
        measured = {name: attributes[name] for name in MEASURED if attributes.get(name)}
        if "session" in record:
            self._histograms[f"{record['session']}.session"].record(record["seconds"], measured)
            return
        seconds = (record["ended"] - record["began"]) / 1e9
        self._histograms[f"{record['span']}.operation"].record(seconds, measured)
        if record["sampled"]:
            self._spans.on_end(self._span(record))

    def _span(self, record: dict[str, Any]) -> ReadableSpan:
        trace, failure = int(record["trace"], 16), record["attributes"].get("error.type")
        flags, state = TraceFlags(TraceFlags.SAMPLED), TraceState.from_header([record["state"]])
        parent = (
            SpanContext(trace, int(record["parent"], 16), True, flags, state) if record["parent"] else None
        )
        return ReadableSpan(
            record["name"],
            context=SpanContext(trace, int(record["id"], 16), False, flags, state),
            parent=parent,
            resource=self._resource,
            attributes=record["attributes"],
            kind=KINDS[record["span"]],
            status=Status(StatusCode.ERROR) if failure else Status(StatusCode.UNSET),
            start_time=record["began"],
            end_time=record["ended"],
            instrumentation_scope=self._scope,
        )

    def close(self) -> None:
        """Both at once: where nobody answers, neither waits for the other."""
        endings = [threading.Thread(target=one.shutdown, daemon=True) for one in (self._spans, self._meters)]
        for one in endings:
            one.start()
        until = time.monotonic() + LAST_S
        for one in endings:
            one.join(max(0.0, until - time.monotonic()))


class Complaints(logging.Handler):
    """That telemetry cannot be delivered is said once in a while, and in one line."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_at = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._said_at > COMPLAIN_S:
            self._said_at = now
            os.write(2, b"perdure: telemetry cannot be delivered to its collector\n")


def main() -> int:
    # A terminal's interrupt is for the host; the end of the input is for us.
    signals.ignore((signals.INTERRUPT,))
    logging.basicConfig(handlers=[Complaints()], level=logging.WARNING, force=True)
    sender = Sender(os.environ.get("PERDURE_OTEL") or ON)
    for line in sys.stdin.buffer:
        sender.take(msgspec.json.decode(line))
    sender.close()
    os._exit(0)


def _every(variable: str, usual: int) -> float:
    given = os.environ.get(variable, "")
    return float(given) if given.isdigit() and int(given) else float(usual)
