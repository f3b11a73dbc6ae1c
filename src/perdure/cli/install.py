"""`perdure install CLIENT`: Perdure's own entry in a client's config file, or its hooks. `perdure uninstall` takes both
out again."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.cli.client_option import (
    NAMES,
    add_apply,
    add_client,
    chosen,
    found_clients,
    hooks_file_of,
)
from perdure.cli.parser import Parser
from perdure.cli.screen import Screen, clean, column, home, print_table
from perdure.hooks.relay import CLIENTS as HOOK_CLIENTS
from perdure.protocol.tool_groups import PROFILES

if TYPE_CHECKING:
    from perdure.registry.clients.install import Report
    from perdure.registry.clients.table import Client

NAME: Final = "perdure"
CONFLICT: Final = 3
POSTING: Final = "claude-code"
"""The client that can post its hooks to an address."""
TOLD: Final = {
    "added": "added",
    "updated": "updated",
    "unchanged": "is there already",
    "restored": "taken out: the file is what it was before, byte for byte",
    "removed": "taken out",
    "absent": "is not there",
    "conflict": "left alone",
}


def parser() -> argparse.ArgumentParser:
    found = parser_of("install", "Write an entry that starts Perdure into a client's config file.")
    found.add_argument(
        "--hooks",
        action="store_true",
        help="write hooks that record every change by the client's own tools instead; for "
        + ", ".join(HOOK_CLIENTS),
    )
    found.add_argument(
        "--shared",
        action="store_true",
        help="with --hooks: the client posts its hooks to the running perdure serve, without a process for each; for "
        "claude-code",
    )
    found.add_argument(
        "--workspace",
        metavar="DIR",
        help="where files may be written (default: the client's project, or here where it has none)",
    )
    found.add_argument(
        "--profile",
        choices=PROFILES,
        help="which tools are listed (default: core, or full for a client that searches tools; see perdure tools)",
    )
    return found


def main(argv: list[str]) -> int:
    command = parser()
    options = command.parse_args(argv)
    if options.client is None:
        return list_clients(command, options)
    if options.shared and not options.hooks:
        command.error("--shared is for --hooks")
    client, path = chosen(options)

    from perdure.registry.errors import RegistryError

    try:
        report = (_install_hooks if options.hooks else _install)(command, client, path, options)
    except RegistryError as error:
        return refused(error, command.prog, options.json)
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        print_report(report, "hooks" if options.hooks else NAME)
        print_next(report, _next_step(client, is_hooks=options.hooks))
    return CONFLICT if report.action == "conflict" else 0


def _install(
    command: argparse.ArgumentParser, client: Client, path: str, options: argparse.Namespace
) -> Report:
    from perdure.registry.clients import install

    fields = install.own_fields(
        client,
        install.running_words(),
        _workspace(command, options),
        is_chosen=options.workspace is not None,
        profile=options.profile,
    )
    return install.install(client, path, fields, apply=options.apply)


def _install_hooks(
    command: argparse.ArgumentParser, client: Client, path: str, options: argparse.Namespace
) -> Report:
    from perdure.registry.clients import install

    hooks_path = hooks_file_of(client, is_project=options.project)
    if hooks_path is None:
        command.error(f"{client.title}: there are no hooks for it, only for {', '.join(HOOK_CLIENTS)}")
    if options.profile is not None:
        command.error("--profile is for the entry that starts Perdure, not for --hooks")
    workspace = _workspace(command, options) if options.workspace is not None else None
    address = _hook_address(command, client) if options.shared else None
    entries, preset = hook_entries(client.name, workspace, address)
    file = path if options.file else hooks_path
    return install.install_hooks(client, file, entries, preset, apply=options.apply)


def _hook_address(command: argparse.ArgumentParser, client: Client) -> str:
    """Where the running `perdure serve` takes the client's hooks."""
    from urllib.parse import urlsplit

    from perdure.cli.asking import ask_all
    from perdure.host import presence

    if client.name != POSTING:
        command.error(f"--shared: {client.title} cannot post its hooks, only {POSTING} can")
    serving = [host for host in presence.running() if host.kind == "serve"]
    reports = [asked.report for asked in ask_all(serving) if asked.report is not None]
    if not reports:
        command.error("--shared: no perdure serve is running; start one, or leave --shared out")
    address = urlsplit(reports[0]["address"])
    return f"{address.scheme}://{address.netloc}/hooks/{client.name}"


