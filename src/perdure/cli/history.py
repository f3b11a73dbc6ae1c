"""`perdure history`: the versions of a file."""

from __future__ import annotations

from perdure.cli.tool_command import parser_for, run_tool


def main(argv: list[str]) -> int:
    parser = parser_for("history", "The versions of a file, newest first.")
    parser.add_argument("path")
    parser.add_argument("-n", type=int, default=20, help="how many: 20")
    options = parser.parse_args(argv)
    return run_tool(options, "history", {"path": options.path, "n": options.n})
