"""The worker as a real process on a real pipe: raw frames, and the official client in both eras."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters

from perdure import __version__
from perdure.protocol import eras
from perdure.protocol.envelope import error_schema
from perdure.protocol.frames import salvage_id
from perdure.supervise.line_io import Oversize
from perdure.worker.pipe import FrameReader
from perdure.worker.server import MAX_UNFINISHED

SURFACE = str(Path(__file__).with_name("probing_surface.py"))
ENVELOPE = {
    eras.META_VERSION: "2026-07-28",
    eras.META_CAPABILITIES: {},
    eras.META_CLIENT: {"name": "modern-client", "version": "1"},
}


class Pipe:
    """A client that writes and reads raw frames."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *(command or (SURFACE,))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._frames: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._errors: queue.Queue[bytes] = queue.Queue()
        self._last_id = 0
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._read_errors, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._frames.put(json.loads(line))
        self._frames.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._errors.put(line)

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method: str, params: Any = None, identity: Any = None) -> None:
        frame: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if identity is not None:
            frame["id"] = identity
        if params is not None:
            frame["params"] = params
        self.send_bytes(json.dumps(frame).encode() + b"\n")

    def receive(self, seconds: float = 20) -> dict[str, Any]:
        frame = self._frames.get(timeout=seconds)
        assert frame is not None, "the worker closed its output"
        return frame

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        self._last_id += 1
        self.send(method, params, self._last_id)
        answer = self.receive()
        assert answer["id"] == self._last_id
        return answer

    def call(self, name: str, arguments: Any = None, meta: Any = None) -> dict[str, Any]:
        params = {"name": name, "arguments": {} if arguments is None else arguments}
        if meta is not None:
            params["_meta"] = meta
        result = self.ask("tools/call", params)["result"]
        assert isinstance(result, dict)
        return result

    def fail(self, arguments: Any) -> dict[str, Any]:
        result = self.call("fail", {"render": "json", **arguments})
        assert result["isError"] is True
        structured = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == structured
        assert set(structured) == set(error_schema()["required"])
        assert isinstance(structured, dict)
        return structured

    def stderr_line(self) -> bytes:
        return self._errors.get(timeout=20)

    def close(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(20)


@pytest.fixture
def worker() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    if pipe.process.poll() is None:
        pipe.process.kill()
        pipe.process.wait()


# --- handshake era ---------------------------------------------------------------------------------


def test_the_handshake_names_the_server_and_keeps_a_known_version(worker: Pipe) -> None:
    result = worker.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})["result"]
    assert result["protocolVersion"] == "2025-06-18"
    assert result["serverInfo"]["name"] == "perdure"
    assert result["serverInfo"]["version"] == __version__
    assert result["instructions"]
    assert "resultType" not in result


def test_an_unknown_handshake_version_is_answered_with_the_latest(worker: Pipe) -> None:
    result = worker.ask("initialize", {"protocolVersion": "1999-01-01"})["result"]
    assert result["protocolVersion"] == eras.LATEST_HANDSHAKE


def test_every_list_is_there_without_any_handshake(worker: Pipe) -> None:
    assert len(worker.ask("tools/list")["result"]["tools"]) == 6
    prompts = worker.ask("prompts/list", {})["result"]["prompts"]
    assert [prompt["name"] for prompt in prompts] == ["undo", "handoff", "review-changes"]
    assert worker.ask("resources/templates/list")["result"] == {"resourceTemplates": []}
    uris = [r["uri"] for r in worker.ask("resources/list")["result"]["resources"]]
    assert uris == ["perdure://schema/error", "probing://doc"]
    assert worker.ask("completion/complete", {})["result"]["completion"]["values"] == []
    assert worker.ask("ping")["result"] == {}


def test_a_prompt_is_the_text_that_a_user_would_type(worker: Pipe) -> None:
    def text(**params: object) -> str:
        result = worker.ask("prompts/get", params)["result"]
        assert [message["role"] for message in result["messages"]] == ["user"]
        return str(result["messages"][0]["content"]["text"])

    assert "src/a.py" in text(name="undo", arguments={"what": "src/a.py"})
    assert "your last change" in text(name="undo")
    assert "handoff_write" in text(name="handoff", arguments={"note": "  "})
    assert "2h" in text(name="review-changes", arguments={"since": "2h"})
    for prompt in ("undo", "handoff", "review-changes"):
        assert "{" not in text(name=prompt)


