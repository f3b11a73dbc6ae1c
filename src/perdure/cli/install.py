"""`perdure install CLIENT`: Perdure's own entry in a client's config file. `perdure uninstall` takes it out again."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.cli.client_option import add_apply, add_client, chosen
from perdure.cli.parser import Parser
from perdure.model.tool_groups import PROFILES

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
    _print(report, options.json)
    return CONFLICT if report.action == "conflict" else 0


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"perdure {name}", description=f"{description} Without --apply it only shows the change."
    )
    add_client(parser)
    add_apply(parser)
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")
    return parser


def _print(report: Report, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(report).decode())
        return
    print(report.diff, end="")
    reason = f" ({report.reason})" if report.reason else ""
    print(f"perdure {TOLD[report.action]}{reason}  {report.file}")
    if report.backup:
        print(f"backup  {report.backup}")
    if report.changed and not report.applied:
        print("nothing is written yet: --apply writes it")


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
