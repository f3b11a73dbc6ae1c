"""`perdure cat`: a version of a file, byte for byte."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from perdure.cli.changes.change import content, find_change
from perdure.cli.locations import from_here
from perdure.cli.tool_command import parser_for, read_journal
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import call_tool
from perdure.storage.journal import Filter

if TYPE_CHECKING:
    from perdure.storage.journal import Digest
    from perdure.workspace.workspace import Workspace

MOST_VERSIONS: Final = 100_000


def parser() -> argparse.ArgumentParser:
    made = parser_for("cat", "Print a file as it was after a change, byte for byte.", has_json=False)
    made.add_argument(
        "version", metavar="PATH@ID", help="a file, and an id from `perdure history` or `timeline`"
    )
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    options.json = False
    path, at, identity = options.version.rpartition("@")
    if not (path and at and identity):
        parser().error(
            f"{options.version}: expected PATH@ID; `perdure history {options.version}` lists the ids"
        )
    options.path, options.id = path, identity
    return read_journal(options, "cat", _run)


def _run(options: argparse.Namespace, service: Workspace) -> int:
    from perdure.workspace.planning import canonical
    from perdure.workspace.undo.changes import rows_of

    path = canonical(service.roots, from_here(options.path, service.roots[0].path))
    last = rows_of(service.journal, find_change(service, options.id))[-1].seq
    row = next(iter(service.journal.rows(Filter(path=path, before=last + 1), 1)), None)
    history = call_tool("history", path=path)
    if row is not None and row.new_sha is None:
        raise refuse(
            "not_found",
            "file_not_found",
            f"{path} was deleted by change {row.seq}; an earlier id has its content.",
            next_step=history,
            path=path,
        )
    if row is not None and row.detail.get("kind") == "directory":
        raise refuse(
            "not_found", "is_directory", f"{path} was a directory then.", next_step=history, path=path
        )
    sha = row.new_sha if row is not None else _before_first(service, path)
    data = content(service, path, sha)
    if data is None:
        raise refuse(
            "not_found",
            "no_history",
            f"Perdure had recorded no change of {path} by then.",
            next_step=history,
            path=path,
        )
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


def _before_first(service: Workspace, path: str) -> Digest | None:
    """What the file held before the first change that is known of it."""
    rows = service.journal.rows(Filter(path=path), MOST_VERSIONS)
    return rows[-1].old_sha if 0 < len(rows) < MOST_VERSIONS else None
