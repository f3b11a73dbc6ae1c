"""Calls of tools outside Perdure, put into a journal as the recorder puts them there."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from perdure.storage.journal import Journal, NewRow, Row
from perdure.storage.timeline import ANOTHER_PROGRAM, CallStatus, NewCall
from perdure.text import lines
from perdure.workspace.workspace import new_transaction_id


class Effect(msgspec.Struct, frozen=True):
    """A file before and after a call; None where there is none. `detail` is kept with its row."""

    path: str
    before: bytes | None
    after: bytes | None
    detail: dict[str, Any] = {}


def record(
    journal: Journal,
    *effects: Effect,
    tool: str = "Bash",
    client: str = "claude-code",
    session: str = "s1",
    agent: str | None = None,
    turn: int | None = None,
    command: str | None = None,
    call_id: str | None = None,
    status: CallStatus = "done",
    on_disk: Path | None = None,
) -> list[Row]:
    """One call and its rows. With `on_disk` the files of that folder become what the call left."""
    txn = new_transaction_id()
    call = NewCall(
        client=client,
        session=session,
        tool=tool,
        txn=txn,
        agent=agent,
        turn=turn,
        command=command,
        call_id=call_id,
        paths=tuple(effect.path for effect in effects),
    )
    named = {"tool": tool, "agent": agent, "turn": turn, "command": command, "call_id": call_id}
    told = {"call": {name: value for name, value in named.items() if value is not None}}

    def work() -> list[Row]:
        opened = journal.begin_call(call)
        rows = _append(journal, effects, client, session, txn, told)
        journal.update_call(opened.id, status=status, seq=rows[0].seq)
        return rows

    rows = journal.transact(work)
    for effect in effects if on_disk is not None else ():
        place = (on_disk or Path()) / effect.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if effect.after is None:
            place.unlink(missing_ok=True)
        else:
            place.write_bytes(effect.after)
    return rows


def record_other_program(journal: Journal, *effects: Effect) -> list[Row]:
    """A change between calls."""
    return journal.transact(lambda: _append(journal, effects, ANOTHER_PROGRAM, "", new_transaction_id(), {}))


def _append(
    journal: Journal, effects: tuple[Effect, ...], client: str, session: str, txn: str, told: dict[str, Any]
) -> list[Row]:
    rows: list[Row] = []
    added = removed = 0
    for effect in effects:
        for content in (effect.before, effect.after):
            if content is not None:
                journal.store_content(sha256(content).digest(), content)
        for change in lines.diff(_lines(effect.before), _lines(effect.after)):
            added += change.b_end - change.b_start
            removed += change.a_end - change.a_start
    for number, effect in enumerate(effects):
        mode = "delete" if effect.after is None else "create" if effect.before is None else "overwrite"
        is_moved = "moved_from" in effect.detail or "moved_to" in effect.detail
        first = {**told, "added": added, "removed": removed} if not number else {}
        rows.append(
            journal.append(
                NewRow(
                    path=effect.path,
                    op="native",
                    mode="move" if is_moved else mode,
                    old_sha=sha256(effect.before).digest() if effect.before is not None else None,
                    new_sha=sha256(effect.after).digest() if effect.after is not None else None,
                    bytes=len(effect.after or b""),
                    client=client,
                    session=session,
                    txn=txn,
                    detail={**effect.detail, **first},
                )
            )
        )
    journal.settle(row.seq for row in rows)
    return rows


def _lines(content: bytes | None) -> list[str]:
    return lines.split(content.decode()) if content is not None and b"\0" not in content else []
