"""`perdure diff`: what changed between two versions of a file."""

from __future__ import annotations

import argparse

from perdure.cli.tool_command import parser_for, run_tool


def parser() -> argparse.ArgumentParser:
    made = parser_for("diff", "What changed between two versions of a file, or a version and the disk.")
    made.add_argument("path")
    made.add_argument("--from", metavar="ID", help="a journal id: the version before")
    made.add_argument("--to", metavar="ID", default="disk", help="a journal id, or disk: disk")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    return run_tool(options, "diff", {"path": options.path, "from": vars(options)["from"], "to": options.to})