def hook_entries(
    client: str, workspace: str | None = None, address: str | None = None
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Perdure's entries for each event of a client, and what its file needs beside them."""
    from shlex import join

    from perdure.hooks.clients import client_module
    from perdure.registry.clients.install import running_words

    where = () if workspace is None else ("--workspace", workspace)
    module = client_module(client)
    return module.entries(
        join((*running_words(), "hook", "journal", "--client", client, *where)), address
    ), module.PRESET


def _workspace(command: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    workspace = os.path.realpath(options.workspace or ".")
    if not os.path.isdir(workspace):
        command.error(f"--workspace {options.workspace}: not a directory")
    return workspace


def _next_step(client: Client, *, is_hooks: bool) -> str:
    if not is_hooks:
        return f"restart {client.title}, then ask it which tools perdure has. `perdure journal` shows what it writes."
    if client.name == "codex":
        return "start Codex and trust the new hooks: /hooks. It runs none before that."
    return f"restart {client.title}. `perdure journal` shows every change that it makes."


def list_clients(command: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.apply or options.file or options.project:
        command.error(f"which CLIENT? One of {', '.join(NAMES)}")
    return _list_clients(options.json)


def _list_clients(as_json: bool) -> int:
    """The clients of this machine, and whether each has Perdure."""
    from perdure.registry.clients import install
    from perdure.registry.errors import RegistryError

    rows = []
    for client, path in found_clients():
        try:
            fields = install.own_fields(client, install.running_words(), os.path.realpath("."))
            action = install.install(client, path, fields, apply=False).action
            state = {"added": "no", "unchanged": "yes"}.get(action, "another entry")
        except RegistryError as error:
            state = f"its file cannot be read: {clean(error.message)}"
        rows.append((client.name, state, path))
    if as_json:
        clients = [{"client": name, "installed": state, "file": path} for name, state, path in rows]
        print(msgspec.json.encode({"clients": clients}).decode())
        return 0
    if not rows:
        print(f"No client was found on this machine. Perdure knows {', '.join(NAMES)}.")
        return 0
    screen = Screen()
    heads = ("client", "has perdure", "file")
    shown = [(name, state, home(clean(path))) for name, state, path in rows]
    print_table([column(heads[n], (row[n] for row in shown)) for n in range(len(heads))], screen)
    first = next((name for name, state, _ in rows if state == "no"), None)
    if first is not None:
        screen.line(f"Next: perdure install {first} shows the change, --apply writes it.")
    return 0


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"perdure {name}", description=f"{description} Without --apply it only shows the change."
    )
    add_client(parser, is_optional=True)
    add_apply(parser)
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")
    return parser


def print_report(report: Report, what: str) -> None:
    if not report.applied:  # after --apply the same diff would say nothing new
        print(report.diff, end="")
    reason = f" ({report.reason})" if report.reason else ""
    print(f"{what} {TOLD[report.action]}{reason}  {report.file}")
    if report.backup:
        print(f"backup  {report.backup}")


def print_next(report: Report, step: str) -> None:
    if report.changed and not report.applied:
        print("nothing is written yet: --apply writes it")
    elif report.changed:
        print(f"Next: {step}")


def refused(error: Exception, prog: str, as_json: bool) -> int:
    """What a registry refused, in words or as JSON, and the exit code."""
    from perdure.registry.errors import RegistryError

    assert isinstance(error, RegistryError)
    if as_json:
        print(msgspec.json.encode(error.shown()).decode())
    else:
        hint = f" ({error.hint})" if error.hint else ""
        print(f"{prog}: {error.message}{hint}", file=sys.stderr)
    return error.exit_code
