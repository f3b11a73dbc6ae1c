"""`perdure show`: one change, whose it is and what it changed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perdure.cli import times
from perdure.cli.change import entries, rows_of, summary
from perdure.cli.diff_text import print_diff
from perdure.cli.screen import Screen, clean, count
from perdure.cli.tool_command import parser_for, print_json, read_journal
from perdure.present.diff_lines import count_lines

if TYPE_CHECKING:
    from perdure.workspace.workspace import Workspace


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "show", "One change: who made it, when, and its diff. The files of a transaction are one change."
    )
    made.add_argument("id", metavar="ID", help="from `perdure journal`, or a transaction_id")
    return made


def main(argv: list[str]) -> int:
    return read_journal(parser().parse_args(argv), "show", _run)


def _run(options: argparse.Namespace, service: Workspace) -> int:
    rows = rows_of(service, options.id)
    change, files = summary(service, rows), entries(service, rows)
    texts = [_with_text(file) for file in files]
    counts = [found for file in texts if "diff" in file and (found := count_lines(file["diff"]))]
    change |= {
        "files": len(files),
        "added": sum(added for added, _ in counts),
        "removed": sum(removed for _, removed in counts),
        "paths": [file["path"] for file in files],
    }
    if options.json:
        print_json({"ok": True, **change, "entries": texts})
    else:
        _print(change, files, Screen())
    return 0


def _with_text(file: dict[str, Any]) -> dict[str, Any]:
    return {**file, "diff": file["diff"].decode("utf-8", "replace")} if "diff" in file else file


def _print(change: dict[str, Any], files: list[dict[str, Any]], screen: Screen) -> None:
    ts = times.microseconds_of(change["ts"])
    screen.line(
        f"change {change['id']}  {clean(change['tool'])}"
        + ("  undone" if change["status"] == "undone" else ""),
        "bold",
    )
    screen.line(f"by     {clean(change['client'])}  session {clean(change['session'])}")
    screen.line(f"when   {times.full(ts)}  {times.age(ts)}")
    screen.line(f"files  {count(change['files'], 'file')}  +{change['added']} -{change['removed']} lines")
    for file in files:
        screen.line()
        source = f"{clean(file['from'])} -> " if "from" in file else ""
        screen.line(f"{file['op']} {source}{clean(file['path'])}")
        if "diff" in file:
            print_diff(file["diff"], screen)
        else:
            screen.line(f"no diff: {clean(file['no_diff'])}", "yellow")
