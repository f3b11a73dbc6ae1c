"""`perdure hook`: what a client's own write tools do, steered to Perdure's or taken into its journal.

A client runs it as a hook and gives it one JSON object on standard input, as Claude Code does for `PreToolUse` and
`PostToolUse`. It must never keep the client from working: what is not about a file of the workspace is let pass
without a word, and a failure is said on standard error with exit code 1, which blocks nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from json import dumps, loads
from typing import Any

import msgspec

from perdure.cli.options import settle
from perdure.cli.parser import new_parser
from perdure.cli.refusals import in_words
from perdure.cli.tool_command import CommandCall, write_settings
from perdure.cli.workspace import find_workspace
from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError
from perdure.protocol.next_step import FILL, call_tool
from perdure.protocol.tools import View
from perdure.storage.errors import StorageError

MOST_BYTES = 64 * 1024 * 1024
MATCHER = "Write|Edit|MultiEdit|NotebookEdit"
PATHS = {"Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
INSTEAD = {"Write": "safe_write", "Edit": "edit", "MultiEdit": "edit", "NotebookEdit": "safe_write"}
EVENTS = {"steer": ("PreToolUse",), "journal": ("PreToolUse", "PostToolUse")}


def parser() -> argparse.ArgumentParser:
    found = new_parser(
        "hook",
        "For hooks of a client: steer its own write tools to Perdure's, or take what they wrote into the journal.",
    )
    commands = found.add_subparsers(metavar="COMMAND", required=True, dest="command")
    texts = {
        "steer": "refuse the client's own writes in the workspace, and name the tool to use (PreToolUse)",
        "journal": "allow the client's own writes, and record them in the journal (PreToolUse and PostToolUse)",
        "settings": "print the hooks for the client's settings file",
    }
    for name, text in texts.items():
        one = commands.add_parser(name, help=text, description=f"{text}.")
        if name == "settings":
            one.add_argument("mode", choices=tuple(EVENTS), help="steer or journal")
            continue
        one.add_argument(
            "--workspace",
            action="append",
            metavar="DIR",
            help="the workspace (default: the client's project, CLAUDE_PROJECT_DIR)",
        )
        one.add_argument(
            "--server", default="perdure", help="name of Perdure's entry in the client (default: perdure)"
        )
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    if options.command == "settings":
        return _print_settings(options.mode)
    asked = _asked(options.command)
    if asked is None:
        return 1
    event, path = asked.get("hook_event_name"), _path(asked)
    workspace = _workspace(options.workspace, asked)
    if event not in EVENTS[options.command] or path is None or not _is_within(path, workspace):
        return 0
    if options.command == "steer":
        return _steer(asked["tool_name"], options.server, os.path.relpath(path, workspace))
    return _journal(asked, path, workspace)


def _asked(command: str) -> dict[str, Any] | None:
    try:
        found = loads(sys.stdin.buffer.read(MOST_BYTES))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        print(f"perdure hook {command}: standard input is not the JSON object of a hook", file=sys.stderr)
        return None
    return found


def _path(asked: dict[str, Any]) -> str | None:
    """The absolute path of the file; None where the tool writes none."""
    given = asked.get("tool_input")
    named = given.get(PATHS.get(str(asked.get("tool_name")), "")) if isinstance(given, dict) else None
    if not isinstance(named, str) or not named or "\0" in named:
        return None
    base = asked.get("cwd")
    return os.path.join(base if isinstance(base, str) else os.getcwd(), named)


def _workspace(given: list[str] | None, asked: dict[str, Any]) -> str:
    """The client's project, where its server was started; else the workspace around the folder that it is in now."""
    named = given[0] if given else os.environ.get("PERDURE_WORKSPACE") or os.environ.get("CLAUDE_PROJECT_DIR")
    return os.path.realpath(named) if named else find_workspace(str(asked.get("cwd") or "."))


def _is_within(path: str, workspace: str) -> bool:
    parent = os.path.realpath(os.path.dirname(path))
    return parent == workspace or parent.startswith(workspace.rstrip(os.sep) + os.sep)


def _steer(tool: str, server: str, path: str) -> int:
    name = f"mcp__{server}__{INSTEAD[tool]}"
    if INSTEAD[tool] == "edit":
        step = call_tool(name, path=path, edits=FILL)
    else:
        step = call_tool(
            name, path=path, **({"mode": "overwrite"} if os.path.exists(path) else {}), content=FILL
        )
    reason = f"not written: files of this project are written with {name}, which journals every version.\nnext: {step}"
    decision = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": reason,
    }
    print(dumps({"hookSpecificOutput": decision}))
    return 0


def _journal(asked: dict[str, Any], path: str, workspace: str) -> int:
    """Before a write: what stands there is kept. After it: what was written has its row."""
    from perdure.surfaces.write.external_changes import adopt
    from perdure.worker.compose import open_write

    if asked["hook_event_name"] == "PreToolUse" and not os.path.lexists(path):
        return 0
    call = CommandCall("hook", View("json", "full"))
    call.client = _client(asked)
    call.session = str(asked.get("session_id") or call.session)[:200]
    try:
        service = open_write(write_settings(settle(argparse.Namespace(workspace=[workspace]), "hook")))
        try:
            adopt(service, call, path, _before(asked))
        finally:
            service.close()
    except (ToolError, StorageError) as error:
        print(in_words("hook", msgspec.to_builtins(tool_error(error).envelope)), file=sys.stderr)
        return 1
    except OSError as error:
        print(f"perdure hook: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _client(asked: dict[str, Any]) -> str:
    """Before the write the change was somebody else's."""
    return "claude-code" if asked["hook_event_name"] == "PostToolUse" else "another program"


def _before(asked: dict[str, Any]) -> Any:
    """What the tool says was there: its whole text, nothing, or not a word."""
    said = asked.get("tool_response")
    if not isinstance(said, dict):
        return "unknown"
    if isinstance(original := said.get("originalFile"), str):
        return original.encode("utf-8", "replace")
    return None if said.get("type") == "create" else "unknown"


def _print_settings(mode: str) -> int:
    from perdure.host.compose import own_command

    command = shlex.join([*own_command("hook", mode)])
    entry = [{"matcher": MATCHER, "hooks": [{"type": "command", "command": command}]}]
    print(dumps({"hooks": dict.fromkeys(EVENTS[mode], entry)}, indent=2))
    return 0
