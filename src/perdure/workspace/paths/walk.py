"""From a root's descriptor and some names to a directory's descriptor and one last name, never leaving the root.

The kernel does it in one call where it has `openat2` and the path holds no symbolic link. Otherwise every name is
entered on its own, without following anything; a link's text is read and walked the same way, and `..` enters the
names before it once more from the root. What another process renames meanwhile changes what
is found, not where the walk can go.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from perdure.platform import directories
from perdure.platform.files import open_beneath, open_entry
from perdure.present.tool_errors import os_refusal
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_again
from perdure.text.printable import make_printable

LINKS_MAX: Final = 40
TRIES_MAX: Final = 1000

Watch = Callable[[Sequence[str]], None]
"""Told every form the path takes, from the one given to the last; raises to refuse it."""


@dataclass(frozen=True)
class Root:
    """A workspace root, held open. `spellings` are its absolute paths, for reading absolute links and paths."""

    fd: int
    dev: int
    ino: int
    spellings: tuple[tuple[str, ...], ...]
    by_kernel: bool

    @property
    def path(self) -> str:
        return "/" + "/".join(self.spellings[-1])

    def is_replaced(self) -> bool:
        """Whether another directory, or none, is at the path of this root."""
        try:
            facts = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        return (facts.st_dev, facts.st_ino) != (self.dev, self.ino)

    def beneath(self, parts: Sequence[str]) -> tuple[str, ...] | None:
        """The names after this root in an absolute path. Naming only: they are still walked from `fd`."""
        for spelling in self.spellings:
            if tuple(parts[: len(spelling)]) == spelling:
                return tuple(parts[len(spelling) :])
        return None


class Resolved(NamedTuple):
    """`dir_fd` is the caller's to close. `missing` are the parents that are not there yet."""

    dir_fd: int
    trail: tuple[str, ...]
    missing: tuple[str, ...]
    found: os.stat_result | None


def resolve(root: Root, parts: Sequence[str], watch: Watch, *, follow: bool) -> Resolved:
    """Find the place of a path, or refuse it. `follow` says whether a last link stands for its target."""
    watch(parts)
    if root.by_kernel and ".." not in parts:
        found = _at_once(root, parts)
        if found is not None:
            return found
    return _Walk(root, parts, watch, follow).run()


def look(root: Root, dir_fd: int, name: str) -> os.stat_result:
    """What a name is, without following or opening it."""
    if not root.by_kernel:
        return directories.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    fd = open_entry(dir_fd, name)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def enter(root: Root, dir_fd: int, name: str) -> int:
    """Open a directory by its name alone: no link, no other file system."""
    flags = directories.PLACE | directories.DIRECTORY | directories.NOFOLLOW
    if root.by_kernel:
        # The mount decides, not st_dev: on an overlay the devices of one tree differ.
        return open_beneath(dir_fd, name, flags)
    fd = directories.open(name, flags, dir_fd=dir_fd)
    if os.fstat(fd).st_dev != root.dev:
        os.close(fd)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return fd


def escapes(how: str, path: str, roots: Sequence[str]) -> ToolError:
    way = "leads through a symbolic link out of" if how == "symlink" else "is outside of"
    return refuse(
        "policy_violation",
        "escapes_workspace",
        f"{make_printable(path)} {way} the workspace ({', '.join(roots)}).",
        next_step=call_again(path=FILL),
        suggested_action="fix_syntax",
        reason_hint="permission",
        how=how,
    )


def _changing(path: str) -> ToolError:
    return refuse(
        "conflict",
        "path_changing",
        f"another program keeps changing the directories of {make_printable(path)}.",
        next_step=call_again(),
        suggested_action="retry_later",
    )


def _at_once(root: Root, parts: Sequence[str]) -> Resolved | None:
    """The whole way in one call; None if anything about it needs a closer look."""
    try:
        dir_fd = open_beneath(root.fd, "/".join(parts[:-1]) or ".", directories.PLACE | directories.DIRECTORY)
    except OSError:
        return None
    try:
        # The quickest way to find that there is nothing.
        directories.stat(parts[-1], dir_fd=dir_fd, follow_symlinks=False)
        found = look(root, dir_fd, parts[-1])
    except FileNotFoundError:
        return Resolved(dir_fd, tuple(parts), (), None)
    except OSError:
        found = None
    if found is None or stat.S_ISLNK(found.st_mode):
        os.close(dir_fd)
        return None
    return Resolved(dir_fd, tuple(parts), (), found)


