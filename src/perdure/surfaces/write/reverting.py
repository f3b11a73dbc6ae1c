"""Taking back rows of the journal: what `undo` and `rewind` share.

To take back a change is to go from its new content to its old one. Where the file is still as the change left it, that
is all; where it was changed since, both are merged by lines, and a collision changes nothing. Links and directories are
not merged.

A plan is tried on all rows before the first is staged: whether a directory ends up empty, and whether a file or link is
in the way of one, is known only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from perdure.present.tool_errors import is_of_system, tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_tool
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.files import metadata
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.journal import Journal, Row
from perdure.storage.timeline import ANOTHER_PROGRAM, CallRecord, FileKind
from perdure.text import codec, merge
from perdure.workspace import entries
from perdure.workspace.apply import ancestors
from perdure.workspace.contents import Content
from perdure.workspace.entries import EntryState, state_after, state_before
from perdure.workspace.planning import PlannedFile, PlanView, check_in_memory
from perdure.workspace.workspace import Workspace

UNKNOWN_CONTENT = "former_content_unknown"
"""The reason of a conflict: the store never had the content before the change, or no longer has it."""


class Outcome(NamedTuple):
    """What was staged, or would be. With conflicts nothing was. `kept` are the files with later edits, which stay."""

    reverted: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    kept: list[str]


class _Step(NamedTuple):
    """What a file becomes when a row is taken back."""

    row: Row
    known: PlannedFile
    content: Content | None
    kind: FileKind
    facts: FileMetadata | None


class Reverting:
    """One call that takes back rows, in the plan of a change.

    `origins` are the states that files had before the first of the rows, where these are known to be all changes since:
    then a file goes there directly. `skipped_reasons` are refusals that leave a file as it is, and are no conflict.
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
    ) -> None:
        self._workspace = workspace
        self._tree = tree
        self._call = call
        self._op = op
        self._txn = txn
        self._origins = origins
        self._skipped_reasons = skipped_reasons
        self._authors = Authors(workspace.journal)
        self._conflicts: list[dict[str, Any]] = []
        self._kept: dict[str, None] = {}

    def run(self, rows: list[Row]) -> Outcome:
        """`rows` newest first."""
        steps = list(self._try_all(rows))
        self._check_directories({step.row.path: step.row for step in steps})
        if self._conflicts:
            return Outcome([], self._conflicts, [])
        stays = {
            known.path for known in self._tree.known() if known.path in self._kept and known.is_directory
        }
        for step in steps:
            step.known.forget_plan()
        return Outcome([self._stage(step, stays) for step in steps], [], list(self._kept))

    # --- one row ---------------------------------------------------------------------------------------------

    def _try_all(self, rows: list[Row]) -> Iterable[_Step]:
        oldest = {row.path: row.seq for row in rows}
        for row in rows:
            try:
                known = self._tree.lookup_entry(row.path)
                step = self._try(known, row, is_last=oldest[row.path] == row.seq)
            except JournalError:
                raise
            except (ToolError, StorageError) as error:
                if is_of_system(error):
                    raise
                refusal = tool_error(error)
                if refusal.envelope.context.get("reason") in self._skipped_reasons:
                    self._kept[row.path] = None
                else:
                    self._conflicts.append(self._conflict(row, refusal))
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
            raise refuse(
                "conflict",
                "changed_since",
                f"{known.path} was created, deleted or replaced after that change.",
                next_step=call_tool("diff", path=known.path),
            )
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
            raise refuse(
                "conflict",
                UNKNOWN_CONTENT,
                f"the content of {row.path} before change {row.seq} is not known.",
                next_step=call_tool("history", path=row.path),
            ) from None

    def _merge(self, known: PlannedFile, new: str, old: str) -> Content:
        store = self._workspace.store
        for sha256 in (new, old):
            check_in_memory(store.find(sha256).size, known.path)
        try:
            now = codec.decode(self._tree.data(known))
            base = codec.decode(store.read(new)).body
            back = codec.decode(store.read(old)).body
        except (ToolError, StorageError):
            raise refuse(
                "conflict",
                "changed_since",
                f"{known.path} is not text and was changed since.",
                next_step=call_tool("diff", path=known.path),
            ) from None
        match merge.merge(base, now.body, back):
            case merge.Merged(merged):
                content = store.take(codec.encode_body(now.style, merged))
                is_secret = store.is_sealed(new) or store.is_sealed(old)
                return store.seal(content) if is_secret and content.data is not None else content
            case merge.Conflict(regions):
                raise refuse(
                    "conflict",
                    "later_edit",
                    f"a later change of {known.path} touches the same lines.",
                    next_step=call_tool("diff", path=known.path),
                    lines=[list(region.ours) for region in regions[:10]],
                )

    def _conflict(self, row: Row, error: ToolError) -> dict[str, Any]:
        """Why a change cannot be taken back, and the author of the later change, as far as the journal knows."""
        context = error.envelope.context
        reason = context.get("reason", "refused")
        conflict = {"path": row.path, "reason": reason, "undone": str(row.seq)}
        if "lines" in context:
            conflict["lines"] = context["lines"]
        if reason in ("later_edit", "changed_since", "not_empty"):
            last = self._workspace.journal.last_of(row.path)
            conflict["by"] = last.client if last is not None and last.seq > row.seq else ANOTHER_PROGRAM
        return conflict

    # --- the tree that comes of it ------------------------------------------------------------------------------

    def _check_directories(self, rows: Mapping[str, Row]) -> None:
        """A directory that is not empty in the end stays; nothing can be made beneath a file or a link."""
        planned = list(self._tree.known())
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
                    self._conflicts.append(self._conflict(rows[known.path], _not_empty(known.path)))
        for known in planned:
            if known.now is not None and known.path in rows and self._has_obstacle(known):
                self._conflicts.append(self._conflict(rows[known.path], _parent_replaced(known.path)))

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

    def _stage(self, step: _Step, stays: set[str]) -> dict[str, Any]:
        known, row, content = step.known, step.row, step.content
        if known.path in stays:
            content = known.now
        else:
            known.facts = step.facts
        staged = self._tree.stage(
            known,
            content,
            op=self._op,
            mode="delete" if content is None else "overwrite" if known.now is not None else "create",
            key=self._call.invocation_key,
            txn=self._txn,
            undoes=row.seq,
            kind=step.kind if known.path not in stays else known.kind,
        )
        return self._reverted_row(row, staged)

    def _reverted_row(self, row: Row, staged: Row) -> dict[str, Any]:
        """The change that was taken back, its author, and the row that takes it back."""
        told: dict[str, Any] = {
            "path": row.path,
            "journal_id": str(staged.seq),
            "sha256": staged.new_sha.hex() if staged.new_sha is not None else None,
            "undone": str(row.seq),
            "op": row.op,
            "mode": row.mode,
            "client": row.client,
            "session": row.session,
            "this_session": row.session == self._call.session,
        }
        if row.txn is not None:
            told["transaction_id"] = row.txn
        author = self._authors.call_of(row)
        if author is not None and author.agent is not None:
            told["agent"] = author.agent
        return told | {
            key: row.detail[key] for key in ("moved_from", "moved_to", "kind") if key in row.detail
        }


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


