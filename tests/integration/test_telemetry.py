"""Spans, metrics and logs of real hosts, as a real collector and a real reader of standard error get them."""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otlp_receiver import Receiver
from perdure.testing import fake_server
from perdure.testing.http_client import ServeProcess, free_port
from perdure.testing.raw_client import RawClient

pytestmark = pytest.mark.thorough

SERVER, CLIENT = 2, 3
ERROR = 2
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "rojo=1", "baggage": "user=ann"}
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "200"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def mount() -> str:
    return "s=" + shlex.join((sys.executable, "-S", fake_server.__file__))


def run(tmp_path: Path, *options: str, **env: str) -> RawClient:
    found = {**os.environ, "PERDURE_HOME": str(tmp_path / "home"), **QUICK, **env}
    command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(tmp_path), "--mount", mount()]
    client = RawClient([*command, *options], env=found)
    client.initialize()
    return client


def received(answer: Any) -> Any:
    """The `_meta` with which a call reached the server behind us."""
    return json.loads(answer["result"]["content"][0]["text"])["_meta"]


# --- spans -------------------------------------------------------------------------------------------------


def test_a_call_is_a_span_with_its_try_below_it_and_the_child_gets_the_try_as_parent(
    tmp_path: Path, receiver: Receiver
) -> None:
    with run(tmp_path, "--otel", receiver.url) as client:
        params = {"name": "s__custom_meta", "arguments": {}, "_meta": CONTEXT}
        answer = client.request("tools/call", params)
        outer, inner = (
            receiver.span("tools/call s__custom_meta", SERVER),
            receiver.span("tools/call custom_meta", CLIENT),
        )
    assert (outer.trace, outer.parent, outer.state) == (TRACE, PARENT, "rojo=1")
    assert (inner.trace, inner.parent) == (TRACE, outer.id)
    seen = received(answer)
    assert seen["traceparent"] == f"00-{TRACE}-{inner.id}-01"
    assert (seen["tracestate"], seen["baggage"]) == ("rojo=1", "user=ann")
    assert outer.attributes["mcp.method.name"] == "tools/call"
    assert outer.attributes["gen_ai.operation.name"] == "execute_tool"
    assert outer.attributes["gen_ai.tool.name"] == "s__custom_meta"
    assert outer.attributes["mcp.protocol.version"] == "2025-11-25"
    assert outer.attributes["network.transport"] == "pipe"
    assert outer.attributes["mcp.session.id"]
    assert inner.attributes["perdure.mount"] == "s"
    assert receiver.resources[0]["service.name"] == "perdure"


def test_a_tool_that_failed_and_a_request_that_was_refused_are_errors(
    tmp_path: Path, receiver: Receiver
) -> None:
    with run(tmp_path, "--otel", receiver.url) as client:
        assert client.call("read", {"path": "nowhere"})["result"]["isError"]
        client.request("tools/call", {"name": "no_such_tool", "arguments": {}})
        failed = receiver.span("tools/call read", SERVER)
        refused = receiver.span("tools/call no_such_tool", SERVER)
        receiver.until(lambda one: ("mcp.server.operation.duration", "tool_error") in one.counts)
    assert (failed.attributes["error.type"], failed.status) == ("tool_error", ERROR)
    assert (refused.attributes["error.type"], refused.status) == ("-32602", ERROR)
    assert refused.attributes["rpc.response.status_code"] == "-32602"


def test_every_try_of_a_replayed_call_is_seen(tmp_path: Path, receiver: Receiver) -> None:
    with run(tmp_path, "--otel", receiver.url) as client:
        assert "result" in client.call("s__whoami", {})  # it is up
        identity = client.start_call("s__read_effect", {"key": "k", "linger_ms": 2000})
        mounts = client.call("health", {"render": "json", "detail": "full"})
        (pid,) = [one["pid"] for one in mounts["result"]["structuredContent"]["mounts"] if one["name"] == "s"]
        os.kill(pid, 9)
        assert "result" in client.wait(identity)
        outer = receiver.span("tools/call s__read_effect", SERVER)
        receiver.until(lambda one: len([s for s in one.spans if s.name == "tools/call read_effect"]) == 2)
    tries = [span for span in receiver.spans if span.name == "tools/call read_effect"]
    assert {span.parent for span in tries} == {outer.id}
    assert sorted(span.attributes.get("error.type", "") for span in tries)[0] == ""
    assert any(span.status == ERROR for span in tries)


