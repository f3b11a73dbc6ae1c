"""One server process that several sessions use: what belongs to it, and not to any one of them.

| of the process | kept how |
|---|---|
| its handshake | done once, with the first session's `initialize`; the others get the same answer |
| its lists | kept until it says that they changed |
| its log level | the most talkative that any session asked for |
| its subscriptions | begun with the first session that wants one, ended with the last |
| its 2026 streams | one for each session, ended with it |
| its questions | put to the session whose call has been with it longest; answered in its place when it leaves |

The handshake, of which there is one for each process:

| state | `initialize` of a session | the answer | a session leaves |
|---|---|---|---|
| NotSent | is sent on → Sent | – | – |
| Sent | waits | goes to all that wait; a result → Answered, else → NotSent | waits no longer; the rest goes on waiting |
| Answered | is answered with the kept result | – | – |
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from perdure.kernel.events import ChildBacklog, ChildFrame, ChildNoise, Event
from perdure.protocol.eras import LOG_LEVELS, META_SUBSCRIPTION
from perdure.protocol.frames import (
    INVALID_REQUEST,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    decode_id,
    encode_error,
    encode_notification,
    encode_raw_error,
    encode_request,
    encode_result,
    members_if_clear,
    text_if_clear,
)
from perdure.protocol.mounts import MountSpec
from perdure.supervise.child import Child, Ended
from perdure.supervise.line_io import Oversize

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
_REPLY: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":(-?\d+|"(?:[^"\\]|\\.)*"),"(?:result|error)":')
_encode = msgspec.json.encode


class SessionPort(Protocol):
    """A session as a process behind it sees it."""

    number: int
    """Its ids, shifted by `SHIFT`: an answer tells by its id whose it is, and no frame is rewritten."""

    def feed(self, event: Event) -> None: ...

    def waits_since(self, mount: str) -> float | None:
        """Since when its oldest call has been with this server; None where none is."""


class Waiting(NamedTuple):
    """A session whose `initialize` has no answer yet."""

    session: SessionPort
    generation: int
    id: RequestId


class NotSent(NamedTuple):
    pass


class Sent(NamedTuple):
    """`id` is that of the session which asked first; it may have left."""

    id: int
    waiting: list[Waiting]


class Answered(NamedTuple):
    result: Raw


class SharedServer:
    """The listener of a child. `write` sends a frame to it; `on_end` is told when it ended and all it said was heard."""

    child: Child

    def __init__(
        self,
        spec: MountSpec,
        write: Callable[[SharedServer, bytes], None],
        on_end: Callable[[SharedServer, Ended], None],
    ) -> None:
        self.spec = spec
        self.users: dict[int, tuple[SessionPort, int]] = {}
        self.idle_since: float | None = None
        self.is_root_sensitive = False
        self.unclaimed = 0
        self.is_condemned = False
        """Whether a session found that it does not work, so that it is being killed."""
        self.is_expected_to_end = False
        """Whether the operator restarted or disabled it, so that its end is no fault."""
        self.started_at = time.time()
        self._write_frame = write
        self._on_end = on_end
        self._handshake: NotSent | Sent | Answered = NotSent()
        self._former: dict[int, int] = {}  # numbers that sessions had before, and their numbers now
        self._own_requests = 0
        self._has_begun = False
        self._lists: dict[str, bytes] = {}
        self._asked_lists: dict[int, str] = {}
        self._levels: dict[int, str] = {}
        self._subscribers: dict[str, set[int]] = {}
        self._listens: set[int] = set()
        self._asked: dict[RequestId, int] = {}

    def join(self, session: SessionPort, generation: int) -> None:
        self.users[session.number] = (session, generation)
        self.idle_since = None

    def part(self, session: SessionPort) -> bool:
        """Whether it was a user at all."""
        was_user = self.users.pop(session.number, None) is not None
        numbers = {session.number, *(old for old, new in self._former.items() if new == session.number)}
        if isinstance(self._handshake, Sent):
            self._handshake.waiting[:] = [
                one for one in self._handshake.waiting if one.session is not session
            ]
        if self._levels.pop(session.number, None) is not None:
            self._tell_level()
        for uri, subscribed in list(self._subscribers.items()):
            subscribed.discard(session.number)
            if not subscribed:
                del self._subscribers[uri]
                self._write(encode_request(self._own_id(), "resources/unsubscribe", _encode({"uri": uri})))
        for identity in [one for one in self._listens if one >> SHIFT in numbers]:
            self._listens.discard(identity)
            self._write(encode_notification("notifications/cancelled", _encode({"requestId": identity})))
        for question in [one for one, asked in self._asked.items() if asked == session.number]:
            del self._asked[question]
            self._write(encode_error(question, INVALID_REQUEST, "the client that was asked has left"))
        self._asked_lists = {
            one: what for one, what in self._asked_lists.items() if one >> SHIFT not in numbers
        }
        self._former = {old: new for old, new in self._former.items() if new != session.number}
        return was_user

    def renumber(self, old: int, new: int) -> None:
        """A session has used up its range of ids. Answers to ids of the old range still find it."""
        if (user := self.users.pop(old, None)) is None:
            return
        self.users[new] = user
        self._former = {before: new if now == old else now for before, now in self._former.items()}
        self._former[old] = new
        if (level := self._levels.pop(old, None)) is not None:
            self._levels[new] = level
        for subscribed in self._subscribers.values():
            if old in subscribed:
                subscribed.remove(old)
                subscribed.add(new)
        self._asked = {one: new if asked == old else asked for one, asked in self._asked.items()}

    @property
    def open_questions(self) -> int:
        """Of this server, to which no session has answered yet."""
        return len(self._asked)

    def _user(self, number: int) -> tuple[SessionPort, int] | None:
        return self.users.get(self._former.get(number, number))

    def _own_id(self) -> int:
        """For a request of this process's own: sessions are numbered from 1, so range 0 is free."""
        self._own_requests = self._own_requests % ((1 << SHIFT) - 1) + 1
        return self._own_requests

    # --- from a session to the process ------------------------------------------------------------------------

    def send(self, session: SessionPort, generation: int, frame: bytes) -> None:
        """A frame as a kernel wrote it: most go on untouched."""
        found = _SENT.match(frame)
        method = found[2].decode() if found is not None else ""
        identity = int(found[1]) if found is not None and found[1] is not None else 0
        if method == "initialize":
            self._greet(session, generation, identity, frame)
        elif method in LISTS and not _has_cursor(frame):
            self._list(session, generation, identity, method, frame)
        elif method == "notifications/initialized":
            if not self._has_begun:
                self._has_begun = True
                self._write(frame)
        elif method == "logging/setLevel":
            self._set_level(session, generation, identity, frame)
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            self._subscribe(session, generation, identity, method, frame)
        else:
            if method == "subscriptions/listen":
                self._listens.add(identity)
            elif method == "notifications/cancelled" and self._listens:
                cancelled = _scalar(_params(frame).get("requestId"))
                if isinstance(cancelled, int):
                    self._listens.discard(cancelled)
            elif self._asked and (reply := _REPLY.match(frame)) is not None:
                question = decode_id(reply[1])
                if question is not None:
                    self._asked.pop(question, None)
            self._write(frame)

    def _greet(self, session: SessionPort, generation: int, identity: int, frame: bytes) -> None:
        match self._handshake:
            case Answered(result):
                session.feed(ChildFrame(self.spec.name, generation, encode_result(identity, result)))
            case Sent(_, waiting):
                waiting.append(Waiting(session, generation, identity))
            case NotSent():
                self._handshake = Sent(identity, [Waiting(session, generation, identity)])
                params = {**_params(frame), "capabilities": Raw(_encode(CAPABILITIES))}
                self._write(encode_request(identity, "initialize", params))

    def _list(self, session: SessionPort, generation: int, identity: int, method: str, frame: bytes) -> None:
        if (known := self._lists.get(method)) is not None:
            session.feed(ChildFrame(self.spec.name, generation, encode_result(identity, known)))
            return
        self._asked_lists[identity] = method
        self._write(frame)

    def _set_level(self, session: SessionPort, generation: int, identity: int, frame: bytes) -> None:
        level = text_if_clear(_params(frame).get("level"))
        if level is None or level not in LOG_LEVELS:
            self._write(frame)
            return
        self._levels[session.number] = level
        self._tell_level(identity)

    def _tell_level(self, identity: int | None = None) -> None:
        if self._levels:
            wanted = min(self._levels.values(), key=LOG_LEVELS.index)
            number = identity if identity is not None else self._own_id()
            self._write(encode_request(number, "logging/setLevel", _encode({"level": wanted})))

    def _subscribe(
        self, session: SessionPort, generation: int, identity: int, method: str, frame: bytes
    ) -> None:
        uri = text_if_clear(_params(frame).get("uri"))
        if uri is None:
            self._write(frame)
            return
        numbers = self._subscribers.setdefault(uri, set())
        if method == "resources/subscribe":
            numbers.add(session.number)
            self._write(frame)
            return
        numbers.discard(session.number)
        if numbers:  # others still want it
            session.feed(ChildFrame(self.spec.name, generation, encode_result(identity, b"{}")))
            return
        del self._subscribers[uri]
        self._write(frame)

    # --- from the process to sessions ----------------------------------------------------------------------------

    def on_line(self, line: bytes) -> None:
        if (found := _ANSWER.match(line[:256])) is not None:
            self._answered(int(found[1]), line)
            return
        match decode(line):
            case Response(id=int(identity)) | Malformed(id=int(identity), is_response=True):
                self._answered(identity, line)
            case Request() as request:
                self._question(request, line)
            case Notification() as note:
                self._notice(note, line)
            case _:
                self.unclaimed += 1

    def on_noise(self, lines: int, oversize: Oversize | None = None) -> None:
        head, tail = (oversize.head, oversize.tail) if oversize is not None else (b"", b"")
        for session, generation in list(self.users.values()):
            session.feed(ChildNoise(self.spec.name, generation, lines, oversize is not None, head, tail))

    def on_backlog(self, size: int) -> None:
        for session, generation in list(self.users.values()):
            session.feed(ChildBacklog(self.spec.name, generation, size))

    def on_exit(self, ended: Ended) -> None:
        self._on_end(self, ended)

    def _write(self, frame: bytes) -> None:
        self._write_frame(self, frame)

    def _answered(self, identity: int, frame: bytes) -> None:
        if isinstance(self._handshake, Sent) and identity == self._handshake.id:
            self._greeted(self._handshake.waiting, frame)
            return
        if (method := self._asked_lists.pop(identity, None)) is not None:
            self._keep_list(method, frame)
        self._listens.discard(identity)
        if identity >> SHIFT:
            self._to(self._user(identity >> SHIFT), frame)

    def _greeted(self, waiting: list[Waiting], frame: bytes) -> None:
        message = decode(frame)
        result = message.result if isinstance(message, Response) else None
        self._handshake = Answered(result) if result is not None else NotSent()
        for session, generation, identity in waiting:
            if result is not None:
                answer = encode_result(identity, result)
            elif isinstance(message, Response) and message.error is not None:
                answer = encode_raw_error(identity, message.error)
            else:  # each kernel finds for itself that its answer cannot be read
                answer = b'{"jsonrpc":"2.0","id":' + _encode(identity) + b"}"
            session.feed(ChildFrame(self.spec.name, generation, answer))

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
            for number, (session, _) in self.users.items()
            if (since := session.waits_since(self.spec.name)) is not None
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
        params = members_if_clear(note.params)
        if note.method == "notifications/progress":
            token = _scalar(params.get("progressToken"))
            self._to(self._user(token >> SHIFT) if isinstance(token, int) else None, frame)
        elif note.method == "notifications/cancelled":
            question = _scalar(params.get("requestId"))
            number = self._asked.pop(question, None) if question is not None else None
            self._to(self._user(number) if number is not None else None, frame)
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
            listen = _scalar(members_if_clear(params.get("_meta")).get(META_SUBSCRIPTION))
            if isinstance(listen, int):
                self._to(self._user(listen >> SHIFT), frame)
                return
            for user in list(self.users.values()):
                self._to(user, frame)

    def _to(self, user: tuple[SessionPort, int] | None, frame: bytes) -> None:
        if user is None:
            self.unclaimed += 1  # its session has ended, or it belongs to nobody
            return
        user[0].feed(ChildFrame(self.spec.name, user[1], frame))


def _has_cursor(frame: bytes) -> bool:
    return b'"cursor"' in frame


def _params(frame: bytes) -> dict[str, Raw]:
    message = decode(frame)
    return members_if_clear(message.params) if isinstance(message, Request | Notification) else {}


def _scalar(raw: Raw | None) -> RequestId | None:
    """An id or a token; None for anything else, whatever a server made up."""
    return decode_id(raw) if raw is not None else None
