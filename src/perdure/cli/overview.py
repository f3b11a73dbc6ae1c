"""What `perdure status` knows, gathered: hosts, the workspace's journal, the state store, the registry."""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec

from perdure import __version__
from perdure.cli.asking import Asked, ask_all
from perdure.cli.locations import registry_location, state_file, store_place
from perdure.host import presence
from perdure.host.settings import Settings
from perdure.host.workspace_trust import untrusted_files
from perdure.protocol.pending_trust import command_for
from perdure.storage.sqlite import read_only

WAIT = "state_wait"


def gathered(settings: Settings) -> dict[str, Any]:
    hosts = ask_all(presence.running())
    store = store_place(settings)
    found: dict[str, Any] = {
        "version": __version__,
        "workspace": settings.workspaces[0],
        "store": store.folder,
        "store_reason": store.reason or None,
        "hosts": [one.fields() for one in hosts],
        "journal": read_only.journal_summary(store.journal, today_us()),
        "state": {**state_of(settings.state), "waiters": _waiters(hosts)},
        "registry": {"path": registry_location(settings)},
        "untrusted": [
            {**msgspec.to_builtins(file), "todo": command_for(file.path)}
            for file in untrusted_files(settings, os.environ)
        ],
    }
    return {"ok": not problems(found), **found}


def problems(found: dict[str, Any]) -> list[str]:
    """What could not be read although it is there."""
    return [name for name in ("journal", "state") if "error" in found[name]]


def today_us() -> int:
    now = time.localtime()
    return int(time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1)) * 1_000_000)


def _waiters(hosts: list[Asked]) -> int:
    """Calls that wait for a change, as far as hosts that answered know."""
    reports = [one.report for one in hosts if one.report is not None]
    return sum(1 for report in reports for call in report.get("calls", ()) if call["name"] == WAIT)


def state_of(state: str | None) -> dict[str, Any]:
    if (path := state_file(state)) is not None:
        return read_only.state_summary(path)
    assert state is not None
    if state == "memory:":
        return {"found": False, "path": state}
    return _of_server(state)


def _of_server(url: str) -> dict[str, Any]:
    """A store behind a URL, through its own backend; its address without what may be secret."""
    from perdure.storage.errors import StateError, UnusableStore
    from perdure.storage.state import Span
    from perdure.worker.compose import open_backend

    shown = _without_secrets(url)
    try:
        backend = open_backend(url)
        try:
            revision, spaces = backend.revision(), backend.namespaces()
            leases = [
                read_only.lease(entry.namespace, entry.key, entry.value or "", entry.expires, _now_us())
                for space in {*spaces, "default"}
                for entry in backend.page(Span("lease", space), None, read_only.MAX_LEASES, True).entries
            ]
        finally:
            backend.close()
    except StateError as error:
        return {"found": True, "path": shown, "error": error.detail}
    except (UnusableStore, OSError) as error:
        return {"found": True, "path": shown, "error": str(error)}
    return {"found": True, "path": shown, "revision": revision, "namespaces": len(spaces), "leases": leases}


def _now_us() -> int:
    return int(time.time() * 1_000_000)


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    place = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{place}"


def is_here(workspace: str, settings: Settings) -> bool:
    return os.path.realpath(workspace) in settings.workspaces
