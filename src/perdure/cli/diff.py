"""`perdure diff`: what changed between two versions of a file."""

from __future__ import annotations

import argparse

from perdure.cli.tool_command import parser_for, run_tool


def parser() -> argparse.ArgumentParser:
    found = parser_for("diff", "What changed between two versions of a file, or a version and the disk.")
    found.add_argument("path")
    found.add_argument("--from", dest="from_", metavar="ID", help="a journal id: the version before")
    found.add_argument("--to", metavar="ID", default="disk", help="a journal id, or disk: disk")
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    return run_tool(options, "diff", {"path": options.path, "from": options.from_, "to": options.to})
