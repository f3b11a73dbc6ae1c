"""The shell around the kernel: one thread, one poll, no waiting on any child.

Every pipe is non-blocking. A child gets a share of each round (one read, a bounded number of frames), so
one that floods or stalls takes nothing from the others; what cannot be written yet waits in its outbox.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping

from perdure.host import child as processes
from perdure.host.child import Child
from perdure.host.eventlog import EventLog
from perdure.host.guardian import Guardian
from perdure.host.lines import LineReader, Oversize
from perdure.host.outbox import Outbox
from perdure.kernel.core import Kernel
from perdure.kernel.events import (
    ChildBacklog,
    ChildFrame,
    ChildLost,
    ChildNoise,
    ChildStarted,
    ClientClosed,
    ClientFrame,
    ClientOversize,
    Effect,
    Event,
    Exit,
    Note,
    Reload,
    SaveCatalog,
    Shutdown,
    Spawn,
    Stop,
    Throttle,
    Tick,
    ToChild,
    ToClient,
)
from perdure.model.faults import Fault
from perdure.model.mounts import MountSpec

READ_BYTES = 1 << 16
FRAMES_PER_ROUND = 64
CLIENT_HIGH = 16 * 1024 * 1024
DRAIN_BYTES = 4 * 1024 * 1024
BROKEN_GRACE_S = 0.5
CLOSE_S = 1.0
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Signals:
    """Signals as bytes on a pipe, so that the one poll sees them too."""

    WANTED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)

    def __init__(self) -> None:
        self.fd, self._writing = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._writing, False)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in self.WANTED:
            signal.signal(number, lambda *_: None)

    def take(self) -> set[int]:
        try:
            return set(os.read(self.fd, 4096))
        except BlockingIOError:
            return set()

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._writing)


class Shell:
    """Turns the world into events for the kernel and the kernel's effects into deeds."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        client_in: int,
        client_out: int,
        guardian: Guardian,
        environ: Mapping[str, str],
        log: EventLog,
        save_catalog: Callable[[MountSpec, bytes], None],
        upgrade: Callable[[Shell], bool] | None = None,
    ) -> None:
        self.kernel = kernel
        self.client_in = client_in
        self.client_reader = LineReader(kernel.limits.frame_bytes)
        self.client_out = Outbox(client_out)
        self.guardian = guardian
        self.children: dict[tuple[str, int], Child] = {}
        self.watched: dict[int, Callable[[int], None]] = {}
        self.deadlines: list[tuple[float, Callable[[], None]]] = []
        self.input_open = True
        self._environ = environ
        self._log = log
        self._save_catalog = save_catalog
        self._upgrade = upgrade
        self._signals = Signals()
        self._poll = select.poll()
        self._masks: dict[int, int] = {}
        self._by_output: dict[int, Child] = {}
        self._by_input: dict[int, Child] = {}
        self._events: deque[Event] = deque()
        self._busy = False
        self._done = False
        os.set_blocking(client_in, False)
        os.set_blocking(client_out, False)

    # --- the loop ----------------------------------------------------------------------------------------

    def run(self, *, resumed: bool = False) -> int:
        """Serve until the client is gone."""
        if not resumed:
            self._apply(self.kernel.start(time.monotonic()))
            self._drain_events()
        else:
            self._reap()  # whoever ended while there was no one to hear it
        while not self._done:
            self._watch()
            for fd, mask in self._poll.poll(self._timeout()):
                self._ready(fd, mask)
            self._take_frames()
            self._run_timers()
            self._log.flush()
        self._close()
        return 0

    def feed(self, event: Event) -> None:
        self._events.append(event)
        self._drain_events()

    def _drain_events(self) -> None:
        if self._busy:
            return  # an effect made this event; the loop that applies it comes back here
        self._busy = True
        try:
            while self._events:
                self._apply(self.kernel.handle(self._events.popleft(), time.monotonic()))
        finally:
            self._busy = False

    def _watch(self) -> None:
        """Read whom we have room for, write to whom we have something."""
        now = time.monotonic()
        room = self.client_out.size < CLIENT_HIGH
        wanted = {self._signals.fd: select.POLLIN}
        if self.input_open and room and not self.client_reader.ready:
            wanted[self.client_in] = select.POLLIN
        if self.client_out.size:
            wanted[self.client_out.fd] = wanted.get(self.client_out.fd, 0) | select.POLLOUT
        for child in self.children.values():
            if child.output_open and room and not child.reader.ready and child.quiet_until <= now:
                wanted[child.stdout] = select.POLLIN
            if child.input_open and child.outbox.size:
                wanted[child.outbox.fd] = select.POLLOUT
        for fd in [fd for fd in self._masks if fd not in wanted]:
            self._poll.unregister(fd)
            del self._masks[fd]
        for fd, mask in wanted.items():
            if self._masks.get(fd) != mask:
                self._poll.register(fd, mask)
                self._masks[fd] = mask

    def _timeout(self) -> float | None:
        now = time.monotonic()
        if self._has_frames(now):
            return 0
        due = self.kernel.next_wake()
        times = [] if due is None else [due]
        times += [at for at, _ in self.deadlines]
        for child in self.children.values():
            times += [at for at, _ in child.stopping]
            if child.broken_at is not None:
                times.append(child.broken_at + BROKEN_GRACE_S)
            if child.quiet_until > now:
                times.append(child.quiet_until)
        if not times:
            return None
        return max(0.0, (min(times) - now) * 1000.0 + 0.5)

    def _ready(self, fd: int, mask: int) -> None:
        if fd == self._signals.fd:
            self._on_signals()
            return
        if fd == self.client_in and mask & _READABLE:
            self._read_client()
        if fd == self.client_out.fd and mask & (select.POLLOUT | select.POLLERR | select.POLLHUP):
            self._flush_client()
        if (child := self._by_output.get(fd)) is not None:
            self._read_child(child)
        elif (child := self._by_input.get(fd)) is not None:
            self._flush_child(child)

    def _on_signals(self) -> None:
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                self._reap()
            elif number == signal.SIGHUP:
                self.feed(Reload())
            elif number == signal.SIGUSR2:
                if self._upgrade is not None and not self._upgrade(self):
                    self._log.add(
                        time.time(), self.kernel.state.session.session_id, "rollout", {"phase": "host_kept"}
                    )
            else:
                self.feed(Shutdown())

    def _run_timers(self) -> None:
        now = time.monotonic()
        due = self.kernel.next_wake()
        if due is not None and due <= now:
            self.feed(Tick())
        for at, action in list(self.deadlines):
            if at <= now:
                self.deadlines.remove((at, action))
                action()
        for child in list(self.children.values()):
            while child.stopping and child.stopping[0][0] <= now:
                child.signal(child.stopping.pop(0)[1])
            if child.broken_at is not None and child.broken_at + BROKEN_GRACE_S <= now:
                child.broken_at = None
                fault = Fault(
                    "transport", "pipe_closed", child.generation, "the child closed its pipe and lives on"
                )
                child.signal(signal.SIGKILL)
                self.feed(ChildLost(child.mount, child.generation, fault))

    # --- the client's side -----------------------------------------------------------------------------------

    def _read_client(self) -> None:
        try:
            data = os.read(self.client_in, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.client_reader.feed(data)
        else:
            self.input_open = False
            self._take_client_frames()
            self.feed(ClientClosed())

    def _send_client(self, frame: bytes) -> None:
        try:
            self.client_out.put(frame + b"\n")
        except OSError:
            self._client_gone()

    def _flush_client(self) -> None:
        try:
            self.client_out.flush()
        except OSError:
            self._client_gone()

    def _client_gone(self) -> None:
        """Nobody reads the answers any more."""
        self._done = True

    # --- a child's side ------------------------------------------------------------------------------------------

    def _read_child(self, child: Child) -> None:
        try:
            data = os.read(child.stdout, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            child.reader.feed(data)
        else:
            self._forget_output(child)
            self._broken(child)

    def _send_child(self, effect: ToChild) -> None:
        child = self.children.get((effect.mount, effect.generation))
        if child is None or not child.input_open:
            return  # its loss is already on the way to the kernel
        try:
            child.outbox.put(effect.frame + b"\n")
        except OSError:
            self._broken(child)
            return
        self._say_backlog(child)

    def _flush_child(self, child: Child) -> None:
        try:
            child.outbox.flush()
        except OSError:
            self._forget_input(child)
            self._broken(child)
            return
        self._say_backlog(child)

    def _say_backlog(self, child: Child) -> None:
        limit = self.kernel.limits.outbox_bytes
        if (child.outbox.size > limit) != (child.backlog_said > limit):
            child.backlog_said = child.outbox.size
            self.feed(ChildBacklog(child.mount, child.generation, child.outbox.size))

    def _broken(self, child: Child) -> None:
        """A pipe ended. Most often the process did too: wait a moment for the better reason."""
        if child.broken_at is None:
            child.broken_at = time.monotonic()
            self._reap()

    def _forget_output(self, child: Child) -> None:
        self._unregister(child.stdout)
        self._by_output.pop(child.stdout, None)
        child.close_output()

    def _forget_input(self, child: Child) -> None:
        self._unregister(child.outbox.fd)
        self._by_input.pop(child.outbox.fd, None)
        child.close_input()

    def _unregister(self, fd: int) -> None:
        if self._masks.pop(fd, None) is not None:
            self._poll.unregister(fd)

    # --- frames ------------------------------------------------------------------------------------------------------

    def _has_frames(self, now: float) -> bool:
        if self.client_out.size >= CLIENT_HIGH:
            return False
        return bool(self.client_reader.ready) or any(
            c.reader.ready and c.quiet_until <= now for c in self.children.values()
        )

    def _take_frames(self) -> None:
        if self.client_out.size >= CLIENT_HIGH:
            return
        self._take_client_frames()
        for child in list(self.children.values()):
            self._take_child_frames(child, FRAMES_PER_ROUND)

    def _take_client_frames(self) -> None:
        ready = self.client_reader.ready
        for _ in range(min(len(ready), FRAMES_PER_ROUND) if self.input_open else len(ready)):
            line = ready.popleft()
            if isinstance(line, Oversize):
                self.feed(ClientOversize(line.size, line.head, line.tail))
            else:
                self.feed(ClientFrame(line))

    def _take_child_frames(self, child: Child, most: int) -> None:
        ready = child.reader.ready
        noise = 0
        while ready and most > 0 and child.quiet_until <= time.monotonic():
            line = ready.popleft()
            if isinstance(line, Oversize):
                self.feed(ChildNoise(child.mount, child.generation, 1, True, line.head, line.tail))
            elif line.lstrip()[:1] != b"{":
                noise += 1
                if noise < 1024:
                    continue  # cheap: it costs no place of the round
                self.feed(ChildNoise(child.mount, child.generation, noise))
                noise = 0
            else:
                self.feed(ChildFrame(child.mount, child.generation, line))
            most -= 1
        if noise:
            self.feed(ChildNoise(child.mount, child.generation, noise))

    # --- processes ------------------------------------------------------------------------------------------------------

    def _spawn(self, effect: Spawn) -> None:
        spec = self.kernel.specs[effect.mount]
        env = {**self._environ, **spec.env}
        try:
            child = processes.start(
                effect.mount,
                effect.generation,
                spec.argv,
                env,
                spec.cwd,
                self.guardian,
                self.kernel.limits.frame_bytes,
            )
        except OSError as error:
            detail = f"{os.path.basename(spec.argv[0])}: {error.strerror}"
            fault = Fault("process", "spawn_failed", effect.generation, detail, "check the command")
            self.feed(ChildLost(effect.mount, effect.generation, fault))
            return
        self.adopt(child)
        self.feed(ChildStarted(child.mount, child.generation, child.pid))

    def adopt(self, child: Child) -> None:
        self.children[child.key] = child
        if child.output_open:
            self._by_output[child.stdout] = child
        if child.input_open:
            self._by_input[child.outbox.fd] = child

    def _stop(self, effect: Stop) -> None:
        child = self.children.get((effect.mount, effect.generation))
        if child is None:
            return
        self._forget_input(child)
        if effect.force:
            child.signal(signal.SIGKILL)
        else:
            now = time.monotonic()
            child.stopping = [(now + 1.0, signal.SIGTERM), (now + 3.0, signal.SIGKILL)]

    def _reap(self) -> None:
        for child in list(self.children.values()):
            status = _exit_status(child.pid)
            if status is not None:
                self._ended(child, status)
        for pid, action in list(self.watched.items()):
            status = _exit_status(pid)
            if status is not None:
                del self.watched[pid]
                action(status)
        if _exit_status(self.guardian.pid) is not None:
            os.close(self.guardian.fd)
            self.guardian = Guardian.start()
            for child in self.children.values():
                self.guardian.remember(child.pid)

    def _ended(self, child: Child, status: int) -> None:
        """The process is gone: take what it still said, end its group, then tell the kernel."""
        taken = 0
        while child.output_open and taken < DRAIN_BYTES:
            try:
                data = os.read(child.stdout, READ_BYTES)
            except OSError:
                break
            if not data:
                break
            taken += len(data)
            child.reader.feed(data)
        child.quiet_until = 0.0
        self._take_child_frames(child, len(child.reader.ready))
        child.signal(signal.SIGKILL)
        self.guardian.forget(child.pid)
        self._forget_output(child)
        self._forget_input(child)
        self.children.pop(child.key, None)
        self.feed(ChildLost(child.mount, child.generation, _exit_fault(child, status)))

    # --- effects -----------------------------------------------------------------------------------------------------------

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToClient(frame):
                    self._send_client(frame)
                case ToChild():
                    self._send_child(effect)
                case Note(event, fields):
                    self._log.add(time.time(), self.kernel.state.session.session_id, event, fields)
                case Spawn():
                    self._spawn(effect)
                case Stop():
                    self._stop(effect)
                case Throttle(mount, generation, until):
                    child = self.children.get((mount, generation))
                    if child is not None:
                        child.quiet_until = until
                case SaveCatalog(mount, catalog):
                    self._save_catalog(self.kernel.specs[mount], catalog)
                case Exit():
                    self._done = True

    # --- the end -----------------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Children first get their end of input, then a signal, then no choice; the client its last bytes."""
        until = time.monotonic() + CLOSE_S
        while self.client_out.size and time.monotonic() < until:
            select.select([], [self.client_out.fd], [], 0.05)
            try:
                self.client_out.flush()
            except OSError:
                break
        for child in self.children.values():
            child.close_input()
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            if number:
                for child in self.children.values():
                    child.signal(number)
            until = time.monotonic() + CLOSE_S
            while self.children and time.monotonic() < until:
                self._discard_output()
                for child in list(self.children.values()):
                    if _exit_status(child.pid) is not None:
                        child.signal(signal.SIGKILL)
                        self.guardian.forget(child.pid)
                        child.close_output()
                        del self.children[child.key]
        self._log.flush()
        self._log.close()
        self.guardian.close()
        self._signals.close()
        for fd in (self.client_in, self.client_out.fd):
            try:
                os.set_blocking(fd, True)
            except OSError:
                pass

    def _discard_output(self) -> None:
        fds = [c.stdout for c in self.children.values() if c.output_open]
        readable, _, _ = select.select([self._signals.fd, *fds], [], [], 0.05)
        self._signals.take()
        for child in self.children.values():
            if child.output_open and child.stdout in readable:
                try:
                    if not os.read(child.stdout, READ_BYTES):
                        child.close_output()
                except OSError:
                    pass


def _exit_status(pid: int) -> int | None:
    """The status of a child that ended, or None while it runs."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return status if found else None


def _exit_fault(child: Child, status: int) -> Fault:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = str(number)
        return Fault("process", "killed", child.generation, f"ended by {name}")
    return Fault("process", "exited", child.generation, f"exit code {os.waitstatus_to_exitcode(status)}")
