"""Child processes on an event loop: started, read, written to, stopped and reaped, for `run`, `wrap` and `serve` alike.

| of a child | on an event | then |
|---|---|---|
| runs | its output is readable | one read, then a slice of time for its lines; the rest in a later round |
| runs | a slice is over, and most of it came unasked | a pause before the next |
| runs | `throttle` | it is not read until then, and in small reads for a while after |
| runs | its outbox grows beyond what frames and bound allow | killed: `outbox_full` |
| runs | a pipe ends, and the process lives on | killed after a moment: `pipe_closed` |
| runs | `stop` | its input ends, then it is asked to end, then killed |
| ended | – | its group is killed, the rest of its output is taken in slices, then `on_exit` |

Every pipe is non-blocking and each child has its share of each round, so one that floods or stalls takes nothing from
the others. What a line leads to may raise; that costs the line, never those behind it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from perdure.platform.children import exit_status
from perdure.platform.guardian import Guardian
from perdure.protocol.faults import Fault, FaultClass
from perdure.supervise.child import (
    Child,
    ChildListener,
    Ended,
    Launch,
    exit_fault,
    spawn_fault,
    start_child,
)
from perdure.supervise.event_loop import EventLoop
from perdure.supervise.line_io import Oversize

READ_BYTES: Final = 1 << 16
SMALL_READ_BYTES: Final = 1 << 12
CHUNK_BYTES: Final = 1 << 14
NOISY_S: Final = 1.0  # for so long after a throttle reads stay small
SLICE_S: Final = 0.0005
PAUSE_S: Final = 0.005
NOISE_PER_LOOK: Final = 64  # lines of noise between two looks at the clock
HEAD_BYTES: Final = 256
BROKEN_GRACE_S: Final = 0.5
TERMINATE_S: Final = 1.0
KILL_S: Final = 3.0


class Supervisor:
    """`report` is told of an exception that a listener raised; `start` runs a command."""

    def __init__(
        self,
        loop: EventLoop,
        guardian: Guardian,
        *,
        frame_bytes: int,
        outbox_bytes: int,
        report: Callable[[Exception], None],
        start: Callable[..., Child] = start_child,
        start_guardian: Callable[[str], Guardian] = Guardian.start,
    ) -> None:
        self.guardian = guardian
        self.children: dict[int, Child] = {}
        """Those whose end is not known, by process id."""
        self.draining: list[Child] = []
        """Those that ended, and whose output is not all taken."""
        self.watched: dict[int, Callable[[int], None]] = {}
        """Other processes of ours: what their exit status is told to."""
        self._loop = loop
        self._frame_bytes = frame_bytes
        self._outbox_bytes = outbox_bytes
        self._report = report
        self._start = start
        self._start_guardian = start_guardian
        self._is_held = False
        self._is_closing = False

    # --- what owners want ------------------------------------------------------------------------------------

    def start(
        self,
        mount: str,
        generation: int,
        launch: Launch,
        listener: ChildListener,
        *,
        gently: bool = False,
        keep_stderr: bool = False,
    ) -> Child | Fault:
        try:
            child = self._start(
                mount,
                generation,
                launch,
                self.guardian,
                self._frame_bytes,
                gently=gently,
                keep_stderr=keep_stderr,
            )
        except OSError as error:
            return spawn_fault(generation, launch.argv[0], launch.cwd, error)
        self.adopt(child, listener)
        return child

    def adopt(self, child: Child, listener: ChildListener) -> None:
        """A child that was just started, or that a predecessor of this process started."""
        child.listener = listener
        self.children[child.pid] = child
        if child.stderr >= 0:
            self._loop.add_reader(child.stderr, lambda: self._read_stderr(child))
        if child.input_open and child.outbox.size:
            self._set_writing(child, True)
        self._schedule(child, 0)

    def write(self, child: Child, frame: bytes) -> None:
        if not child.input_open:
            return  # the owner is told of its end soon
        try:
            child.outbox.put_line(frame)
        except OSError:
            self._break(child)
            return
        if child.outbox.size:
            self._set_writing(child, True)
        if child.outbox.size > self._outbox_bytes + 2 * self._frame_bytes:
            # No call is sent beyond the first bound; what still grows are answers and notices to a deaf child.
            self._give_up(child, "resource", "outbox_full", "the child does not read what it is sent")
            return
        self._say_backlog(child)

    def stop(self, child: Child, *, force: bool = False) -> None:
        """End it in good order, or with `force` at once."""
        self._close_input(child)
        if force:
            child.kill()
        elif not child.stop_timers and child.pid in self.children:
            child.stop_timers = [
                self._loop.call_later(TERMINATE_S, child.terminate),
                self._loop.call_later(KILL_S, child.kill),
            ]

    def throttle(self, child: Child, until: float) -> None:
        """Do not read it until then."""
        child.quiet_until = max(child.quiet_until, until)
        if child.is_read:
            self._schedule(child, child.quiet_until - self._loop.time())

    def hold(self) -> None:
        """Take nothing from any child until `release`."""
        self._is_held = True
        for child in (*self.children.values(), *self.draining):
            self._schedule(child, 0)

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            for child in (*self.children.values(), *self.draining):
                self._schedule(child, 0)

    def reap(self) -> None:
        """Look which processes ended: after a signal, and after the end of a pipe."""
        for child in list(self.children.values()):
            if (status := child.exit_status()) is not None:
                self._end(child, status)
        for pid, action in list(self.watched.items()):
            if (status := exit_status(pid)) is not None:
                del self.watched[pid]
                action(status)
        if not self._is_closing and self.guardian.has_ended():
            self._renew_guardian()

    def resync(self, child: Child) -> None:
        """After the host was replaced: what happened to it meanwhile, and whether it takes what it is sent."""
        self._say_backlog(child)
        if not (child.input_open and child.output_open):
            self._break(child)

    def end_children(self) -> None:
        """Stop all of them without further callbacks; call `reap` until `children` is empty."""
        self._is_closing = True
        for child in self.children.values():
            self.stop(child)

    # --- pipes -----------------------------------------------------------------------------------------------

    def _readable(self, child: Child) -> None:
        is_noisy = self._loop.time() - child.quiet_until < NOISY_S
        data = child.read(SMALL_READ_BYTES if is_noisy else READ_BYTES)
        if data is None:
            return
        if not data:
            self._close_output(child)
            self._break(child)
            return
        child.reader.feed(data)
        self._take_slice(child)

    def _schedule(self, child: Child, wait: float) -> None:
        """Its next slice. It is read again when all of its lines are taken."""
        self._set_reading(child, False)
        if child.next_slice is not None:
            child.next_slice.cancel()
            child.next_slice = None
        if self._is_held:
            return
        if wait > 0:
            child.next_slice = self._loop.call_later(wait, lambda: self._take_slice(child))
        else:
            child.next_slice = self._loop.call_soon(lambda: self._take_slice(child))

    def _take_slice(self, child: Child) -> None:
        child.next_slice = None
        is_asked_for = self._take_lines(child, self._loop.time() + SLICE_S)
        if child.ended is not None:
            if child.last_chunks and not child.reader.ready:
                child.reader.feed(child.last_chunks.popleft())
            if child.last_chunks or child.reader.ready:
                self._schedule(child, 0)
            else:
                self.draining.remove(child)
                self._tell(child.listener.on_exit, child.ended)
            return
        wait = child.quiet_until - self._loop.time()
        if not is_asked_for:
            wait = max(wait, PAUSE_S)
        if child.reader.ready or wait > 0:
            self._schedule(child, wait)
        elif self._is_held:
            self._set_reading(child, False)
        else:
            self._set_reading(child, True)

    def _take_lines(self, child: Child, until: float) -> bool:
        """False where the time was not enough, and most of it went to what nobody had asked for."""
        ready, listener = child.reader.ready, child.listener
        noise = answers = others = 0
        now = self._loop.time()
        while ready and not self._is_held and now < until and (child.quiet_until <= now or child.ended):
            line = ready.popleft()
            if isinstance(line, Oversize):
                others += 1
                self._tell(listener.on_noise, 1, line)
            elif line.lstrip()[:1] == b"{":
                if b'"method"' in line[:HEAD_BYTES]:
                    others += 1
                else:
                    answers += 1
                self._tell(listener.on_line, line)
            else:
                noise += 1
                if noise % NOISE_PER_LOOK:
                    continue  # so cheap that a look at the clock would cost as much
            now = self._loop.time()
        if noise:
            self._tell(listener.on_noise, noise)
        return not ready or answers >= others + noise

    def _tell(self, hear: Callable[..., None], *what: object) -> None:
        if self._is_closing:
            return
        try:
            hear(*what)
        except Exception as error:
            self._report(error)

    def _writable(self, child: Child) -> None:
        try:
            child.outbox.flush()
        except OSError:
            self._break(child)
            return
        if not child.outbox.size:
            self._set_writing(child, False)
        self._say_backlog(child)

    def _say_backlog(self, child: Child) -> None:
        size, bound = child.outbox.size, self._outbox_bytes
        if (size > bound) != (child.backlog_said > bound):
            child.backlog_said = size
            self._tell(child.listener.on_backlog, size)

    def _read_stderr(self, child: Child) -> None:
        if not child.read_stderr():
            self._close_stderr(child)

    def _set_reading(self, child: Child, on: bool) -> None:
        if on == child.is_read or not child.output_open:
            return
        child.is_read = on
        if on:
            self._loop.add_reader(child.stdout, lambda: self._readable(child))
        else:
            self._loop.remove_reader(child.stdout)

    def _set_writing(self, child: Child, on: bool) -> None:
        if on == child.is_written:
            return
        child.is_written = on
        if on:
            self._loop.add_writer(child.outbox.fd, lambda: self._writable(child))
        else:
            self._loop.remove_writer(child.outbox.fd)

    def _close_output(self, child: Child) -> None:
        self._set_reading(child, False)
        child.close_output()

    def _close_input(self, child: Child) -> None:
        if child.input_open:
            self._set_writing(child, False)
            child.close_input()

    def _close_stderr(self, child: Child) -> None:
        if child.stderr >= 0:
            self._loop.remove_reader(child.stderr)
            child.close_stderr()

    # --- the end of a child ----------------------------------------------------------------------------------

    def _break(self, child: Child) -> None:
        """A pipe ended. Most often the process did too, which gives the better reason: wait a moment for it."""
        if child.is_broken:
            return
        child.is_broken = True
        self._close_input(child)
        self._loop.call_soon(self.reap)
        self._loop.call_later(BROKEN_GRACE_S, lambda: self._give_up_broken(child))

    def _give_up_broken(self, child: Child) -> None:
        if child.pid in self.children and not child.stop_timers:
            self._give_up(child, "transport", "pipe_closed", "the child closed its pipe and lives on")

    def _give_up(self, child: Child, kind: FaultClass, code: str, detail: str) -> None:
        """Nothing can be said to this process or heard from it any more."""
        child.fault = child.fault or Fault(kind, code, child.generation, detail)
        self.stop(child, force=True)

    def _end(self, child: Child, status: int) -> None:
        """The process is gone, with it its group. A successor may get the numbers of its descriptors."""
        del self.children[child.pid]
        child.kill()
        self.guardian.forget(child.pid)
        for timer in child.stop_timers:
            timer.cancel()
        if child.output_open:
            child.last_chunks.extend(child.read_rest(CHUNK_BYTES))
        if child.stderr >= 0:
            child.read_stderr()  # once is all that a pipe holds; a grandchild may keep it open
        self._close_output(child)
        self._close_input(child)
        self._close_stderr(child)
        code = os.waitstatus_to_exitcode(status)
        child.ended = Ended(child.fault or exit_fault(child.generation, status), code)
        self.draining.append(child)
        self._schedule(child, 0)

    def _renew_guardian(self) -> None:
        try:
            fresh = self._start_guardian(self.guardian.mark)
        except OSError:
            return  # too many processes just now; the next one that ends brings us back here
        self.guardian.abandon()
        self.guardian = fresh
        for child in self.children.values():
            fresh.remember(child.pid)
