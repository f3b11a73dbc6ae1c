"""`perdure install CLIENT…`: Perdure in a client's config files: the entry that starts it, permissions for the tools that
only read, and with `--hooks` its hooks. `perdure uninstall` takes all of it out again."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.cli.client_option import NAMES, found_clients, settings_file_of
from perdure.cli.client_report import ClientReport, change_clients, clients_parser, titles
from perdure.cli.output import Screen, clean, column, home, print_table
from perdure.hooks.relay import CLIENTS as HOOK_CLIENTS
from perdure.protocol.tool_groups import PROFILES

if TYPE_CHECKING:
    from perdure.registry.clients.table import Client

POSTING: Final = "claude-code"
"""The client that can post its hooks to an address."""


def parser() -> argparse.ArgumentParser:
    parser = clients_parser(
        "install",
        "Write an entry that starts Perdure into clients' config files, and permissions for its tools that only read.",
    )
    parser.add_argument(
        "--hooks",
        action="store_true",
        help="also write hooks that record every change by the client's own tools; for "
        + ", ".join(HOOK_CLIENTS),
    )
    parser.add_argument(
        "--shared",
        action="store_true",
        help="attach to one perdure serve, which is started when needed: one set of servers for all sessions. Claude "
        "Code posts its hooks to it, without a process for each",
    )
    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="where files may be written (default: the client's project, or here where it has none)",
    )
    parser.add_argument(
        "--state",
        metavar="URL",
        help="the state store, for the entry and for its hooks (default: as the settings say)",
    )
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        help="which tools are listed (default: core, or full for a client that searches tools; see perdure tools)",
    )
    return parser


def main(argv: list[str]) -> int:
    command = parser()
    options = command.parse_args(argv)
    if options.shared and options.state is not None:
        command.error("--state: with --shared it is perdure serve that has the state store, by its settings")
    if not options.clients and not options.all:
        return list_clients(command, options)
    workspace = os.path.realpath(options.workspace or ".")
    if not os.path.isdir(workspace):
        command.error(f"--workspace {options.workspace}: not a directory")
    if options.hooks and options.clients:
        _check_hooks(command, options)

    def change(client: Client, path: str) -> ClientReport:
        return _install(client, path, workspace, options)

    def next_step(clients: list[Client]) -> str:
        return _next_step(clients, has_hooks=options.hooks)

    return change_clients(command, options, change, next_step)


def _check_hooks(command: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    from perdure.registry.clients.table import CLIENTS

    if not set(options.clients) & set(HOOK_CLIENTS):
        command.error(f"{titles([CLIENTS[options.clients[0]]])} has no hooks, only {', '.join(HOOK_CLIENTS)}")
    if options.file and not settings_file_of(CLIENTS[options.clients[0]], options):
        command.error("--file names the file of the servers, and this client keeps its hooks in another one")


def _install(client: Client, path: str, workspace: str, options: argparse.Namespace) -> ClientReport:
    from perdure.registry.clients import install

    fields = install.own_fields(
        client,
        install.running_words(),
        workspace,
        is_chosen=options.workspace is not None,
        profile=options.profile,
        is_shared=options.shared,
        state=options.state,
    )
    server = install.install(client, path, fields, apply=options.apply)
    settings_path = settings_file_of(client, options)
    has_hooks = options.hooks and client.name in HOOK_CLIENTS
    label = install.settings_label(client, has_hooks=has_hooks)
    if settings_path is None or not label:
        return ClientReport(server)
    hooks: Mapping[str, Any] | None = None
    preset: Mapping[str, Any] = {}
    if has_hooks:
        address = hook_address() if options.shared and client.name == POSTING else None
        hooks, preset = hook_entries(
            client.name, workspace if options.workspace else None, address, options.state
        )
    settings = install.install_settings(client, settings_path, hooks, preset, apply=options.apply)
    return ClientReport(server, settings, label)


def hook_address() -> str:
    """Where Claude Code posts its hooks: to the running `perdure serve`, or to where `attach --start` starts one."""
    from urllib.parse import urlsplit

    from perdure.cli.host_client import query_hosts
    from perdure.host import presence
    from perdure.host.serve_options import Serving

    serving = [host for host in presence.running() if host.kind == "serve"]
    reports = [asked.report for asked in query_hosts(serving) if asked.report is not None]
    default = Serving()
    address = urlsplit(reports[0]["address"] if reports else f"http://{default.host}:{default.port}/")
    return f"{address.scheme}://{address.netloc}/hooks/{POSTING}"


def hook_entries(
    client: str, workspace: str | None = None, address: str | None = None, state: str | None = None
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Perdure's entries for each event of a client, and what its file needs beside them."""
    from shlex import join

    from perdure.hooks.clients import client_module
    from perdure.registry.clients.install import running_words

    given = {"--workspace": workspace, "--state": state}
    where = [word for name, value in given.items() if value is not None for word in (name, value)]
    module = client_module(client)
    return module.entries(
        join((*running_words(), "hook", "journal", "--client", client, *where)), address
    ), module.PRESET


def _next_step(clients: list[Client], *, has_hooks: bool) -> str:
    step = f"restart {titles(clients)}, then ask for the tools of perdure. `perdure journal` shows what is written."
    if has_hooks and any(client.name == "codex" for client in clients):
        step += " In Codex, trust the new hooks: /hooks. It runs none before that."
    return step


def list_clients(command: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """The clients of this machine, what each has of Perdure and what `perdure install` would add."""
    if options.apply or options.file or options.project:
        command.error(f"which CLIENT? --all, or {', '.join(NAMES)}")
    rows = [_row(client, path) for client, path in found_clients()]
    if options.json:
        print(msgspec.json.encode({"clients": rows}).decode())
        return 0
    if not rows:
        print(f"No client was found on this machine. Perdure knows {', '.join(NAMES)}.")
        return 0
    screen = Screen()
    cells = [
        (row["client"], row["installed"], ", ".join(row["would_get"]) or "-", home(clean(row["file"])))
        for row in rows
    ]
    heads = ("client", "has perdure", "would get", "file")
    print_table([column(heads[n], (row[n] for row in cells)) for n in range(len(heads))], screen)
    if any(row["would_get"] for row in rows):
        hooks = " --hooks" if any("hooks" in row["would_get"] for row in rows) else ""
        screen.line(f"Next: perdure install --all{hooks} shows the changes, --apply writes them.")
    return 0


def _row(client: Client, path: str) -> dict[str, Any]:
    from perdure.registry.errors import RegistryError

    try:
        installed, would_get = _state(client, path)
    except RegistryError as error:
        installed, would_get = f"its file cannot be read: {clean(error.message)}", []
    return {"client": client.name, "installed": installed, "would_get": would_get, "file": path}


def _state(client: Client, path: str) -> tuple[str, list[str]]:
    from perdure.registry.clients import install, locations

    fields = install.own_fields(client, install.running_words(), os.path.realpath("."))
    action = install.install(client, path, fields, apply=False).action
    installed = {"added": "no", "unchanged": "yes", "updated": "yes"}.get(action, "another entry")
    would_get = ["server"] if action == "added" else []
    settings_path = locations.hooks_file(client.name, os.environ)
    if settings_path is None:
        return installed, would_get
    if client.name in HOOK_CLIENTS and not install.has_own_hooks(settings_path):
        would_get.append("hooks")
    if install.install_settings(client, settings_path, None, {}, apply=False).changed:
        would_get.append("permissions")
    return installed, would_get