class _Walk:
    """One walk: the directory it is in, the names behind it, the names before it."""

    def __init__(self, root: Root, parts: Sequence[str], watch: Watch, follow: bool) -> None:
        self.root = root
        self.asked = "/".join(parts)
        self.ahead = deque(parts)
        self.watch = watch
        self.follow = follow
        self.fd = os.dup(root.fd)
        self.trail: list[str] = []
        self.links = 0
        self.tries = 0

    def run(self) -> Resolved:
        try:
            while True:
                found = self._step()
                if found is not None:
                    return found
        finally:
            if self.fd >= 0:
                os.close(self.fd)

    def _step(self) -> Resolved | None:
        if not self.ahead:
            raise os_refusal(IsADirectoryError(errno.EISDIR, ""), path=make_printable(self.asked))
        name = self.ahead.popleft()
        try:
            if name == "..":
                self._back()
                return None
            found = look(self.root, self.fd, name)
            if stat.S_ISLNK(found.st_mode) and (self.ahead or self.follow):
                self._link(name)
                return None
            if not self.ahead:
                return self._done(name, found)
            self._enter(name)
            self.trail.append(name)
        except FileNotFoundError:
            return self._absent(name)
        except OSError as error:
            self._again(name, error)
        return None

    def _back(self) -> None:
        if not self.trail:
            raise escapes("dot_dot", self.asked, [self.root.path])
        self._restart(self.trail[:-1])

    def _restart(self, trail: list[str]) -> None:
        start = os.dup(self.root.fd)
        os.close(self.fd)
        self.fd = start
        self.trail = []
        for name in trail:
            try:
                self._enter(name)
            except OSError:
                raise _changing(self.asked) from None
            self.trail.append(name)

    def _enter(self, name: str) -> None:
        inner = enter(self.root, self.fd, name)
        os.close(self.fd)
        self.fd = inner

    def _link(self, name: str) -> None:
        text = directories.readlink(name, dir_fd=self.fd)
        self.links += 1
        if self.links > LINKS_MAX:
            raise os_refusal(OSError(errno.ELOOP, ""), path=make_printable(self.asked))
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if text.startswith("/"):
            inside = self.root.beneath(parts)
            if inside is None:
                raise escapes("symlink", self.asked, [self.root.path])
            parts = list(inside)
            self._restart([])
        self.ahead.extendleft(reversed(parts))
        self.watch((*self.trail, *self.ahead))

    def _done(self, name: str, found: os.stat_result | None, missing: Sequence[str] = ()) -> Resolved:
        trail = (*self.trail, *missing, name)
        self.watch(trail)
        fd, self.fd = self.fd, -1
        return Resolved(fd, trail, tuple(missing), found)

    def _absent(self, name: str) -> Resolved:
        if os.fstat(self.root.fd).st_nlink == 0:
            raise refuse(
                "not_found",
                "workspace_gone",
                f"the workspace directory {self.root.path} was moved or removed.",
                next_step=ask_user(
                    "to put the workspace directory back, or to start Perdure where it is now."
                ),
                suggested_action="ask_user",
            )
        if ".." in self.ahead:
            raise os_refusal(FileNotFoundError(errno.ENOENT, ""), path=make_printable(self.asked))
        if not self.ahead:
            return self._done(name, None)
        *parents, last = (name, *self.ahead)
        return self._done(last, None, parents)

    def _again(self, name: str, error: OSError) -> None:
        """A name changed its nature between two looks: look again, but not for ever."""
        now_other = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.EAGAIN)
        if not now_other or self._is_file(name):
            raise os_refusal(error, path=make_printable(self.asked))
        self.tries += 1
        if self.tries > TRIES_MAX:
            raise _changing(self.asked)
        self.ahead.appendleft(name)

    def _is_file(self, name: str) -> bool:
        try:
            mode = directories.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode
        except OSError:
            return False
        return not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode)
