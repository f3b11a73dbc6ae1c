"""A model that says what is written down for it: the one part of a client application that cannot be had here.

It speaks as much of the Messages API as a client needs to run its own loop: ask, run the tool that was named, ask again
with the result.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from uuid import uuid4

Use = tuple[str, dict[str, Any]]
Turn = Use | Callable[[str], Use]
"""A tool and its arguments, or how they follow from the last result."""

WAIT = "WaitForMcpServers"


class Answering(Protocol):
    def answer(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """The content blocks that follow a request: one text, or tools to be used at the same time."""


class Model:
    """`results` are what its tools said so far, in order: the text, and whether it was an error."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns
        self._lock = threading.Lock()
        self._uses: dict[str, Use] = {}
        self.results: list[tuple[str, bool]] = []

    def answer(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """What it says next: a tool while there are turns left, then one word."""
        offered = {tool["name"] for tool in asked.get("tools", ())}
        with self._lock:
            self._hear(asked["messages"])
            use = self._next(offered)
            if use is None:
                return [{"type": "text", "text": "done"}]
            identity = f"toolu_{len(self._uses)}"
            self._uses[identity] = use
            return [{"type": "tool_use", "id": identity, "name": use[0], "input": use[1]}]

    def _hear(self, messages: list[dict[str, Any]]) -> None:
        said = [part for one in messages if isinstance(one["content"], list) for part in one["content"]]
        found = {part["tool_use_id"]: part for part in said if part.get("type") == "tool_result"}
        self.results = [
            (_text(found[identity]["content"]), bool(found[identity].get("is_error")))
            for identity, (name, _) in self._uses.items()
            if identity in found and name != WAIT
        ]

    def _next(self, offered: set[str]) -> Use | None:
        if not offered or len(self.results) >= len(self._turns):
            return None
        turn = self._turns[len(self.results)]
        use = turn if isinstance(turn, tuple) else turn(self.results[-1][0])
        # Servers connect while the first question is on its way.
        return use if use[0] in offered or WAIT not in offered else (WAIT, {})


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@contextmanager
def served(model: Answering) -> Iterator[str]:
    """Its address, for as long as it is listened to."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(model))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(model: Answering) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._reply(b"{}", "application/json")

        def do_HEAD(self) -> None:
            self._reply(b"", "application/json")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path.partition("?")[0] != "/v1/messages":
                self._reply(b'{"input_tokens": 1}', "application/json")
                return
            asked = json.loads(body)
            message = _message(asked["model"], model.answer(asked))
            if asked.get("stream"):
                self._reply(_stream(message), "text/event-stream")
            else:
                self._reply(json.dumps(message).encode(), "application/json")

        def _reply(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _message(name: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid4().hex}",  # the client joins messages of one identity
        "type": "message",
        "role": "assistant",
        "model": name,
        "content": blocks,
        "stop_reason": "tool_use" if blocks[0]["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _stream(message: dict[str, Any]) -> bytes:
    """The same, piece by piece."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
    ]
    for index, block in enumerate(message["content"]):
        if block["type"] == "tool_use":
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta"}
            delta["partial_json"] = json.dumps(block["input"])
        else:
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()
