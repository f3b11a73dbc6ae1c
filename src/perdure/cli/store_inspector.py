"""Reads the stores for the dashboard, where no tool does: drafts, undos, namespaces, held leases.

Metadata only. Everything but discarding a draft is read-only. A SQLite file is read directly, a server through its
backend, which stays open.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from perdure.cli.locations import state_file
from perdure.cli.overview import today_us
from perdure.storage.sqlite import read_only
from perdure.storage.sqlite.drafts import expire_draft
from perdure.storage.workspace_store import find

if TYPE_CHECKING:
    from perdure.host.settings import Settings
    from perdure.storage.state import StateBackend


class StoreInspector:
    """`perdure.dash.context.StoreReader` for the stores of `perdure serve`."""

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

    def discard_draft(self, identity: str) -> bool:
        """Let a refused payload expire now. False where there is none."""
        return any(
            expire_draft(find(workspace, self._store).journal, identity) for workspace in self._workspaces
        )

    def undos(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = read_only.undos(self._journal).get("undos", [])
        return found

    def writes_today(self) -> int | None:
        return read_only.writes_since(self._journal, today_us()).get("writes")

    def places(self) -> list[tuple[str, str]]:
        """Where the stores are, for people."""
        found = [("Workspace", ", ".join(self._workspaces)), ("Store", os.path.dirname(self._journal))]
        if (path := state_file(self._state)) is not None:
            found.append(("State", path))
        elif self._state is not None:
            found.append(("State", self._state.partition("://")[0]))
        return found

    @property
    def _journal(self) -> str:
        """Of the first workspace, which holds the journal of all of them."""
        return find(self._workspaces[0], self._store).journal

    def writers(self, namespace: str, keys: list[str]) -> dict[str, str]:
        """Which client last changed each of these keys."""
        if (path := state_file(self._state)) is not None:
            found: dict[str, str] = read_only.writers(path, namespace, keys).get("writers", {})
            return found
        if self._state == "memory:" or self._backend is None:
            return {}
        past = {key: self._backend.history(("key", namespace, key), 1) for key in keys}
        return {key: changes[0].author.client for key, changes in past.items() if changes}

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
