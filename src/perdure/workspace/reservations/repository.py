"""Which repository a workspace is a clone of, so that clones on several machines share their reservations.

A repository is known by its first commit and its remote. Forks have the same first commit and another remote. The remote is
compared without what differs between users: the protocol, a login, a port and the ending `.git`.

Git is asked once, because finding the first commit reads the whole history; the answer is kept beside the journal until the
configuration of the repository changes.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from typing import Final

import msgspec

from perdure.protocol.msgspec_types import prepare_type
from perdure.storage.errors import StateError
from perdure.storage.files.bounded_read import read_bounded
from perdure.workspace.timeline.git_head import common_folder, git_folder, read_head

_GIT_S: Final = 60
_MOST_KEPT: Final = 4096
_URL: Final = re.compile(r"[a-z0-9+.-]+://(?:[^@/]*@)?([^/:]*)(?::\d+)?/+(.*)", re.IGNORECASE | re.DOTALL)
_SCP: Final = re.compile(r"(?:[^@/]*@)?([^/:]+):(.*)", re.DOTALL)


class Repository(msgspec.Struct, frozen=True):
    """`prefix` is the workspace's folder inside the repository; empty where it is the repository's own."""

    identity: str
    prefix: str


class _Kept(msgspec.Struct, frozen=True):
    """`config` identifies the configuration that the answer was given for."""

    config: list[int]
    identity: str


def find_repository(root: str, kept_in: str) -> Repository | None:
    """None for a folder that is in no repository, or in one without commits: it has no clones. `kept_in` is the file for the
    answer. Raises StateError where git does not tell."""
    top = _find_top(root)
    if top is None or read_head(top) is None:
        return None
    prefix = os.path.relpath(root, top)
    config = _config_state(top)
    kept = _read_kept(kept_in)
    if kept is None or kept.config != config:
        kept = _Kept(config, _identify(top))
        _keep(kept_in, kept)
    return Repository(kept.identity, "" if prefix == "." else prefix)


def normalize_remote(url: str) -> str:
    """`git@example.org:team/app.git` and `https://me@example.org/team/app` are the same: `example.org/team/app`."""
    match = _URL.fullmatch(url) or _SCP.fullmatch(url)
    host, path = (match[1], match[2]) if match is not None else ("", url)
    return f"{host}/{path.strip('/')}".removesuffix(".git").strip("/").casefold()


def _find_top(root: str) -> str | None:
    folder = os.path.realpath(root)
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return folder


def _identify(top: str) -> str:
    if _git(top, "rev-parse", "--is-shallow-repository") == "true":
        raise _unknown("this clone is shallow, so its first commit is not known (git fetch --unshallow)")
    roots = _git(top, "rev-list", "--max-parents=0", "HEAD").split()
    remotes = _git(top, "remote").split("\n")
    remote = "origin" if "origin" in remotes else min(remotes)
    address = _git(top, "remote", "get-url", remote) if remote else ""
    return f"{roots[-1]} {normalize_remote(address)}".strip()


def _git(top: str, *words: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", top, *words], capture_output=True, env=environ, timeout=_GIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        raise _unknown(f"git {words[0]} failed, so it is not known which repository this is") from None
    return os.fsdecode(done.stdout).strip()


def _unknown(detail: str) -> StateError:
    return StateError("resource", "repository_unknown", detail, "never")


def _config_state(top: str) -> list[int]:
    folder = git_folder(top)
    path = os.path.join(common_folder(folder), "config") if folder is not None else ""
    try:
        info = os.stat(path)
    except OSError:
        return []
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns]


def _read_kept(path: str) -> _Kept | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(read_bounded(path, _MOST_KEPT), type=prepare_type(_Kept))
    return None


def _keep(path: str, kept: _Kept) -> None:
    """A folder that cannot be written asks git each time."""
    new = f"{path}.{os.getpid()}"
    with suppress(OSError):
        with open(new, "wb") as file:
            file.write(msgspec.json.encode(kept))
        os.replace(new, path)
