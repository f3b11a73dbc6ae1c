"""Reads the stores for the dashboard, where no tool does: drafts, undos, namespaces, held leases.

Metadata only. Everything but discarding a draft is read-only. A SQLite file is read directly, a server through its
backend, which stays open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perdure.cli.locations import state_file
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
        if self._state == "memory:":
            return {"namespaces": [], "leases": []}
        if self._backend is None:
            from perdure.worker.compose import open_backend

            self._backend = open_backend(self._state)
        spaces = sorted({*self._backend.namespaces(), "default"})
        return {
            "namespaces": [{"namespace": space} for space in spaces],
            "leases": _leases(self._backend, spaces),
        }


def state_summary(state: str | None) -> dict[str, Any]:
    """Revision, counts and leases of a state store. With `error` where it is there and cannot be read."""
    if (path := state_file(state)) is not None:
        return read_only.state_summary(path)
    assert state is not None
    return {"found": False, "path": state} if state == "memory:" else _server_summary(state)


def _server_summary(url: str) -> dict[str, Any]:
    from perdure.storage.errors import StateError, UnusableStore
    from perdure.worker.compose import open_backend

    summary = {"found": True, "path": _without_secrets(url)}
    try:
        backend = open_backend(url)
        try:
            revision, spaces = backend.revision(), backend.namespaces()
            leases = _leases(backend, {*spaces, "default"})
        finally:
            backend.close()
    except StateError as error:
        return {**summary, "error": error.detail}
    except (UnusableStore, OSError) as error:
        return {**summary, "error": str(error)}
    return {**summary, "revision": revision, "namespaces": len(spaces), "leases": leases}


def _leases(backend: StateBackend, spaces: Iterable[str]) -> list[dict[str, Any]]:
    from perdure.storage.state import Span

    now = int(time.time() * 1_000_000)
    return [
        read_only.lease(entry.namespace, entry.key, entry.value or "", entry.expires, now)
        for space in spaces
        for entry in backend.page(Span("lease", space), None, read_only.MAX_LEASES, True).entries
    ]


def today_us() -> int:
    """The start of this day, local time."""
    now = time.localtime()
    return int(time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1)) * 1_000_000)


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    place = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{place}"
