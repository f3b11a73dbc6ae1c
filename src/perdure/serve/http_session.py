"""A client's session over HTTP: its own kernel, the shared processes behind it, and many POSTs in front of it.

A kernel speaks to its client on one pipe. Here that pipe is split again: an answer goes to the POST that asked,
progress to the POST whose token it carries, a change to the stream that listens, a question or a log line to the
call that is running, and what belongs to none of them to the client's standing GET stream.

What waits for a client that does not read is bounded. Beyond the bound a notification is counted and dropped, and a
server's question is answered with an error in the client's place. Answers to the client are always kept.

An exception costs what it happened in, never another session (`supervise/kernel_runner.py`). A session that is given up
is taken up from its records by the next request of its client.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import Raw

from perdure.kernel.core import Kernel
from perdure.kernel.events import (
    ClientFrame,
    Effect,
    Event,
    Note,
    NotRecorded,
    SaveCatalog,
    SaveTask,
    SaveTools,
    Spawn,
    Stop,
    Throttle,
    ToChild,
)
from perdure.kernel.state import InFlight, Invocation, Overdue
from perdure.protocol import eras
from perdure.protocol.frames import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    RequestId,
    decode_id,
    encode_error,
    members,
    members_if_clear,
)
from perdure.serve import deliveries
from perdure.serve.deliveries import MOST_KEPT, Deliveries, asked
from perdure.serve.exchange import Exchange, FrameQueue, LeftStreams, Stream
from perdure.serve.server_pool import ServerPool
from perdure.serve.shared_server import SHIFT
from perdure.serve.store import StoreError
from perdure.supervise.event_loop import EventLoop
from perdure.supervise.kernel_runner import KernelRunner, unhandled_error

if TYPE_CHECKING:
    from perdure.host.mount_calls import MountCalls
    from perdure.telemetry.tracing import Tracing

KEEP_S: Final = 60.0
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


log = logging.getLogger("perdure.serve")


class Records(deliveries.Records, Protocol):
    """Where a session leaves what must outlive this process."""

    def save_session(self, session: HttpSession) -> None:
        """Raises StoreError where it cannot be written."""


class HttpSession:
    """A shell (`supervise.kernel_runner.Shell`) around the kernel of one client.

    `new_number` gives a range of ids that no other session has or had; `said` hears what the kernel notes.
    """

    def __init__(
        self,
        kernel: Kernel,
        server_pool: ServerPool,
        records: Records,
        *,
        new_number: Callable[[], int],
        identity: str,
        workspace: str,
        owner: str = "",
        said: Callable[[HttpSession, Note], None],
        save_catalog: Callable[[str, bytes], None],
        save_tools: Callable[[SaveTools], None],
        save_task: Callable[[str, bytes], Note | None],
        loop: EventLoop,
    ) -> None:
        self.kernel = kernel
        self.runner = KernelRunner(kernel, loop, self)
        self.number = new_number()
        self.identity = identity
        self.workspace = workspace
        self.owner = owner
        self.standing: Exchange | None = None
        self.exchanges: dict[RequestId, Exchange] = {}
        name = kernel.state.session.session_id
        self.deliveries = Deliveries(records, name, identity, workspace)
        self.used_at = loop.time()
        self.is_over = False
        self.tracing: Tracing | None = None
        self._mount_calls: MountCalls | None = None
        self._server_pool = server_pool
        self._records = records
        self._said = said
        self._save_catalog = save_catalog
        self._save_tools = save_tools
        self._save_task = save_task
        self._loop = loop
        self._kept = FrameQueue(MOST_KEPT)
        self.left = LeftStreams()
        self.standing_stream = Stream(None)
        self._remembered = b""
        self._new_number = new_number
        kernel.state.seq = self.number << SHIFT

    def observe(self, tracing: Tracing | None, mount_calls: MountCalls | None) -> None:
        """Record what it does, as spans and in the time machine."""
        self.tracing = self.runner.tracing = tracing
        self._mount_calls = mount_calls
        self.runner.hold_back = mount_calls.filter if mount_calls is not None else None

    # --- as the servers behind it see it ---------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        self.runner.feed(event)

    def waits_since(self, mount: str) -> float | None:
        times = [
            call.accepted_at
            for call in self.kernel.state.calls.values()
            if call.mount == mount and isinstance(call.state, InFlight | Overdue)
        ]
        return min(times, default=None)

    # --- effects of the kernel -------------------------------------------------------------------------------

    def send_to_server(self, effect: ToChild) -> None:
        self._server_pool.send(self, effect.mount, effect.generation, effect.frame)

    def start_server(self, effect: Spawn) -> None:
        spec = self.kernel.specs[effect.mount]
        self._server_pool.attach(self, spec, effect.generation, gently=effect.gently)

    def stop_server(self, effect: Stop) -> None:
        self._server_pool.detach(self, effect.mount, effect.generation, force=effect.force)

    def throttle_server(self, effect: Throttle) -> None:
        self._server_pool.throttle(self, effect.mount, effect.generation, effect.until)

    def note(self, note: Note) -> None:
        self._said(self, note)

    def save_catalog(self, effect: SaveCatalog) -> None:
        self._save_catalog(effect.mount, effect.catalog)

    def save_task(self, effect: SaveTask) -> None:
        if (note := self._save_task(effect.handle, effect.data)) is not None:
            self.note(note)

    def save_tools(self, effect: SaveTools) -> None:
        self._save_tools(effect)

    def exit(self) -> None:
        self.is_over = True

    def abandon(self, error: Exception) -> None:
        """All that wait are answered; its records stay for its successor."""
        for identity in list(self.exchanges):
            self._answer(identity, unhandled_error(identity))
        self._server_pool.leave(self)
        self.unload()

    # --- what must outlive this process --------------------------------------------------------------------------

    def before_effects(self, effects: list[Effect]) -> list[Effect]:
        """The effects without those that send a call of which no record can be kept."""
        for call in self.kernel.state.calls.values():
            try:
                self.deliveries.sending(call)
            except StoreError as error:
                assert isinstance(call.state, InFlight)  # its first byte is among the effects
                head = b'{"jsonrpc":"2.0","id":%d,"method":' % call.state.child_id
                effects = [
                    one for one in effects if not (type(one) is ToChild and one.frame.startswith(head))
                ]
                self.feed(NotRecorded(call.seq, str(error)))
        return effects

    def delivered(self, identity: RequestId) -> None:
        """The client has its answer."""
        self.deliveries.delivered(identity)

    def take_up(self, lost: list[Invocation]) -> None:
        """What a predecessor had sent on when it was killed."""
        for call in lost:
            self.deliveries.take_up(call)

    def after_event(self) -> None:
        session = self.kernel.state.session
        if not session.initialized or self.identity:
            return
        now = msgspec.json.encode(session)
        if now == self._remembered:
            return
        try:
            self._records.save_session(self)
        except StoreError as error:
            log.warning("a session would not outlive this process: %s", error)
        else:
            self._remembered = now

    # --- the client's side ---------------------------------------------------------------------------------------

    def post(self, frame: bytes, exchange: Exchange | None, question: int = 0) -> None:
        """A frame of the client's; where it is a request, with the exchange that waits for its answer."""
        self.used_at = self._loop.time()
        if exchange is not None and exchange.id is not None:
            first = self.exchanges.get(exchange.id)
            if first is not None and self.deliveries.question(exchange.id) == question and first.is_left():
                self.give_up(first)
            elif first is not None:
                exchange.answer(
                    encode_error(
                        None,
                        INVALID_REQUEST,
                        "this request id belongs to a call that still runs: use another id.",
                    )
                )
                return
            is_again = self.knows(exchange.id, question)
            if is_again and (known := self.deliveries.undelivered.get(exchange.id)) is not None:
                exchange.answer(known)  # no client took the answer the first time
                return
            self.exchanges[exchange.id] = exchange
            if is_again:
                return  # it is still being found out what became of it
            self.delivered(exchange.id)  # a client that reuses an id has given up its first call
        if self.kernel.state.seq % _RANGE > _RANGE - (1 << 16):
            self._renumber()
        self.feed(ClientFrame(frame))

    def _renumber(self) -> None:
        """Its range of ids is used up: it goes on in another, and answers to the old ones still find it."""
        try:
            number = self._new_number()
        except StoreError:
            return  # the next request tries again; there are thousands of ids left
        old, self.number = self.number, number
        self._server_pool.renumber(self, old)
        self.kernel.state.seq = self.number << SHIFT

    def knows(self, identity: RequestId, question: int) -> bool:
        """Whether just this was asked before, and its answer has not been delivered."""
        if identity in self.exchanges:
            return False
        running = self.kernel.state.calls.get(self.kernel.state.ids.get(identity, 0))
        if running is not None and asked(running.method, running.params) == question:
            return True
        return self.deliveries.waits(identity, question)

    def give_up(self, exchange: Exchange) -> None:
        """Its client went away before the answer. It may take up its stream again, or ask again."""
        if exchange.id is not None and self.exchanges.get(exchange.id) is exchange:
            del self.exchanges[exchange.id]
        if exchange.is_answered and exchange.frames and exchange.id is not None:
            self.deliveries.keep(exchange.id, exchange.frames[-1])
        if exchange.stream is not None and exchange.id is not None:
            self.left.add(exchange)
            return
        for frame in exchange.frames:
            head = _HEAD.match(frame)
            if head is not None and head[1] is not None and head[2] == b"method":
                self._put(
                    self._running(), frame
                )  # a question that was not read waits for the client's next stream

    def sent(self, exchange: Exchange, answer: bytes) -> Callable[[bool], None]:
        """All of it is on its way. What is returned hears whether it arrived: if not, the answer is kept."""
        if exchange.stream is not None:
            self.left.add(exchange)
        return self.deliveries.sent(exchange.id, answer)

    def standing_exchange(self) -> Exchange:
        return Exchange(None, None, can_stream=True, is_resumable=True, stream=self.standing_stream)

    def hang_up(self, line: object) -> None:
        """The client's connection has ended; answers wait until it asks again."""
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
            for frame in exchange.frames:
                self._put(None, frame)

    def end(self) -> None:
        """The client is done, or nobody wants this session any more."""
        self._server_pool.leave(self)
        self.stop()

    def stop(self) -> None:
        """Also where this process ends: what comes of that is for our successor to find out."""
        self.unload()
        if self.tracing is not None:
            self.tracing.end()

    def unload(self) -> None:
        if self._mount_calls is not None:
            self._mount_calls.release()
        self.is_over = True
        self.runner.stop()
        for exchange in (*self.exchanges.values(), *((self.standing,) if self.standing else ())):
            exchange.close()

    @property
    def version(self) -> str:
        """What was agreed on in the handshake; nothing in the era that has none."""
        return self.kernel.state.session.version

    @property
    def is_idle(self) -> bool:
        if self.runner.is_stopped:
            return True
        if self.exchanges or self.standing or self.kernel.state.calls:
            return False
        # What nobody asked for again is found by its record, should somebody still come.
        return not self.deliveries.undelivered or self._loop.time() - self.used_at > KEEP_S

    def send_to_client(self, frame: bytes) -> None:
        head = _HEAD.match(frame)
        assert head is not None  # the kernel wrote it
        if head[2] != b"method":
            self._answer(decode_id(Raw(head[1])), frame)
        elif head[1] is not None:
            self._put(self._running(), frame)
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
        listener = _scalar(members_if_clear(params.get("_meta")).get(eras.META_SUBSCRIPTION))
        if listener is not None:
            self._put(self.exchanges.get(listener), frame, keep=False)
        elif method in _CHANGES:
            self._put(self.standing, frame)
        else:
            self._put(self._running(), frame)

    def _put(self, exchange: Exchange | None, frame: bytes, *, keep: bool = True) -> None:
        if exchange is not None and exchange.has_room(frame):
            exchange.put(frame)
        elif keep and self._kept.has_room(frame):
            self._kept.append(frame)
        elif keep:
            self._refuse(frame)

    def _refuse(self, frame: bytes) -> None:
        """There is no room for it. A server that asks is told so; nobody waits for anything else."""
        self.kernel.quarantine("client_does_not_read")
        head = _HEAD.match(frame)
        question = decode_id(Raw(head[1])) if head is not None and head[1] is not None else None
        if question is not None:
            self.feed(ClientFrame(encode_error(question, INTERNAL_ERROR, "The client does not read.")))


def _notice(frame: bytes) -> tuple[str, dict[str, Raw]]:
    found = members(frame)
    return msgspec.json.decode(found["method"], type=str), members_if_clear(found.get("params"))


def _scalar(raw: Raw | None) -> Any:
    return decode_id(raw) if raw is not None else None
