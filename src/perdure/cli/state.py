"""`perdure state`: the shared state from the terminal, in this process, on the store that workers use."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from perdure.cli.options import settle
from perdure.cli.parser import new_parser
from perdure.cli.progress import Progress
from perdure.cli.refusals import exit_code, in_words, tell
from perdure.cli.screen import clean, encodable
from perdure.cli.tool_command import CommandCall
from perdure.model.envelope import ToolError
from perdure.model.tools import View

if TYPE_CHECKING:
    from perdure.surfaces.state.surface import StateSurface

STATUS_CODES: Final = {"not_found": 1, "timeout": 1, "error": 2, "conflict": 3}
SQLITE_MAGIC: Final = b"SQLite format 3\0"
FULL: Final = View("json", "full")
READING: Final = ("get", "list", "history", "export")


def main(argv: list[str]) -> int:
    from perdure.surfaces.state.surface import StateSurface
    from perdure.worker.compose import Settings, open_state

    options = parser().parse_args(argv)
    known = settle(argparse.Namespace(state=options.state), "state")
    settings = Settings(workspaces=known.workspaces, state=known.state, state_limits=known.state_limits)
    surface = StateSurface(lambda: open_state(settings, is_read_only=options.is_read_only))
    run: Callable[[StateSurface, argparse.Namespace], int] = options.run
    try:
        return run(surface, options)
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
    finally:
        surface.close()


def parser() -> argparse.ArgumentParser:
    made = new_parser("state", "The shared state from the terminal.")
    _add_shared(made)
    # After the command as well: one that is left out there must not undo one that was given before it.
    shared = argparse.ArgumentParser(add_help=False)
    _add_shared(shared, default=argparse.SUPPRESS)
    commands = made.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, text: str, run: Callable[..., int]) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text, parents=[shared])
        found.set_defaults(run=run, is_read_only=name in READING)
        return found

    one = command("get", "read a key", _tool("get_state", "key", "at_revision"))
    one.add_argument("key")
    one.add_argument("--at-revision", type=int, metavar="N")
    one = command("set", "write a key", _set)
    one.add_argument("key")
    one.add_argument("value", help="JSON text; - reads it from standard input")
    one.add_argument("--expected-version", type=int, metavar="N", help="0: create only")
    one.add_argument("--ttl-s", type=float, metavar="SECONDS")
    one = command("list", "list keys", _tool("list_state", "prefix", "pattern", "limit", "cursor", "values"))
    one.add_argument("--prefix", metavar="P", help="literal")
    one.add_argument("--pattern", metavar="P", help="LIKE, escape \\")
    one.add_argument("--limit", type=int, metavar="N")
    one.add_argument("--cursor", metavar="C", help="next_cursor of an earlier answer")
    one.add_argument("--values", action="store_true", default=None)
    one = command("delete", "remove a key", _tool("delete_state", "key", "expected_version"))
    one.add_argument("key")
    one.add_argument("--expected-version", type=int, metavar="N")
    one = command("wait", "wait for a change", _tool("state_wait", "key", "prefix", "after", "timeout_s"))
    one.add_argument("key", nargs="?")
    one.add_argument("--prefix", metavar="P")
    one.add_argument("--after", type=int, metavar="REVISION")
    one.add_argument("--timeout-s", type=float, metavar="SECONDS")
    one = command("history", "the versions of a key", _tool("state_history", "key", "limit", "diff"))
    one.add_argument("key")
    one.add_argument("--limit", type=int, metavar="N")
    one.add_argument("--diff", action="store_true", default=None)
    command("export", "every key as JSON lines", _export)
    one = command("import", "read JSON lines, or an agentcheckpoint's file", _import)
    one.add_argument("file", help="- reads JSON lines from standard input")
    one.add_argument("--overwrite", action="store_true", help="also write keys that are there already")
    return made


def _add_shared(parser: argparse.ArgumentParser, **default: Any) -> None:
    parser.add_argument(
        "--state",
        metavar="URL|PATH",
        help="the state store (PERDURE_STATE, CHECKPOINT_DB_PATH)",
        **default,
    )
    parser.add_argument("--namespace", metavar="NAME", help="default", **default)
    shown = "print the whole result as JSON"
    parser.add_argument("--json", action="store_true", help=shown, **default)


def _tool(name: str, *given: str) -> Callable[[StateSurface, argparse.Namespace], int]:
    return lambda surface, options: _use(surface, name, options, {n: getattr(options, n) for n in given})


def _set(surface: StateSurface, options: argparse.Namespace) -> int:
    value = sys.stdin.read() if options.value == "-" else options.value
    names = ("key", "expected_version", "ttl_s")
    return _use(surface, "set_state", options, {"value": value, **{n: getattr(options, n) for n in names}})


def _use(surface: StateSurface, name: str, options: argparse.Namespace, arguments: dict[str, Any]) -> int:
    """Make the call, print what it gives, and return the exit code."""
    from perdure.present.result import success
    from perdure.worker import call
    from perdure.worker.diagnostics import Diagnostics

    tool = next(one for one in surface.tools() if one.spec.name == name)
    given = {**arguments, "namespace": options.namespace}
    result = call.run(
        tool,
        name,
        msgspec.Raw(msgspec.json.encode({n: value for n, value in given.items() if value is not None})),
        default=FULL,
        roots=(),
        context=lambda view: CommandCall(name, view),
        diagnostics=Diagnostics(),
    )
    found = result["structuredContent"]
    if result["isError"] and "status" in found:
        if options.json:
            print(encodable(result["content"][0]["text"]))
        else:
            print(f"perdure state: {clean(found['message'])}", file=sys.stderr)
        return STATUS_CODES.get(found["status"], 1)
    if result["isError"]:
        if options.json:
            print(encodable(result["content"][0]["text"]))
        else:
            print(in_words("state", found), file=sys.stderr)
        return exit_code(found)
    shown = success(found, tool.shape, View("porcelain", "full"))
    print(encodable((result if options.json else shown)["content"][0]["text"]))
    return STATUS_CODES.get(found.get("status", "ok"), 0)


def _export(surface: StateSurface, options: argparse.Namespace) -> int:
    from perdure.surfaces.state.transfer import as_json, exported

    try:
        with Progress(beside=sys.stdout) as progress:
            for number, line in enumerate(exported(surface.service), 1):
                if options.namespace in (None, line.namespace):
                    print(as_json(line))
                progress.at("export", number)
    except ToolError as error:
        return tell("state", error, options.json)
    sys.stdout.flush()
    return 0


def _import(surface: StateSurface, options: argparse.Namespace) -> int:
    import sqlite3

    from perdure.surfaces.state.transfer import checkpoint_rows, imported, json_lines

    call = CommandCall("import", FULL)
    try:
        with open(0 if options.file == "-" else options.file, "rb") as file, Progress() as progress:
            is_database = options.file != "-" and file.peek(16)[:16] == SQLITE_MAGIC
            rows = checkpoint_rows(options.file) if is_database else json_lines(_told(file, progress))
            done = imported(surface.service, rows, call, overwrite=options.overwrite)
    except (OSError, sqlite3.Error) as error:
        print(f"perdure state: {options.file}: {error}", file=sys.stderr)
        return 1
    except ToolError as error:
        return tell("state", error, options.json)
    for one in done["skipped"]:
        where = f"row {one['row']}" + (f" ({one['key']})" if one["key"] else "")
        print(f"skipped {where}: {one['reason']}", file=sys.stderr)
    print(
        json.dumps(done) if options.json else f"imported {done['imported']}  skipped {len(done['skipped'])}"
    )
    return 0


def _told(file: BinaryIO, progress: Progress) -> Iterator[bytes]:
    """The lines of a file, with how much of it was read; of a pipe only how many."""
    facts = os.fstat(file.fileno())
    size = facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    done = 0
    for number, line in enumerate(file, 1):
        yield line
        done += len(line)
        progress.at("import", done if size else number, size)
