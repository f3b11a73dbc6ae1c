"""Models that follow a script, for agents with several turns and subagents, in the protocols of three vendors.

A script is found by a word in the last prompt, so that a subagent follows the script that its own prompt names. What comes
next follows from the conversation alone: the number of results since that prompt. The call `n` of the script `name` has the
identity `call-name-n`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import scripted_model

Step = scripted_model.Use | Callable[[], scripted_model.Use]
"""A tool and its arguments, or a function that waits for something first."""
Scripts = Mapping[str, Sequence[Step]]


class MessagesModel:
    """For `scripted_model.served`: the Messages API, as Claude Code speaks it. It uses the first `at_once` tools of a script
    at the same time."""

    def __init__(self, scripts: Scripts, at_once: Mapping[str, int] | None = None) -> None:
        self._scripts = scripts
        self._at_once = at_once or {}

    def answer(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        name, done = "", 0
        for message in asked["messages"]:
            parts = message["content"]
            if message["role"] != "user":
                continue
            for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts:
                name, done = _follow(self._scripts, name, done, part.get("text", ""))
                done += part.get("type") == "tool_result"
        width = self._at_once.get(name, 1) if done == 0 else 1
        uses = [(number, _next(self._scripts, name, number)) for number in range(done, done + width)]
        blocks = [
            {"type": "tool_use", "id": f"call-{name}-{number}", "name": use[0], "input": use[1]}
            for number, use in uses
            if use is not None and asked.get("tools")
        ]
        return blocks or [{"type": "text", "text": "done"}]


class ResponsesModel:
    """The Responses API, as Codex speaks it. A tool is `name` or `namespace/name`; an input that is a text makes it a
    custom tool."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        name, done = "", 0
        for item in asked["input"]:
            if item.get("type") == "message" and item.get("role") == "user":
                for part in item["content"]:
                    name, done = _follow(self._scripts, name, done, part.get("text", ""))
            done += str(item.get("type")).endswith("_call_output")
        use = _next(self._scripts, name, done)
        if use is None:
            return {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "done"}],
            }
        space, _, tool = use[0].rpartition("/")
        call = {"id": f"item-{done}", "call_id": f"call-{name}-{done}", "name": tool}
        if isinstance(use[1], str):
            return {"type": "custom_tool_call", **call, "input": use[1]}
        named = {"namespace": space} if space else {}
        return {"type": "function_call", **call, **named, "arguments": json.dumps(use[1])}


def _follow(scripts: Scripts, name: str, done: int, text: str) -> tuple[str, int]:
    """The script that a prompt begins, or the one that goes on."""
    begun = [word for word in text.split() if word in scripts]
    return (begun[-1], 0) if begun else (name, done)


def _next(scripts: Scripts, name: str, done: int) -> scripted_model.Use | None:
    script = scripts.get(name, ())
    if done >= len(script):
        return None
    step = script[done]
    return step if isinstance(step, tuple) else step()


class GenerateContentModel:
    """The API of Gemini, as its CLI speaks it. A call has no identity in it."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        name, done = "", 0
        for part in (part for content in asked["contents"] for part in content.get("parts", ())):
            name, done = _follow(self._scripts, name, done, part.get("text", ""))
            done += "functionResponse" in part
        if asked.get("generationConfig", {}).get("responseMimeType") == "application/json":
            return {"text": json.dumps({"reasoning": "", "next_speaker": "user", "model_choice": "flash"})}
        use = _next(self._scripts, name, done) if asked.get("tools") else None
        return {"text": "done"} if use is None else {"functionCall": {"name": use[0], "args": use[1]}}


def _responses_body(answer: dict[str, Any], path: str) -> tuple[str, str]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "output_index": 0, "item": answer},
        {"type": "response.completed", "response": {"id": "r", "usage": usage}},
    ]
    body = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return body, "text/event-stream"


def _generate_content_body(answer: dict[str, Any], path: str) -> tuple[str, str]:
    content = {"role": "model", "parts": [answer]}
    body = json.dumps({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]})
    return (f"data: {body}\r\n\r\n", "text/event-stream") if "stream" in path else (body, "application/json")


@contextmanager
def served(model: ResponsesModel | GenerateContentModel) -> Iterator[str]:
    """Its address, for as long as it is listened to."""
    body_of = _responses_body if isinstance(model, ResponsesModel) else _generate_content_body

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.send_error(404)  # no list of models: the client takes the one that it has

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text, kind = body_of(model.answer(asked), self.path)
            body = text.encode()
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