def test_a_prompt_that_cannot_be_made_says_what_there_is(worker: Pipe) -> None:
    assert "review-changes" in worker.ask("prompts/get", {"name": "nope"})["error"]["message"]
    unknown = worker.ask("prompts/get", {"name": "undo", "arguments": {"path": "a"}})["error"]
    assert unknown["code"] == -32602
    assert "what" in unknown["message"]
    wrong = worker.ask("prompts/get", {"name": "undo", "arguments": {"what": 3}})["error"]
    assert "strings" in wrong["message"]


def test_a_list_carries_the_contract_that_the_host_reads(worker: Pipe) -> None:
    tools = {tool["name"]: tool for tool in worker.ask("tools/list")["result"]["tools"]}
    assert tools["echo"]["_meta"]["perdure/contract"] == {
        "replay": "probe",
        "conflict": ["/path"],
        "deadline_s": 30,
        "aliases": ["rw.echo"],
        "waits": False,
    }
    assert tools["whoami"]["_meta"]["perdure/contract"]["replay"] == "convergent"
    assert tools["fail"]["_meta"]["perdure/contract"]["replay"] == "never"


def test_a_cursor_nobody_gave_out_is_refused(worker: Pipe) -> None:
    assert worker.ask("tools/list", {"cursor": "x"})["error"]["code"] == -32602


def test_unknown_methods_and_unknown_tools_are_protocol_errors(worker: Pipe) -> None:
    assert worker.ask("no/such")["error"]["code"] == -32601
    assert worker.ask("tools/call", {"name": "nope"})["error"]["code"] == -32602
    assert worker.ask("tools/call", {})["error"]["code"] == -32602
    assert worker.ask("resources/read", {"uri": "no://such"})["error"]["code"] == -32002


def test_the_error_schema_is_served(worker: Pipe) -> None:
    content = worker.ask("resources/read", {"uri": "perdure://schema/error"})["result"]["contents"][0]
    assert json.loads(content["text"]) == error_schema()


# --- 2026-07-28 --------------------------------------------------------------------------------------


def test_discover_is_answered_and_initialize_is_still_accepted_after_it(worker: Pipe) -> None:
    result = worker.ask("server/discover", {"_meta": ENVELOPE})["result"]
    assert result["supportedVersions"][0] == "2026-07-28"
    assert result["resultType"] == "complete"
    assert result["cacheScope"] in ("private", "public")
    assert result["_meta"][eras.META_SERVER]["name"] == "perdure"
    assert worker.ask("initialize", {"protocolVersion": "2025-11-25"})["result"]["serverInfo"]
    assert "resultType" not in worker.ask("tools/list")["result"]
    assert worker.ask("tools/list", {"_meta": ENVELOPE})["result"]["resultType"] == "complete"


@pytest.mark.parametrize("missing", [eras.META_VERSION, eras.META_CAPABILITIES])
def test_half_an_envelope_is_refused_by_name(worker: Pipe, missing: str) -> None:
    meta = {key: value for key, value in ENVELOPE.items() if key != missing}
    error = worker.ask("tools/list", {"_meta": meta})["error"]
    assert error["code"] == -32602
    assert missing in error["message"]


def test_discover_without_an_envelope_is_refused(worker: Pipe) -> None:
    assert worker.ask("server/discover")["error"]["code"] == -32602


def test_an_unsupported_version_is_answered_with_those_supported(worker: Pipe) -> None:
    error = worker.ask("tools/list", {"_meta": {**ENVELOPE, eras.META_VERSION: "2031-01-01"}})["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": list(eras.MODERN_VERSIONS), "requested": "2031-01-01"}


def test_methods_of_the_handshake_era_are_not_part_of_the_modern_one(worker: Pipe) -> None:
    assert worker.ask("ping", {"_meta": ENVELOPE})["error"]["code"] == -32601
    assert worker.ask("logging/setLevel", {"level": "info", "_meta": ENVELOPE})["error"]["code"] == -32601
    assert worker.ask("resources/read", {"uri": "no://such", "_meta": ENVELOPE})["error"]["code"] == -32602


