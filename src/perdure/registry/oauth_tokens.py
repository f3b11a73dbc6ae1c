"""OAuth tokens of remote servers: stored outside every workspace, readable by their owner alone, and never shown.

There is one file per entry name and URL, so that a token is only sent to the server it was issued for. The replies of the
authorization server are stored unchanged. `login` is new for every sign-in and stays the same while tokens are refreshed: a
host restarts its bridge when it changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import msgspec

from perdure.platform import directories
from perdure.platform.locks import lock
from perdure.platform.sync import sync_directory, sync_file
from perdure.protocol.msgspec_types import prepare_type
from perdure.storage.user_dirs import sign_ins_folder

_MARK: Final = 32
# The suffix of a file while it is written; a crash may leave one, which holds tokens.
_UNFINISHED: Final = r"(?:\.\d+)?"


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """`expires_at` is in seconds since the epoch, 0 if unknown; `wanted` are scopes that a refused call needs."""

    login: str
    tokens: dict[str, Any] = {}
    client: dict[str, Any] = {}
    server: dict[str, Any] = {}
    expires_at: float = 0.0
    wanted: str = ""

    def __repr__(self) -> str:
        return "Grant([redacted])"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a grant holds tokens and is not passed on")


def grant_path(name: str, url: str) -> str:
    from hashlib import sha256

    return os.path.join(sign_ins_folder(), f"{name}-{sha256(url.encode()).hexdigest()[:_MARK]}.json")


def grant_paths(name: str) -> list[str]:
    """Every sign-in under this name, whatever its URL, and what a crashed process left of one."""
    belongs = re.compile(rf"({re.escape(name)}-[0-9a-f]{{{_MARK}}}\.json){_UNFINISHED}")
    try:
        names = os.listdir(sign_ins_folder())
    except FileNotFoundError:
        return []
    matches = map(belongs.fullmatch, sorted(names))
    return [
        os.path.join(sign_ins_folder(), file)
        for file in dict.fromkeys(match[1] for match in matches if match)
    ]


def read_grant(path: str) -> Grant | None:
    """None if there is no sign-in, or the file is damaged: a new sign-in fixes both."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=prepare_type(Grant))
    except (OSError, msgspec.MsgspecError):
        return None


def login_of(path: str) -> str:
    grant = read_grant(path)
    return grant.login if grant is not None else ""


def write_grant(path: str, grant: Grant) -> None:
    """Atomic and durable: a refresh token that was used cannot be requested again."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    fd = directories.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | directories.NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(grant))
            file.flush()
            sync_file(file.fileno())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    folder = directories.open(os.path.dirname(path), os.O_RDONLY | directories.DIRECTORY)
    try:
        sync_directory(folder)
    finally:
        os.close(folder)


def remove_grant(path: str) -> bool:
    """Remove a sign-in and what crashed processes left of it. Whether there was any."""
    folder, name = os.path.split(path)
    belongs = re.compile(re.escape(name) + _UNFINISHED)
    try:
        names = [file for file in os.listdir(folder) if belongs.fullmatch(file)]
    except FileNotFoundError:
        return False
    for file in names:
        os.unlink(os.path.join(folder, file))
    return bool(names)


@contextmanager
def refresh_lock(path: str) -> Iterator[None]:
    """One process at a time refreshes a token: most servers accept a refresh token once."""
    fd = directories.open(os.path.dirname(path), os.O_RDONLY | directories.DIRECTORY)
    try:
        lock(fd)
        yield
    finally:
        os.close(fd)
