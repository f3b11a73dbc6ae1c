"""A stage for the serving process without HTTP: real sessions, a real server_pool, and servers that the test plays.

A played server is a process that does nothing, with its pipes in the test's hands: what is sent to it is read here,
and it says what the test says, byte by byte.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.kernel.core import Kernel
from perdure.kernel.events import Event
from perdure.kernel.state import Invocation, Serving
from perdure.platform.guardian import Guardian
from perdure.protocol.mounts import MountSpec
from perdure.serve.deliveries import asked
from perdure.serve.exchange import Exchange
from perdure.serve.http_session import HttpSession
from perdure.serve.server_pool import ServerPool
from perdure.serve.store import StoreError
from perdure.supervise.child import Child, Launch

PATIENCE_S = 5.0
SLEEP = shutil.which("sleep") or "/bin/sleep"
VERSION = "2025-06-18"


class PlayedServer:
    """The other ends of a child's pipes."""

    def __init__(self, pid: int, requests: int, answers: int) -> None:
        self.pid = pid
        self.heard: list[Any] = []
        self._requests = requests
        self._answers = answers
        self._rest = b""
        os.set_blocking(requests, False)

    def say_bytes(self, data: bytes) -> None:
        os.write(self._answers, data)

    def say(self, *messages: Mapping[str, Any]) -> None:
        self.say_bytes(b"".join(msgspec.json.encode({"jsonrpc": "2.0", **one}) + b"\n" for one in messages))

    def listen(self) -> list[Any]:
        """All that was sent to it so far."""
        with suppress(BlockingIOError):
            while data := os.read(self._requests, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.heard += [msgspec.json.decode(line) for line in lines]
        return self.heard

    def requests(self, method: str) -> list[Any]:
        return [one for one in self.listen() if one.get("method") == method and "id" in one]

    def answer(self, method: str, result: Mapping[str, Any]) -> None:
        """The last request with this method."""
        self.say({"id": self.requests(method)[-1]["id"], "result": result})

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        os.close(self._requests)
        os.close(self._answers)


class Session:
    """A session as a process behind it sees it; it remembers what it was told."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: list[Event] = []

    def feed(self, event: Event) -> None:
        self.events.append(event)

    def waits_since(self, mount: str) -> float | None:
        return None

    def heard(self, kind: type) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


class Records:
    """Keeps everything, or nothing while `is_full`."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, int], Invocation] = {}
        self.is_full = False

    def save_call(self, session: str, identity: str, workspace: str, call: Invocation) -> None:
        if self.is_full:
            raise StoreError("database or disk is full")
        self.calls[session, call.seq] = call

    def forget_call(self, session: str, seq: int) -> None:
        self.calls.pop((session, seq), None)

    def save_session(self, session: HttpSession) -> None:
        if self.is_full:
            raise StoreError("database or disk is full")


class ServeStage:
    """Run a test on it with `ServeStage.run(test)`."""

    def __init__(self) -> None:
        self.servers: list[PlayedServer] = []
        self.records = Records()
        self.sessions: list[HttpSession] = []
        self.guardian = Guardian.start()
        self.board = ServerPool(
            self.guardian, os.environ, 1 << 20, 1 << 20, loop=asyncio.get_running_loop(), start=self._started
        )
        self.board.reap_in(asyncio.get_running_loop())
        self._number = 0

    @classmethod
    def run(cls, test: Callable[[ServeStage], Awaitable[None]]) -> None:
        async def main() -> None:
            stage = cls()
            try:
                await test(stage)
            finally:
                await stage.close()

        asyncio.run(main())

    async def close(self) -> None:
        for session in self.sessions:
            session.stop()
        for server in self.servers:
            with suppress(ProcessLookupError):
                server.kill()
        await self.board.close()
        for server in self.servers:
            server.close()

    def _started(self, mount: str, generation: int, launch: Launch, *rest: Any, **more: Any) -> Child:
        child_in, our_out = os.pipe()
        our_in, child_out = os.pipe()
        pid = os.posix_spawn(SLEEP, [SLEEP, "60"], {}, setpgroup=0)
        for fd in (our_in, our_out):
            os.set_blocking(fd, False)
        self.servers.append(PlayedServer(pid, child_in, child_out))
        return Child(mount, generation, pid, our_out, our_in, 1 << 20)

    def new_number(self) -> int:
        self._number += 1
        return self._number

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, what or "it did not happen"
            await asyncio.sleep(0.001)

    # --- sessions ----------------------------------------------------------------------------------------------

    def open_session(self, spec: MountSpec | None = None, **more: Any) -> HttpSession:
        spec = spec or MountSpec("m", ("server",), prefix="")
        kernel = Kernel(
            {spec.name: spec}, session_id=f"session-{len(self.sessions)}", now=time.monotonic(), **more
        )
        session = HttpSession(
            kernel,
            self.board,
            self.records,
            new_number=self.new_number,
            identity="",
            workspace="",
            said=lambda *_: None,
            save_catalog=lambda *_: None,
            save_tools=lambda _: None,
            save_task=lambda *_: None,
            loop=asyncio.get_running_loop(),
        )
        self.sessions.append(session)
        session.runner.start(kernel.start(time.monotonic()))
        return session

    def post(self, session: HttpSession, identity: int | str, method: str, params: Any) -> Exchange:
        body = msgspec.json.encode(params)
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": msgspec.Raw(body)}
        exchange = Exchange(identity, None, can_stream=True)
        session.post(msgspec.json.encode(message), exchange, asked(method, body))
        return exchange

    def initialize(self, session: HttpSession) -> Exchange:
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        return self.post(session, "init", "initialize", params)

    def call(self, session: HttpSession, identity: int | str, tool: str = "t") -> Exchange:
        return self.post(session, identity, "tools/call", {"name": tool, "arguments": {}})

    async def ready(self, session: HttpSession, tools: Sequence[str] = ("t",)) -> PlayedServer:
        """The session and its server have shaken hands; the server offers these tools, without annotations."""
        first = self.initialize(session)
        await self.until(lambda: self.servers and self.servers[-1].requests("initialize"))
        server = self.servers[-1]
        self.greet(server)
        await self.until(lambda: server.requests("tools/list"))
        listed = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
        server.answer("tools/list", {"tools": listed})
        phases = session.kernel.state.mounts.values()
        await self.until(lambda: first.is_answered and all(isinstance(one.phase, Serving) for one in phases))
        initialized = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        session.post(initialized, None)
        return server

    def greet(self, server: PlayedServer) -> None:
        server.answer(
            "initialize",
            {
                "protocolVersion": VERSION,
                "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": {"name": "s", "version": "1"},
            },
        )


def frame(exchange: Exchange) -> Any:
    return msgspec.json.decode(exchange.frames[-1])