def test_a_subscription_is_acknowledged_and_ends_with_the_pipe(worker: Pipe) -> None:
    params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    worker.send("subscriptions/listen", params, "listen-1")
    ack = worker.receive()
    assert ack["method"] == "notifications/subscriptions/acknowledged"
    assert ack["params"] == {"notifications": {}, "_meta": {eras.META_SUBSCRIPTION: "listen-1"}}
    assert worker.ask("tools/list", {"_meta": ENVELOPE})["result"]["tools"]
    assert worker.close() == 0
    end = worker.receive()
    assert end["id"] == "listen-1"
    assert end["result"]["_meta"][eras.META_SUBSCRIPTION] == "listen-1"


def test_a_cancelled_subscription_frees_its_id(worker: Pipe) -> None:
    params = {"notifications": {}, "_meta": ENVELOPE}
    for _ in range(2):
        worker.send("subscriptions/listen", params, "again")
        assert worker.receive()["method"] == "notifications/subscriptions/acknowledged"
        worker.send("notifications/cancelled", {"requestId": "again"})


# --- calls -------------------------------------------------------------------------------------------


def test_porcelain_is_the_default_and_carries_no_structured_content(worker: Pipe) -> None:
    result = worker.call("echo", {"path": "src/app.py", "content": "x" * 1204})
    assert result["content"] == [
        {
            "type": "text",
            "text": "echoed src/app.py  1,204 bytes  sha256 4b0c12000000\nrows: 1 row\nn\n0",
        }
    ]
    assert "structuredContent" not in result
    assert result["isError"] is False


def test_json_is_the_same_object_twice_and_concise_is_a_summary(worker: Pipe) -> None:
    short = worker.call("echo", {"path": "a", "content": "abc", "render": "json"})
    whole = worker.call("echo", {"path": "a", "content": "abc", "render": "json", "detail": "full"})
    for result in (short, whole):
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert whole["structuredContent"]["rows"] == [{"n": 0, "content": "abc"}]
    assert short["structuredContent"]["rows"] == [{"n": 0}]
    assert "mode" not in short["structuredContent"]
    assert short["structuredContent"]["ok"] is whole["structuredContent"]["ok"] is True


def test_a_dotted_name_is_accepted_and_gets_every_key(worker: Pipe) -> None:
    result = worker.call("rw.echo", {"path": "a", "render": "json", "detail": "concise"})
    assert result["structuredContent"]["mode"] == "create"


def test_the_servers_default_view_can_be_json() -> None:
    worker = Pipe(SURFACE, '{"render": "json"}')
    assert worker.call("echo", {"path": "a"})["structuredContent"]["path"] == "a"
    assert "structuredContent" not in worker.call("echo", {"path": "a", "render": "porcelain"})
    assert worker.close() == 0


def test_arguments_are_normalized_where_they_are_certain(worker: Pipe) -> None:
    arguments = {"file_path": "file:///srv/project/my%20file", "count": "2", "render": "json"}
    structured = worker.call("echo", arguments)["structuredContent"]
    assert structured["path"] == "my file"
    assert len(structured["rows"]) == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "missing_argument"),
        ({"pth": "a"}, "unknown_argument"),
        ({"path": "a", "count": "2.5"}, "bad_argument"),
        ({"path": "a", "count": 100}, "bad_argument"),
        ({"path": "a", "mode": "SECRET"}, "not_a_choice"),
        ({"path": "a", "file_path": "b"}, "conflicting_alias"),
        ({"path": "a", "render": "SECRET"}, "not_a_choice"),
        (["SECRET"], "not_an_object"),
    ],
)
def test_bad_arguments_are_an_envelope_without_what_was_sent(
    worker: Pipe, arguments: Any, reason: str
) -> None:
    result = worker.call("echo", arguments)
    assert result["isError"] is True
    lines = result["content"][0]["text"].split("\n")
    assert lines[1].startswith("next: echo")
    assert lines[-1] == f"[invalid_input/{reason}]"
    assert "SECRET" not in json.dumps(result)


def test_members_that_two_readers_read_differently_are_refused(worker: Pipe) -> None:
    worker.send_bytes(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",'
        b'"arguments":{"path":"a","path":"b"}}}\n'
    )
    text = worker.receive()["result"]["content"][0]["text"]
    assert text.endswith("[invalid_input/duplicate_argument]")
    worker.send_bytes(
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","name":"fail"}}\n'
    )
    assert worker.receive()["error"]["code"] == -32602