@pytest.mark.parametrize(
    "given", ["00-0-0-01", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", 7, None, {"a": 1}]
)
def test_a_context_that_makes_no_sense_begins_a_trace_of_its_own(
    tmp_path: Path, receiver: Receiver, given: Any
) -> None:
    with run(tmp_path, "--otel", receiver.url) as client:
        meta = {"traceparent": given, "tracestate": "rojo=1"}
        answer = client.request("tools/call", {"name": "s__custom_meta", "arguments": {}, "_meta": meta})
        span = receiver.span("tools/call s__custom_meta", SERVER)
    assert span.parent == ""
    assert span.trace != TRACE
    assert "tracestate" not in received(answer)


def test_what_its_sender_does_not_sample_is_counted_and_not_sent(tmp_path: Path, receiver: Receiver) -> None:
    with run(tmp_path, "--otel", receiver.url) as client:
        meta = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
        client.request("tools/call", {"name": "s__echo", "arguments": {"text": "x"}, "_meta": meta})
        client.request("tools/call", {"name": "s__whoami", "arguments": {}})
        receiver.span("tools/call s__whoami", SERVER)
        receiver.until(lambda one: one.counts.get(("mcp.server.operation.duration", ""), 0) > 0)
    assert all(span.trace != TRACE for span in receiver.spans)


def test_a_session_that_ends_is_measured_and_what_was_not_sent_yet_is(
    tmp_path: Path, receiver: Receiver
) -> None:
    slow = {"OTEL_BSP_SCHEDULE_DELAY": "600000", "OTEL_METRIC_EXPORT_INTERVAL": "600000"}
    with run(tmp_path, "--otel", receiver.url, **slow) as client:
        client.call("s__echo", {"text": "x"})
        assert receiver.spans == []
    receiver.span("tools/call s__echo", SERVER)
    receiver.until(lambda one: ("mcp.server.session.duration", "") in one.counts)
    receiver.until(lambda one: ("mcp.client.operation.duration", "") in one.counts)


def test_no_argument_and_no_result_is_told(tmp_path: Path, receiver: Receiver) -> None:
    with run(tmp_path, "--otel", receiver.url) as client:
        client.call("safe_write", {"path": "a", "content": "unmistakable content\n"})
        receiver.span("tools/call safe_write", SERVER)
    assert b"unmistakable" not in receiver.bodies


def test_served_clients_of_both_eras_are_traced(tmp_path: Path, receiver: Receiver) -> None:
    served = ServeProcess(
        tmp_path,
        "--mount",
        mount(),
        "--otel",
        "on",
        env={
            **QUICK,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_SERVICE_NAME": "tools",
        },
    )
    try:
        client = served.client()
        client.initialize()
        client.call("s__echo", {"text": "x"})
        span = receiver.span("tools/call s__echo", SERVER)
        assert span.attributes["mcp.session.id"] == client.session
        assert span.attributes["network.protocol.name"] == "http"
        client.modern("tools/call", {"name": "s__whoami", "arguments": {}})
        span = receiver.span("tools/call s__whoami", SERVER)
        assert span.attributes["mcp.protocol.version"] == "2026-07-28"
        assert "mcp.session.id" not in span.attributes
        assert receiver.resources[0]["service.name"] == "tools"
    finally:
        served.stop()
    receiver.until(lambda one: ("mcp.server.session.duration", "") in one.counts)


# --- a collector that fails --------------------------------------------------------------------------------


def test_a_dead_collector_costs_no_call_and_no_ending(tmp_path: Path) -> None:
    with run(tmp_path, "--otel", f"http://127.0.0.1:{free_port()}") as client:
        for number in range(200):
            assert "result" in client.call("s__echo", {"text": str(number)})


def test_an_exporter_that_is_killed_is_not_missed(tmp_path: Path, receiver: Receiver) -> None:
    with run(tmp_path, "--otel", receiver.url) as client:
        client.call("s__echo", {"text": "x"})
        receiver.span("tools/call s__echo", SERVER)
        for pid in _exporters(client.pid):
            os.kill(pid, 9)
        for number in range(50):
            assert "result" in client.call("s__echo", {"text": str(number)})


def _exporters(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                of = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if of == parent and b"export-telemetry" in words:
                found.append(int(entry.name))
    assert found
    return found


def test_nothing_of_it_is_loaded_by_the_host(tmp_path: Path, receiver: Receiver) -> None:
    with run(tmp_path, "--otel", receiver.url) as client:
        client.call("s__echo", {"text": "x"})
        receiver.span("tools/call s__echo", SERVER)
        maps = {pid: Path(f"/proc/{pid}/maps").read_text() for pid in _exporters(client.pid)}
        assert all("google" in found for found in maps.values()), "what is looked for is there to be found"
        assert "google" not in Path(f"/proc/{client.pid}/maps").read_text()


@pytest.mark.parametrize("value", ["collector:4318", "ftp://x"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    command = [sys.executable, "-P", "-m", "perdure", "run", "--otel", value]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert "collector" in done.stderr


# --- logs --------------------------------------------------------------------------------------------------


def lines_until(stream: Any, event: str) -> list[dict[str, Any]]:
    """Log records until one of this kind."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + 60
    while time.monotonic() < end and select.select([stream], [], [], 1)[0] is not None:
        found.append(json.loads(stream.readline()))
        if found[-1]["event"] == event:
            return found
    raise AssertionError(found)


@pytest.mark.parametrize("command", ["run", "serve"])
def test_logs_as_json_are_one_object_per_line_without_secrets(tmp_path: Path, command: str) -> None:
    env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home"), "PERDURE_TOKEN": "s3cret-token"}
    words = [sys.executable, "-P", "-m", "perdure", command, "--workspace", str(tmp_path), "--mount", mount()]
    words += ["--log-format", "json", "--log-level", "debug"]
    if command == "serve":
        words += ["--port", str(port := free_port())]
    process = subprocess.Popen(
        words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        if command == "serve":
            assert lines_until(process.stderr, "listening")[-1]["address"].endswith(f":{port}/mcp")
            from perdure.testing.http_client import HttpClient

            client = HttpClient(port, {"Authorization": "Bearer s3cret-token"})
            client.initialize()
            client.call("s__die", {})
        else:
            opening = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            }
            for message in (
                {"id": 1, "method": "initialize", "params": opening},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "tools/call", "params": {"name": "s__die", "arguments": {}}},
            ):
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()
        records = lines_until(process.stderr, "fault")
        assert records[-1]["level"] == "warning"
        assert records[-1]["mount"] == "s"
        assert all({"ts", "level", "pid", "event"} <= record.keys() for record in records)
        assert "s3cret" not in json.dumps(records)
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(30)


def test_a_host_whose_log_nobody_reads_goes_on(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path, "--log-level", "debug", "--log-format", "json")
    try:
        client = served.client()
        client.initialize()
        for number in range(600):
            client.call("set_state", {"key": f"k{number}", "value": "1"})
        assert client.request("ping").last["result"] == {}
    finally:
        assert served.stop() == 0
