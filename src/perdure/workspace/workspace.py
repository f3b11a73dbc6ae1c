"""One open workspace: recovered before the first call, shared by all threads."""

from __future__ import annotations

import os
import threading
import time
from binascii import hexlify
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.platform import directories
from perdure.platform.sync import sync_directory
from perdure.protocol.calls import Call, Done, KeyStatus
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again
from perdure.protocol.replay import SAFE_TO_RETRY, STILL_UNKNOWN
from perdure.protocol.tools import View
from perdure.storage.blobs import Blobs
from perdure.storage.errors import StoreReplaced
from perdure.storage.files.held_files import HeldFiles
from perdure.storage.journal import Filter, Journal, Row
from perdure.storage.process_lock import LOCK_S
from perdure.storage.user_dirs import data_dir, state_dir
from perdure.storage.workspace_store import Setting, StorePlace, find, refuse_link, stores_folder
from perdure.workspace.change import Change, Plan
from perdure.workspace.commit import Committer
from perdure.workspace.contents import Content, ContentStore
from perdure.workspace.deferred import DeferredWork
from perdure.workspace.file_read import read_file
from perdure.workspace.paths.roots import Roots
from perdure.workspace.planning import Sighting, canonical
from perdure.workspace.policy import DEFAULT, Policy
from perdure.workspace.recovery import recover
from perdure.workspace.reservations.access import OpenState, open_reservations
from perdure.workspace.reservations.settings import ReservationSettings
from perdure.workspace.retention import RetentionTask
from perdure.workspace.retention_limits import Keep
from perdure.workspace.seen_files import Saved, SeenFiles
from perdure.workspace.timeline.settings import TimelineSettings
from perdure.workspace.writer_lock import WriterLock

