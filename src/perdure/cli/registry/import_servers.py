"""`perdure registry import`: the servers of a client's file in the registry; its secrets stay in that file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.cli.client_option import add_client, chosen
from perdure.cli.registry.export import public_location
from perdure.cli.registry.shared import backend_of, location_of, print_result, table

if TYPE_CHECKING:
    import argparse

    from perdure.registry.clients.import_servers import Report

CONFLICT: Final = 3


def add(parser: argparse.ArgumentParser) -> None:
    add_client(parser)
    parser.add_argument(
        "--keep-secrets",
        action="store_true",
        help="copy literal secrets instead of replacing them with $NAME references",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be imported")


def run(options: argparse.Namespace) -> int:
    from perdure.registry.clients.import_servers import import_from

    client, path = chosen(options)
    report = import_from(
        client, path, backend_of(options), keep_secrets=options.keep_secrets, apply=not options.dry_run
    )
    registry = public_location(location_of(options))
    print_result(options, {**_to_json(report), "registry": registry}, _text(report, registry))
    return CONFLICT if report.has_conflicts else 0


def _to_json(report: Report) -> dict[str, Any]:
    import msgspec

    values: dict[str, Any] = {
        "client": report.client,
        "file": report.file,
        "applied": report.applied,
        "servers": report.steps,
        "notes": report.notes,
        "secrets": report.secrets,
        "kept_secrets": report.kept,
    }
    return {key: msgspec.to_builtins(value) for key, value in values.items()}


def _text(report: Report, registry: str) -> str:
    rows = [
        [step.action, step.name, " ".join(filter(None, (step.entry and f"as {step.entry}", step.reason)))]
        for step in report.steps
    ]
    rows += [["note", note.name, f"{note.field}: {note.reason}"] for note in report.notes]
    rows += [
        ["secret", secret.name, f"{secret.field}: stays there; here it is ${secret.variable}"]
        for secret in report.secrets
    ]
    rows += [["secret", secret.name, f"{secret.field}: copied as it is"] for secret in report.kept]
    if not rows:
        return "no servers there"
    return f"{table(rows)}\n{f'into {registry}' if report.applied else 'nothing is written yet'}"
