"""`perdure undo`: changes taken back, and whose they were."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perdure.cli.changes.journal_table import what
from perdure.cli.output import Screen, age, clean, count
from perdure.cli.tool_command import add_force, open_for_reading, parser_for, run_tool

if TYPE_CHECKING:
    from perdure.storage.journal import Row
    from perdure.worker.compose import Settings

REASONS = {
    "later_edit": "a later change touches the same lines",
    "changed_since": "it was changed since in a way that cannot be merged",
    "not_empty": "the directory has other files by now",
    "former_content_unknown": "its content before that change is not known",
}
CHANGES_SHOWN = 200
CONFLICTS_SHOWN = 50


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "undo",
        "Take back the newest change in the workspace, or the ones named, whoever made them. Edits made since are kept; "
        "where they collide nothing is changed and the exit code is 3.",
    )
    made.add_argument(
        "change", nargs="?", metavar="ID", help="undo only this change; the id is from `perdure journal`"
    )
    made.add_argument(
        "-n", "--n", type=int, default=1, help="how many changes (default: 1); a transaction counts as one"
    )
    made.add_argument("--path", help="only changes of this file, or in this folder")
    made.add_argument(
        "--turn",
        type=int,
        help="all changes of this turn, by default of the session that changed something last",
    )
    made.add_argument("--agent", help="all changes of this subagent")
    made.add_argument("--session", help="only changes of this session (default: any)")
    made.add_argument("--client", help="only changes of this client, by its name")
    made.add_argument("--since", metavar="TIME", help="all changes since then: 10m, 2h, today, or ISO 8601")
    made.add_argument("--id", dest="journal_id", metavar="ID", help="the same as ID")
    made.add_argument("--redo", action="store_true", help="redo: take back the latest undo")
    made.add_argument("--dry-run", action="store_true", help="print what would happen, and change nothing")
    add_force(made)
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    if options.change is not None and options.journal_id is not None:
        parser().error("the change is named twice: ID or --id ID")
    named = options.change if options.change is not None else options.journal_id
    names = ("n", "path", "client", "since", "turn", "agent", "redo", "dry_run")
    given = {name: getattr(options, name) for name in names}
    session = options.session if options.turn is not None else options.session or "any"
    given |= {"session": session, "change": named.removeprefix("#") if named else None}

    def show(payload: dict[str, Any], settings: Settings) -> None:
        print_outcome(payload, changes_of(payload, settings), Screen(), is_redo=options.redo)

    return run_tool(options, "undo", given, show, documented)


def documented(payload: dict[str, Any], _: Settings) -> dict[str, Any]:
    """With the names that every command about changes has."""
    if "reverted" not in payload:
        return payload
    reverted = [{"id": one["undone"], **one} for one in payload["reverted"]]
    return {**payload, "reverted": reverted, "kept": payload.get("kept", []), "ids": payload["journal_ids"]}


def changes_of(payload: dict[str, Any], settings: Settings) -> list[Row]:
    """The first changes that were taken back; of an undo, and of its redo, the change that was undone."""
    service = open_for_reading(settings)
    try:
        rows = []
        for one in payload["reverted"][:CHANGES_SHOWN]:
            row = service.journal.row(int(one["undone"]))
            while row is not None and row.undoes is not None:
                row = service.journal.row(row.undoes)
            assert row is not None, "the journal keeps every row"
            rows.append(row)
        return rows
    finally:
        service.close()


def print_outcome(payload: dict[str, Any], changes: list[Row], screen: Screen, *, is_redo: bool) -> None:
    verb = "redo" if is_redo else "undo"
    if payload["conflicts"]:
        screen.line(f"nothing was changed: {count(len(payload['conflicts']), 'conflict')}", "bold")
        for conflict in payload["conflicts"][:CONFLICTS_SHOWN]:
            reason = REASONS.get(conflict["reason"], conflict["reason"].replace("_", " "))
            path = clean(conflict["path"])
            by = f" (by {clean(conflict['by'])})" if conflict.get("by") else ""
            lines = "".join(f", line {start + 1}" for start, _ in conflict.get("lines", ()))
            screen.line(f"  {path}: {reason}{by}{lines}")
            screen.line(
                f"  perdure diff {path} shows it, perdure history {path} lists the versions to restore", "dim"
            )
        return
    is_preview = bool(payload.get("dry_run"))
    done = f"would {verb}" if is_preview else "redid" if is_redo else "undid"
    if payload.get("session"):
        screen.line(f"session {clean(payload['session'])}", "dim")
    for row in changes:
        word = clean(what({"op": row.op, "mode": row.mode}))
        screen.line(f"{done} #{row.seq} {word} {clean(row.path)} by {clean(row.client)}, {age(row.ts)}")
    if len(payload["reverted"]) > len(changes):
        screen.line(f"and {count(len(payload['reverted']) - len(changes), 'more change')}")
    for path in payload.get("kept", ()):
        screen.line(f"kept the later edits of {clean(path)}")
    if not payload["reverted"]:
        return
    first = payload["reverted"][-1]
    if is_preview and "by_author" in payload:
        screen.line("nothing was changed yet. To do it: the same command without --dry-run", "dim")
    elif is_preview:
        screen.line(f"nothing was changed yet. To do it: perdure undo {first['undone']}", "dim")
    elif is_redo:
        screen.line(f"Undo again: perdure undo {payload['journal_ids'][-1]}", "dim")
    else:
        screen.line(f"Redo: perdure undo --redo {payload['journal_ids'][-1]}", "dim")
