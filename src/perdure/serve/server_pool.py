"""Which process serves which session: started when the first one needs it, shared by all, ended when none is left.

    session's kernel ──Spawn───▶ the process that runs, or a new one
                     ──ToChild─▶ its pipe
                     ──Stop────▶ only this session lets go of it, unless it found it broken

A session never notices that it shares: it has its own generations, restarts and catalog, as over stdio.

All sessions share one event loop, so each process gets a share of it: one read and one slice of time for its lines in
each round, and a pause after a slice in which most of them came unasked. A process that a kernel throttles is not read
for a while, then in small reads. What a line leads to may raise; that costs the line, never those behind it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import structs

from perdure.host.recent_events import RecentEvents
from perdure.kernel.events import ChildBacklog, ChildLost, ChildStarted
from perdure.platform import signals
from perdure.platform.children import exit_status
from perdure.platform.descriptors import pipe_size
from perdure.platform.guardian import Guardian
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import MountSpec
from perdure.serve.registries import Registries
from perdure.serve.shared_server import End, Party, SharedServer
from perdure.supervise import child as processes
from perdure.supervise.child import Child
from perdure.supervise.exits import exit_fault, spawn_fault
from perdure.supervise.line_io import Oversize

IDLE_S: Final = 60.0
TEND_S: Final = 5.0
READ_BYTES: Final = 1 << 16
SMALL_READ_BYTES: Final = 1 << 12
CHUNK_BYTES: Final = 1 << 14
NOISY_S: Final = 1.0  # for so long after a throttle reads stay small
SLICE_S: Final = 0.001
PAUSE_S: Final = 0.005
NOISE_PER_LOOK: Final = 64  # lines of noise between two looks at the clock
START_EVERY_S: Final = 0.1
BROKEN_GRACE_S: Final = 0.5

Key = tuple[str, ...]

log = logging.getLogger("perdure.serve")


class ServerPool:
    """`guardian` ends what is left if this process is killed; `start` runs a command (see `child.start`)."""

    def __init__(
        self,
        guardian: Guardian,
        environ: Mapping[str, str],
        frame_bytes: int,
        outbox_bytes: int,
        registries: Registries | None = None,
        *,
        start: Callable[..., Child] = processes.start,
    ) -> None:
        self.guardian = guardian
        self._environ = environ
        self._frame_bytes = frame_bytes
        self._outbox_bytes = outbox_bytes
        self._registries = registries or Registries()
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._running: list[SharedServer] = []
        self._current: dict[Key, SharedServer] = {}
        self._private: set[Key] = set()
        self._started_at: dict[Key, float] = {}
        self._words: dict[str, str] = {}
        self._delayed: set[tuple[Party, str, int]] = set()
        self.faults = 0
        """Processes that ended while a session used them: one, however many sessions did."""
        self.events = RecentEvents()
        self._failed: set[str] = set()
        """Servers whose last process failed: the next start is a restart."""
        self._is_closing = False
        signals.handle_in_loop(self._loop, signals.CHILD_ENDED, self._reap)
        self._tending = self._loop.call_later(TEND_S, self._tend)

    @property
    def running(self) -> list[SharedServer]:
        return list(self._running)

    # --- what sessions want ----------------------------------------------------------------------------------

    def attach(self, party: Party, spec: MountSpec, generation: int, *, gently: bool) -> None:
        if self._is_closing:
            return
        key = _key(spec)
        found = None if key in self._private else self._current.get(key)
        if found is None or not found.child.input_open:
            wait = self._started_at.get(key, 0.0) + START_EVERY_S - time.monotonic()
            if wait > 0 and key not in self._private:
                # Many sessions lose a process at the same moment: one of them starts its successor.
                self._delayed.add((party, spec.name, generation))
                self._loop.call_later(wait, self._attach_delayed, party, spec, generation, gently)
                return
            found = self._started(party, spec, generation, gently)
        if found is not None:
            found.join(party, generation)
            party.feed(ChildStarted(spec.name, generation, found.child.pid))

    def _attach_delayed(self, party: Party, spec: MountSpec, generation: int, gently: bool) -> None:
        """Unless the session has ended, or given this generation up, in the meantime."""
        if (party, spec.name, generation) in self._delayed:
            self._delayed.discard((party, spec.name, generation))
            self.attach(party, spec, generation, gently=gently)

    def detach(self, party: Party, mount: str, generation: int, *, force: bool) -> None:
        """The session has no use for this generation any more; with `force` it found that it does not work."""
        self._delayed.discard((party, mount, generation))
        process = self._of(party, mount, generation)
        if process is None:
            return
        process.part(party)
        if force:
            process.is_condemned = True
            self._retire(process)
            process.child.signal(signals.KILL)
        else:
            self._left(process)

    def leave(self, party: Party) -> None:
        self._delayed = {one for one in self._delayed if one[0] is not party}
        for process in self._running:
            if process.part(party):
                self._left(process)

    def send(self, party: Party, mount: str, generation: int, frame: bytes) -> None:
        process = self._of(party, mount, generation)
        if process is not None and process.child.input_open:
            process.send(party, generation, frame)

    def expect_end(self, mount: str) -> None:
        """Its processes are about to end because the operator wants it: that is no fault."""
        for process in self._running:
            process.is_expected_to_end |= process.spec.name == mount

    def last_words(self, mount: str) -> str:
        """The end of what a server wrote to standard error, without the secrets it was started with."""
        for process in reversed(self._running):
            if process.spec.name == mount and process.child.tail:
                return self._registries.shown_words(process.spec, process.child)
        return self._words.get(mount, "")

    def renew(self) -> None:
        """Whoever needs a server from now on gets one that is started from now on."""
        self._current.clear()
        self._started_at.clear()

    def renumber(self, party: Party, old: int) -> None:
        for process in self._running:
            process.renumber(old, party.number)

    def throttle(self, party: Party, mount: str, generation: int, until: float) -> None:
        """It talks more than one of its sessions can bear: nobody reads it until then."""
        if (process := self._of(party, mount, generation)) is not None:
            process.child.quiet_until = max(process.child.quiet_until, until)

    # --- processes -------------------------------------------------------------------------------------------

    def _of(self, party: Party, mount: str, generation: int) -> SharedServer | None:
        for process in self._running:
            if process.spec.name == mount and process.users.get(party.number) == (party, generation):
                return process
        return None

    def _started(self, party: Party, spec: MountSpec, generation: int, gently: bool) -> SharedServer | None:
        launch = self._registries.launch(spec, self._environ)
        if isinstance(launch, Fault):
            fault = structs.replace(launch, generation=generation)
            self._loop.call_soon(party.feed, ChildLost(spec.name, generation, fault))
            return None
        try:
            child = self._start(
                spec.name,
                generation,
                launch.argv,
                launch.env,
                launch.cwd,
                self.guardian,
                self._frame_bytes,
                gently=gently,
                keep_stderr=True,
            )
            child.is_heard = not spec.managed
        except OSError as error:
            fault = spawn_fault(generation, launch.argv[0], launch.cwd, error)
            self.faults += 1
            self._failed.add(spec.name)
            self.events.add_fault(spec.name, fault)
            self._loop.call_soon(party.feed, ChildLost(spec.name, generation, fault))
            return None
        if spec.name in self._failed:
            self._failed.discard(spec.name)
            self.events.add_restart(spec.name)
        process = SharedServer(spec, child, lambda frame: self._write(process, frame))
        self._running.append(process)
        self._current[_key(spec)] = process
        self._started_at[_key(spec)] = time.monotonic()
        self._loop.add_reader(child.stdout, self._readable, process)
        if child.stderr >= 0:
            self._loop.add_reader(child.stderr, self._read_stderr, process)
        return process

    def _left(self, process: SharedServer) -> None:
        if process.users:
            return
        process.idle_since = time.monotonic()
        if _key(process.spec) in self._private:
            self._end(process)

    def _end(self, process: SharedServer) -> None:
        """Its input ends; one that stays is asked to go, then made to."""
        self._forget_input(process)
        self._retire(process)
        self._loop.call_later(processes.TERMINATE_S, self._signal, process, signals.TERMINATE)
        self._loop.call_later(processes.KILL_S, self._signal, process, signals.KILL)

    def _retire(self, process: SharedServer) -> None:
        """Sessions that come from now on get another."""
        if self._current.get(_key(process.spec)) is process:
            del self._current[_key(process.spec)]

    def _signal(self, process: SharedServer, number: int) -> None:
        if process in self._running:
            process.child.signal(number)

    def _tend(self) -> None:
        now = time.monotonic()
        for process in list(self._running):
            if process.is_root_sensitive:
                self._private.add(_key(process.spec))  # its next users get one each
            if process.idle_since is not None and now - process.idle_since > IDLE_S:
                self._end(process)
        self._tending = self._loop.call_later(TEND_S, self._tend)

    # --- pipes -----------------------------------------------------------------------------------------------

    def _write(self, process: SharedServer, frame: bytes) -> None:
        outbox = process.child.outbox
        if not process.child.input_open:
            return
        try:
            outbox.put_line(frame)
        except OSError:
            self._broken(process)
            return
        if outbox.size:
            self._loop.add_writer(outbox.fd, self._writable, process)
        if outbox.size > self._outbox_bytes + 2 * self._frame_bytes:
            process.child.signal(signals.KILL)
        self._say_backlog(process)

    def _writable(self, process: SharedServer) -> None:
        outbox = process.child.outbox
        try:
            outbox.flush()
        except OSError:
            self._broken(process)
            return
        if not outbox.size:
            self._loop.remove_writer(outbox.fd)
        self._say_backlog(process)

    def _say_backlog(self, process: SharedServer) -> None:
        size, said = process.child.outbox.size, process.child.backlog_said
        if (size > self._outbox_bytes) != (said > self._outbox_bytes):
            process.child.backlog_said = size
            for party, generation in list(process.users.values()):
                party.feed(ChildBacklog(process.spec.name, generation, size))

    def _readable(self, process: SharedServer) -> None:
        child = process.child
        is_noisy = time.monotonic() - child.quiet_until < NOISY_S
        try:
            data = os.read(child.stdout, SMALL_READ_BYTES if is_noisy else READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._forget_output(process)
            self._broken(process)
            return
        child.reader.feed(data)
        self._take_slice(process)

    def _take_slice(self, process: SharedServer) -> None:
        """As many lines as fit into its share of this round. It is read again when all of them are taken."""
        child = process.child
        was_waiting, process.is_waiting = process.is_waiting, False
        is_asked_for = self._take_lines(process, time.monotonic() + SLICE_S)
        if process.end is not None:
            if process.last_chunks and not child.reader.ready:
                child.reader.feed(process.last_chunks.popleft())
            if process.last_chunks or child.reader.ready:
                process.is_waiting = True
                self._loop.call_soon(self._take_slice, process)
            else:
                self._tell_end(process, process.end)
            return
        wait = child.quiet_until - time.monotonic()
        if not is_asked_for:
            wait = max(wait, PAUSE_S)
        if child.reader.ready or wait > 0:
            if child.output_open and not was_waiting:
                self._loop.remove_reader(child.stdout)
            process.is_waiting = True
            self._loop.call_later(max(0.0, wait), self._take_slice, process)
        elif child.output_open and was_waiting:
            self._loop.add_reader(child.stdout, self._readable, process)

    def _take_lines(self, process: SharedServer, until: float) -> bool:
        """False where the time was not enough, and most of it went to what nobody had asked for."""
        child, ready = process.child, process.child.reader.ready
        noise = answers = others = 0
        now = time.monotonic()
        while ready and now < until and (child.quiet_until <= now or process.end is not None):
            line = ready.popleft()
            try:
                if isinstance(line, Oversize):
                    process.take_noise(1, oversize=True, head=line.head, tail=line.tail)
                elif line.lstrip()[:1] == b"{":
                    is_answer = process.take(line)
                    answers, others = answers + is_answer, others + (not is_answer)
                else:
                    noise += 1
                    if noise % NOISE_PER_LOOK:
                        continue  # so cheap that a look at the clock would cost as much
            except Exception:
                log.exception("a line of %s could not be handled", process.spec.name)
            now = time.monotonic()
        if noise:
            process.take_noise(noise)
        return not ready or answers >= others + noise

    def _broken(self, process: SharedServer) -> None:
        """A pipe ended. Most often the process did too; one that lives on can no longer be spoken with."""
        self._forget_input(process)
        self._loop.call_later(BROKEN_GRACE_S, self._signal, process, signals.KILL)

    def _forget_input(self, process: SharedServer) -> None:
        if process.child.input_open:
            self._loop.remove_writer(process.child.outbox.fd)
            process.child.close_input()

    def _forget_output(self, process: SharedServer) -> None:
        if process.child.output_open:
            self._loop.remove_reader(process.child.stdout)
            process.child.close_output()

    def _read_stderr(self, process: SharedServer) -> None:
        if not process.child.read_stderr():
            self._forget_stderr(process)

    def _forget_stderr(self, process: SharedServer) -> None:
        if process.child.stderr >= 0:
            self._loop.remove_reader(process.child.stderr)
            process.child.close_stderr()

    def _reap(self) -> None:
        for process in list(self._running):
            if process in self._running and (status := exit_status(process.child.pid)) is not None:
                self._ended(process, status)
        if not self._is_closing and exit_status(self.guardian.pid) is not None:
            self._renew_guardian()

    def _renew_guardian(self) -> None:
        try:
            fresh = Guardian.start(self.guardian.mark)
        except OSError:
            return  # too many processes just now; the next one that ends brings us back here
        os.close(self.guardian.fd)
        self.guardian = fresh
        for process in self._running:
            fresh.remember(process.child.pid)

    def _ended(self, process: SharedServer, status: int) -> None:
        """Take what it still said, in slices, then tell everyone who used it."""
        child = process.child
        self._running.remove(process)
        self._retire(process)
        child.signal(signals.KILL)
        self.guardian.forget(child.pid)
        if child.output_open:
            self._drain(process)
        fault = exit_fault(child, status)
        code = os.waitstatus_to_exitcode(status)
        said = self._registries.last_words(process.spec, child)
        fault = self._registries.explained(process.spec, fault, code)
        self._words[process.spec.name] = self._registries.shown_words(process.spec, child)
        self._forget_output(process)
        self._forget_input(process)
        self._forget_stderr(process)
        process.end = End(fault, code, said)
        if not process.is_waiting:
            self._take_slice(process)

    def _tell_end(self, process: SharedServer, end: End) -> None:
        self._count_fault(process, end)
        for party, generation in list(process.users.values()):
            own = structs.replace(end.fault, generation=generation)
            party.feed(ChildLost(process.spec.name, generation, own, end.code, end.said))

    def _count_fault(self, process: SharedServer, end: End) -> None:
        """One, however many sessions used it; none where nobody did, or where the operator ended it."""
        if process.is_expected_to_end or not (process.users or process.is_condemned):
            return
        self.faults += 1
        self._failed.add(process.spec.name)
        if not process.is_condemned:  # else the session that found it broken noted why
            self.events.add_fault(process.spec.name, end.fault)

    def _drain(self, process: SharedServer) -> None:
        """What is in its pipe, and no more: a grandchild may go on writing. It is split into lines in later rounds."""
        left = pipe_size(process.child.stdout)
        while left > 0:
            try:
                data = os.read(process.child.stdout, CHUNK_BYTES)
            except OSError:
                break
            if not data:
                break
            left -= len(data)
            process.last_chunks.append(data)

    # --- the end ---------------------------------------------------------------------------------------------

    async def close(self) -> None:
        self._is_closing = True
        self._tending.cancel()
        for process in list(self._running):
            self._end(process)
        until = time.monotonic() + processes.KILL_S + 1
        while self._running and time.monotonic() < until:
            await asyncio.sleep(0.02)
            self._reap()
        signals.stop_handling_in_loop(self._loop, signals.CHILD_ENDED)
        self.guardian.close()


def _key(spec: MountSpec) -> Key:
    """The same command in the same place with the same environment is the same server, in each era."""
    env = (f"{name}={value}" for name, value in sorted(spec.env.items()))
    era = "2026" if spec.modern_first else ""
    return (spec.name, *spec.argv, "", spec.cwd, spec.mark, era, *env)
