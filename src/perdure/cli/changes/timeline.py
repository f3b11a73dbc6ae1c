"""`perdure timeline`: what happened in a workspace, by turn and tool call, newest last."""

from __future__ import annotations

import argparse
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.cli.output import (
    Screen,
    age,
    clean,
    column,
    count,
    full_time,
    home,
    microseconds_of,
    print_table,
    short_time,
    truncate,
)
from perdure.cli.tool_command import parser_for, run_tool

if TYPE_CHECKING:
    from perdure.worker.compose import Settings

N: Final = 20
FILTERS: Final = ("turn", "agent", "session", "client", "path", "since")
MOST_TOOL: Final = 16
MOST_AGENT: Final = 16
NARROW: Final = 76
SESSION: Final = 8
PLACES_SHOWN: Final = 5
PATHS_SHOWN: Final = 10
"""In a line of the table."""
_STYLES: Final = {"done": "", "undone": "dim", "unfinished": "yellow", "late": "yellow"}

Change = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "timeline",
        "What agents and other programs did, newest last: for each tool call its agent, turn, command, files, and lines "
        "added and removed (+? −? where there are too many to count). Times are local. "
        "`perdure show ID` shows a change, `perdure undo ID` takes it back.",
    )
    made.add_argument("-n", "--n", type=int, default=N, help=f"how many changes (default: {N})")
    made.add_argument("--turn", type=int, help="only this turn of the session, or of the newest session")
    made.add_argument("--agent", help="only this subagent")
    made.add_argument("--session", help="only this session")
    made.add_argument("--client", help="only this client, such as claude-code, or 'another program'")
    made.add_argument("--path", help="only changes of this file, or in this folder")
    made.add_argument(
        "--since", metavar="TIME", help="only since then: 10m, 2h, today, yesterday, or ISO 8601"
    )
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    arguments = {"n": options.n, **{name: getattr(options, name) for name in FILTERS}}
    is_filtered = any(getattr(options, name) is not None for name in FILTERS)

    def show(payload: dict[str, Any], settings: Settings) -> None:
        screen = Screen()
        changes = payload["changes"]
        if changes and screen.is_terminal:
            _print_turns(changes, screen)
        elif changes:
            _print_table(changes, screen)
        else:
            print(_nothing(payload, settings, is_filtered=is_filtered))
        if "next_cursor" in payload:
            screen.line(f"older ones: --n {2 * options.n}", "dim")
        if payload["not_covered"]:
            screen.line(f"not covered: {_places(payload['not_covered'])}", "dim")

    return run_tool(options, "timeline", arguments, show)


def _nothing(payload: dict[str, Any], settings: Settings, *, is_filtered: bool) -> str:
    place = home(clean(settings.workspaces[0]))
    if is_filtered:
        session = f" of session {clean(payload['session'])}" if payload.get("session") else ""
        return f"No change{session} in {place} matches."
    return (
        f"No changes yet in {place}. `perdure install CLIENT --hooks --apply` records what an agent does, its shell "
        "commands included."
    )


# --- on a terminal ----------------------------------------------------------------------------------------------


class Widths(NamedTuple):
    """Of the columns that all calls share. What a call did has the rest of the line."""

    id: int
    when: int
    tool: int
    agent: int
    files: int
    lines: int


def _print_turns(changes: list[Change], screen: Screen) -> None:
    """A headline for each turn, and a line for each of its calls."""
    widths = Widths(
        *(
            max(len(text(change)) for change in changes)
            for text in (_id, _when, _tool, _agent, _files, _lines)
        )
    )
    if screen.width < NARROW:
        widths = widths._replace(when=0, agent=0)
    for number, (_, group) in enumerate(groupby(changes, key=_turn)):
        calls = list(group)
        if number:
            screen.line()
        screen.line(_headline(calls), "bold")
        for change in calls:
            _print_call(change, screen, widths)


def _turn(change: Change) -> tuple[str, str, int | None]:
    return change["client"], change["session"], change.get("turn")


