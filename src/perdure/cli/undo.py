"""`perdure undo`: changes taken back."""

from __future__ import annotations

import argparse

from perdure.cli.tool_command import parser_for, run_tool


def parser() -> argparse.ArgumentParser:
    found = parser_for(
        "undo",
        "Take back changes. Edits made since are kept; where they collide nothing is changed and the exit code is 3.",
    )
    found.add_argument("-n", type=int, default=1, help="how many; a transaction is one: 1")
    found.add_argument("--path", help="only changes of this file")
    found.add_argument("--session", help="only changes of this session: any")
    found.add_argument("--client", help="only changes of this client, by its name")
    found.add_argument(
        "--since", metavar="TIME", help="every such change from this time on: ISO 8601, 10m, 2h, today"
    )
    found.add_argument("--id", dest="journal_id", metavar="ID", help="this change, and no other")
    found.add_argument("--redo", action="store_true", help="take back undos instead")
    found.add_argument("--dry-run", action="store_true", help="say what would happen, and change nothing")
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    names = ("n", "path", "session", "client", "since", "journal_id", "redo", "dry_run")
    given = {name: getattr(options, name) for name in names}
    return run_tool(options, "undo", {**given, "session": options.session or "any"})
