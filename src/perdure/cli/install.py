"""`perdure install CLIENT`: Perdure's own entry in a client's config file. `perdure uninstall` takes it out again."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.cli.client_option import NAMES, add_apply, add_client, chosen, found_clients
from perdure.cli.parser import Parser
from perdure.cli.screen import Screen, clean, column, home, print_table
from perdure.protocol.tool_groups import PROFILES

if TYPE_CHECKING:
    from perdure.registry.clients.installing import Report

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


def parser() -> argparse.ArgumentParser:
    found = parser_of("install", "Write an entry that starts Perdure into a client's config file.")
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
    return run(parser(), argv)


def run(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    options = parser.parse_args(argv)
    if options.client is None:
        if options.apply or options.file or options.project:
            parser.error(f"which CLIENT? One of {', '.join(NAMES)}")
        return _list_clients(options.json)
    client, path = chosen(options)

    from perdure.registry.clients import installing
    from perdure.registry.errors import RegistryError

    try:
        if parser.prog.endswith("uninstall"):
            report = installing.uninstall(client, path, apply=options.apply)
        else:
            workspace = os.path.realpath(options.workspace or ".")
            if not os.path.isdir(workspace):
                parser.error(f"--workspace {options.workspace}: not a directory")
            fields = installing.own_fields(
                client,
                installing.running_words(),
                workspace,
                is_chosen=options.workspace is not None,
                profile=options.profile,
            )
            report = installing.install(client, path, fields, apply=options.apply)
    except RegistryError as error:
        return refused(error, parser.prog, options.json)
    _print(report, options.json, client.title)
    return CONFLICT if report.action == "conflict" else 0


def _list_clients(as_json: bool) -> int:
    """The clients of this machine, and whether each has Perdure."""
    from perdure.registry.clients import installing
    from perdure.registry.errors import RegistryError

    rows = []
    for client, path in found_clients():
        try:
            fields = installing.own_fields(client, installing.running_words(), os.path.realpath("."))
            action = installing.install(client, path, fields, apply=False).action
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


def _print(report: Report, as_json: bool, title: str) -> None:
    if as_json:
        print(msgspec.json.encode(report).decode())
        return
    if not report.applied:  # after --apply the same diff would say nothing new
        print(report.diff, end="")
    reason = f" ({report.reason})" if report.reason else ""
    print(f"perdure {TOLD[report.action]}{reason}  {report.file}")
    if report.backup:
        print(f"backup  {report.backup}")
    if report.changed and not report.applied:
        print("nothing is written yet: --apply writes it")
    elif report.changed and report.action in ("added", "updated"):
        print(
            f"Next: restart {title}, then ask it which tools perdure has. `perdure journal` shows what it writes."
        )
    elif report.changed:
        print(f"Next: restart {title}.")


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
