"""Client configurations and hooks that name a perdure which is not there any more; hooks that the client does not run."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator

from perdure.cli.client_option import found_clients
from perdure.cli.doctor.finding import DoctorContext, Finding, ok
from perdure.cli.output import count, duration
from perdure.hooks.last_run import last_run
from perdure.hooks.relay import CLIENTS as HOOK_CLIENTS
from perdure.registry.clients.config_text import Uneditable
from perdure.registry.clients.hook_text import own_commands
from perdure.registry.clients.json_syntax import parse_object
from perdure.registry.clients.locations import hooks_file

CHECK = "clients"
START_S = 20.0
MOST_BYTES = 4 * 1024 * 1024
PLUGIN = "perdure"
# In JSON with and without comments, TOML and YAML alike: only the command is looked at, never what follows it.
_COMMAND = re.compile(
    r"""(?:"command"|\bcommand|"cmd"|\bcmd)\s*[:=]\s*\[?\s*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|([^\s"'{\[#,]+))"""
)


def check(context: DoctorContext) -> Iterator[Finding]:
    named = broken = 0
    for path in dict.fromkeys(_files(context.settings.workspaces[0])):
        for command in _commands(path):
            named += 1
            if _is_there(command):
                continue
            broken += 1
            yield Finding(
                CHECK,
                "error",
                f"{path} starts {command}, which is not there",
                "that client has no perdure: its tools are missing",
                f"put the path of the one that is installed there: {shutil.which('perdure') or 'perdure'}",
            )
    yield from _check_hooks()
    if not named:
        clients = [client.name for client, _ in found_clients()]
        yield Finding(
            CHECK,
            "note",
            "no client is configured to use perdure",
            "agents reach it only through a client",
            f"`perdure install {clients[0] if clients else 'CLIENT'} --apply`, then restart the client",
        )
    elif not broken:
        yield ok(CHECK, f"{count(named, 'entry names', 'entries name')} a perdure that is there")


def _check_hooks() -> Iterator[Finding]:
    """Whether the command of each hook in a user's file can be started, and whether the client has run it."""
    for client in HOOK_CLIENTS:
        path = hooks_file(client, os.environ)
        commands = _hook_commands(path) if path is not None else []
        reasons = [reason for reason in map(_failure, commands) if reason is not None]
        for reason in reasons:
            yield Finding(
                CHECK,
                "error",
                f"the hook in {path} cannot be started: {reason}",
                "what that client's own tools change is not recorded",
                f"`perdure install {client} --hooks --apply`",
            )
        if not reasons and (commands or last_run(client) is not None):
            yield _last_run_finding(client)
        if commands and path is not None and _has_plugin(path):
            yield Finding(
                CHECK,
                "warning",
                f"{client} runs our hooks twice: its plugin brings them, and {path} has them",
                "each prompt counts as two turns",
                f"`perdure uninstall {client} --apply`, or `claude plugin uninstall perdure`",
            )


def _last_run_finding(client: str) -> Finding:
    ran_at = last_run(client)
    if ran_at is not None:
        return ok(CHECK, f"a hook of {client} ran {duration(time.time() - ran_at)} ago")
    trust = "trust its hooks there (/hooks), " if client == "codex" else ""
    return Finding(
        CHECK,
        "note",
        f"the hooks of {client} can be started, and none of them has run yet",
        "what that client's own tools change is recorded only when it runs them",
        f"restart {client}, {trust}let it use a tool, then run `perdure doctor` again",
    )


def _hook_commands(path: str) -> list[str]:
    try:
        return own_commands(_read(path))
    except (Uneditable, RecursionError):
        return []


def _has_plugin(path: str) -> bool:
    """Whether the settings of Claude Code enable the plugin."""
    plugins = parse_object(_read(path)).value.get("enabledPlugins")
    return isinstance(plugins, dict) and any(
        name.partition("@")[0] == PLUGIN and is_enabled for name, is_enabled in plugins.items()
    )


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(MOST_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return ""


def _failure(command: str) -> str | None:
    """Why a command does not start. Its help does nothing but show that it does."""
    import shlex
    import subprocess

    words = shlex.split(command)
    if not _is_there(words[0]):
        return f"{words[0]} is not there"
    try:
        done = subprocess.run(
            [*words, "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=START_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    return None if done.returncode == 0 else f"it ends with {done.returncode}"


def _files(workspace: str) -> Iterator[str]:
    from perdure.registry.clients.locations import project_file, user_file
    from perdure.registry.clients.table import CLIENTS

    for client in CLIENTS:
        yield user_file(client, os.environ)
        project = project_file(client, workspace)
        if project is not None:
            yield project


def _commands(path: str) -> list[str]:
    text = _read(path)
    found = [
        first.replace("\\\\", "\\") or second or third for first, second, third in _COMMAND.findall(text)
    ]
    return [one for one in found if os.path.basename(one).partition(".")[0] == "perdure"]


def _is_there(command: str) -> bool:
    if os.sep in command:
        return os.access(os.path.expanduser(command), os.X_OK)
    return shutil.which(command) is not None
