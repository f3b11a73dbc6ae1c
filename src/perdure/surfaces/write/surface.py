"""The write surface as tools: their declarations, and the workspace behind them, opened at the first call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from shlex import quote
from typing import Any, Final, TypeVar

import msgspec

from perdure.present.shape import Field, Payload, Shape
from perdure.present.tool_errors import os_refusal
from perdure.protocol.calls import Call, KeyStatus
from perdure.protocol.envelope import ToolError
from perdure.protocol.replay import STILL_UNKNOWN
from perdure.protocol.tools import ToolSpec
from perdure.storage.errors import StorageError, StoreReplaced
from perdure.surfaces.port import Resource, Tool
from perdure.surfaces.write import read, reserve, timeline, transaction, undo, write
from perdure.surfaces.write.declarations import reads, writes
from perdure.surfaces.write.layer_tools import LAYERS
from perdure.workspace.undo.revert import (
    CHANGED_SINCE,
    LATER_EDIT,
    NOT_EMPTY,
    RESERVED_PATH,
    UNKNOWN_CONTENT,
)
from perdure.workspace.workspace import Workspace

P = TypeVar("P", bound=msgspec.Struct)

STORE_REPLACED: Final = (
    "The store of the workspace was removed or replaced while it was open; it was opened anew. "
    "`perdure verify` tells which changes are lost."
)
NOT_COVERED_TOLD: Final = 20
FOLDER_REPLACED: Final = "Another directory has taken the place of the workspace; it was opened."

_WROTE = (
    Field("path"),
    Field("abs_path", full_only=True),
    Field("sha256", "digest"),
    Field("prev_sha256", "digest", full_only=True),
    Field("bytes", "bytes"),
    Field("mode_applied", full_only=True),
    Field("journal_id"),
    Field("wrote_at", "time", full_only=True),
    Field("warnings", "items"),
    Field("deduplicated", quiet=True),
)
_RESULT = "{path}  {bytes}  sha256 {sha256}  journal {journal_id}"
_DEDUPLICATED = "  not done again: same idempotency_key"


def _wrote(verb: str) -> Callable[[Payload], str]:
    """The line about one changed file: an unchanged one, a deleted one and a repeated call are named as such."""

    def summary(payload: Payload) -> str:
        again = _DEDUPLICATED if payload.get("deduplicated") else ""
        if payload["sha256"] is None:
            return "deleted {path}  journal {journal_id}" + again
        if payload["sha256"] == payload.get("prev_sha256"):
            return f"unchanged {_RESULT}  the content was already the same{again}"
        return f"{verb} {_RESULT}{again}"

    return summary


WROTE = Shape(_wrote("wrote"), _WROTE)
RESTORED = Shape(_wrote("restored"), _WROTE)
EDITED = Shape(
    "edited {path}  {replacements:replacement}  match {match}  {bytes}  sha256 {sha256}  journal {journal_id}",
    (*_WROTE, Field("replacements", "count"), Field("match")),
)


def _read_summary(payload: Payload) -> str:
    size = "{bytes}  sha256 {sha256}"
    if not payload["bytes"]:
        return f"{{path}}  empty file  {size}"
    unusual = "" if payload["encoding"] == "utf-8" else "  {encoding}"
    if payload["eol"] in ("crlf", "mixed"):
        unusual += "  line endings {eol}"
    lines = "lines {start_line}-{end_line} of {total_lines}  " if payload["total_lines"] is not None else ""
    return f"{{path}}  {lines}{size}{unusual}" + ("  cut" if payload["truncated"] else "")


def _read_on(payload: Payload) -> str | None:
    """The call that reads on where this one was cut."""
    if not payload["truncated"]:
        return None
    path, end = quote(payload["path"]), payload["end_line"]
    if end is None:
        return f"next: read path={path} encoding=base64 max_bytes={payload['bytes']}"
    shown = payload["content"]
    if shown.endswith("\n") and end < payload["total_lines"]:
        return f"next: read path={path} start_line={end + 1}"
    # A line that is longer than max_bytes: only its beginning is here.
    return f"next: read path={path} start_line={end} end_line={end} max_bytes={payload['bytes']}"


READ = Shape(
    _read_summary,
    (
        Field("path"),
        Field("sha256", "digest"),
        Field("bytes", "bytes"),
        Field("encoding", quiet=True),
        Field("eol", quiet=True),
        Field("start_line", "count", quiet=True),
        Field("end_line", "count", quiet=True),
        Field("total_lines", "count", quiet=True),
        Field("truncated", quiet=True),
        Field("content", "block"),
    ),
    hint=_read_on,
)
_MOVED = (Field("moved_from", full_only=True), Field("moved_to", full_only=True))
_FILE = (
    Field("path"),
    Field("op"),
    Field("sha256", "digest"),
    Field("prev_sha256", "digest", full_only=True),
    Field("bytes", "bytes"),
    Field("journal_id"),
    *_MOVED,
)


def _join_moves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A move is two rows of the journal, and one line for a reader: from -> to."""
    targets = {(row["moved_from"], row["path"]) for row in rows if row.get("moved_from")}
    joined = []
    for row in rows:
        if row.get("moved_from"):
            joined.append({**row, "path": f"{row['moved_from']} -> {row['path']}"})
        elif not row.get("moved_to"):
            joined.append(row)
        elif (row["path"], row["moved_to"]) not in targets:
            joined.append({**row, "path": f"{row['path']} -> {row['moved_to']}"})
    return joined


