"""`perdure journal`: the latest changes of a workspace."""

from __future__ import annotations

from perdure.cli.parsing import new_parser, quickly

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

N = 20
SIMPLE = {"workspace": (), "json": False, "path": None, "mode": None, "client": None}


def parser() -> argparse.ArgumentParser:
    from perdure.cli.whereabouts import add_workspace

    found = new_parser("journal", "The latest changes, newest last. Times are in UTC.")
    add_workspace(found)
    found.add_argument("-n", type=int, default=N, help=f"how many: {N}")
    found.add_argument("--path", help="only this file")
    found.add_argument("--mode", help="only this mode: create, overwrite, append, replace, delete, move")
    found.add_argument("--client", help="only what this client wrote")
    found.add_argument("--cursor", help="go on with older ones: next_cursor of an earlier answer")
    return found


def main(argv: list[str]) -> int:
    options = quickly(argv, SIMPLE)
    if options is not None:
        options.n, options.cursor = N, None
    else:
        options = parser().parse_args(argv)
    from perdure.cli import journal_rows
    from perdure.cli.whereabouts import whereabouts

    filters = {"path": options.path, "mode": options.mode, "client": options.client}
    if options.cursor is None:
        rows = journal_rows.read(whereabouts(options, "journal"), options.n, **filters)
        if rows is not None:
            _tell(_payload(rows, options.n), options.json)
            return 0
    from perdure.cli.tool_command import run_tool

    given = {"n": options.n, **{f"filter_{name}": value for name, value in filters.items()}}
    return run_tool(options, "journal_tail", {**given, "cursor": options.cursor}, _show)


def _payload(rows: list[dict[str, Any]], n: int) -> dict[str, Any]:
    payload: dict[str, Any] = {"ok": True, "entries": rows[:n][::-1]}
    return {**payload, "next_cursor": rows[n - 1]["journal_id"]} if len(rows) > n else payload


def _tell(payload: dict[str, Any], as_json: bool) -> None:
    if as_json:
        from perdure.cli.plain_json import dumps

        print(dumps(payload))
    else:
        _show(payload)


def _show(payload: dict[str, Any]) -> None:
    from perdure.cli.journal_rows import show

    show(payload["entries"])
    if "next_cursor" in payload:
        print(f"older ones: --cursor {payload['next_cursor']}")
