"""A stage for the sessions of `perdure serve`: everything between the client's frame and the server's pipe is real.

What is played: the event loop (its clock stands still until it is moved), the processes (two byte buffers and an exit
status), the guardian and the store of records. So a history of sessions that join, leave, die and restart runs without
a process, a descriptor or a wait, and runs the same way each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, cast

import msgspec

from perdure.kernel.core import Kernel
from perdure.kernel.events import ChildFrame, ChildLost, ChildStarted, Event, Note
from perdure.kernel.state import Invocation
from perdure.platform.guardian import Guardian
from perdure.protocol.mounts import Limits, MountSpec
from perdure.serve.deliveries import asked
from perdure.serve.exchange import Exchange
from perdure.serve.http_session import HttpSession
from perdure.serve.server_pool import ServerPool
from perdure.serve.store import StoreError
from perdure.supervise.child import Child, Launch
from perdure.supervise.event_loop import Timer
from perdure.supervise.line_io import Outbox

FRAME_BYTES: Final = 1 << 16
OUTBOX_BYTES: Final = 2000
MOST_ROUNDS: Final = 2000
SPEC: Final = MountSpec("m", ("server",), prefix="", startup_s=30.0, call_s=60.0)
VERSION: Final = "2025-06-18"

Callback = Callable[[], None]


class _Call:
    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        if (callback := self.callback) is not None:
            self.callback = None
            callback()


class VirtualLoop:
    """The event loop port. Nothing runs before `run_ready` or `advance`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.readers: dict[int, Callback] = {}
        self.writers: dict[int, Callback] = {}
        self.soon: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._number = 0

    def time(self) -> float:
        return self.now

    def add_reader(self, fd: int, callback: Callback) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def add_writer(self, fd: int, callback: Callback) -> None:
        self.writers[fd] = callback

    def remove_writer(self, fd: int) -> None:
        self.writers.pop(fd, None)

    def call_later(self, delay: float, callback: Callback) -> Timer:
        self._number += 1
        call = _Call(callback)
        heappush(self._timers, (self.now + delay, self._number, call))
        return call

    def call_soon(self, callback: Callback) -> Timer:
        call = _Call(callback)
        self.soon.append(call)
        return call

    def run_soon(self) -> bool:
        """One round of what is due. Whether there was anything."""
        calls = [self.soon.popleft() for _ in range(len(self.soon))]
        while self._timers and self._timers[0][0] <= self.now:
            calls.append(heappop(self._timers)[2])
        for call in calls:
            call.run()
        return bool(calls)

    def next_timer(self) -> float | None:
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None


class PlayedGuardian:
    def __init__(self, mark: str = "mark") -> None:
        self.mark = mark
        self.groups: set[int] = set()
        self.is_dead = False

    @classmethod
    def start(cls, mark: str) -> PlayedGuardian:
        return cls(mark)

    def remember(self, group: int) -> None:
        self.groups.add(group)

    def forget(self, group: int) -> None:
        self.groups.discard(group)

    def has_ended(self) -> bool:
        return self.is_dead

    def abandon(self) -> None:
        pass


class _PlayedOutbox(Outbox):
    def __init__(self, fd: int, child: PlayedChild) -> None:
        super().__init__(fd)
        self._child = child

    def _write(self, view: memoryview) -> memoryview:
        child = self._child
        if child.status is not None:
            raise BrokenPipeError
        if child.is_deaf:
            return view
        child.hear(bytes(view))
        return view[len(view) :]


