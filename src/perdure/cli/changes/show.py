"""`perdure show`: one change, whose it is and what it changed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from perdure.cli.changes.change import content, entries, find_change
from perdure.cli.output import Screen, age, clean, count, full_time, microseconds_of, print_diff, print_json
from perdure.cli.tool_command import parser_for, read_journal
from perdure.text.diff_lines import count_lines

if TYPE_CHECKING:
    from perdure.workspace.workspace import Workspace

COMMIT: Final = 12


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "show",
        "One change: who made it, when, and its diff. All files that one tool call or transaction changed are one change.",
    )
    made.add_argument("id", metavar="ID", help="from `perdure timeline` or `journal`, or a transaction_id")
    return made


def main(argv: list[str]) -> int:
    return read_journal(parser().parse_args(argv), "show", _run)


def _run(options: argparse.Namespace, service: Workspace) -> int:
    from perdure.surfaces.write.timeline import LineCounter, describe
    from perdure.workspace.undo.changes import rows_of

    found = find_change(service, options.id)
    change = describe(service, found, LineCounter(service))
    files = entries(service, rows_of(service.journal, found))
    texts = [_with_text(file) for file in files]
    if change["added"] is None:  # too much for a page of the timeline
        counts = [lines for file in texts if "diff" in file and (lines := count_lines(file["diff"]))]
        change["added"] = sum(added for added, _ in counts)
        change["removed"] = sum(removed for _, removed in counts)
    if options.json:
        print_json({"ok": True, **change, "entries": texts})
    else:
        _print(service, change, files, Screen())
    return 0


def _with_text(file: dict[str, Any]) -> dict[str, Any]:
    return {**file, "diff": file["diff"].decode("utf-8", "replace")} if "diff" in file else file


def _print(service: Workspace, change: dict[str, Any], files: list[dict[str, Any]], screen: Screen) -> None:
    ts = microseconds_of(change["ts"])
    status = f"  {change['status']}" if change["status"] != "done" else ""
    screen.line(f"change {change['id']}  {clean(change['tool'])}".rstrip() + status, "bold")
    if "command" in change:
        screen.line(f"ran    {clean(change['command'])}")
    agent = f"  agent {clean(change['agent'])}" if "agent" in change else ""
    turn = f"  turn {change['turn']}" if "turn" in change else ""
    session = f"  session {clean(change['session'])}" if change["session"] else ""
    screen.line(f"by     {clean(change['client'])}{agent}{turn}{session}")
    if "shared_with" in change:
        others = ", ".join(clean(one) for one in change["shared_with"])
        screen.line(f"shared with {others}: calls that ran at the same time", "yellow")
    screen.line(f"when   {full_time(ts)}  {age(ts)}")
    if "not_covered" in change:
        screen.line(f"gone, and not covered: {', '.join(map(clean, change['not_covered']))}", "red")
    if "head" in change:
        before, after = ((change["head"][side] or "nothing")[:COMMIT] for side in ("from", "to"))
        screen.line(f"HEAD   {clean(before)} -> {clean(after)}")
    screen.line(f"files  {count(change['files'], 'file')}  +{change['added']} -{change['removed']} lines")
    for file in files:
        screen.line()
        screen.line(_headline(service, file))
        if "diff" in file:
            print_diff(file["diff"], screen)
        elif "no_diff" in file:
            screen.line(f"no diff: {clean(file['no_diff'])}", "yellow")


def _headline(service: Workspace, file: dict[str, Any]) -> str:
    """`change a.py`, `rename a -> b`, `link a -> target`, `create directory a`."""
    source = f"{clean(file['from'])} -> " if "from" in file else ""
    kind = f"{file['kind']} " if "kind" in file and file["op"] != "link" else ""
    target = ""
    if file["op"] == "link" and "diff" in file:
        data = content(service, file["path"], bytes.fromhex(file["sha256"])) or b""
        target = f" -> {clean(data.decode('utf-8', 'replace'))}"
    mode = f" to {file['mode']}" if file["op"] == "mode" else ""
    return f"{file['op']} {kind}{source}{clean(file['path'])}{target}{mode}"
