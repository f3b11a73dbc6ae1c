"""Hooks that a client posts to `perdure serve`: the same JSON as for `perdure hook journal`, and no process for each.

The event goes to the worker that serves the workspace, as from a hook's own process (`hooks/relay.py`). Where no worker
runs for it, `perdure hook journal` records it. The body of the answer is what a hook's own process would print.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from perdure.hooks.relay import (
    CLIENTS,
    PROCESS_VARIABLE,
    RelayError,
    encode_request,
    send_request,
    socket_path,
)
from perdure.host.launch import own_command
from perdure.http.server import Request
from perdure.platform.process_tree import client_process, has_ended
from perdure.platform.processes import connected_from
from perdure.serve.responses import ErrorResponse, error_response, respond

PREFIX: Final = "/hooks/"
COMMAND_S: Final = 20.0
MOST_SESSIONS: Final = 256


class _Payload(msgspec.Struct):
    cwd: str
    session_id: str = ""


_DECODER: Final = msgspec.json.Decoder(_Payload)


class Hooks:
    """`read_body` reads the body of a request within the limits."""

    def __init__(self, workspaces: Sequence[str], read_body: Callable[[Request], Awaitable[bytes]]) -> None:
        self._roots = [os.path.realpath(workspace) for workspace in workspaces]
        self._read_body = read_body
        self._processes: dict[str, str] = {}
        """The client's process of each session: finding one takes milliseconds."""

    async def __call__(self, request: Request, owner: str) -> None:
        try:
            body = await self._take(request, owner)
            await respond(request, 200, body)
        except ErrorResponse as error:
            await respond(request, error.status, error.body, error.headers)

    async def _take(self, request: Request, owner: str) -> bytes:
        client = request.path.removeprefix(PREFIX)
        if client not in CLIENTS:
            raise error_response(404, f"no client of this name has hooks: use one of {', '.join(CLIENTS)}.")
        if request.method != "POST":
            raise ErrorResponse(405, b"", [(b"allow", b"POST")])
        if owner:
            raise error_response(403, "hooks are taken from the owner of this server only.")
        hook = await self._read_body(request)
        try:
            payload = _DECODER.decode(hook)
            cwd = os.path.realpath(payload.cwd)
        except (msgspec.MsgspecError, ValueError):
            raise error_response(400, "the body is not the JSON object of a hook.") from None
        try:
            process = await asyncio.to_thread(self._process_of, payload.session_id, request.client[1])
            return await asyncio.to_thread(self._record, client, cwd, process, hook)
        except (RelayError, OSError, subprocess.TimeoutExpired) as error:
            raise error_response(503, f"not recorded, the next hook catches up: {error}") from None

    def _process_of(self, session: str, port: int) -> str:
        """The client's process; empty where it is not known, as for a client on another machine."""
        known = self._processes.get(session)
        if known is not None and not has_ended(known):
            return known
        pid = connected_from(port)
        process = (client_process(pid) if pid is not None else None) or ""
        if session and process:
            if len(self._processes) >= MOST_SESSIONS:
                del self._processes[next(iter(self._processes))]
            self._processes[session] = process
        return process

    def _record(self, client: str, cwd: str, process: str, hook: bytes) -> bytes:
        root = self._root_of(cwd)
        if root is not None:
            variables = (f"{PROCESS_VARIABLE}={process}",)
            request = encode_request(hook, client=client, cwd=cwd, project=root, variables=variables)
            if (reply := send_request(socket_path(root), request)) is not None:
                return reply.encode()
        where = ("--workspace", root) if root is not None else ()
        process_run = subprocess.run(
            own_command("hook", "journal", "--client", client, *where),
            input=hook,
            cwd=cwd if os.path.isdir(cwd) else None,
            env={**os.environ, PROCESS_VARIABLE: process},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_S,
            check=False,
        )
        return process_run.stdout

    def _root_of(self, cwd: str) -> str | None:
        """The innermost workspace around a folder."""
        around = [root for root in self._roots if f"{cwd}/".startswith(f"{root.rstrip('/')}/")]
        return max(around, key=len, default=None)
