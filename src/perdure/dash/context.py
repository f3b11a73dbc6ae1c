"""The context of every page: sessions, servers, running calls, events, and access to tools and stores."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

import msgspec

from perdure.dash.line_counts import LineCounts
from perdure.dash.metrics import CallMetrics
from perdure.dash.tool_client import ToolClient, ToolFailed
from perdure.host.recent_events import Event, describe
from perdure.kernel.state import Invocation, Open, ToolCounters
from perdure.protocol.faults import Fault
from perdure.protocol.frames import members
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile
from perdure.serve.http_session import HttpSession
from perdure.serve.metrics_endpoint import add_tools
from perdure.serve.session_table import SessionTable, is_own
from perdure.surfaces.ops.health import health

T = TypeVar("T")

MOST_ROWS: Final = 200
_WORST: Final = ("degraded", "recovering", "starting", "untrusted", "disabled", "ready", "cold")


class Call(msgspec.Struct, frozen=True):
    """A call that somebody waits for."""

    client: str
    session: str
    name: str
    mount: str
    seconds: float
    arguments: dict[str, Any]


class ServerRow(msgspec.Struct):
    """One server as all sessions together see it.

    `retry_at` is on the kernel's clock, `started_at` in seconds since 1970.
    """

    name: str
    spec: MountSpec
    state: str = "cold"
    circuit: str = "closed"
    restarts: int = 0
    tools: int = 0
    sessions: int = 0
    pids: list[int] = []
    started_at: float | None = None
    retry_at: float | None = None
    last_fault: dict[str, Any] = {}
    hint: str = ""
    stderr: str = ""

    @property
    def fault(self) -> str:
        """The last one, in words; empty where there was none."""
        known = self.last_fault
        if not known:
            return ""
        return describe(Fault(known["class"], known["code"], 0, known.get("detail", ""))).removeprefix("was ")


class StoreReader(Protocol):
    """What no tool reports of the stores. Each method may block, so it is called in a thread."""

    def drafts(self) -> list[dict[str, Any]]: ...
    def discard_draft(self, identity: str) -> bool: ...
    def state(self) -> dict[str, list[dict[str, Any]]]: ...
    def writers(self, namespace: str, keys: list[str]) -> dict[str, str]: ...
    def undos(self) -> list[dict[str, Any]]: ...
    def writes_today(self) -> int | None: ...
    def places(self) -> list[tuple[str, str]]: ...


class PageContext:
    """`csrf` is in every form of this process; `address` is where clients connect."""

    def __init__(
        self, sessions: SessionTable, *, is_wrapped: bool, stores: StoreReader, address: str
    ) -> None:
        self.stores = stores
        self.sessions = sessions
        self.tools = ToolClient(sessions)
        self.metrics = CallMetrics(sessions)
        self.is_wrapped = is_wrapped
        self.address = address
        self.csrf = secrets.token_urlsafe(24)
        self.line_counts = LineCounts(self.tools).of

    @property
    def clients(self) -> list[HttpSession]:
        return self.sessions.clients

    @property
    def untrusted(self) -> list[UntrustedFile]:
        """What waits in the workspaces of the sessions."""
        files = [file for session in self.sessions.all for file in session.kernel.untrusted]
        return list({file.path: file for file in files}.values())

    async def read_store(self, read: Callable[[], T]) -> T:
        """Run `read` in a thread. Raises ToolFailed."""
        try:
            return await asyncio.to_thread(read)
        except Exception as error:  # of any backend: the page says so, and the others are shown
            raise ToolFailed(f"the store cannot be read ({type(error).__name__})") from None

    async def events(self, most: int = MOST_ROWS) -> list[Event]:
        """Newest first: what this process recorded since it was started, and the undos of the journal."""
        undos = [] if self.is_wrapped else await asyncio.to_thread(self._undos)
        found = [*self.sessions.server_pool.events.newest(), *undos]
        return sorted(found, key=lambda event: -event.at)[:most]

    def _undos(self) -> list[Event]:
        try:
            rows = self.stores.undos()
        except Exception:  # the events of this process are shown all the same
            return []
        return [_undo_event(row) for row in rows]

    def calls(self) -> list[Call]:
        now = time.monotonic()
        found = [
            _call(session, call, now)
            for session in self.clients
            for call in session.kernel.state.calls.values()
        ]
        return sorted(found, key=lambda call: -call.seconds)

    def tool_counters(self) -> dict[str, ToolCounters]:
        """Of all clients since the start."""
        sums: dict[str, ToolCounters] = {}
        add_tools(sums, self.sessions.past.tools)
        for session in self.clients:
            add_tools(sums, session.kernel.state.metrics.tools)
        return sums

    def servers(self) -> list[ServerRow]:
        rows: dict[str, ServerRow] = {}
        for session in self.sessions.all:
            kernel = session.kernel
            for known in health(kernel)["mounts"]:
                name = known["name"]
                row = rows.setdefault(name, ServerRow(name, kernel.specs[name]))
                row.state = min(row.state, known["state"], key=_WORST.index)
                row.circuit = known["circuit"] if known["circuit"] != "closed" else row.circuit
                row.restarts = max(row.restarts, known["restarts"])
                row.tools = max(row.tools, known["tools"])
                row.sessions += not is_own(session)
                row.hint = known.get("untrusted", row.hint)
                phase = kernel.state.mounts[name].phase
                if isinstance(phase, Open):
                    row.retry_at = min(phase.until, row.retry_at or phase.until)
                if fault := known.get("last_fault"):
                    row.last_fault = fault
                    row.hint = fault.get("hint", "")
        for process in self.sessions.server_pool.running:
            if (found := rows.get(process.spec.name)) is not None:
                found.pids.append(process.child.pid)
                found.started_at = max(process.started_at, found.started_at or 0.0)
        for name, row in rows.items():
            row.stderr = self.sessions.server_pool.last_words(name)
        return [rows[name] for name in sorted(rows)]

    def tools_of(self, server: str) -> list[tuple[str, str]]:
        """The tools that a server offers: their public names and descriptions."""
        for session in self.sessions.all:
            mount = session.kernel.state.mounts.get(server)
            if mount is not None and mount.catalog is not None:
                spec = session.kernel.specs[server]
                return [_tool(spec, definition) for definition in mount.catalog.tools]
        return []


async def mask(text: str) -> str:
    """Without what looks like a secret. The check takes its time, so it is made in a thread."""
    return await asyncio.to_thread(_mask, text) if text else ""


async def mask_all(texts: Iterable[str]) -> list[str]:
    return await asyncio.to_thread(lambda: [_mask(text) for text in texts])


@lru_cache(maxsize=512)
def _mask(text: str) -> str:
    from perdure import risk

    return risk.redact(text, risk.scan(text))


def _undo_event(row: dict[str, Any]) -> Event:
    verb = {"undo": "undone", "redo": "redone", "restore": "restored"}[row["op"]]
    text = f"was {verb} (change {row['journal_id']})"
    return Event(row["ts"] / 1_000_000, "undo", row["path"], text, row["client"], row["session"])


def _tool(spec: MountSpec, definition: bytes) -> tuple[str, str]:
    found = msgspec.json.decode(definition)
    return spec.prefix + str(found.get("name", "")), str(found.get("description") or "")


def _call(session: HttpSession, call: Invocation, now: float) -> Call:
    state = session.kernel.state.session
    return Call(
        state.client_name,
        state.session_id,
        call.name or call.method,
        call.mount,
        round(now - call.accepted_at, 1),
        _arguments(call.params),
    )


def _arguments(params: bytes | None) -> dict[str, Any]:
    found = members(params).get("arguments") if params is not None else None
    decoded = msgspec.json.decode(found) if found is not None else {}
    return decoded if isinstance(decoded, dict) else {}


def home_path(path: str) -> str:
    """With `~` for the home directory."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if home != "/" and path.startswith(home + "/") else path
