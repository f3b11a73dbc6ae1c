"""What a session said against what it left behind.

| promise | how it is checked |
|---|---|
| answered once | every call has one answer; none only where its host was killed; an error has a class and an outcome |
| told honestly | a call that met at most two kills is not given up; one that met none does not fail |
| nothing acknowledged is lost | all its effects are there once, in rows newer than what was acknowledged before it |
| nothing is done twice | no effect is there twice, no key has two plans, no row is nobody's |
| all or nothing | of a call's effects, and of a transaction's rows, all are there or none |
| nothing torn, nothing unrecorded | `chains.py`: every file's history leads to what is on disk |
| everything can be had back | every content of every row, and every draft that was promised, is kept and matches its hash |
| nothing is left behind | no temporary file in either root |
| the journal is whole | its own `verify` |
| nobody falls | no process ended by a fault of its own, which behind a host looks like any other loss |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from harness.crash import chains
from harness.crash.calls import (
    OUTCOMES,
    Call,
    Effect,
    Gone,
    Line,
    Restored,
    Shelved,
    TookBack,
    Wrote,
    sha256,
)
from harness.crash.foreign import Edit
from harness.crash.place import Place
from harness.crash.record import Record, Row
from harness.store_location import anchor_of, store_of
from perdure.storage.sqlite.journal import SqliteJournal

SURVIVED: Final = 2
READS_SURVIVED: Final = 1
"""So many kills a call outlives with the product's own limits."""
FATAL: Final = "Fatal Python error"
_ENVELOPE: Final = {"ok", "error", "reason_hint", "suggested_action", "context"}


def verdict(place: Place, calls: list[Call], edits: list[Edit], touched: set[str]) -> list[str]:
    """Every broken promise, in words. `touched` are files that somebody else may have changed."""
    record = Record(place)
    return [
        *answers(calls, touched),
        *effects(calls, record),
        *rows(record),
        *contents(record, calls),
        *reads(record, calls, edits),
        *chains.broken(record, edits),
        *(f"{name} was left behind" for name in record.strays),
        *journal(place),
        *falls(place),
    ]


# --- what was said ----------------------------------------------------------------------------------------


def answers(calls: list[Call], touched: set[str]) -> Iterator[str]:
    for call in calls:
        if len(call.answers) != 1 and call.fate != "unanswered":
            yield f"{call} was answered {len(call.answers)} times"
        elif call.answers:
            yield from _answer(call, touched)


def _answer(call: Call, touched: set[str]) -> Iterator[str]:
    match call.fate:
        case "done" if call.meant == "refused":
            yield f"{call} was done, and should have been refused"
        case "refused":
            if not call.payload.keys() >= _ENVELOPE and not call.payload.get("conflicts"):
                yield f"{call} was refused without an envelope: {call.answers[0]}"
            elif call.meant != "refused" and not _is_excused(call, touched):
                yield f"{call} was refused: {call.payload}"
        case "unknown" | "not_started":
            error = call.answers[0].get("error", {})
            data = error.get("data") or {}
            if data.get("outcome") not in OUTCOMES or "class" not in data or "code" not in data:
                yield f"{call} failed without a class, a code or an outcome: {error}"
            elif call.hits <= (SURVIVED if call.effects else READS_SURVIVED):
                yield f"{call} met {call.hits} kills and was given up: {error}"


def _is_excused(call: Call, touched: set[str]) -> bool:
    """Somebody else was at one of its files, and that is what it says; at the last, that it said so too often."""
    error = call.payload.get("error")
    if error == "quota_exceeded":
        error = call.payload["context"].get("last_error")
    is_stale = error in ("conflict", "stale_precondition") or bool(call.payload.get("conflicts"))
    return is_stale and bool(touched & set(call.paths))


# --- what was done ------------------------------------------------------------------------------------------


def effects(calls: list[Call], record: Record) -> Iterator[str]:
    """Calls with one idempotency key are judged as one."""
    by_path: dict[str, list[Row]] = defaultdict(list)
    for row in record.committed:
        by_path[row.path].append(row)
    claimed: set[int] = set()
    grouped = groupby(sorted(calls, key=lambda call: call.group), key=lambda call: call.group)
    for _, found in grouped:
        yield from _together(list(found), by_path, record, claimed)
    for row in record.committed:
        if row.seq not in claimed:
            yield f"row {row.seq} ({row.op} {row.path}) is of no call that may have done it"


