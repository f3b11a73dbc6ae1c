"""Data of a task on its way, kept by name: what an agent needs to go on after it was interrupted.

An end is a time, everywhere: what has ended is not read, not listed, and swept. An interruption usually ends the session,
so `ttl: session` outlives it: such data ends a week after its last write, or when the session that wrote it calls
`checkpoint_cleanup`.
"""

from __future__ import annotations

import re
import time
from typing import Annotated, Any, Final, Literal

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, then
from perdure.protocol.tools import arg
from perdure.storage.journal import Item
from perdure.text.times import format_time
from perdure.workspace.change import PlanFunction
from perdure.workspace.planning import PlanView
from perdure.workspace.workspace import Workspace

KIND: Final = "checkpoint"
SESSION_S: Final = 7 * 86_400
# Larger ones are stored as blob files in chunks, and say so to clients that look for it.
CHUNKED_BYTES: Final = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DURATION = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII
)
_UNITS: Final = (365 * 86_400, 30 * 86_400, 7 * 86_400, 86_400, 3600, 60, 1)

Format = Literal["json", "yaml", "markdown"]


class Checkpoint(msgspec.Struct, frozen=True):
    name: Annotated[str, arg("[A-Za-z0-9_-]{1,64}; an existing one is replaced.")]
    # Any JSON is taken. The schema names one type: services of some models refuse a list with an argument of several.
    data: Annotated[Any, arg("An object, or any other JSON.", extra_json_schema={"type": "object"})]
    format: Annotated[Format, arg()] = "json"
    ttl: Annotated[str, arg("session, permanent, or a duration: P7D, PT12H.")] = "session"


class CheckpointRead(msgspec.Struct, frozen=True):
    name: Annotated[str, arg()]


class CheckpointList(msgspec.Struct, frozen=True):
    pass


class CheckpointCleanup(msgspec.Struct, frozen=True):
    include_session: Annotated[bool, arg("false: only expired ones.")] = True
    all_sessions: Annotated[bool, arg("Also those of other sessions.")] = False


def checkpoint(workspace: Workspace, params: Checkpoint, call: Call) -> dict[str, Any]:
    _check_name(params.name)
    lasts = _seconds(params.ttl)
    import json

    # As it was sent: other writers of JSON round large numbers.
    sent = workspace.store.take(json.dumps(params.data, ensure_ascii=False, separators=(",", ":")).encode())

    def plan(tree: PlanView) -> dict[str, Any]:
        now = int(time.time() * 1_000_000)
        before = workspace.journal.item(KIND, params.name)
        workspace.store.record(sent, by_row=False)
        item = Item(
            kind=KIND,
            name=params.name,
            sha=sent.digest,
            size=sent.size,
            meta={
                "format": params.format,
                "ttl": params.ttl,
                "saves": 1 + (_saves(before) if before is not None else 0),
            },
            client=call.client,
            session=call.session,
            created=before.created if before is not None else now,
            updated=now,
            expires=now + lasts * 1_000_000 if lasts is not None else None,
        )
        workspace.journal.shelf_put(item)
        return {
            **_told(item),
            "journal_id": None,
            "chunked": sent.size > CHUNKED_BYTES,
            "overwritten": before is not None,
        }

    return workspace.commit(call, PlanFunction(frozenset({_place(params.name)}), plan)).result()


def checkpoint_read(workspace: Workspace, params: CheckpointRead, call: Call) -> dict[str, Any]:
    _check_name(params.name)
    item = workspace.journal.item(KIND, params.name)
    if item is None:
        raise refuse(
            "not_found",
            "checkpoint_not_found",
            f"there is no checkpoint {params.name}, or it has expired.",
            next_step=then(call_tool("checkpoint_list"), call_again(name=FILL)),
            suggested_action="reread",
        )
    import json

    return {**_told(item), "data": json.loads(workspace.store.load(item.sha.hex()))}


def checkpoint_list(workspace: Workspace, params: CheckpointList, call: Call) -> dict[str, Any]:
    found = [_told(item) for item in workspace.journal.shelf(KIND)]
    return {"checkpoints": found, "count": len(found)}


def checkpoint_cleanup(workspace: Workspace, params: CheckpointCleanup, call: Call) -> dict[str, Any]:
    def plan(tree: PlanView) -> dict[str, Any]:
        removed, kept = [], 0
        for item in workspace.journal.shelf(KIND):
            own = params.all_sessions or item.session == call.session
            if item.meta.get("ttl") == "session" and params.include_session and own:
                workspace.journal.shelf_remove(KIND, item.name)
                removed.append({"name": item.name, "ttl": "session", "reason": "session_cleanup"})
            else:
                kept += 1
        workspace.journal.expire_shelf(1000)
        return {"removed": removed, "kept": kept}

    return workspace.commit(call, PlanFunction(frozenset({_place("*")}), plan)).result()


def counted(workspace: Workspace) -> dict[str, Any]:
    """How often each of those that have not ended was saved."""
    by_name = {item.name: _saves(item) for item in workspace.journal.shelf(KIND)}
    total = sum(by_name.values())
    return {"total_saves": total, "overwrites": total - len(by_name), "by_name": by_name}


def _saves(item: Item) -> int:
    return int(item.meta.get("saves", 1))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise refuse(
            "invalid_input",
            "bad_name",
            "name must be 1 to 64 letters, digits, - and _.",
            next_step=call_again(name=FILL),
            suggested_action="fix_syntax",
        )


def _seconds(ttl: str) -> int | None:
    """How long it lasts; None for ever."""
    if ttl == "permanent":
        return None
    if ttl == "session":
        return SESSION_S
    match = _DURATION.fullmatch(ttl)
    parts = [int(part or 0) for part in match.groups()] if match is not None else []
    seconds = sum(part * unit for part, unit in zip(parts, _UNITS, strict=False))
    if seconds <= 0 or seconds > 10**9:
        raise refuse(
            "invalid_input",
            "bad_ttl",
            "ttl must be session, permanent, or an ISO 8601 duration such as P7D or PT12H.",
            next_step=call_again(ttl=FILL),
            suggested_action="fix_syntax",
        )
    return seconds


def _told(item: Item) -> dict[str, Any]:
    return {
        "name": item.name,
        "format": item.meta["format"],
        "ttl": item.meta["ttl"],
        "checkpoint_path": _place(item.name),
        "sha256": item.sha.hex(),
        "bytes": item.size,
        "created_at": format_time(item.created),
        "updated_at": format_time(item.updated),
        "expires_at": format_time(item.expires) if item.expires is not None else None,
    }


def _place(name: str) -> str:
    return f"perdure://checkpoints/{name}"
