"""`perdure attach`: stdio for a client, on a line to a running `perdure serve`.

The line may break at any time: the serving process is restarted, upgraded or killed. Then this process waits for it,
comes back with its session, and asks again what was not answered. The client's pipe never notices.

There is one of these processes for every client, so it loads little: memory is what it costs.
"""

from __future__ import annotations

import os
import re
import sys
import time
from json import dumps, loads
from socket import socket
from typing import TYPE_CHECKING, Any

from perdure.platform import polling, sockets
from perdure.platform.process_tree import client_process
from perdure.supervise.line_io import LineReader

if TYPE_CHECKING:
    import argparse

READ_BYTES = 1 << 18
UNAVAILABLE = -31098
RETRY_S = 0.05
SLOW_RETRY_S = 0.5
MIN_GREETING_S = 0.2
MOST_UNSENT = 256
MOST_DIGITS = 4000
_ID = rb'(-?\d{1,4000}|"(?:[^"\\]|\\.)*")'
_ANSWER = re.compile(rb'\{"jsonrpc":"2\.0","id":' + _ID + rb',"(?:result|error)":')  # as serve writes it
_REQUEST = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*' + _ID + rb'\s*,\s*"method"\s*:')


def main(argv: list[str]) -> int:
    if not argv:
        return Attached("", 30.0, start=False, profile=os.environ.get("PERDURE_PROFILE", "")).run()
    parsed = parser().parse_args(argv)
    workspace = os.path.realpath(parsed.workspace) if os.path.isdir(parsed.workspace) else parsed.workspace
    profile = parsed.profile or os.environ.get("PERDURE_PROFILE", "")
    return Attached(workspace, parsed.patience, start=parsed.start, profile=profile).run()


def parser() -> argparse.ArgumentParser:
    from perdure.cli.parser import new_parser
    from perdure.protocol.tool_groups import PROFILES

    parser = new_parser(
        "attach",
        "stdio for a client that speaks nothing else, connected to a running perdure serve.",
    )
    parser.add_argument(
        "--start",
        action="store_true",
        help="start perdure serve if none is running, and let it open the workspace if it does not serve it yet",
    )
    parser.add_argument(
        "--workspace",
        default="",
        metavar="DIR",
        help="which workspaces of perdure serve to use (default: all)",
    )
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        help="which tools this client's session lists (PERDURE_PROFILE; default: the profile of perdure serve)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds that a request waits for perdure serve (default: 30)",
    )
    return parser


class Request:
    """A request of the client's without an answer. `was_sent` if serve may have made it."""

    __slots__ = ("frame", "id", "is_opening", "was_sent")

    def __init__(self, identity: Any, frame: bytes, *, is_opening: bool) -> None:
        self.id = identity
        self.frame = frame
        self.is_opening = is_opening
        self.was_sent = False


