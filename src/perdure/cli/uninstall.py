"""`perdure uninstall CLIENT`: what `perdure install` wrote, taken out of the client's files again."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

import msgspec

from perdure.cli.client_option import chosen, hooks_file_of
from perdure.cli.install import CONFLICT, NAME, list_clients, parser_of, print_next, print_report, refused

if TYPE_CHECKING:
    from perdure.registry.clients.install import Report
    from perdure.registry.clients.table import Client


def parser() -> argparse.ArgumentParser:
    return parser_of("uninstall", "Take Perdure's own entry and its hooks out of a client's config files.")


def main(argv: list[str]) -> int:
    command = parser()
    options = command.parse_args(argv)
    if options.client is None:
        return list_clients(command, options)
    client, path = chosen(options)

    from perdure.registry.errors import RegistryError

    try:
        report, hooks = _uninstall(client, path, options)
    except RegistryError as error:
        return refused(error, command.prog, options.json)
    if options.json:
        print(msgspec.json.encode({**msgspec.structs.asdict(report), "hooks": hooks}).decode())
    else:
        print_report(report, NAME)
        if hooks is not None and hooks.action != "absent":
            print_report(hooks, "hooks")
        print_next(report if report.changed or hooks is None else hooks, f"restart {client.title}.")
    return CONFLICT if report.action == "conflict" else 0


def _uninstall(client: Client, path: str, options: argparse.Namespace) -> tuple[Report, Report | None]:
    """The report of the servers' file, and that of the hooks' file where it is another one."""
    from perdure.registry.clients import install

    hooks_path = None if options.file else hooks_file_of(client, is_project=options.project)
    if options.file and install.holds_only_hooks(client, path):
        return install.uninstall_hooks(client, path, apply=options.apply), None
    is_same = hooks_path is not None and os.path.realpath(hooks_path) == os.path.realpath(path)
    report = install.uninstall(client, path, apply=options.apply, holds_hooks=is_same)
    if hooks_path is None or is_same:
        return report, None
    return report, install.uninstall_hooks(client, hooks_path, apply=options.apply)
