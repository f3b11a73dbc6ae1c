"""What counts of a workspace's `perdure.toml`: all of it where the user trusts it, else only what tightens.

| key | before it is trusted |
|---|---|
| `render`, `detail`, `profile`, `log-level`, `log-format` | counts: it only says how something is shown |
| `durability = "strict"` | counts |
| `surfaces`, `tools` | count where they only leave some out |
| `policy` | counts where it refuses more; see `workspace/policy_file.py` |
| everything else | waits: it starts, connects, redirects, loosens, or discards what is kept |
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

import msgspec

from perdure.host.settings_file import MOST_BYTES, SURFACES, FileSettings, parse_file, read_file, split_names
from perdure.protocol.faults import Fault
from perdure.storage.files.bounded_read import read_bounded
from perdure.storage.trust import TrustStore, Verdict

_DEFAULTS: Final = {"surfaces": SURFACES, "tools": ()}
SHOWING: Final = frozenset({"render", "detail", "profile", "log_level", "log_format"})


class WorkspaceSettings(NamedTuple):
    """`counting` is what is in force now, `written` all that the file says."""

    path: str
    counting: FileSettings
    written: FileSettings
    verdict: Verdict = "trusted"


def read_workspace_settings(
    path: str, user_path: str, user: FileSettings, faults: list[Fault] | None = None
) -> WorkspaceSettings:
    """Raises SettingsError for a file that cannot be meant, trusted or not; given `faults`, adds to them instead."""
    if path == os.path.realpath(user_path):
        return WorkspaceSettings(path, user, user)
    try:
        content = read_bounded(path, MOST_BYTES)
    except OSError:
        unreadable = read_file(path, faults)  # reports why; nothing, where there is no such file
        return WorkspaceSettings(path, unreadable, unreadable)
    written = parse_file(path, content, faults)
    verdict = TrustStore().verdict(path, content)
    if verdict == "trusted":
        return WorkspaceSettings(path, written, written, verdict)
    waiting = _waiting(written, user, os.path.dirname(path))
    empty = FileSettings()
    counting = msgspec.structs.replace(written, **{name: getattr(empty, name) for name in waiting})
    return WorkspaceSettings(path, counting, written, verdict)


def waiting_keys(written: FileSettings, user: FileSettings, workspace: str) -> list[str]:
    """The keys that count only once the file is trusted, as it writes them."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(written)}
    return [names[name] for name in _waiting(written, user, workspace)]


def _waiting(written: FileSettings, user: FileSettings, workspace: str) -> list[str]:
    empty = type(written)()
    set_names = [
        field.name
        for field in msgspec.structs.fields(written)
        if getattr(written, field.name) != getattr(empty, field.name)
    ]
    return [
        name for name in set_names if name not in SHOWING and not _tightens(name, written, user, workspace)
    ]


def _tightens(name: str, written: FileSettings, user: FileSettings, workspace: str) -> bool:
    match name:
        case "durability":
            return written.durability == "strict"
        case "surfaces" | "tools":
            usual = getattr(user, name)
            base = split_names(usual) if usual is not None else _DEFAULTS[name]
            chosen = split_names(getattr(written, name))
            return bool(chosen) and (not base or set(chosen) <= set(base))
        case "policy":
            if isinstance(written.policy, dict):
                return True  # key by key, where the policy is read
            place = os.path.normpath(os.path.join(workspace, str(written.policy)))
            return not os.path.relpath(place, workspace).startswith(os.pardir)
        case _:
            return False
