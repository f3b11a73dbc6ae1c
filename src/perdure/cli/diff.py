"""`perdure diff`: what changed between two versions of a file."""

from __future__ import annotations

from perdure.cli.parsing import quickly

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SIMPLE = {"workspace": (), "json": False, "from": None, "to": "disk"}


def parser() -> argparse.ArgumentParser:
    from perdure.cli.tool_command import parser_for

    found = parser_for("diff", "What changed between two versions of a file, or a version and the disk.")
    found.add_argument("path")
    found.add_argument("--from", metavar="ID", help="a journal id: the version before")
    found.add_argument("--to", metavar="ID", default="disk", help="a journal id, or disk: disk")
    return found


def main(argv: list[str]) -> int:
    options = quickly(argv, SIMPLE, ("path",)) or parser().parse_args(argv)
    from perdure.cli.short_way import NotSimple
    from perdure.cli.versions import told
    from perdure.cli.whereabouts import whereabouts

    given = {"path": options.path, "from": vars(options)["from"], "to": options.to}
    try:
        print(told(whereabouts(options, "diff"), **given, as_json=options.json))
    except NotSimple:
        from perdure.cli.tool_command import run_tool

        return run_tool(options, "diff", given)
    return 0
