"""The state tools as the worker calls them, on one backend."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.protocol.tools import View
from perdure.storage.state import StateBackend
from perdure.storage.state_limits import StateLimits
from perdure.surfaces.state.service import StateService
from perdure.surfaces.state.surface import StateSurface
from perdure.worker import call
from perdure.worker.diagnostics import Diagnostics
from perdure.worker.tool_table import ToolTable

Open = Callable[[], StateBackend]
VIEW = View("json", "full")


class Caller:
    """Who calls (`perdure.protocol.calls.Call`)."""

    def __init__(
        self,
        client: str = "tester",
        session: str = "s1",
        key: str | None = None,
        view: View = VIEW,
        age_s: float = 0.0,
    ) -> None:
        self.tool = ""
        self.invocation_key = key
        self.age_s = age_s
        self.client = client
        self.session = session
        self.view = view
        self.cancelled = threading.Event()

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass


FAILED = ("error", "conflict", "lost")
CHANGING = ("set_state", "force_set_state", "delete_state", "state_patch")


class Store:
    """The state tools on one backend."""

    def __init__(self, backend: StateBackend, limits: StateLimits | None = None) -> None:
        self.backend = backend
        self.service = StateService(backend, limits)
        self.surface = StateSurface(lambda: self.service)
        self._registry = ToolTable([self.surface])

    def raw(self, tool: str, caller: Caller | None = None, **arguments: Any) -> dict[str, Any]:
        found = self._registry.tool(tool)
        assert found is not None
        who = caller or Caller()
        who.tool = tool

        return call.run(
            found,
            tool,
            msgspec.Raw(msgspec.json.encode(arguments)),
            default=who.view,
            roots=(),
            context=lambda _: who,
            diagnostics=Diagnostics("emergency"),
        )

    def use(self, tool: str, caller: Caller | None = None, **arguments: Any) -> dict[str, Any]:
        """A call that the store answers: what it did, or the status that says why it did not."""
        result = self.raw(tool, caller, **arguments)
        found: dict[str, Any] = result["structuredContent"]
        is_failed = found.get("status") in FAILED or (found.get("status") == "not_found" and tool in CHANGING)
        assert result["isError"] is is_failed, result
        assert ("next" in found, "message" in found) == (is_failed, is_failed), result
        return found

    def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.raw(tool, **arguments)
        assert result["isError"], result
        found: dict[str, Any] = result["structuredContent"]
        assert found["ok"] is False
        return found
