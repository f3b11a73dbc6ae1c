"""`perdure hook`: what a client's own tools do, recorded in the journal or steered to Perdure's tools.

A client runs it as a hook and gives it one JSON object on standard input. It must never keep the client from working:
`journal` fails open (`hook_journal.py`), and `steer` lets everything pass that is not a write in the workspace.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

STEERED = {"Write": "safe_write", "Edit": "edit", "MultiEdit": "edit", "NotebookEdit": "safe_write"}
PATHS = {"NotebookEdit": "notebook_path"}


def parser() -> argparse.ArgumentParser:
    from perdure.cli.parser import new_parser
    from perdure.hooks.relay import CLIENTS

    hook_parser = new_parser(
        "hook",
        "For hooks of a client: record what its own tools change, or steer its write tools to Perdure's.",
    )
    commands = hook_parser.add_subparsers(metavar="COMMAND", required=True, dest="command")
    texts = {
        "journal": "record every change that the client's tools make, with agent, turn and call",
        "steer": "refuse the client's own writes in the workspace, and name the tool to use (PreToolUse)",
        "settings": "print the hooks for the client's settings file",
    }
    for name, text in texts.items():
        command = commands.add_parser(name, help=text, description=f"{text}.")
        if name == "settings":
            command.add_argument("mode", choices=("steer", "journal"), help="steer or journal")
        if name != "steer":
            command.add_argument(
                "--client",
                choices=CLIENTS,
                help="the client (default: claude-code)"
                if name == "settings"
                else "the client that runs the hook (default: guessed from the JSON)",
            )
        if name != "settings":
            command.add_argument(
                "--workspace",
                metavar="DIR",
                help="the workspace (default: the client's project, or the one around its folder)",
            )
        if name == "journal":
            command.add_argument(
                "--state", metavar="URL", help="the state store, for reservations of a whole repository"
            )
        if name == "steer":
            command.add_argument(
                "--server", default="perdure", help="name of Perdure's entry in the client (default: perdure)"
            )
    return hook_parser


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    if options.command == "settings":
        return _print_settings(options.mode, options.client or "claude-code")
    if options.command == "steer":
        return _steer(options.workspace, options.server)
    from perdure.cli.hook_journal import run

    return run(options.client, options.workspace, options.state)


def _print_settings(mode: str, client: str) -> int:
    from json import dumps

    from perdure.cli.install import hook_entries

    if mode == "journal":
        entries, preset = hook_entries(client)
        print(dumps({**preset, "hooks": {event: [entry] for event, entry in entries.items()}}, indent=2))
        return 0
    if client != "claude-code":
        print("perdure hook settings: steer is for claude-code only", file=sys.stderr)
        return 2
    from shlex import join

    from perdure.host.launch import own_command

    hook = {"type": "command", "command": join(own_command("hook", "steer"))}
    print(dumps({"hooks": {"PreToolUse": [{"matcher": "|".join(STEERED), "hooks": [hook]}]}}, indent=2))
    return 0


def _steer(named: str | None, server: str) -> int:
    from perdure.cli.cold_hook import parse_payload
    from perdure.cli.locations import find_project
    from perdure.hooks.relay import MOST_BYTES

    payload = parse_payload(sys.stdin.buffer.read(MOST_BYTES)) if sys.stdin is not None else None
    if payload is None:
        print("perdure hook steer: standard input is not the JSON object of a hook", file=sys.stderr)
        return 1
    path = _written_file(payload)
    project = os.environ.get("CLAUDE_PROJECT_DIR")
    workspace = find_project(named, project, str(payload.get("cwd") or "."))
    if payload.get("hook_event_name") == "PreToolUse" and path is not None and _is_within(path, workspace):
        _refuse(payload["tool_name"], server, os.path.relpath(path, workspace))
    return 0


def _written_file(payload: dict[str, Any]) -> str | None:
    """The absolute path of the file that one of the client's write tools is about to write."""
    tool, tool_input = payload.get("tool_name"), payload.get("tool_input")
    if not isinstance(tool, str) or tool not in STEERED or not isinstance(tool_input, dict):
        return None
    path = tool_input.get(PATHS.get(tool, "file_path"))
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    cwd = payload.get("cwd")
    return os.path.join(cwd if isinstance(cwd, str) else os.getcwd(), path)


def _is_within(path: str, workspace: str) -> bool:
    parent = os.path.realpath(os.path.dirname(path))
    return parent == workspace or parent.startswith(workspace.rstrip(os.sep) + os.sep)


def _refuse(tool: str, server: str, path: str) -> None:
    from json import dumps

    from perdure.protocol.next_step import FILL, call_tool

    name = f"mcp__{server}__{STEERED[tool]}"
    if STEERED[tool] == "edit":
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
