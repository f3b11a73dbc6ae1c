"""`perdure diff`: what changed between two versions of a file, as a diff that `git apply` takes."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from perdure.cli.locations import from_here
from perdure.cli.output import Screen, clean, print_diff, print_json
from perdure.cli.tool_command import parser_for, read_journal
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import call_tool
from perdure.storage.journal import Filter

if TYPE_CHECKING:
    from perdure.workspace.workspace import Workspace


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "diff",
        "What changed between two versions of a file, or a version and the disk, as a unified diff: `git apply` takes it, "
        "and `git apply -R` takes the change back. Exit code 1: there is no such file or version.",
    )
    made.add_argument("path")
    made.add_argument("--from", metavar="ID", help="a journal id (default: the version before)")
    made.add_argument("--to", metavar="ID", default="disk", help="a journal id, or disk (the default)")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    return read_journal(options, "diff", _run)


def _run(options: argparse.Namespace, service: Workspace) -> int:
    from perdure.surfaces.write.read import DiffParams, two_versions
    from perdure.text.diffs import make_git_patch

    typed = from_here(options.path, service.roots[0].path)
    given = DiffParams(path=typed, from_=vars(options)["from"], to=options.to)
    path, old, from_id, new = two_versions(service, given)
    if from_id == "nothing" and not service.journal.rows(Filter(path=path), 1):
        raise refuse(
            "not_found",
            "no_history",
            f"Perdure has recorded no change of {path}.",
            next_step=call_tool("journal_tail"),
            path=path,
        )
    diff = make_git_patch(old, new, path)
    if options.json:
        text = diff.decode("utf-8", "replace")
        print_json(
            {
                "ok": True,
                "path": path,
                "from": from_id,
                "to": options.to,
                "changed": bool(diff),
                "diff": text,
                "truncated": False,
            }
        )
    elif diff:
        print_diff(diff, Screen())
    else:
        print(f"no difference: {clean(path)} {from_id} and {options.to}", file=sys.stderr)
    return 0
