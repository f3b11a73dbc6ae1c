"""`undo` and redo: changes taken back, also under later ones, and nothing half-done.

To take back a change is to go from its new content to its old one. Where the file is still as the change left
it, that is all; where it was changed since, both are merged by lines, and a collision changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from perdure.present.tool_errors import is_of_system, tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, either, then
from perdure.protocol.tools import arg
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.files import metadata
from perdure.storage.journal import Filter, Row
from perdure.surfaces.write.since import parse_since
from perdure.surfaces.write.write import sequence, stage_file
from perdure.text import codec, merge
from perdure.text.printable import make_printable
from perdure.workspace.change import PlanFunction
from perdure.workspace.contents import Content
from perdure.workspace.planning import PlannedFile, PlanView, canonical, check_in_memory
from perdure.workspace.workspace import Workspace, new_transaction_id

PAGE = 200
MOST = 1000
_TAKES_BACK = ("undo", "redo")


class Undo(msgspec.Struct, frozen=True):
    n: Annotated[int, arg("How many; a transaction counts as one.", ge=1, le=MOST)] = 1
    path: Annotated[str, arg(path="relative")] | None = None
    session: Annotated[str, arg("Default: yours; any: all.")] | None = None
    client: Annotated[str, arg("Changes of this client, by name.")] | None = None
    since: Annotated[str, arg("All since: 10m, 2h, today, ISO 8601.")] | None = None
    journal_id: Annotated[str, arg("This change, or these (12,11), of any agent.")] | None = None
    redo: Annotated[bool, arg("Undo the last undo.")] = False
    dry_run: Annotated[bool, arg("Only show what would happen.")] = False


def undo(workspace: Workspace, given: Undo, call: Call) -> dict[str, Any]:
    """Which changes are taken back is decided under the lock: another undo may have taken them back meanwhile."""
    identity = new_transaction_id()
    since = parse_since(given.since)

    def plan(tree: PlanView) -> dict[str, Any]:
        tree.claims.claim_journal()
        rows = _select(workspace, given, call, since)
        if not rows:
            raise _nothing(given, call)
        reverted, conflicts, kept = [], [], []
        for row in rows:
            try:
                known = tree.lookup(row.path, force=True)
                after = _reverted(workspace, tree, known, row)
            except JournalError:
                raise
            except (ToolError, StorageError) as error:
                if is_of_system(error):
                    raise
                conflicts.append(_conflict(workspace, row, tool_error(error)))
                continue
            if _is_changed_since(known, row):
                kept.append(row.path)
            if known.now is None:
                known.facts = metadata.from_journal(row.detail) or known.facts
            elif known.facts is not None and known.facts.mode == row.detail.get("file_mode"):
                known.facts = metadata.from_journal(row.detail, known.facts, key="mode_before")
            done = stage_file(
                tree,
                known,
                after,
                call,
                op="redo" if given.redo else "undo",
                mode="delete" if after is None else "overwrite" if known.now is not None else "create",
                txn=identity,
                undoes=row.seq,
            )
            reverted.append(_reverted_row(row, done, call))
        if conflicts:
            raise _Refused(conflicts)
        payload = {
            "reverted": reverted,
            "conflicts": [],
            "kept": kept,
            "journal_ids": [one["journal_id"] for one in reverted],
            **({"redo": True} if given.redo else {}),
        }
        if given.dry_run:
            raise _Refused([], {**payload, "reverted": [{**one, "journal_id": None} for one in reverted]})
        return payload

    try:
        return workspace.commit(
            call, PlanFunction(frozenset({given.path} if given.path is not None else ()), plan)
        ).result()
    except _Refused as refused:
        if refused.preview is not None:
            return {**refused.preview, "journal_ids": [], "dry_run": True}
        return {"reverted": [], "conflicts": refused.conflicts, "kept": [], "journal_ids": []}


def _reverted_row(row: Row, done: dict[str, Any], call: Call) -> dict[str, Any]:
    """The change that was taken back, its author, and the row that takes it back."""
    told: dict[str, Any] = {
        "path": row.path,
        "journal_id": done["journal_id"],
        "sha256": done["sha256"],
        "undone": str(row.seq),
        "op": row.op,
        "mode": row.mode,
        "client": row.client,
        "session": row.session,
        "this_session": row.session == call.session,
    }
    if row.txn is not None:
        told["transaction_id"] = row.txn
    return told | {key: row.detail[key] for key in ("moved_from", "moved_to") if key in row.detail}


class _Refused(ToolError):
    """Raised to change nothing: because of conflicts, or because only a preview was wanted."""

    def __init__(self, conflicts: list[dict[str, Any]], preview: dict[str, Any] | None = None) -> None:
        super().__init__(
            refuse(
                "conflict",
                "undo_conflict",
                "a later change is in the way.",
                next_step=call_tool("journal_tail"),
            ).envelope
        )
        self.conflicts = conflicts
        self.preview = preview


# --- which changes --------------------------------------------------------------------------------------------


ANY_SESSION = "any"


def _session(given: Undo, call: Call) -> str | None:
    """Whose changes: this session's, unless the call names others."""
    if given.session is None:
        return call.session if given.client is None else None
    return None if given.session == ANY_SESSION else given.session


