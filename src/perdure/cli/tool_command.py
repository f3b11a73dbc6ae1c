"""A command that is one call of a tool of the write surface, made in this process on the workspace itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.cli.locations import from_here
from perdure.cli.options import add_workspace, settle
from perdure.cli.output import (
    Progress,
    Screen,
    clean,
    encodable,
    error_text,
    exit_code,
    home,
    print_error,
    print_json,
)
from perdure.cli.parser import new_parser
from perdure.cli.worker_settings import write_settings
from perdure.host import presence
from perdure.platform.process_tree import client_process
from perdure.protocol.calls import LocalCall
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_tool
from perdure.protocol.tools import View
from perdure.storage.errors import StorageError
from perdure.storage.workspace_store import find

if TYPE_CHECKING:
    from perdure.surfaces.port import Tool
    from perdure.worker.compose import Settings as WorkerSettings
    from perdure.workspace.workspace import Workspace

CLIENT: Final = "perdure-cli"
# The command that makes a call, where it is not called as the tool.
COMMANDS: Final = {"journal_tail": "journal", "handoff_read": "handoff", "handoff_write": "handoff"}


class CommandCall(LocalCall):
    """The call of a command, with a progress bar."""

    def __init__(self, tool: str, view: View, bar: Progress | None = None, *, force: bool = False) -> None:
        super().__init__(CLIENT, f"cli-{os.getpid()}", tool=tool, view=view)
        self.force = force
        self.process = client_process()
        self._bar = bar

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        if self._bar is not None:
            self._bar.at("files", int(value), int(total or 0))


def parser_for(name: str, description: str, *, has_json: bool = True) -> argparse.ArgumentParser:
    parser = new_parser(name, description)
    add_workspace(parser, has_json=has_json)
    return parser


def worker_settings(options: argparse.Namespace, command: str) -> WorkerSettings:
    """The workspace as a worker would open it. One that was found above the current folder is named."""
    settings = write_settings(settle(argparse.Namespace(workspace=options.workspace), command))
    workspace = settings.workspaces[0]
    is_named = bool(
        options.workspace or os.environ.get("PERDURE_WORKSPACE") or os.environ.get("RW_WORKSPACE")
    )
    if not (is_named or options.json or workspace == os.path.realpath(os.getcwd())):
        screen = Screen(sys.stderr)
        screen.line(f"workspace {home(clean(workspace))}", "dim")
    return settings


def open_for_reading(settings: WorkerSettings) -> Workspace:
    """The workspace for a command that only reads: nothing is created and no lock is taken.

    A journal that has to be migrated, or recovered after a crash, is opened as a worker opens it. Open intents beside
    a running host are not a crash: the host settles them.
    """
    from perdure.storage.sqlite.read_only import journal_condition
    from perdure.worker.compose import open_write

    workspace = settings.workspaces[0]
    place = find(workspace, settings.store)
    condition = journal_condition(place.journal)
    needs_migration = not condition.get("is_current", True)
    has_host = any(workspace in host.workspaces for host in presence.running())
    needs_recovery = condition.get("has_intents", False) and not has_host
    is_writable = os.access(place.folder, os.W_OK)
    return open_write(settings, is_read_only=not ((needs_migration or needs_recovery) and is_writable))


def read_journal(
    options: argparse.Namespace, command: str, run: Callable[[argparse.Namespace, Workspace], int]
) -> int:
    """Run a command that only reads, and tell what it raises."""
    try:
        settings = worker_settings(options, command)
        if not has_store(settings):
            raise refuse("not_found", "no_changes", no_changes(settings), next_step=call_tool("journal_tail"))
        service = open_for_reading(settings)
        try:
            return run(options, service)
        finally:
            service.close()
    except (ToolError, StorageError) as error:
        return print_error(command, error, options.json)


def has_store(settings: WorkerSettings) -> bool:
    return os.path.lexists(find(settings.workspaces[0], settings.store).journal)


def no_changes(settings: WorkerSettings) -> str:
    """What to say of a workspace without a store."""
    place = home(clean(settings.workspaces[0]))
    return f"No changes yet in {place}. Agents' writes through Perdure appear here (perdure install CLIENT)."


Show = Callable[[dict[str, Any], "WorkerSettings"], None]
# Arguments that a person types as paths, relative to the current folder.
_PATHS: Final = ("path", "filter_path")


def run_tool(
    options: argparse.Namespace,
    tool: str,
    arguments: dict[str, Any],
    show: Show | None = None,
    as_json: Callable[[dict[str, Any], WorkerSettings], dict[str, Any]] | None = None,
) -> int:
    """Make the call, print what it gives, and return the exit code. `show` prints a success its own way, `as_json`
    gives the object that `--json` prints. A person at a terminal is asked before a reservation is overridden."""
    from perdure.present.result import success
    from perdure.surfaces.write.surface import WriteSurface
    from perdure.worker.compose import open_write

    command = COMMANDS.get(tool, tool)
    settings = worker_settings(options, command)
    if tool in ("undo", "rewind", "restore", "history", "release") and not has_store(settings):
        refusal = refuse("not_found", "no_changes", no_changes(settings), next_step=call_tool("journal_tail"))
        return print_error(command, refusal, options.json)
    surface = WriteSurface(lambda: (open_for_reading if declared.spec.read_only else open_write)(settings))
    declared = next(one for one in surface.tools() if one.spec.name == tool)
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in _PATHS:
        if name in given:
            given[name] = from_here(given[name], settings.workspaces[0])
    if "paths" in given:
        given["paths"] = [from_here(path, settings.workspaces[0]) for path in given["paths"]]
    try:
        result = _call(declared, given, settings, force=getattr(options, "force", False))
        if not options.json and _holders(result) and _agrees(command, _holders(result)):
            result = _call(declared, given, settings, force=True)
    finally:
        surface.close()
    found = result["structuredContent"]
    is_error = bool(result.get("isError"))
    if options.json and as_json is not None:
        print_json(as_json(found, settings))
    elif options.json:
        print(encodable(result["content"][0]["text"]))
    elif is_error:
        print(error_text(command, found), file=sys.stderr)
    elif show is not None:
        show(found, settings)
    else:
        print(success(found, declared.shape, View("porcelain", "concise"))["content"][0]["text"])
    if is_error:
        return exit_code(found)
    return 3 if found.get("conflicts") or found.get("status") == "held" else 0


def _call(declared: Tool, given: dict[str, Any], settings: WorkerSettings, *, force: bool) -> dict[str, Any]:
    from perdure.worker import call
    from perdure.worker.diagnostics import Diagnostics

    tool = declared.spec.name
    with Progress(beside=sys.stdout) as bar:
        return call.run(
            declared,
            tool,
            msgspec.Raw(msgspec.json.encode(given)),
            default=View("json", "full"),
            roots=settings.workspaces,
            context=lambda view: CommandCall(tool, view, bar, force=force),
            diagnostics=Diagnostics(settings.log_level),
        )


def _holders(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The reservations of others that a call was refused for."""
    found = result["structuredContent"]
    if found.get("status") == "held":
        return list(found["holders"])
    is_reserved = result.get("isError") and found["context"].get("reason") == "reserved"
    return list(found["context"]["holders"]) if is_reserved else []


def _agrees(command: str, holders: list[dict[str, Any]]) -> bool:
    """Ask a person at a terminal."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    for holder in holders:
        why = f": {clean(holder['reason'])}" if holder["reason"] else ""
        print(f"{clean(holder['path'])} is reserved by {clean(holder['client'])}{why}", file=sys.stderr)
    print(f"perdure {command} anyway? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="override the reservations of others; recorded")