def _headline(calls: list[Change]) -> str:
    first, last = calls[0], calls[-1]
    turn = f"  turn {first['turn']}" if "turn" in first else ""
    session = f"  session {clean(first['session'])[:SESSION]}" if first["session"] else ""
    return f"{clean(first['client'])}{turn}{session}  {age(microseconds_of(last['ts']))}"


def _print_call(change: Change, screen: Screen, widths: Widths) -> None:
    when = f"{_when(change):<{widths.when}}  " if widths.when else ""
    agent = f"{_agent(change):<{widths.agent}}  " if widths.agent else ""
    head = f"  {_id(change):>{widths.id}}  {when}{_tool(change):<{widths.tool}}  "
    tail = f"  {agent}{_files(change):>{widths.files}}  "
    status = f"({change['status']}) " if change["status"] != "done" else ""
    room = max(screen.width - len(head) - len(tail) - widths.lines, 0)
    screen.out.write(
        screen.styled(head, "dim")
        + screen.styled(f"{truncate(status + _what(change), room):<{room}}{tail}", _STYLES[change["status"]])
        + " " * (widths.lines - len(_lines(change)))
        + _coloured_lines(change, screen)
        + "\n"
    )
    if "command" in change and change["paths"]:
        screen.line(" " * len(head) + _paths(change), "dim")


def _coloured_lines(change: Change, screen: Screen) -> str:
    added, _, removed = _lines(change).partition(" ")
    return screen.styled(added, "green") + " " * bool(removed) + screen.styled(removed, "red")


def _id(change: Change) -> str:
    return str(change["id"])


def _when(change: Change) -> str:
    return short_time(microseconds_of(change["ts"]))


def _tool(change: Change) -> str:
    return truncate(clean(change["tool"]), MOST_TOOL)


def _agent(change: Change) -> str:
    return truncate(clean(change.get("agent", "")), MOST_AGENT)


def _files(change: Change) -> str:
    return count(change["files"], "file")


def _lines(change: Change) -> str:
    if change["added"] is None:
        return "+? −?"
    return f"+{change['added']:,} −{change['removed']:,}"


def _what(change: Change) -> str:
    return clean(change["command"]) if "command" in change else _paths(change)


def _paths(change: Change) -> str:
    """Cut at the end of the line; of very many the number is in the column of files."""
    return clean("  ".join(change["paths"]))


# --- into a pipe ------------------------------------------------------------------------------------------------


def _print_table(changes: list[Change], screen: Screen) -> None:
    """One line for each change, cut nowhere; of very many paths the first ones."""
    columns = [
        column("id", map(_id, changes), right=True),
        column("when", (full_time(microseconds_of(one["ts"])) for one in changes)),
        column("client", (clean(one["client"]) for one in changes)),
        column("session", (clean(one["session"]) for one in changes)),
        column("turn", (str(one.get("turn", "")) for one in changes), right=True),
        column("agent", (clean(one.get("agent", "")) for one in changes)),
        column("tool", (clean(one["tool"]) for one in changes)),
        column("status", (one["status"] for one in changes)),
        column("files", (f"{one['files']:,}" for one in changes), right=True),
        column("lines", map(_lines, changes), right=True),
        column("command", (clean(one.get("command", "")) for one in changes)),
        column("paths", map(_first_paths, changes)),
    ]
    print_table(columns, screen)


def _first_paths(change: Change) -> str:
    shown = clean("  ".join(change["paths"][:PATHS_SHOWN]))
    hidden = max(change["files"], len(change["paths"])) - PATHS_SHOWN
    return f"{shown}  and {hidden:,} more" if hidden > 0 else shown


def _places(places: list[dict[str, Any]]) -> str:
    """How much is left out, and the largest places: a folder of dependencies says more than a large file."""
    files = sum(place["files"] or 0 for place in places)
    total = count(len(places), "place") + (f" with {count(files, 'file')}" if files else "")
    ordered = sorted(places, key=lambda place: (-(place["files"] or 0), place["path"]))
    named = [
        f"{clean(place['path'])} ({clean(place['reason']).replace('_', ' ')})"
        for place in ordered[:PLACES_SHOWN]
    ]
    return f"{total}: {', '.join(named)}" + (", …" if len(places) > PLACES_SHOWN else "")