def _transacted(payload: Payload) -> str:
    again = _DEDUPLICATED if payload.get("deduplicated") else ""
    files = payload["files"]
    if len(_join_moves(files)) > 1:
        return "transaction {transaction_id}  {files:change}" + again
    path = "{files.0.moved_from} -> {files.0.path}" if files[0].get("moved_from") else "{files.0.path}"
    size = "" if files[0]["sha256"] is None else "  {files.0.bytes}  sha256 {files.0.sha256}"
    return (
        f"transaction {{transaction_id}}  {{files.0.op}} {path}{size}  journal {{files.0.journal_id}}{again}"
    )


TRANSACTED = Shape(
    _transacted,
    (
        Field("transaction_id"),
        Field("files", "table", columns=_FILE, words=_join_moves),
        Field("warnings", "items"),
        Field("deduplicated", quiet=True),
    ),
)
_ROW = (
    Field("journal_id"),
    Field("ts", "time"),
    Field("path"),
    Field("op"),
    Field("mode"),
    Field("sha256", "digest"),
    Field("prev_sha256", "digest", full_only=True),
    Field("bytes", "count"),
    Field("client"),
    Field("session", full_only=True),
    Field("transaction_id", full_only=True),
    Field("kind"),
    *_MOVED,
)


def _older(payload: Payload) -> str | None:
    cursor = payload.get("next_cursor")
    return f"older entries: give cursor={quote(cursor)}" if cursor is not None else None


TAIL = Shape(
    "{entries:entry/entries}",
    (Field("entries", "table", columns=_ROW, words=_join_moves), Field("next_cursor", quiet=True)),
    hint=_older,
)
PATHS_SHOWN: Final = 3


