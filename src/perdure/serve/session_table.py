"""Who is there: sessions of the handshake era by their ids, and kernels for 2026 requests, which have none.

A session that is not used goes to the store and comes back when its client does, after a restart as well. A 2026
request gets a kernel in which its id is free, so that its frame can go on as it came; a retry finds the kernel that
knows about the first try.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from perdure import __version__
from perdure.host import catalog_cache
from perdure.host.compose import new_mount_calls, places_of
from perdure.host.console import Console
from perdure.host.serve_options import ServeLimits
from perdure.host.settings import Settings
from perdure.host.task_records import TaskRecords
from perdure.kernel.catalog import load_catalog
from perdure.kernel.core import Kernel
from perdure.kernel.events import Note, Order, Reload
from perdure.kernel.state import Answered, ChildCatalog, Invocation, Parked
from perdure.protocol.frames import RequestId
from perdure.protocol.mounts import MountSpec
from perdure.serve.http_session import HttpSession
from perdure.serve.metrics_endpoint import RequestTotals
from perdure.serve.registries import Registries
from perdure.serve.server_pool import ServerPool
from perdure.serve.store import Store, Stored
from perdure.storage.event_log import EventLog
from perdure.surfaces.ops import host_tools

if TYPE_CHECKING:
    from perdure.telemetry.exporter import Exporter

SWEEP_S: Final = 5.0
LOOK_S: Final = 1.0
TOUCH_S: Final = 60.0
UNLOAD_AFTER_S: Final = 300.0

HTTP: Final = {"network.transport": "tcp", "network.protocol.name": "http"}

OWN: Final = "dashboard"
"""Who our own requests come from; the identity of a client has a line break in it."""

Specs = Callable[[str], dict[str, MountSpec]]


class TooManySessions(Exception):
    """No more are opened until some have ended."""


def is_own(session: HttpSession) -> bool:
    """Whether it is the dashboard's, which is no client and does not count."""
    return session.identity == OWN


