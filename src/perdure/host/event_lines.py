"""Events of a session as lines that a person reads on standard error.

foo did not start: nosuchcmd: No such file or directory (try 1 of 5)
shop was ended by SIGKILL; 2 calls were running
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Fields = Mapping[str, str | int | float | bool]

_ENDED: Final = {
    "killed": "was {0}",
    "exited": "ended with {0}",
    "unresponsive": "stopped answering",
    "deadline": "did not answer a call in time",
    "sign_in_required": "asks for a sign-in: perdure registry login {1}",
    "unreadable_answer": "sent an answer that cannot be read",
    "answer_too_large": "sent an answer that is too large",
    "catalog_too_large": "lists more tools, prompts or resources than the limits allow",
}
_PHASES: Final = {
    ("lifecycle", "spawn"): "starting {mount} (generation {generation})",
    ("lifecycle", "serving"): "{mount} is ready (generation {generation})",
    ("lifecycle", "stop"): "stopping {mount} (generation {generation})",
    ("lifecycle", "stopped"): "{mount} stays down until it is restarted or its entry changes",
    ("lifecycle", "mounted"): "{mount} was added",
    ("lifecycle", "unmounted"): "{mount} was removed",
    ("lifecycle", "restarted"): "{mount} is restarted on request",
    ("lifecycle", "disabled"): "{mount} was disabled on request",
    ("session", "started"): "session {session} started (perdure {version})",
    ("session", "initialize"): "client {client} connected (handshake era)",
    ("session", "discover"): "client {client} connected (2026 era)",
    ("session", "closing"): "the session is closing",
    ("rollout", "preparing"): "preparing generation {generation} of {mount}",
    ("rollout", "announced"): "generation {generation} of {mount} is ready; its changed lists were announced",
    ("rollout", "fenced"): "generation {generation} of {mount} takes over",
    ("rollout", "refused"): "generation {generation} of {mount} failed; the running one goes on",
    ("rollout", "host_kept"): "the host was not replaced: {detail}",
    ("rollout", "host_replaced"): "the host was replaced by the installed version",
    ("dispatch", "cancelled"): "call {call} was cancelled",
    ("probe", "asked"): "asking {mount} what became of call {call}",
}


def describe_event(event: str, fields: Fields) -> str:
    """One line without its end. An event that has no words of its own is told by its fields."""
    known: dict[str, Any] = dict(fields)
    try:
        if (template := _PHASES.get((event, str(known.get("phase"))))) is not None:
            return template.format_map(known)
        if (describe := _EVENTS.get(event)) is not None:
            return describe(known)
    except KeyError:
        pass  # an event of another version
    words = " ".join(f"{name}={value}" for name, value in known.items() if name != "session")
    return f"{event.replace('_', ' ')} {words}".rstrip()


def _fault(known: dict[str, Any]) -> str:
    code, detail = str(known["code"]), str(known.get("detail", ""))
    reason = detail or code.replace("_", " ")
    if code == "unhandled_frame":
        return f"internal error ({reason}) at {known.get('where', 'an unknown place')}; the session goes on"
    if "mount" not in known:
        return reason
    mount = known["mount"]
    if known.get("starting"):
        tries = f" (try {known['attempt']} of {known['attempts']})" if "attempt" in known else ""
        return f"{mount} did not start: {reason}{tries}"
    ended = _ENDED.get(code, "failed: {0}").format(reason, mount)
    calls = known.get("calls", 0)
    running = f"; {calls} call{' was' if calls == 1 else 's were'} running" if calls else ""
    return f"{mount} {ended}{running}"


def _circuit(known: dict[str, Any]) -> str:
    if known["state"] == "half_open":
        return f"{known['mount']} is tried again"
    return f"{known['mount']} failed too often: the next try is in {known['for_s']:g} s, later ones after longer waits"


def _tools_changed(known: dict[str, Any]) -> str:
    tools = str(known["tools"]).replace(",", ", ")
    held = (
        f"; they are held back until you run: perdure registry approve {known['mount']}"
        if known["held"]
        else ""
    )
    return f"the tools of {known['mount']} changed: {tools}{held}"


def _sent(known: dict[str, Any]) -> str:
    return f"call {known['call']} ({known['method']}) was sent to {known['mount']}"


def _log(known: dict[str, Any]) -> str:
    error = f" ({known['error']} at {known['place']})" if "error" in known else ""
    return f"{known['message']}{error}"


_EVENTS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "fault": _fault,
    "circuit": _circuit,
    "tools_changed": _tools_changed,
    "tools_approved": lambda known: f"tools of {known['mount']} were approved: {known['tools']}",
    "dispatch": _sent,
    "replay": lambda known: f"{_sent(known)} again",
    "probe": lambda known: f"the probe of call {known['call']} answered: {known['phase']}",
    "tasks_recorded": lambda known: str(known["detail"]),
    "log": _log,
}
