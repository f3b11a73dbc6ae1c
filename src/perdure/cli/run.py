"""`perdure run`: the host on standard input and output."""

from __future__ import annotations

import argparse

from perdure.cli.options import add_mounts, add_shared, add_task_after, add_telemetry, settle
from perdure.cli.parser import Parser


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="perdure run",
        description="A stdio MCP server that survives what runs behind it. Speaks both protocol eras.",
    )
    add_mounts(found)
    add_task_after(found)
    add_shared(found)
    add_telemetry(found)
    return found


def main(argv: list[str]) -> int:
    from perdure.host.launch import specs_of
    from perdure.host.main import serve_stdio

    options = parser().parse_args(argv)
    return serve_stdio(lambda: settle(options, "run", leave_out_faults=True), specs_of)
