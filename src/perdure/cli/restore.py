"""`perdure restore`: a version of a file brought back."""

from __future__ import annotations

from perdure.cli.tool_command import parser_for, run_tool


def main(argv: list[str]) -> int:
    parser = parser_for("restore", "Bring back a version of a file. That is a change too, and can be undone.")
    parser.add_argument("path")
    parser.add_argument("journal_id", metavar="ID", help="from `perdure history`")
    parser.add_argument("--expect", metavar="SHA256", help="only if the file has this hash now")
    options = parser.parse_args(argv)
    given = {
        "path": options.path,
        "journal_id": options.journal_id,
        "expected_prev_sha256": options.expect,
    }
    return run_tool(options, "restore", given)
