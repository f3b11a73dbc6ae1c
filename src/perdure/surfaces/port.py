"""What a surface is to the worker that serves it.

A surface must be free to build: making one and listing its tools has no effect outside the process.
Whatever it opens, it opens at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from perdure.present.shape import Shape
from perdure.protocol.calls import Call, KeyStatus
from perdure.protocol.tools import ToolSpec
from perdure.protocol.waiting import Steps

Handler = Callable[[Any, Call], object]
"""From the declared params and the call to the full payload. Fails by raising `ToolError`."""


class Tool(msgspec.Struct, frozen=True):
    """A declared tool bound to what runs it."""

    spec: ToolSpec
    shape: Shape
    handler: Handler
    is_brief: Callable[[], bool] = lambda: False
    """At this moment a small call takes less time than waking another thread to read on, as far as its first wait."""
    steps: Callable[[Any, Call], Steps[object]] | None = None
    """The same as the handler, and no thread is kept while it waits."""


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
