"""The commit that git's HEAD stands for, read from its files. Git itself is never run, and nothing is written."""

from __future__ import annotations

import os
import re
from typing import Final

from perdure.storage.files.bounded_read import read_bounded

_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF: Final = re.compile(r"ref: (refs/[^\x00-\x20~^:?*\[\\]+)")
_MOST_REF: Final = 4096
_MOST_PACKED: Final = 64 << 20
_MOST_STEPS: Final = 5


def read_head(root: str) -> str | None:
    """None where there is no repository, no commit yet, or HEAD cannot be read."""
    try:
        folder = git_folder(root)
        return _resolve(folder, common_folder(folder)) if folder is not None else None
    except (OSError, ValueError):
        return None


def git_folder(root: str) -> str | None:
    """`.git`, or where it leads."""
    path = os.path.join(root, ".git")
    if os.path.isdir(path):
        return path
    if not os.path.isfile(path):
        return None
    text = _text(path)  # of a worktree or a submodule
    return os.path.join(root, text.removeprefix("gitdir:").strip()) if text.startswith("gitdir:") else None


def common_folder(folder: str) -> str:
    """Where a worktree's repository has its branches."""
    try:
        return os.path.join(folder, _text(os.path.join(folder, "commondir")).strip())
    except FileNotFoundError:
        return folder


def _resolve(folder: str, common: str) -> str | None:
    text = _text(os.path.join(folder, "HEAD")).strip()
    for _ in range(_MOST_STEPS):
        if _COMMIT.fullmatch(text):
            return text
        match = _REF.fullmatch(text)
        if match is None or ".." in match[1]:
            return None
        loose = _loose(folder, match[1]) or _loose(common, match[1])
        if loose is None:
            return _packed(common, match[1])
        text = loose
    return None


def _loose(folder: str, ref: str) -> str | None:
    try:
        return _text(os.path.join(folder, ref)).strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _packed(folder: str, ref: str) -> str | None:
    try:
        data = read_bounded(os.path.join(folder, "packed-refs"), _MOST_PACKED)
    except FileNotFoundError:
        return None
    match = re.search(rb"^([0-9a-f]{40,64}) " + re.escape(os.fsencode(ref)) + rb"$", data, re.MULTILINE)
    return match[1].decode() if match is not None else None


def _text(path: str) -> str:
    return os.fsdecode(read_bounded(path, _MOST_REF))
