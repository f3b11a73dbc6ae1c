"""The shell around the kernel: one thread, one poll, no waiting on any child.

Every pipe is non-blocking. A child gets a share of each round (one read, a slice of time for its frames), so
one that floods or stalls takes nothing from the others; what cannot be written yet waits in its outbox. One
that was told to be quiet is read in sips for a while: even splitting a pipe full of noise into lines takes
time that belongs to others.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from perdure.host.console import Console
from perdure.host.control import Control
from perdure.host.launch import Launch, environment
from perdure.host.settings import Settings
from perdure.kernel.core import Kernel
from perdure.kernel.events import (
    Approved,
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
    FileFaults,
    Note,
    Reload,
    Remount,
    SaveCatalog,
    SaveTools,
    Shutdown,
    Spawn,
    Stop,
    Throttle,
    Tick,
    ToChild,
    ToClient,
)
from perdure.platform import signals
from perdure.platform.children import exit_status
from perdure.platform.descriptors import pipe_size, set_blocking, widen
from perdure.platform.guardian import Guardian
from perdure.platform.polling import CLOSED, READABLE, WRITABLE, new_poll, wait
from perdure.platform.signals import SignalPipe
from perdure.protocol.faults import Fault, FaultClass
from perdure.protocol.frames import INTERNAL_ERROR, encode_error, salvage_id
from perdure.protocol.mounts import MountSpec
from perdure.storage.event_log import EventLog
from perdure.supervise import child as processes
from perdure.supervise.child import Child
from perdure.supervise.exits import CLOSE_S, end_all, exit_fault, spawn_fault
from perdure.supervise.line_io import LineReader, Outbox, Oversize

if TYPE_CHECKING:
    from perdure.host.mount_calls import MountCalls
    from perdure.host.registry_mounts import RegistryMounts as Registry
    from perdure.telemetry.exporter import Exporter
    from perdure.telemetry.tracing import Tracing

READ_BYTES = 1 << 16
GULP_BYTES = 1 << 18
SIP_BYTES = 1 << 12
SIP_S = 1.0
LOOK_S = 1.0
FRAMES_PER_ROUND = 64
SLICE_S = 0.0001
CLIENT_HIGH = 16 * 1024 * 1024
BROKEN_GRACE_S = 0.5
MOST_FRAMES = 8
UNHANDLED = (
    "An error inside Perdure ended this request. If it was a call, look for its effect before you repeat it."
)


def _places(error: Exception) -> str:
    """Where it was raised, innermost first. Neither the message nor the source is shown: they may hold content."""
    frames = traceback.extract_tb(error.__traceback__)[-MOST_FRAMES:]
    return " ".join(f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in reversed(frames))


class Deadline:
    """An action at a time, until it is cancelled."""

    def __init__(
        self, deadlines: list[tuple[float, Callable[[], None]]], at: float, action: Callable[[], None]
    ) -> None:
        self._deadlines = deadlines
        self._entry = at, action
        deadlines.append(self._entry)

    def cancel(self) -> None:
        if self._entry in self._deadlines:
            self._deadlines.remove(self._entry)


class Shell:
    """Turns the world into events for the kernel and the kernel's effects into deeds."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        settings: Settings,
        client_in: int,
        client_out: int,
        guardian: Guardian,
        environ: Mapping[str, str],
        log: EventLog,
        save_catalog: Callable[[MountSpec, bytes], None],
        registry: Registry | None = None,
        upgrade: Callable[[Shell], None] | None = None,
        control: Control | None = None,
        console: Console | None = None,
        exporter: Exporter | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.kernel = kernel
        self.settings = settings
        self.client_in = client_in
        self.client_reader = LineReader(kernel.limits.frame_bytes)
        self.client_out = Outbox(client_out)
        self.guardian = guardian
        self.children: dict[tuple[str, int], Child] = {}
        self.watched: dict[int, Callable[[int], None]] = {}
        self.deadlines: list[tuple[float, Callable[[], None]]] = []
        self.at_rest: list[Callable[[], None]] = []
        self.signals = SignalPipe()
        self.input_open = True
        self._environ = environ
        self._log = log
        self._save_catalog = save_catalog
        self.registry = registry
        self._upgrade = upgrade
        self._control = control
        self._console = console
        self._exporter = exporter
        self._tracing = tracing
        self.mount_calls: MountCalls | None = None
        self._readers: dict[int, Callable[[], None]] = {}
        self._poll = new_poll()
        self._masks: dict[int, int] = {}
        self._by_output: dict[int, Child] = {}
        self._by_input: dict[int, Child] = {}
        self._by_stderr: dict[int, Child] = {}
        self._events: deque[Event] = deque()
        self._busy = False
        self._done = False
        self._due: float | None = None
        self._gulp = READ_BYTES
        for fd in (client_in, client_out):
            set_blocking(fd, False)
            widen(fd)
        if control is not None:
            control.watch(self._poll)

    # --- the loop ----------------------------------------------------------------------------------------

    def run(self, *, resumed: bool = False) -> int:
        """Serve until the client is gone."""
        if self.registry is not None:
            self.deadlines.append((time.monotonic() + LOOK_S, self._look))
        if not resumed:
            self.perform(self.kernel.start(time.monotonic()))
            self._drain_events()
        else:
            self._take_up()
        hurried = False
        while not self._done:
            found = [] if hurried else self._already_there()
            hurried = bool(found)
            if not hurried:
                self._log.flush()
                if self._exporter is not None:
                    self._exporter.flush()
                if self.at_rest:  # nothing is half done here: every event was handled, every effect applied
                    self.at_rest.pop(0)()
                    continue
                self._watch()
                found = self._poll.poll(self._timeout())
            for fd, mask in found:
                self._ready(fd, mask)
            self._take_frames()
            self._run_timers()
        self._close()
        return 0

    def note(self, event: str, **fields: str | int | float | bool) -> None:
        session = self.kernel.state.session.session_id
        self._log.add(time.time(), session, event, fields)
        if self._console is not None:
            self._console.note(session, event, fields)

    def _take_up(self) -> None:
        """Notice what happened to the children while there was no one to hear it."""
        if self.mount_calls is not None:
            self.mount_calls.take_up()
        self._reap()
        for child in list(self.children.values()):
            link = self.kernel.link(*child.key)
            if link is None:
                child.end_by(time.monotonic())  # it was being stopped: go on with that
            else:
                child.backlog_said = link.backlog
                self._say_backlog(child)
                if not (child.input_open and child.output_open):
                    self._broken(child)

    def _look(self) -> None:
        """Look at the registry now and then; what changed in it is news for the kernel."""
        self.deadlines.append((time.monotonic() + LOOK_S, self._look))
        self.look_at_registry()

    def look_at_registry(self) -> None:
        if self.registry is not None:
            for event in self.registry.news():
                self.feed(event)

    def feed(self, event: Event) -> None:
        self._events.append(event)
        self._drain_events()

    def _drain_events(self) -> None:
        if self._busy:
            return  # an effect made this event; the loop that applies it comes back here
        self._busy = True
        try:
            while self._events:
                event = self._events.popleft()
                if self._tracing is not None:
                    self._tracing.saw(event)
                try:
                    effects = self.kernel.handle(event, time.monotonic())
                except Exception as error:
                    effects = self._survive(event, error)
                if self._tracing is not None:
                    effects = self._tracing.does(effects)
                self.perform(effects if self.mount_calls is None else self.mount_calls.filter(effects))
        finally:
            self._busy = False

    def _survive(self, event: Event, error: Exception) -> list[Effect]:
        """A frame that the kernel trips over is a bug of ours, and must not cost the session.

        Its sender is told, or ended where it is a child; what was decided before the fault still holds. What a file
        says must not cost the session either. Anything else is our own doing: then the state cannot be trusted and
        the host ends.
        """
        effects = list(self.kernel.out)
        match event:
            case ClientFrame(frame):
                identity = salvage_id(frame[:4096], frame[-4096:])
                if identity not in self.kernel.state.ids:
                    data = {
                        "class": "invariant",
                        "code": "unhandled_frame",
                        "outcome": "unknown",
                        "retry": "never",
                    }
                    effects.append(ToClient(encode_error(identity, INTERNAL_ERROR, UNHANDLED, data)))
            case ChildFrame(mount, generation) | ChildNoise(mount, generation):
                fault = Fault("invariant", "unhandled_frame", generation, type(error).__name__)
                effects.append(Stop(mount, generation, force=True))
                self._events.append(ChildLost(mount, generation, fault))
            case Remount() | FileFaults() | Approved():
                pass
            case _:
                raise error
        self.kernel.quarantine("invariant")
        self.note(
            "fault",
            code="unhandled_frame",
            detail=type(error).__name__,
            where=_places(error),
            **{"class": "invariant"},
        )
        return effects

    def _already_there(self) -> list[tuple[int, int]]:
        """What came while the last was handled, where all that was watched for still is.

        Who asks again as soon as he is answered goes before our bookkeeping, every other time.
        """
        if self.at_rest or self.client_out.size or self.client_reader.ready or not self.input_open:
            return []
        for child in self.children.values():
            if child.outbox.size or child.reader.ready:
                return []
        return self._poll.poll(0)

    def _watch(self) -> None:
        """Read whom we have room for, write to whom we have something."""
        now = time.monotonic()
        room = self.client_out.size < CLIENT_HIGH
        wanted = {self.signals.fd: READABLE}
        if self.input_open and room and not self.client_reader.ready:
            wanted[self.client_in] = READABLE
        if self.client_out.size:
            wanted[self.client_out.fd] = wanted.get(self.client_out.fd, 0) | WRITABLE
        for child in self.children.values():
            if child.output_open and room and not child.reader.ready and child.quiet_until <= now:
                wanted[child.stdout] = READABLE
            if child.input_open and child.outbox.size:
                wanted[child.outbox.fd] = WRITABLE
            if child.stderr >= 0:
                wanted[child.stderr] = READABLE
        for fd in [fd for fd in self._masks if fd not in wanted]:
            self._poll.unregister(fd)
            del self._masks[fd]
        for fd, mask in wanted.items():
            if self._masks.get(fd) != mask:
                self._poll.register(fd, mask)
                self._masks[fd] = mask

    def _timeout(self) -> float | None:
        now = time.monotonic()
        self._due = due = self.kernel.next_wake()
        if self._has_frames(now):
            return 0
        times = [] if due is None else [due]
        times += [at for at, _ in self.deadlines]
        for child in self.children.values():
            if child.stopping:
                times += [at for at, _ in child.stopping]
            if child.broken_at is not None and not child.stopping:
                times.append(child.broken_at + BROKEN_GRACE_S)
            if child.quiet_until > now:
                times.append(child.quiet_until)
        if not times:
            return None
        return max(0.0, (min(times) - now) * 1000.0 + 0.5)

    def _ready(self, fd: int, mask: int) -> None:
        if fd == self.signals.fd:
            self._on_signals()
            return
        if fd == self.client_in and mask & (READABLE | CLOSED):
            self._read_client()
        if fd == self.client_out.fd and mask & (WRITABLE | CLOSED):
            self._flush_client()
        if (child := self._by_output.get(fd)) is not None:
            self._read_child(child)
        elif (child := self._by_input.get(fd)) is not None:
            self._flush_child(child)
        elif (child := self._by_stderr.get(fd)) is not None:
            if not child.read_stderr():
                self._forget_stderr(child)
        elif (reader := self._readers.get(fd)) is not None:
            reader()
        elif self._control is not None and self._control.owns(fd):
            self._control.ready(fd, self._poll, self.kernel, time.monotonic())

    def _on_signals(self) -> None:
        for number in self.signals.take():
            if number == signals.CHILD_ENDED:
                self._reap()
            elif number == signals.RELOAD:
                self.feed(Reload())
            elif number == signals.UPGRADE:
                if self._upgrade is not None:
                    self._upgrade(self)
            else:
                self.feed(Shutdown())

    def _run_timers(self) -> None:
        now = time.monotonic()
        if self._due is not None and self._due <= now:
            self.feed(Tick())
        for at, action in list(self.deadlines):
            if at <= now:
                self.deadlines.remove((at, action))
                action()
        for child in list(self.children.values()):
            while child.stopping and child.stopping[0][0] <= now:
                child.signal(child.stopping.pop(0)[1])
            if child.stopping or child.broken_at is None:
                continue
            if child.broken_at + BROKEN_GRACE_S <= now:
                child.broken_at = None
                self._give_up(child, "transport", "pipe_closed", "the child closed its pipe and lives on")

    # --- as an event loop (`mount_calls.EventLoop`) --------------------------------------------------------

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self._readers[fd] = callback
        self._poll.register(fd, READABLE)

    def remove_reader(self, fd: int) -> None:
        del self._readers[fd]
        self._poll.unregister(fd)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Deadline:
        return Deadline(self.deadlines, time.monotonic() + delay, callback)

    # --- the client's side -----------------------------------------------------------------------------------

    def _read_client(self) -> None:
        try:
            data = os.read(self.client_in, self._gulp)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            # A large buffer has its price, which only a frame that does not fit a small one is worth.
            self._gulp = GULP_BYTES if len(data) == self._gulp else READ_BYTES
            self.client_reader.feed(data)
        else:
            self.client_reader.feed(b"\n")  # the end of the input ends its last line
            self.input_open = False
            self._take_client_frames()
            self.feed(ClientClosed())

    def _send_client(self, frame: bytes) -> None:
        try:
            self.client_out.put_line(frame)
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
            is_noisy = time.monotonic() - child.quiet_until < SIP_S
            data = os.read(child.stdout, SIP_BYTES if is_noisy else READ_BYTES)
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
            child.outbox.put_line(effect.frame)
        except OSError:
            self._broken(child)
            return
        limits = self.kernel.limits
        if child.outbox.size > limits.outbox_bytes + 2 * limits.frame_bytes:
            # No call is sent beyond the first bound; what still grows are answers and notices to a deaf child.
            self._give_up(child, "resource", "outbox_full", "the child does not read what it is sent")
            return
        self._say_backlog(child)

    def _give_up(self, child: Child, kind: FaultClass, code: str, detail: str) -> None:
        """Nothing can be said to this process or heard from it any more: end it and tell the kernel."""
        self._forget_input(child)
        child.signal(signals.KILL)
        self.feed(ChildLost(child.mount, child.generation, Fault(kind, code, child.generation, detail)))

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
        if child.output_open:  # else the number may be another child's by now
            self._unregister(child.stdout)
            self._by_output.pop(child.stdout, None)
            child.close_output()

    def _forget_input(self, child: Child) -> None:
        if child.input_open:
            self._unregister(child.outbox.fd)
            self._by_input.pop(child.outbox.fd, None)
            child.close_input()

    def _forget_stderr(self, child: Child) -> None:
        if child.stderr >= 0:
            self._unregister(child.stderr)
            self._by_stderr.pop(child.stderr, None)
            child.close_stderr()

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
        for child in [child for child in self.children.values() if child.reader.ready]:
            self._take_child_frames(child)

    def _take_client_frames(self) -> None:
        ready = self.client_reader.ready
        for _ in range(min(len(ready), FRAMES_PER_ROUND) if self.input_open else len(ready)):
            line = ready.popleft()
            if isinstance(line, Oversize):
                self.feed(ClientOversize(line.size, line.head, line.tail))
            else:
                self.feed(ClientFrame(line))

    def _take_child_frames(self, child: Child, *, last: bool = False) -> None:
        """What fits into its slice of this round; at its end, everything."""
        ready = child.reader.ready
        noise = 0
        now = time.monotonic()
        until = now + SLICE_S
        while ready and (last or (child.quiet_until <= now < until)):
            line = ready.popleft()
            if isinstance(line, Oversize):
                self.feed(ChildNoise(child.mount, child.generation, 1, True, line.head, line.tail))
            elif line.lstrip()[:1] == b"{":
                self.feed(ChildFrame(child.mount, child.generation, line))
            else:
                noise += 1
                if noise % 64:
                    continue  # so cheap that looking at the clock would cost as much
            now = time.monotonic()
        if noise:
            self.feed(ChildNoise(child.mount, child.generation, noise))

    # --- processes ------------------------------------------------------------------------------------------------------

    def _spawn(self, effect: Spawn) -> None:
        spec = self.kernel.specs[effect.mount]
        launch = self._launch(spec)
        if isinstance(launch, Fault):
            fault = structs.replace(launch, generation=effect.generation)
            self.feed(ChildLost(effect.mount, effect.generation, fault))
            return
        try:
            child = processes.start(
                effect.mount,
                effect.generation,
                launch.argv,
                launch.env,
                launch.cwd,
                self.guardian,
                self.kernel.limits.frame_bytes,
                gently=effect.gently,
                keep_stderr=spec.managed,
            )
        except OSError as error:
            fault = spawn_fault(effect.generation, launch.argv[0], launch.cwd, error)
            self.feed(ChildLost(effect.mount, effect.generation, fault))
            return
        self.adopt(child)
        self.feed(ChildStarted(child.mount, child.generation, child.pid))

    def _launch(self, spec: MountSpec) -> Launch | Fault:
        """With what a server is started. One of the registry is resolved only now."""
        if spec.managed and self.registry is not None:
            return self.registry.launch(spec, self._environ)
        return Launch(spec.argv, environment(spec, self._environ), spec.cwd)

    def _last_words(self, child: Child) -> str:
        """The end of its standard error, without the secrets it was started with."""
        if child.stderr >= 0:
            child.read_stderr()  # once is all that a pipe holds; a grandchild may keep it open
        spec = self.kernel.specs.get(child.mount)
        if not child.tail or spec is None or self.registry is None:
            return ""
        return self.registry.scrubbed(spec, child.tail, self._environ)

    def adopt(self, child: Child) -> None:
        self.children[child.key] = child
        if child.stderr >= 0:
            self._by_stderr[child.stderr] = child
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
            child.signal(signals.KILL)
        else:
            child.end_by(time.monotonic())

    def _reap(self) -> None:
        for child in list(self.children.values()):
            # What the end of one leads to may end another, or come back here.
            if child.key in self.children and (status := exit_status(child.pid)) is not None:
                self._ended(child, status)
        for pid, action in list(self.watched.items()):
            if pid in self.watched and (status := exit_status(pid)) is not None:
                del self.watched[pid]
                action(status)
        if exit_status(self.guardian.pid) is not None:
            self._renew_guardian()

    def _renew_guardian(self) -> None:
        try:
            fresh = Guardian.start(self.guardian.mark)
        except OSError:
            return  # too many processes just now; the next one that ends brings us back here
        os.close(self.guardian.fd)
        self.guardian = fresh
        for child in self.children.values():
            self.guardian.remember(child.pid)

    def _ended(self, child: Child, status: int) -> None:
        """The process is gone: end its group, take what it still said, then tell the kernel.

        It is forgotten first: what the kernel makes of its last words is no longer sent to it, and a successor
        may get the numbers of its descriptors.
        """
        del self.children[child.key]
        child.signal(signals.KILL)
        self.guardian.forget(child.pid)
        left = pipe_size(child.stdout) if child.output_open else 0
        while left > 0:  # no more than the pipe could hold: a grandchild may go on writing
            try:
                data = os.read(child.stdout, left)
            except OSError:
                break
            if not data:
                break
            left -= len(data)
            child.reader.feed(data)
        fault = exit_fault(child, status)
        said = self._last_words(child)
        self._forget_output(child)
        self._forget_input(child)
        self._forget_stderr(child)
        child.close()
        self._take_child_frames(child, last=True)
        code = os.waitstatus_to_exitcode(status)
        spec = self.kernel.specs.get(child.mount)
        if spec is not None and spec.managed and self.registry is not None:
            fault = self.registry.explained(spec, fault, code)
        self.feed(ChildLost(child.mount, child.generation, fault, code, said))

    # --- effects -----------------------------------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToClient(frame):
                    self._send_client(frame)
                case ToChild():
                    self._send_child(effect)
                case Note(event, fields):
                    self.note(event, **fields)
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
                case SaveTools(mount, known, held):
                    if self.registry is not None:
                        self.registry.save_tools(mount, known, held)
                case Exit():
                    self._done = True

    # --- the end -----------------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """The client gets its last bytes, the children their end."""
        until = time.monotonic() + CLOSE_S
        while self.client_out.size and time.monotonic() < until:
            wait(self.client_out.fd, WRITABLE, 0.05)
            try:
                self.client_out.flush()
            except OSError:
                break
        if self._control is not None:
            self._control.close()
        end_all(self.children, self.guardian, self.signals)
        if self._tracing is not None:
            self._tracing.end()
        if self._exporter is not None:
            self._exporter.close()
        self._log.flush()
        self._log.close()
        self.guardian.close()
        self.signals.close()
        for fd in (self.client_in, self.client_out.fd):
            try:
                set_blocking(fd, True)
            except OSError:
                pass
