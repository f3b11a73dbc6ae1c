"""`perdure history`: the versions of a file."""

from __future__ import annotations

from perdure.cli.parsing import new_parser, quickly

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

N = 20
SIMPLE = {"workspace": (), "json": False}
SHOWN = ("journal_id", "ts", "op", "mode", "sha256", "bytes", "client", "session")


def parser() -> argparse.ArgumentParser:
    from perdure.cli.whereabouts import add_workspace

    found = new_parser("history", "The versions of a file, newest first. Times are in UTC.")
    add_workspace(found)
    found.add_argument("path")
    found.add_argument("-n", type=int, default=N, help=f"how many: {N}")
    return found


def main(argv: list[str]) -> int:
    options = quickly(argv, SIMPLE, ("path",))
    if options is not None:
        options.n = N
    else:
        options = parser().parse_args(argv)
    from perdure.cli import journal_rows
    from perdure.cli.whereabouts import whereabouts

    rows = journal_rows.read(whereabouts(options, "history"), options.n, path=options.path)
    if rows is None:
        from perdure.cli.tool_command import run_tool

        return run_tool(options, "history", {"path": options.path, "n": options.n}, _show)
    if not rows:
        from perdure.cli.refusals import tell
        from perdure.model.envelope import refuse

        error = refuse(
            "not_found", "no_history", "nothing was written here", path=options.path, tool="history"
        )
        return tell("history", error, options.json)
    versions = [{name: row[name] for name in SHOWN} for row in rows[: options.n]]
    payload = {"ok": True, "path": rows[0]["path"], "versions": versions}
    if options.json:
        from perdure.cli.plain_json import dumps

        print(dumps(payload))
    else:
        _show(payload)
    return 0


def _show(payload: dict[str, Any]) -> None:
    from perdure.cli.journal_rows import show

    show(payload["versions"], with_path=False)