def test_a_refusal_keeps_every_member_of_its_envelope(worker: Pipe) -> None:
    envelope = worker.fail({"how": "refused"})
    assert envelope["error"] == "blocked"
    assert envelope["detected_patterns"] == ["github_pat"]
    assert envelope["draft"] == "d_1"
    assert envelope["context"]["tool"] == "fail"
    text = worker.call("fail", {"how": "refused"})["content"][0]["text"]
    assert text.split("\n") == [
        "not written: the content was refused.",
        "next: fail how=...",
        "draft: d_1",
        "retry_budget: 2",
        "detected_patterns: github_pat",
        "[blocked/classified]",
    ]


@pytest.mark.parametrize("how", ["unexpected", "exit", "os", "deep", "no object", "assertion"])
def test_an_unexpected_exception_is_an_envelope_that_tells_nothing(worker: Pipe, how: str) -> None:
    envelope = worker.fail({"how": how, "secret": "s3cr3t-content"})
    assert envelope["error"] == ("policy_violation" if how == "os" else "blocked")
    assert "s3cr3t" not in json.dumps(envelope)
    assert "/etc" not in json.dumps(envelope)
    line = worker.stderr_line()
    assert envelope["context"]["incident"].encode() in line
    assert b"s3cr3t" not in line
    assert b"/etc" not in line
    assert worker.call("whoami")["isError"] is False


def test_stray_output_never_reaches_the_protocol(worker: Pipe) -> None:
    assert worker.call("noisy")["isError"] is False
    assert worker.ask("ping")["result"] == {}


def test_a_slow_tool_delays_neither_a_ping_nor_another_tool(worker: Pipe) -> None:
    worker.send("tools/call", {"name": "wait", "arguments": {"seconds": 60}}, "slow")
    assert worker.ask("ping")["result"] == {}
    assert worker.ask("tools/list")["result"]["tools"]
    assert worker.call("whoami")["isError"] is False
    worker.send("notifications/cancelled", {"requestId": "slow"})


def test_a_cancelled_call_stops_and_gets_no_response(worker: Pipe) -> None:
    worker.send("tools/call", {"name": "wait", "arguments": {}}, "7")
    worker.send("notifications/cancelled", {"requestId": 7})
    worker.send("notifications/cancelled", {})
    assert worker.ask("ping")["result"] == {}
    worker.send("notifications/cancelled", {"requestId": "7"})
    assert worker.stderr_line() == b"wait ended\n"
    assert worker.ask("ping")["result"] == {}
    assert worker.close() == 0
    assert worker._frames.get(timeout=20) is None


def test_an_id_in_use_is_refused_and_its_call_lives(worker: Pipe) -> None:
    worker.send("tools/call", {"name": "wait", "arguments": {"seconds": 0.3}}, 5)
    worker.send("ping", None, 5)
    assert worker.receive()["error"]["code"] == -32600
    answer = worker.receive()
    assert (answer["id"], answer["result"]["isError"]) == (5, False)


def test_an_id_is_free_again_as_soon_as_it_was_answered(worker: Pipe) -> None:
    for _ in range(200):
        worker.send("tools/call", {"name": "whoami"}, 1)
        assert "result" in worker.receive()


def test_progress_is_told_for_token_zero_and_only_when_it_advances(worker: Pipe) -> None:
    params = {
        "name": "wait",
        "arguments": {"seconds": 0, "steps": 3},
        "_meta": {"progressToken": 0},
    }
    worker.send("tools/call", params, 1)
    seen = [worker.receive() for _ in range(4)]
    assert [frame["params"]["progress"] for frame in seen[:3]] == [0, 1, 2]
    assert {frame["params"]["progressToken"] for frame in seen[:3]} == {0}
    assert seen[3]["id"] == 1
    worker.send("tools/call", {"name": "wait", "arguments": {"seconds": 0, "steps": 3}}, 2)
    assert worker.receive()["id"] == 2


