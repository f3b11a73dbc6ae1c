"""`perdure verify`: journal, contents and files checked against each other."""

from __future__ import annotations

import argparse
from json import dumps
from typing import Any

import msgspec

from perdure.cli.output import Progress, clean, count, print_error
from perdure.cli.tool_command import has_store, no_changes, open_for_reading, parser_for, worker_settings
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError

UNAVAILABLE = 4


def parser() -> argparse.ArgumentParser:
    return parser_for(
        "verify",
        "Check that the journal's chain is whole and anchored, that every kept content is intact, and that files are "
        "what their last change made them. Exit code 1 where something is wrong; drift alone is told, and is not wrong.",
    )


def main(argv: list[str]) -> int:
    from perdure.workspace.verify import verify

    options = parser().parse_args(argv)
    settings = worker_settings(options, "verify")
    if not has_store(settings) and not options.json:
        print(f"Nothing to check: {no_changes(settings)}")
        return 0
    try:
        service = open_for_reading(settings)
    except (ToolError, StorageError) as error:
        print_error("verify", error, options.json)
        return UNAVAILABLE
    try:
        with Progress() as progress:
            problems = [msgspec.structs.asdict(problem) for problem in verify(service, progress.at)]
        writes = service.journal.analytics(None, None)["total_writes"]
    finally:
        service.close()
    return _print(writes, problems, options.json)


def _print(writes: int, problems: list[dict[str, Any]], as_json: bool) -> int:
    is_sound = all(problem["kind"] == "drift" for problem in problems)
    if as_json:
        print(dumps({"ok": is_sound, "writes": writes, "problems": problems}))
    else:
        for problem in problems:
            print(f"{problem['kind']}  {clean(problem['detail'])}")
        print(f"{_verdict(is_sound, len(problems))}  {count(writes, 'write')}")
    return 0 if is_sound else 1


def _verdict(is_sound: bool, found: int) -> str:
    if not found:
        return "sound"
    if not is_sound:
        return f"not sound: {count(found, 'finding')}"
    return f"the journal is sound; {count(found, 'file')} changed outside of Perdure"
