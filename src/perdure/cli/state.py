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
from perdure.cli.output import (
    Progress,
    Screen,
    age,
    clean,
    column,
    encodable,
    error_text,
    exit_code,
    full_time,
    microseconds_of,
    print_error,
    print_json,
    print_table,
    truncate,
)
from perdure.cli.parser import new_parser
from perdure.cli.tool_command import CommandCall
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_tool
from perdure.protocol.tools import View
from perdure.storage.errors import StorageError
from perdure.storage.state_values import BadValue, parsed

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
    made = new_parser(
        "state",
        "The shared state from the terminal: one store for all projects of this user, unless --state names another.",
    )
    _add_shared(made)
    # After the command as well: one that is left out there must not undo one that was given before it.
    shared = argparse.ArgumentParser(add_help=False)
    _add_shared(shared, default=argparse.SUPPRESS)
    commands = made.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, text: str, run: Callable[..., int]) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text, parents=[shared])
        found.set_defaults(run=run, command=name, is_read_only=name in READING)
        return found

    one = command(
        "get", "print the value of a key", _tool("get_state", "key", "at_revision", show=_show_value)
    )
    one.add_argument("key")
    one.add_argument("--at-revision", type=int, metavar="N", help="the value at this revision of the store")
    one.add_argument("-v", "--verbose", action="store_true", help="also print version, revision and times")
    one = command("set", "write a key", _set)
    one.add_argument("key")
    one.add_argument("value", help="JSON; - reads it from standard input")
    one.add_argument(
        "--raw", action="store_true", help="VALUE is a text, not JSON: store it as a JSON string"
    )
    one.add_argument("--expected-version", type=int, metavar="N", help="0: create only")
    one.add_argument("--ttl-s", type=float, metavar="SECONDS")
    one = command("list", "list keys", _list)
    one.add_argument("--prefix", metavar="P", help="only keys with this prefix")
    one.add_argument("--pattern", metavar="P", help="SQL LIKE: %% any text, _ one character; escape \\")
    one.add_argument("--limit", type=int, metavar="N")
    one.add_argument("--cursor", metavar="C", help="next_cursor of an earlier answer")
    one.add_argument("--values", action="store_true", default=None)
    one = command(
        "delete",
        "remove a key; exit code 1 where there is none",
        _tool("delete_state", "key", "expected_version", show=_show_deleted),
    )
    one.add_argument("key")
    one.add_argument("--expected-version", type=int, metavar="N")
    one = command("wait", "wait for a change, and print the new value", _wait)
    one.add_argument("key", nargs="?")
    one.add_argument(
        "--prefix", metavar="P", help="wait for any key with this prefix; prints the changed keys"
    )
    one.add_argument(
        "--after", type=int, metavar="REVISION", help="only changes after this revision (default: the newest)"
    )
    one.add_argument(
        "--timeout-s", type=float, metavar="SECONDS", help="seconds to wait, then exit code 1 (default: 30)"
    )
    one = command(
        "history",
        "the versions of a key, newest last",
        _tool("state_history", "key", "limit", "diff", show=_show_history),
    )
    one.add_argument("key")
    one.add_argument("--limit", type=int, metavar="N")
    one.add_argument("--diff", action="store_true", default=None)
    command("export", "every key as JSON lines", _export)
    one = command("import", "import JSON lines, or the database file of agentcheckpoint", _import)
    one.add_argument("file", help="- reads JSON lines from standard input")
    one.add_argument("--overwrite", action="store_true", help="also overwrite keys that exist")
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


Show = Callable[[dict[str, Any], argparse.Namespace], None]


def _tool(
    name: str, *given: str, show: Show | None = None
) -> Callable[[StateSurface, argparse.Namespace], int]:
    return lambda surface, options: _use(
        surface, name, options, {n: getattr(options, n) for n in given}, show
    )


def _set(surface: StateSurface, options: argparse.Namespace) -> int:
    value = sys.stdin.read() if options.value == "-" else options.value
    if options.raw:
        value = json.dumps(value, ensure_ascii=False)
    elif (problem := _problem(value)) is not None:
        return print_error("state set", problem, options.json)
    names = ("key", "expected_version", "ttl_s")
    arguments = {"value": value, **{n: getattr(options, n) for n in names}}
    return _use(surface, "set_state", options, arguments, _show_written)


def _problem(value: str) -> ToolError | None:
    try:
        parsed(value)
    except BadValue as error:
        shown = clean(truncate(value.strip(), 40)) or "nothing"
        return refuse(
            "invalid_input",
            "bad_json",
            f"not JSON: {shown} ({error}); a text needs quotes, such as '\"hello\"', or --raw stores VALUE as a text.",
            next_step=call_tool("set_state", key=FILL, value=FILL),
        )
    return None


def _wait(surface: StateSurface, options: argparse.Namespace) -> int:
    arguments = {n: getattr(options, n) for n in ("key", "prefix", "after", "timeout_s")}

    def show(found: dict[str, Any], _: argparse.Namespace) -> None:
        if found["status"] == "timeout":
            print(
                f"perdure state wait: no change of {clean(options.prefix or options.key)} in time",
                file=sys.stderr,
            )
        elif options.prefix is not None:
            for change in found["changes"]:
                print(clean(change["key"]))
        else:
            options.at_revision, options.verbose = None, False
            _use(surface, "get_state", options, {"key": options.key}, _show_value)

    return _use(surface, "state_wait", options, arguments, show)