def test_log_messages_come_only_at_the_level_asked_for(worker: Pipe) -> None:
    assert worker.call("speak")["isError"] is False
    assert worker.ask("logging/setLevel", {"level": "nonsense"})["error"]["code"] == -32602
    assert worker.ask("logging/setLevel", {"level": "warning"})["result"] == {}
    worker.send("tools/call", {"name": "speak"}, 9)
    assert worker.receive()["params"] == {"level": "error", "logger": "perdure.speak", "data": "loud"}
    assert worker.receive()["id"] == 9
    worker.send("tools/call", {"name": "speak", "_meta": {**ENVELOPE, eras.META_LOG_LEVEL: "debug"}}, 10)
    assert [worker.receive()["params"]["level"] for _ in range(2)] == ["info", "error"]


def test_more_calls_than_the_bound_are_refused_and_the_others_live(worker: Pipe) -> None:
    # None of the accepted ones ends before the last is sent, so the refused ones are known.
    for number in range(MAX_UNFINISHED + 3):
        worker.send("tools/call", {"name": "wait", "arguments": {"seconds": 60}}, f"w{number}")
    for number in range(MAX_UNFINISHED, MAX_UNFINISHED + 3):
        refused = worker.receive()
        assert (refused["id"], refused["error"]["code"]) == (f"w{number}", -31097)
        assert refused["error"]["data"]["outcome"] == "not_started"
        assert refused["error"]["data"]["retry"] == "later"
    assert worker.ask("ping")["result"] == {}


# --- who is asking, and what became of it ------------------------------------------------------------


def test_without_a_host_the_client_speaks_for_itself(worker: Pipe) -> None:
    def who(meta: Any = None) -> dict[str, Any]:
        result = worker.call("whoami", {"render": "json", "detail": "full"}, meta)["structuredContent"]
        assert isinstance(result, dict)
        return result

    assert who()["client"] == "unknown"
    worker.ask("initialize", {"clientInfo": {"name": "cursor", "version": "1"}})
    mine = who()
    assert mine["client"] == "cursor"
    assert mine["session"]
    assert mine["invocation_key"] is None
    assert who(ENVELOPE)["client"] == "modern-client"
    assert who(ENVELOPE)["session"] == mine["session"]
    told = {eras.META_INVOCATION: "k-1", eras.META_CALLER: {"name": "zed", "session": "s-9"}}
    assert who(told) == {"ok": True, "client": "zed", "session": "s-9", "invocation_key": "k-1"}


def test_a_probe_answers_with_what_the_journal_knows(worker: Pipe) -> None:
    def probe(key: str, tool: str = "echo") -> dict[str, Any]:
        result = worker.ask("perdure/probe", {"key": key, "tool": tool})["result"]
        assert isinstance(result, dict)
        return result

    assert probe("absent") == {"status": "absent"}
    assert probe("other") == {"status": "unknown"}
    assert probe("absent", "no_such_tool") == {"status": "unknown"}
    done = probe("done")
    assert done["status"] == "done"
    assert done["result"]["structuredContent"]["path"] == "a.txt"
    assert probe("failed")["result"]["isError"] is True
    assert probe("done", "rw.echo")["status"] == "done"
    assert worker.ask("perdure/probe", {"key": 3})["error"]["code"] == -32602


def test_a_probe_never_says_absent_while_the_call_still_runs(worker: Pipe) -> None:
    params = {"name": "wait", "arguments": {}, "_meta": {eras.META_INVOCATION: "absent"}}
    worker.send("tools/call", params, "w")
    assert worker.ask("perdure/probe", {"key": "absent", "tool": "wait"})["result"] == {"status": "unknown"}
    worker.send("notifications/cancelled", {"requestId": "w"})
    assert worker.stderr_line() == b"wait ended\n"


# --- the pipe ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"not json", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud800"}}', -32700),
        (b'\xff{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700),
    ],
)
def test_a_malformed_frame_is_answered_and_the_session_lives(worker: Pipe, frame: bytes, code: int) -> None:
    worker.send_bytes(frame + b"\n\r\n\n")
    assert worker.receive()["error"]["code"] == code
    assert worker.ask("ping")["result"] == {}


def test_stray_responses_and_notifications_are_not_answered(worker: Pipe) -> None:
    worker.send_bytes(b'{"jsonrpc":"2.0","id":44,"result":{}}\n')
    worker.send("notifications/initialized")
    worker.send("notifications/unheard_of", {"x": 1})
    assert worker.ask("ping")["result"] == {}