def _with_few_paths(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of many paths the first ones; the number of files stands beside them."""
    return [
        {**change, "paths": ", ".join(change["paths"][:PATHS_SHOWN]) + ", …" * _has_more(change)}
        for change in changes
    ]


def _has_more(change: dict[str, Any]) -> bool:
    return len(change["paths"]) > PATHS_SHOWN or "more_paths" in change


def _places(places: list[dict[str, Any]]) -> list[str]:
    """What is not covered, by its reason. Not every folder's files are counted."""
    by_reason: dict[str, list[int]] = {}
    for place in places:
        by_reason.setdefault(place["reason"], []).append(place["files"] or 0)
    counts = {
        reason: (sum(files), "file") if any(files) else (len(files), "place")
        for reason, files in by_reason.items()
    }
    return [f"{reason} {number:,} {noun}{'s' * (number != 1)}" for reason, (number, noun) in counts.items()]


TIMELINE = Shape(
    lambda payload: "{changes:change}" + ("  session {session}" if payload.get("session") else ""),
    (
        Field(
            "changes",
            "table",
            columns=(
                Field("id"),
                Field("ts", "time"),
                Field("client"),
                Field("session", full_only=True),
                Field("agent"),
                Field("turn", "count"),
                Field("tool"),
                Field("call_id", full_only=True),
                Field("command"),
                Field("status"),
                Field("files", "count"),
                Field("added", "count"),
                Field("removed", "count"),
                Field("paths", "items"),
                Field("more_paths", "count", full_only=True),
                Field("head", "json", full_only=True),
                Field("shared_with", "items", full_only=True),
                Field("not_covered", "items", full_only=True),
                Field("transaction_id", full_only=True),
            ),
            words=_with_few_paths,
        ),
        Field("session", quiet=True),
        Field(
            "not_covered",
            "table",
            columns=(Field("path"), Field("reason"), Field("files", "count")),
            words=_places,
        ),
        Field("next_cursor", quiet=True),
    ),
    hint=_older,
)
VERSIONS = Shape(
    "{path}  {versions:version}",
    (
        Field("path"),
        Field("versions", "table", columns=tuple(f for f in _ROW if f.name not in ("path", "prev_sha256"))),
    ),
)


def _reserve_summary(payload: Payload) -> str:
    if payload["status"] == "held":
        return "held by {holders.0.client} until {holders.0.until}: {holders.0.path}"
    if "expires_at" not in payload:  # a list
        return "{holders:reserved path}"
    until = "  until {expires_at}" if payload["expires_at"] is not None else ""
    return f"{{status}}  token {{token}}{until}"


RESERVED = Shape(
    _reserve_summary,
    (
        Field("status"),
        Field("token", quiet=True),
        Field("expires_at", "time", quiet=True),
        Field(
            "holders",
            "table",
            columns=(
                Field("path"),
                Field("mode"),
                Field("owner", full_only=True),
                Field("client"),
                Field("agent"),
                Field("turn", "count"),
                Field("since", "time"),
                Field("until", "time"),
                Field("reason"),
                Field("token"),
            ),
        ),
    ),
)


def _diff_summary(payload: Payload) -> str:
    line = "{path}  {from} to {to}"
    if not payload["changed"]:
        return f"{line}  no difference"
    return f"{line}  cut" if payload["truncated"] else line


DIFF = Shape(
    _diff_summary,
    (
        Field("path"),
        Field("from"),
        Field("to"),
        Field("changed", quiet=True),
        Field("truncated", full_only=True),
        Field("diff", "block"),
    ),
    hint=lambda payload: f"next: read path={quote(payload['path'])}" if payload["truncated"] else None,
)


UNDO_CONFLICTS: Final = {
    LATER_EDIT: "was changed afterwards in the same lines",
    CHANGED_SINCE: "was created, deleted or replaced afterwards",
    NOT_EMPTY: "is a directory that has other files by now",
    UNKNOWN_CONTENT: "cannot be put back: its content before that change is not known",
    RESERVED_PATH: "is reserved",
}


def _undo_summary(payload: Payload) -> str:
    """One change is named with its author; several are counted, and a table names them."""
    conflicts, rows = payload["conflicts"], payload["reverted"]
    if len(conflicts) == 1:
        by = " (by {conflicts.0.by})" if conflicts[0].get("by") else ""
        return f"nothing undone: {{conflicts.0.path}} {_conflict(conflicts[0])}{by}"
    if conflicts:
        return "nothing undone: {conflicts:conflict}"
    is_redo, is_dry = payload.get("redo"), payload.get("dry_run")
    verb = ("would redo" if is_dry else "redid") if is_redo else ("would undo" if is_dry else "undid")
    others = sum(not row["this_session"] for row in rows)
    if not rows:
        return f"{verb} nothing: {{kept:file}} kept"
    if len(_join_moves(rows)) != 1:
        return f"{verb} {{reverted:change}}" + (f", {others} by another session" if others else "")
    at, row = next(((n, row) for n, row in enumerate(rows) if row.get("moved_from")), (0, rows[0]))
    path = f"{{reverted.{at}.path}}"
    if row.get("moved_from"):
        path = f"{{reverted.{at}.moved_from}} -> {path}"
    author = f"by {{reverted.{at}.client}}, " + ("another session" if others else "this session")
    if is_redo:
        return f"{verb} {path} (takes back undo {{reverted.{at}.undone}}, {author})"
    change = row["mode"] if row["op"] == "write" else row["op"]
    return f"{verb} {change} of {path} (journal {{reverted.{at}.undone}}, {author})"


def _conflict(conflict: Payload) -> str:
    reason = conflict["reason"]
    return UNDO_CONFLICTS.get(reason, f"cannot be changed: {reason}")


def _conflicts(conflicts: list[dict[str, Any]]) -> list[str]:
    return [
        f"{conflict['path']} {_conflict(conflict)}"
        + (f" (by {conflict['by']})" if conflict.get("by") else "")
        for conflict in conflicts
    ]


def _undo_hint(payload: Payload) -> str | None:
    """The call that shows a conflict, does what a dry run showed, or takes the undo back."""
    if payload["conflicts"]:
        conflict = payload["conflicts"][0]
        if conflict["reason"] == RESERVED_PATH:
            return "next: reserve action=list   (or the same call later)"
        path = quote(conflict["path"])
        return f"next: diff path={path} from={conflict['undone']}   (or history path={path}, then restore)"
    rows, redo = payload["reverted"], " redo=true" if payload.get("redo") else ""
    if not rows:
        return None
    if payload.get("dry_run") and "by_author" in payload:
        return "nothing was changed; to do it: the same call with dry_run=false"
    if payload.get("dry_run"):
        is_one = len({row.get("transaction_id") or row["undone"] for row in rows}) == 1
        same = f"undo journal_id={rows[0]['undone']}{redo}" if is_one else "the same call without dry_run"
        return f"nothing was changed; to do it: {same}"
    return None if redo else f"redo: undo redo=true journal_id={rows[0]['journal_id']}"


def _authors(authors: list[dict[str, Any]]) -> list[str]:
    return [
        f"{one['client']}{' ' + one['agent'] if one.get('agent') else ''}: "
        f"{one['changes']} change{'s' if one['changes'] != 1 else ''}, {one['files']} file{'s' if one['files'] != 1 else ''}"
        for one in authors
    ]


def _not_covered(places: list[dict[str, Any]]) -> list[str]:
    return [
        f"{place['path']} ({place['reason']}{', ' + str(place['files']) + ' files' if place.get('files') else ''})"
        for place in places[:NOT_COVERED_TOLD]
    ]


_UNDONE = (
    Field(
        "reverted",
        "table",
        columns=(
            Field("path"),
            Field("undone"),
            Field("op"),
            Field("mode", full_only=True),
            Field("client"),
            Field("this_session", full_only=True),
            Field("journal_id"),
            Field("sha256", "digest"),
            Field("session", full_only=True),
            Field("transaction_id", full_only=True),
            Field("agent", full_only=True),
            Field("kind", full_only=True),
            *_MOVED,
        ),
        words=_join_moves,
    ),
    Field(
        "conflicts",
        "table",
        columns=(Field("path"), Field("reason"), Field("by"), Field("undone"), Field("lines", "json")),
        words=_conflicts,
    ),
    Field("kept", "items", words=lambda paths: [f"later edits of {path}" for path in paths]),
    Field("journal_ids", "items", full_only=True),
    Field("redo", quiet=True),
    Field("session"),
    Field("dry_run", quiet=True),
)
UNDONE = Shape(_undo_summary, _UNDONE, hint=_undo_hint)
REWOUND = Shape(
    _undo_summary,
    (
        Field(
            "by_author",
            "table",
            columns=(Field("client"), Field("agent"), Field("changes", "count"), Field("files", "count")),
            words=_authors,
        ),
        *_UNDONE,
        Field(
            "not_covered",
            "table",
            columns=(Field("path"), Field("reason"), Field("files", "count")),
            words=_not_covered,
        ),
        Field("head", "json"),
    ),
    hint=_undo_hint,
)
ANALYTICS = Shape(
    "{total_writes:write}  {unique_paths:file}  {total_bytes_written}",
    (
        Field("total_writes", "count"),
        Field("unique_paths", "count"),
        Field("total_bytes_written", "bytes"),
        Field("by_mode", "json"),
        Field("by_caller", "json"),
        Field("hot_paths", "table", columns=(Field("path"), Field("writes", "count"))),
        Field("write_velocity", "json"),
        Field("period", "json"),
        Field("sessions", "json", full_only=True),
        Field("checkpoints", "json", full_only=True),
        Field("timeline", "json", full_only=True),
    ),
)


class WriteSurface:
    """`open_service` opens the workspace, for the first call that needs it.

    It is opened again where the store or the folder of the workspace was removed or replaced meanwhile. A call that
    finds out has changed nothing yet: it fails with `StoreReplaced`, and can be made again.
    """

    name = "write"

    def __init__(self, open_service: Callable[[], Workspace]) -> None:
        self._open = open_service
        self._service: Workspace | None = None
        self._notices: list[str] = []
        self._users: dict[Workspace, int] = {}  # a service that was given up is closed by the last call on it
        self._lock = threading.Lock()

    @property
    def service(self) -> Workspace:
        with self.use() as service:
            return service

    @contextmanager
    def use(self, call: Call | None = None) -> Iterator[Workspace]:
        """The open workspace, which stays open meanwhile."""
        service = self._acquire(call)
        error: BaseException | None = None
        try:
            yield service
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._release(service, error)

    def _acquire(self, call: Call | None = None, *, commits: bool = False) -> Workspace:
        """The open workspace, which stays open until it is released. Whether its store was replaced is checked here, or
        in the round of a call that `commits`."""
        with self._lock:
            service = self._service if commits and self._service is not None else self._current()
            self._users[service] = self._users.get(service, 0) + 1
            notices = self._notices if call is not None else []
            self._notices = [] if call is not None else self._notices
        try:
            for notice in notices:
                call.log("alert", notice)  # type: ignore[union-attr]
            service.committer.record_failures()
        except BaseException as error:
            self._release(service, error)
            raise
        return service

    def _release(self, service: Workspace, error: BaseException | None = None) -> None:
        """`error` is what the call failed with: a workspace whose store was replaced is not used again."""
        with self._lock:
            if isinstance(error, StoreReplaced) and service is self._service:
                self._give_up()
            self._users[service] -= 1
            is_unused = not self._users[service]
            if is_unused:
                del self._users[service]
            is_over = is_unused and service is not self._service
        if is_over:
            service.close()

    def _current(self) -> Workspace:
        try:
            if self._service is not None and self._service.is_replaced():
                self._give_up()
            if self._service is None:
                self._service = self._open()
        except OSError as error:
            raise os_refusal(error, of="workspace") from None
        return self._service

    def _give_up(self) -> None:
        """The next call opens another. Calls that still use this one finish on it, and are refused."""
        assert self._service is not None
        is_folder = self._service.roots.is_replaced()
        self._notices.append(FOLDER_REPLACED if is_folder else STORE_REPLACED)
        if self._service not in self._users:
            self._service.close()
        self._service = None

    def tools(self) -> Sequence[Tool]:
        return (
            self._commit_tool(
                writes(
                    "safe_write",
                    "Write file",
                    "Create a file, or change one with mode=overwrite or append. Default mode=create refuses an "
                    "existing file. Atomic, journaled, undoable. For passages use edit.",
                    write.SafeWrite,
                    conflict=("/path",),
                    destructive=True,
                ),
                WROTE,
                write.safe_write,
            ),
            self._tool(
                reads(
                    "read",
                    "Read file",
                    "Read a text file, or its lines from start_line to end_line, with the sha256 of the whole file.",
                    read.Read,
                    conflict=("/path",),
                ),
                READ,
                read.read,
            ),
            self._commit_tool(
                writes(
                    "edit",
                    "Edit file",
                    "Replace exact passages in a file. Each old must occur exactly once (or count times). All "
                    "edits land or none. Read the file first.",
                    write.EditFile,
                    conflict=("/path",),
                    destructive=True,
                ),
                EDITED,
                write.edit,
            ),
            self._commit_tool(
                writes(
                    "safe_replace",
                    "Replace text",
                    "Replace one passage of a file, as edit does with one pair of old and new. Prefer edit: it "
                    "takes several passages.",
                    write.SafeReplace,
                    conflict=("/path",),
                    destructive=True,
                ),
                EDITED,
                write.edit,
            ),
            self._tool(
                writes(
                    "transaction",
                    "Change several files",
                    "Change several files as one step, all or none: write, edit, patch (a diff), move, delete. "
                    "Also the way to move or delete one file.",
                    transaction.Transaction,
                    conflict=("/ops/*/path", "/ops/*/to"),
                    destructive=True,
                ),
                TRANSACTED,
                transaction.transaction,
            ),
            self._tool(
                reads(
                    "journal_tail",
                    "Recent changes",
                    "Recent changes to files by all agents: path, agent, time; newest last. "
                    "For the versions of one file use history.",
                    read.JournalTail,
                ),
                TAIL,
                read.journal_tail,
            ),
            self._tool(
                reads(
                    "timeline",
                    "Timeline of changes",
                    "Changes by tool call, of all agents and other programs, shell commands included: who, turn, tool, "
                    "command, files, lines; newest last. For single files use journal_tail.",
                    timeline.Timeline,
                ),
                TIMELINE,
                timeline.timeline,
            ),
            self._tool(
                reads(
                    "history",
                    "File history",
                    "Versions of one file, newest first, with the journal_id that diff and restore take.",
                    read.History,
                    conflict=("/path",),
                ),
                VERSIONS,
                read.history,
            ),
            self._tool(
                reads(
                    "diff",
                    "Compare versions",
                    "Unified diff between two versions of a file. Default: from the version before the last "
                    "change to disk.",
                    read.DiffParams,
                    conflict=("/path",),
                ),
                DIFF,
                read.diff,
            ),
            self._tool(
                writes(
                    "undo",
                    "Undo changes",
                    "Undo your last n changes, one change by its id, those of a file or folder, or all of a turn, of a "
                    "subagent, since a time. Later edits are kept.",
                    undo.Undo,
                    conflict=("/path",),
                    destructive=True,
                ),
                UNDONE,
                undo.undo,
            ),
            self._tool(
                writes(
                    "rewind",
                    "Rewind workspace",
                    "Restore the workspace to before a change: undo it and all later ones, by any agent or program. "
                    "For single changes use undo.",
                    undo.Rewind,
                    conflict=("/path",),
                    destructive=True,
                ),
                REWOUND,
                undo.rewind,
            ),
            self._tool(
                writes(
                    "restore",
                    "Restore version",
                    "Write back an old version of a file, by its journal_id from history.",
                    write.Restore,
                    conflict=("/path",),
                    destructive=True,
                    idempotent=True,
                ),
                RESTORED,
                write.restore,
            ),
            self._tool(
                writes(
                    "reserve",
                    "Reserve paths",
                    "Reserve files, folders or globs, so that other agents cannot write them: acquire, renew, release, "
                    "list. For shared values use lease.",
                    reserve.Reserve,
                ),
                RESERVED,
                reserve.reserve,
            ),
            self._tool(
                reads(
                    "analytics",
                    "Write statistics",
                    "Statistics of writes through Perdure: per file, agent, mode and minute. For the changes "
                    "themselves use journal_tail.",
                    read.Analytics,
                ),
                ANALYTICS,
                read.analytics,
            ),
            *(self._tool(spec, shape, run) for spec, shape, run in LAYERS),
        )

    def _tool(
        self, spec: ToolSpec, shape: Shape, run: Callable[[Workspace, P, Call], dict[str, Any]]
    ) -> Tool:
        def handle(params: P, call: Call) -> dict[str, Any]:
            with self.use(call) as service:
                return run(service, params, call)

        return Tool(spec, shape, handle)

    def _commit_tool(
        self,
        spec: ToolSpec,
        shape: Shape,
        run: Callable[[Workspace, P, Call], Future[dict[str, Any]]],
    ) -> Tool:
        """A tool that answers from the commit thread: no thread waits for its round."""

        def handle(params: P, call: Call) -> Future[dict[str, Any]]:
            service = self._acquire(call, commits=True)
            try:
                future = run(service, params, call)
            except BaseException as error:
                # A large content may have been written to a store that is gone.
                failure = StoreReplaced() if service.is_replaced() else error
                self._release(service, failure)
                raise failure from None
            future.add_done_callback(lambda done: self._release(service, done.exception()))
            return future

        return Tool(spec, shape, handle, self._is_brief)

    def _is_brief(self, params: Any) -> bool:
        """Not while the workspace is still to be opened, or its journal has failures to record. A draft may be large."""
        service = self._service
        is_open = service is not None and not service.committer.has_unrecorded
        return is_open and getattr(params, "draft", None) is None

    def resources(self) -> Sequence[Resource]:
        return ()

    def probe(self, key: str) -> KeyStatus:
        try:
            with self.use() as service:
                return service.probe(key)
        except (ToolError, StorageError):
            return STILL_UNKNOWN

    def close(self) -> None:
        with self._lock:
            service = self._service
        if service is not None:
            # Not under the lock: closing waits for the commit thread, whose callbacks release the workspace.
            service.close()
            with self._lock:
                self._service = None
