"""`read`, `journal_tail`, `history`, `diff`, `analytics`: what is on disk and what the journal knows."""

from __future__ import annotations

import base64
import os
from typing import Annotated, Any, Literal

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import FILL, call_again, call_tool
from perdure.protocol.tools import arg
from perdure.storage.files.fingerprint import Expected, read_seen
from perdure.storage.journal import Filter, Row
from perdure.surfaces.write import checkpoints, chunks
from perdure.surfaces.write.since import parse_since
from perdure.surfaces.write.write import PATH, row_of
from perdure.text import codec, diffs
from perdure.text.times import format_time
from perdure.workspace.entries import EntryState, state_after, state_before
from perdure.workspace.planning import MOST_IN_MEMORY, check_in_memory, journal_path
from perdure.workspace.undo.changes import sequence
from perdure.workspace.workspace import Workspace

MOST_ROWS = 1000
MODES = ("create", "overwrite", "append", "replace", "delete", "move")


class Read(msgspec.Struct, frozen=True):
    path: Annotated[str, PATH]
    start_line: Annotated[int, arg(ge=1)] | None = None
    end_line: Annotated[int, arg("Included.", ge=1)] | None = None
    max_bytes: Annotated[int, arg(ge=1, le=16 * 1024 * 1024)] = 262_144
    encoding: Annotated[Literal["utf-8", "utf-16", "latin-1", "base64"], arg("base64 for binary.")] | None = (
        None
    )


class JournalTail(msgspec.Struct, frozen=True):
    n: Annotated[int, arg(ge=1, le=MOST_ROWS)] = 20
    filter_path: Annotated[str, arg(path="relative")] | None = None
    filter_mode: Annotated[str, arg("create, overwrite, append, replace, delete or move.")] | None = None
    filter_client: Annotated[str, arg()] | None = None
    cursor: Annotated[str, arg("next_cursor of the page before.")] | None = None


class History(msgspec.Struct, frozen=True):
    path: Annotated[str, PATH]
    n: Annotated[int, arg(ge=1, le=MOST_ROWS)] = 20


