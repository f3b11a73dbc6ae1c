"""One attached client on a socket pair: an answer is kept until the other end says that it was delivered."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import msgspec
import pytest

from perdure.serve import unix_transport
from perdure.serve.http_session import HttpSession
from perdure.serve.session_table import SessionTable
from perdure.serve.unix_transport import Line
from serve_stage import PlayedServer, ServeStage


class OneSession:
    """Sessions of which there is one, in a workspace of its own."""

    def __init__(self, session: HttpSession) -> None:
        self.session = session

    def workspace_of(self, asked: str) -> str | None:
        return "" if asked in ("", "here") else None

    def named_as(self, identity: str) -> HttpSession | None:
        return self.session

    def open(self, workspace: str, owner: str = "", profile: str = "") -> HttpSession:
        return self.session


class Client:
    """The other end of a line."""

    def __init__(self, stage: ServeStage, session: HttpSession, *, limit: int = 1 << 20) -> None:
        self._stage = stage
        self._session = session
        self._limit = limit
        self.said: list[Any] = []

    async def connect(self, **hello: Any) -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=theirs)
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        line = Line(cast("SessionTable", OneSession(self._session)), writer, self._limit)
        self.task = asyncio.ensure_future(line.serve(reader))
        self.send(hello)
        self.welcome = msgspec.json.decode(await self._reader.readline())

    def send(self, message: Any) -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")

    def call(self, identity: int) -> None:
        params = {"name": "t", "arguments": {}}
        self.send({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params})

    async def answer(self) -> Any:
        return msgspec.json.decode(await self._reader.readline())

    async def hang_up(self) -> None:
        self._writer.close()
        await self.task


async def called(stage: ServeStage, client: Client, server: PlayedServer, identity: int) -> None:
    """A call that the server has answered."""
    before = len(server.requests("tools/call"))
    client.call(identity)
    await stage.until(lambda: len(server.requests("tools/call")) > before)
    server.answer("tools/call", {"content": []})
    assert (await client.answer())["id"] == identity


def test_an_answer_is_delivered_when_the_other_end_says_so() -> None:
    async def test(stage: ServeStage) -> None:
        session = stage.open_session()
        server = await stage.ready(session)
        client = Client(stage, session)
        await client.connect(confirms=True)
        await called(stage, client, server, 1)
        await called(stage, client, server, 2)
        client.send({"delivered": [1]})
        await stage.until(lambda: len(stage.records.calls) == 1)
        await client.hang_up()
        await client.connect(session="s", confirms=True)
        client.call(2)  # its answer was not read: it is there, and the call is not made again
        assert (await client.answer())["result"] == {"content": []}
        assert len(server.requests("tools/call")) == 2
        client.send({"delivered": [2]})
        await stage.until(lambda: not stage.records.calls)
        await client.hang_up()

    ServeStage.run(test)


def test_an_answer_that_is_confirmed_late_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(stage: ServeStage) -> None:
        monkeypatch.setattr(unix_transport, "MOST_UNCONFIRMED", 2)
        session = stage.open_session()
        server = await stage.ready(session)
        client = Client(stage, session)
        await client.connect(confirms=True)
        for identity in range(5):
            await called(stage, client, server, identity)
        assert list(session.deliveries.undelivered) == [0, 1, 2]
        client.send({"delivered": [0, 1, 2, 3, 4]})
        await stage.until(lambda: not stage.records.calls)
        assert not session.deliveries.undelivered
        await client.hang_up()

    ServeStage.run(test)


def test_a_client_that_cannot_confirm_is_taken_to_have_read() -> None:
    async def test(stage: ServeStage) -> None:
        session = stage.open_session()
        server = await stage.ready(session)
        client = Client(stage, session)
        await client.connect()
        await called(stage, client, server, 1)
        assert not stage.records.calls
        await client.hang_up()

    ServeStage.run(test)


def test_a_workspace_that_is_not_served_is_refused() -> None:
    async def test(stage: ServeStage) -> None:
        client = Client(stage, stage.open_session())
        await client.connect(workspace="elsewhere")
        assert "no such workspace" in client.welcome["refused"]
        await client.task

    ServeStage.run(test)


def test_a_request_that_is_too_large_is_refused_with_its_id() -> None:
    async def test(stage: ServeStage) -> None:
        session = stage.open_session()
        await stage.ready(session)
        client = Client(stage, session, limit=1000)
        await client.connect()
        client.send({"jsonrpc": "2.0", "id": 7, "method": "x", "params": {"text": "x" * 2000}})
        answer = await client.answer()
        assert (answer["id"], "too large" in answer["error"]["message"]) == (7, True)
        await client.hang_up()

    ServeStage.run(test)


def test_a_session_that_was_given_up_is_taken_up_by_coming_back() -> None:
    async def test(stage: ServeStage) -> None:
        session = stage.open_session()
        await stage.ready(session)
        client = Client(stage, session)
        await client.connect()
        session.end()
        client.call(1)
        await client.task
        assert await client._reader.read() == b""

    ServeStage.run(test)
