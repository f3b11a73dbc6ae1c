"""`perdure uninstall CLIENT…`: what `perdure install` wrote, taken out of the clients' files again."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from perdure.cli.client_option import settings_file_of
from perdure.cli.client_report import ClientReport, change_clients, clients_parser, titles

if TYPE_CHECKING:
    from perdure.registry.clients.table import Client


def parser() -> argparse.ArgumentParser:
    return clients_parser(
        "uninstall", "Take Perdure's own entry, its hooks and its permissions out of clients' config files."
    )


def main(argv: list[str]) -> int:
    command = parser()
    options = command.parse_args(argv)
    if not options.clients and not options.all:
        from perdure.cli.install import list_clients

        return list_clients(command, options)

    def change(client: Client, path: str) -> ClientReport:
        return _uninstall(client, path, options)

    return change_clients(command, options, change, lambda clients: f"restart {titles(clients)}.")


def _uninstall(client: Client, path: str, options: argparse.Namespace) -> ClientReport:
    from perdure.registry.clients import install

    settings_path = settings_file_of(client, options)
    is_same = settings_path is not None and os.path.realpath(settings_path) == os.path.realpath(path)
    settings = None
    if settings_path is not None and not is_same:
        # Before the server's file, in whose folder it may be: that one was written first, and takes its folder along.
        settings = install.uninstall_settings(client, settings_path, apply=options.apply)
    server = install.uninstall(client, path, apply=options.apply, holds_hooks=is_same)
    return ClientReport(server, settings, install.settings_label(client))
