"""`perdure journal`: the latest changes of a workspace."""

from __future__ import annotations

import argparse
from typing import Any

from perdure.cli.journal_table import show
from perdure.cli.tool_command import parser_for, run_tool

N = 20


def parser() -> argparse.ArgumentParser:
    made = parser_for("journal", "The latest changes, newest last. Times are in UTC.")
    made.add_argument("-n", type=int, default=N, help=f"how many: {N}")
    made.add_argument("--path", help="only this file")
    made.add_argument("--mode", help="only this mode: create, overwrite, append, replace, delete, move")
    made.add_argument("--client", help="only what this client wrote")
    made.add_argument("--cursor", help="go on with older ones: next_cursor of an earlier answer")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    arguments = {
        "n": options.n,
        "filter_path": options.path,
        "filter_mode": options.mode,
        "filter_client": options.client,
        "cursor": options.cursor,
    }
    return run_tool(options, "journal_tail", arguments, _show)


def _show(payload: dict[str, Any]) -> None:
    show(payload["entries"])
    if "next_cursor" in payload:
        print(f"older ones: --cursor {payload['next_cursor']}")
