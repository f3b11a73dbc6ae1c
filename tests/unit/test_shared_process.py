"""One server process behind several sessions: what it says goes to whom it concerns, and nobody is kept after he left."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from perdure.host.child import Child
from perdure.kernel.events import ChildFrame, Event
from perdure.model.eras import META_SUBSCRIPTION
from perdure.model.mounts import MountSpec
from perdure.serve.shared_process import SHIFT, SharedProcess

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
        self.process = SharedProcess(MountSpec("m"), cast("Child", None), self._write)
        self.one, self.other = Session(1), Session(2)
        for session in (self.one, self.other):
            self.process.join(session, 1)

    def _write(self, frame: bytes) -> None:
        self.written.append(msgspec.json.decode(frame))

    def send(self, session: Session, number: int, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "id": session.id(number), "method": method, "params": params or {}}
        self.process.send(session, 1, msgspec.json.encode(message))

    def says(self, **message: Any) -> None:
        self.process.take(msgspec.json.encode({"jsonrpc": "2.0", **message}))


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
