"""Roots roots as descriptors, and the one way from a path to a place in them.

No decision is made by comparing path strings. A path is walked from a root's descriptor (`walk.py`), and the
descriptor of its directory is what everything after uses, so a name that is renamed or replaced by a link in between
leads nowhere else. The spelling alone can only refuse (`names.py`, `protected.py`).

A directory that another program moves out of the root while it is held open takes a write in progress along, as it
does for every program that has it open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from perdure.platform import directories
from perdure.platform.fault_points import point
from perdure.platform.files import can_open_beneath
from perdure.platform.sync import sync_directory
from perdure.present.tool_errors import os_refusal
from perdure.protocol.envelope import SuggestedAction, ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_again
from perdure.storage.files.file_io import close_quietly
from perdure.text.printable import make_printable
from perdure.workspace.paths.names import bad_path, check_name, spelled
from perdure.workspace.paths.protected import Protection
from perdure.workspace.paths.similar_files import directory_in_place, missing_file
from perdure.workspace.paths.walk import Root, enter, escapes, look, resolve

Purpose = Literal["write", "read"]
_READ = os.O_RDONLY | directories.NOFOLLOW | directories.NONBLOCK
_KINDS = ((stat.S_ISFIFO, "fifo"), (stat.S_ISSOCK, "socket"), (stat.S_ISLNK, "symlink"))


DirectoryId = tuple[int, int]
"""Device and inode."""


class Directories:
    """Descriptors of directories, one for each, counted: many places of one call can lie in one directory."""

    def __init__(self) -> None:
        self._open: dict[DirectoryId, int] = {}
        self._holders: dict[DirectoryId, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def hold(self, fd: int) -> tuple[DirectoryId, int]:
        """Take over a descriptor; returns the one that stands for its directory."""
        info = os.fstat(fd)
        identity = info.st_dev, info.st_ino
        shared = self._open.setdefault(identity, fd)
        self._holders[identity] = self._holders.get(identity, 0) + 1
        if shared != fd:
            os.close(fd)
        return identity, shared

    def release(self, identity: DirectoryId) -> None:
        self._holders[identity] -= 1
        if not self._holders[identity]:
            del self._holders[identity]
            close_quietly(self._open.pop(identity))


class Place:
    """Where a path leads: a directory held open and a last name. Close it, or use it in `with`.

    `path` is canonical: beneath root number `root`, with `/`, through no link. `found` is what stood there,
    None for nothing. `missing` are the parent directories that have to be made first.
    """

    def __init__(
        self,
        root: int,
        dir_fd: int,
        path: str,
        found: os.stat_result | None,
        missing: tuple[str, ...],
        walked: Root,
        directories: Directories | None = None,
    ) -> None:
        self.root = root
        self._directories = directories if directories is not None else Directories()
        self._identity, self.dir_fd = self._directories.hold(dir_fd)
        self.path = path
        self.name = path.rpartition("/")[2]
        self.found = found
        self.missing = missing
        self._walked = walked

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.dir_fd >= 0:
            self._directories.release(self._identity)
            self.dir_fd = -1

    def reopen(self) -> None:
        """Hold the directory again after `close`, the same one: a name that leads to another by now is refused."""
        if self.dir_fd >= 0:
            return
        names = self.path.split("/")[:-1]
        fd = os.dup(self._walked.fd)
        try:
            for name in names[: len(names) - len(self.missing)]:
                inner = enter(self._walked, fd, name)
                os.close(fd)
                fd = inner
        except OSError as error:
            os.close(fd)
            raise os_refusal(error, path=make_printable(self.path)) from None
        before = self._identity
        self._identity, self.dir_fd = self._directories.hold(fd)
        if self._identity != before:
            raise refuse(
                "conflict",
                "path_changing",
                f"another program replaced a directory of {make_printable(self.path)}.",
                next_step=call_again(),
                suggested_action="retry_later",
                path=make_printable(self.path),
            )

    def open(self) -> int:
        """A descriptor to read the file; the caller closes it. Never blocks, never follows."""
        if self.missing:
            raise os_refusal(FileNotFoundError(errno.ENOENT, ""), path=make_printable(self.path))
        try:
            look(self._walked, self.dir_fd, self.name)
            fd = directories.open(self.name, _READ, dir_fd=self.dir_fd)
        except OSError as error:
            raise os_refusal(error, path=make_printable(self.path)) from None
        try:
            refuse_irregular(os.fstat(fd), self.path, allow_links=True)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def make_parents(self, *, sync: bool = False) -> tuple[str, ...]:
        """Make the missing directories. Returns the paths of those this call made, outermost first.

        If one cannot be made, those made before it are removed again.
        """
        made: list[str] = []
        depth = self.path.count("/") - len(self.missing)
        try:
            for number, name in enumerate(self.missing, depth + 1):
                try:
                    directories.mkdir(name, dir_fd=self.dir_fd)
                    made.append("/".join(self.path.split("/")[:number]))
                    if sync:
                        sync_directory(self.dir_fd)
                    point("write.parent_made")
                except FileExistsError:
                    pass  # another process made it; entering it shows what it is
                inner = self._directories.hold(enter(self._walked, self.dir_fd, name))
                self._directories.release(self._identity)
                self._identity, self.dir_fd = inner
        except OSError as error:
            _remove_directories(self._walked, made)
            raise os_refusal(error, path=make_printable(self.path)) from None
        self.missing = ()
        return tuple(made)


class Roots:
    """The roots tools may work in. Relative paths are of the first; absolute ones of the innermost that holds them.

    `by_kernel=False` walks name by name even where the kernel could do it at once.
    """

    def __init__(
        self,
        roots: Sequence[str | os.PathLike[str]],
        protection: Protection | None = None,
        *,
        by_kernel: bool | None = None,
    ) -> None:
        if not roots:
            raise ValueError("a workspace needs a root")
        self.protection = protection or Protection()
        self._all: list[Root] = []
        kernel = can_open_beneath() if by_kernel is None else by_kernel
        try:
            for given in roots:
                self._all.append(_opened(os.fspath(given), kernel))
        except OSError:
            self.close()
            raise
        self._outer = [self._enclosing(index) for index in range(len(self._all))]

    def __getitem__(self, index: int) -> Root:
        return self._all[index]

    def __iter__(self) -> Iterator[Root]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def close(self) -> None:
        for root in self._all:
            os.close(root.fd)
        self._all.clear()

    def locate(
        self,
        path: str,
        *,
        purpose: Purpose = "write",
        force: bool = False,
        follow: bool = True,
        directories: Directories | None = None,
    ) -> Place:
        """The place a path leads to, or a refusal with a stable reason. Places that are held together share
        `directories`.

        A link as the last name stands for its target. With `follow=False` it is refused: a call that deletes or
        moves must say which of the two is meant. Reading may go to hard-linked files and to guarded paths.
        """
        index, parts = self._anchored(path)
        root = self._all[index]
        try:
            is_replaced = root.is_replaced()
        except OSError as error:
            raise os_refusal(error) from None
        if is_replaced:
            raise _replaced(root)
        reading = purpose == "read"
        outer = self._outer[index]

        def watch(names: Sequence[str]) -> None:
            for name in names:
                check_name(name)
            self.protection.check(names, force=force, reading=reading)
            if outer:
                self.protection.check((*outer, *names), force=force, reading=reading)

        try:
            dir_fd, trail, missing, found = resolve(root, parts, watch, follow=follow)
        except OSError as error:
            raise os_refusal(error, path=make_printable(path)) from None
        canonical = "/".join(trail)
        try:
            if found is not None:
                if stat.S_ISDIR(found.st_mode):
                    raise directory_in_place(dir_fd, trail[-1], canonical)
                if found.st_dev != root.dev and not root.by_kernel:
                    raise os_refusal(OSError(errno.EXDEV, ""), path=make_printable(canonical))
                refuse_irregular(found, canonical, allow_links=reading)
            elif reading:
                raise missing_file(root.fd, canonical)
            index, rest = self._innermost(index, trail)
        except BaseException:
            os.close(dir_fd)
            raise
        return Place(index, dir_fd, "/".join(rest), found, missing, self._all[index], directories)

    def is_replaced(self) -> bool:
        """Whether another directory is at the path of a root now. One that is only gone may come back."""
        return any(root.is_replaced() and os.path.isdir(root.path) for root in self._all)

    def anchored(self, path: str) -> str:
        """`@2/a` is `a` in the third root, as rows and results name it."""
        root, slash, rest = path.partition("/")
        if slash and root.startswith("@") and root[1:].isdigit() and 0 < int(root[1:]) < len(self._all):
            return "/" + "/".join((*self._all[int(root[1:])].spellings[-1], rest))
        return path

    def absolute(self, place: Place) -> str:
        """For a person or another program; never for an error, a journal row or a log."""
        return "/" + "/".join((*self._all[place.root].spellings[-1], *place.path.split("/")))

    def remove_directories(self, root: int, paths: Sequence[str]) -> tuple[str, ...]:
        """Take back directories made for a file, innermost first, as far as they are empty. Returns those gone."""
        return _remove_directories(self._all[root], paths)

    def open_directory(self, root: int, path: str) -> int:
        """A descriptor of a directory by its canonical path (`""` for the root), as recovery needs to sweep it."""
        names = path.split("/") if path else []
        fd = os.dup(self._all[root].fd)
        for name in names:
            try:
                inner = enter(self._all[root], fd, name)
            except OSError as error:
                raise os_refusal(error, path=make_printable(path)) from None
            finally:
                os.close(fd)
            fd = inner
        return fd

    def _anchored(self, path: str) -> tuple[int, tuple[str, ...]]:
        spelling = spelled(path)
        if not spelling.is_absolute:
            return 0, spelling.parts
        matches = [
            (i, rest) for i, r in enumerate(self._all) if (rest := r.beneath(spelling.parts)) is not None
        ]
        if not matches:
            raise escapes("absolute", path, [root.path for root in self._all])
        index, parts = min(matches, key=lambda match: len(match[1]))
        if not parts:
            raise bad_path("is_directory", "the path is the workspace directory itself, not a file in it.")
        return index, parts

    def _innermost(self, index: int, trail: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        """One file has one name: that beneath the innermost root."""
        if len(self._all) == 1:
            return index, trail
        whole = (*self._all[index].spellings[-1], *trail)
        matches = [(i, whole[len(r.spellings[-1]) :]) for i, r in enumerate(self._all) if _holds(r, whole)]
        return min(matches, key=lambda match: len(match[1]))

    def _enclosing(self, index: int) -> tuple[str, ...]:
        """The names between the outermost root around this one and this one."""
        whole = self._all[index].spellings[-1]
        outer = min(len(root.spellings[-1]) for root in self._all if _holds(root, (*whole, "")))
        return whole[outer:]


def refuse_irregular(found: os.stat_result, path: str, *, allow_links: bool = False) -> None:
    """Refuse everything that is not a regular file with one name."""
    if stat.S_ISDIR(found.st_mode):
        raise os_refusal(IsADirectoryError(errno.EISDIR, ""), path=make_printable(path))
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for test, name in _KINDS if test(found.st_mode)), "device")
        raise _denied(
            "special_file", f"{make_printable(path)} is a {kind}, not a regular file.", path, kind=kind
        )
    if found.st_nlink > 1 and not allow_links:
        raise _denied(
            "hard_linked",
            f"{make_printable(path)} has a second name (hard link), which would keep the old content.",
            path,
            action="ask_user",
            next_step=ask_user(
                f"whether {make_printable(path)} may lose its hard link (copy it, then rename the copy over it)."
            ),
        )


def _denied(
    reason: str,
    message: str,
    path: str,
    action: SuggestedAction = "fix_syntax",
    next_step: str = call_again(path=FILL),
    **context: Any,
) -> ToolError:
    return refuse(
        "policy_violation",
        reason,
        message,
        next_step=next_step,
        suggested_action=action,
        reason_hint="permission",
        path=make_printable(path),
        **context,
    )


def _replaced(root: Root) -> ToolError:
    if not os.path.lexists(root.path):
        return refuse(
            "not_found",
            "workspace_gone",
            f"the workspace directory {root.path} was moved or removed.",
            next_step=ask_user("to put the workspace directory back, or to start Perdure where it is now."),
            suggested_action="ask_user",
            errno="ESTALE",  # not what was found at a path: recovery must not take it for that
        )
    return refuse(
        "conflict",
        "workspace_replaced",
        f"another directory has taken the place of the workspace {root.path}; the next call works in that one.",
        next_step=call_again(),
        suggested_action="retry_later",
        errno="ESTALE",
    )


def _opened(path: str, by_kernel: bool) -> Root:
    fd = directories.open(path, directories.PLACE | directories.DIRECTORY)
    spelt, real = (
        tuple(part for part in text.split("/") if part)
        for text in (os.path.abspath(path), os.path.realpath(path))
    )
    facts = os.fstat(fd)
    return Root(fd, facts.st_dev, facts.st_ino, (spelt, real), by_kernel)


def _holds(root: Root, whole: tuple[str, ...]) -> bool:
    inner = root.spellings[-1]
    return len(inner) < len(whole) and whole[: len(inner)] == inner


def _remove_directories(root: Root, paths: Sequence[str]) -> tuple[str, ...]:
    gone: list[str] = []
    for path in sorted(paths, key=lambda p: p.count("/"), reverse=True):
        fd = os.dup(root.fd)
        *parents, name = path.split("/")
        try:
            for parent in parents:
                inner = enter(root, fd, parent)
                os.close(fd)
                fd = inner
            directories.rmdir(name, dir_fd=fd)
            gone.append(path)
        except OSError:
            pass  # not empty, or not there: either way it is not ours to remove
        finally:
            os.close(fd)
    return tuple(gone)


def rooted(path: str) -> tuple[int, str]:
    """A path as rows name it: which root, and the way from there."""
    first, _, rest = path.partition("/")
    return (int(first[1:]), rest) if first.startswith("@") and first[1:].isdigit() else (0, path)
