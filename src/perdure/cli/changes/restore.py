"""`perdure restore`: a version of a file brought back."""

from __future__ import annotations

import argparse
from typing import Any

from perdure.cli.output import Screen, clean, count
from perdure.cli.tool_command import add_force, parser_for, run_tool


def parser() -> argparse.ArgumentParser:
    found = parser_for("restore", "Bring back a version of a file. That is a change too, and can be undone.")
    found.add_argument("path")
    found.add_argument("journal_id", metavar="ID", help="from `perdure history`")
    found.add_argument("--expect", metavar="SHA256", help="restore only if the file has this sha256 now")
    add_force(found)
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    given = {
        "path": options.path,
        "journal_id": options.journal_id,
        "expected_prev_sha256": options.expect,
    }
    return run_tool(options, "restore", given, lambda payload, _: _print(payload, options.journal_id))


def _print(payload: dict[str, Any], version: str) -> None:
    screen = Screen()
    screen.line(
        f"restored {clean(payload['path'])} as change {version} left it  {count(payload['bytes'], 'byte')}"
    )
    screen.line(f"Undo: perdure undo {payload['journal_id']}", "dim")