def _together(
    calls: list[Call], by_path: dict[str, list[Row]], record: Record, claimed: set[int]
) -> Iterator[str]:
    call = next((one for one in calls if one.fate == "done"), calls[0])
    found = [_made(effect, by_path[effect.path], record) for effect in call.effects]
    counts = [
        record.shelf.count((effect.path, effect.sha)) if isinstance(effect, Shelved) else len(rows)
        for effect, rows in zip(call.effects, found, strict=True)
    ]
    fates = {one.fate for one in calls}
    if any(count > 1 for count in counts):
        yield f"{call} was done twice: {counts}"
    elif "done" in fates:
        if 0 in counts:
            yield f"{call} was acknowledged and is lost: {counts}"
        yield from _told(call, [row.seq for rows in found for row in rows])
    elif fates <= {"refused", "not_started"}:
        if any(counts):
            yield f"{call} was not to be done, and was: {counts}"
    elif len(set(counts)) > 1:
        yield f"{call} was done in part: {counts}"
    if not fates <= {"refused", "not_started"}:
        claimed |= {row.seq for rows in found for row in rows}


def _told(call: Call, seqs: list[int]) -> Iterator[str]:
    told = call.journal_ids()
    if call.effects and sorted(told) != sorted(seqs):
        yield f"{call} said that it made rows {told}, and made {seqs}"
    if told and min(told) <= call.floor and not call.payload.get("deduplicated"):
        yield f"{call} made row {min(told)}, though row {call.floor} was acknowledged before it was sent"


def _made(effect: Effect, rows: list[Row], record: Record) -> list[Row]:
    """The committed rows of its path that had this effect."""
    match effect:
        case Wrote(_, sha):
            return [row for row in rows if row.new == sha and row.op not in ("undo", "restore")]
        case Line(_, text):
            return [
                row for row in rows if text in record.lines(row.new) and text not in record.lines(row.old)
            ]
        case Gone():
            return [row for row in rows if row.new is None and row.op != "undo"]
        case TookBack(_, seq):
            return [row for row in rows if row.undoes == seq]
        case Restored(_, sha):
            return [row for row in rows if row.op == "restore" and row.new == sha]
        case Shelved():
            return []  # what is on the shelf has no row


def rows(record: Record) -> Iterator[str]:
    plans: dict[str, set[str]] = defaultdict(set)
    parts: dict[str, set[bool]] = defaultdict(set)
    for row in record.rows:
        if row.txn is not None:
            parts[row.txn].add(row.state is None)
        if row.key is not None and row.state is None:
            plans[row.key].add(row.txn or str(row.seq))
    for txn, states in parts.items():
        if len(states) > 1:
            yield f"transaction {txn} was done in part"
    for key, found in plans.items():
        if len(found) > 1:
            yield f"invocation {key} was done {len(found)} times"


# --- what is kept ---------------------------------------------------------------------------------------------


def contents(record: Record, calls: list[Call]) -> Iterator[str]:
    for sha in {sha for row in record.rows for sha in (row.old, row.new) if sha is not None}:
        if record.content(sha) is None:
            yield f"the content {sha.hex()[:8]} of a row is not kept, or does not match its hash"
    for row in record.rows:
        if row.draft is not None and row.draft not in record.drafts:
            yield f"row {row.seq} names a draft that is not there"
    for call in calls:
        draft = call.payload.get("draft") if call.fate == "refused" else None
        if draft is not None and record.drafts.get(draft) not in _sent(call):
            yield f"{call} was refused with a draft that does not hold its payload"
    for path, sha in record.shelf:
        if record.content(sha) is None:
            yield f"the content {sha.hex()[:8]} of {path} is not kept"
    for sha in record.drafts.values():
        if record.content(sha) is None:
            yield f"the content {sha.hex()[:8]} of a draft is not kept"


def _sent(call: Call) -> set[bytes]:
    """The hashes of the payloads that came with the call; of several the one is kept whose file was the reason."""
    if "content" in call.arguments:
        return {sha256(call.arguments["content"].encode())}
    return {effect.sha for effect in call.effects if isinstance(effect, Wrote)}


def reads(record: Record, calls: list[Call], edits: list[Edit]) -> Iterator[str]:
    """What a reader saw was at some time the whole file."""
    known = {(row.path, sha) for row in record.rows for sha in (row.old, row.new)}
    known |= {(edit.path, edit.after) for edit in edits}
    for call in calls:
        if call.tool == "read" and call.fate == "done":
            path, seen = call.payload["path"], bytes.fromhex(call.payload["sha256"])
            if (path, seen) not in known:
                yield f"{call} saw {seen.hex()[:8]} in {path}, which nobody wrote"


def journal(place: Place) -> Iterator[str]:
    anchor = anchor_of(place.roots[0], place.home)
    opened = SqliteJournal(str(store_of(place.roots[0], place.home)), str(anchor))
    try:
        # There is none where every process was killed before it had written anything.
        if not anchor.exists() and opened.head:
            yield f"journal: {opened.head} rows, and no anchor"
        for problem in opened.verify():
            yield f"journal: {problem.kind}, {problem.detail} ({problem.seq})"
    finally:
        opened.close()


def falls(place: Place) -> Iterator[str]:
    for line in place.said().splitlines():
        if line.startswith(FATAL):
            yield f"a process fell: {line}"
