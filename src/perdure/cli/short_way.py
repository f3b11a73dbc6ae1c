"""Whether a command can read a workspace the short way: its journal looked at, and no worker's modules loaded.

The short way is for what is asked every day: one workspace, a settled journal of this version, files that are what
they seem. Everything else, mistakes included, is left to the tool, whose answers are the same; tests compare them.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import apsw

    from perdure.cli.whereabouts import Whereabouts

POLICIES = (".perdure/policy.yaml", ".resilient_write/policy.yaml", "policy.yaml")
POLICY_VARIABLES = ("PERDURE_POLICY", "RW_POLICY_FILE")
COMMITTED = "NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.seq = journal.seq)"
_CHUNK = 1 << 20


_real: dict[str, bool] = {}  # folders that were looked at: a workspace has many files in few of them


class NotSimple(Exception):
    """Left to the tool."""


def looked(where: Whereabouts, look: Callable[[apsw.Connection], dict[str, Any]]) -> dict[str, Any]:
    """What `look` finds in the journal; it may raise NotSimple, as this does."""
    from perdure.storage.sqlite import glance

    if where.has_settings or len(where.workspaces) != 1 or has_policy(where.workspace):
        raise NotSimple

    def settled(connection: apsw.Connection) -> dict[str, Any]:
        if connection.pragma("user_version") != glance.JOURNAL_FORMAT:
            raise NotSimple
        if connection.execute("SELECT 1 FROM intents LIMIT 1").fetchall() and not is_served(where):
            raise NotSimple  # what a dead process left, recovery settles first
        return look(connection)

    found = glance.looked(where.journal, settled)
    if "error" in found:
        raise NotSimple
    return found if found["found"] else {**found, **look(glance.empty_journal())}


def has_policy(workspace: str) -> bool:
    named = any(os.environ.get(name) for name in POLICY_VARIABLES)
    return named or any(os.path.lexists(os.path.join(workspace, place)) for place in POLICIES)


def is_served(where: Whereabouts) -> bool:
    """Whether a host is at work here: then what is not settled yet is its own, and it looks after what others left."""
    from perdure.host import presence

    return any(where.workspace in host.workspaces for host in presence.running())


def is_plain(where: Whereabouts, path: str) -> bool:
    """Whether this is how the journal would name it."""
    folder, _, last = path.rpartition("/")
    if os.path.isabs(path) or not path.isprintable() or "\\" in path or last in ("", ".", ".."):
        return False
    whole = os.path.join(where.workspace, folder) if folder else where.workspace
    if whole not in _real:
        _real[whole] = os.path.realpath(whole) == whole
    return _real[whole] and not os.path.islink(os.path.join(whole, last))


def blob_path(where: Whereabouts, sha: bytes) -> str:
    return os.path.join(where.workspace, ".perdure", "blobs", sha.hex())


def opened(where: Whereabouts, path: str) -> int | None:
    """A file to read; None where there is none. Raises NotSimple for what is no file, or not to be read by all."""
    from stat import S_ISREG

    if not path or not is_plain(where, path) or path.split("/", 1)[0] == ".perdure":
        raise NotSimple
    try:
        fd = os.open(os.path.join(where.workspace, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        raise NotSimple from None
    if not S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotSimple
    return fd


def hash_of(where: Whereabouts, path: str) -> bytes | None:
    """The hash of a file, as it was at one moment; None where there is none."""
    fd = opened(where, path)
    if fd is None:
        return None
    try:
        before = _times(fd)
        found = digest_of(fd)
        if _times(fd) != before:
            raise NotSimple
    finally:
        os.close(fd)
    return found


def sha256_for(size: int) -> Any:
    """The fast one takes longer to load than it needs for a small file; the small one is not in every Python."""
    if size < _CHUNK:
        try:
            from _sha256 import sha256 as small  # type: ignore[import-not-found]

            return small
        except ImportError:
            pass
    from hashlib import sha256

    return sha256


def _times(fd: int) -> tuple[int, ...]:
    facts = os.fstat(fd)
    return facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size


def digest_of(fd: int) -> bytes:
    digest, offset = sha256_for(os.fstat(fd).st_size)(), 0
    while piece := os.pread(fd, _CHUNK, offset):
        digest.update(piece)
        offset += len(piece)
    return bytes(digest.digest())
