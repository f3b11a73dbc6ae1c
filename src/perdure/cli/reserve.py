"""`perdure reserve`: paths that other agents cannot write."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from perdure.cli.output import Screen
from perdure.cli.reservations import print_holders
from perdure.cli.tool_command import add_force, parser_for, run_tool

if TYPE_CHECKING:
    from perdure.worker.compose import Settings

TTL_S: Final = 600


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "reserve",
        "Reserve files, folders or globs: until the time is over, or this terminal is closed, other agents cannot write "
        "them through Perdure. All paths are reserved or none; where another holds one, the exit code is 3.",
    )
    made.add_argument("paths", nargs="+", metavar="PATH", help="a file, a folder, or a glob as in .gitignore")
    made.add_argument("--shared", action="store_true", help="others may reserve the paths as shared too")
    made.add_argument(
        "--ttl", type=int, default=TTL_S, metavar="SECONDS", help=f"for how long (default: {TTL_S})"
    )
    made.add_argument("--reason", help="what for; others see it")
    add_force(made)
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    given = {
        "action": "acquire",
        "paths": options.paths,
        "mode": "shared" if options.shared else "exclusive",
        "ttl_s": options.ttl,
        "reason": options.reason,
    }
    return run_tool(options, "reserve", given, _show)


def _show(payload: dict[str, Any], _: Settings) -> None:
    screen = Screen()
    if payload["status"] == "ok":
        screen.line(f"reserved, token {payload['token']}: perdure release {payload['token']}")
    else:
        screen.line("not reserved: others hold these paths", "bold")
    print_holders(payload["holders"], screen)
