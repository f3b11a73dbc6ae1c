"""What `perdure status` knows, gathered: hosts, the workspace's journal, the state store, the registry."""

from __future__ import annotations

import os
import time

from perdure import __version__
from perdure.cli.asking import ask_all
from perdure.cli.whereabouts import registry_place
from perdure.host import presence
from perdure.storage.sqlite import glance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from perdure.cli.asking import Asked
    from perdure.cli.whereabouts import Whereabouts

WAIT = "state_wait"


def gathered(where: Whereabouts) -> dict[str, Any]:
    hosts = ask_all(presence.running())
    found: dict[str, Any] = {
        "version": __version__,
        "workspace": where.workspace,
        "hosts": [one.fields() for one in hosts],
        "journal": glance.journal(where.journal, _today_us()),
        "state": {**state_of(where), "waiters": _waiters(hosts)},
        "registry": {"path": registry_place(where)},
    }
    return {"ok": not problems(found), **found}


def problems(found: dict[str, Any]) -> list[str]:
    """What could not be read although it is there."""
    return [name for name in ("journal", "state") if "error" in found[name]]


def _today_us() -> int:
    now = time.localtime()
    return int(time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1)) * 1_000_000)


def _waiters(hosts: list[Asked]) -> int:
    """Calls that wait for a change, as far as hosts that answered know."""
    reports = [one.report for one in hosts if one.report is not None]
    return sum(1 for report in reports for call in report.get("calls", ()) if call["name"] == WAIT)


def state_of(where: Whereabouts) -> dict[str, Any]:
    if where.state_file is not None:
        return glance.state(where.state_file)
    assert where.state is not None
    if where.state == "memory:":
        return {"found": False, "path": where.state}
    return _of_server(where.state)


def _of_server(url: str) -> dict[str, Any]:
    """A store behind a URL, through its own backend; its address without what may be secret."""
    from perdure.model.envelope import ToolError
    from perdure.storage.state import Span, StoreError
    from perdure.worker.compose import open_backend

    shown = _without_secrets(url)
    try:
        backend = open_backend(url)
        try:
            revision, spaces = backend.revision(), backend.namespaces()
            leases = [
                glance.lease(entry.namespace, entry.key, entry.value or "", entry.expires, _now_us())
                for space in {*spaces, "default"}
                for entry in backend.page(Span("lease", space), None, glance.MOST_LEASES, True).entries
            ]
        finally:
            backend.close()
    except ToolError as error:
        return {
            "found": True,
            "path": shown,
            "error": str(error.envelope.context.get("message", "unavailable")),
        }
    except (StoreError, OSError) as error:
        return {"found": True, "path": shown, "error": str(error)}
    return {"found": True, "path": shown, "revision": revision, "namespaces": len(spaces), "leases": leases}


def _now_us() -> int:
    return int(time.time() * 1_000_000)


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    place = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{place}"


def is_here(workspace: str, where: Whereabouts) -> bool:
    return os.path.realpath(workspace) in where.workspaces
