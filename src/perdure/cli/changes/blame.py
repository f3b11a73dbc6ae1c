"""`perdure blame`: for each line of a file the change that brought it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from perdure.cli.locations import from_here
from perdure.cli.output import (
    Screen,
    clean,
    column,
    full_time,
    microseconds_of,
    print_json,
    short_time,
    truncate,
)
from perdure.cli.tool_command import parser_for, read_journal
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_tool

if TYPE_CHECKING:
    from perdure.storage.journal import Row
    from perdure.workspace.workspace import Workspace

MOST_BYTES: Final = 8 << 20
MOST_AUTHOR: Final = 24


def parser() -> argparse.ArgumentParser:
    made = parser_for(
        "blame",
        "For each line of a file the change that brought it: its id, who made it and when. Moves are followed. "
        "A line without an id is older than the journal, or not recorded yet.",
    )
    made.add_argument("path")
    return made


def main(argv: list[str]) -> int:
    return read_journal(parser().parse_args(argv), "blame", _run)


def _run(options: argparse.Namespace, service: Workspace) -> int:
    from perdure.text import lines
    from perdure.workspace.blame import blame
    from perdure.workspace.planning import canonical

    path = canonical(service.roots, from_here(options.path, service.roots[0].path))
    text = _current_text(service, path)
    origins = blame(service.journal, lambda sha: _kept_text(service, sha), path, text)
    authors: dict[int, dict[str, Any]] = {}
    found = []
    for number, (line, origin) in enumerate(zip(lines.split(text), origins, strict=True), 1):
        if origin.row is None:
            author: dict[str, Any] = {"id": None, "client": origin.client, "ts": None}
        else:
            author = authors.get(origin.row.seq) or authors.setdefault(
                origin.row.seq, _author(service, origin.row)
            )
        found.append({"line": number, **author, "text": line.rstrip("\r\n")})
    if options.json:
        print_json({"ok": True, "path": path, "lines": found})
    else:
        _print(found, Screen())
    return 0


def _author(service: Workspace, row: Row) -> dict[str, Any]:
    from perdure.text.times import format_time

    change = service.journal.change(str(row.seq))
    assert change is not None  # a row that holds belongs to one
    call = {"agent": change.call.agent, "turn": change.call.turn} if change.call is not None else {}
    return {
        "id": str(change.id),
        "client": change.client,
        **{name: value for name, value in call.items() if value is not None},
        "ts": format_time(change.ts),
    }


def _current_text(service: Workspace, path: str) -> str:
    """Raises ToolError for a file that is missing, too large or no text."""
    from perdure.text.codec import decode

    data = service.read(path)
    if data is None:
        last = service.journal.last_of(path)
        by = f": change {last.seq} by {last.client} deleted it" if last is not None else ""
        raise refuse(
            "not_found",
            "file_not_found",
            f"{path} does not exist{by}.",
            next_step=call_tool("history", path=path) if last is not None else call_tool("timeline"),
            path=path,
        )
    if len(data) > MOST_BYTES:
        raise refuse(
            "quota_exceeded",
            "too_large",
            f"{path} has {len(data):,} bytes; blame takes at most {MOST_BYTES:,}.",
            next_step=call_tool("history", path=path),
            path=path,
        )
    try:
        return decode(data).body
    except ToolError:
        raise refuse(
            "invalid_input",
            "not_text",
            f"{path} is not text, so it has no lines.",
            next_step=call_tool("history", path=path),
            path=path,
        ) from None


def _kept_text(service: Workspace, sha: bytes) -> str | None:
    """A version that is no text has no line that this one could have kept."""
    from perdure.storage.errors import JournalError, StorageError
    from perdure.text.codec import decode

    try:
        if service.store.find(sha.hex()).size > MOST_BYTES:
            return None
        data = service.store.load(sha.hex())
    except JournalError:
        raise
    except (ToolError, StorageError):
        return None
    try:
        return decode(data).body
    except ToolError:
        return ""


def _print(found: list[dict[str, Any]], screen: Screen) -> None:
    """Text that is not cut into a pipe; on a terminal each line of the file is one line."""
    if not found:
        screen.line("The file is empty.")
        return
    shown = [None if line["ts"] is None else microseconds_of(line["ts"]) for line in found]
    when = short_time if screen.is_terminal else full_time
    width = MOST_AUTHOR if screen.is_terminal else screen.width
    columns = [
        column("id", (line["id"] or "-" for line in found), right=True),
        column("by", (truncate(_who(line), width) for line in found)),
        column("when", ("" if ts is None else when(ts) for ts in shown)),
        column("line", (str(line["line"]) for line in found), right=True),
    ]
    previous: str | None = ""
    for number, cells in enumerate(zip(*filter(None, columns), strict=True)):
        head = "  ".join(cells)
        if not number:
            screen.line(head, "dim")
            continue
        line = found[number - 1]
        text = "".join(c if c.isprintable() else " " if c == "\t" else "?" for c in line["text"])
        style = "" if line["id"] != previous else "dim"
        previous = line["id"]
        body = screen.fit(f"{head}  {text}".rstrip())
        screen.out.write(
            screen.styled(body[: len(head)], style) + screen.styled(body[len(head) :], "") + "\n"
        )


def _who(line: dict[str, Any]) -> str:
    agent = f" {line['agent']}" if "agent" in line else ""
    turn = f" turn {line['turn']}" if "turn" in line else ""
    return clean(f"{line['client']}{agent}{turn}")
