"""`perdure verify`: journal, contents and files checked against each other."""

from __future__ import annotations

import argparse
import sys

from perdure.cli.tool_command import parser_for, worker_settings


def parser() -> argparse.ArgumentParser:
    return parser_for(
        "verify",
        "Check that the journal's chain is whole and anchored, that every kept content is intact, and that files are "
        "what their last change made them. Exit code 1 where something is wrong; drift alone is told, and is not wrong.",
    )


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)

    import msgspec

    from perdure.cli.progress import Progress
    from perdure.model.envelope import ToolError
    from perdure.surfaces.write.verifying import verify
    from perdure.worker.compose import open_write

    try:
        service = open_write(worker_settings(options, "verify"))
    except (ToolError, OSError) as error:
        print(f"perdure verify: the workspace cannot be opened: {error}", file=sys.stderr)
        return 4
    try:
        with Progress() as progress:
            problems = list(verify(service, progress.at))
        rows = service.journal.analytics(None, None)["total_writes"]
    finally:
        service.close()
    is_sound = all(problem.kind == "drift" for problem in problems)
    if options.json:
        found = {"ok": is_sound, "writes": rows, "problems": problems}
        print(msgspec.json.encode(found).decode())
    else:
        for problem in problems:
            print(f"{problem.kind}  {problem.detail}")
        print(f"{'sound' if is_sound else 'not sound'}  {rows} writes  {len(problems)} findings")
    return 0 if is_sound else 1
