#!/usr/bin/env python3
"""A scriptable MCP server of either era over stdio, for testing whatever stands in front of servers.

    python -m perdure.testing.fake_server [options]      or by its path

The standard library only, so that it starts in tens of milliseconds. Requests are read and answered on one
thread in order; a tool that waits gets a thread of its own.

| module         | holds                                                  |
|----------------|--------------------------------------------------------|
| `fake_wire`    | frames on the pipes                                    |
| `fake_ledger`  | the files that tests and successors read               |
| `fake_catalog` | what is listed                                         |
| `fake_session` | the era, and what the client told and asked            |
| `fake_call`    | one tools/call                                         |
| `fake_tools`   | honest tools                                           |
| `fake_faults`  | tools that misbehave                                   |
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn

if not __package__:
    # Run by its path, under an interpreter that may not have the package installed.
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))

from perdure.testing import fake_faults, fake_tools
from perdure.testing.fake_call import Call, Cancelled, text_result
from perdure.testing.fake_catalog import Catalog
from perdure.testing.fake_ledger import Ledgers
from perdure.testing.fake_session import LEVELS, Session
from perdure.testing.fake_wire import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Object,
    Refusal,
    RequestId,
    Wire,
)

Tool = Callable[[Call], Object | None]

_TOOLS: Final[dict[str, Tool]] = {
    "echo": fake_tools.echo,
    "effect": fake_tools.effect,
    "read_effect": fake_tools.effect,
    "idem_effect": fake_tools.effect,
    "find_effect": fake_tools.find_effect,
    "slow": fake_tools.slow,
    "hang": fake_tools.hang,
    "progress": fake_tools.progress,
    "log": fake_tools.log,
    "ask": fake_tools.ask,
    "ask_then_die": fake_tools.ask_then_die,
    "change_catalog": fake_tools.change_catalog,
    "touch_resource": fake_tools.touch_resource,
    "close_listens": fake_tools.close_listens,
    "whoami": fake_tools.whoami,
    "big": fake_tools.big,
    "cwd": fake_tools.cwd,
    "custom_meta": fake_tools.custom_meta,
    "wedge": fake_faults.wedge,
    "stop_reading": fake_faults.stop_reading,
    "flood": fake_faults.flood,
    "answer_badly": fake_faults.answer_badly,
    "grandchild": fake_faults.grandchild,
    "die": fake_faults.die,
}
_WAITING: Final = frozenset({"slow", "hang", "progress", "ask", "ask_then_die", "flood", "answer_badly"})
_LISTS: Final = {
    "tools/list": ("tools", "tools"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
    "prompts/list": ("prompts", "prompts"),
}
_HANDSHAKE_ONLY: Final = frozenset(
    {"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
_PEOPLE: Final = ("alice", "bob", "carol")


class FakeServer:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._ledgers = Ledgers(options.effects, options.dispatches, options.state)
        self._start()
        self._wire = Wire(noise=options.noise)
        self._session = Session(self._wire, options)
        self._catalog = Catalog(
            options.prefix_uri, options.catalog, options.page_size, cwd_tool=options.cwd_tool
        )
        self._calls: dict[RequestId, Call] = {}

    def _start(self) -> None:
        if self._options.stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._options.crash_at_start and self._ledgers.claim("start", self._options.crash_at_start):
            os._exit(3)
        time.sleep(self._options.start_delay)
        if self._hangs_at("start"):
            _sleep_for_ever()

    def _hangs_at(self, place: str) -> bool:
        wanted: str | None = self._options.hang_at
        return wanted == place and self._ledgers.claim(f"hang {place}", self._options.hang_times)

    def serve(self) -> None:
        for frame in self._wire.frames():
            if "method" not in frame:
                self._session.answered(frame)
            elif "id" in frame:
                self._request(frame)
            else:
                self._notification(str(frame["method"]), frame.get("params") or {})
        if self._options.stubborn:
            _sleep_for_ever()

    def _request(self, frame: Object) -> None:
        identity, method, params = frame["id"], str(frame["method"]), frame.get("params") or {}
        try:
            if not isinstance(params, dict) or not isinstance(identity, int | str):
                raise Refusal(INVALID_REQUEST, "Invalid request")
            if method == "tools/call":
                call = self._call(identity, params)
                self._ledgers.dispatched(call.tool, call.key)
            if self._hangs_at(method):
                return
            self._session.admit(method, params)
            if method == "tools/call":
                self._start_call(call)
            elif method == "subscriptions/listen" and self._session.modern:
                self._session.listen(identity, params)
            else:
                result = self._answer(method, params)
                self._wire.answer(identity, self._session.complete(method, result))
        except Refusal as refusal:
            self._wire.refuse(identity, refusal)

    def _answer(self, method: str, params: Object) -> Object:
        if self._session.modern and method in _HANDSHAKE_ONLY:
            raise Refusal(METHOD_NOT_FOUND, "Method not found", method)
        if method in _LISTS:
            return self._catalog.page(*_LISTS[method], params.get("cursor"))
        match method:
            case "initialize":
                return self._session.initialize(params)
            case "server/discover":
                return self._session.discover()
            case "ping":
                return {}
            case "resources/read":
                return self._read(str(params.get("uri")))
            case "resources/subscribe":
                self._session.subscriptions.add(str(params.get("uri")))
                return {}
            case "resources/unsubscribe":
                self._session.subscriptions.discard(str(params.get("uri")))
                return {}
            case "prompts/get":
                return self._prompt(params)
            case "completion/complete":
                prefix = str((params.get("argument") or {}).get("value", ""))
                values = [name for name in _PEOPLE if name.startswith(prefix)]
                return {"completion": {"values": values, "total": len(values), "hasMore": False}}
            case "logging/setLevel":
                if params.get("level") not in LEVELS:
                    raise Refusal(INVALID_PARAMS, "Unknown level")
                self._session.log_level = str(params["level"])
                return {}
            case "x/echo":
                return params
            case _:
                raise Refusal(METHOD_NOT_FOUND, "Method not found", method)

    def _read(self, uri: str) -> Object:
        text = self._catalog.read(uri)
        if text is None:
            code = INVALID_PARAMS if self._session.modern else RESOURCE_NOT_FOUND
            raise Refusal(code, "Resource not found", {"uri": uri})
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}

    def _prompt(self, params: Object) -> Object:
        name = params.get("name")
        if name not in self._catalog.prompts:
            raise Refusal(INVALID_PARAMS, f"Unknown prompt: {name}")
        who = (params.get("arguments") or {}).get("who", "you")
        message = {"role": "user", "content": {"type": "text", "text": f"{name} {who}"}}
        return {"description": "A greeting", "messages": [message]}

    def _call(self, identity: RequestId, params: Object) -> Call:
        return Call(
            identity,
            params,
            wire=self._wire,
            session=self._session,
            catalog=self._catalog,
            ledgers=self._ledgers,
        )

    def _start_call(self, call: Call) -> None:
        if call.tool not in self._catalog.tools:
            raise Refusal(INVALID_PARAMS, f"Unknown tool: {call.tool}")
        if unknown := self._catalog.find_unknown_arguments(call.tool, call.arguments):
            raise Refusal(INVALID_PARAMS, f"Unknown arguments: {', '.join(unknown)}")
        behaviour = self._catalog.behaviours.get(call.tool, call.tool)
        tool = _TOOLS.get(behaviour, fake_tools.from_catalog)
        self._calls[call.id] = call
        if behaviour in _WAITING or "delay_ms" in call.arguments or "linger_ms" in call.arguments:
            threading.Thread(target=self._run, args=(tool, call), daemon=True).start()
        else:
            self._run(tool, call)

    def _run(self, tool: Tool, call: Call) -> None:
        try:
            result = tool(call)
            if result is not None:
                call.answer(result)
        except Cancelled:
            self._ledgers.cancelled(call.key)
        except Refusal as refusal:
            self._wire.refuse(call.id, refusal)
        except (ValueError, TypeError, LookupError, OSError) as error:
            call.answer(text_result(f"{type(error).__name__}: {error}", is_error=True))
        finally:
            self._calls.pop(call.id, None)

    def _notification(self, method: str, params: Object) -> None:
        match method:
            case "notifications/initialized":
                self._session.initialized = True
                self._learn_roots()
            case "notifications/cancelled":
                self._session.listens.pop(params.get("requestId", ""), None)
                call = self._calls.get(params.get("requestId", ""))
                if call is not None:
                    call.cancelled.set()
            case "notifications/roots/list_changed":
                self._session.roots_changed += 1
                self._learn_roots()
            case "notifications/x/ping":
                self._wire.notify("notifications/x/pong", params)
            case _:
                pass

    def _learn_roots(self) -> None:
        client = self._session.initialize_params or {}
        if not self._options.want_roots or "roots" not in (client.get("capabilities") or {}):
            return

        def learn() -> None:
            _, question = self._session.ask("roots/list", None)
            question.done.wait()
            self._session.roots = (question.response.get("result") or {}).get("roots")

        threading.Thread(target=learn, daemon=True).start()


def _sleep_for_ever() -> NoReturn:
    while True:
        time.sleep(3600)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="fake_server",
        description="A scriptable MCP server over stdio.",
        # Without a width argparse imports shutil to find one, at a tenth of our start.
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),
    )
    add = parser.add_argument
    add("--era", choices=("handshake", "modern", "both"), default="both", help="the protocol era served")
    add("--name", default="fake", help="serverInfo.name")
    add("--version", default="1.0.0", help="serverInfo.version")
    add("--version-limit", metavar="V", help="the only handshake version negotiated")
    add(
        "--initialize-error", type=int, default=-32022, metavar="CODE", help="what a 2026-only server answers"
    )
    add("--ttl-ms", type=int, default=0, metavar="N", help="the cache hint of what a 2026 server lists")
    add("--cache-scope", choices=("public", "private"), default="private", help="the other cache hint")
    add("--prefix-uri", default="fake", metavar="SCHEME", help="scheme of the resource URIs")
    add("--effects", metavar="FILE", help="ledger of effects: '<tool> <key> pid=<pid>', 'cancelled <key>'")
    add("--dispatches", metavar="FILE", help="ledger of tools/call received: '<tool> <key>'")
    add("--state", metavar="FILE", help="ledger of faults committed, shared by generations")
    add("--catalog", metavar="FILE", help="JSON: a list of tools, or {tools: [...], remove: [...]}")
    add("--page-size", type=int, default=0, metavar="N", help="paginate lists (0: whole)")
    add("--start-delay", type=float, default=0.0, metavar="S", help="sleep before reading anything")
    add("--crash-at-start", type=int, default=0, metavar="N", help="exit with 3 the first N times (--state)")
    add("--hang-at", metavar="PLACE", help="'start', or a method that is never answered")
    add("--hang-times", type=int, default=1_000_000, metavar="N", help="hang that often (--state)")
    add("--noise", action="store_true", help="lines that are not JSON at the start and around each frame")
    add("--cwd-tool", action="store_true", help="list a tool `cwd`")
    add("--want-roots", action="store_true", help="ask for the roots when initialized and when they change")
    add("--stubborn", action="store_true", help="ignore SIGTERM and the end of standard input")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> NoReturn:
    FakeServer(_options(arguments)).serve()
    # Threads may still wait; they must not hold up the exit, nor be finalized under their feet.
    os._exit(0)


if __name__ == "__main__":
    main()
