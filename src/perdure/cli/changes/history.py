"""`perdure history`: the versions of a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perdure.cli.changes.journal_table import show
from perdure.cli.output import Screen
from perdure.cli.tool_command import parser_for, run_tool

if TYPE_CHECKING:
    from perdure.worker.compose import Settings

N = 20


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "history",
        "The versions of a file, newest last. Times are local. `perdure show ID` shows what a version "
        "changed, `perdure cat PATH@ID` prints it.",
    )
    made.add_argument("path")
    made.add_argument("-n", type=int, default=N, help=f"how many changes (default: {N})")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    return run_tool(options, "history", {"path": options.path, "n": options.n}, _show)


def _show(payload: dict[str, Any], _: Settings) -> None:
    show(payload["versions"][::-1], Screen(), with_path=False)
