"""The write tools as the worker calls them, in the test's own process: what is armed or patched here fails there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.tools import View
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker import call
from perdure.worker.compose import Durability, Settings, surfaces
from perdure.worker.diagnostics import Diagnostics
from perdure.worker.tool_table import ToolTable
from perdure.workspace.workspace import Workspace

VIEW = View("json", "full")


class TestCall:
    __test__ = False
    tool = "test"
    invocation_key = None
    process: str | None = None
    force = False
    age_s = 0.0
    view = VIEW

    def __init__(self, client: str) -> None:
        self.client = self.session = client
        self.cancelled = threading.Event()

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass


class Tools:
    """Set PERDURE_HOME before one is made."""

    def __init__(
        self,
        workspace: Path,
        durability: Durability = "journal",
        policy: Path | None = None,
        others: tuple[Path, ...] = (),
        **more: Any,
    ) -> None:
        self.workspace = workspace
        self._roots = tuple(map(str, (workspace, *others)))
        settings = Settings(
            workspaces=self._roots,
            surfaces=("write",),
            durability=durability,
            policy=str(policy) if policy is not None else None,
            **more,
        )
        (self._surface,) = surfaces(settings)
        self._registry = ToolTable([self._surface])

    @property
    def service(self) -> Workspace:
        assert isinstance(self._surface, WriteSurface)
        return self._surface.service

    def close(self) -> None:
        assert isinstance(self._surface, WriteSurface)
        self._surface.close()

    def use(self, name: str, arguments: dict[str, Any], client: str = "test") -> tuple[bool, dict[str, Any]]:
        """As a client that has one session, of its own name."""
        is_ok, text = self.show(name, arguments, client)
        return is_ok, msgspec.json.decode(text)

    def show(self, name: str, arguments: dict[str, Any], client: str = "test") -> tuple[bool, str]:
        """As `use`, with the text that the client shows: JSON, unless the arguments ask for porcelain."""
        tool = self._registry.tool(name)
        assert tool is not None
        result = call.run(
            tool,
            name,
            msgspec.Raw(msgspec.json.encode(arguments)),
            default=VIEW,
            roots=self._roots,
            context=lambda _: self._call(client),
            diagnostics=Diagnostics("emergency"),
        )
        found = msgspec.to_builtins(result)
        return not found.get("isError"), found["content"][0]["text"]

    def _call(self, client: str) -> Call:
        return TestCall(client)
