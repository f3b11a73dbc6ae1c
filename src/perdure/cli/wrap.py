"""`perdure wrap`: one stdio MCP server made durable, its names unchanged and nothing added."""

from __future__ import annotations

import argparse
import os
import sys

from perdure.cli.options import add_task_after, settle
from perdure.cli.parser import Parser


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="perdure wrap",
        usage="perdure wrap [-h] [--name NAME] [--task-after SECONDS] -- COMMAND [ARGS…]",
        description="Put the durable host in front of one stdio MCP server: same tool names, nothing added.",
    )
    found.add_argument("--name", help="the server's name in health and errors (default: the command's name)")
    add_task_after(found)
    return found


def main(argv: list[str]) -> int:
    from perdure.host.launch import wrapped_spec
    from perdure.host.main import serve_stdio

    own, command = _split(argv)
    options = parser().parse_args(own)
    if not command:
        parser().error("no command: perdure wrap -- COMMAND ARGS…")
    name = options.name or os.path.basename(command[0])
    return serve_stdio(
        lambda: settle(argparse.Namespace(task_after=options.task_after), "wrap", leave_out_faults=True),
        lambda settings: wrapped_spec(name, tuple(command), settings),
        wrapped=True,
    )


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Ours before `--`, the server's after it; without one, the first word that is no option begins it."""
    if "--" in argv:
        at = argv.index("--")
        return argv[:at], argv[at + 1 :]
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in ("--name", "--task-after") else 1
    return argv[:at], argv[at:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
