"""`perdure verify`: journal, contents and files checked against each other."""

from __future__ import annotations

from perdure.cli.parsing import quickly

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

SIMPLE = {"workspace": (), "json": False}
UNAVAILABLE = 4


def parser() -> argparse.ArgumentParser:
    from perdure.cli.tool_command import parser_for

    return parser_for(
        "verify",
        "Check that the journal's chain is whole and anchored, that every kept content is intact, and that files are "
        "what their last change made them. Exit code 1 where something is wrong; drift alone is told, and is not wrong.",
    )


def main(argv: list[str]) -> int:
    options = quickly(argv, SIMPLE) or parser().parse_args(argv)
    from perdure.cli.progress import Progress
    from perdure.cli.short_way import NotSimple
    from perdure.cli.soundness import checked
    from perdure.cli.whereabouts import whereabouts

    try:
        with Progress() as progress:
            rows, problems = checked(whereabouts(options, "verify"), progress.at)
    except NotSimple:
        return _by_worker(options)
    return _tell(rows, problems, options.json)


def _by_worker(options: Any) -> int:
    import msgspec

    from perdure.cli.progress import Progress
    from perdure.cli.tool_command import worker_settings
    from perdure.model.envelope import ToolError
    from perdure.surfaces.write.verifying import verify
    from perdure.worker.compose import open_write

    try:
        service = open_write(worker_settings(options, "verify"))
    except ToolError as error:
        from perdure.cli.refusals import tell

        tell("verify", error, options.json)
        return UNAVAILABLE
    try:
        with Progress() as progress:
            problems = [msgspec.structs.asdict(problem) for problem in verify(service, progress.at)]
        rows = service.journal.analytics(None, None)["total_writes"]
    finally:
        service.close()
    return _tell(rows, problems, options.json)


def _tell(rows: int, problems: list[dict[str, Any]], as_json: bool) -> int:
    is_sound = all(problem["kind"] == "drift" for problem in problems)
    if as_json:
        from perdure.cli.plain_json import dumps

        print(dumps({"ok": is_sound, "writes": rows, "problems": problems}))
    else:
        from perdure.cli.screen import clean

        for problem in problems:
            print(f"{problem['kind']}  {clean(problem['detail'])}")
        print(f"{'sound' if is_sound else 'not sound'}  {rows} writes  {len(problems)} findings")
    return 0 if is_sound else 1