if TYPE_CHECKING:
    from perdure.validate.sandbox import Checker


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`store` is where the journal is. With `strict` each file is synced before its change is acknowledged.
    `policy_rules` protect more paths than the policy does."""

    store: Setting = "data"
    strict: bool = False
    keep: Keep = Keep()
    timeline: TimelineSettings = TimelineSettings()
    reservations: ReservationSettings = ReservationSettings()
    policy: Policy = DEFAULT
    policy_rules: tuple[str, ...] = ()
    scratch_get: bool = True


DEFAULT_SETTINGS: Final = WorkspaceSettings()


class Workspace:
    """Made by `open`. Call `close`, or use `contextlib.closing`."""

    @classmethod
    def open(
        cls,
        roots: tuple[str, ...],
        settings: WorkspaceSettings = DEFAULT_SETTINGS,
        *,
        is_read_only: bool = False,
        lock_s: float = LOCK_S,
        open_state: OpenState | None = None,
    ) -> Workspace:
        """The workspace of these folders (absolute paths), recovered. Relative paths, and the store, belong to the first.

        With `is_read_only` nothing is created, recovered or retired, and no lock is taken. `lock_s` is how long a commit
        waits for another process. `open_state` opens the state store, for reservations of a whole repository."""
        from perdure.storage.sqlite.journal import (
            SqliteJournal,  # a worker that lists its tools needs no database
        )
        from perdure.storage.sqlite.store_setup import prepare

        place = find(roots[0], settings.store) if is_read_only else prepare(roots[0], settings.store, lock_s)
        return cls(
            roots,
            place,
            lambda: SqliteJournal(place.folder, place.anchor, is_read_only=is_read_only),
            settings,
            is_read_only=is_read_only,
            lock_s=lock_s,
            open_state=open_state,
        )

    def __init__(
        self,
        roots: tuple[str, ...],
        place: StorePlace,
        open_journal: Callable[[], Journal],
        settings: WorkspaceSettings,
        *,
        is_read_only: bool,
        lock_s: float,
        open_state: OpenState | None = None,
    ) -> None:
        self.strict = settings.strict
        self.policy = settings.policy
        self.scratch_get = settings.scratch_get
        self.timeline = settings.timeline
        self.folder = place.folder
        self._sightings = SeenFiles()
        self._unrecovered: dict[str, ToolError] = {}
        self._guard = threading.Lock()
        self._checker: Checker | None = None
        with ExitStack() as opened:
            refuse_link(self.folder)
            self.roots = Roots(roots, self.policy.protection(settings.policy_rules, _private_rules(roots)))
            opened.callback(self.roots.close)
            self.journal = open_journal()
            opened.callback(self.journal.close)
            self.reservations = open_reservations(
                self.journal, settings.reservations, roots[0], self.folder, open_state
            )
            opened.callback(self.reservations.close)
            self.blobs = Blobs(os.path.join(self.folder, "blobs"), is_read_only=is_read_only)
            opened.callback(self.blobs.close)
            if not is_read_only and not self.journal.rows(Filter(), 1):
                _sync_names(os.path.dirname(self.folder), self.folder)
            self.store = ContentStore(self.journal, self.blobs)
            self._held = HeldFiles([os.path.join(self.folder, "blobs")])
            self._lock = WriterLock(
                os.path.join(self.folder, "lock"), [root.fd for root in self.roots], lock_s
            )
            self.committer = Committer(self.journal, self._lock, self._recover, self._check_store)
            opened.callback(self.committer.close)
            self.retention = RetentionTask(self.committer, self.journal, self.blobs, settings.keep)
            opened.callback(self.retention.close)
            if not is_read_only:
                self.committer.recover()
                self.retention.start()
            self._opened = opened.pop_all()

    def _recover(self) -> bool:
        began = time.time()
        self._unrecovered = recover.recover(self.roots, self.journal, self.store) or {}
        self.blobs.sweep(before=began)
        return bool(self._unrecovered)

    def check_recovered(self, path: str, *, deferred: DeferredWork | None = None) -> None:
        """Refuse a file that is not yet what was last written to it, after another try to restore it. In a plan,
        `deferred` has the try made before the call is planned again."""
        if path not in self._unrecovered:
            return
        if deferred is not None:
            deferred.result(("recovery", path), self.committer.request_recovery)
        else:
            self.committer.request_recovery()
            self.committer.transact(lambda: None)
        cause = self._unrecovered.get(path)
        if cause is None:
            return
        envelope = cause.envelope
        message = str(envelope.context.get("message", envelope.error))
        raise refuse(
            envelope.error,
            "recovery_waits",
            f"{path} could not be restored after a crash yet: {message.rstrip('.')}.",
            next_step=str(envelope.context.get("next", call_again())),
            reason_hint=envelope.reason_hint,
            suggested_action=envelope.suggested_action,
            path=path,
            cause=envelope.context.get("reason"),
        )

    def is_replaced(self) -> bool:
        """Whether the store was removed or replaced since it was opened, or the folder of the workspace replaced."""
        return self.journal.is_replaced() or self._held.are_replaced() or self.roots.is_replaced()

    def _check_store(self) -> None:
        """Under the lock, in each round, before anything is planned."""
        if self.is_replaced() or self._lock.is_replaced():
            raise StoreReplaced

    def close(self) -> None:
        self._opened.close()

    @property
    def checker(self) -> Checker:
        """Parsers in child processes, from the first check on: most sessions never ask for one."""
        from perdure.validate.sandbox import Checker

        with self._guard:
            if self._checker is None:
                self._checker = Checker()
                self._opened.callback(self._checker.close)
            return self._checker

    def journal_name(self, path: str) -> str:
        """The journal's name for a file, link or folder. A link that has rows is not followed."""
        plain = path.rstrip("/") or path
        if not plain.startswith("/") and self.journal.last_of(plain) is not None:
            return plain
        return canonical(self.roots, plain)

    def read(self, path: str) -> bytes | None:
        """What a file holds now, or a link's target; None where there is nothing."""
        return read_file(self.roots, self.journal, path)

    def history(self, path: str, n: int = 1000) -> list[Row]:
        """The newest `n` rows of a file, newest first."""
        return self.journal.rows(Filter(path=self.journal_name(path)), n)

    # --- changing files -----------------------------------------------------------------------------------

    def commit(
        self,
        call: Call,
        plan: Plan,
        *,
        idempotency_key: str | None = None,
        arguments: object = None,
        refused_content: tuple[str, Content] | None = None,
    ) -> Future[dict[str, Any]]:
        """Submit a plan. The future has its payload when the change is on disk and durable in the journal. A refused
        payload is kept as a draft, and its retry is counted."""
        change = Change(
            self,
            call,
            plan,
            idempotency_key=idempotency_key,
            arguments=arguments,
            refused_content=refused_content,
        )
        return self.committer.submit(change)

    def save_reads(self, first: int | None) -> Saved:
        """In a transaction: write down what sessions have read since the last change, before row `first`."""
        unsaved = self._sightings.unsaved()
        for (session, path), sha in unsaved.items():
            seen = bytes.fromhex(sha) if sha is not None else None
            self.journal.record_seen(
                session, path, seen, first - 1 if first is not None else self.journal.head
            )
        return unsaved

    def find_deduplicated(self, key: str, fingerprint: bytes) -> dict[str, Any] | None:
        known = self.journal.invocation(f"user:{key}")
        if known is None or (known.last_seq is not None and self.journal.row(known.last_seq) is None):
            return None
        if known.fingerprint != fingerprint:
            raise refuse(
                "conflict",
                "key_reused",
                "this idempotency_key was used for a call with other arguments.",
                next_step=call_again(idempotency_key=FILL),
                suggested_action="fix_syntax",
            )
        payload: dict[str, Any] = msgspec.json.decode(known.result)
        return {**payload, "deduplicated": True}

    # --- what was seen ----------------------------------------------------------------------------------------

    def record_writes(self, session: str, sightings: list[Sighting], saved: Saved) -> None:
        changed = {one.path: one.sha.hex() if one.sha is not None else None for one in sightings}
        self._sightings.wrote(session, changed, saved)

    def begin_read(self) -> int:
        """Where a read begins, among the changes."""
        return self._sightings.begin_read()

    def record_read(self, session: str, path: str, sha256: str | None, since: int) -> None:
        self._sightings.read(session, path, sha256, since)

    def last_seen(self, session: str, path: str) -> tuple[str | None] | None:
        if (seen := self._sightings.last(session, path)) is not None:
            return seen
        known = self.journal.last_seen(session, path)
        if known is None:
            return None
        return (known[0].hex() if known[0] is not None else None,)

    # --- drafts ---------------------------------------------------------------------------------------------------

    def draft(self, identity: str) -> Content:
        known = self.journal.draft(identity)
        if known is None:
            raise refuse(
                "not_found",
                "draft_not_found",
                f"there is no draft {identity}, or it has expired.",
                next_step=call_again(content=FILL),
                suggested_action="reread",
            )
        return self.store.find(known.sha.hex())

    # --- lost calls ---------------------------------------------------------------------------------------------------

    def probe(self, key: str) -> KeyStatus:
        """Whether the effect under a key happened. Recovery has settled every intent before this is asked."""
        known = self.journal.invocation(key)
        if known is None or (known.last_seq is not None and self.journal.row(known.last_seq) is None):
            return SAFE_TO_RETRY
        try:
            view = View(known.render, known.detail)  # type: ignore[arg-type]
            return Done(msgspec.json.decode(known.result), view)
        except (ValueError, msgspec.MsgspecError):
            return STILL_UNKNOWN


def _private_rules(roots: tuple[str, ...]) -> tuple[str, ...]:
    """Our own directories where they are beneath a root, as they are when the home directory is the workspace."""
    found = set()
    for folder in (data_dir(), state_dir(), stores_folder()):
        whole = os.path.realpath(folder)
        for root in map(os.path.realpath, roots):
            if whole.startswith(root.rstrip("/") + "/"):
                found.add(f"/{os.path.relpath(whole, root)}/")
    return tuple(sorted(found))


def _sync_names(*folders: str) -> None:
    """Before the first row: it is as durable as the names that lead to it."""
    for folder in folders:
        with suppress(PermissionError):  # a directory that may be entered but not read
            fd = directories.open(folder, os.O_RDONLY | directories.DIRECTORY)
            try:
                sync_directory(fd)
            finally:
                os.close(fd)


def new_transaction_id() -> str:
    return "t_" + hexlify(os.urandom(8)).decode()
