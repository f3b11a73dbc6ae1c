"""Writing planned changes as rows of the journal, inside one transaction.

What a row says is on disk already: each is appended and settled at once. The order of a change's rows is one in
which taking them back from the newest to the oldest always works: folders before what is created in them, and
after what is deleted in them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from perdure.platform.fault_points import point
from perdure.storage.journal import Journal, NewRow
from perdure.storage.timeline import ANOTHER_PROGRAM, CallRecord, NewCall
from perdure.workspace.contents import ContentStore
from perdure.workspace.timeline.attribution import Author
from perdure.workspace.timeline.planner import PlannedChange, State

OP: Final = "native"


class Heads(NamedTuple):
    """The commits that git's HEAD stood for at the last observation and at this one."""

    before: str | None
    after: str | None


class RowWriter:
    """For one transaction. `removed_uncovered` are paths that went and cannot come back: the rows say so. `new_transaction`
    makes the id of a change that no open call made."""

    def __init__(
        self,
        journal: Journal,
        store: ContentStore,
        heads: Heads,
        removed_uncovered: Sequence[str],
        new_transaction: Callable[[], str],
    ) -> None:
        self._journal = journal
        self._store = store
        self._heads = heads
        self._removed_uncovered = removed_uncovered
        self._new_transaction = new_transaction

    def write(self, changes: Sequence[PlannedChange], author: Callable[[str], Author]) -> None:
        groups: dict[tuple[bool, tuple[int, ...]], list[PlannedChange]] = defaultdict(list)
        authors: dict[tuple[bool, tuple[int, ...]], Author] = {}
        for change in changes:
            if change.made_with is not None:
                self._append(change, None, change.made_with.txn, "create", _detail(change))
                continue
            made_by = author(change.path)
            key = made_by.is_late, tuple(call.id for call in made_by.calls)
            authors[key] = made_by
            groups[key].append(change)
        for key in sorted(groups):
            self._write_group(groups[key], authors[key])

    def _write_group(self, changes: list[PlannedChange], author: Author) -> None:
        ordered = list(_ordered(changes))
        call, first_detail = self._call(author), self._first_detail(author, ordered)
        txn = call.txn if call is not None else self._new_transaction()
        first: int | None = None
        for change, moved in ordered:
            detail = {**_detail(change), **moved, **(first_detail if first is None else {})}
            seq = self._append(change, call, txn, "move" if moved else _mode(change), detail)
            first = first if first is not None else seq
            point("timeline.row")
        if call is not None and call.seq is None and first is not None:
            self._journal.update_call(call.id, status=call.status, seq=first)

    def _call(self, author: Author) -> CallRecord | None:
        """The call whose transaction the rows belong to; a late change has one of its own."""
        if not author.calls:
            return None
        call = author.calls[0]
        if not author.is_late:
            return call
        return self._journal.begin_call(
            NewCall(
                client=call.client,
                session=call.session,
                tool=call.tool,
                txn=self._new_transaction(),
                agent=call.agent,
                turn=call.turn,
                call_id=call.call_id,
                command=call.command,
                status="late",
            )
        )

    def _append(
        self,
        change: PlannedChange,
        call: CallRecord | None,
        txn: str | None,
        mode: str,
        detail: dict[str, Any],
    ) -> int:
        before, after = change.before, change.after
        source = call or change.made_with
        if before is not None:
            self._journal.keep_content(before.sha)
        if change.content is not None:
            self._store.record(change.content.content)
        row = self._journal.append(
            NewRow(
                path=change.path,
                op=OP,
                mode=mode,
                old_sha=before.sha if before is not None else None,
                new_sha=after.sha if after is not None else None,
                bytes=change.size,
                client=source.client if source is not None else ANOTHER_PROGRAM,
                session=source.session if source is not None else "",
                txn=txn,
                detail=detail,
            )
        )
        self._journal.settle([row.seq])
        return row.seq

    def _first_detail(
        self, author: Author, ordered: list[tuple[PlannedChange, dict[str, str]]]
    ) -> dict[str, Any]:
        detail: dict[str, Any] = {}
        if author.calls:
            detail["call"] = describe(author)
        counts = [change.lines if not moved else (0, 0) for change, moved in ordered]
        if None not in counts:
            detail["added"] = sum(count[0] for count in counts if count is not None)
            detail["removed"] = sum(count[1] for count in counts if count is not None)
        if self._heads.before is not None:
            detail["head"] = self._heads.before
        if self._heads.after is not None and self._heads.after != self._heads.before:
            detail["head_after"] = self._heads.after
        if self._removed_uncovered:
            detail["not_covered"] = list(self._removed_uncovered)
        return detail


