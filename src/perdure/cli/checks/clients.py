"""Client configurations that name a perdure which is not there any more."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

from perdure.cli.checks.finding import Finding, Patient, ok
from perdure.cli.client_option import found_clients
from perdure.cli.screen import count

CHECK = "clients"
MOST_BYTES = 4 * 1024 * 1024
# In JSON with and without comments, TOML and YAML alike: only the command is looked at, never what follows it.
_COMMAND = re.compile(
    r"""(?:"command"|\bcommand|"cmd"|\bcmd)\s*[:=]\s*\[?\s*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|([^\s"'{\[#,]+))"""
)


def check(patient: Patient) -> Iterator[Finding]:
    named = broken = 0
    for path in dict.fromkeys(_files(patient.settings.workspaces[0])):
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


def _files(workspace: str) -> Iterator[str]:
    from perdure.registry.clients.places import project_file, user_file
    from perdure.registry.clients.table import CLIENTS

    for client in CLIENTS:
        yield user_file(client, os.environ)
        project = project_file(client, workspace)
        if project is not None:
            yield project


def _commands(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    found = [
        first.replace("\\\\", "\\") or second or third for first, second, third in _COMMAND.findall(text)
    ]
    return [one for one in found if os.path.basename(one).partition(".")[0] == "perdure"]


def _is_there(command: str) -> bool:
    if os.sep in command:
        return os.access(os.path.expanduser(command), os.X_OK)
    return shutil.which(command) is not None
