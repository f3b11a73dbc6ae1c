"""Sessions of the serving process on a stage: what a server or a disk does wrong costs the call, never the session."""

from __future__ import annotations

import msgspec
import pytest

from perdure.kernel import child_frames, client_frames, mounts
from perdure.protocol.frames import encode_result
from perdure.serve import deliveries
from perdure.serve.deliveries import MOST_CALLS, MOST_KEPT
from perdure.serve.exchange import MOST_BYTES, Exchange
from perdure.serve.http_session import HttpSession
from serve_stage import PlayedServer, ServeStage, frame

LARGE = "x" * (MOST_BYTES // 2 - 1000)


def answer_call(server: PlayedServer, **result: object) -> None:
    server.answer("tools/call", {"content": [], **result})


@pytest.mark.parametrize("meta", [None, 5, "x", [1], {}])
def test_a_log_message_with_an_odd_meta_does_not_hold_up_the_answer_behind_it(meta: object) -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        server = await stage.ready(opened)
        call = stage.call(opened, 1)
        await stage.until(lambda: server.requests("tools/call"))
        note = {"level": "info", "data": "x", "_meta": meta}
        identity = server.requests("tools/call")[0]["id"]
        server.say(
            {"method": "notifications/message", "params": note},
            {"id": identity, "result": {"content": []}},
        )
        await stage.until(lambda: call.is_answered)
        assert frame(call)["result"] == {"content": []}

    ServeStage.run(test)


def test_a_session_that_leaves_before_its_handshake_holds_nobody_up() -> None:
    async def test(stage: ServeStage) -> None:
        first, other = stage.open_session(), stage.open_session()
        stage.initialize(first)
        await stage.until(lambda: stage.servers and stage.servers[0].requests("initialize"))
        waiting = stage.initialize(other)
        first.end()
        stage.greet(stage.servers[0])
        await stage.until(lambda: stage.servers[0].requests("tools/list"))
        stage.servers[0].answer("tools/list", {"tools": []})
        await stage.until(lambda: waiting.is_answered)
        assert len(stage.servers) == 1

    ServeStage.run(test)


@pytest.mark.parametrize("identity", [1, "a", 2**64, -(2**70)])
def test_a_call_that_cannot_be_recorded_is_not_sent(identity: int | str) -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        server = await stage.ready(opened)
        stage.records.is_full = True
        call = stage.call(opened, identity)
        await stage.until(lambda: call.is_answered)
        data = frame(call)["error"]["data"]
        assert (data["outcome"], data["attempts"], data["code"]) == ("not_started", 0, "call_not_recorded")
        assert "disk is full" in frame(call)["error"]["message"]
        stage.records.is_full = False
        again = stage.call(opened, identity)
        await stage.until(lambda: server.requests("tools/call"))
        answer_call(server)
        await stage.until(lambda: again.is_answered)
        assert "result" in frame(again)
        assert len(server.requests("tools/call")) == 1

    ServeStage.run(test)


def test_a_session_opens_on_a_full_disk() -> None:
    async def test(stage: ServeStage) -> None:
        stage.records.is_full = True
        await stage.ready(stage.open_session())

    ServeStage.run(test)


def test_a_kernel_error_on_a_clients_frame_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        server = await stage.ready(opened)
        with monkeypatch.context() as patch:
            patch.setattr(client_frames, "on_frame", _fail)
            broken = stage.call(opened, 1)
        assert frame(broken)["error"]["data"]["code"] == "unhandled_frame"
        call = stage.call(opened, 2)
        await stage.until(lambda: server.requests("tools/call"))
        answer_call(server)
        await stage.until(lambda: call.is_answered)

    ServeStage.run(test)


def test_a_kernel_error_on_a_servers_frame_costs_one_session_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(stage: ServeStage) -> None:
        one, other = stage.open_session(), stage.open_session()
        server = await stage.ready(one)
        stage.initialize(other)
        lost, kept = stage.call(one, 1), stage.call(other, 1)
        await stage.until(lambda: len(server.requests("tools/call")) == 2)
        first, second = (request["id"] for request in server.requests("tools/call"))
        handle = child_frames.on_frame
        monkeypatch.setattr(
            child_frames, "on_frame", lambda k, e: _fail(k, e) if k is one.kernel else handle(k, e)
        )
        server.say({"id": first, "result": {"content": []}}, {"id": second, "result": {"content": []}})
        await stage.until(lambda: lost.is_answered and kept.is_answered)
        assert frame(lost)["error"]["data"]["outcome"] == "unknown"
        assert "result" in frame(kept)

    ServeStage.run(test)


def test_a_session_whose_state_cannot_be_trusted_answers_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        server = await stage.ready(opened)
        call = stage.call(opened, 1)
        await stage.until(lambda: server.requests("tools/call"))
        monkeypatch.setattr(mounts, "tick", _fail)
        from perdure.kernel.events import Tick

        opened.feed(Tick())
        assert frame(call)["error"]["data"]["outcome"] == "unknown"
        assert opened.is_over
        assert stage.records.calls  # whoever takes the session up is told of the call

    ServeStage.run(test)


def _fail(*_: object) -> None:
    raise RuntimeError("a bug of ours")


def test_what_waits_for_a_client_that_does_not_read_is_bounded_in_bytes() -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        server = await stage.ready(opened)
        call = stage.call(opened, 1)
        await stage.until(lambda: server.requests("tools/call"))
        for _ in range(10):
            opened._notify(_note(LARGE))
        assert call.frames.size <= MOST_BYTES
        assert opened.kernel.state.metrics.quarantined["client_does_not_read"] == 6  # 2 wait here, 2 are kept
        answer_call(server)
        await stage.until(lambda: call.is_answered)
        assert frame(call)["result"] == {"content": []}

    ServeStage.run(test)


def _note(text: str) -> bytes:
    return b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"' + text.encode() + b'"}}'


