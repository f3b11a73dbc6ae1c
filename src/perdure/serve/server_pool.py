"""Which server serves which session: started when the first one needs it, shared by all, ended when none is left.

    session's kernel ──Spawn───▶ the server that runs, or a new one
                     ──ToChild─▶ its pipe
                     ──Stop────▶ only this session lets go of it, unless it found it broken

A session never notices that it shares: it has its own generations, restarts and catalog, as over stdio.

The supervisor runs the processes (`supervise/supervisor.py`), as it does for the stdio host.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import structs

from perdure.host.recent_events import RecentEvents
from perdure.kernel.events import ChildLost, ChildStarted
from perdure.platform import signals
from perdure.platform.guardian import Guardian
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import MountSpec
from perdure.serve.registries import Registries
from perdure.serve.shared_server import SessionPort, SharedServer
from perdure.supervise.child import Child, Ended, start_child
from perdure.supervise.event_loop import EventLoop
from perdure.supervise.supervisor import KILL_S, Supervisor

IDLE_S: Final = 60.0
TEND_S: Final = 5.0
START_EVERY_S: Final = 0.1

Key = tuple[str, ...]

log = logging.getLogger("perdure.serve")


class ServerPool:
    """`guardian` ends what is left if this process is killed; `start` runs a command (see `child.start_child`)."""

    def __init__(
        self,
        guardian: Guardian,
        environ: Mapping[str, str],
        frame_bytes: int,
        outbox_bytes: int,
        registries: Registries | None = None,
        *,
        loop: EventLoop,
        start: Callable[..., Child] = start_child,
    ) -> None:
        self.supervisor = Supervisor(
            loop,
            guardian,
            frame_bytes=frame_bytes,
            outbox_bytes=outbox_bytes,
            report=_report,
            start=start,
            start_guardian=type(guardian).start,
        )
        self._environ = environ
        self._registries = registries or Registries()
        self._loop = loop
        self._running: list[SharedServer] = []
        self._current: dict[Key, SharedServer] = {}
        self._private: set[Key] = set()
        self._started_at: dict[Key, float] = {}
        self._words: dict[str, str] = {}
        self._delayed: set[tuple[SessionPort, str, int]] = set()
        self.faults = 0
        """Processes that ended while a session used them: one, however many sessions did."""
        self.events = RecentEvents()
        self._failed: set[str] = set()
        """Servers whose last process failed: the next start is a restart."""
        self._is_closing = False
        self._tending = loop.call_later(TEND_S, self._tend)

    @property
    def running(self) -> list[SharedServer]:
        return list(self._running)

    # --- what sessions want ----------------------------------------------------------------------------------

    def attach(self, session: SessionPort, spec: MountSpec, generation: int, *, gently: bool) -> None:
        if self._is_closing:
            return
        key = _key(spec)
        found = None if key in self._private else self._current.get(key)
        if found is None or not found.child.input_open:
            wait = self._started_at.get(key, -START_EVERY_S) + START_EVERY_S - self._loop.time()
            if wait > 0 and key not in self._private:
                # Many sessions lose a server at the same moment: one of them starts its successor.
                self._delayed.add((session, spec.name, generation))
                self._loop.call_later(wait, lambda: self._attach_delayed(session, spec, generation, gently))
                return
            found = self._started(session, spec, generation, gently)
        if found is not None:
            found.join(session, generation)
            session.feed(ChildStarted(spec.name, generation, found.child.pid))

    def _attach_delayed(self, session: SessionPort, spec: MountSpec, generation: int, gently: bool) -> None:
        """Unless the session has ended, or given this generation up, in the meantime."""
        if (session, spec.name, generation) in self._delayed:
            self._delayed.discard((session, spec.name, generation))
            self.attach(session, spec, generation, gently=gently)

    def detach(self, session: SessionPort, mount: str, generation: int, *, force: bool) -> None:
        """The session has no use for this generation any more; with `force` it found that it does not work."""
        self._delayed.discard((session, mount, generation))
        server = self._of(session, mount, generation)
        if server is None:
            return
        server.part(session)
        if force:
            server.is_condemned = True
            self._retire(server)
            self.supervisor.stop(server.child, force=True)
        else:
            self._left(server)

    def leave(self, session: SessionPort) -> None:
        self._delayed = {one for one in self._delayed if one[0] is not session}
        for server in self._running:
            if server.part(session):
                self._left(server)

    def send(self, session: SessionPort, mount: str, generation: int, frame: bytes) -> None:
        server = self._of(session, mount, generation)
        if server is not None and server.child.input_open:
            server.send(session, generation, frame)

    def expect_end(self, mount: str) -> None:
        """Its processes are about to end because the operator wants it: that is no fault."""
        for server in self._running:
            server.is_expected_to_end |= server.spec.name == mount

    def last_words(self, mount: str) -> str:
        """The end of what a server wrote to standard error, without the secrets it was started with."""
        for server in reversed(self._running):
            if server.spec.name == mount and server.child.tail:
                return self._registries.shown_words(server.spec, server.child)
        return self._words.get(mount, "")

    def renew(self) -> None:
        """Whoever needs a server from now on gets one that is started from now on."""
        self._current.clear()
        self._started_at.clear()

    def renumber(self, session: SessionPort, old: int) -> None:
        for server in self._running:
            server.renumber(old, session.number)

    def throttle(self, session: SessionPort, mount: str, generation: int, until: float) -> None:
        """It sends more than one of its sessions can bear: nobody reads it until then."""
        if (server := self._of(session, mount, generation)) is not None:
            self.supervisor.throttle(server.child, until)

    # --- processes -------------------------------------------------------------------------------------------

    def _of(self, session: SessionPort, mount: str, generation: int) -> SharedServer | None:
        for server in self._running:
            if server.spec.name == mount and server.users.get(session.number) == (session, generation):
                return server
        return None

    def _started(
        self, session: SessionPort, spec: MountSpec, generation: int, gently: bool
    ) -> SharedServer | None:
        launch = self._registries.launch(spec, self._environ)
        if isinstance(launch, Fault):
            self._lose(session, spec.name, structs.replace(launch, generation=generation))
            return None
        server = SharedServer(spec, self._write, self._ended)
        child = self.supervisor.start(spec.name, generation, launch, server, gently=gently, keep_stderr=True)
        if isinstance(child, Fault):
            self.faults += 1
            self._failed.add(spec.name)
            self.events.add_fault(spec.name, child)
            self._lose(session, spec.name, child)
            return None
        child.echoes_stderr = not spec.managed
        server.child = child
        if spec.name in self._failed:
            self._failed.discard(spec.name)
            self.events.add_restart(spec.name)
        self._running.append(server)
        self._current[_key(spec)] = server
        self._started_at[_key(spec)] = self._loop.time()
        return server

    def _lose(self, session: SessionPort, mount: str, fault: Fault) -> None:
        """Later: the session is in the midst of starting it."""
        self._loop.call_soon(lambda: session.feed(ChildLost(mount, fault.generation, fault)))

    def _left(self, server: SharedServer) -> None:
        if server.users:
            return
        server.idle_since = self._loop.time()
        if _key(server.spec) in self._private:
            self._end(server)

    def _end(self, server: SharedServer) -> None:
        self._retire(server)
        self.supervisor.stop(server.child)

    def _retire(self, server: SharedServer) -> None:
        """Sessions that come from now on get another."""
        if self._current.get(_key(server.spec)) is server:
            del self._current[_key(server.spec)]

    def _tend(self) -> None:
        now = self._loop.time()
        for server in list(self._running):
            if server.is_root_sensitive:
                self._private.add(_key(server.spec))  # its next users get one each
            if server.idle_since is not None and now - server.idle_since > IDLE_S:
                self._end(server)
        self._tending = self._loop.call_later(TEND_S, self._tend)

    def _write(self, server: SharedServer, frame: bytes) -> None:
        self.supervisor.write(server.child, frame)

    def _ended(self, server: SharedServer, ended: Ended) -> None:
        """Tell everyone who used it."""
        self._running.remove(server)
        self._retire(server)
        child = server.child
        said = self._registries.last_words(server.spec, child)
        fault = self._registries.explained(server.spec, ended.fault, ended.code)
        self._words[server.spec.name] = self._registries.shown_words(server.spec, child)
        self._count_fault(server, fault)
        for session, generation in list(server.users.values()):
            own = structs.replace(fault, generation=generation)
            session.feed(ChildLost(server.spec.name, generation, own, ended.code, said))

    def _count_fault(self, server: SharedServer, fault: Fault) -> None:
        """One, however many sessions used it; none where nobody did, or where the operator ended it."""
        if server.is_expected_to_end or not (server.users or server.is_condemned):
            return
        self.faults += 1
        self._failed.add(server.spec.name)
        if not server.is_condemned:  # else the session that found it broken noted why
            self.events.add_fault(server.spec.name, fault)

    # --- the end ---------------------------------------------------------------------------------------------

    def reap_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the system say when a process ends."""
        signals.handle_in_loop(loop, signals.CHILD_ENDED, self.supervisor.reap)

    def end_servers(self) -> None:
        """Start no more, and stop all."""
        self._is_closing = True
        self._tending.cancel()
        self.supervisor.end_children()

    async def close(self) -> None:
        self.end_servers()
        until = self._loop.time() + KILL_S + 1
        while self.supervisor.children and self._loop.time() < until:
            await asyncio.sleep(0.02)
            self.supervisor.reap()
        signals.stop_handling_in_loop(asyncio.get_running_loop(), signals.CHILD_ENDED)
        self.supervisor.guardian.close()


def _report(error: Exception) -> None:
    log.error("a line of a server could not be handled", exc_info=error)


def _key(spec: MountSpec) -> Key:
    """The same command in the same place with the same environment is the same server, in each era."""
    env = (f"{name}={value}" for name, value in sorted(spec.env.items()))
    era = "2026" if spec.modern_first else ""
    return (spec.name, *spec.argv, "", spec.cwd, spec.mark, era, *env)
