"""`reserve`: paths that only this client may write for a while."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, then
from perdure.protocol.tools import arg
from perdure.storage.reservations import Mode
from perdure.text.printable import make_printable
from perdure.text.times import format_time
from perdure.workspace.planning import PlanView
from perdure.workspace.reservations.access import Granted, Refused, Unknown, describe, resolve_path
from perdure.workspace.reservations.patterns import has_wildcard
from perdure.workspace.reservations.rules import Held, TooManyReservations
from perdure.workspace.workspace import Workspace

MOST_PATHS: Final = 100
MOST_TTL_S: Final = 86_400
MOST_REASON: Final = 500


class Reserve(msgspec.Struct, frozen=True):
    action: Literal["acquire", "renew", "release", "list"]
    paths: Annotated[list[str], arg("Files, folders or globs as in .gitignore.")] | None = None
    mode: Mode = "exclusive"
    ttl_s: Annotated[int, arg(ge=1, le=MOST_TTL_S)] = 600
    reason: Annotated[str, arg(max_length=MOST_REASON)] | None = None
    token: Annotated[int, arg("From acquire; for renew and release.", ge=1)] | None = None


def reserve(workspace: Workspace, given: Reserve, call: Call) -> dict[str, Any]:
    if given.action == "list":
        return {"status": "ok", "holders": _listed(workspace)}
    if workspace.reservations.settings.mode == "off":
        raise refuse(
            "blocked",
            "reservations_off",
            "reservations are switched off by the settings ([reservations] mode = off).",
            next_step=call_tool("reserve", action="list"),
            suggested_action="abort",
        )
    return workspace.commit(call, ReservePlan(workspace, given, call)).result()


class ReservePlan:
    """One change of the book, in the transaction that saves it."""

    paths: frozenset[str] = frozenset()

    def __init__(self, workspace: Workspace, given: Reserve, call: Call) -> None:
        self._reservations = workspace.reservations
        self._call = call
        self._given = given
        self._paths = _read_paths(workspace, given) if given.action == "acquire" else ()
        self._token = _read_token(given) if given.action != "acquire" else 0

    def stage(self, tree: PlanView) -> dict[str, Any]:
        try:
            answer = self._reservations.planned(tree.deferred, self._given.action, self._change_book)
        except TooManyReservations:
            raise refuse(
                "quota_exceeded",
                "too_many_reservations",
                "this workspace has as many reservations as it can have.",
                next_step=call_tool("reserve", action="list"),
                suggested_action="abort",
            ) from None
        match answer:
            case Refused():
                return {"status": "held", "holders": [describe(held) for held in answer.holders]}
            case Unknown():
                return {"status": answer.status, "token": self._token, "expires_at": None, "holders": []}
            case Granted() if self._given.action == "release":
                return {"status": "ok", "token": self._token, "expires_at": None, "holders": []}
            case Granted():
                by = answer.reservation
                return {
                    "status": "ok",
                    "token": by.token,
                    "expires_at": format_time(by.until),
                    "holders": [describe(Held(path, by)) for path in by.paths],
                }

    def _change_book(self) -> Granted | Refused | Unknown:
        given, call = self._given, self._call
        if given.action == "acquire":
            return self._reservations.acquire(call, self._paths, given.mode, given.ttl_s, given.reason or "")
        if given.action == "renew":
            return self._reservations.renew(call, self._token, given.ttl_s)
        return self._reservations.release(call, self._token)


def _listed(workspace: Workspace) -> list[dict[str, Any]]:
    return [describe(Held(path, by)) for by in workspace.reservations.active() for path in by.paths]


def _read_token(given: Reserve) -> int:
    if given.token is None:
        raise refuse(
            "invalid_input",
            "missing_argument",
            f"{given.action} needs the token that acquire gave.",
            next_step=then(call_tool("reserve", action="list"), call_again(token=FILL)),
            suggested_action="fix_syntax",
        )
    return given.token


def _read_paths(workspace: Workspace, given: Reserve) -> tuple[str, ...]:
    """As rows of the journal name them: a link stands for its target, also in the folders before a wildcard."""
    if not given.paths or len(given.paths) > MOST_PATHS:
        raise _bad_paths(f"paths must name 1 to {MOST_PATHS} files, folders or globs.")
    return tuple(dict.fromkeys(_read_path(workspace, path) for path in given.paths))


def _read_path(workspace: Workspace, text: str) -> str:
    names = text.strip().split("/")
    if text.startswith("!") or not text.strip() or "\0" in text:
        raise _bad_paths(f"{make_printable(text)!r} is no path and no glob.")
    plain = next((at for at, name in enumerate(names) if has_wildcard(name)), len(names))
    folder, pattern = "/".join(names[:plain]), [name for name in names[plain:] if name]
    if ".." in pattern:
        raise _bad_paths(f"{make_printable(text)} leads out of its folder.")
    if not folder:  # a glob; with a slash before it one of the root
        return "/" * text.startswith("/") + "/".join(pattern)
    return "/".join([name for name in _resolve(workspace, folder).split("/") if name] + pattern) or "**"


def _resolve(workspace: Workspace, path: str) -> str:
    name = resolve_path(workspace.roots, path)
    if name is not None:
        return name
    raise refuse(
        "policy_violation",
        "escapes_workspace",
        f"{make_printable(path)} is outside the workspace.",
        next_step=call_again(paths=FILL),
        suggested_action="fix_syntax",
        path=path,
    )


def _bad_paths(message: str) -> ToolError:
    return refuse(
        "invalid_input",
        "bad_paths",
        message,
        next_step=call_again(paths=FILL),
        suggested_action="fix_syntax",
    )