def _use(
    surface: StateSurface,
    name: str,
    options: argparse.Namespace,
    arguments: dict[str, Any],
    show: Show | None = None,
) -> int:
    """Make the call, print what it gives, and return the exit code. `show` prints a success its own way."""
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
    is_refused = "context" in found
    code = exit_code(found) if is_refused else STATUS_CODES.get(found.get("status", "ok"), 0)
    code = code or (1 if found.get("deleted") is False and name == "delete_state" else 0)
    if options.json:
        print_json(found if is_refused else _with_values(found))
    elif is_refused:
        print(error_text("state", found), file=sys.stderr)
    elif code and found.get("status") != "timeout":
        print(f"perdure state {options.command}: {_failure(found)}", file=sys.stderr)
    elif show is not None:
        show(found, options)
    else:
        print(encodable(success(found, tool.shape, View("porcelain", "full"))["content"][0]["text"]))
    return code


def _failure(found: dict[str, Any]) -> str:
    key = clean(found.get("key", ""))
    if found["status"] == "not_found" or found.get("deleted") is False:
        return f"no key {key}"
    if found["status"] == "conflict" and found.get("version") and "Version mismatch" in found["message"]:
        return f"not written: {key} is at version {found['version']} by now (perdure state get {key} -v)"
    return clean(found.get("message", found["status"]))


def _with_values(found: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON, not as a text that holds JSON; byte for byte as stored."""

    def decoded(entry: dict[str, Any]) -> dict[str, Any]:
        value = entry.get("value")
        return {**entry, "value": msgspec.Raw(value.encode())} if isinstance(value, str) else entry

    return decoded(
        {
            name: [decoded(one) for one in value] if name in ("keys", "versions") else value
            for name, value in found.items()
        }
    )


# --- showing ------------------------------------------------------------------------------------------------


def _show_value(found: dict[str, Any], options: argparse.Namespace) -> None:
    """The value alone: for people with line breaks, for programs as it is stored."""
    if options.verbose:
        for name in ("key", "version", "revision", "updated_at", "expires_at"):
            if name in found:
                print(f"{name}: {clean(found[name])}")
    if not sys.stdout.isatty():
        print(encodable(found["value"]))
        return
    for line in msgspec.json.format(found["value"], indent=2).splitlines():
        print(encodable(clean(line)))


def _show_written(found: dict[str, Any], options: argparse.Namespace) -> None:
    print(f"set {clean(found['key'])}  version {found['version']}  revision {found['revision']}")


def _show_deleted(found: dict[str, Any], options: argparse.Namespace) -> None:
    print(f"deleted {clean(found['key'])}")


def _list(surface: StateSurface, options: argparse.Namespace) -> int:
    arguments = {n: getattr(options, n) for n in ("prefix", "pattern", "limit", "cursor", "values")}

    def show(found: dict[str, Any], _: argparse.Namespace) -> None:
        space = clean(options.namespace or "default")
        if found["keys"]:
            _show_keys(found)
        elif options.prefix or options.pattern or options.cursor:
            print(f"No key in namespace {space} matches.")
        else:
            print(
                f"No keys in namespace {space}. Agents write them with set_state, people with perdure state set."
            )

    return _use(surface, "list_state", options, arguments, show)


def _show_keys(found: dict[str, Any]) -> None:
    screen = Screen()
    columns = [
        column("key", (clean(one["key"]) for one in found["keys"])),
        column("version", (str(one["version"]) for one in found["keys"]), right=True),
        column("updated", (_when(one["updated_at"], screen) for one in found["keys"])),
    ]
    if "value" in found["keys"][0]:
        columns.append(column("value", (clean(one["value"]) for one in found["keys"])))
    print_table(columns, screen)
    if "next_cursor" in found:
        print(f"more: --cursor {found['next_cursor']}")


def _show_history(found: dict[str, Any], options: argparse.Namespace) -> None:
    screen, rows = Screen(), found["versions"][::-1]
    shown = "diff" if options.diff else "value"
    columns = [
        column("version", (str(one["version"]) for one in rows), right=True),
        column("updated", (_when(one["updated_at"], screen) for one in rows)),
        column("client", (clean(one["client"]) for one in rows)),
        column(shown, ("(deleted)" if one["deleted"] else clean(one[shown]) for one in rows)),
    ]
    print_table(columns, screen)


def _when(text: str, screen: Screen) -> str:
    ts = microseconds_of(text)
    return age(ts) if screen.is_terminal else full_time(ts)


# --- export and import --------------------------------------------------------------------------------------


def _export(surface: StateSurface, options: argparse.Namespace) -> int:
    from perdure.surfaces.state.transfer import as_json, exported

    try:
        with Progress(beside=sys.stdout) as progress:
            for number, line in enumerate(exported(surface.service), 1):
                if options.namespace in (None, line.namespace):
                    print(as_json(line))
                progress.at("export", number)
    except (ToolError, StorageError) as error:
        return print_error("state", error, options.json)
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
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        print(f"perdure state import: {options.file}: {reason}", file=sys.stderr)
        return 1
    except (ToolError, StorageError) as error:
        return print_error("state", error, options.json)
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
