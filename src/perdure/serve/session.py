"""A client's session over HTTP: its own kernel, the shared processes behind it, and many POSTs in front of it.

A kernel speaks to its client on one pipe. Here that pipe is split again: an answer goes to the POST that asked,
progress to the POST whose token it carries, a change to the stream that listens, a question or a log line to the
call that is running, and what belongs to none of them to the client's standing GET stream.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import Raw

from perdure.kernel.core import Kernel
from perdure.kernel.events import (
    ClientFrame,
    Effect,
    Event,
    Exit,
    Note,
    SaveCatalog,
    SaveTools,
    Spawn,
    Stop,
    Throttle,
    Tick,
    ToChild,
    ToClient,
)
from perdure.kernel.state import InFlight, Invocation
from perdure.model import eras
from perdure.model.frames import INVALID_REQUEST, RequestId, decode_id, encode_error, members
from perdure.serve import deliveries
from perdure.serve.deliveries import MOST_KEPT, Deliveries
from perdure.serve.exchange import Exchange
from perdure.serve.resumption import LeftStreams, Stream
from perdure.serve.shared_process import SHIFT
from perdure.serve.switchboard import Switchboard

if TYPE_CHECKING:
    from perdure.host.tracing import Tracing

KEEP_S: Final = 60.0
MOST_WAITING: Final = 4096
_RANGE: Final = 1 << SHIFT
_HEAD: Final = re.compile(
    rb'\{"jsonrpc":"2\.0",(?:"id":(-?\d+|"(?:[^"\\]|\\.)*"|null),)?"(method|result|error)":'
)
_CHANGES: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


class Records(deliveries.Records, Protocol):
    """Where a session leaves what must outlive this process."""

    def save_session(self, session: HttpSession) -> None: ...


class HttpSession:
    """`new_number` gives a range of ids that nobody else has or had; `said` hears what the kernel notes."""

    def __init__(
        self,
        kernel: Kernel,
        switchboard: Switchboard,
        records: Records,
        *,
        new_number: Callable[[], int],
        identity: str,
        workspace: str,
        owner: str = "",
        said: Callable[[HttpSession, Note], None],
        save_catalog: Callable[[str, bytes], None],
        save_tools: Callable[[SaveTools], None],
    ) -> None:
        self.kernel = kernel
        self.number = new_number()
        self.identity = identity
        self.workspace = workspace
        self.owner = owner
        self.standing: Exchange | None = None
        self.exchanges: dict[RequestId, Exchange] = {}
        name = kernel.state.session.session_id
        self.deliveries = Deliveries(records, name, identity, workspace)
        self.used_at = time.monotonic()
        self.is_over = False
        self._is_left = False
        self.tracing: Tracing | None = None
        self._switchboard = switchboard
        self._records = records
        self._said = said
        self._save_catalog = save_catalog
        self._save_tools = save_tools
        self._events: deque[Event] = deque()
        self._is_busy = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._kept: deque[bytes] = deque(maxlen=MOST_KEPT)
        self.left = LeftStreams()
        self.standing_stream = Stream(None)
        self._remembered = b""
        self._new_number = new_number
        kernel.state.seq = self.number << SHIFT

    # --- as the processes behind it see it ---------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        if self._is_left:
            return
        self._events.append(event)
        if self._is_busy:
            return  # an effect made this event; whoever applies it comes back here
        self._is_busy = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._is_busy = False
        self._set_timer()

    def waits_since(self, mount: str) -> float | None:
        times = [
            call.accepted_at
            for call in self.kernel.state.calls.values()
            if call.mount == mount and isinstance(call.state, InFlight)
        ]
        return min(times, default=None)

    def _handle(self, event: Event) -> None:
        if self.tracing is not None:
            self.tracing.saw(event)
        effects = self.kernel.handle(event, time.monotonic())
        self._save_calls()
        self._apply(effects if self.tracing is None else self.tracing.does(effects))
        self._save_session()

    def apply(self, effects: list[Effect]) -> None:
        """What the kernel did outside of an event: at its start."""
        self._is_busy = True
        try:
            self._apply(effects)
        finally:
            self._is_busy = False
        self.feed(Tick())

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToClient(frame):
                    self._to_client(frame)
                case ToChild(mount, generation):
                    self._switchboard.send(self, mount, generation, effect.frame)
                case Spawn(mount, generation, gently):
                    self._switchboard.attach(self, self.kernel.specs[mount], generation, gently=gently)
                case Stop(mount, generation, force):
                    self._switchboard.detach(self, mount, generation, force=force)
                case SaveCatalog(mount, catalog):
                    self._save_catalog(mount, catalog)
                case SaveTools():
                    self._save_tools(effect)
                case Note():
                    self._said(self, effect)
                case Throttle():
                    pass  # others use the process as well; each kernel counts for itself
                case Exit():
                    self.is_over = True

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.kernel.next_wake()
        if due is not None and not self.is_over:
            wait = max(0.0, due - time.monotonic())
            self._timer = self._loop.call_later(wait, lambda: self.feed(Tick()))

    # --- what must outlive this process --------------------------------------------------------------------------

    def _save_calls(self) -> None:
        for call in self.kernel.state.calls.values():
            self.deliveries.sending(call)

    def delivered(self, identity: RequestId) -> None:
        """The client has its answer."""
        self.deliveries.delivered(identity)

    def take_up(self, lost: list[Invocation]) -> None:
        """What a predecessor had sent on when it was killed."""
        for call in lost:
            self.deliveries.take_up(call)

    def _save_session(self) -> None:
        session = self.kernel.state.session
        if not session.initialized:
            return
        now = msgspec.msgpack.encode(session)
        if now != self._remembered:
            self._remembered = now
            self._records.save_session(self)

    # --- the client's side ---------------------------------------------------------------------------------------

    def post(self, frame: bytes, exchange: Exchange | None, question: int = 0) -> None:
        """A frame of the client's; where it is a request, with the exchange that waits for its answer."""
        self.used_at = time.monotonic()
        if exchange is not None and exchange.id is not None:
            first = self.exchanges.get(exchange.id)
            if first is not None and self.deliveries.question(exchange.id) == question and first.is_left():
                self.give_up(first)
            elif first is not None:
                exchange.answer(encode_error(None, INVALID_REQUEST, "request id is already in use"))
                return
            is_again = self.knows(exchange.id, question)
            if is_again and (known := self.deliveries.undelivered.get(exchange.id)) is not None:
                exchange.answer(known)  # the answer found nobody the first time
                return
            self.exchanges[exchange.id] = exchange
            if is_again:
                return  # it is still being found out what became of it
            self.delivered(exchange.id)  # whoever uses an id for something else has given up the first
        if self.kernel.state.seq % _RANGE > _RANGE - (1 << 16):
            self._renumber()
        self.feed(ClientFrame(frame))

    def _renumber(self) -> None:
        """Its range of ids is used up: it goes on in another, and answers to the old ones still find it."""
        old, self.number = self.number, self._new_number()
        self._switchboard.renumber(self, old)
        self.kernel.state.seq = self.number << SHIFT

    def knows(self, identity: RequestId, question: int) -> bool:
        """Whether just this was asked before, and its answer has not been delivered."""
        return identity not in self.exchanges and self.deliveries.waits(identity, question)

    def give_up(self, exchange: Exchange) -> None:
        """Its client went away before the answer. It may take up its stream again, or ask again."""
        if exchange.id is not None and self.exchanges.get(exchange.id) is exchange:
            del self.exchanges[exchange.id]
        if exchange.is_answered and exchange.frames and exchange.id is not None:
            self.deliveries.keep(exchange.id, exchange.frames[-1])
        if exchange.stream is not None and exchange.id is not None:
            self.left.add(exchange)

    def sent(self, exchange: Exchange, answer: bytes) -> Callable[[bool], None]:
        """All of it is on its way. What is returned hears whether it arrived: if not, the answer is kept."""
        if exchange.stream is not None:
            self.left.add(exchange)
        return self.deliveries.sent(exchange.id, answer)

    def standing_exchange(self) -> Exchange:
        return Exchange(None, None, can_stream=True, is_resumable=True, stream=self.standing_stream)

    def hang_up(self, line: object) -> None:
        """Whoever waited on this line is gone; what is found out for them waits until they ask again."""
        for identity, exchange in list(self.exchanges.items()):
            if getattr(exchange, "line", None) is line:
                del self.exchanges[identity]

    def listen(self, exchange: Exchange) -> None:
        """The client's standing stream: what waited for it goes first."""
        if self.standing is not None:
            self.standing.close()
        self.standing = exchange
        while self._kept:
            exchange.put(self._kept.popleft())

    def stop_listening(self, exchange: Exchange) -> None:
        if self.standing is exchange:
            self.standing = None
            self._kept.extend(exchange.frames)

    def end(self) -> None:
        """The client is done, or nobody wants this session any more."""
        self._switchboard.leave(self)
        self.unload()
        if not self._is_left and not self._is_busy:
            self._is_left = True
            if self.tracing is not None:
                self.tracing.end()
            self.kernel.release()

    def stop(self) -> None:
        """We end: what comes of that is for our successor to find out."""
        self.unload()
        self._is_left = True
        if self.tracing is not None:
            self.tracing.end()

    def unload(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        for exchange in (*self.exchanges.values(), *((self.standing,) if self.standing else ())):
            exchange.close()

    @property
    def version(self) -> str:
        """What was agreed on in the handshake; nothing in the era that has none."""
        return self.kernel.state.session.version

    @property
    def is_idle(self) -> bool:
        if self.exchanges or self.standing or self.kernel.state.calls:
            return False
        # What nobody asked for again is found by its record, should somebody still come.
        return not self.deliveries.undelivered or time.monotonic() - self.used_at > KEEP_S

    def _to_client(self, frame: bytes) -> None:
        head = _HEAD.match(frame)
        assert head is not None  # the kernel wrote it
        if head[2] != b"method":
            self._answer(decode_id(Raw(head[1])), frame)
        elif head[1] is not None:
            self._ask(frame)
        else:
            self._notify(frame)

    def _answer(self, identity: RequestId | None, frame: bytes) -> None:
        exchange = self.exchanges.pop(identity, None) if identity is not None else None
        if exchange is not None:
            exchange.answer(frame)
            return
        for left in self.left.waiting:
            if left.id == identity:
                left.answer(frame)
        if identity is not None:
            self.deliveries.keep(identity, frame)

    def _ask(self, frame: bytes) -> None:
        self._put(self._running(), frame)

    def _running(self) -> Exchange | None:
        """Where to say what concerns a call that is not named: with the client, or where it may come back to."""
        here = (one for one in self.exchanges.values() if one.can_stream)
        return next(here, None) or self.standing or next(iter(self.left.waiting), None)

    def _notify(self, frame: bytes) -> None:
        method, params = _notice(frame)
        if method == "notifications/progress":
            token = _scalar(params.get("progressToken"))
            waiting = (*self.exchanges.values(), *self.left.waiting)
            found = next((one for one in waiting if one.token == token), None)
            self._put(found or self.standing, frame)
            return
        listener = _scalar(_meta(params).get(eras.META_SUBSCRIPTION))
        if listener is not None:
            self._put(self.exchanges.get(listener), frame, keep=False)
        elif method in _CHANGES:
            self._put(self.standing, frame)
        else:
            self._put(self._running(), frame)

    def _put(self, exchange: Exchange | None, frame: bytes, *, keep: bool = True) -> None:
        if exchange is not None and not exchange.is_closed and len(exchange.frames) < MOST_WAITING:
            exchange.put(frame)
        elif keep:
            self._kept.append(frame)


def _notice(frame: bytes) -> tuple[str, dict[str, Raw]]:
    found = members(frame)
    params = found.get("params")
    return msgspec.json.decode(found["method"], type=str), members(params) if params is not None else {}


def _meta(params: dict[str, Raw]) -> dict[str, Raw]:
    return members(params["_meta"]) if "_meta" in params else {}


def _scalar(raw: Raw | None) -> Any:
    return decode_id(raw) if raw is not None else None
