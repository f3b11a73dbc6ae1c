"""One tools/call in the fake server, from its arrival to its answer or its cancellation."""

from __future__ import annotations

import json
import threading
from typing import Final

from perdure.testing.fake_catalog import Catalog
from perdure.testing.fake_ledger import Ledgers
from perdure.testing.fake_session import Session, meta_of
from perdure.testing.fake_wire import Object, RequestId, Wire

FOR_EVER: Final = 1e8


class Cancelled(Exception):
    """The client cancelled the call while it waited."""


def text_result(text: str, structured: Object | None = None, *, is_error: bool = False) -> Object:
    result: Object = {"content": [{"type": "text", "text": text}]}
    if structured is not None:
        result["structuredContent"] = structured
    if is_error:
        result["isError"] = True
    return result


def json_result(value: object, *, is_error: bool = False) -> Object:
    structured = value if isinstance(value, dict) else None
    return text_result(json.dumps(value, ensure_ascii=False), structured, is_error=is_error)


class Call:
    def __init__(
        self,
        identity: RequestId,
        params: Object,
        *,
        wire: Wire,
        session: Session,
        catalog: Catalog,
        ledgers: Ledgers,
    ) -> None:
        arguments = params.get("arguments")
        self.id = identity
        self.params = params
        self.tool = str(params.get("name"))
        self.arguments: Object = arguments if isinstance(arguments, dict) else {}
        self.meta = meta_of(params)
        self.wire = wire
        self.session = session
        self.catalog = catalog
        self.ledgers = ledgers
        self.cancelled = threading.Event()

    @property
    def key(self) -> str:
        return str(self.arguments.get("key", "-")).replace("\n", " ")

    def text(self, name: str, default: str = "") -> str:
        return str(self.arguments.get(name, default))

    def number(self, name: str, default: float) -> float:
        return float(self.arguments.get(name, default))

    def count(self, name: str, default: int) -> int:
        return int(self.arguments.get(name, default))

    def flag(self, name: str) -> bool:
        return bool(self.arguments.get(name, False))

    def wait(self, milliseconds: float) -> None:
        """Wait as long as asked. Raises Cancelled when the client cancels, unless the call is deaf."""
        event = threading.Event() if self.flag("deaf") else self.cancelled
        if event.wait(milliseconds / 1000):
            raise Cancelled

    def wait_for(self, event: threading.Event) -> None:
        while not event.wait(0.02):
            if self.cancelled.is_set():
                raise Cancelled

    def may_crash(self, default_times: int = 1_000_000) -> bool:
        """Count one crash of this tool for this key, while fewer than `times` were counted."""
        return self.ledgers.claim(f"crash {self.tool} {self.key}", self.count("times", default_times))

    def answer(self, result: Object) -> None:
        self.wire.answer(self.id, self.session.complete("tools/call", result))
