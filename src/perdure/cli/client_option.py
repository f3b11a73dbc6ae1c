"""Which client, and which of its files: what the commands that deal with clients share."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.registry.clients.table import Client

# Named here so that help and usage errors load none of the formats; a test compares it with the table.
NAMES = (
    "claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "codex", "continue", "zed", "gemini", "goose",
    "opencode", "cline",
)  # fmt: skip

# The program of a client, where it has one with a name of its own.
PROGRAMS = {
    "claude-code": "claude", "cursor": "cursor", "vscode": "code", "windsurf": "windsurf", "codex": "codex", "zed": "zed",
    "gemini": "gemini", "goose": "goose", "opencode": "opencode",
}  # fmt: skip


class _Choices(tuple[str, ...]):
    """Some versions of argparse compare the empty list of `nargs="*"` with the choices, too."""

    def __contains__(self, value: object) -> bool:
        return value == [] or super().__contains__(value)


def add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", choices=NAMES, help=", ".join(NAMES))
    _add_place(parser)


def add_clients(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "clients",
        metavar="CLIENT",
        choices=_Choices(NAMES),
        nargs="*",
        help=", ".join(NAMES) + "; without one, the clients found on this machine",
    )
    parser.add_argument("--all", action="store_true", help="every client found on this machine")
    _add_place(parser)


def _add_place(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--file", metavar="F", help="the client's config file (default: this user's)")
    where.add_argument("--project", action="store_true", help="use the client's file in this project")


def add_apply(parser: argparse.ArgumentParser) -> None:
    """For files that are not ours: shown by default, written only when asked."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--apply", action="store_true", help="write the file; its old content is backed up")
    what.add_argument("--dry-run", action="store_true", help="only show the change (the default)")


def chosen(options: argparse.Namespace) -> tuple[Client, str]:
    """The client and its file. Exits with 2 where there is none."""
    from perdure.registry.clients.table import CLIENTS

    return _file_of(CLIENTS[options.client], options)


def chosen_clients(command: argparse.ArgumentParser, options: argparse.Namespace) -> list[tuple[Client, str]]:
    """The named clients, or all of this machine, each with its file. Exits with 2 where that cannot be meant."""
    from perdure.registry.clients import locations
    from perdure.registry.clients.table import CLIENTS

    if options.all and options.clients:
        command.error("--all, or the names of clients")
    names = dict.fromkeys(options.clients)
    if options.all:
        names = dict.fromkeys(client.name for client, _ in found_clients())
        if options.project:
            names = {name: None for name in names if locations.project_file(name, os.getcwd())}
    if options.file is not None and len(names) > 1:
        command.error("--file is the file of one client")
    return [_file_of(CLIENTS[name], options) for name in names]


def _file_of(client: Client, options: argparse.Namespace) -> tuple[Client, str]:
    from perdure.registry.clients import locations

    if options.file is not None:
        return client, os.path.expanduser(options.file)
    if not options.project:
        return client, locations.user_file(client.name, os.environ)
    path = locations.project_file(client.name, os.getcwd())
    if path is None:
        print(f"perdure: {client.title} has no file of a project", file=sys.stderr)
        raise SystemExit(2)
    return client, path


def settings_file_of(client: Client, options: argparse.Namespace) -> str | None:
    """The file that holds the client's hooks and permissions; None where it has none. `--file` names it only for a client
    that keeps them beside its servers."""
    from perdure.registry.clients import locations

    folder = os.getcwd()
    if options.project:
        path = locations.project_hooks_file(client.name, folder)
        server_path = locations.project_file(client.name, folder)
    else:
        path = locations.hooks_file(client.name, os.environ)
        server_path = locations.user_file(client.name, os.environ)
    if options.file is None:
        return path
    return os.path.expanduser(options.file) if path == server_path else None


def found_clients() -> list[tuple[Client, str]]:
    """The clients of this machine, each with its file: the file is there, or its folder, or the program."""
    from shutil import which

    from perdure.registry.clients import locations
    from perdure.registry.clients.table import CLIENTS

    found = []
    shared = {os.path.expanduser("~"), os.environ.get("CLAUDE_CONFIG_DIR", "")}
    for name, client in CLIENTS.items():
        path = locations.user_file(name, os.environ)
        folder = os.path.dirname(path)
        has_folder = folder not in shared and os.path.isdir(folder)
        if os.path.exists(path) or has_folder or (name in PROGRAMS and which(PROGRAMS[name])):
            found.append((client, path))
    return found
