"""A command that is one call of a tool of the write surface, made in this process on the workspace itself."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.cli.options import add_workspace, settle
from perdure.cli.parser import new_parser
from perdure.cli.refusals import exit_code, in_words
from perdure.cli.screen import encodable
from perdure.host import presence
from perdure.host.settings import Settings
from perdure.model.tools import View
from perdure.storage.workspace_store import find

if TYPE_CHECKING:
    from perdure.surfaces.write.service import WriteService
    from perdure.worker.compose import Settings as WorkerSettings

CLIENT: Final = "perdure-cli"
# The command that makes a call, where it is not called as the tool.
COMMANDS: Final = {"journal_tail": "journal", "handoff_read": "handoff", "handoff_write": "handoff"}


class CommandCall:
    """The call as its handler sees it (`perdure.surfaces.port.Call`)."""

    invocation_key = None
    age_s = 0.0

    def __init__(self, tool: str, view: View) -> None:
        self.client = CLIENT
        self.tool = tool
        self.view = view
        self.session = f"cli-{os.getpid()}"
        self.cancelled = threading.Event()

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass


def parser_for(name: str, description: str) -> argparse.ArgumentParser:
    parser = new_parser(name, description)
    add_workspace(parser)
    return parser


def worker_settings(options: argparse.Namespace, command: str) -> WorkerSettings:
    """The workspace as a worker would open it."""
    return write_settings(settle(argparse.Namespace(workspace=options.workspace), command))


def write_settings(known: Settings) -> WorkerSettings:
    from perdure.worker.compose import Settings as WorkerSettings

    return WorkerSettings(
        workspaces=known.workspaces,
        surfaces=("write",),
        policy=known.policy,
        workspace_policy=known.workspace_policy,
        user_policy=known.user_policy,
        durability=known.durability,
        store=known.store,
        keep=known.keep,
        log_level=known.log_level,
    )


def open_for_reading(settings: WorkerSettings) -> WriteService:
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


Show = Callable[[dict[str, Any]], None]


def run_tool(
    options: argparse.Namespace, tool: str, arguments: dict[str, Any], show: Show | None = None
) -> int:
    """Make the call, print what it gives, and return the exit code. `show` prints a success its own way."""
    from perdure.present.result import success
    from perdure.surfaces.write.surface import WriteSurface
    from perdure.worker import call
    from perdure.worker.compose import open_write
    from perdure.worker.diagnostics import Diagnostics

    settings = worker_settings(options, COMMANDS.get(tool, tool))
    surface = WriteSurface(lambda: (open_for_reading if declared.spec.read_only else open_write)(settings))
    declared = next(one for one in surface.tools() if one.spec.name == tool)
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        result = call.run(
            declared,
            tool,
            msgspec.Raw(msgspec.json.encode(given)),
            default=View("json", "full"),
            roots=settings.workspaces,
            context=lambda view: CommandCall(tool, view),
            diagnostics=Diagnostics(settings.log_level),
        )
    finally:
        surface.close()
    found = result["structuredContent"]
    is_error = bool(result.get("isError"))
    if options.json:
        print(encodable(result["content"][0]["text"]))
    elif is_error:
        print(in_words(COMMANDS.get(tool, tool), found), file=sys.stderr)
    elif show is not None:
        show(found)
    else:
        print(success(found, declared.shape, View("porcelain", "full"))["content"][0]["text"])
    if is_error:
        return exit_code(found)
    return 3 if found.get("conflicts") else 0
