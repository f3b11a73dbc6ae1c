"""What the host does not know it passes on as it came, and what it does know it keeps apart."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from perdure.testing.raw_client import MODERN
from testbed import Bed, Client, Server

# Numbers, escapes and an order of members that any parse and print would change.
ARGUMENTS = (
    rb'{"text":"\u00e9 \/ \ud83d\ude00","n":1.50,"e":1E5,"big":123456789012345678901234567890,'
    rb'"nested":{"b":1,"a":[2.0,null]}}'
)
META = rb'{"x.example/k":[1.0,{"z":null}],"trace":"\u0041"}'


def recorded(server: Server, directory: Path) -> Server:
    """The server with every byte of both pipes written down beside it."""
    inner = shlex.join(server.argv)
    script = f"tee -a {directory}/to_server | {inner} | tee -a {directory}/from_server"
    return Server(server.name, ("sh", "-c", script), server.ledgers)


def test_a_wrapped_server_reads_the_clients_params_byte_for_byte(bed: Bed, tmp_path: Path) -> None:
    client = bed.start(bed.wrap_command(recorded(bed.fake("--era=handshake"), tmp_path)))
    client.initialize()
    params = (
        b'{"name":"custom_meta","arguments":' + ARGUMENTS + b',"_meta":' + META + b',"x-param":[ 1 , 2 ]}'
    )
    client.send_bytes(
        b'{"jsonrpc":"2.0","id":"q","method":"tools/call","params":' + params + b',"x-frame":{"k":1.0}}\n'
    )
    answer = client.wait("q")
    assert client.close() == 0  # what was recorded is in the files when its recorders have ended
    (read,) = [line for line in (tmp_path / "to_server").read_bytes().splitlines() if b"custom_meta" in line]
    assert params in read
    assert b'"x-frame":{"k":1.0}' in read
    (written,) = [
        line for line in (tmp_path / "from_server").read_bytes().splitlines() if b'"x-frame"' in line
    ]
    result = written[written.index(b'"result":') :]
    assert answer["result"]["x-extra"] == {"kept": True}
    assert answer["x-frame"] == "kept"
    client.asked.append(("q", "tools/call", False))
    (heard,) = [line for line in client.lines if b'"x-frame"' in line]
    assert result.rstrip(b"}").split(b',"x-frame"')[0] in heard


def test_a_mounted_server_reads_arguments_and_meta_byte_for_byte(bed: Bed, tmp_path: Path) -> None:
    client = bed.run(recorded(bed.fake("--era=handshake"), tmp_path))
    client.send_bytes(
        b'{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"fake__echo","arguments":'
        + ARGUMENTS
        + b',"_meta":'
        + META
        + b',"x-param":[ 1 , 2 ]}}\n'
    )
    client.asked.append(("q", "tools/call", False))
    assert client.wait("q")["result"]["structuredContent"]["text"] == "é / \N{GRINNING FACE}"
    assert client.close() == 0
    read = (tmp_path / "to_server").read_bytes()
    assert ARGUMENTS in read
    assert META in read
    assert b'"x-param":[ 1 , 2 ]' in read


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_unknown_members_of_params_and_results_are_kept(bed: Bed, era: str) -> None:
    import json

    client = bed.run(bed.fake(f"--era={era}"), era=era)  # type: ignore[arg-type]
    response = client.use(
        "fake__custom_meta", {"a": 1}, **{"x-param": {"deep": [1]}, "_meta": {"x.example/in": 1}}
    )
    result = response["result"]
    seen = json.loads(result["content"][0]["text"])
    assert seen["x-param"] == {"deep": [1]}
    assert seen["_meta"]["x.example/in"] == 1
    assert result["x-extra"] == {"kept": True}
    assert result["_meta"]["x.example/note"] == [1, 2.5, None]
    assert response["x-frame"] == "kept"


def test_an_unknown_method_goes_to_the_only_server(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    client.names()
    assert client.get("x/echo", {"any": [1, {"thing": None}]}) == {"any": [1, {"thing": None}]}
    assert client.ask("x/none")["error"]["code"] == -32601


@pytest.mark.thorough
def test_an_unknown_method_between_two_servers_goes_to_the_one_that_is_named(bed: Bed) -> None:
    client = bed.run(bed.fake(name="one"), bed.fake(name="two"))
    assert client.ask("x/echo", {"a": 1})["error"]["code"] == -32601
    chosen = {"a": 1, "_meta": {"perdure/mount": "two"}}
    assert client.get("x/echo", chosen)["a"] == 1


def test_an_unknown_notification_travels_both_ways(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    client.names()
    client.notify("notifications/x/ping", {"n": 1.5, "deep": {"k": []}})
    assert client.wait_notification("notifications/x/pong")["params"] == {"n": 1.5, "deep": {"k": []}}


# Ids


def test_the_ids_7_and_text_7_are_two_requests(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    client.names()
    client.start("tools/call", {"name": "fake__echo", "arguments": {"text": "number", "delay_ms": 60}}, id=7)
    client.start("tools/call", {"name": "fake__echo", "arguments": {"text": "text"}}, id="7")
    assert client.wait("7")["result"]["structuredContent"] == {"text": "text"}
    assert client.wait(7)["result"]["structuredContent"] == {"text": "number"}


@pytest.mark.thorough
def test_cancelling_7_leaves_text_7_alone(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    client.names()
    for identity, ms in ((7, 60_000), ("7", 50)):
        client.start("tools/call", {"name": "fake__slow", "arguments": {"ms": ms}}, id=identity)
    client.cancel(7)
    assert "result" in client.wait("7")
    assert 7 not in client.answers


def test_an_id_in_use_is_refused_without_its_id_and_may_be_used_again_after_the_answer(bed: Bed) -> None:
    fake = bed.fake("--era=handshake")
    client = bed.run(fake)
    client.names()
    slow = {"name": "fake__slow", "arguments": {"ms": 300, "key": "first"}}
    client.start("tools/call", slow, id="same")
    client.start("tools/call", {**slow, "arguments": {"ms": 0, "key": "second"}}, id="same")
    client.wait_until(lambda: bool(client.strays), 5, "refusal")
    assert client.strays[0]["id"] is None
    assert client.strays[0]["error"]["data"]["code"] == "duplicate_id"
    client.expected_strays = 1
    assert client.wait("same")["result"]["structuredContent"] == {"key": "first"}
    assert fake.dispatches == ["slow first"]
    client.start("tools/call", {**slow, "arguments": {"ms": 0, "key": "third"}}, id="same")
    client.wait_until(lambda: len(client.answers["same"]) == 2, 5, "second answer")
    assert client.answers["same"][1]["result"]["structuredContent"] == {"key": "third"}


def test_any_id_comes_back_as_it_was_sent(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    for identity in (0, -1, 2**53 + 1, "", "0", "\u00fc", "x" * 1000):
        response = client.ask("tools/call", {"name": "fake__echo", "arguments": {}}, id=identity)
        assert response["id"] == identity
        assert type(response["id"]) is type(identity)


# Opening


def test_a_client_may_probe_with_discover_and_go_on_with_initialize(bed: Bed) -> None:
    client = bed.start(bed.command(bed.fake("--era=handshake")))
    found = client.modern("server/discover")["result"]
    assert MODERN in found["supportedVersions"]
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "perdure"
    assert client.initialize()["serverInfo"]["name"] == "perdure"
    assert client.use_text("fake__echo", {"text": "hi"}) == "hi"


def test_a_client_that_did_not_wait_for_discover_gets_both_answers(bed: Bed) -> None:
    client = bed.start(bed.command(bed.fake("--era=handshake")))
    probe = client.start("server/discover", {"_meta": {}}, id="probe")
    client.initialize()
    assert client.wait(probe)["error"]["code"] == -32602
    assert client.use_text("fake__echo", {"text": "hi"}) == "hi"


def test_requests_of_both_eras_are_served_on_one_pipe(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    assert "resultType" not in client.get("tools/list")
    assert client.modern("tools/list")["result"]["resultType"] == "complete"
    assert client.modern_call("fake__echo", {"text": "x"})["result"]["resultType"] == "complete"
    assert "resultType" not in client.use("fake__echo", {"text": "x"})["result"]


def test_an_unsupported_2026_version_is_refused_with_the_supported_ones(bed: Bed) -> None:
    client = bed.start(bed.command(bed.fake()))
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    client.is_checked = False
    error = client.request("tools/list", {"_meta": meta})["error"]
    assert error["code"] == -32022
    assert MODERN in error["data"]["supported"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_handshake_version_is_spoken_as_offered(bed: Bed, version: str) -> None:
    client = bed.run(bed.fake("--era=handshake"), version=version)
    assert client.version == version
    assert client.use_data("fake__whoami")["protocol"] == version


def test_an_unknown_handshake_version_is_answered_with_the_latest(bed: Bed) -> None:
    client = bed.start(bed.command(bed.fake("--era=handshake")))
    assert client.initialize("1999-01-01")["protocolVersion"] == "2025-11-25"


def test_a_server_of_an_old_version_serves_a_new_client(bed: Bed) -> None:
    client = bed.run(bed.fake("--version-limit=2024-11-05"))
    assert client.use_data("fake__whoami")["protocol"] == "2024-11-05"
    assert client.version == "2025-11-25"


@pytest.mark.thorough
def test_the_server_sees_who_the_client_is(bed: Bed) -> None:
    for era in ("handshake", "modern"):
        client = bed.run(bed.fake(f"--era={era}"))
        said = client.use_data("fake__whoami")["initialize"]
        assert said["clientInfo"] == {"name": "raw-client", "version": "1.0.0"}
        assert "sampling" in said["capabilities"]


# Servers that make it hard


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_list_in_pages_is_whole_for_the_client(bed: Bed, era: str) -> None:
    whole = bed.run(bed.fake(f"--era={era}")).get("tools/list")
    paged = bed.run(bed.fake(f"--era={era}", "--page-size=3")).get("tools/list")
    assert paged["tools"] == whole["tools"]
    assert "nextCursor" not in paged


def test_an_unknown_cursor_is_refused(bed: Bed) -> None:
    client = bed.run(bed.fake("--page-size=3"))
    assert client.ask("tools/list", {"cursor": "from-3"})["error"]["code"] == -32602


def test_noise_around_every_frame_is_counted_and_nothing_else(bed: Bed) -> None:
    client = bed.run(bed.fake("--noise"))
    for number in range(20):
        assert client.use_text("fake__echo", {"text": str(number)}) == str(number)
    assert client.health()["quarantined"]["child_noise"] >= 40
    assert client.row("fake")["restarts"] == 0


def test_a_frame_that_nobody_waits_for_is_dropped_and_the_server_kept(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    pid = client.use_data("fake__whoami")["pid"]
    for kind in ("duplicate", "foreign", "null_id", "wrong_id_type", "frame_not_object"):
        client.use("fake__answer_badly", {"kind": kind, "then": "answer"})
    client.use("fake__flood", {"kind": "junk_json", "seconds": 0.05, "answer": "last"})
    assert client.use_data("fake__whoami")["pid"] == pid
    assert sum(client.health()["quarantined"].values()) > 5


def test_an_answer_that_cannot_be_read_ends_its_call_in_words(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    pid = client.use_data("fake__whoami")["pid"]
    for kind in ("nan", "not_object", "both_result_and_error", "neither", "bad_utf8", "lone_surrogate"):
        error = client.use("fake__answer_badly", {"kind": kind})["error"]
        assert error["code"] == -31094, kind
        assert (error["data"]["class"], error["data"]["outcome"]) == ("protocol", "unknown")
    assert client.use_data("fake__whoami")["pid"] == pid


BAD_FRAMES = {
    "no json": b"hello\n",
    "half": b'{"jsonrpc":"2.0","id":1\n',
    "an array": b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n',
    "bad utf-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n',
    "not 2.0": b'{"jsonrpc":"1.0","id":1,"method":"ping"}\n',
    "neither": b'{"jsonrpc":"2.0","id":1}\n',
    "deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000 + b"\n",
}


def test_a_clients_bad_frame_is_answered_with_an_error_and_the_session_lives(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    client.is_checked = False
    client.names()
    for kind, frame in BAD_FRAMES.items():
        before = len(client.frames)
        client.send_bytes(frame)
        client.wait_until(lambda before=before: len(client.frames) > before, 5, f"the refusal of {kind}")
        assert client.frames[-1]["error"]["code"] in (-32700, -32600), kind
    assert client.use_text("fake__echo", {"text": "still here"}) == "still here"


def test_blank_lines_and_a_frame_in_pieces_are_read_as_one_frame(bed: Bed) -> None:
    client: Client = bed.run(bed.fake("--era=handshake"))
    client.send_bytes(b"\n\r\n")
    frame = b'{"jsonrpc":"2.0","id":"pieces","method":"ping"}\r\n'
    for start in range(0, len(frame), 5):
        client.send_bytes(frame[start : start + 5])
    assert client.wait("pieces")["result"] == {}
    client.asked.append(("pieces", "ping", False))
