"""The process that serves the write surface to the model, and the messages between both.

Contents larger than a few lines are kept as files, and nothing is settled by the clock: what takes megabytes or seconds
otherwise happens at once, or when it is asked for.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final
from unittest.mock import patch

import msgspec

from harness.tree_model.answers import Request
from perdure.platform import fault_points
from perdure.present.tool_errors import tool_error
from perdure.protocol.calls import Done
from perdure.protocol.envelope import ToolError
from perdure.protocol.tools import View
from perdure.storage.errors import StorageError
from perdure.storage.journal import Digest, Filter, Row
from perdure.surfaces.write import write
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker import call
from perdure.worker.compose import Settings, surfaces
from perdure.worker.diagnostics import Diagnostics
from perdure.workspace import contents, settler

FULL: Final = View("json", "full")
INLINE: Final = 24
NEVER_S: Final = 1e6
ALL: Final = 1_000_000


class Reply(msgspec.Struct, frozen=True):
    payload: dict[str, Any]
    is_error: bool


class Look(msgspec.Struct, frozen=True):
    """What the journal holds, and what is wrong with it.

    `rows` are the latest, as `journal_tail` shows them; `head` counts those, too, that did not come true.
    """

    rows: list[dict[str, Any]]
    undoes: list[int | None]
    head: int
    sums: dict[str, Any]
    problems: list[str]


class Command(msgspec.Struct, frozen=True):
    name: str
    request: Request | None = None
    key: str = ""
    fault: str = ""
    number: int = 0


def send(pipe: socket.socket, value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    pipe.sendall(len(data).to_bytes(4, "big") + data)


def received(pipe: socket.socket) -> bytes:
    head = _exactly(pipe, 4)
    return _exactly(pipe, int.from_bytes(head, "big")) if head else b""


def _exactly(pipe: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            piece = pipe.recv(size - len(data))
        except ConnectionResetError:
            return b""
        if not piece:
            return b""
        data += piece
    return data


def forked(life: Callable[[], None]) -> int:
    """The id of a process that lives this life and never goes back to where it came from."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.umask(0o022)
        for module in (contents, write):
            patch.object(module, "INLINE", INLINE).start()
        patch.object(settler, "SETTLE_AFTER_S", NEVER_S).start()
        life()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


class Inside:
    """The surface is made and its tools are declared before the fork, which costs as much as the rest of a start."""

    def __init__(self, workspace: str) -> None:
        made = surfaces(Settings(workspaces=(workspace,), surfaces=("write",)))[0]
        assert isinstance(made, WriteSurface)
        self._surface = made
        self._tools = {tool.spec.name: tool for tool in made.tools()}

    def warm(self) -> None:
        """Whatever is imported at the first call is imported once."""
        self.open()
        self._call(Request("safe_write", {"path": "a", "content": "a\n"}, "", ""), "", "")
        self._look(1)
        self.close()

    def open(self) -> None:
        self._service = self._surface.service

    def close(self) -> None:
        self._surface.close()

    def serve(self, pipe: socket.socket, fault: str) -> None:
        """Until it is killed or nobody asks any more. The fault is armed while it opens."""
        fault_points.arm(fault)
        self.open()
        fault_points.arm("")
        send(pipe, [True])
        while data := received(pipe):
            send(pipe, self.answer(msgspec.msgpack.decode(data, type=Command)))

    def visit(self) -> None:
        self.open()
        self.close()

    def answer(self, command: Command) -> Any:
        match command.name:
            case "call":
                assert command.request is not None
                return self._call(command.request, command.key, command.fault)
            case "look":
                return self._look(command.number)
            case "probe":
                found = self._surface.probe(command.key)
                return [found.payload if isinstance(found, Done) else None]
            case "made":
                row = self._service.journal.undone_by(command.number)
                return [
                    self._service.store.load(row.new_sha.hex()) if row is not None and row.new_sha else None
                ]
            case "draft":
                return [self._draft(command.key)]
            case "settle":
                self._settle()
            case "close":
                self.close()
        return [True]

    def _call(self, request: Request, key: str, fault: str) -> Reply:
        fault_points.arm(fault)
        result = call.run(
            self._tools[request.tool],
            request.tool,
            msgspec.Raw(msgspec.json.encode(request.arguments)),
            default=FULL,
            roots=(),
            context=lambda _: _Called(request, key),
            diagnostics=Diagnostics(),
        )
        fault_points.arm("")
        return Reply(result["structuredContent"], bool(result.get("isError")))

    def _look(self, number: int) -> Look:
        journal = self._service.journal
        rows = list(reversed(journal.rows(Filter(), number)))
        problems = [problem for sha in _contents(rows) for problem in self._missing(sha.hex())]
        if number == ALL:
            problems += [f"{one.kind}: {one.detail} ({one.seq})" for one in journal.verify()]
        shown: list[dict[str, Any]] = []
        if rows:
            shown = self._call(Request("journal_tail", {"n": len(rows)}, "", ""), "", "").payload["entries"]
        head: int = journal._load_head()[0]  # type: ignore[attr-defined]
        return Look(shown, [row.undoes for row in rows], head, journal.analytics(None, None), problems)

    def _missing(self, sha: str) -> list[str]:
        try:
            kept = hashlib.sha256(self._service.store.load(sha)).hexdigest()
        except (ToolError, StorageError) as error:
            return [f"content {sha[:12]}: {tool_error(error).envelope.context.get('reason')}"]
        return [] if kept == sha else [f"content {sha[:12]} is {kept[:12]}"]

    def _draft(self, identity: str) -> bytes | None:
        try:
            content = self._service.draft(identity)
        except (ToolError, StorageError):
            return None
        return b"".join(self._service.store.pieces(content))

    def _settle(self) -> None:
        """What the settler does after a while, and the round that writes it down."""
        mine = self._service.committer
        mine._settler.settle()
        mine.transact(lambda: None)


def _contents(rows: Sequence[Row]) -> set[Digest]:
    return {sha for row in rows for sha in (row.old_sha, row.new_sha) if sha is not None}


class _Called:
    """A call as the write surface sees it (`perdure.protocol.calls.Call`)."""

    def __init__(self, request: Request, key: str) -> None:
        self.tool = request.tool
        self.client = request.client
        self.session = request.session
        self.invocation_key = key or None
        self.age_s = 0.0
        self.process = None
        self.force = False
        self.view = FULL
        self.cancelled = threading.Event()

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass
