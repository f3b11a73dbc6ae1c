"""Seeded bugs of writing and recovering, for the storms of kills.

A bug is in every Python that is started while it is `seeded`: PYTHONPATH leads to a `sitecustomize` that applies it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import apsw

from harness.seeded_bugs import Function, SeededBugs, after, before, do_nothing, replace, wrap
from perdure.kernel import calls
from perdure.kernel.core import Kernel
from perdure.kernel.state import Invocation
from perdure.platform import guardian
from perdure.platform.fault_points import point
from perdure.protocol.calls import Call
from perdure.protocol.faults import Fault
from perdure.protocol.frames import Members, encode_result
from perdure.storage.files.fingerprint import Expected
from perdure.storage.files.pending import PendingFile
from perdure.storage.journal import Draft, Intent, Row
from perdure.storage.sqlite import journal
from perdure.storage.sqlite.chain import GENESIS
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.surfaces.write.handoff import tools
from perdure.worker.server import Server
from perdure.workspace import drafts
from perdure.workspace.change import Change
from perdure.workspace.commit import Committer
from perdure.workspace.contents import Content, ContentStore
from perdure.workspace.paths.roots import Roots
from perdure.workspace.planning import PlannedFile, PlanView
from perdure.workspace.recovery import displaced, recover
from perdure.workspace.recovery.recover import Modes
from perdure.workspace.workspace import Workspace

VARIABLE: Final = "PERDURE_SEEDED_BUG"
SHARED: Final = "shared"
"""The trial of a bug that shows where an editor and a second worker change the same files."""
HOSTED: Final = "hosted"
"""The trial of a bug that shows where a host has the worker."""
_SITE: Final = Path(__file__).parent / "seeded"
BUGS: Final = SeededBugs()


@contextmanager
def seeded(name: str) -> Iterator[None]:
    """Every Python that is started from here on has the bug. Without a name, none has any."""
    if not name:
        yield
        return
    path = os.pathsep.join([str(_SITE), os.environ["PYTHONPATH"]])
    with patch.dict(os.environ, {VARIABLE: name, "PYTHONPATH": path}):
        # Python only warns of a sitecustomize that fails, and goes on without it.
        subprocess.run([sys.executable, "-c", "import sitecustomize"], check=True)
        yield


# --- the journal ------------------------------------------------------------------------------------------


class _LateConnection:
    """Leaves a transaction open, and what follows in it, until the third is committed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        if statement.startswith("BEGIN") and self._connection.in_transaction:
            return None
        if statement == "COMMIT":
            self._commits += 1
            if self._commits % 3:
                return None
        return self._connection.execute(statement, *values)


@BUGS.add("a write is acknowledged before the journal commits")
def acknowledged_before_commit() -> None:
    def make(original: Callable[[str, str], apsw.Connection]) -> Function:
        def open_database(path: str, family: str) -> _LateConnection:
            return _LateConnection(original(path, family))

        return open_database

    wrap(journal, "open_database", make)


@BUGS.add("no invocation is recorded")
def no_invocation_is_recorded() -> None:
    replace(SqliteJournal, "record_invocation", do_nothing)


@BUGS.add("what had landed is not marked", SHARED)
def landed_is_not_marked() -> None:
    replace(SqliteJournal, "set_applied_watermark", do_nothing)


@BUGS.add("the chain begins anew at every row")
def chain_begins_anew() -> None:
    def forget_head(self: SqliteJournal, row: object) -> None:
        self._head = (self._head[0], GENESIS)

    before(SqliteJournal, "append", forget_head)


@BUGS.add("what is replaced is not kept")
def replaced_is_not_kept() -> None:
    def stage(tree: PlanView, known: PlannedFile, *_: Any, **__: Any) -> None:
        known.changed = True

    before(PlanView, "stage", stage)


@BUGS.add("a draft is promised and not kept")
def draft_is_not_kept() -> None:
    def save(service: Workspace, call: Call, path: str, content: Content, reason: str) -> None:
        draft = Draft(drafts.draft_id(content), content.digest, content.size, path, reason)
        service.journal.save_draft(draft, call.client, call.session)

    replace(drafts, "_save", save)


# --- files ------------------------------------------------------------------------------------------------


@BUGS.add("a file lands before it is decided")
def lands_before_decision() -> None:
    def make(original: Function) -> Function:
        def stage(change: Change) -> None:
            original(change)
            change.apply()
            replace(change, "apply", do_nothing)

        return stage

    wrap(Change, "stage", make)


@BUGS.add("files are written in place")
def files_are_written_in_place() -> None:
    def replace_if(pending: PendingFile, expected: Expected, **_: bool) -> None:
        pending.seal()
        target = os.open(pending.name, os.O_WRONLY | os.O_TRUNC, dir_fd=pending.dir_fd)
        point("write.exchanged")
        os.write(target, os.pread(pending._fd, 1 << 30, 0))
        os.close(target)

    replace(PendingFile, "replace_if", replace_if)


# --- recovery ---------------------------------------------------------------------------------------------


@BUGS.add("recovery is skipped")
def recovery_is_skipped() -> None:
    replace(recover, "recover", do_nothing)


@BUGS.add("a running process does not look for what another left", SHARED)
def intents_of_others_are_ignored() -> None:
    replace(Committer, "_needs_recovery", lambda committer: False)


@BUGS.add("temporary files are not swept")
def temporary_files_stay() -> None:
    replace(recover, "_sweep", do_nothing)


@BUGS.add("what was put aside is not put back", SHARED)
def set_aside_stays() -> None:
    replace(displaced, "restore_displaced", do_nothing)


@BUGS.add("the rest of a transaction that lost a file stays", SHARED)
def transaction_stays_in_part() -> None:
    def parted(intents: list[Intent], lost: list[Row]) -> list[Row]:
        return []

    replace(recover, "_parted", parted)


@BUGS.add("what did not land is called settled")
def unapplied_is_settled() -> None:
    def make(original: Function) -> Function:
        def settle(
            workspace: Roots, store: ContentStore, intents: list[Intent], closing: Modes, *, has_landed: bool
        ) -> Any:
            is_multiple = intents[-1].row.txn is not None
            return original(workspace, store, intents, closing, has_landed=has_landed or is_multiple)

        return settle

    wrap(recover, "_settle", make)


@BUGS.add("another program's edit is written over at recovery", SHARED)
def foreign_edit_is_overwritten() -> None:
    replace(recover, "_is_ours", lambda *_: True)


# --- host and worker ----------------------------------------------------------------------------------------


@BUGS.add("a lost call is given up without asking", HOSTED)
def lost_call_is_given_up() -> None:
    def hold(k: Kernel, call: Invocation, fault: Fault, *, may_run: bool) -> None:
        calls.answer_unknown(k, call, fault)

    replace(calls, "hold", hold)


@BUGS.add("a recovered call is answered twice", HOSTED)
def recovered_call_is_answered_twice() -> None:
    def answer(k: Kernel, call: Invocation, result: bytes, extra: Members | None) -> None:
        if call.probes:
            k.to_client(encode_result(call.public_id, result, extra))

    after(calls, "_answer", answer)


@BUGS.add("a worker outlives its host", HOSTED)
def worker_outlives_its_host() -> None:
    replace(guardian, "_end", do_nothing)
    after(Server, "serve", lambda *_, **__: threading.Event().wait(8))


@BUGS.add("a worker falls, and its host makes up for it", HOSTED)
def worker_falls() -> None:
    def checked(envelope: dict[str, Any]) -> None:
        if os.getpid() % 3 == 0:
            os.abort()

    before(tools, "_checked", checked)