def describe(author: Author) -> dict[str, Any]:
    call, *others = author.calls
    described: dict[str, Any] = {"tool": call.tool}
    for name in ("call_id", "agent", "turn", "command"):
        value = getattr(call, name)
        if value is not None:
            described[name] = value
    if others:
        described["shared_with"] = [other.call_id or str(other.id) for other in others]
    return described


def _detail(change: PlannedChange) -> dict[str, Any]:
    before, after = change.before, change.after
    detail: dict[str, Any] = {}
    now = after or before
    assert now is not None
    if now.kind != "file":
        detail["kind"] = now.kind
    if before is not None and after is not None and before.kind != after.kind:
        detail["kind_before"] = before.kind
    old, new = _permissions(before), _permissions(after)
    if old != new or "kind_before" in detail:
        mode = new if after is not None else old
        if mode is not None:
            detail["file_mode"] = mode
        if old is not None and after is not None:
            detail["mode_before"] = old
    return detail


def _permissions(state: State | None) -> int | None:
    """A link has none of its own."""
    return state.mode if state is not None and state.kind != "link" else None


def _mode(change: PlannedChange) -> str:
    if change.after is None:
        return "delete"
    return "create" if change.before is None else "overwrite"


def _ordered(changes: list[PlannedChange]) -> Iterable[tuple[PlannedChange, dict[str, str]]]:
    """The rows of a change, with what makes some of them a move."""
    moves = _find_moves(changes)
    moved = {change.path for pair in moves for change in pair}
    rest = sorted((change for change in changes if change.path not in moved), key=lambda change: change.path)
    to_folder = [change for change in rest if _turns_into_folder(change)]
    from_folder = [change for change in rest if _was_folder(change)]
    created = [change for change in rest if change.before is None]
    deleted = [change for change in rest if change.after is None]
    others = [
        change
        for change in rest
        if change.before is not None
        and change.after is not None
        and not _turns_into_folder(change)
        and not _was_folder(change)
    ]
    yield from ((change, {}) for change in (*to_folder, *created))
    for source, target in moves:
        yield target, {"moved_from": source.path}
        yield source, {"moved_to": target.path}
    yield from ((change, {}) for change in (*others, *reversed(deleted), *reversed(from_folder)))


def _turns_into_folder(change: PlannedChange) -> bool:
    before, after = change.before, change.after
    return before is not None and after is not None and after.kind == "directory" != before.kind


def _was_folder(change: PlannedChange) -> bool:
    before, after = change.before, change.after
    return before is not None and after is not None and before.kind == "directory" != after.kind


def _find_moves(changes: list[PlannedChange]) -> list[tuple[PlannedChange, PlannedChange]]:
    """Pairs of a deleted and a created file of the same content. Where several have it, the same name decides,
    then the order; empty files pair only where there is one of each."""
    deleted: dict[tuple[str, bytes], list[PlannedChange]] = defaultdict(list)
    created: dict[tuple[str, bytes], list[PlannedChange]] = defaultdict(list)
    for change in sorted(changes, key=lambda change: change.path):
        if change.before is None and change.after is not None and change.after.kind != "directory":
            created[change.after.kind, change.after.sha].append(change)
        elif change.after is None and change.before is not None and change.before.kind != "directory":
            deleted[change.before.kind, change.before.sha].append(change)
    pairs: list[tuple[PlannedChange, PlannedChange]] = []
    for key, sources in deleted.items():
        targets = created.get(key, [])
        if targets and (targets[0].size or len(sources) == len(targets) == 1):
            pairs += _pair(sources, targets)
    return sorted(pairs, key=lambda pair: pair[1].path)


def _pair(
    sources: list[PlannedChange], targets: list[PlannedChange]
) -> list[tuple[PlannedChange, PlannedChange]]:
    by_name: dict[str, list[PlannedChange]] = defaultdict(list)
    for source in sources:
        by_name[os.path.basename(source.path)].append(source)
    pairs: list[tuple[PlannedChange, PlannedChange]] = []
    unpaired: list[PlannedChange] = []
    for target in targets:
        same = by_name[os.path.basename(target.path)]
        if same:
            pairs.append((same.pop(0), target))
        else:
            unpaired.append(target)
    left = [source for group in by_name.values() for source in group]
    return [*pairs, *zip(left, unpaired, strict=False)]
