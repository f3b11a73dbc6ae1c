"""What a surface is to the worker that serves it.

A surface must be free to build: making one and listing its tools has no effect outside the process.
Whatever it opens, it opens at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from perdure.present.shape import Shape
from perdure.protocol.calls import Call, KeyStatus
from perdure.protocol.tools import ToolSpec

Handler = Callable[[Any, Call], object]
"""From the declared params and the call to the payload, or to a future of it. Fails by raising `ToolError` or an
error of storage."""


class Tool(msgspec.Struct, frozen=True):
    """A declared tool bound to what runs it."""

    spec: ToolSpec
    shape: Shape
    handler: Handler
    is_brief: Callable[[Any], bool] = lambda params: False
    """Whether the reading thread may run the handler itself now: it computes a little, and waits for nothing."""

    def run(self, params: Any, call: Call) -> Any:
        """Run the handler and wait for its payload."""
        outcome = self.handler(params, call)
        return outcome.result() if isinstance(outcome, Future) else outcome


class Resource(msgspec.Struct, frozen=True):
    """A document that is read when it is asked for."""

    uri: str
    name: str
    description: str
    read: Callable[[], str]
    mime_type: str = "text/plain"


class Surface(Protocol):
    @property
    def name(self) -> str: ...

    def tools(self) -> Sequence[Tool]: ...

    def resources(self) -> Sequence[Resource]: ...

    def probe(self, key: str) -> KeyStatus:
        """Whether the effect of an invocation is there. Only its own journal may say that it is not."""
