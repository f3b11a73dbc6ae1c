"""`perdure history`: the versions of a file."""

from __future__ import annotations

import argparse

from perdure.cli.tool_command import parser_for, run_tool


def parser() -> argparse.ArgumentParser:
    found = parser_for("history", "The versions of a file, newest first.")
    found.add_argument("path")
    found.add_argument("-n", type=int, default=20, help="how many: 20")
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    return run_tool(options, "history", {"path": options.path, "n": options.n})
