"""One kernel in the world: events are fed to it, its effects are carried out, and an exception is contained.

An exception in here is a bug of ours. It costs what it happened in:

| event | who is told | then |
|---|---|---|
| a client's frame | the client gets an error for that request | the session goes on |
| a server's frame or noise | the server is stopped; its calls are settled as lost | its successor starts |
| a file that changed | – | the session goes on with what it knew |
| anything else | `abandon`: the state cannot be trusted | the session ends |

What the kernel had decided before the exception still holds.
"""

from __future__ import annotations

import os
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from perdure.kernel.core import Kernel
from perdure.kernel.events import (
    Approved,
    ChildFrame,
    ChildLost,
    ChildNoise,
    ClientFrame,
    Effect,
    Event,
    Exit,
    FileFaults,
    Note,
    Remount,
    SaveCatalog,
    SaveTask,
    SaveTools,
    Spawn,
    Stop,
    Throttle,
    Tick,
    ToChild,
    ToClient,
)
from perdure.protocol.faults import Fault
from perdure.protocol.frames import INTERNAL_ERROR, Request, RequestId, decode, encode_error
from perdure.supervise.event_loop import EventLoop, Timer

MOST_FRAMES: Final = 8
_MESSAGE: Final = (
    "An error inside Perdure ended this request. If it was a call, look for its effect before you repeat it."
)
_DATA: Final = {"class": "invariant", "code": "unhandled_frame", "outcome": "unknown", "retry": "never"}


class Shell(Protocol):
    """What stands around a kernel: its client, its servers and its files."""

    def before_effects(self, effects: list[Effect]) -> list[Effect]:
        """The effects of one event, before any of them is carried out; it may leave some out."""

    def after_event(self) -> None: ...

    def send_to_client(self, frame: bytes) -> None: ...

    def send_to_server(self, effect: ToChild) -> None: ...

    def start_server(self, effect: Spawn) -> None: ...

    def stop_server(self, effect: Stop) -> None: ...

    def throttle_server(self, effect: Throttle) -> None: ...

    def note(self, note: Note) -> None: ...

    def save_catalog(self, effect: SaveCatalog) -> None: ...

    def save_tools(self, effect: SaveTools) -> None: ...

    def save_task(self, effect: SaveTask) -> None: ...

    def exit(self) -> None: ...

    def abandon(self, error: Exception) -> None:
        """The kernel's state cannot be trusted any more; it gets no more events."""


class Tracer(Protocol):
    def saw(self, event: Event) -> None: ...

    def does(self, effects: list[Effect]) -> list[Effect]: ...


class KernelRunner:
    """`hold_back` gets all effects and returns those that are carried out now."""

    def __init__(self, kernel: Kernel, loop: EventLoop, shell: Shell) -> None:
        self.kernel = kernel
        self.tracing: Tracer | None = None
        self.hold_back: Callable[[list[Effect]], list[Effect]] | None = None
        self.is_stopped = False
        self._loop = loop
        # The shell owns the runner: a strong reference would be a cycle, and keep an unloaded session until a collection.
        self._shell: Shell = weakref.proxy(shell)
        self._events: deque[Event] = deque()
        self._is_busy = False
        self._timer: Timer | None = None
        self._timer_at = inf

    def start(self, effects: list[Effect]) -> None:
        """What the kernel did outside of an event, at its start."""
        self._is_busy = True
        try:
            self.perform(effects)
        finally:
            self._is_busy = False
        self._drain()

    def feed(self, event: Event) -> None:
        if self.is_stopped:
            return
        self._events.append(event)
        if not self._is_busy:  # else an effect made this event; its turn comes after that effect
            self._drain()

    def stop(self) -> None:
        """No more events, no more timers. Effects of the event at hand are still carried out."""
        self.is_stopped = True
        self._events.clear()
        self._cancel_timer()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            try:
                self._perform(effect)
            except Exception as error:
                self.report(error)

    def report(self, error: Exception) -> None:
        """Neither the message nor the source is shown: they may hold content."""
        frames = traceback.extract_tb(error.__traceback__)[-MOST_FRAMES:]
        where = " ".join(f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in reversed(frames))
        detail = type(error).__name__
        fields = {"class": "invariant", "code": "unhandled_frame", "detail": detail, "where": where}
        self._shell.note(Note("fault", dict(fields)))

    def _drain(self) -> None:
        self._is_busy = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._is_busy = False
            self._set_timer()

    def _handle(self, event: Event) -> None:
        self._trace(event)
        error: Exception | None = None
        try:
            effects = self.kernel.handle(event, self._loop.time())
        except Exception as raised:
            error = raised
            self.kernel.quarantine("invariant")
            self.report(error)
            effects = [*self.kernel.out, *self._answer_error(event, error)]
        effects = self._shell.before_effects(effects)
        effects = self._traced(effects)
        self.perform(effects if self.hold_back is None else self.hold_back(effects))
        if error is not None and not isinstance(
            event, ClientFrame | ChildFrame | ChildNoise | Remount | FileFaults | Approved
        ):
            self.stop()
            self._shell.abandon(error)
        self._shell.after_event()

    def _answer_error(self, event: Event, error: Exception) -> list[Effect]:
        match event:
            case ClientFrame(frame):
                message = decode(frame)
                if isinstance(message, Request) and message.id not in self.kernel.state.ids:
                    return [ToClient(unhandled_error(message.id))]
            case ChildFrame(mount, generation) | ChildNoise(mount, generation):
                fault = Fault("invariant", "unhandled_frame", generation, type(error).__name__)
                self._events.append(ChildLost(mount, generation, fault))
                return [Stop(mount, generation)]  # other sessions may do well with it
            case _:
                pass
        return []

    def _perform(self, effect: Effect) -> None:
        match effect:
            case ToClient(frame):
                self._shell.send_to_client(frame)
            case ToChild():
                self._shell.send_to_server(effect)
            case Note():
                self._shell.note(effect)
            case Spawn():
                self._shell.start_server(effect)
            case Stop():
                self._shell.stop_server(effect)
            case Throttle():
                self._shell.throttle_server(effect)
            case SaveCatalog():
                self._shell.save_catalog(effect)
            case SaveTools():
                self._shell.save_tools(effect)
            case SaveTask():
                self._shell.save_task(effect)
            case Exit():
                self._shell.exit()

    # --- timers ----------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """One that is too early is left as it is: it looks again when it is due."""
        if self.is_stopped:
            return
        due = self.kernel.next_wake()
        if due is not None and due < self._timer_at:
            self._cancel_timer()
            self._timer_at = due
            self._timer = self._loop.call_later(max(0.0, due - self._loop.time()), self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at = None, inf
        due = self.kernel.next_wake()
        if due is not None and due <= self._loop.time():
            self.feed(Tick())
        else:
            self._set_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, inf

    # --- tracing ---------------------------------------------------------------------------------------------

    def _trace(self, event: Event) -> None:
        try:
            if self.tracing is not None:
                self.tracing.saw(event)
        except Exception as error:
            self._stop_tracing(error)

    def _traced(self, effects: list[Effect]) -> list[Effect]:
        try:
            return self.tracing.does(effects) if self.tracing is not None else effects
        except Exception as error:
            self._stop_tracing(error)
            return effects

    def _stop_tracing(self, error: Exception) -> None:
        self.tracing = None
        self.report(error)


def unhandled_error(identity: RequestId) -> bytes:
    return encode_error(identity, INTERNAL_ERROR, _MESSAGE, _DATA)
