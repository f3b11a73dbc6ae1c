"""What a surface is to the worker that serves it, and what a call is to the surface that runs it.

A surface must be free to build: making one and listing its tools has no effect outside the process.
Whatever it opens, it opens at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from perdure.model.replay import SafeToRetry, StillUnknown
from perdure.model.tools import ToolSpec, View
from perdure.present.shape import Shape
from perdure.surfaces.waiting import Steps


class Flag(Protocol):
    """As much of a `threading.Event` as a call needs: whether it was set."""

    def is_set(self) -> bool: ...


class Call(Protocol):
    """One running call, as its handler sees it."""

    @property
    def tool(self) -> str: ...
    @property
    def invocation_key(self) -> str | None:
        """Minted by the host, the same on every attempt. None without a host."""

    @property
    def age_s(self) -> float:
        """How long ago the host took it on: not 0 where it had to wait, or was lost with another worker."""

    @property
    def client(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def view(self) -> View:
        """To be kept beside a journaled result, so that a probe can answer as the call would have."""

    @property
    def cancelled(self) -> Flag: ...

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is, where it asked to be told."""

    def log(self, level: str, message: str) -> None:
        """Tell the client something, where it asked for this level. An `alert` is told by `health` as well."""


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


class Done(msgspec.Struct, frozen=True):
    """The effect under a key happened; its payload (or its envelope) and the view it was asked for in."""

    payload: object
    view: View | None = None


KeyStatus = Done | SafeToRetry | StillUnknown


class Surface(Protocol):
    @property
    def name(self) -> str: ...

    def tools(self) -> Sequence[Tool]: ...

    def resources(self) -> Sequence[Resource]: ...

    def probe(self, key: str) -> KeyStatus:
        """Whether the effect of an invocation is there. Only its own journal may say that it is not."""
