"""The `perdure` command: finds the command that was named and loads nothing else."""

from __future__ import annotations

import os
import sys
from importlib import import_module

USAGE_ERROR = 2
UNAVAILABLE = 4
INTERRUPTED = 130

# name: (module, one line of help); modules are loaded only when their command is used.
COMMANDS = {
    "run": ("perdure.cli.run", "the MCP server on stdio, as a client starts it"),
    "serve": ("perdure.cli.serve", "streamable HTTP for many clients at /mcp"),
    "attach": ("perdure.cli.attach", "stdio for a client, connected to a running perdure serve"),
    "wrap": ("perdure.cli.wrap", "make one stdio MCP server durable: wrap -- COMMAND ARGS…"),
    "worker": ("perdure.cli.worker", "the built-in surfaces as a plain stdio MCP server, no host"),
    "demo": ("perdure.cli.demo", "a tour in a few seconds: a write, kill -9, a secret, an undo"),
    "status": ("perdure.cli.status", "hosts, journal, shared state and registry on one screen"),
    "top": ("perdure.cli.top", "what every session does, live"),
    "doctor": ("perdure.cli.doctor", "find what is wrong, say what to do, fix what is safe"),
    "timeline": ("perdure.cli.changes.timeline", "what agents did in a workspace, by turn and tool call"),
    "journal": ("perdure.cli.changes.journal", "the latest changes of a workspace, file by file"),
    "history": ("perdure.cli.changes.history", "the versions of a file"),
    "diff": ("perdure.cli.changes.diff", "what changed between two versions of a file"),
    "show": ("perdure.cli.changes.show", "one change: its author, its time and its diff"),
    "cat": ("perdure.cli.changes.cat", "a version of a file, byte for byte: perdure cat PATH@ID"),
    "blame": ("perdure.cli.changes.blame", "for each line of a file the change that brought it"),
    "undo": ("perdure.cli.changes.undo", "take changes back"),
    "rewind": ("perdure.cli.changes.rewind", "take back everything from a change on"),
    "restore": ("perdure.cli.changes.restore", "bring a version of a file back"),
    "reserve": ("perdure.cli.reserve", "keep other agents from writing paths"),
    "release": ("perdure.cli.release", "release a reservation"),
    "reservations": ("perdure.cli.reservations", "which paths are reserved, by whom and until when"),
    "guard": ("perdure.cli.guard", "check git commits against reservations"),
    "state": ("perdure.cli.state", "shared state: get, set, list, delete, wait, history …"),
    "handoff": ("perdure.cli.handoff", "the handoff that one agent leaves to the next: show, write"),
    "trust": ("perdure.cli.trust", "let a workspace's settings files start servers"),
    "registry": ("perdure.cli.registry", "the servers that you use: list, install, enable, search …"),
    "hook": ("perdure.cli.hook", "hooks for a client's own tools: journal, steer"),
    "install": ("perdure.cli.install", "add Perdure to a client's config file"),
    "uninstall": ("perdure.cli.uninstall", "remove Perdure from a client's config file"),
    "call": ("perdure.cli.call", "call one tool: perdure call TOOL KEY=VALUE…"),
    "tools": ("perdure.cli.tools", "the tools that a model sees, built in and mounted"),
    "verify": ("perdure.cli.changes.verify", "check journal, contents and files against each other"),
    "du": ("perdure.cli.du", "how much disk space Perdure uses, and for what"),
    "gc": ("perdure.cli.gc", "remove what the settings no longer keep"),
    "reload": ("perdure.cli.reload", "replace servers and hosts by the installed version"),
    "completion": ("perdure.cli.completion", "completion for bash, zsh and fish"),
}

# Child processes of the host, no commands for people. Their `main` takes no arguments.
CHILDREN = {"bridge": "perdure.bridge.relay", "export-telemetry": "perdure.telemetry.otlp_process"}


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    _replace_unencodable()
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has closed its end. What is still buffered must not be written again at exit.
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except PermissionError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"perdure: {place}{error.strerror}", file=sys.stderr)
        return UNAVAILABLE


def _replace_unencodable() -> None:
    """A character that the terminal's encoding lacks is shown as `?`, and raises nothing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _run(words: list[str]) -> int:
    if words[:3] == ["hook", "journal", "--client"] and len(words) == 4:
        from perdure.cli.hook_journal import run  # the command line of a client's hook: no parser is loaded
        from perdure.hooks.relay import CLIENTS

        if words[3] in CLIENTS:
            os._exit(run(words[3], None))  # interpreter shutdown is a tenth of a hook's time
    is_help = bool(words) and words[0] in ("-h", "--help", "help")
    if is_help and len(words) > 1:  # `perdure help state set` is `perdure state set --help`
        return _run([*words[1:], "--help"])
    if is_help or (not words and sys.stdin is not None and sys.stdin.isatty()):
        print(usage())
        return 0
    if words and words[0] in ("-V", "--version"):
        from perdure import __version__

        print(f"perdure {__version__}")
        return 0
    name, rest = ("run", words) if not words or words[0].startswith("-") else (words[0], words[1:])
    if name in CHILDREN:
        return int(import_module(CHILDREN[name]).main())
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, 3, 0.5)
        also = f" Similar: {', '.join(near[1:])}." if near[1:] else ""
        hint = f"did you mean {near[0]}?{also}" if near else "`perdure help` lists the commands"
        print(f"perdure: no command {name}; {hint}", file=sys.stderr)
        return USAGE_ERROR
    return int(import_module(COMMANDS[name][0]).main(rest))


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {help_text}" for name, (_, help_text) in COMMANDS.items()]
    return (
        "usage: perdure [COMMAND] [OPTIONS]\n\n"
        "One MCP server that a coding agent can trust with its work.\n\n"
        + "\n".join(lines)
        + "\n\n`perdure help COMMAND` shows the options of a command.\n"
        "Without a command and with a pipe as its input, `perdure` is `perdure run`."
    )


if __name__ == "__main__":
    sys.exit(main())