def test_the_end_of_input_lets_running_calls_finish(worker: Pipe) -> None:
    worker.send("tools/call", {"name": "wait", "arguments": {"seconds": 0.3}}, 3)
    assert worker.close() == 0
    assert worker.receive()["id"] == 3


@pytest.mark.thorough
def test_the_end_of_input_does_not_wait_for_a_call_that_never_ends(worker: Pipe) -> None:
    worker.send("tools/call", {"name": "wait", "arguments": {"seconds": 600}}, 3)
    assert worker.close() == 0


def test_the_command_serves_and_refuses_surfaces_it_does_not_know(tmp_path: Path) -> None:
    command = "import sys; from perdure.cli.worker import main; sys.exit(main(sys.argv[1:]))"
    worker = Pipe("-c", command, "--workspace", str(tmp_path), "--surfaces", "", "--render", "json")
    assert worker.ask("tools/list")["result"] == {"tools": []}
    assert worker.close() == 0
    wrong = Pipe("-c", command, "--surfaces", "write,sate")
    assert wrong.close() == 2
    assert b"sate" in wrong.stderr_line()


# --- the official client -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
def test_the_official_client_works_in_every_mode(mode: str) -> None:
    import anyio

    async def session() -> None:
        server = StdioServerParameters(command=sys.executable, args=[SURFACE])
        async with Client(server, mode=mode) as client:
            if mode != "2026-07-28":
                assert client.server_info is not None
                assert client.server_info.name == "perdure"
                assert client.instructions
            assert client.protocol_version == (eras.LATEST_HANDSHAKE if mode == "legacy" else "2026-07-28")
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["echo", "wait", "fail", "whoami", "noisy", "speak"]
            told: list[float] = []

            async def on_progress(value: float, _total: float | None, _message: str | None) -> None:
                told.append(value)

            await client.call_tool("wait", {"seconds": 0, "steps": 2}, progress_callback=on_progress)
            assert told == [0, 1]
            plain = await client.call_tool("echo", {"path": "a.txt"})
            assert plain.structured_content is None
            shown = await client.call_tool("echo", {"path": "a.txt", "render": "json"})
            assert shown.structured_content is not None
            failed = await client.call_tool("fail", {"how": "unexpected"})
            assert failed.is_error
            with pytest.raises(MCPError):
                await client.call_tool("nope", {})
            read = await client.read_resource("perdure://schema/error")
            assert read.contents
            assert "undo" in [one.name for one in (await client.list_prompts()).prompts]
            prompt = await client.get_prompt("undo", {"what": "a.txt"})
            assert "a.txt" in prompt.messages[0].content.text
            if mode != "legacy":
                async with client.listen(tools_list_changed=True) as stream:
                    assert not stream.honored.tools_list_changed

    anyio.run(session)


# --- bounds and cost -----------------------------------------------------------------------------------


def frames_of(data: bytes, limit: int) -> list[bytes | Oversize]:
    source, sink = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(sink, data), os.close(sink)))
    writer.start()
    found = list(FrameReader(source, limit))
    writer.join()
    os.close(source)
    return found


def test_an_oversize_frame_is_skipped_with_its_id_and_the_next_one_is_read() -> None:
    long = b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"' + b"y" * 600_000 + b'"}}'
    oversize, after = frames_of(long + b"\n  ok \r\nunfinished", 1000)
    assert isinstance(oversize, Oversize)
    assert salvage_id(oversize.head, oversize.tail) == 7
    assert after == b"  ok "
    last = b'{"params":{"a":"' + b"y" * 600_000 + b'"},"id":"z"}'
    (tail,) = frames_of(last + b"\n", 1000)
    assert isinstance(tail, Oversize)
    assert salvage_id(tail.head, tail.tail) == "z"


def test_a_frame_of_exactly_the_bound_is_read() -> None:
    assert frames_of(b"x" * 1000 + b"\n" + b"y" * 1001 + b"\n", 1000)[0] == b"x" * 1000


def test_a_worker_starts_without_anything_heavy() -> None:
    code = (
        "import sys; from perdure.cli.worker import main; main([]);"
        "print(*[m for m in ('asyncio', 'mcp', 'difflib', 'sqlite3')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert done.stderr.split() == []
    assert done.stdout == b""
