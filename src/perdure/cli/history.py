"""`perdure history`: the versions of a file."""

from __future__ import annotations

import argparse
from typing import Any

from perdure.cli.journal_table import show
from perdure.cli.tool_command import parser_for, run_tool

N = 20


def parser() -> argparse.ArgumentParser:
    made = parser_for("history", "The versions of a file, newest first. Times are in UTC.")
    made.add_argument("path")
    made.add_argument("-n", type=int, default=N, help=f"how many: {N}")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    return run_tool(options, "history", {"path": options.path, "n": options.n}, _show)


def _show(payload: dict[str, Any]) -> None:
    show(payload["versions"], with_path=False)
