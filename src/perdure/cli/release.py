"""`perdure release`: a reservation that is over."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perdure.cli.output import Screen
from perdure.cli.reservations import print_holders
from perdure.cli.tool_command import add_force, parser_for, run_tool

if TYPE_CHECKING:
    from perdure.worker.compose import Settings


def parser() -> argparse.ArgumentParser:
    made = parser_for("release", "Release a reservation, by its token. Another owner's needs --force.")
    made.add_argument("token", type=int, help="from `perdure reserve` or `perdure reservations`")
    add_force(made)
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    return run_tool(options, "reserve", {"action": "release", "token": options.token}, _show)


def _show(payload: dict[str, Any], _: Settings) -> None:
    screen = Screen()
    match payload["status"]:
        case "ok":
            screen.line(f"released {payload['token']}")
        case "held":
            screen.line("not released: it is another owner's (--force)", "bold")
            print_holders(payload["holders"], screen)
        case "lost":
            screen.line(f"reservation {payload['token']} has ended already")
        case _:
            screen.line(f"there is no reservation {payload['token']}")
