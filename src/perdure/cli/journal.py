"""`perdure journal`: the latest changes of a workspace."""

from __future__ import annotations

import argparse

from perdure.cli.tool_command import parser_for, run_tool


def parser() -> argparse.ArgumentParser:
    found = parser_for("journal", "The latest changes, newest last.")
    found.add_argument("-n", type=int, default=20, help="how many: 20")
    found.add_argument("--path", help="only this file")
    found.add_argument("--mode", help="only this mode: create, overwrite, append, replace, delete, move")
    found.add_argument("--client", help="only what this client wrote")
    found.add_argument("--cursor", help="go on with older ones: next_cursor of an earlier answer")
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    given = {
        "n": options.n,
        "filter_path": options.path,
        "filter_mode": options.mode,
        "filter_client": options.client,
        "cursor": options.cursor,
    }
    return run_tool(options, "journal_tail", given)
