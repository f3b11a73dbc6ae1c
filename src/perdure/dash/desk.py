"""What every page works with, and what it knows of the running server without asking a tool."""

from __future__ import annotations

import secrets
import time
from typing import Any, Final, Protocol

import msgspec

from perdure.dash.pulse import Pulse
from perdure.dash.tools import Tools
from perdure.kernel import ops
from perdure.kernel.state import Invocation
from perdure.model.frames import members
from perdure.model.trust import UntrustedFile
from perdure.serve.session import HttpSession
from perdure.serve.sessions import Sessions, is_own

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


class MountRow(msgspec.Struct):
    """One server as all sessions together see it."""

    name: str
    state: str = "cold"
    circuit: str = "closed"
    restarts: int = 0
    tools: int = 0
    sessions: int = 0
    pids: list[int] = []
    fault: str = ""
    hint: str = ""
    said: str = ""


class Looks(Protocol):
    """What no tool tells of the stores; each may wait, so it is asked in a thread."""

    def drafts(self) -> list[dict[str, Any]]: ...
    def state(self) -> dict[str, list[dict[str, Any]]]: ...


class NoLooks:
    def drafts(self) -> list[dict[str, Any]]:
        return []

    def state(self) -> dict[str, list[dict[str, Any]]]:
        return {"namespaces": [], "leases": []}


class Desk:
    """`csrf` is known only to pages that this process made."""

    def __init__(self, sessions: Sessions, *, is_wrapped: bool, looks: Looks | None = None) -> None:
        self.looks: Looks = looks or NoLooks()
        self.sessions = sessions
        self.tools = Tools(sessions)
        self.pulse = Pulse(sessions)
        self.is_wrapped = is_wrapped
        self.csrf = secrets.token_urlsafe(24)

    @property
    def clients(self) -> list[HttpSession]:
        return self.sessions.clients

    @property
    def untrusted(self) -> list[UntrustedFile]:
        """What waits in the workspaces of the sessions."""
        files = [file for session in self.sessions.all for file in session.kernel.untrusted]
        return list({file.path: file for file in files}.values())

    def calls(self) -> list[Call]:
        now = time.monotonic()
        found = [
            _call(session, call, now)
            for session in self.clients
            for call in session.kernel.state.calls.values()
        ]
        return sorted(found, key=lambda call: -call.seconds)

    def mounts(self) -> list[MountRow]:
        rows: dict[str, MountRow] = {}
        for session in self.sessions.all:
            for known in ops.health(session.kernel)["mounts"]:
                row = rows.setdefault(known["name"], MountRow(known["name"]))
                row.state = min(row.state, known["state"], key=_WORST.index)
                row.circuit = known["circuit"] if known["circuit"] != "closed" else row.circuit
                row.restarts = max(row.restarts, known["restarts"])
                row.tools = max(row.tools, known["tools"])
                row.sessions += not is_own(session)
                row.hint = known.get("untrusted", row.hint)
                if fault := known.get("last_fault"):
                    row.fault = f"{fault['class']}: {fault['code']}" + _said(fault.get("detail"))
                    row.hint = fault.get("hint", "")
        for process in self.sessions.switchboard.running:
            if process.spec.name in rows:
                rows[process.spec.name].pids.append(process.child.pid)
        for name, row in rows.items():
            row.said = self.sessions.switchboard.last_words(name)
        return [rows[name] for name in sorted(rows)]


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


def _said(detail: str | None) -> str:
    return f" ({detail})" if detail else ""
