"""`perdure undo`: changes taken back."""

from __future__ import annotations

from perdure.cli.tool_command import parser_for, run_tool


def main(argv: list[str]) -> int:
    parser = parser_for(
        "undo",
        "Take back changes. Edits made since are kept; where they collide nothing is changed and the exit code is 3.",
    )
    parser.add_argument("-n", type=int, default=1, help="how many; a transaction is one: 1")
    parser.add_argument("--path", help="only changes of this file")
    parser.add_argument("--session", help="only changes of this session")
    parser.add_argument("--client", help="only changes of this client, by its name")
    parser.add_argument("--since", metavar="TIME", help="every such change from this time on, ISO 8601")
    parser.add_argument("--id", dest="journal_id", metavar="ID", help="this change, and no other")
    parser.add_argument("--redo", action="store_true", help="take back undos instead")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen, and change nothing")
    options = parser.parse_args(argv)
    names = ("n", "path", "session", "client", "since", "journal_id", "redo", "dry_run")
    return run_tool(options, "undo", {name: getattr(options, name) for name in names})
