#!/usr/bin/env python3
"""A stdio MCP server that answers correctly and says all kinds of almost-frames in between.

    python -m harness.host.fuzz_server --seed 1 --burst 20 --limit 65536      or by its path

| tool | does |
|---|---|
| `echo` | says `burst` mutated lines, then the text, once |
| `report` | how many lines were said, how many of them were requests, and which of those lack their one answer |
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter
from typing import Any, Final

if not __package__:
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))

from harness.host.mutations import Corpus, Mutator, Object, judge

_TOOLS: Final = [
    {
        "name": "echo",
        "description": "Say the text again",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
    {"name": "report", "description": "What became of the noise", "inputSchema": {"type": "object"}},
]
_MESSAGE: Final = {"role": "user", "content": {"type": "text", "text": "hello"}}


def _request(identity: str, method: str, params: Object | None = None) -> Object:
    frame: Object = {"jsonrpc": "2.0", "id": identity, "method": method}
    return frame if params is None else {**frame, "params": params}


def _notice(method: str, params: Object | None = None) -> Object:
    frame: Object = {"jsonrpc": "2.0", "method": method}
    return frame if params is None else {**frame, "params": params}


# The tokens and ids in here are never the host's: it counts in small integers.
CORPUS: Final[Corpus] = (
    lambda i: _request(i, "ping"),
    lambda i: _request(i, "roots/list"),
    lambda i: _request(
        i, "sampling/createMessage", {"messages": [_MESSAGE], "maxTokens": 5, "_meta": {"a": 1}}
    ),
    lambda i: _request(i, "elicitation/create", {"message": "?", "requestedSchema": {"type": "object"}}),
    lambda i: _request(i, "x/ask", {"deep": {"a": [1, 2, {"b": None}]}}),
    lambda i: _notice("notifications/message", {"level": "info", "logger": "l", "data": {"text": i}}),
    lambda i: _notice("notifications/progress", {"progressToken": i, "progress": 1, "total": 2}),
    lambda i: _notice("notifications/resources/updated", {"uri": f"fuzz://{i}"}),
    lambda i: _notice("notifications/tools/list_changed"),
    lambda i: _notice("notifications/cancelled", {"requestId": f"c{i}", "reason": "none"}),
    lambda i: _notice("notifications/x/event", {"_meta": {"x": 1}, "value": [i]}),
    lambda i: {"jsonrpc": "2.0", "id": i, "result": {"content": [{"type": "text", "text": "nobody asked"}]}},
    lambda i: {"jsonrpc": "2.0", "id": i, "result": {"tools": [{"name": "evil", "inputSchema": {}}]}},
    lambda i: {"jsonrpc": "2.0", "id": i, "error": {"code": -32603, "message": "nobody asked"}},
    lambda i: {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}},
)


class FuzzServer:
    def __init__(self, seed: int, burst: int, limit: int) -> None:
        self._mutator = Mutator(random.Random(seed), CORPUS, limit)
        self._rng = random.Random(seed)
        self._burst = burst
        self._limit = limit
        self._said = 0
        self._asked: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._stale: list[Any] = []

    def serve(self) -> None:
        while line := sys.stdin.buffer.readline():
            frame = json.loads(line)
            if "method" not in frame:
                self._answered[json.dumps(frame.get("id"))] += 1
            elif "id" in frame:
                self._answer(frame)

    def _answer(self, frame: Object) -> None:
        match frame["method"]:
            case "initialize":
                capabilities = {"tools": {"listChanged": True}, "logging": {}}
                info = {"name": "fuzz", "version": "1"}
                version = frame["params"]["protocolVersion"]
                result: Object = {
                    "protocolVersion": version,
                    "capabilities": capabilities,
                    "serverInfo": info,
                }
            case "tools/list":
                result = {"tools": _TOOLS}
            case "tools/call" if frame["params"]["name"] == "echo":
                self._make_noise(self._rng.randrange(self._burst + 1), then=frame)
                return
            case "tools/call":
                result = {"content": [], "structuredContent": self._report()}
            case _:
                result = {}
        self._write(self._good(frame["id"], result))

    def _make_noise(self, before: int, then: Object) -> None:
        """So many mutated lines, the good answer among them, and now and then an answer given before."""
        text = then["params"]["arguments"]["text"]
        good = self._good(then["id"], {"content": [{"type": "text", "text": text}]})
        parts = [self._line() for _ in range(self._burst)]
        parts.insert(before, good)
        if self._stale and self._rng.random() < 0.5:
            parts.append(self._good(self._rng.choice(self._stale), {"content": [], "late": True}))
        self._stale = [*self._stale[-99:], then["id"]]
        self._write(b"".join(parts))

    def _line(self) -> bytes:
        data = self._mutator.line()
        self._said += 1
        for line in data.split(b"\n"):
            verdict = judge(line, self._limit)
            if verdict.kind == "request":
                self._asked[json.dumps(verdict.id)] += 1
        return data

    def _report(self) -> Object:
        return {
            "said": self._said,
            "requests": sum(self._asked.values()),
            "unanswered": [i for i, n in self._asked.items() if self._answered[i] < n][:20],
            "answered twice": [i for i, n in self._asked.items() if self._answered[i] > n and i[:2] == '"z'][
                :20
            ],
        }

    def _good(self, identity: Any, result: Object) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": identity, "result": result}).encode() + b"\n"

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(1, rest) :]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="fuzz_server", description="Good answers among almost-frames.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--burst", type=int, default=20, metavar="N", help="mutated lines per echo")
    parser.add_argument(
        "--limit", type=int, default=65536, metavar="BYTES", help="the host's bound on a frame"
    )
    options = parser.parse_args(arguments)
    FuzzServer(options.seed, options.burst, options.limit).serve()


if __name__ == "__main__":
    main()
