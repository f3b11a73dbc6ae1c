"""One call's change of files: staged under the lock, committed in the journal, then applied to all of its files or none."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from perdure.platform.fault_points import point
from perdure.present.tool_errors import tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_again
from perdure.storage.errors import Conflict, StorageError, StoreReplaced
from perdure.storage.journal import Draft, Invocation, Journal
from perdure.workspace import drafts
from perdure.workspace.apply import EntryChange
from perdure.workspace.contents import Content
from perdure.workspace.drafts import Rejected
from perdure.workspace.jobs import Job
from perdure.workspace.parts import WorkspaceParts
from perdure.workspace.paths.roots import Directories
from perdure.workspace.planning import PlanView, Sighting
from perdure.workspace.reservations.access import WriteCheck, taken_notices
from perdure.workspace.seen_files import Saved
from perdure.workspace.sync_pass import AppliedChanges

log = logging.getLogger(__name__)

KEY_MAX: Final = 512
PREPARED_MAX: Final = 64
"""Files of one call that are written before the first gets its name: each holds two descriptors."""


class Plan(Protocol):
    """What one call wants changed. `paths` are as the caller spelled them."""

    @property
    def paths(self) -> frozenset[str]: ...

    def stage(self, tree: PlanView) -> dict[str, Any]:
        """On the commit thread, under the lock and in the transaction: look files up, check them, stage their changes.
        Returns the payload. Raises ToolError to change nothing."""


class PlanFunction(NamedTuple):
    """A plan that is one function, and the paths it names."""

    paths: frozenset[str]
    stage: Callable[[PlanView], dict[str, Any]]


class Change(Job):
    """`refused_content` is the payload that is kept as a draft where the call is refused, with its path."""

    def __init__(
        self,
        workspace: WorkspaceParts,
        call: Call,
        plan: Plan,
        *,
        idempotency_key: str | None = None,
        arguments: object = None,
        refused_content: tuple[str, Content] | None = None,
    ) -> None:
        super().__init__()
        _check_key(idempotency_key)
        self._workspace = workspace
        self._call = call
        self._plan = plan
        self._key = idempotency_key
        self._fingerprint = fingerprint(call.tool, arguments) if arguments is not None else _plain(call.tool)
        self._refused_content = refused_content
        self.paths = plan.paths
        self.cancelled = call.cancelled
        self._changes: list[EntryChange] = []
        self._directories: Directories | None = None
        self._sightings: list[Sighting] = []
        self._saved: Saved = {}
        self._notices: list[str] = []
        self._displaced: list[Content] = []
        self._is_displaced_lost = False
        self._failure: Exception | None = None

    # --- staging -------------------------------------------------------------------------------------------

    def stage(self) -> None:
        workspace, call = self._workspace, self._call
        self.seqs, self._changes = [], []  # a round may be staged again
        claims = workspace.committer.claims
        others = WriteCheck(workspace.reservations, workspace.journal, call, self.deferred)
        tree = PlanView(
            workspace.roots,
            workspace.store,
            workspace.journal,
            claims,
            self.deferred,
            check=workspace.check_recovered,
            check_others=others.check,
            paths=self.paths,
            client=call.client,
            session=call.session,
        )
        try:
            if self._key is not None:
                claims.claim(("key", self._key))  # a result counts once its files are applied
                if (known := workspace.find_deduplicated(self._key, self._fingerprint)) is not None:
                    tree.close()
                    self.result = known
                    return
            self.result = self._plan.stage(tree)
            workspace.reservations.reserve_changed(
                call, (known.path for known in tree.changed()), self.deferred
            )
            others.take_notices()
            self._notices = others.notices
            if others.warnings:
                self.result["warnings"] = [*self.result.get("warnings", []), *others.warnings]
            self._saved = self._record(tree)
        except BaseException:
            tree.close()
            raise
        self._directories = tree.directories
        self._changes = tree.changes()
        self.seqs = [row.seq for row in tree.rows]
        self._sightings = tree.sightings()

    def _record(self, tree: PlanView) -> Saved:
        """In the same transaction as the effect: what a probe, a retry and the stale guard ask for. Returns the reads
        that it saved."""
        workspace, call = self._workspace, self._call
        first = tree.rows[0].seq if tree.rows else None
        last = tree.rows[-1].seq if tree.rows else None
        result = msgspec.json.encode(self.result)
        for key in (call.invocation_key, f"user:{self._key}" if self._key is not None else None):
            if key is not None:
                invocation = Invocation(
                    key, call.tool, self._fingerprint, last, call.view.render, call.view.detail, result
                )
                workspace.journal.record_invocation(invocation, first)
        return workspace.save_reads(first)

    def record_refusal(self, error: ToolError) -> ToolError:
        if self._refused_content is not None:
            error = drafts.record(self._workspace, self._call, error, *self._refused_content)
        elif isinstance(error, Rejected):
            error = drafts.record(self._workspace, self._call, error, error.path, error.content)
        if notices := taken_notices(self.deferred):
            _add_context(error, warnings=notices)
        return error

    # --- applying ------------------------------------------------------------------------------------------

    def apply(self) -> None:
        changes, store, strict = self._changes, self._workspace.store, self._workspace.strict
        done: list[EntryChange] = []
        try:
            for change in changes[:PREPARED_MAX]:  # what needs space needs it now, with nothing to take back
                if not change.waits_for_parent:
                    change.prepare(store, sync=strict)
            for number, change in enumerate(changes):
                change.apply(store, sync=strict)
                done.append(change)
                if len(changes) > PREPARED_MAX:
                    change.place.close()  # `revert` opens it again
                point("commit.file_landed")
                if number % PREPARED_MAX == 0:
                    self._call.progress(number, len(changes))
        except Exception as error:
            self._take_back(done)
            raise self._explain(error) from None
        finally:
            self.discard()
        self._workspace.record_writes(self._call.session, self._sightings, self._saved)
        if kept := [change.place.path for change in changes if change.is_kept]:
            self.result["kept"] = [*self.result.get("kept", []), *kept]
        warnings = [warning for change in changes for warning in change.warnings]
        if warnings:
            self.result["warnings"] = [*self.result.get("warnings", []), *dict.fromkeys(warnings)]

    def discard(self) -> None:
        for change in self._changes:
            change.close()
        if self._directories is not None:
            self._directories.close()

    def applied(self) -> AppliedChanges | None:
        if not self.seqs:
            return None
        workspace = self._workspace
        return AppliedChanges(self._changes, self.seqs, workspace.roots, workspace.store, workspace.strict)

    def _take_back(self, done: list[EntryChange]) -> None:
        for change in reversed(done):
            try:
                change.revert(self._workspace.store, sync=self._workspace.strict)
            except Conflict as conflict:
                self._keep_displaced(conflict)  # another program wrote to it already: its content stays
            except (ToolError, StorageError, OSError) as error:
                log.error("%s cannot be taken back now: %s", change.place.path, error)
                self.is_stuck = True
        self.discard()
        for root in {change.place.root for change in self._changes}:
            made = [path for change in self._changes if change.place.root == root for path in change.made]
            self._workspace.roots.remove_directories(root, made)

    def _keep_displaced(self, conflict: Conflict) -> None:
        """Keep contents of other programs that have lost their name. What could not be put back has kept its temporary
        name, and waits for recovery."""
        self.is_stuck = self.is_stuck or conflict.reason == "not_put_back"
        try:
            with conflict:
                self._displaced += [
                    self._workspace.store.take_file(file.fileno()) for file in conflict.displaced
                ]
        except (ToolError, StorageError, OSError) as error:
            log.error("content of another program could not be kept: %s", error)
            self._is_displaced_lost = conflict.reason != "not_put_back"

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, Conflict):
            self._keep_displaced(error)
        if self.is_stuck:
            return refuse(
                "write_corruption",
                "not_taken_back",
                "a part of the change is on disk and could not be taken back; the next start of Perdure completes it.",
                next_step=ask_user("to restart Perdure, which completes the change."),
                suggested_action="ask_user",
            )
        if self._is_displaced_lost:
            return refuse(
                "write_corruption",
                "displaced_not_kept",
                "another program wrote to the file at the same moment, and some of its content could not be kept.",
                next_step=ask_user("to compare the file with what the other program wrote."),
                suggested_action="ask_user",
            )
        return tool_error(error) if isinstance(error, OSError) else error

    # --- failures of applying ------------------------------------------------------------------------------

    def record_failure(self, journal: Journal, error: Exception) -> None:
        for content in self._displaced:
            self._workspace.store.record(content, by_row=False)
            draft = Draft(drafts.draft_id(content), content.digest, content.size, "", "displaced")
            journal.save_draft(draft, "", "")
        for sighting in self._sightings:  # a retry must not overwrite what came meanwhile
            journal.record_seen(self._call.session, sighting.path, sighting.before, journal.head)
        if not self.is_stuck:  # else the intents stay open: recovery completes the change
            for seq in self.seqs:
                journal.conclude(seq, "conflict" if isinstance(error, Conflict) else "aborted")
        if isinstance(error, (ToolError, StorageError)) and not isinstance(error, StoreReplaced):
            error = self.record_refusal(tool_error(error))
        self._failure = error

    def describe_failure(self, error: Exception) -> Exception:
        failure = self._failure or error
        if isinstance(failure, ToolError) and self._displaced:
            _add_context(failure, displaced=[drafts.draft_id(content) for content in self._displaced])
        if isinstance(failure, ToolError) and self._notices:
            _add_context(failure, warnings=self._notices)
        return failure


def _add_context(error: ToolError, **context: Any) -> None:
    error.envelope = msgspec.structs.replace(error.envelope, context={**error.envelope.context, **context})


def _check_key(key: str | None) -> None:
    if key is not None and not 1 <= len(key) <= KEY_MAX:
        raise refuse(
            "invalid_input",
            "bad_key",
            f"idempotency_key must have 1 to {KEY_MAX} characters.",
            next_step=call_again(idempotency_key=FILL),
            suggested_action="fix_syntax",
        )


def fingerprint(tool: str, arguments: object) -> bytes:
    return hashlib.sha256(msgspec.json.encode([tool, arguments], order="sorted")).digest()


@cache
def _plain(tool: str) -> bytes:
    """Of a call without an idempotency key, which is never compared."""
    return fingerprint(tool, None)
