"""One server process behind several sessions: what it says goes to whom it concerns, and nobody is kept after he left."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.kernel.events import ChildFrame, Event
from perdure.protocol.eras import META_SUBSCRIPTION
from perdure.protocol.mounts import MountSpec
from perdure.serve.shared_server import SHIFT, SharedServer

CHANGED = "notifications/tools/list_changed"


class Session:
    """A session that remembers what it was told."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.heard: list[Any] = []

    def feed(self, event: Event) -> None:
        assert isinstance(event, ChildFrame)
        self.heard.append(msgspec.json.decode(event.frame))

    def waits_since(self, mount: str) -> float | None:
        return None

    def id(self, number: int) -> int:
        return (self.number << SHIFT) + number


class Shared:
    """A process with two sessions; `written` is what reached it."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.process = SharedServer(MountSpec("m"), lambda _, frame: self._write(frame), lambda *_: None)
        self.one, self.other = Session(1), Session(2)
        for session in (self.one, self.other):
            self.process.join(session, 1)

    def _write(self, frame: bytes) -> None:
        self.written.append(msgspec.json.decode(frame))

    def send(self, session: Session, number: int, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "id": session.id(number), "method": method, "params": params or {}}
        self.process.send(session, 1, msgspec.json.encode(message))

    def says(self, **message: Any) -> None:
        self.process.on_line(msgspec.json.encode({"jsonrpc": "2.0", **message}))


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_a_change_on_a_2026_stream_goes_to_the_session_whose_stream_it_is(shared: Shared) -> None:
    for session in (shared.one, shared.other):
        shared.send(session, 5, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    shared.says(method=CHANGED, params={"_meta": {META_SUBSCRIPTION: shared.other.id(5)}})
    assert (len(shared.one.heard), len(shared.other.heard)) == (0, 1)
    shared.says(method=CHANGED)
    assert (len(shared.one.heard), len(shared.other.heard)) == (1, 2)


def test_a_session_that_leaves_takes_its_streams_with_it(shared: Shared) -> None:
    shared.send(shared.one, 5, "subscriptions/listen")
    shared.send(shared.other, 6, "subscriptions/listen")
    shared.send(shared.one, 7, "subscriptions/listen")
    shared.process.send(
        shared.one,
        1,
        msgspec.json.encode(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": shared.one.id(5)}}
        ),
    )
    shared.written.clear()
    shared.process.part(shared.one)
    cancelled = [frame["params"]["requestId"] for frame in shared.written]
    assert cancelled == [shared.one.id(7)]


def test_the_last_session_that_wants_a_resource_ends_its_subscription(shared: Shared) -> None:
    for session in (shared.one, shared.other):
        shared.send(session, 5, "resources/subscribe", {"uri": "a:b"})
    shared.written.clear()
    shared.process.part(shared.one)
    assert shared.written == []
    shared.process.part(shared.other)
    assert [(frame["method"], frame["params"]) for frame in shared.written] == [
        ("resources/unsubscribe", {"uri": "a:b"})
    ]


def test_a_list_that_was_asked_for_before_a_change_is_nobodys_head_start(shared: Shared) -> None:
    shared.send(shared.one, 5, "tools/list")
    shared.says(method=CHANGED)
    shared.says(id=shared.one.id(5), result={"tools": []})
    shared.written.clear()
    shared.send(shared.other, 5, "tools/list")
    assert [frame["method"] for frame in shared.written] == ["tools/list"]
    shared.says(id=shared.other.id(5), result={"tools": [{"name": "new"}]})
    shared.written.clear()
    shared.send(shared.one, 6, "tools/list")
    assert shared.written == []
    assert shared.one.heard[-1]["result"] == {"tools": [{"name": "new"}]}


def hello(shared: Shared, session: Session, number: int = 1) -> None:
    shared.send(session, number, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})


def test_the_handshake_is_done_once_for_all(shared: Shared) -> None:
    hello(shared, shared.one)
    hello(shared, shared.other)
    assert [frame["method"] for frame in shared.written] == ["initialize"]
    shared.says(id=shared.one.id(1), result={"protocolVersion": "x"})
    hello(shared, shared.other, 2)
    assert [frame["id"] for frame in shared.one.heard] == [shared.one.id(1)]
    assert [frame["id"] for frame in shared.other.heard] == [shared.other.id(1), shared.other.id(2)]
    assert len(shared.written) == 1


def test_a_session_that_leaves_during_the_handshake_holds_nobody_up(shared: Shared) -> None:
    hello(shared, shared.one)
    hello(shared, shared.other)
    shared.process.part(shared.one)
    shared.says(id=shared.one.id(1), result={"protocolVersion": "x"})
    assert [(frame["id"], frame["result"]) for frame in shared.other.heard] == [
        (shared.other.id(1), {"protocolVersion": "x"})
    ]
    late = Session(3)
    shared.process.join(late, 1)
    hello(shared, late)
    assert [frame["id"] for frame in late.heard] == [late.id(1)]


def test_a_handshake_that_only_a_session_that_left_waited_for_is_kept(shared: Shared) -> None:
    hello(shared, shared.one)
    shared.process.part(shared.one)
    shared.says(id=shared.one.id(1), result={"protocolVersion": "x"})
    hello(shared, shared.other)
    assert shared.other.heard[0]["result"] == {"protocolVersion": "x"}


@pytest.mark.parametrize("answer", [{"error": {"code": -1, "message": "no"}}, {}, {"result": 5}])
def test_a_refused_handshake_is_each_sessions_own_and_may_be_tried_again(shared: Shared, answer: Any) -> None:
    hello(shared, shared.one)
    hello(shared, shared.other)
    shared.says(id=shared.one.id(1), **answer)
    assert [frame["id"] for frame in shared.one.heard + shared.other.heard] == [
        shared.one.id(1),
        shared.other.id(1),
    ]
    hello(shared, shared.other, 2)
    assert shared.written[-1]["id"] == shared.other.id(2)


class Busy(Session):
    def waits_since(self, mount: str) -> float | None:
        return 1.0


@pytest.fixture
def busy(shared: Shared) -> Busy:
    session = Busy(3)
    shared.process.join(session, 1)
    return session


def test_an_answered_question_is_forgotten(shared: Shared, busy: Busy) -> None:
    for identity in (1, "1", 2):
        shared.says(id=identity, method="elicitation/create", params={})
        shared.process.send(busy, 1, msgspec.json.encode({"jsonrpc": "2.0", "id": identity, "result": {}}))
    assert shared.process.open_questions == 0


def test_the_question_to_a_session_that_leaves_is_answered_in_its_place(shared: Shared, busy: Busy) -> None:
    shared.says(id="q", method="elicitation/create", params={})
    shared.process.part(busy)
    assert [(frame["id"], "error" in frame) for frame in shared.written] == [("q", True)]
    assert shared.process.open_questions == 0


def test_requests_of_the_process_itself_have_ids_of_their_own(shared: Shared) -> None:
    for uri in ("a:1", "a:2"):
        shared.send(shared.one, 5, "resources/subscribe", {"uri": uri})
    shared.written.clear()
    shared.process.part(shared.one)
    ids = [frame["id"] for frame in shared.written]
    assert len(set(ids)) == 2
    for identity in ids:
        shared.says(id=identity, result={})
    assert shared.process.unclaimed == 0
    assert shared.other.heard == []


def test_a_session_with_a_new_range_of_ids_hears_everything_once(shared: Shared) -> None:
    shared.send(shared.one, 5, "tools/call")
    shared.send(shared.one, 6, "logging/setLevel", {"level": "debug"})
    shared.send(shared.other, 6, "logging/setLevel", {"level": "error"})
    before, shared.one.number = shared.one.id(5), 9
    shared.process.renumber(1, 9)
    shared.says(method=CHANGED)
    shared.says(id=before, result={"old": True})
    shared.says(id=shared.one.id(1), result={"new": True})
    assert [frame.get("result", frame.get("method")) for frame in shared.one.heard] == [
        CHANGED,
        {"old": True},
        {"new": True},
    ]
    shared.written.clear()
    assert shared.process.part(shared.one)
    assert [frame["params"] for frame in shared.written] == [{"level": "error"}]
    shared.says(id=before, result={})
    assert shared.process.unclaimed == 1


@pytest.mark.parametrize(
    "frame",
    [
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x","_meta":null}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1,"data":2}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e999}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[[]]}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1e999}}',
        b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":5}}',
        b'{"jsonrpc":"2.0","id":-5,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{}}',
    ],
)
def test_no_frame_of_a_server_is_too_odd(shared: Shared, frame: bytes) -> None:
    shared.process.on_line(frame)
