"""One server process that several sessions use: what belongs to it, and not to any one of them.

| of the process | kept how |
|---|---|
| its handshake | done once, with the first session's `initialize`; the others get the same answer |
| its lists | kept until it says that they changed |
| its log level | the most talkative that any session asked for |
| its subscriptions | begun with the first session that wants one, ended with the last |
| its 2026 streams | one for each session, ended with it |
| its questions | put to the session whose call has been with it longest |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw

from perdure.host.child import Child
from perdure.kernel.events import ChildFrame, ChildNoise, Event
from perdure.model.eras import LOG_LEVELS, META_SUBSCRIPTION
from perdure.model.frames import (
    INVALID_REQUEST,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_raw_error,
    encode_request,
    encode_result,
    members,
)
from perdure.model.mounts import MountSpec

SHIFT: Final = 24
LISTS: Final = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})
CHANGED: Final = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
# What some client may be able to do. A session whose client cannot says so when it is asked.
CAPABILITIES: Final = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}

_SENT: Final = re.compile(rb'\{"jsonrpc":"2\.0"(?:,"id":(\d+))?,"method":"([^"\\]+)"')
_ANSWER: Final = re.compile(
    rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+)\s*,\s*"(?:result|error)"\s*:'
)
_encode = msgspec.json.encode


class Party(Protocol):
    """A session as a process behind it sees it."""

    number: int
    """Its ids, shifted by `SHIFT`: an answer tells by its id whose it is, and no frame is rewritten."""

    def feed(self, event: Event) -> None: ...

    def waits_since(self, mount: str) -> float | None:
        """Since when its oldest call has been with this server; None where none is."""


class SharedProcess:
    """`write` sends a frame to the process."""

    def __init__(self, spec: MountSpec, child: Child, write: Callable[[bytes], None]) -> None:
        self.spec = spec
        self.child = child
        self.users: dict[int, tuple[Party, int]] = {}
        self.idle_since: float | None = None
        self.is_root_sensitive = False
        self.unclaimed = 0
        self._write = write
        self._hello: Response | None = None
        self._hello_sent = False
        self._greeters: list[tuple[Party, int, RequestId]] = []
        self._has_begun = False
        self._lists: dict[str, bytes] = {}
        self._asked_lists: dict[int, str] = {}
        self._levels: dict[int, str] = {}
        self._subscribers: dict[str, set[int]] = {}
        self._listens: set[int] = set()
        self._asked: dict[RequestId, int] = {}

    def join(self, party: Party, generation: int) -> None:
        self.users[party.number] = (party, generation)
        self.idle_since = None

    def part(self, party: Party) -> bool:
        """Whether it was a user at all."""
        numbers = [number for number, (one, _) in self.users.items() if one is party]
        for number in numbers:
            del self.users[number]
        self._greeters = [one for one in self._greeters if one[0] is not party]
        if self._levels.pop(party.number, None) is not None:
            self._tell_level()
        for uri, subscribed in list(self._subscribers.items()):
            subscribed.difference_update(numbers)
            if not subscribed:
                del self._subscribers[uri]
                self._write(encode_request(0, "resources/unsubscribe", _encode({"uri": uri})))
        for identity in [one for one in self._listens if one >> SHIFT in numbers]:
            self._listens.discard(identity)
            self._write(encode_notification("notifications/cancelled", _encode({"requestId": identity})))
        return bool(numbers)

    # --- from a session to the process ------------------------------------------------------------------------

    def send(self, party: Party, generation: int, frame: bytes) -> None:
        """A frame as a kernel wrote it: most go on untouched."""
        found = _SENT.match(frame)
        method = found[2].decode() if found is not None else ""
        identity = int(found[1]) if found is not None and found[1] is not None else 0
        if method == "initialize":
            self._greet(party, generation, identity, frame)
        elif method in LISTS and not _has_cursor(frame):
            self._list(party, generation, identity, method, frame)
        elif method == "notifications/initialized":
            if not self._has_begun:
                self._has_begun = True
                self._write(frame)
        elif method == "logging/setLevel":
            self._set_level(party, generation, identity, frame)
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            self._subscribe(party, generation, identity, method, frame)
        else:
            if method == "subscriptions/listen":
                self._listens.add(identity)
            elif method == "notifications/cancelled" and self._listens:
                self._listens.discard(_decoded(_params(frame).get("requestId")))
            self._write(frame)

    def _greet(self, party: Party, generation: int, identity: int, frame: bytes) -> None:
        if self._hello is not None:
            self._answer(party, generation, identity, self._hello)
            return
        self._greeters.append((party, generation, identity))
        if not self._hello_sent:
            self._hello_sent = True
            params = {**_params(frame), "capabilities": Raw(_encode(CAPABILITIES))}
            self._write(encode_request(identity, "initialize", params))

    def _list(self, party: Party, generation: int, identity: int, method: str, frame: bytes) -> None:
        if (known := self._lists.get(method)) is not None:
            party.feed(ChildFrame(self.spec.name, generation, encode_result(identity, known)))
            return
        self._asked_lists[identity] = method
        self._write(frame)

    def _set_level(self, party: Party, generation: int, identity: int, frame: bytes) -> None:
        level = _decoded(_params(frame).get("level"))
        if level not in LOG_LEVELS:
            self._write(frame)
            return
        self._levels[party.number] = level
        self._tell_level(identity)

    def _tell_level(self, identity: int = 0) -> None:
        if self._levels:
            wanted = min(self._levels.values(), key=LOG_LEVELS.index)
            self._write(encode_request(identity, "logging/setLevel", _encode({"level": wanted})))

    def _subscribe(self, party: Party, generation: int, identity: int, method: str, frame: bytes) -> None:
        uri = _decoded(_params(frame).get("uri"))
        if not isinstance(uri, str):
            self._write(frame)
            return
        numbers = self._subscribers.setdefault(uri, set())
        if method == "resources/subscribe":
            numbers.add(party.number)
            self._write(frame)
            return
        numbers.discard(party.number)
        if numbers:  # others still want it
            party.feed(ChildFrame(self.spec.name, generation, encode_result(identity, b"{}")))
            return
        del self._subscribers[uri]
        self._write(frame)

    def _answer(self, party: Party, generation: int, identity: RequestId, response: Response) -> None:
        made = (
            encode_result(identity, response.result)
            if response.result is not None
            else encode_raw_error(identity, response.error or Raw(b"{}"))
        )
        party.feed(ChildFrame(self.spec.name, generation, made))

    # --- from the process to sessions ----------------------------------------------------------------------------

    def take(self, frame: bytes) -> None:
        if (found := _ANSWER.match(frame[:256])) is not None:
            self._answered(int(found[1]), frame)
            return
        match decode(frame):
            case Response(id=int(identity)) | Malformed(id=int(identity), is_response=True):
                self._answered(identity, frame)
            case Request() as request:
                self._question(request, frame)
            case Notification() as note:
                self._notice(note, frame)
            case _:
                self.unclaimed += 1

    def take_noise(self, lines: int, *, oversize: bool = False, head: bytes = b"", tail: bytes = b"") -> None:
        for party, generation in list(self.users.values()):
            party.feed(ChildNoise(self.spec.name, generation, lines, oversize, head, tail))

    def _answered(self, identity: int, frame: bytes) -> None:
        if self._greeters and any(one[2] == identity for one in self._greeters) and self._hello is None:
            self._greeted(frame)
            return
        if (method := self._asked_lists.pop(identity, None)) is not None:
            self._keep_list(method, frame)
        self._listens.discard(identity)
        self._to(self.users.get(identity >> SHIFT), frame)

    def _greeted(self, frame: bytes) -> None:
        waiting, self._greeters = self._greeters, []
        message = decode(frame)
        if isinstance(message, Response):
            if message.result is not None:
                self._hello = message
            else:
                self._hello_sent = False
            for party, generation, identity in waiting:
                self._answer(party, generation, identity, message)
        else:
            for party, generation, _ in waiting:
                party.feed(ChildFrame(self.spec.name, generation, frame))

    def _keep_list(self, method: str, frame: bytes) -> None:
        message = decode(frame)
        if isinstance(message, Response) and message.result is not None:
            result = bytes(message.result)
            if b'"nextCursor"' not in result:  # pages belong to whoever turns them
                self._lists[method] = result

    def _question(self, request: Request, frame: bytes) -> None:
        """stdio servers do not say for whom they ask: it is for the call they have had longest."""
        if request.method == "ping":
            self._write(encode_result(request.id, b"{}"))
            return
        if request.method == "roots/list":
            self.is_root_sensitive = True
        waiting = [
            (since, number)
            for number, (party, _) in self.users.items()
            if (since := party.waits_since(self.spec.name)) is not None
        ]
        if not waiting and request.method == "roots/list" and len(self.users) == 1:
            waiting = [(0.0, next(iter(self.users)))]
        if not waiting:
            self._write(encode_error(request.id, INVALID_REQUEST, "no client is waiting for this server"))
            return
        number = min(waiting)[1]
        self._asked[request.id] = number
        self._to(self.users.get(number), frame)

    def _notice(self, note: Notification, frame: bytes) -> None:
        params = _members(note.params)
        if note.method == "notifications/progress":
            token = _decoded(params.get("progressToken"))
            self._to(self.users.get(token >> SHIFT) if type(token) is int else None, frame)
        elif note.method == "notifications/cancelled":
            identity = _decoded(params.get("requestId"))
            number = self._asked.pop(identity, None) if isinstance(identity, int | str) else None
            self._to(self.users.get(number) if number is not None else None, frame)
        elif note.method == "notifications/message":
            # Whose call it is about is not said, and one session's affairs are not another's.
            waiting = [one for one in self.users.values() if one[0].waits_since(self.spec.name) is not None]
            self._to(waiting[0] if len(waiting) == 1 else None, frame)
        else:
            for method in CHANGED.get(note.method, ()):
                self._lists.pop(method, None)
                # What was asked before may be answered with what was true before.
                self._asked_lists = {
                    one: asked for one, asked in self._asked_lists.items() if asked != method
                }
            listen = _decoded(_members(params.get("_meta")).get(META_SUBSCRIPTION))
            if type(listen) is int:
                self._to(self.users.get(listen >> SHIFT), frame)
                return
            for user in list(self.users.values()):
                self._to(user, frame)

    def _to(self, user: tuple[Party, int] | None, frame: bytes) -> None:
        if user is None:
            self.unclaimed += 1  # its session has ended, or it belongs to nobody
            return
        user[0].feed(ChildFrame(self.spec.name, user[1], frame))


def _has_cursor(frame: bytes) -> bool:
    return b'"cursor"' in frame


def _params(frame: bytes) -> dict[str, Raw]:
    message = decode(frame)
    return _members(message.params) if isinstance(message, Request | Notification) else {}


def _members(raw: Raw | None) -> dict[str, Raw]:
    try:
        return members(raw) if raw is not None else {}
    except ValueError:
        return {}


def _decoded(raw: Raw | None) -> Any:
    return msgspec.json.decode(raw) if raw is not None else None
