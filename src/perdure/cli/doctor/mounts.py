"""Every mount started once, by a host like any other: same allow list, environment, time limits, all at once.

A host of our own is run for it, so whatever it finds is what a client's host would find. Of a server's words only
what the host itself made of them is shown: no argument and no value of its environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from perdure.cli.doctor.finding import DoctorContext, Finding, ok
from perdure.cli.host_session import SessionFailed, open_session
from perdure.cli.locations import registry_location
from perdure.host.launch import BUILTIN
from perdure.registry.backend import open_backend
from perdure.registry.errors import RegistryError

CHECK: Final = "mounts"
LONGEST_S: Final = 120.0
MORE_S: Final = 10.0
CLIENT: Final = "perdure-doctor"
ADVICE: Final = {
    "spawn_failed": "check that the command is installed and on the PATH of the client that starts perdure",
    "startup_timeout": "run its command by hand; a first start that downloads needs a longer startup time limit",
    "handshake_refused": "check that it is an MCP server that speaks on standard input and output",
    "exited": "run its command by hand and read what it says",
    "killed": "run its command by hand; the system may have ended it for want of memory",
    "unset_variable": "set the variable for the client that starts perdure",
    "command_not_allowed": "add it to `## Allowed commands` of the registry, if you trust it",
    "invalid_entry": "fix its section; `perdure registry validate` says where",
    "sign_in_required": "`perdure registry login NAME`",
}


def check(context: DoctorContext) -> Iterator[Finding]:
    yield from _check_registry(context)
    try:
        with open_session(
            CLIENT, context.words, state=context.settings.state, folder=context.folder
        ) as session:
            rows = session.mounts(min(context.settings.timeouts.startup + MORE_S, LONGEST_S))
    except (OSError, SessionFailed) as error:
        yield Finding(
            CHECK,
            "error",
            f"no host could be started to try the mounts: {error}",
            "a client's host would not start either",
            "see the other findings; `perdure run --log-level debug` says more",
        )
        return
    mounts = [row for row in rows if row["name"] != BUILTIN]
    for row in rows:
        yield from _judge(row)
    if not mounts:
        yield ok(CHECK, "no server is mounted here")


def _check_registry(context: DoctorContext) -> Iterator[Finding]:
    """Whether the registry's file can be read at all: a host goes on without the servers of one that cannot."""
    location = registry_location(context.settings)
    if location is None or "://" in location:
        return
    try:
        open_backend(location, os.environ).list_servers()
    except RegistryError as error:
        yield Finding(
            CHECK,
            "error",
            f"the registry {location} cannot be read: {error.message}",
            "none of its servers is mounted",
            error.hint or f"fix {location}",
        )


def _judge(row: dict[str, Any]) -> Iterator[Finding]:
    name, fault = row["name"], row.get("last_fault") or {}
    code = str(fault.get("code", ""))
    if row["state"] == "ready" and not row["restarts"]:
        yield ok(CHECK, f"{name} starts and has {row['tools']} tools")
    elif row["state"] == "ready":
        yield Finding(
            CHECK,
            "warning",
            f"{name} starts, but not at once: {fault.get('class')}/{code}",
            "its first calls wait while it is started again",
            str(fault.get("hint") or ADVICE.get(code, "run its command by hand")),
        )
    elif row["state"] == "untrusted":
        yield Finding(CHECK, "note", str(row["untrusted"]), "", "see trust")
    elif row["state"] == "disabled":
        yield Finding(
            CHECK, "note", f"{name} is disabled", "", "`perdure registry enable NAME`, if you want it"
        )
    else:
        reason = f": {fault['detail']}" if fault.get("detail") and _is_ours(code) else ""
        yield Finding(
            CHECK,
            "error",
            f"{name} does not start ({fault.get('class', 'timeout')}/{code or 'startup'}){reason}",
            "its tools are missing, or answer that it is not available",
            str(fault.get("hint") or ADVICE.get(code, "run its command by hand and read what it says")),
        )


def _is_ours(code: str) -> bool:
    """Whether the detail is in the host's own words."""
    return code in (
        "spawn_failed",
        "startup_timeout",
        "unset_variable",
        "command_not_allowed",
        "invalid_entry",
        "sign_in_required",
    )
