"""`perdure run` and `wrap`: one client on a pair of pipes, and servers that are its session's own.

The client gets a share of each round of the event loop, as every child does. While it does not read its answers,
nothing more is taken from it or from any server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from perdure.host.console import Console
from perdure.host.control import Control
from perdure.host.launch import environment
from perdure.host.registry_mounts import RegistryMounts
from perdure.host.settings import Settings
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
    Note,
    Reload,
    SaveCatalog,
    SaveTask,
    SaveTools,
    Shutdown,
    Spawn,
    Stop,
    Throttle,
    ToChild,
)
from perdure.platform import signals
from perdure.platform.descriptors import set_blocking, widen
from perdure.platform.guardian import Guardian
from perdure.platform.polling import WRITABLE, wait
from perdure.platform.signals import SignalPipe
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import MountSpec
from perdure.storage.event_log import EventLog
from perdure.supervise.child import Child, Ended, Launch
from perdure.supervise.event_loop import PollLoop
from perdure.supervise.kernel_runner import KernelRunner
from perdure.supervise.line_io import LineReader, Outbox, Oversize
from perdure.supervise.supervisor import KILL_S, Supervisor

if TYPE_CHECKING:
    from perdure.host.mount_calls import MountCalls
    from perdure.telemetry.exporter import Exporter
    from perdure.telemetry.tracing import Tracing

READ_BYTES = 1 << 16
LARGE_READ_BYTES = 1 << 18
LOOK_S = 1.0
FRAMES_PER_ROUND = 64
CLIENT_HIGH = 16 * 1024 * 1024
CLOSE_S = 1.0


class StdioHost:
    """A shell (`supervise.kernel_runner.Shell`) around the kernel of one client."""

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
        save_task: Callable[[str, bytes], Note | None],
        registry: RegistryMounts | None = None,
        upgrade: Callable[[StdioHost], None] | None = None,
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
        self.input_open = True
        self.loop = PollLoop()
        self.runner = KernelRunner(kernel, self.loop, self)
        self.supervisor = Supervisor(
            self.loop,
            guardian,
            frame_bytes=kernel.limits.frame_bytes,
            outbox_bytes=kernel.limits.outbox_bytes,
            report=self.runner.report,
        )
        self.servers: dict[tuple[str, int], Child] = {}
        self.signals = SignalPipe()
        self.registry = registry
        self.mount_calls: MountCalls | None = None
        self.when_idle: list[Callable[[], None]] = []
        """Run one at a time, when every event was handled and every effect carried out."""
        self._environ = environ
        self._log = log
        self._save_catalog = save_catalog
        self._save_task = save_task
        self._upgrade = upgrade
        self._control = control
        self._console = console
        self._exporter = exporter
        self._tracing = tracing
        self._is_client_read = False
        self._is_client_written = False
        self._are_frames_due = False
        self._is_done = False
        self._failure: Exception | None = None
        self._read_bytes = READ_BYTES
        self.runner.tracing = tracing
        self.loop.on_idle = self._on_idle
        for fd in (client_in, client_out):
            set_blocking(fd, False)
            widen(fd)

    # --- the loop --------------------------------------------------------------------------------------------

    def run(self, *, resumed: bool = False) -> int:
        """Serve until the client is gone."""
        self.loop.add_reader(self.signals.fd, self._on_signals)
        if self._control is not None:
            self._control.serve(self.loop, self.kernel)
        if self.registry is not None:
            self.loop.call_later(LOOK_S, self._look)
        if self.mount_calls is not None:
            self.runner.hold_back = self.mount_calls.filter
        self._watch_client()
        if not resumed:
            self.runner.start(self.kernel.start(self.loop.time()))
        else:
            self._take_up()
        self.loop.run(lambda: self._is_done)
        self._close()
        if self._failure is not None:
            raise self._failure
        return 0

    def _take_up(self) -> None:
        """Notice what happened to the children while the host was replaced."""
        if self.mount_calls is not None:
            self.mount_calls.take_up()
        self._take_client_frames()
        for key, child in list(self.servers.items()):
            link = self.kernel.link(*key)
            if link is None:
                self.supervisor.stop(child)  # it was being stopped: go on with that
            else:
                child.backlog_said = link.backlog
                self.supervisor.resync(child)
        self.supervisor.reap()
        self.runner.start([])

    def _on_idle(self) -> None:
        self._log.flush()
        if self._exporter is not None:
            self._exporter.flush()
        if self.when_idle and not self.supervisor.draining:
            self.when_idle.pop(0)()

    def _look(self) -> None:
        """Look at the registry now and then; what changed in it is news for the kernel."""
        self.loop.call_later(LOOK_S, self._look)
        if self.registry is not None:
            for event in self.registry.news():
                self.runner.feed(event)

    def _on_signals(self) -> None:
        for number in self.signals.take():
            if number == signals.CHILD_ENDED:
                self.supervisor.reap()
            elif number == signals.RELOAD:
                self.runner.feed(Reload())
            elif number == signals.UPGRADE:
                if self._upgrade is not None:
                    self._upgrade(self)
            else:
                self.runner.feed(Shutdown())

    # --- the client ------------------------------------------------------------------------------------------

    def _watch_client(self) -> None:
        """Read where there is room for what it leads to, write where something waits."""
        has_room = self.client_out.size < CLIENT_HIGH
        is_read = self.input_open and has_room and not self.client_reader.ready
        if is_read != self._is_client_read:
            self._is_client_read = is_read
            if is_read:
                self.loop.add_reader(self.client_in, self._read_client)
            else:
                self.loop.remove_reader(self.client_in)
        is_written = bool(self.client_out.size)
        if is_written != self._is_client_written:
            self._is_client_written = is_written
            if is_written:
                self.loop.add_writer(self.client_out.fd, self._flush_client)
            else:
                self.loop.remove_writer(self.client_out.fd)
        if has_room:
            self.supervisor.release()
            if self.client_reader.ready and not self._are_frames_due:
                self._are_frames_due = True
                self.loop.call_soon(self._take_client_frames)
        else:
            self.supervisor.hold()

    def _read_client(self) -> None:
        try:
            data = os.read(self.client_in, self._read_bytes)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            # A large buffer has its price, which only a frame that does not fit a small one is worth.
            self._read_bytes = LARGE_READ_BYTES if len(data) == self._read_bytes else READ_BYTES
            self.client_reader.feed(data)
            self._take_client_frames()
        else:
            self.client_reader.feed(b"\n")  # the end of the input ends its last line
            self.input_open = False
            self._take_client_frames()
            self.runner.feed(ClientClosed())

    def _take_client_frames(self) -> None:
        self._are_frames_due = False
        ready = self.client_reader.ready
        for _ in range(min(len(ready), FRAMES_PER_ROUND) if self.input_open else len(ready)):
            line = ready.popleft()
            if isinstance(line, Oversize):
                self.runner.feed(ClientOversize(line.size, line.head, line.tail))
            else:
                self.runner.feed(ClientFrame(line))
        self._watch_client()

    def send_to_client(self, frame: bytes) -> None:
        try:
            self.client_out.put_line(frame)
        except OSError:
            self._is_done = True  # nobody reads the answers any more
            return
        if self.client_out.size:
            self._watch_client()

    def _flush_client(self) -> None:
        try:
            self.client_out.flush()
        except OSError:
            self._is_done = True
        self._watch_client()

    # --- servers ---------------------------------------------------------------------------------------------

    def start_server(self, effect: Spawn) -> None:
        spec = self.kernel.specs[effect.mount]
        launch = self._launch(spec)
        if not isinstance(launch, Fault):
            listener = _Server(self, effect.mount, effect.generation)
            started = self.supervisor.start(
                effect.mount,
                effect.generation,
                launch,
                listener,
                gently=effect.gently,
                keep_stderr=spec.managed,
            )
            if isinstance(started, Child):
                self.servers[effect.mount, effect.generation] = started
                self.runner.feed(ChildStarted(effect.mount, effect.generation, started.pid))
                return
            launch = started
        fault = structs.replace(launch, generation=effect.generation)
        self.runner.feed(ChildLost(effect.mount, effect.generation, fault))

    def _launch(self, spec: MountSpec) -> Launch | Fault:
        """With what a server is started. One of the registry is resolved only now."""
        if spec.managed and self.registry is not None:
            return self.registry.launch(spec, self._environ)
        return Launch(spec.argv, environment(spec, self._environ), spec.cwd)

    def adopt(self, child: Child) -> None:
        """One that the predecessor of this host started."""
        self.servers[child.mount, child.generation] = child
        self.supervisor.adopt(child, _Server(self, child.mount, child.generation))

    def send_to_server(self, effect: ToChild) -> None:
        if (child := self.servers.get((effect.mount, effect.generation))) is not None:
            self.supervisor.write(child, effect.frame)

    def stop_server(self, effect: Stop) -> None:
        if (child := self.servers.get((effect.mount, effect.generation))) is not None:
            self.supervisor.stop(child, force=effect.force)

    def throttle_server(self, effect: Throttle) -> None:
        if (child := self.servers.get((effect.mount, effect.generation))) is not None:
            self.supervisor.throttle(child, effect.until)

    def forget_server(self, mount: str, generation: int, ended: Ended) -> None:
        child = self.servers.pop((mount, generation))
        spec, fault, stderr = self.kernel.specs.get(mount), ended.fault, ""
        if spec is not None and self.registry is not None:
            if child.tail:
                stderr = self.registry.scrub(spec, child.tail, self._environ)
            if spec.managed:
                fault = self.registry.explained(spec, fault, ended.code)
        self.runner.feed(ChildLost(mount, generation, fault, ended.code, stderr))

    # --- other effects ---------------------------------------------------------------------------------------

    def before_effects(self, effects: list[Effect]) -> list[Effect]:
        return effects

    def after_event(self) -> None:
        pass

    def note(self, note: Note) -> None:
        session = self.kernel.state.session.session_id
        self._log.add(time.time(), session, note.event, note.fields)
        if self._console is not None:
            self._console.note(session, note.event, note.fields)

    def save_catalog(self, effect: SaveCatalog) -> None:
        self._save_catalog(self.kernel.specs[effect.mount], effect.catalog)

    def save_tools(self, effect: SaveTools) -> None:
        if self.registry is not None:
            self.registry.save_tools(effect.mount, effect.known, effect.held)

    def save_task(self, effect: SaveTask) -> None:
        if (note := self._save_task(effect.handle, effect.data)) is not None:
            self.note(note)

    def exit(self) -> None:
        self._is_done = True

    def abandon(self, error: Exception) -> None:
        self._failure = error
        self._is_done = True

    # --- the end ---------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """The client gets its last bytes, the children their end."""
        self.runner.stop()
        until = time.monotonic() + CLOSE_S
        while self.client_out.size and time.monotonic() < until:
            wait(self.client_out.fd, WRITABLE, 0.05)
            try:
                self.client_out.flush()
            except OSError:
                break
        if self._control is not None:
            self._control.close()
        self.loop.on_idle = self.supervisor.reap
        self.loop.remove_reader(self.client_in)
        self.loop.remove_writer(self.client_out.fd)
        self.supervisor.end_children()
        until = time.monotonic() + KILL_S + CLOSE_S
        self.loop.call_later(KILL_S + CLOSE_S, self.supervisor.reap)
        self.loop.run(lambda: not self.supervisor.children or time.monotonic() >= until)
        if self._tracing is not None:
            self._tracing.end()
        if self._exporter is not None:
            self._exporter.close()
        self._log.flush()
        self._log.close()
        self.supervisor.guardian.close()
        self.signals.close()
        for fd in (self.client_in, self.client_out.fd):
            try:
                set_blocking(fd, True)
            except OSError:
                pass


class _Server:
    """A child that one kernel has for itself: what comes from it goes to that kernel as it is."""

    def __init__(self, host: StdioHost, mount: str, generation: int) -> None:
        self._host = host
        self._feed = host.runner.feed
        self._mount = mount
        self._generation = generation

    def on_line(self, line: bytes) -> None:
        self._feed(ChildFrame(self._mount, self._generation, line))

    def on_noise(self, lines: int, oversize: Oversize | None = None) -> None:
        head, tail = (oversize.head, oversize.tail) if oversize is not None else (b"", b"")
        self._feed(ChildNoise(self._mount, self._generation, lines, oversize is not None, head, tail))

    def on_backlog(self, size: int) -> None:
        self._feed(ChildBacklog(self._mount, self._generation, size))

    def on_exit(self, ended: Ended) -> None:
        self._host.forget_server(self._mount, self._generation, ended)