class Attached:
    """The client's pipe on one side, the line on the other, and what was not answered yet.

    While the line is broken the client is still read. A request waits for the line for as long as the patience
    lasts, which begins when the line breaks, or with the first request after it was over.
    """

    def __init__(self, workspace: str, patience: float, *, start: bool, profile: str = "") -> None:
        self._workspace = workspace
        self._profile = profile
        self._process = client_process() or ""
        self._patience = patience
        self._start = start
        self._session: str | None = None
        self._opening: list[bytes] = []  # what made the session, should nobody know it any more
        self._unanswered: dict[str, Request] = {}
        self._unsent: list[bytes] = []  # notifications and answers for which there was no line
        self._line: socket | None = None
        self._client = LineReader(sys.maxsize)
        self._server = LineReader(sys.maxsize)
        self._confirms = False
        self._silenced: set[str] = set()
        self._until = 0.0
        self._may_start = start
        self._reason = ""

    def run(self) -> int:
        self._begin_waiting()
        while not self._greet():
            if not self._start or time.monotonic() > self._until:
                print(f"perdure attach: {self._reason}", file=sys.stderr)
                return 4
            if _is_hung_up(RETRY_S):
                return 0
        while self._serve_round():
            pass
        return 0

    def _serve_round(self) -> bool:
        """Wait for either side and take what it says. False when the client is gone."""
        wait = None
        if self._line is None and not self._greet():
            wait = RETRY_S
            if time.monotonic() > self._until:
                wait = SLOW_RETRY_S
                self._give_up()
        line = self._line
        ready = polling.wait_readable([0] if line is None else [0, line.fileno()], wait)
        if line is not None and line.fileno() in ready and not self._from_server(line):
            self._drop()
        if 0 in ready:
            data = os.read(0, READ_BYTES)
            if not data:
                return False
            self._client.feed(data)
            while self._client.ready:
                frame = self._client.ready.popleft()
                assert isinstance(frame, bytes)  # no line is too long for this reader
                self._from_client(frame)
        return True

    # --- the client ------------------------------------------------------------------------------------------

    def _from_client(self, frame: bytes) -> None:
        identity, method = _head(frame)
        request = None
        if method in ("initialize", "notifications/initialized"):
            self._opening.append(frame)
        if method is not None and type(identity) in (int, str):
            request = Request(identity, frame, is_opening=method == "initialize")
            self._unanswered[_key(identity)] = request
            if self._line is None and time.monotonic() > self._until:
                self._begin_waiting()
        self._send(frame, request)

    def _send(self, frame: bytes, request: Request | None = None) -> None:
        if self._line is not None:
            if request is not None:
                request.was_sent = True
            try:
                self._line.sendall(frame + b"\n")
                return
            except OSError:
                self._drop()
        if request is None and len(self._unsent) < MOST_UNSENT:
            self._unsent.append(frame)  # a request is asked again when the line is back

    # --- the server ------------------------------------------------------------------------------------------

    def _from_server(self, line: socket) -> bool:
        try:
            data = line.recv(READ_BYTES)
        except OSError:
            return False
        self._received(data)
        return bool(data)

    def _received(self, data: bytes) -> None:
        self._server.feed(data)
        answered: list[bytes] = []
        while self._server.ready:
            frame = self._server.ready.popleft()
            assert isinstance(frame, bytes)
            if (identity := self._to_client(frame)) is not None:
                answered.append(identity)
        if answered and self._confirms and self._line is not None:
            self._confirm(self._line, answered)

    def _to_client(self, frame: bytes) -> bytes | None:
        """Gives the id of an answer, as it was written."""
        answer = _ANSWER.match(frame)
        if answer is not None:
            key = _key(loads(answer[1]))
            if key in self._silenced:
                self._silenced.discard(key)
                return answer[1]
        _write(frame + b"\n")
        if answer is None:
            return None
        self._unanswered.pop(key, None)
        return answer[1]

    def _confirm(self, line: socket, answered: list[bytes]) -> None:
        """Serve keeps an answer until it hears that it was written to the client."""
        try:
            line.sendall(b'{"delivered":[' + b",".join(answered) + b"]}\n")
        except OSError:
            self._drop()

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
            self._begin_waiting()

    def _begin_waiting(self) -> None:
        self._until = time.monotonic() + self._patience
        self._may_start = self._start

    def _greet(self) -> bool:
        """One try to get a line."""
        from perdure.serve.places import attach_path

        line = sockets.new_local()
        lines = LineReader(sys.maxsize)
        try:
            line.settimeout(max(MIN_GREETING_S, self._until - time.monotonic()))
            sockets.connect(line, attach_path())
            hello = {
                "session": self._session,
                "workspace": self._workspace,
                "profile": self._profile,
                "confirms": True,
                "opens": self._start,
                "process": self._process,
            }
            line.sendall(dumps(hello).encode() + b"\n")
            while not lines.ready:
                if not (data := line.recv(READ_BYTES)):
                    raise ConnectionError
                lines.feed(data)
        except OSError as error:
            line.close()
            if isinstance(error, TimeoutError):
                self._reason = "perdure serve does not answer"
                return False
            self._reason = "no perdure serve is running (--start starts one)"
            if self._may_start:
                self._may_start = False
                _start_server()
            return False
        first = lines.ready.popleft()
        assert isinstance(first, bytes)
        welcome = loads(first)
        if "refused" in welcome:
            self._reason = f"perdure serve: {welcome['refused']}"
            line.close()
            return False
        line.settimeout(None)
        was_known = self._session is None or welcome["known"]
        self._session, self._line, self._server = welcome["session"], line, lines
        self._confirms = bool(welcome.get("confirms"))
        self._send_again(was_known=was_known)
        self._received(b"")
        return self._line is not None

    def _send_again(self, *, was_known: bool) -> None:
        """What has no answer, as far as somebody can still have one for it."""
        requests, unsent = list(self._unanswered.values()), self._unsent
        self._unsent = []
        if not was_known:
            self._open_again()
        for request in requests:
            if was_known or not request.is_opening:
                self._send(request.frame, request)
        for frame in unsent:
            if was_known or frame not in self._opening:
                self._send(frame)

    def _open_again(self) -> None:
        """Nobody knows the session any more: it is opened once more, and the client has its answer already."""
        for frame in self._opening:
            identity, _ = _head(frame)
            request = self._unanswered.get(_key(identity)) if identity is not None else None
            if identity is not None and request is None:
                self._silenced.add(_key(identity))
            self._send(frame, request)

    def _give_up(self) -> None:
        """Who asked is told whether it may have happened. The next request tries again."""
        for request in self._unanswered.values():
            outcome = "unknown" if request.was_sent else "not_started"
            known = (
                "The call may have been made: look for its effect before you make it again."
                if request.was_sent
                else "The call was not made: try again when perdure serve runs."
            )
            fault = {"class": "process", "code": "serve_gone", "outcome": outcome, "retry": "later"}
            message = f"No line to perdure serve for {self._patience:g} s ({self._reason}). {known}"
            error = {"code": UNAVAILABLE, "message": message, "data": fault}
            answer = {"jsonrpc": "2.0", "id": request.id, "error": error}
            _write(dumps(answer, separators=(",", ":")).encode() + b"\n")
        self._unanswered.clear()


def _is_hung_up(seconds: float) -> bool:
    """Wait so long. True where the client is gone; what it sends is left in its pipe."""
    return polling.wait(0, 0, seconds)


def _head(frame: bytes) -> tuple[Any, Any]:
    """The id and the method of a client's frame, as far as it can be read; serve says what is wrong with it."""
    try:
        found = loads(frame, parse_int=_integer)
    except (ValueError, RecursionError):
        head = _REQUEST.match(frame)
        return (loads(head[1]), "") if head is not None else (None, None)
    return (found.get("id"), found.get("method")) if isinstance(found, dict) else (None, None)


def _integer(digits: str) -> int | float:
    """Python refuses to read very long ones. None of those is an id, and nothing else is looked at."""
    return int(digits) if len(digits) <= MOST_DIGITS else 0.0


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