class Refused(ToolError):
    """Raised in a plan to change nothing: because of conflicts, or because only a preview was wanted."""

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(
            refuse(
                "conflict",
                "undo_conflict",
                "a later change is in the way.",
                next_step=call_tool("journal_tail"),
            ).envelope
        )
        self.payload = payload


def payload_of(outcome: Outcome, *, is_dry_run: bool, **more: Any) -> dict[str, Any]:
    """The answer. Raises it as `Refused` where nothing is to be changed."""
    ids = [one["journal_id"] for one in outcome.reverted]
    payload = {
        "reverted": outcome.reverted,
        "conflicts": outcome.conflicts,
        "kept": outcome.kept,
        "journal_ids": ids,
        **more,
    }
    if outcome.conflicts:
        payload.pop("redo", None)
        raise Refused(payload)
    if is_dry_run:
        reverted = [{**one, "journal_id": None} for one in outcome.reverted]
        raise Refused({**payload, "reverted": reverted, "journal_ids": [], "dry_run": True})
    return payload


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


def _not_empty(path: str) -> ToolError:
    return refuse(
        "conflict",
        "not_empty",
        f"{path} is a directory, and something was put into it since.",
        next_step=call_tool("journal_tail"),
    )


def _parent_replaced(path: str) -> ToolError:
    return refuse(
        "conflict",
        "changed_since",
        f"a directory of {path} is a file or a link by now.",
        next_step=call_tool("journal_tail"),
    )
