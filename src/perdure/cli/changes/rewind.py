"""`perdure rewind`: the workspace as it was before a change."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perdure.cli.changes.undo import changes_of, documented, print_outcome
from perdure.cli.output import Screen, clean, count
from perdure.cli.tool_command import add_force, parser_for, run_tool

if TYPE_CHECKING:
    from perdure.worker.compose import Settings

PLACES_SHOWN = 10
SHORT_COMMIT = 12


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "rewind",
        "Take back every change from one on, by any agent or program: the workspace is as it was before that change. Where "
        "a file was changed by something that is not recorded, nothing is changed and the exit code is 3. Redo: "
        "perdure undo --redo.",
    )
    made.add_argument(
        "to",
        metavar="ID|TIME",
        help="the first change to take back; or a time: all changes since 10m, 2h, today, or ISO 8601",
    )
    made.add_argument("--path", help="only this file, or this folder")
    made.add_argument("--dry-run", action="store_true", help="print what would happen, and change nothing")
    add_force(made)
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    given = {"to": options.to.removeprefix("#"), "path": options.path, "dry_run": options.dry_run}

    def show(payload: dict[str, Any], settings: Settings) -> None:
        screen = Screen()
        _print_authors(payload, screen)
        print_outcome(payload, changes_of(payload, settings), screen, is_redo=False)
        _print_rest(payload, screen)

    return run_tool(options, "rewind", given, show, documented)


def _print_authors(payload: dict[str, Any], screen: Screen) -> None:
    for author in payload.get("by_author", ()):
        agent = f" {clean(author['agent'])}" if author.get("agent") else ""
        files = count(author["files"], "file")
        screen.line(
            f"{clean(author['client'])}{agent}: {count(author['changes'], 'change')}, {files}", "bold"
        )


def _print_rest(payload: dict[str, Any], screen: Screen) -> None:
    """What a person must know besides: files that were left out, and that git is elsewhere by now."""
    places = payload.get("not_covered", ())
    for place in places[:PLACES_SHOWN]:
        files = f", {count(place['files'], 'file')}" if place.get("files") else ""
        screen.line(f"not covered: {clean(place['path'])} ({clean(place['reason'])}{files})", "dim")
    if len(places) > PLACES_SHOWN:
        screen.line(f"and {count(len(places) - PLACES_SHOWN, 'more place')}", "dim")
    if "head" in payload:
        now, then = (clean(payload["head"][key])[:SHORT_COMMIT] for key in ("from", "to"))
        screen.line(f"git is at {now}, and was at {then} before that change: the files go back, git does not")
