"""What the dashboard shows of the stores that no tool tells: refused payloads, namespaces, held leases.

Read-only, and metadata only. A file is looked at directly; a server through its own backend, kept open.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from perdure.cli.locations import state_file
from perdure.storage.sqlite import read_only
from perdure.storage.workspace_store import find

if TYPE_CHECKING:
    from perdure.host.settings import Settings
    from perdure.storage.state import StateBackend


class Looks:
    """`perdure.dash.desk.Looks` on the stores that `perdure serve` was told of."""

    def __init__(self, settings: Settings) -> None:
        self._workspaces = settings.workspaces
        self._store = settings.store
        self._state = settings.state
        self._backend: StateBackend | None = None

    def drafts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for workspace in self._workspaces:
            rows = read_only.drafts(find(workspace, self._store).journal).get("drafts", [])
            more = {"workspace": os.path.basename(workspace)} if len(self._workspaces) > 1 else {}
            found += [{**row, **more} for row in rows]
        return found

    def state(self) -> dict[str, list[dict[str, Any]]]:
        if (path := state_file(self._state)) is not None:
            found = read_only.namespaces(path)
            return {name: found.get(name, []) for name in ("namespaces", "leases")}
        return self._of_server() if self._state != "memory:" else {"namespaces": [], "leases": []}

    def _of_server(self) -> dict[str, list[dict[str, Any]]]:
        from perdure.storage.state import Span
        from perdure.worker.compose import open_backend

        if self._backend is None:
            self._backend = open_backend(self._state)
        spaces, now = sorted({*self._backend.namespaces(), "default"}), int(time.time() * 1_000_000)
        leases = [
            read_only.lease(one.namespace, one.key, one.value or "", one.expires, now)
            for space in spaces
            for one in self._backend.page(Span("lease", space), None, read_only.MAX_LEASES, True).entries
        ]
        return {"namespaces": [{"namespace": space} for space in spaces], "leases": leases}
