"""A collector on this machine: takes OTLP over HTTP, and remembers every span and every measurement."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Seen(msgspec.Struct, frozen=True):
    """A span as it arrived."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    state: str
    status: int
    attributes: dict[str, Any]


class Receiver:
    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.resources: list[dict[str, Any]] = []
        self.bodies = b""
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def take(self, path: str, body: bytes) -> None:
        self.bodies += body
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                self.resources.append(_attributes(resource.resource.attributes))
                self.spans += [_seen(span) for scope in resource.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    for point in metric.histogram.data_points:
                        found = _attributes(point.attributes)
                        key = (metric.name, str(found.get("error.type", "")))
                        self.counts[key] = max(self.counts.get(key, 0), point.count)

    def until(self, is_there: Callable[[Receiver], bool]) -> None:
        end = time.monotonic() + 60
        while not is_there(self):
            assert time.monotonic() < end, ([span.name for span in self.spans], self.counts)
            time.sleep(0.05)

    def span(self, name: str, kind: int) -> Seen:
        self.until(lambda receiver: any((one.name, one.kind) == (name, kind) for one in receiver.spans))
        return next(one for one in self.spans if (one.name, one.kind) == (name, kind))


def _seen(span: Any) -> Seen:
    return Seen(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.trace_state,
        span.status.code,
        _attributes(span.attributes),
    )


def _attributes(found: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found}
