"""Versions that do not fit, what is not installed, and disks that are nearly full."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

from perdure import __version__
from perdure.cli.doctor.finding import DoctorContext, Finding, ok
from perdure.cli.extras import install_command
from perdure.cli.output import size
from perdure.host import presence
from perdure.platform.file_systems import space
from perdure.storage.user_dirs import data_dir, state_dir

VERSIONS, EXTRAS, DISK = "versions", "extras", "disk"
FULL_BYTES = 100 * 1000 * 1000
LOW_BYTES = 1000 * 1000 * 1000
LOW_SHARE = 0.05
# extra: (its modules, what it is for)
OPTIONAL = {
    "remote": (("mcp",), "servers behind a URL"),
    "postgres": (("psycopg", "psycopg_pool"), "a state store on PostgreSQL"),
    "oauth": (("jwt", "cryptography"), "access tokens for `perdure serve`"),
    "otel": (
        ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
        "traces and metrics to a collector",
    ),
    "seal": (("cryptography", "keyring"), "scratch contents sealed on disk"),
    "top": (("rich",), "the live screen of `perdure top`"),
}


def check_versions(context: DoctorContext) -> Iterator[Finding]:
    from perdure.storage.errors import UnusableStore
    from perdure.storage.sqlite.database import check_library

    found = 0
    try:
        check_library()
    except UnusableStore as error:
        found += 1
        yield Finding(
            VERSIONS,
            "error",
            str(error),
            "a write could be lost when the machine fails",
            "pip install --upgrade apsw",
        )
    for host in presence.running():
        if host.version != __version__:
            found += 1
            yield Finding(
                VERSIONS,
                "warning",
                f"the host {host.pid} runs {host.version}; {__version__} is installed",
                "it does not have what the new version mends",
                f"`perdure reload --host --pid {host.pid}`: its session goes on"
                if host.kind != "serve"
                else "start `perdure serve` anew: its sessions go on",
            )
    if not found:
        yield ok(VERSIONS, f"perdure {__version__}; every running host has this version")


def check_extras(context: DoctorContext) -> Iterator[Finding]:
    missing = [name for name, (modules, _) in OPTIONAL.items() if not all(map(_is_installed, modules))]
    if not missing:
        yield ok(EXTRAS, "every optional part is installed")
    if "postgres" in missing and (context.settings.state or "").startswith(("postgresql://", "postgres://")):
        missing.remove("postgres")
        yield Finding(
            EXTRAS,
            "error",
            "perdure[postgres] is not installed",
            f"it is needed for {OPTIONAL['postgres'][1]}, which the settings name",
            install_command("postgres"),
        )
    if missing:
        yield Finding(
            EXTRAS,
            "note",
            f"not installed, and optional: {', '.join(missing)}",
            "; ".join(f"{name} is for {OPTIONAL[name][1]}" for name in missing),
            f"{install_command('all')} adds them",
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # its package is missing
        return False


def check_disk(context: DoctorContext) -> Iterator[Finding]:
    seen: set[int] = set()
    found = 0
    for path in (*context.settings.workspaces, state_dir(), data_dir()):
        while not os.path.exists(path) and path != os.path.dirname(path):
            path = os.path.dirname(path)
        if (device := os.stat(path).st_dev) in seen:
            continue
        seen.add(device)
        whole, free, can_add_files = space(path)
        if free < FULL_BYTES or (free < LOW_BYTES and whole and free / whole < LOW_SHARE):
            found += 1
            yield Finding(
                DISK,
                "error" if free < FULL_BYTES else "warning",
                f"only {size(free)} are free where {path} is",
                "a write needs room for its journal, its content and the file; without it, it is refused",
                "make room; `[keep]` in perdure.toml says how much of the past is kept",
            )
        elif not can_add_files:
            found += 1
            yield Finding(
                DISK,
                "error",
                f"no more files can be made where {path} is",
                "every write makes one before it replaces the old",
                "remove files that are not needed: their number is used up, not their size",
            )
    if not found:
        yield ok(DISK, "there is room")