def test_a_question_that_finds_no_room_is_answered_in_the_clients_place() -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        server = await stage.ready(opened)
        call = stage.call(opened, 1)
        await stage.until(lambda: server.requests("tools/call"))
        for _ in range(4):
            opened._notify(_note(LARGE))
        server.say({"id": "q", "method": "roots/list", "params": {}})
        await stage.until(lambda: any(one.get("id") == "q" for one in server.listen()))
        assert next(one for one in server.heard if one.get("id") == "q")["error"]
        assert call.frames.size <= MOST_BYTES

    ServeStage.run(test)


# --- answers that nobody read -----------------------------------------------------------------------------------


def undelivered(opened: HttpSession, count: int, answer: bytes = b"") -> None:
    """Calls that were made and answered, and whose answers found nobody."""
    for number in range(count):
        opened.deliveries._saved[number] = (number, number)
        opened.deliveries.keep(number, answer or encode_result(number, b"{}"))


def test_of_many_answers_the_oldest_are_not_kept_but_their_calls_are() -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        undelivered(opened, MOST_KEPT + 1)
        assert opened.knows(0, 0)
        again = Exchange(0, None, can_stream=True)
        opened.post(b'{"jsonrpc":"2.0","id":0,"method":"tools/call"}', again, 0)
        assert frame(again)["error"]["data"]["code"] == "answer_not_kept"
        assert "result" in msgspec.json.decode(opened.deliveries.undelivered[1])

    ServeStage.run(test)


def test_answers_that_nobody_read_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(stage: ServeStage) -> None:
        monkeypatch.setattr(deliveries, "MOST_BYTES", 10_000)
        opened = stage.open_session()
        undelivered(opened, 20, b"x" * 3_000)
        whole = [one for one in opened.deliveries.undelivered.values() if one.startswith(b"x")]
        assert len(whole) == 3
        assert len(opened.deliveries.undelivered) == 20
        for number in range(20):
            opened.deliveries.delivered(number)
        assert not opened.deliveries.undelivered
        assert opened.deliveries._bytes == 0

    ServeStage.run(test)


def test_calls_whose_answers_nobody_read_are_bounded() -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        undelivered(opened, MOST_CALLS + 10)
        assert len(opened.deliveries.undelivered) == MOST_CALLS

    ServeStage.run(test)


def test_a_call_that_runs_is_not_refused_to_the_client_that_asks_for_it_again() -> None:
    async def test(stage: ServeStage) -> None:
        opened = stage.open_session()
        server = await stage.ready(opened)
        call = stage.call(opened, 1)
        await stage.until(lambda: server.requests("tools/call"))
        opened.give_up(call)
        again = stage.call(opened, 1)
        answer_call(server)
        await stage.until(lambda: again.is_answered)
        assert "result" in frame(again)
        assert len(server.requests("tools/call")) == 1

    ServeStage.run(test)