def _nothing(given: Undo, call: Call) -> ToolError:
    whose = "of this session " if _session(given, call) == call.session else ""
    what = "undo" if given.redo else "change"
    named = {"path": given.path, "client": given.client, "since": given.since}
    where = "".join(
        f" with {name}={make_printable(value)}" for name, value in named.items() if value is not None
    )
    return refuse(
        "not_found",
        "nothing_to_undo",
        f"nothing to take back: no {what} {whose}was found{where}.",
        next_step=call_tool("journal_tail")
        if not whose
        else either(call_again(session=ANY_SESSION), call_tool("journal_tail")),
        suggested_action="reread",
    )


def _select(workspace: Workspace, given: Undo, call: Call, since: int | None) -> list[Row]:
    """The rows to take back, newest first, whole transactions at a time."""
    if given.journal_id is not None:
        return _named(workspace, given.journal_id)
    path = canonical(workspace.roots, given.path) if given.path is not None else None
    found: list[list[Row]] = []
    taken: set[int] = set()
    before: int | None = None
    while len(found) < given.n or since is not None:
        wanted_rows = Filter(
            path=path,
            session=_session(given, call),
            client=given.client,
            since=since,
            before=before,
        )
        page = workspace.journal.rows(wanted_rows, PAGE)
        for row in page:
            takes_back = row.op in _TAKES_BACK
            if row.seq in taken or (row.op == "undo") != given.redo or (takes_back and not given.redo):
                continue
            if not _is_effective(workspace, row):
                continue
            group = _whole(workspace, row)
            taken |= {one.seq for one in group}
            found.append(group)
            if len(found) >= (given.n if since is None else MOST):
                return [one for group in found for one in group]
        if len(page) < PAGE:
            break
        before = page[-1].seq
    return [one for group in found for one in group]


def _named(workspace: Workspace, ids: str) -> list[Row]:
    """The changes with these ids, newest first: a later one of a file must be taken back before an earlier one."""
    found: dict[int, Row] = {}
    for identity in ids.split(","):
        seq = sequence(identity.strip())
        row = workspace.journal.row(seq) if seq is not None else None
        if row is None:
            raise refuse(
                "not_found",
                "version_not_found",
                f"the journal has no entry {make_printable(identity.strip())[:64]}.",
                next_step=then(call_tool("journal_tail"), call_again(journal_id=FILL)),
                suggested_action="reread",
            )
        if not _is_effective(workspace, row):
            raise refuse(
                "conflict",
                "already_undone",
                f"change {row.seq} was undone already.",
                next_step=call_tool("history", path=row.path),
                suggested_action="abort",
            )
        found.update((one.seq, one) for one in _whole(workspace, row))
    return [found[seq] for seq in sorted(found, reverse=True)]


def _whole(workspace: Workspace, row: Row) -> list[Row]:
    rows = workspace.journal.transaction(row.txn) if row.txn is not None else [row]
    return [one for one in reversed(rows) if _is_effective(workspace, one)]


def _is_effective(workspace: Workspace, row: Row) -> bool:
    """Not taken back, or taken back and then again."""
    by = workspace.journal.undone_by(row.seq)
    return by is None or not _is_effective(workspace, by)


# --- taking one back ---------------------------------------------------------------------------------------------


def _is_changed_since(known: PlannedFile, row: Row) -> bool:
    """Whether the file has later edits, which stay."""
    return known.now is not None and known.sha256 != (row.new_sha.hex() if row.new_sha is not None else None)


def _conflict(workspace: Workspace, row: Row, error: ToolError) -> dict[str, Any]:
    """Why a change cannot be taken back, and the author of the later change, as far as the journal knows."""
    reason = error.envelope.context.get("reason", "refused")
    conflict = {"path": row.path, "reason": reason, "undone": str(row.seq)}
    if reason in ("later_edit", "changed_since"):
        last = workspace.journal.last_of(row.path)
        conflict["by"] = last.client if last is not None and last.seq > row.seq else "another program"
    return conflict


def _reverted(workspace: Workspace, tree: PlanView, known: PlannedFile, row: Row) -> Content | None:
    """What the file becomes when this change is taken back now."""
    new = row.new_sha.hex() if row.new_sha is not None else None
    old = row.old_sha.hex() if row.old_sha is not None else None
    if known.sha256 == new:
        return workspace.store.find(old) if old is not None else None
    if known.now is None or new is None or old is None:
        raise refuse(
            "conflict",
            "changed_since",
            f"{known.path} was created or deleted after that change.",
            next_step=call_tool("diff", path=known.path),
        )
    return tree.derive(known, f"undo {row.seq}", lambda: _merged(workspace, tree, known, new, old))


def _merged(workspace: Workspace, tree: PlanView, known: PlannedFile, new: str, old: str) -> Content:
    for sha256 in (new, old):
        check_in_memory(workspace.store.find(sha256).size, known.path)
    try:
        now = codec.decode(tree.data(known))
        base = codec.decode(workspace.store.load(new)).body
        back = codec.decode(workspace.store.load(old)).body
    except (ToolError, StorageError):
        raise refuse(
            "conflict",
            "changed_since",
            f"{known.path} is not text and was changed since.",
            next_step=call_tool("diff", path=known.path),
        ) from None
    match merge.merge(base, now.body, back):
        case merge.Merged(merged):
            return workspace.store.take(codec.encode_body(now.style, merged))
        case merge.Conflict():
            raise refuse(
                "conflict",
                "later_edit",
                f"a later change of {known.path} touches the same lines.",
                next_step=call_tool("diff", path=known.path),
            )
