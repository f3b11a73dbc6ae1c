"""`perdure journal`: the latest changes of a workspace."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perdure.cli.changes.journal_table import show
from perdure.cli.output import Screen, clean, home
from perdure.cli.tool_command import has_store, no_changes, open_for_reading, parser_for, run_tool
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError
from perdure.text.diff_lines import count_lines, has_counted_lines

if TYPE_CHECKING:
    from perdure.worker.compose import Settings

N = 20
MODES = ("create", "overwrite", "append", "replace", "delete", "move")


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "journal", "The latest changes, newest last, with the lines added and removed. Times are local."
    )
    made.add_argument("-n", type=int, default=N, help=f"how many changes (default: {N})")
    made.add_argument("--path", help="only this file")
    made.add_argument("--mode", choices=MODES, help=f"only changes of this mode: {', '.join(MODES)}")
    made.add_argument("--client", help="only changes of this client")
    made.add_argument("--cursor", help="continue with older changes: the next_cursor of an earlier answer")
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

    def print_entries(payload: dict[str, Any], settings: Settings) -> None:
        counted = _count_lines(payload, settings)
        _print(counted, settings, is_filtered=bool(options.path or options.mode or options.client))

    return run_tool(options, "journal_tail", arguments, print_entries, _count_lines)


def _count_lines(payload: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Add the lines that each change added and removed, except to a binary or large file."""
    from perdure.surfaces.write.read import DiffParams, two_versions
    from perdure.text.diffs import make_git_patch

    if not payload.get("entries"):
        return payload
    service = open_for_reading(settings)
    try:
        for entry in payload["entries"]:
            if not has_counted_lines(entry):
                continue
            try:
                path, old, _, new = two_versions(
                    service, DiffParams(path=entry["path"], to=entry["journal_id"])
                )
            except (ToolError, StorageError):
                continue  # a content is not kept any longer
            if counts := count_lines(make_git_patch(old, new, path).decode("utf-8", "replace")):
                entry["added"], entry["removed"] = counts
    finally:
        service.close()
    return payload


def _print(payload: dict[str, Any], settings: Settings, *, is_filtered: bool) -> None:
    screen = Screen()
    if payload["entries"]:
        show(payload["entries"], screen)
    elif has_store(settings) and is_filtered:
        screen.line(f"No change in {home(clean(settings.workspaces[0]))} matches.")
    else:
        screen.line(no_changes(settings))
    if "next_cursor" in payload:
        print(f"older ones: --cursor {payload['next_cursor']}")
