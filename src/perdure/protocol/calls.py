"""One running call as its handler sees it, and what is known of a call under its key."""

from __future__ import annotations

import threading
from typing import Protocol

import msgspec

from perdure.protocol.replay import SafeToRetry, StillUnknown
from perdure.protocol.tools import DEFAULT_VIEW, View


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
    def process(self) -> str | None:
        """The client's process, which its hooks name too (`platform/process_tree.py`); None where it is not known."""

    @property
    def force(self) -> bool:
        """Whether a person told to override the reservations of others."""

    @property
    def view(self) -> View:
        """To be kept beside a journaled result, so that a probe can answer as the call would have."""

    @property
    def cancelled(self) -> Flag: ...

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is, where it asked to be told."""

    def log(self, level: str, message: str) -> None:
        """Tell the client something, where it asked for this level. An `alert` is told by `health` as well."""


class LocalCall:
    """A call that no MCP client made: of a command, or of a program that uses the engine as a library."""

    invocation_key: str | None = None
    age_s = 0.0
    process: str | None = None
    force = False

    def __init__(self, client: str, session: str = "", *, tool: str = "", view: View = DEFAULT_VIEW) -> None:
        self.client = client
        self.session = session or client
        self.tool = tool
        self.view = view
        self.cancelled = threading.Event()

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass


class Done(msgspec.Struct, frozen=True):
    """The effect under a key happened; its payload (or its envelope) and the view it was asked for in."""

    payload: object
    view: View | None = None


KeyStatus = Done | SafeToRetry | StillUnknown
