"""`perdure attach`: stdio for a client, on a line to a running `perdure serve`.

The line may break at any time: the serving process is restarted, upgraded or killed. Then this process waits for it,
comes back with its session, and asks again what was not answered. The client's pipe never notices.

There is one of these processes for every client, so it loads little: memory is what it costs.
"""

from __future__ import annotations

import os
import select
import sys
import time
from json import dumps, loads
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

READ_BYTES = 1 << 18
UNAVAILABLE = -31098
GONE = (
    "perdure serve does not answer. What was asked may or may not have taken effect. "
    "Check that before you send it again; the next request looks for perdure serve again."
)
RETRY_S = 0.05


def main(argv: list[str]) -> int:
    workspace, patience, start = _options(argv) if argv else ("", 30.0, False)
    return Attached(workspace, patience, start=start).run()


def _options(argv: list[str]) -> tuple[str, float, bool]:
    parsed = parser().parse_args(argv)
    return parsed.workspace, parsed.patience, parsed.start


def parser() -> argparse.ArgumentParser:
    from perdure.cli.parser import new_parser

    parser = new_parser(
        "attach",
        "stdio for a client that speaks nothing else, connected to a running perdure serve.",
    )
    parser.add_argument("--start", action="store_true", help="start perdure serve where none is running")
    parser.add_argument("--workspace", default="", metavar="DIR", help="which of its workspaces: all")
    parser.add_argument(
        "--patience", type=float, default=30.0, metavar="S", help="how long to wait for it: 30"
    )
    return parser


class Attached:
    """The client's pipe on one side, the line on the other, and what was not answered yet."""

    def __init__(self, workspace: str, patience: float, *, start: bool) -> None:
        self._workspace = workspace
        self._patience = patience
        self._start = start
        self._session: str | None = None
        self._opening: list[bytes] = []  # what made the session, should nobody know it any more
        self._unanswered: dict[str, bytes] = {}
        self._line: socket | None = None
        self._rest = b""
        self._silenced: set[str] = set()
        self._is_alone = False
        self._refusal = "no perdure serve is running (--start starts one)"

    def run(self) -> int:
        rest = b""
        if not self._connect():
            print(f"perdure attach: {self._refusal}", file=sys.stderr)
            return 4
        while True:
            line = self._line
            if line is None:
                if not self._connect():
                    if self._is_alone:
                        return 0
                    self._give_up()
                continue
            ready, _, _ = select.select([0, line.fileno()], [], [])
            if line.fileno() in ready and not self._from_server(line):
                self._drop()
                continue
            if 0 in ready:
                data = os.read(0, READ_BYTES)
                if not data:
                    return 0
                *frames, rest = (rest + data).split(b"\n")
                for frame in frames:
                    if frame.strip():
                        self._from_client(frame)

    # --- the client ------------------------------------------------------------------------------------------

    def _from_client(self, frame: bytes) -> None:
        identity, method = _head(frame)
        if method is not None and identity is not None:
            self._unanswered[_key(identity)] = frame
        if method in ("initialize", "notifications/initialized"):
            self._opening.append(frame)
        self._send(frame)

    def _send(self, frame: bytes) -> None:
        if self._line is None:
            return  # it is asked again when the line is back
        try:
            self._line.sendall(frame + b"\n")
        except OSError:
            self._drop()

    # --- the server ------------------------------------------------------------------------------------------

    def _from_server(self, line: socket) -> bool:
        try:
            data = line.recv(READ_BYTES)
        except OSError:
            return False
        if not data:
            return False
        self._received(data)
        return True

    def _received(self, data: bytes) -> None:
        whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if newline:
            for frame in whole.split(b"\n"):
                self._to_client(frame)

    def _to_client(self, frame: bytes) -> None:
        identity, method = _head(frame)
        if method is None and identity is not None:
            key = _key(identity)
            if key in self._silenced:
                self._silenced.discard(key)
                return
            self._unanswered.pop(key, None)
        _write(frame + b"\n")

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line, self._rest = None, b""

    def _connect(self) -> bool:
        """Until it is there, or the patience is over."""
        until = time.monotonic() + self._patience
        has_started = False
        while True:
            if self._greet():
                return True
            if self._start and not has_started:
                has_started = True
                _start_server()
            elif not self._start and self._session is None:
                return False  # there never was one
            if time.monotonic() > until or self._is_left():
                return False

    def _is_left(self) -> bool:
        """Wait a moment. True where the client is gone: nobody is waiting for us any more.

        What it still sends is left in its pipe until the line is back.
        """
        poll = select.poll()
        poll.register(0, 0)
        self._is_alone = bool(poll.poll(RETRY_S * 1000))
        return self._is_alone

    def _greet(self) -> bool:
        from perdure.serve.places import attach_path

        line = socket(AF_UNIX, SOCK_STREAM)
        try:
            line.connect(attach_path())
            hello = {"session": self._session, "workspace": self._workspace}
            line.sendall(dumps(hello).encode() + b"\n")
            data = b""
            while b"\n" not in data:
                if not (more := line.recv(READ_BYTES)):
                    raise ConnectionError
                data += more
        except OSError:
            line.close()
            return False
        first, _, rest = data.partition(b"\n")
        welcome = loads(first)
        if "refused" in welcome:
            self._refusal = welcome["refused"]
            line.close()
            return False
        was_known = self._session is None or welcome["known"]
        self._session, self._line, self._rest = welcome["session"], line, b""
        again = list(self._unanswered.values())
        if not was_known:
            self._open_again()
        for frame in again:
            if was_known or frame not in self._opening:
                self._send(frame)
        self._received(rest)
        return True

    def _open_again(self) -> None:
        """Nobody knows the session any more: it is opened once more, and the client has its answer already."""
        for frame in self._opening:
            identity, _ = _head(frame)
            if identity is not None and _key(identity) not in self._unanswered:
                self._silenced.add(_key(identity))
            self._send(frame)

    def _give_up(self) -> None:
        """What was asked may have happened; who asked is told so, and the next request tries again."""
        for frame in self._unanswered.values():
            identity, _ = _head(frame)
            fault = {"class": "process", "code": "serve_gone", "outcome": "unknown", "retry": "later"}
            error = {"code": UNAVAILABLE, "message": GONE, "data": fault}
            answer = {"jsonrpc": "2.0", "id": identity, "error": error}
            _write(dumps(answer, separators=(",", ":")).encode() + b"\n")
        self._unanswered.clear()


def _head(frame: bytes) -> tuple[Any, Any]:
    """A frame's id and method, as far as it can be read; the server says what is wrong with it."""
    try:
        found = loads(frame)
    except (ValueError, RecursionError):
        return None, None
    return (found.get("id"), found.get("method")) if isinstance(found, dict) else (None, None)


def _key(identity: Any) -> str:
    """7 and "7" are different ids."""
    return f"{type(identity).__name__}:{identity}"


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _start_server() -> None:
    """In a session of its own: it outlives whoever started it."""
    import subprocess

    command = [sys.executable, "-P", "-m", "perdure", "serve"]
    subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
