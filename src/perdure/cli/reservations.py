"""`perdure reservations`: which paths are reserved, by whom and until when."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perdure.cli.output import (
    Screen,
    clean,
    column,
    home,
    microseconds_of,
    print_json,
    print_table,
    short_time,
)
from perdure.cli.tool_command import has_store, open_for_reading, parser_for, worker_settings

if TYPE_CHECKING:
    from perdure.worker.compose import Settings


def parser() -> argparse.ArgumentParser:
    return parser_for(
        "reservations",
        "The paths that agents and people have reserved. `perdure release TOKEN` releases one.",
    )


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    settings = worker_settings(options, "reservations")
    is_shared = settings.reservations.scope == "repository"
    holders = _holders(settings) if has_store(settings) or is_shared else []
    if options.json:
        print_json({"holders": holders})
    elif holders:
        print_holders(holders, Screen())
    else:
        place = home(clean(settings.workspaces[0]))
        print(
            f"No path is reserved in {place}. Agents reserve with the tool reserve, you with perdure reserve."
        )
    return 0


def _holders(settings: Settings) -> list[dict[str, Any]]:
    from perdure.worker.compose import open_write
    from perdure.workspace.reservations.access import describe
    from perdure.workspace.reservations.rules import Held

    workspace = open_for_reading(settings) if has_store(settings) else open_write(settings)
    try:
        return [describe(Held(path, by)) for by in workspace.reservations.active() for path in by.paths]
    finally:
        workspace.close()


def print_holders(holders: list[dict[str, Any]], screen: Screen) -> None:
    columns = [
        column("token", (str(one["token"]) for one in holders), right=True),
        column("path", (clean(one["path"]) for one in holders)),
        column("mode", (one["mode"] for one in holders)),
        column("client", (clean(one["client"]) for one in holders)),
        column("agent", (clean(one.get("agent", "")) for one in holders)),
        column("until", (short_time(microseconds_of(one["until"])) for one in holders)),
        column("reason", (clean(one["reason"]) for one in holders)),
    ]
    print_table(columns, screen)
