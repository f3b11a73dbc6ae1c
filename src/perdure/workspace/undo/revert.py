"""Taking back rows of the journal: what `undo` and `rewind` share.

To take back a change is to go from its new content to its old one. Where the file is still as the change left it, that
is all; where it was changed since, both are merged by lines, and a collision changes nothing. Links and directories are
not merged.

A plan is tried on all rows before the first is staged: whether a directory ends up empty, and whether a file or link is
in the way of one, is known only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from perdure.present.tool_errors import is_of_system, tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.files import metadata
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.journal import Journal, Row
from perdure.storage.timeline import ANOTHER_PROGRAM, CallRecord, FileKind
from perdure.text import codec, merge
from perdure.workspace import entries
from perdure.workspace.apply import ancestors
from perdure.workspace.change import Plan
from perdure.workspace.contents import Content
from perdure.workspace.entries import EntryState, state_after, state_before
from perdure.workspace.errors import WorkspaceError
from perdure.workspace.planning import PlannedFile, PlanView, check_in_memory
from perdure.workspace.undo.result import NotApplied, RevertedRow, RowConflict, UndoResult
from perdure.workspace.workspace import Workspace

# The reasons of conflicts.
LATER_EDIT: Final = "later_edit"
"""In the same lines."""
CHANGED_SINCE: Final = "changed_since"
"""Created, deleted or replaced, and no text that could be merged."""
NOT_EMPTY: Final = "not_empty"
"""A directory that something was put into."""
UNKNOWN_CONTENT: Final = "former_content_unknown"
"""The store never had the content before the change, or no longer has it."""
RESERVED_PATH: Final = "reserved"
"""By another client."""
LINES_MAX: Final = 10


class _Collision(WorkspaceError):
    """A row that cannot be taken back because of what came after it. `lines` are those that both changed."""

    def __init__(self, reason: str, lines: list[list[int]] | UnsetType = UNSET) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lines = lines


class _Step(NamedTuple):
    """What a file becomes when a row is taken back."""

    row: Row
    known: PlannedFile
    content: Content | None
    kind: FileKind
    facts: FileMetadata | None


class Reversal:
    """One call that takes back rows, in the plan of a change.

    `origins` are the states that files had before the first of the rows, where these are known to be all changes since:
    then a file goes there directly. `skipped_reasons` are refusals that leave a file as it is, and are no conflict.
    In a preview a path that another client has reserved is a conflict; otherwise the call is refused.
    """

    def __init__(
        self,
        workspace: Workspace,
        tree: PlanView,
        call: Call,
        *,
        op: str,
        txn: str,
        origins: Mapping[str, EntryState | None] | None = None,
        skipped_reasons: frozenset[str] = frozenset(),
        is_preview: bool = False,
    ) -> None:
        self._workspace = workspace
        self._tree = tree
        self._call = call
        self._op = op
        self._txn = txn
        self._origins = origins
        self._skipped_reasons = skipped_reasons
        self._is_preview = is_preview
        self._authors = Authors(workspace.journal)
        self._conflicts: list[RowConflict] = []
        self._kept: dict[str, None] = {}

    def run(self, rows: list[Row]) -> UndoResult:
        """Stage the reversal of `rows`, newest first. With conflicts nothing is staged."""
        steps = list(self._try_all(rows))
        self._check_directories({step.row.path: step.row for step in steps})
        if self._conflicts:
            return UndoResult(reverted=[], conflicts=self._conflicts, kept=[], journal_ids=[])
        stays = {
            known.path for known in self._tree.planned() if known.path in self._kept and known.is_directory
        }
        for step in steps:
            step.known.forget_plan()
        staged = [(step.row, self._stage(step, stays)) for step in steps]
        return UndoResult(
            reverted=[self._describe(row, by) for row, by in staged],
            conflicts=[],
            kept=list(self._kept),
            journal_ids=[str(by.seq) for _, by in staged],
        )

    # --- one row ---------------------------------------------------------------------------------------------

    def _try_all(self, rows: list[Row]) -> Iterable[_Step]:
        oldest = {row.path: row.seq for row in rows}
        for row in rows:
            try:
                known = self._tree.lookup_entry(row.path)
                if self._is_preview:
                    self._tree.check_others(row.path)
                step = self._try(known, row, is_last=oldest[row.path] == row.seq)
            except JournalError:
                raise
            except _Collision as collision:
                self._add_conflict(row, collision.reason, collision.lines)
                continue
            except (ToolError, StorageError) as error:
                if is_of_system(error):
                    raise
                context = tool_error(error).envelope.context
                reason = context.get("reason", "refused")
                if reason in self._skipped_reasons:
                    self._kept[row.path] = None
                elif reason == RESERVED_PATH:
                    self._add_conflict(row, reason, author=context["holders"][0]["client"])
                else:
                    self._add_conflict(row, reason)
                continue
            known.now, known.kind, known.facts = step.content, step.kind, step.facts
            yield step

    def _try(self, known: PlannedFile, row: Row, *, is_last: bool) -> _Step:
        now, before, after = known.state, state_before(row), state_after(row)
        if self._origins is not None and row.path in self._origins:
            wanted = self._origins[row.path] if is_last else before if now == after else now
        elif now == after:
            wanted = before
        elif now == before and (self._origins is not None or _is_entry(row)):
            wanted = now  # it was taken back already, by other means
        elif all(state is not None and state.kind == "file" for state in (now, before, after)):
            self._kept[row.path] = None
            assert row.new_sha is not None
            assert row.old_sha is not None
            new, old = row.new_sha.hex(), row.old_sha.hex()
            merged = self._tree.derive(known, f"undo {row.seq}", lambda: self._merge(known, new, old))
            return _Step(row, known, merged, "file", _facts(known, row, before))
        else:
            raise _Collision(CHANGED_SINCE)  # it was created, deleted or replaced
        facts = _facts(known, row, wanted)
        if wanted == now:
            return _Step(row, known, known.now, known.kind, facts)
        content = self._content(wanted, row)
        return _Step(row, known, content, wanted.kind if wanted is not None else known.kind, facts)

    def _content(self, wanted: EntryState | None, row: Row) -> Content | None:
        try:
            return entries.content_of(wanted, self._workspace.store)
        except ToolError as error:
            if error.envelope.context.get("reason") != "content_expired":
                raise
            raise _Collision(UNKNOWN_CONTENT) from None

    def _merge(self, known: PlannedFile, new: str, old: str) -> Content:
        store = self._workspace.store
        for sha256 in (new, old):
            check_in_memory(store.find(sha256).size, known.path)
        contents = self._tree.data(known), store.read(new), store.read(old)
        try:
            now, base, back = map(codec.decode, contents)
        except ToolError:
            raise _Collision(CHANGED_SINCE) from None  # it is not text
        match merge.merge(base.body, now.body, back.body):
            case merge.Merged(merged):
                content = store.take(codec.encode_body(now.style, merged))
                is_secret = store.is_sealed(new) or store.is_sealed(old)
                return store.seal(content) if is_secret and content.data is not None else content
            case merge.Conflict(regions):
                raise _Collision(LATER_EDIT, [list(region.ours) for region in regions[:LINES_MAX]])

    def _add_conflict(
        self,
        row: Row,
        reason: str,
        lines: list[list[int]] | UnsetType = UNSET,
        author: str | UnsetType = UNSET,
    ) -> None:
        if reason in (LATER_EDIT, CHANGED_SINCE, NOT_EMPTY):
            last = self._workspace.journal.last_of(row.path)
            author = last.client if last is not None and last.seq > row.seq else ANOTHER_PROGRAM
        self._conflicts.append(
            RowConflict(path=row.path, reason=reason, undone=str(row.seq), lines=lines, by=author)
        )

    # --- the tree that comes of it ------------------------------------------------------------------------------

    def _check_directories(self, rows: Mapping[str, Row]) -> None:
        """A directory that is not empty in the end stays; nothing can be made beneath a file or a link."""
        planned = list(self._tree.planned())
        children: dict[str, list[PlannedFile]] = {}
        for known in planned:
            children.setdefault(known.path.rpartition("/")[0], []).append(known)
        for known in sorted(planned, key=lambda one: one.path.count("/"), reverse=True):
            was_directory = known.old is not None and known.kind_on_disk == "directory"
            if was_directory and not known.is_directory and not self._is_emptied(known, children):
                if known.now is None:
                    known.forget_plan()
                    self._kept[known.path] = None
                elif known.path in rows:
                    self._add_conflict(rows[known.path], NOT_EMPTY)
        for known in planned:
            if known.now is not None and known.path in rows and self._has_obstacle(known):
                self._add_conflict(rows[known.path], CHANGED_SINCE)

    def _is_emptied(self, known: PlannedFile, children: Mapping[str, list[PlannedFile]]) -> bool:
        if any(child.now is not None for child in children.get(known.path, ())):
            return False
        known.place.reopen()
        found = (self._tree.find(f"{known.path}/{name}") for name in entries.names_in(known.place))
        return all(child is not None and child.now is None for child in found)

    def _has_obstacle(self, known: PlannedFile) -> bool:
        obstacle = known.place.obstacle
        if obstacle is not None:
            parent = self._tree.find(f"{known.path[: -len(known.place.path)]}{obstacle}")
            if parent is None or not parent.is_directory:
                return True
        parents = (self._tree.find(folder) for folder in ancestors(known.path)[1:])
        return any(
            parent is not None and parent.now is not None and not parent.is_directory for parent in parents
        )

    # --- staging ---------------------------------------------------------------------------------------------------

    def _stage(self, step: _Step, stays: set[str]) -> Row:
        known, row, content = step.known, step.row, step.content
        if known.path in stays:
            content = known.now
        else:
            known.facts = step.facts
        return self._tree.stage(
            known,
            content,
            op=self._op,
            mode="delete" if content is None else "overwrite" if known.now is not None else "create",
            key=self._call.invocation_key,
            txn=self._txn,
            undoes=row.seq,
            kind=step.kind if known.path not in stays else known.kind,
        )

    def _describe(self, row: Row, by: Row) -> RevertedRow:
        author = self._authors.call_of(row)
        return RevertedRow(
            path=row.path,
            journal_id=str(by.seq),
            sha256=by.new_sha.hex() if by.new_sha is not None else None,
            undone=str(row.seq),
            op=row.op,
            mode=row.mode,
            client=row.client,
            session=row.session,
            this_session=row.session == self._call.session,
            transaction_id=row.txn if row.txn is not None else UNSET,
            agent=author.agent if author is not None and author.agent is not None else UNSET,
            moved_from=row.detail.get("moved_from", UNSET),
            moved_to=row.detail.get("moved_to", UNSET),
            kind=row.detail.get("kind", UNSET),
        )


class Authors:
    """The calls that made changes, each asked for once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._calls: dict[str, CallRecord | None] = {}

    def call_of(self, row: Row) -> CallRecord | None:
        key = row.txn if row.txn is not None else str(row.seq)
        if key not in self._calls:
            change = self._journal.change(key)
            self._calls[key] = change.call if change is not None else None
        return self._calls[key]


def commit_reversal(workspace: Workspace, call: Call, plan: Plan) -> UndoResult:
    """Commit a plan whose payload is an `UndoResult`. One that changes nothing has a result, too."""
    try:
        payload = workspace.commit(call, plan).result()
    except NotApplied as stopped:
        return stopped.result
    return msgspec.convert(payload, UndoResult)


def _is_entry(row: Row) -> bool:
    return "kind" in row.detail or "kind_before" in row.detail


def _facts(known: PlannedFile, row: Row, wanted: EntryState | None) -> FileMetadata | None:
    """Mode and owner of what a file becomes. A mode that was changed since stays."""
    if wanted is None:
        return known.facts
    if wanted.kind == "link":
        return None
    mode = entries.mode_before(row)
    if known.now is None or known.kind != wanted.kind:
        if mode is None and known.now is not None and known.facts is not None:
            mode = known.facts.mode  # only the kind was changed
        return metadata.of_mode(mode) if mode is not None else None
    if mode is not None and known.facts is not None and known.facts.mode == row.detail.get("file_mode"):
        return msgspec.structs.replace(known.facts, mode=mode)
    return known.facts
