"""Servers over HTTP and many clients in front of them, each with a session and a connection of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.client import Broken

SERVERS = Path(__file__).resolve().parent / "servers"
START_S = 30.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def served(argv: Sequence[str], port: int, scratch: Path) -> Iterator[int]:
    """A server until the block ends; gives its process id once it answers."""
    env = {**os.environ, "PERDURE_HOME": str(scratch / "home")}
    process = subprocess.Popen(
        argv,
        cwd=scratch,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None or time.monotonic() > until:
                raise Broken(f"{argv[0]} does not serve")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Client:
    """One session on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self._reader = reader
        self._writer = writer
        self._port = port
        self._session = ""
        self._last = 0

    @classmethod
    async def opened(cls, port: int) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", port), port)
        opening = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        headers, body = await client._exchange({"id": 0, "method": "initialize", "params": opening})
        client._session = headers.get("mcp-session-id", "")
        if b"serverInfo" not in body:
            raise Broken(f"initialize was answered with {body[:200]!r}")
        await client._exchange({"method": "notifications/initialized"})
        return client

    async def call(self, tool: str, arguments: dict[str, str]) -> None:
        self._last += 1
        params = {"name": tool, "arguments": arguments}
        _, body = await self._exchange({"id": self._last, "method": "tools/call", "params": params})
        if b'"result"' not in body or b'"isError":true' in body:
            raise Broken(f"a call was answered with {body[:300]!r}")

    def close(self) -> None:
        self._writer.close()

    async def _exchange(self, message: dict[str, object]) -> tuple[dict[str, str], bytes]:
        body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        session = f"Mcp-Session-Id: {self._session}\r\n" if self._session else ""
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\n{session}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:]) if k}
        if headers.get("transfer-encoding") == "chunked":
            return headers, await self._chunks()
        return headers, await self._reader.readexactly(int(headers.get("content-length", "0")))

    async def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while size := int(await self._reader.readline(), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readline()
        return b"".join(parts)


async def _load(port: int, tool: str, clients: int, calls: int) -> tuple[float, list[float]]:
    opened = [await Client.opened(port) for _ in range(clients)]
    times: list[float] = []

    async def work(client: Client) -> None:
        for _ in range(calls // clients):
            start = time.perf_counter()
            await client.call(tool, {"text": "hello"})
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(client.call(tool, {"text": "warm"}) for client in opened))
    start = time.perf_counter()
    await asyncio.gather(*(work(client) for client in opened))
    seconds = time.perf_counter() - start
    for client in opened:
        client.close()
    return len(times) / seconds, times


def load(port: int, tool: str, clients: int, calls: int) -> tuple[float, list[float]]:
    """Calls per second, and the time of each."""
    return asyncio.run(_load(port, tool, clients, calls))


async def _idle(port: int, count: int) -> None:
    for _ in range(count):
        client = await Client.opened(port)
        await client._exchange({"id": 1, "method": "tools/list"})
        client.close()


def open_sessions(port: int, count: int) -> None:
    """Sessions that were opened, have seen the tools, and do nothing more."""
    asyncio.run(_idle(port, count))


def memory_kb(pid: int) -> int:
    """What a process and its descendants hold, each shared page counted once among those who share it."""
    total = 0
    for one in (pid, *_descendants(pid)):
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_descendants(child)]
    return found


def own_echo() -> list[str]:
    return [sys.executable, str(SERVERS / "echo.py")]