class SessionTable:
    """`specs_of` says which servers stand behind a workspace."""

    def __init__(
        self,
        settings: Settings,
        specs_of: Specs,
        server_pool: ServerPool,
        store: Store,
        log: EventLog,
        *,
        wrapped: bool,
        registries: Registries | None = None,
        limits: ServeLimits | None = None,
        console: Console | None = None,
        exporter: Exporter | None = None,
    ) -> None:
        self.server_pool = server_pool
        self._registries = registries or Registries()
        self.named: dict[str, HttpSession] = {}
        self.unnamed: dict[str, list[HttpSession]] = {}
        self.settings = settings
        self._specs_of = specs_of
        self._store = store
        self._log = log
        self._wrapped = wrapped
        self.limits = limits or ServeLimits()
        self.past = RequestTotals()
        self._console = console
        self._exporter = exporter
        self._catalogs: dict[MountSpecKey, ChildCatalog] = {}
        self._records = TaskRecords()
        self._tasks = self._records.load()  # shared: each kernel can answer for the tasks of its client
        self._loop = asyncio.get_running_loop()
        self._flushing: asyncio.Handle | None = None
        self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)
        self._looking = self._loop.call_later(LOOK_S, self._look)
        self._touched_at = time.monotonic()
        self._recovered: set[str] = set()
        self._disabled: set[str] = set()
        self._is_ordering = False
        self.is_ending = False
        store.forget_old(self.limits.session_days)

    @property
    def all(self) -> list[HttpSession]:
        return [*self.named.values(), *(one for many in self.unnamed.values() for one in many)]

    @property
    def clients(self) -> list[HttpSession]:
        """All but our own."""
        return [session for session in self.all if not is_own(session)]

    def workspace_of(self, asked: str) -> str | None:
        """The one that a client asks for, by its path or its name. Empty means all of them, None that there is none."""
        if not asked:
            return ""
        known = (path for path in self.settings.workspaces if asked in (path, os.path.basename(path)))
        return next(known, None)

    def order(self, order: Order) -> None:
        """What the operator wants: for every session that is there, and where it stops a server for those that come."""
        self._disabled.discard(order.mount)
        if order.action == "disable":
            self._disabled.add(order.mount)
        if order.action != "enable":
            self.server_pool.expect_end(order.mount)
        self.server_pool.events.add_operation(order.mount, f"{order.action.removesuffix('e')}ed", OWN)
        self._is_ordering = True  # each session notes it too, and it is one event
        for session in self.all:
            session.feed(order)
        self._is_ordering = False

    def shown_command(self, spec: MountSpec) -> str:
        """For people, without secrets."""
        return self._registries.shown_command(spec)

    def reload(self) -> None:
        """Every session rolls over, each to a server that is started from now on."""
        self.server_pool.renew()
        for session in self.all:
            session.feed(Reload())

    def _started(self, session: HttpSession) -> None:
        session.runner.start(session.kernel.start(time.monotonic()))
        for mount in sorted(self._disabled):
            session.feed(Order(mount, "disable"))

    def look_at_registries(self) -> None:
        """Tell every session what changed in its workspace's registry."""
        for workspace, events in self._registries.news():
            for session in self.all:
                if session.workspace == workspace:
                    for event in events:
                        session.feed(event)

    # --- the handshake era -----------------------------------------------------------------------------------

    def open(self, workspace: str, owner: str = "", profile: str = "") -> HttpSession:
        """A new session, before its `initialize`. An empty profile is that of the server."""
        if self._store.session_count() >= self.limits.sessions:
            raise TooManySessions
        session = self._made(os.urandom(16).hex(), "", workspace, owner)
        session.kernel.state.session.profile = profile
        self.named[session.kernel.state.session.session_id] = session
        self._started(session)
        return session

    def named_as(self, identity: str, owner: str = "") -> HttpSession | None:
        """Somebody's own: to anyone else it is not there."""
        found = self.named.get(identity)
        if found is None or found.is_over:
            stored = self._store.session(identity)
            return self._taken_up(stored) if stored is not None and stored.owner == owner else None
        if found.owner != owner:
            return None
        self.named[identity] = self.named.pop(identity)  # the order is that of their use
        return found

    def _taken_up(self, stored: Stored) -> HttpSession:
        session = self._made(stored.id, "", stored.workspace, stored.owner)
        self.named[stored.id] = session
        lost = self._store.calls(stored.id)
        session.take_up(lost)
        session.runner.start(session.kernel.take_up(stored.session, lost, time.monotonic()))
        for mount in sorted(self._disabled):
            session.feed(Order(mount, "disable"))
        return session

    def end(self, session: HttpSession) -> None:
        identity = session.kernel.state.session.session_id
        self.named.pop(identity, None)
        self._store.remove_session(identity)
        self._count(session)
        session.end()

    # --- 2026 ------------------------------------------------------------------------------------------------

    def for_request(
        self, identity: str, workspace: str, request: RequestId, question: int, ticket: str | None
    ) -> HttpSession:
        """A kernel of this client's in which the id is free, or the one that knows about the first try."""
        if identity not in self._recovered:
            self._recovered.add(identity)
            self._recover(identity, workspace)
        if identity in self.unnamed:
            self.unnamed[identity] = self.unnamed.pop(identity)
        kernels = [one for one in self.unnamed.get(identity, ()) if not one.is_over]
        for one in kernels:
            if ticket is not None and self._knows_ticket(one, ticket):
                return one
            if one.knows(request, question):
                return one
        for one in kernels:
            if request not in one.exchanges and request not in one.kernel.state.ids:
                return one
        made = self._made(os.urandom(16).hex(), identity, workspace)
        if kernels:  # what a client without a session enabled counts for all of its requests
            made.kernel.state.session.groups = kernels[0].kernel.state.session.groups
        self.unnamed.setdefault(identity, []).append(made)
        self._started(made)
        return made

    def _knows_ticket(self, session: HttpSession, ticket: str) -> bool:
        """Whether a retry, or a request about a task, continues something in this kernel."""
        task = self._tasks.get(ticket)
        return _has_parked(session, ticket) or (task is not None and session.kernel.is_own(task))

    def waiting(self, identity: str) -> int:
        """How many requests of one client wait for their answers."""
        return sum(len(one.exchanges) for one in self.unnamed.get(identity, ()))

    def _recover(self, identity: str, workspace: str) -> None:
        for name in self._store.sessions_with_calls(identity):
            known = {one.kernel.state.session.session_id for one in self.unnamed.get(identity, ())}
            if name not in known:
                made = self._made(name, identity, workspace)
                lost = self._store.calls(name)
                made.take_up(lost)
                made.runner.start(made.kernel.take_up(made.kernel.state.session, lost, time.monotonic()))
                self.unnamed.setdefault(identity, []).append(made)

    # --- what sessions leave -----------------------------------------------------------------------------------

    def save_session(self, session: HttpSession) -> None:
        if not session.identity:
            state = session.kernel.state.session
            self._store.save_session(Stored(state.session_id, session.owner, session.workspace, state))

    def save_call(self, session: str, identity: str, workspace: str, call: Invocation) -> None:
        self._store.save_call(session, identity, workspace, call)

    def forget_call(self, session: str, seq: int) -> None:
        self._store.forget_call(session, seq)

    # --- inside ----------------------------------------------------------------------------------------------

    def _places(self, workspace: str) -> dict[str, str]:
        if self._wrapped:
            return {}
        return places_of(workspace or self.settings.workspaces[0], self.settings.store)

    def _made(self, name: str, identity: str, workspace: str, owner: str = "") -> HttpSession:
        self._make_room()
        specs = self._specs_of(workspace)
        if identity and self._wrapped:
            specs = {one: self._of_its_era(spec) for one, spec in specs.items()}
        kernel = Kernel(
            specs,
            session_id=name,
            now=time.monotonic(),
            limits=self.settings.limits,
            wrapped=self._wrapped,
            version=__version__,
            render=self.settings.render,
            detail=self.settings.detail,
            profile=self.settings.profile,
            catalogs=self._known(specs),
            tools=self._registries.tools_of(workspace, specs),
            file_faults={"registry": self._registries.faults(workspace)},
            untrusted=self._registries.untrusted(workspace),
            places=lambda: self._places(workspace),
            host_tools=host_tools,
            tasks=self._tasks,
            owner=owner or _owner_in(identity),
            host=self._records.host,
            epoch=time.time() - time.monotonic(),
            seed=int.from_bytes(os.urandom(6), "big"),
        )

        def save_catalog(mount: str, data: bytes) -> None:
            spec = kernel.specs[mount]
            catalog_cache.save(spec, data)
            if (found := load_catalog(data)) is not None:
                self._catalogs[_key(spec)] = found

        session = HttpSession(
            kernel,
            self.server_pool,
            self,
            new_number=self._store.new_number,
            identity=identity,
            workspace=workspace,
            owner=owner,
            said=self._said,
            save_catalog=save_catalog,
            save_tools=lambda effect: self._registries.save_tools(workspace, effect),
            save_task=self._records.save,
            loop=self._loop,
        )
        tracing = None
        if self._exporter is not None:
            from perdure.telemetry.tracing import Tracing

            tracing = Tracing(self._exporter.tell, kernel, {**HTTP})
        place = workspace or self.settings.workspaces[0]
        session.observe(
            tracing,
            new_mount_calls(
                kernel, self.settings, place, self._loop, lambda effect: session.runner.perform([effect])
            ),
        )
        return session

    def _of_its_era(self, spec: MountSpec) -> MountSpec:
        """A wrapped server serves a 2026 client in that era, so that nothing is lost in translation, if it can."""
        chosen = msgspec.structs.replace(spec, modern_first=True)
        known = self._known({spec.name: chosen}).get(spec.name)
        return chosen if known is None or known.era == "modern" else spec

    def _known(self, specs: Mapping[str, MountSpec]) -> dict[str, ChildCatalog]:
        """Read once; every kernel points at the same."""
        found: dict[str, ChildCatalog] = {}
        for name, spec in specs.items():
            key = _key(spec)
            if key not in self._catalogs and (loaded := catalog_cache.load(spec)) is not None:
                self._catalogs[key] = loaded
            if key in self._catalogs:
                found[name] = self._catalogs[key]
        return found

    def _said(self, session: HttpSession, note: Note) -> None:
        name = session.kernel.state.session.session_id
        self._log.add(time.time(), name, note.event, note.fields)
        if not self._is_ordering and not (is_own(session) and note.event == "call"):
            client = session.kernel.state.session.client_name
            self.server_pool.events.add_note(note.event, note.fields, client, name)
        if self._console is not None:
            self._console.note(name, note.event, note.fields)
        if self._flushing is None:
            self._flushing = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        self._log.flush()
        if self._exporter is not None:
            self._exporter.flush()

    def _look(self) -> None:
        self._looking = self._loop.call_later(LOOK_S, self._look)
        self.look_at_registries()

    def _sweep(self) -> None:
        """Unload sessions that are not in use; the store has them."""
        self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)
        now = time.monotonic()
        for session in [one for one in self.all if one.is_idle and now - one.used_at > UNLOAD_AFTER_S]:
            self._unload(session)
        if now - self._touched_at > TOUCH_S:
            self._touch()
            self._store.forget_old(self.limits.session_days)

    def _touch(self) -> None:
        used = [name for name, one in self.named.items() if one.used_at >= self._touched_at]
        self._touched_at = time.monotonic()
        self._store.touch(used)

    def _make_room(self) -> None:
        """Unload an idle session before a new one is opened. Raises TooManySessions if all are busy."""
        most = self.limits.sessions_in_memory
        if len(self.named) + sum(map(len, self.unnamed.values())) < most:
            return
        many = (one for kernels in self.unnamed.values() for one in kernels)
        idle = next((one for one in (*self.named.values(), *many) if one.is_idle), None)
        if idle is None:
            raise TooManySessions
        self._unload(idle)

    def _count(self, session: HttpSession) -> None:
        if not is_own(session):
            self.past.add(session)

    def _unload(self, session: HttpSession) -> None:
        self._count(session)
        name = session.kernel.state.session.session_id
        if not session.identity:
            del self.named[name]
            self._store.touch([name])
        else:
            kernels = self.unnamed[session.identity]
            kernels.remove(session)
            if not kernels:
                del self.unnamed[session.identity]
                self._recovered.discard(session.identity)
        session.end()

    def close(self) -> None:
        self._sweeping.cancel()
        self._looking.cancel()
        self._touch()
        for session in self.all:
            session.stop()
        self._flush()
        if self._exporter is not None:
            self._exporter.close()


MountSpecKey = bytes


def _key(spec: MountSpec) -> MountSpecKey:
    return msgspec.msgpack.encode(spec)


def _has_parked(session: HttpSession, ticket: str) -> bool:
    return any(
        isinstance(call.state, Parked | Answered) and call.state.ticket == ticket
        for call in session.kernel.state.calls.values()
    )


def _owner_in(identity: str) -> str:
    """Whom a request of 2026 comes from, where clients are told apart: the second line of its identity."""
    return identity.split("\n", 2)[1] if "\n" in identity else ""
