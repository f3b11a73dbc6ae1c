"""`perdure registry export` and `sync`: the registry's servers in a client's file, shown first, and written with `--apply`.

`export` removes nothing; `sync` also removes what Perdure wrote and the registry has no more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from perdure.cli.client_option import add_apply, add_client, chosen
from perdure.cli.registry.shared import backend_of, location_of, print_result, require_trust, table
from perdure.registry.errors import Unreadable

if TYPE_CHECKING:
    import argparse

    from perdure.registry.clients.client_file import Report

CONFLICT: Final = 3


def add(parser: argparse.ArgumentParser) -> None:
    add_client(parser)
    add_apply(parser)
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="also replace entries that were edited in the client or that Perdure did not write",
    )


def run(options: argparse.Namespace) -> int:
    from perdure.registry.clients.client_file import ClientFile
    from perdure.registry.clients.plan import Wanted

    sync = options.command_name == "sync"
    client, path = chosen(options)
    if options.apply:
        require_trust(options)
    backend = backend_of(options)
    source = public_location(location_of(options))
    if sync and "://" not in source and not os.path.exists(source):
        raise Unreadable("there is no registry here", hint="nothing is removed; --registry names one")
    broken = {ref.name: ref.error for ref in backend.list_servers() if ref.error}
    entries = backend.load_all()
    names = {entry.name for entry in entries}
    wanted = Wanted(
        source, tuple(entries), {name: error for name, error in broken.items() if name not in names}
    )
    report = ClientFile(client, path).export(
        wanted, sync=sync, overwrite=options.overwrite, apply=options.apply
    )
    print_result(options, _to_json(report), _text(report))
    return CONFLICT if report.has_conflicts else 0


def public_location(location: str) -> str:
    """The location of a registry without credentials: it is print_result and recorded."""
    from perdure.registry.redaction import mask_url

    return mask_url(location) if "://" in location else os.path.realpath(location)


def _to_json(report: Report) -> dict[str, Any]:
    import msgspec

    values: dict[str, Any] = {
        "client": report.client,
        "file": report.file,
        "applied": report.applied,
        "changed": report.changed,
        "servers": report.steps,
        "losses": report.losses,
        "secrets": report.secrets,
        "diff": report.diff,
        "backup": report.backup or None,
    }
    return {key: msgspec.to_builtins(value) for key, value in values.items()}


def _text(report: Report) -> str:
    parts = [report.diff.rstrip("\n")] if report.diff else []
    rows = [[step.action, step.name, step.reason] for step in report.steps]
    rows += [["not held", loss.name, f"{loss.field}: {loss.reason}"] for loss in report.losses]
    rows += [["secret", secret.name, f"{secret.field}: {secret.reason}"] for secret in report.secrets]
    if rows:
        parts.append(table(rows))
    if report.backup:
        parts.append(f"backup  {report.backup}")
    if report.changed and not report.applied:
        parts.append("nothing is written yet: --apply writes it")
    elif not report.changed:
        parts.append("nothing to write")
    return "\n".join(parts)