class PlayedChild(Child):
    """A process of which only the pipes and the exit status are there; the stage plays the server in it."""

    def __init__(self, stage: ServeStage, mount: str, generation: int, number: int, limit: int) -> None:
        super().__init__(mount, generation, 5000 + number, 100 + 3 * number, 101 + 3 * number, limit)
        self.outbox = _PlayedOutbox(100 + 3 * number, self)
        self.number = number
        self.started_at = stage.loop.now
        self.status: int | None = None
        self.is_deaf = False
        self.is_killed = False
        self.output = b""
        self.is_output_ended = False
        self.heard: list[Any] = []
        self._stage = stage
        self._rest = b""

    # --- as the supervisor sees it ---------------------------------------------------------------------------

    def read(self, most: int) -> bytes | None:
        assert self.output_open
        if self._stage.loop.now < self.quiet_until:
            self._stage.early_reads.append(self.number)
        data, self.output = self.output[:most], self.output[most:]
        if data:
            return data
        return b"" if self.is_output_ended or self.status is not None else None

    def read_rest(self, chunk: int) -> list[bytes]:
        data, self.output = self.output, b""
        return [data[at : at + chunk] for at in range(0, len(data), chunk)]

    def close_input(self) -> None:
        self.input_open = False

    def close_output(self) -> None:
        self.output_open = False

    def exit_status(self) -> int | None:
        return self.status

    def terminate(self) -> None:
        self.die(15)

    def kill(self) -> None:
        self.is_killed = True
        self.die(9)

    # --- as the stage plays it -------------------------------------------------------------------------------

    def die(self, status: int) -> None:
        if self.status is None:
            self.status = status

    def hear(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = msgspec.json.decode(line)
            self.heard.append(message)
            self._stage.on_heard(self, message)

    def say(self, message: dict[str, Any]) -> None:
        self.output += msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"

    @property
    def is_alive(self) -> bool:
        return self.status is None

    def is_readable(self) -> bool:
        return bool(self.output) or self.is_output_ended or self.status is not None


class Records:
    """The store. It keeps everything, or nothing while `is_full`."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, int], Invocation] = {}
        self.is_full = False

    def save_call(self, session: str, identity: str, workspace: str, call: Invocation) -> None:
        if self.is_full:
            raise StoreError("database or disk is full")
        self.calls[session, call.seq] = call

    def forget_call(self, session: str, seq: int) -> None:
        self.calls.pop((session, seq), None)

    def save_session(self, session: HttpSession) -> None:
        if self.is_full:
            raise StoreError("database or disk is full")


class PlayedSession(HttpSession):
    """A real session that remembers what its servers told it."""

    fed: list[Event]

    def feed(self, event: Event) -> None:
        if not hasattr(self, "fed"):
            self.fed = []
        if isinstance(event, ChildFrame | ChildLost | ChildStarted):
            self.fed.append(event)
        super().feed(event)


class ServeStage:
    def __init__(self, spec: MountSpec = SPEC) -> None:
        self.spec = spec
        self.loop = VirtualLoop()
        self.children: list[PlayedChild] = []
        self.sessions: list[PlayedSession] = []
        self.records = Records()
        self.notes: list[Note] = []
        self.early_reads: list[int] = []
        self.cannot_start = False
        guardian = cast("Guardian", PlayedGuardian())
        self.pool = ServerPool(
            guardian, {}, FRAME_BYTES, OUTBOX_BYTES, loop=self.loop, start=self._start_child
        )
        self.on_heard: Callable[[PlayedChild, Any], None] = lambda child, message: None
        self._number = 0

    @property
    def guardian(self) -> PlayedGuardian:
        return cast("PlayedGuardian", self.pool.supervisor.guardian)

    @property
    def alive(self) -> list[PlayedChild]:
        return [child for child in self.children if child.is_alive]

    def _start_child(
        self, mount: str, generation: int, launch: Launch, guardian: PlayedGuardian, limit: int, **_: Any
    ) -> Child:
        if self.cannot_start:
            raise OSError(2, "No such file or directory")
        child = PlayedChild(self, mount, generation, len(self.children), limit)
        self.children.append(child)
        guardian.remember(child.pid)
        return child

    def new_number(self) -> int:
        self._number += 1
        return self._number

    def open(self) -> PlayedSession:
        kernel = Kernel(
            {self.spec.name: self.spec},
            session_id=f"session-{len(self.sessions)}",
            now=self.loop.now,
            limits=Limits(outbox_bytes=OUTBOX_BYTES, frame_bytes=FRAME_BYTES),
            seed=len(self.sessions),
        )
        session = PlayedSession(
            kernel,
            self.pool,
            self.records,
            new_number=self.new_number,
            identity="",
            workspace="",
            said=lambda _, note: self.notes.append(note),
            save_catalog=lambda *_: None,
            save_tools=lambda _: None,
            save_task=lambda *_: None,
            loop=self.loop,
        )
        self.sessions.append(session)
        session.runner.start(kernel.start(self.loop.now))
        return session

    def post(
        self, session: HttpSession, identity: int | str, method: str, params: Any
    ) -> tuple[Exchange, int]:
        body = msgspec.json.encode(params)
        question = asked(method, body)
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": msgspec.Raw(body)}
        exchange = Exchange(identity, None, can_stream=True)
        session.post(msgspec.json.encode(message), exchange, question)
        return exchange, question

    # --- time ------------------------------------------------------------------------------------------------

    def run_ready(self) -> None:
        """Everything that is due, readable or writable now."""
        for _ in range(MOST_ROUNDS):
            if not self.run_once():
                return
        raise AssertionError("the loop never comes to rest")

    def run_once(self) -> bool:
        was_busy = self.loop.run_soon()
        for child in self.children:
            if child.is_readable() and (reader := self.loop.readers.get(child.stdout)) is not None:
                reader()
                was_busy = True
            is_writable = not child.is_deaf or child.status is not None
            if is_writable and (writer := self.loop.writers.get(child.outbox.fd)) is not None:
                writer()
                was_busy = True
        return was_busy

    def reap(self) -> None:
        """The signal that a process ended."""
        self.pool.supervisor.reap()

    def advance(self, seconds: float) -> None:
        """Let time pass, with everything that is due on the way."""
        until = self.loop.now + seconds
        for _ in range(MOST_ROUNDS):
            self.run_ready()
            due = self.loop.next_timer()
            if due is None or due > until:
                self.loop.now = until
                self.run_ready()
                return
            self.loop.now = max(self.loop.now, due)
        raise AssertionError("time does not pass")
