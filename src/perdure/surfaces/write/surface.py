"""The write surface as tools: their declarations, and the workspace behind them, opened at the first call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import msgspec

from perdure.model.envelope import ToolError
from perdure.model.replay import STILL_UNKNOWN
from perdure.model.tools import ToolSpec
from perdure.present.shape import Field, Payload, Shape
from perdure.storage.journal import StoreReplaced
from perdure.storage.os_errors import os_refusal
from perdure.surfaces.port import Call, KeyStatus, Resource, Tool
from perdure.surfaces.waiting import Steps, finished
from perdure.surfaces.write import reading, transacting, undoing, writing
from perdure.surfaces.write.declaring import reads, writes
from perdure.surfaces.write.layers import LAYERS
from perdure.surfaces.write.service import WriteService

P = TypeVar("P", bound=msgspec.Struct)

REOPEN_TRIES: Final = 3
STORE_REPLACED: Final = (
    "The store of the workspace was removed or replaced while it was open; it was opened anew. "
    "`perdure verify` tells which changes are lost."
)
FOLDER_REPLACED: Final = "Another directory has taken the place of the workspace; it was opened."

_WROTE = (
    Field("path"),
    Field("abs_path", full_only=True),
    Field("sha256", "digest"),
    Field("prev_sha256", "digest", full_only=True),
    Field("bytes", "bytes"),
    Field("mode_applied", full_only=True),
    Field("journal_id"),
    Field("wrote_at", full_only=True),
    Field("warnings", "items"),
    Field("deduplicated"),
)
WROTE = Shape("wrote {path}  {bytes}  sha256 {sha256}  journal {journal_id}", _WROTE)
EDITED = Shape(
    "edited {path}  {replacements} replacements  match {match}  {bytes}  sha256 {sha256}  journal {journal_id}",
    (*_WROTE, Field("replacements", "count"), Field("match")),
)
READ = Shape(
    "{path}  lines {start_line}-{end_line} of {total_lines}  {bytes}  sha256 {sha256}",
    (
        Field("path"),
        Field("sha256", "text"),
        Field("bytes", "bytes"),
        Field("encoding"),
        Field("eol"),
        Field("start_line", "count"),
        Field("end_line", "count"),
        Field("total_lines", "count"),
        Field("truncated"),
        Field("content", "block"),
    ),
)
_FILE = (
    Field("path"),
    Field("op"),
    Field("sha256", "digest"),
    Field("prev_sha256", "digest", full_only=True),
    Field("bytes", "bytes"),
    Field("journal_id"),
)
TRANSACTED = Shape(
    "transaction {transaction_id}  {files} changes",
    (
        Field("transaction_id"),
        Field("files", "table", columns=_FILE),
        Field("warnings", "items"),
        Field("deduplicated"),
    ),
)
_ROW = (
    Field("journal_id"),
    Field("ts"),
    Field("path"),
    Field("op"),
    Field("mode"),
    Field("sha256", "digest"),
    Field("prev_sha256", "digest", full_only=True),
    Field("bytes", "count"),
    Field("client"),
    Field("session", full_only=True),
    Field("transaction_id", full_only=True),
)
TAIL = Shape("{entries} entries", (Field("entries", "table", columns=_ROW), Field("next_cursor")))
VERSIONS = Shape(
    "{path}  {versions} versions",
    (
        Field("path"),
        Field("versions", "table", columns=tuple(f for f in _ROW if f.name not in ("path", "prev_sha256"))),
    ),
)
DIFF = Shape(
    lambda payload: (
        "{path}  {from} to {to}" if payload["changed"] else "{path}  {from} to {to}  no difference"
    ),
    (
        Field("path"),
        Field("from"),
        Field("to"),
        Field("changed"),
        Field("truncated", full_only=True),
        Field("diff", "block"),
    ),
)


def _undo_summary(payload: Payload) -> str:
    if payload["conflicts"]:
        return "nothing undone  {conflicts} conflicts"
    return "would undo {reverted} changes" if payload.get("dry_run") else "undid {reverted} changes"


UNDONE = Shape(
    _undo_summary,
    (
        Field(
            "reverted",
            "table",
            columns=(
                Field("path"),
                Field("undone"),
                Field("op"),
                Field("client"),
                Field("journal_id"),
                Field("sha256", "digest"),
                Field("session", full_only=True),
            ),
        ),
        Field("conflicts", "table", columns=(Field("path"), Field("reason"))),
        Field("journal_ids", "items", full_only=True),
        Field("dry_run"),
    ),
)
ANALYTICS = Shape(
    "{total_writes} writes  {unique_paths} files  {total_bytes_written}",
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
    finds out has changed nothing yet, and is made again.
    """

    name = "write"

    def __init__(self, open_service: Callable[[], WriteService]) -> None:
        self._open = open_service
        self._service: WriteService | None = None
        self._notices: list[str] = []
        self._users: dict[
            WriteService, int
        ] = {}  # a service that was given up is closed by the last call on it
        self._lock = threading.Lock()

    @property
    def service(self) -> WriteService:
        with self._used() as service:
            return service

    @contextmanager
    def _used(self, call: Call | None = None) -> Iterator[WriteService]:
        with self._lock:
            service = self._current()
            self._users[service] = self._users.get(service, 0) + 1
            notices = self._notices if call is not None else []
            self._notices = [] if call is not None else self._notices
        try:
            for notice in notices:
                call.log("alert", notice)  # type: ignore[union-attr]
            service.committer.pay_debts()
            yield service
        except StoreReplaced:
            with self._lock:
                if service is self._service:
                    self._give_up()
            raise
        finally:
            with self._lock:
                self._users[service] -= 1
                is_unused = not self._users[service]
                if is_unused:
                    del self._users[service]
                is_over = is_unused and service is not self._service
            if is_over:
                service.close()

    def _current(self) -> WriteService:
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
        is_folder = self._service.workspace.is_replaced()
        self._notices.append(FOLDER_REPLACED if is_folder else STORE_REPLACED)
        if self._service not in self._users:
            self._service.close()
        self._service = None

    def tools(self) -> Sequence[Tool]:
        return (
            self._stepwise(
                writes(
                    "safe_write",
                    "Write file",
                    "Create a file; mode=overwrite or append changes one. Default mode=create refuses an "
                    "existing file. Atomic, journaled, undoable. For passages use edit.",
                    writing.SafeWrite,
                    conflict=("/path",),
                    destructive=True,
                ),
                WROTE,
                writing.safe_write,
            ),
            self._tool(
                reads(
                    "read",
                    "Read file",
                    "Read a text file, or its lines from start_line to end_line, with the sha256 of the whole file.",
                    reading.Read,
                ),
                READ,
                reading.read,
            ),
            self._stepwise(
                writes(
                    "edit",
                    "Edit file",
                    "Replace exact passages in a file. Each old must occur exactly once (or count times). All "
                    "edits land or none. Read the file first.",
                    writing.EditFile,
                    conflict=("/path",),
                    destructive=True,
                ),
                EDITED,
                writing.edit,
            ),
            self._stepwise(
                writes(
                    "safe_replace",
                    "Replace text",
                    "Replace one passage of a file, as edit does with one pair of old and new. Prefer edit: it "
                    "takes several passages.",
                    writing.SafeReplace,
                    conflict=("/path",),
                    destructive=True,
                ),
                EDITED,
                writing.edit,
            ),
            self._tool(
                writes(
                    "transaction",
                    "Change several files",
                    "Change several files as one step, all or none: write, edit, patch (a diff), move, delete. "
                    "Also the way to move or delete one file.",
                    transacting.Transaction,
                    conflict=("/ops/*/path", "/ops/*/to"),
                    destructive=True,
                ),
                TRANSACTED,
                transacting.transaction,
            ),
            self._tool(
                reads(
                    "journal_tail",
                    "Recent changes",
                    "Recent changes to files by all agents: path, agent, time; newest last. "
                    "For the versions of one file use history.",
                    reading.JournalTail,
                ),
                TAIL,
                reading.journal_tail,
            ),
            self._tool(
                reads(
                    "history",
                    "File history",
                    "Versions of one file, newest first, with the journal_id that diff and restore take.",
                    reading.History,
                ),
                VERSIONS,
                reading.history,
            ),
            self._tool(
                reads(
                    "diff",
                    "Compare versions",
                    "Unified diff between two versions of a file. Default: from the version before the last "
                    "change to disk.",
                    reading.DiffParams,
                ),
                DIFF,
                reading.diff,
            ),
            self._tool(
                writes(
                    "undo",
                    "Undo changes",
                    'Undo your last change, or those chosen by n, path, since or journal_id; session="any" '
                    "includes other agents. Later edits are kept.",
                    undoing.Undo,
                    conflict=("/path",),
                    destructive=True,
                ),
                UNDONE,
                undoing.undo,
            ),
            self._tool(
                writes(
                    "restore",
                    "Restore version",
                    "Write back an old version of a file, by its journal_id from history. Undoable.",
                    writing.Restore,
                    conflict=("/path",),
                    destructive=True,
                    idempotent=True,
                ),
                WROTE,
                writing.restore,
            ),
            self._tool(
                reads(
                    "analytics",
                    "Write statistics",
                    "Statistics of writes through Perdure: per file, agent, mode and minute. For the changes "
                    "themselves use journal_tail.",
                    reading.Analytics,
                ),
                ANALYTICS,
                reading.analytics,
            ),
            *(self._tool(spec, shape, run) for spec, shape, run in LAYERS),
        )

    def _tool(
        self, spec: ToolSpec, shape: Shape, run: Callable[[WriteService, P, Call], dict[str, Any]]
    ) -> Tool:
        def handle(params: P, call: Call) -> dict[str, Any]:
            for _ in range(REOPEN_TRIES):
                with suppress(StoreReplaced), self._used(call) as service:
                    return run(service, params, call)
            with self._used(call) as service:
                return run(service, params, call)

        return Tool(spec, shape, handle)

    def _stepwise(
        self,
        spec: ToolSpec,
        shape: Shape,
        run: Callable[[WriteService, P, Call], Steps[dict[str, Any]]],
    ) -> Tool:
        async def steps(params: P, call: Call) -> dict[str, Any]:
            for _ in range(REOPEN_TRIES):
                with suppress(StoreReplaced), self._used(call) as service:
                    return await run(service, params, call)
            with self._used(call) as service:
                return await run(service, params, call)

        return Tool(spec, shape, lambda params, call: finished(steps(params, call)), self._is_at_hand, steps)

    def _is_at_hand(self) -> bool:
        """Not while the workspace is still to be opened, or its journal has something to make up for."""
        return self._service is not None and not self._service.committer.has_debts

    def resources(self) -> Sequence[Resource]:
        return ()

    def probe(self, key: str) -> KeyStatus:
        try:
            with self._used() as service:
                return service.probe(key)
        except ToolError:
            return STILL_UNKNOWN

    def close(self) -> None:
        with self._lock:
            if self._service is not None:
                self._service.close()
                self._service = None
