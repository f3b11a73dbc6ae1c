"""What `perdure install` and `perdure uninstall` did in the files of each client, or would do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.cli.client_option import add_apply, add_clients, chosen_clients
from perdure.cli.parser import Parser

if TYPE_CHECKING:
    from perdure.registry.clients.install import Report
    from perdure.registry.clients.table import Client
    from perdure.registry.errors import RegistryError

NAME: Final = "perdure"
CONFLICT: Final = 3
TOLD: Final = {
    "added": "added",
    "updated": "updated",
    "unchanged": "is there already",
    "restored": "taken out: the file is what it was before, byte for byte",
    "removed": "taken out",
    "absent": "is not there",
    "conflict": "left alone",
}


class ClientReport(msgspec.Struct, frozen=True):
    """`server` is about the file of its servers, `settings` about the one of hooks and permissions; None where nothing is to
    be done there. `settings_label` says in words what it holds."""

    server: Report
    settings: Report | None = None
    settings_label: str = ""

    @property
    def parts(self) -> list[Report]:
        return [self.server] if self.settings is None else [self.server, self.settings]

    @property
    def is_changed(self) -> bool:
        return any(part.changed for part in self.parts)

    @property
    def exit_code(self) -> int:
        return CONFLICT if any(part.action == "conflict" for part in self.parts) else 0

    def as_json(self) -> dict[str, Any]:
        return {**msgspec.structs.asdict(self.server), "settings": self.settings}


def clients_parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"perdure {name}", description=f"{description} Without --apply it only shows the change."
    )
    add_clients(parser)
    add_apply(parser)
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")
    return parser


def change_clients(
    command: argparse.ArgumentParser,
    options: argparse.Namespace,
    change: Callable[[Client, str], ClientReport],
    next_step: Callable[[list[Client]], str],
) -> int:
    """Change the files of each client and print what was done. One that fails keeps no other from being changed."""
    from perdure.registry.errors import RegistryError

    targets = chosen_clients(command, options)
    documents: list[dict[str, Any]] = []
    changed: list[Client] = []
    code = 0
    for client, path in targets:
        try:
            report = change(client, path)
        except RegistryError as error:
            code = max(code, error.exit_code)
            documents.append(
                {"client": client.name, **error.to_json()} if len(targets) > 1 else error.to_json()
            )
            if not options.json:
                _print_error(command.prog, error)
            continue
        code = max(code, report.exit_code)
        documents.append(report.as_json())
        changed += [client] if report.is_changed else []
        if not options.json:
            _print_report(report)
    if options.json:
        document = documents[0] if len(targets) == 1 else {"clients": documents}
        print(msgspec.json.encode(document).decode())
    elif not targets:
        print("No client was found on this machine.")
    elif changed and not options.apply:
        print("nothing is written yet: --apply writes it")
    elif changed:
        print(f"Next: {next_step(changed)}")
    return code


def titles(clients: list[Client]) -> str:
    return ", ".join(client.title for client in clients)


def _print_report(report: ClientReport) -> None:
    for part, label in zip(report.parts, (NAME, report.settings_label), strict=False):
        if part is not report.server and part.action == "absent":
            continue
        if not part.applied:  # after --apply the same diff would say nothing new
            print(part.diff, end="")
        reason = f" ({part.reason})" if part.reason else ""
        print(f"{label} {TOLD[part.action]}{reason}  {part.file}")
        if part.backup:
            print(f"backup  {part.backup}")


def _print_error(prog: str, error: RegistryError) -> None:
    hint = f" ({error.hint})" if error.hint else ""
    print(f"{prog}: {error.message}{hint}", file=sys.stderr)
