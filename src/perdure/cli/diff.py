"""`perdure diff`: what changed between two versions of a file."""

from __future__ import annotations

from perdure.cli.tool_command import parser_for, run_tool


def main(argv: list[str]) -> int:
    parser = parser_for("diff", "What changed between two versions of a file, or a version and the disk.")
    parser.add_argument("path")
    parser.add_argument("--from", dest="from_", metavar="ID", help="a journal id: the version before")
    parser.add_argument("--to", metavar="ID", default="disk", help="a journal id, or disk: disk")
    options = parser.parse_args(argv)
    return run_tool(options, "diff", {"path": options.path, "from": options.from_, "to": options.to})
