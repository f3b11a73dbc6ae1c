"""Which files the time machine covers.

| left out | reason | unless |
|---|---|---|
| `.git` at any depth | `git` | |
| Perdure's own folders | `perdure` | |
| folders of dependencies and of builds (`FOLDERS`) | `dependencies` | `keep` names them, or something in them |
| what `ignore` of the settings names | `settings` | `keep` names it |
| what `.gitignore` or `.git/info/exclude` ignores | `ignored` | it is a small file (`SMALL`), or `keep` names it |
| a file larger than `max_file_mb` | `too_large` | |
| what is more than `max_total_mb` together | `max_total` | |
| a file that looks like a secret, with `secrets = "skip"` | `secret` | `keep` names it and its content does not |
| FIFOs, sockets, devices | `special` | |
| other file systems | `mount` | |
| what may not be read | `unreadable` | |
| a name that is no text (UTF-8) | `name` | |
| what the first capture has not reached | `not_yet` | |

A file that is covered stays covered when a later pattern of `.gitignore` matches it, as git goes on tracking it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Final, Literal

from perdure.workspace.timeline.gitignore import Patterns
from perdure.workspace.timeline.settings import TimelineSettings

FOLDERS: Final = frozenset(
    (
        "node_modules",
        "bower_components",
        "jspm_packages",
        ".venv",
        "venv",
        "__pycache__",
        ".tox",
        ".nox",
        ".eggs",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        "target",
        "dist",
        "build",
        ".next",
        ".nuxt",
        ".svelte-kit",
        ".parcel-cache",
        ".turbo",
        ".gradle",
        ".terraform",
        ".dart_tool",
        "Pods",
        "DerivedData",
    )
)
SMALL: Final = 64 * 1024
MOST_IN_IGNORED: Final = 1000
"""An ignored folder with more entries than this is left out as a whole: it is the output of a tool."""

Reason = Literal[
    "git",
    "perdure",
    "dependencies",
    "settings",
    "ignored",
    "too_large",
    "max_total",
    "secret",
    "special",
    "mount",
    "unreadable",
    "name",
    "not_yet",
]

_SECRET_NAMES: Final = (
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    "credentials",
    "credentials.json",
)


_SECRET: Final = re.compile("|".join(map(translate, _SECRET_NAMES)))


class Coverage:
    """`private` are rules for Perdure's own folders: `name/` at any depth, `/a/b/` from the root on."""

    def __init__(self, settings: TimelineSettings, private: Sequence[str] = ()) -> None:
        self._ignore = Patterns(settings.ignore)
        self._keep = Patterns(settings.keep)
        self._own_names = frozenset(rule.strip("/") for rule in private if not rule.startswith("/"))
        self._own_paths = frozenset(rule.strip("/") for rule in private if rule.startswith("/"))
        self._skips_secrets = settings.secrets == "skip"
        self.has_ignore = bool(self._ignore) or self._skips_secrets
        self.max_file = int(settings.max_file_mb * 1_000_000)
        self.max_total = int(settings.max_total_mb * 1_000_000)

    def is_kept(self, path: str, name: str, is_folder: bool) -> bool:
        return bool(self._keep) and self._keep.verdict(path, name, is_folder) is True

    def may_keep_beneath(self, folder: str) -> bool:
        return bool(self._keep) and self._keep.may_match_beneath(folder)

    def fixed_folder(self, path: str, name: str) -> Reason | None:
        """Why nothing in a folder is ever covered, whatever the settings are."""
        if name.lower() == ".git":
            return "git"
        if name in self._own_names or path in self._own_paths:
            return "perdure"
        return None

    def left_out(self, path: str, name: str, is_folder: bool) -> Reason | None:
        """Why the settings or the list of folders leave a path out, if `keep` does not name it."""
        if is_folder and name in FOLDERS:
            return "dependencies"
        if self._ignore and self._ignore.verdict(path, name, is_folder) is True:
            return "settings"
        if self._skips_secrets and not is_folder and is_secret_name(name):
            return "secret"
        return None


def is_ignored(chain: Sequence[Patterns], path: str, name: str, is_folder: bool) -> bool:
    """`chain` has the patterns of the innermost folder first. A folder above that is ignored is the caller's to
    know."""
    for patterns in chain:
        verdict = patterns.verdict(path, name, is_folder)
        if verdict is not None:
            return verdict
    return False


def is_secret_name(name: str) -> bool:
    return _SECRET.match(name.lower()) is not None
