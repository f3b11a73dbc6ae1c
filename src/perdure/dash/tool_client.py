"""The dashboard as a client like any other: what it knows of files and state it asks the built-in tools for."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import msgspec

from perdure import __version__
from perdure.protocol import eras
from perdure.protocol.frames import Response, decode, encode_request
from perdure.serve.deliveries import asked
from perdure.serve.exchange import Exchange
from perdure.serve.session_table import OWN, SessionTable

CALL_S: Final = 20.0
_SHOW: Final = {"render": "json", "detail": "full"}
_META: Final = {
    eras.META_VERSION: eras.LATEST_MODERN,
    eras.META_CLIENT: {"name": "dashboard", "version": __version__},
    eras.META_CAPABILITIES: {},
}


class ToolFailed(Exception):
    """A tool refused, or could not be asked; the text is for people."""

    @property
    def sentence(self) -> str:
        """With a capital letter and one full stop."""
        text = str(self).rstrip(".")
        return f"{text[:1].upper()}{text[1:]}."


class ToolClient:
    def __init__(self, sessions: SessionTable) -> None:
        self._sessions = sessions

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The tool's result. Arguments that are empty are left out."""
        given = {key.rstrip("_"): value for key, value in arguments.items() if value not in ("", None)}
        params = {"name": tool, "arguments": {**given, **_SHOW}, "_meta": _META}
        identity = f"dashboard-{os.urandom(8).hex()}"
        body = msgspec.json.encode(params)
        question = asked("tools/call", body)
        session = self._sessions.for_request(OWN, "", identity, question, None)
        exchange = Exchange(identity, None, can_stream=False)
        session.post(encode_request(identity, "tools/call", body), exchange, question)
        try:
            return _result(await _answer(exchange))
        finally:
            session.give_up(exchange)
            session.delivered(identity)

    async def masked(self, content: str) -> str:
        """The text with what looks like a secret replaced."""
        if not content:
            return content
        found = await self.call("risk_score", content=content, redact=True)
        return str(found.get("redacted", content))


async def _answer(exchange: Exchange) -> bytes:
    try:
        async with asyncio.timeout(CALL_S):
            while not exchange.is_answered:
                exchange.frames.clear()
                if exchange.is_closed:
                    raise ToolFailed("the server is ending")
                await exchange.wait(CALL_S)
    except TimeoutError:
        raise ToolFailed("the built-in server does not answer") from None
    return exchange.frames[-1]


def _result(frame: bytes) -> dict[str, Any]:
    message = decode(frame)
    assert isinstance(message, Response)  # the kernel wrote it
    if message.error is not None:
        raise ToolFailed(msgspec.json.decode(message.error)["message"])
    result = msgspec.json.decode(message.result or b"{}")
    found: dict[str, Any] = result.get("structuredContent") or {}
    if result.get("isError"):
        context = found.get("context", {})
        raise ToolFailed(context.get("message") or found.get("message") or "the tool failed")
    return found
