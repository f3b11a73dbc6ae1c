"""`undo` and `rewind`: their arguments, and the answers where nothing can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, either, then
from perdure.protocol.tools import arg
from perdure.surfaces.write.since import parse_since
from perdure.text.printable import make_printable
from perdure.workspace.errors import AlreadyUndone, ChangeNotFound, NothingToUndo
from perdure.workspace.undo.changes import sequence
from perdure.workspace.undo.rewind import RewindTarget
from perdure.workspace.undo.rewind import rewind as rewind_changes
from perdure.workspace.undo.selection import ANY_SESSION, MOST_CHANGES, Selection
from perdure.workspace.undo.undo import undo as undo_changes
from perdure.workspace.workspace import Workspace


class Undo(msgspec.Struct, frozen=True):
    n: Annotated[int, arg(ge=1, le=MOST_CHANGES)] = 1
    path: Annotated[str, arg(path="relative")] | None = None
    session: Annotated[str, arg("Default: yours; any: all.")] | None = None
    client: Annotated[str, arg()] | None = None
    since: Annotated[str, arg("10m, 2h, today, ISO 8601.")] | None = None
    change: (
        Annotated[str, arg("This change, or these (12,11), of any agent.", aliases=("journal_id",))] | None
    ) = None
    turn: Annotated[int, arg(ge=1)] | None = None
    agent: Annotated[str, arg()] | None = None
    redo: Annotated[bool, arg("Undo the last undo.")] = False
    dry_run: Annotated[bool, arg()] = False


class Rewind(msgspec.Struct, frozen=True):
    to: Annotated[str, arg("A change, or a time: 10m, 2h, today, ISO 8601.")]
    path: Annotated[str, arg(path="relative")] | None = None
    dry_run: Annotated[bool, arg()] = True


def undo(workspace: Workspace, params: Undo, call: Call) -> dict[str, Any]:
    selection = Selection(
        ids=tuple(map(str.strip, params.change.split(","))) if params.change is not None else (),
        n=params.n,
        path=params.path,
        session=params.session,
        client=params.client,
        agent=params.agent,
        turn=params.turn,
        since=parse_since(params.since),
        redo=params.redo,
    )
    with _changes_named_by("change"):
        try:
            result = undo_changes(workspace, call, selection, is_dry_run=params.dry_run)
        except NothingToUndo as error:
            raise _no_match(params, is_own=error.session == call.session) from None
    payload: dict[str, Any] = msgspec.to_builtins(result)
    return payload


def rewind(workspace: Workspace, params: Rewind, call: Call) -> dict[str, Any]:
    text = params.to.strip().removeprefix("#")
    if sequence(text) is not None or workspace.journal.transaction(text):
        target = RewindTarget(change=text, path=params.path)
    else:
        target = RewindTarget(since=_parse_time(text), path=params.path)
    with _changes_named_by("to"):
        try:
            result = rewind_changes(workspace, call, target, is_dry_run=params.dry_run)
        except NothingToUndo:
            raise _nothing_since(params) from None
    payload: dict[str, Any] = msgspec.to_builtins(result)
    return payload


@contextmanager
def _changes_named_by(argument: str) -> Iterator[None]:
    """The errors of the engine about the id of a change that this argument names."""
    try:
        yield
    except ChangeNotFound as error:
        raise refuse(
            "not_found",
            "version_not_found",
            f"the journal has no entry {make_printable(error.identity)[:64]}.",
            next_step=then(call_tool("journal_tail"), call_again(**{argument: FILL})),
            suggested_action="reread",
        ) from None
    except AlreadyUndone as error:
        raise refuse(
            "conflict",
            "already_undone",
            f"change {make_printable(error.identity)[:64]} was undone already.",
            next_step=call_tool("history", path=error.path),
            suggested_action="abort",
        ) from None


def _no_match(params: Undo, *, is_own: bool) -> ToolError:
    whose = "of this session " if is_own else ""
    what = "undo" if params.redo else "change"
    named = {
        "path": params.path,
        "client": params.client,
        "agent": params.agent,
        "turn": str(params.turn) if params.turn is not None else None,
        "since": params.since,
    }
    where = "".join(
        f" with {name}={make_printable(value)}" for name, value in named.items() if value is not None
    )
    return refuse(
        "not_found",
        "nothing_to_undo",
        f"nothing to take back: no {what} {whose}was found{where}.",
        next_step=call_tool("journal_tail")
        if not whose
        else either(call_again(session=ANY_SESSION), call_tool("journal_tail")),
        suggested_action="reread",
    )


def _nothing_since(params: Rewind) -> ToolError:
    where = f" of {make_printable(params.path)}" if params.path is not None else ""
    return refuse(
        "not_found",
        "nothing_to_undo",
        f"nothing to take back: no change{where} since {make_printable(params.to)[:64]} is in force.",
        next_step=call_tool("journal_tail"),
        suggested_action="reread",
    )


def _parse_time(text: str) -> int | None:
    try:
        return parse_since(text)
    except ToolError:
        raise refuse(
            "invalid_input",
            "bad_time",
            "to must be the id of a change, or a time such as 2026-11-17T13:00Z, 10m, 2h or today.",
            next_step=call_again(to=FILL),
            suggested_action="fix_syntax",
        ) from None