class DiffParams(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    path: Annotated[str, PATH]
    from_: Annotated[str, arg("journal_id.")] | None = None
    to: Annotated[str, arg("journal_id or disk.")] = "disk"


class Analytics(msgspec.Struct, frozen=True):
    since: Annotated[str, arg("ISO 8601.")] | None = None
    session_filter: Annotated[str, arg()] | None = None


def read(workspace: Workspace, params: Read, call: Call) -> dict[str, Any]:
    since = workspace.begin_read()
    roots = workspace.roots
    with roots.locate(roots.anchored(params.path), purpose="read") as place:
        workspace.check_recovered(journal_path(place))
        fd = place.open()
        try:
            payload: dict[str, Any] = {"path": journal_path(place), "content": ""}
            if params.encoding == "base64":
                if params.start_line is not None or params.end_line is not None:
                    raise refuse(
                        "invalid_input",
                        "no_lines",
                        "base64 has no lines, so start_line and end_line cannot be given with it.",
                        next_step=call_again(start_line=None, end_line=None),
                        suggested_action="fix_syntax",
                    )
                data, expected = read_seen(fd, params.max_bytes)
                size = _size(expected)
                payload |= {
                    "content": base64.b64encode(data).decode(),
                    "sha256": expected.sha256,
                    "bytes": size,
                }
                payload |= {"encoding": "base64", "eol": "none", "start_line": None, "end_line": None}
                payload |= {"total_lines": None, "truncated": len(data) < size}
            else:
                check_in_memory(os.fstat(fd).st_size, journal_path(place))
                data, expected = read_seen(fd, MOST_IN_MEMORY)
                size = _size(expected)
                check_in_memory(size, journal_path(place))
                whole = codec.decode(data, params.encoding)
                part = codec.extract_lines(whole, params.start_line, params.end_line, params.max_bytes)
                payload |= {"content": part.content, "sha256": expected.sha256, "bytes": size}
                payload |= {"encoding": whole.style.name, "eol": whole.style.eol}
                payload |= {"start_line": part.start_line, "end_line": part.end_line}
                payload |= {"total_lines": part.total_lines, "truncated": part.truncated}
        finally:
            os.close(fd)
        workspace.record_read(call.session, journal_path(place), expected.sha256, since)
    return payload


def _size(expected: Expected) -> int:
    assert expected.identity is not None
    return expected.identity.size


def journal_tail(workspace: Workspace, params: JournalTail, call: Call) -> dict[str, Any]:
    before = sequence(params.cursor) if params.cursor is not None else None
    if before is None and params.cursor is not None:
        raise refuse(
            "invalid_input",
            "bad_cursor",
            "cursor must be the next_cursor of an earlier answer.",
            next_step=call_again(cursor=None),
            suggested_action="fix_syntax",
        )
    if params.filter_mode is not None and params.filter_mode not in MODES:
        raise refuse(
            "invalid_input",
            "not_a_choice",
            f"filter_mode must be {', '.join(MODES[:-1])} or {MODES[-1]}.",
            next_step=call_again(filter_mode=FILL),
            suggested_action="fix_syntax",
            choices=list(MODES),
        )
    path = workspace.journal_name(params.filter_path) if params.filter_path is not None else None
    wanted = Filter(path=path, mode=params.filter_mode, client=params.filter_client, before=before)
    rows = workspace.journal.rows(wanted, params.n + 1)
    payload: dict[str, Any] = {"entries": [_entry(row) for row in reversed(rows[: params.n])]}
    if len(rows) > params.n:
        payload["next_cursor"] = str(rows[params.n - 1].seq)
    return payload


def _entry(row: Row) -> dict[str, Any]:
    return {
        "journal_id": str(row.seq),
        "ts": format_time(row.ts),
        "path": row.path,
        "op": row.op,
        "mode": row.mode,
        "sha256": row.new_sha.hex() if row.new_sha is not None else None,
        "prev_sha256": row.old_sha.hex() if row.old_sha is not None else None,
        "bytes": row.bytes,
        "client": row.client,
        "session": row.session,
        **({"transaction_id": row.txn} if row.txn is not None else {}),
        **{key: row.detail[key] for key in ("moved_from", "moved_to", "kind") if key in row.detail},
    }


def history(workspace: Workspace, params: History, call: Call) -> dict[str, Any]:
    path = workspace.journal_name(params.path)
    rows = workspace.history(path, params.n)
    if not rows:
        raise refuse(
            "not_found",
            "no_history",
            f"Perdure has recorded no change of {path}.",
            next_step=call_tool("journal_tail"),
            suggested_action="reread",
            path=path,
        )
    shown = ("journal_id", "ts", "op", "mode", "sha256", "bytes", "client", "session", "kind")
    return {"path": path, "versions": [{k: v for k, v in _entry(row).items() if k in shown} for row in rows]}


def two_versions(workspace: Workspace, params: DiffParams) -> tuple[str, bytes | None, str, bytes | None]:
    """The canonical path, then the earlier content, its journal_id or `nothing`, and the later content."""
    path = workspace.journal_name(params.path)
    to_data, to_row = _side(workspace, path, params.to)
    if params.from_ is not None:
        row = row_of(workspace, path, params.from_, "from")
        return path, _loaded(workspace, row, state_after(row)), params.from_, to_data
    return path, *_before(workspace, path, to_data, to_row), to_data


def diff(workspace: Workspace, params: DiffParams, call: Call) -> dict[str, Any]:
    path, from_data, from_label, to_data = two_versions(workspace, params)
    found = diffs.unified_diff(
        from_data, to_data, old_label=f"{path}@{from_label}", new_label=f"{path}@{params.to}"
    )
    return {
        "path": path,
        "from": from_label,
        "to": params.to,
        "changed": found.changed,
        "diff": found.text,
        "truncated": found.truncated,
    }


def _side(workspace: Workspace, path: str, which: str) -> tuple[bytes | None, Row | None]:
    if which != "disk":
        row = row_of(workspace, path, which, "to")
        return _loaded(workspace, row, state_after(row)), row
    return workspace.read(path), None


def _before(workspace: Workspace, path: str, data: bytes | None, row: Row | None) -> tuple[bytes | None, str]:
    """The version before: before that row; or, for the disk, the last one that differs from it."""
    if row is None:
        row = workspace.journal.last_of(path)
        if row is None:
            return None, "nothing"
        known = _loaded(workspace, row, state_after(row))
        if known != data:
            return known, str(row.seq)
    older = workspace.journal.rows(Filter(path=path, before=row.seq), 1)
    label = str(older[0].seq) if older else "nothing"
    return _loaded(workspace, row, state_before(row)), label


def _loaded(workspace: Workspace, row: Row, state: EntryState | None) -> bytes | None:
    """The content of a version: a link's is its target, a directory has none."""
    if state is None or state.kind == "directory":
        return None if state is None else b""
    check_in_memory(workspace.store.find(state.sha.hex()).size, row.path)
    return workspace.store.load(state.sha.hex())


def analytics(workspace: Workspace, params: Analytics, call: Call) -> dict[str, Any]:
    sums = workspace.journal.analytics(parse_since(params.since), params.session_filter)
    return {
        **sums,
        "sessions": chunks.counted(workspace, params.session_filter),
        "checkpoints": checkpoints.counted(workspace),
    }
