"""A walk over a workspace's roots that compares every covered file with what was last seen of it.

Nothing is read but names, `lstat` and files of patterns: an unchanged file costs one system call. No link is followed
and no other file system is entered: each folder is opened beneath its root's descriptor, and what is found in it is
examined through the folder's own descriptor. A folder that is replaced by a link meanwhile cannot be opened.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from perdure.platform import directories
from perdure.platform.files import open_beneath
from perdure.storage.errors import FileError
from perdure.storage.files.temp_names import PREFIX
from perdure.storage.timeline import FileKind, NotCovered, TrackedFile
from perdure.text.printable import make_printable
from perdure.workspace.paths.roots import Roots, rooted
from perdure.workspace.paths.walk import Root, enter
from perdure.workspace.timeline.coverage import MOST_IN_IGNORED, SMALL, Coverage, Reason, is_ignored
from perdure.workspace.timeline.gitignore import MOST_BYTES, Patterns

_FOLDER: Final = os.O_RDONLY | directories.DIRECTORY | directories.NOFOLLOW
_FILE: Final = os.O_RDONLY | directories.NOFOLLOW | directories.NONBLOCK
_LONG: Final = 4000
"""A path of more bytes than this is opened name by name: the kernel takes 4,095."""
_TICK_NS: Final = 20_000_000
"""A file system's clock advances in steps of at most this, unless its times are whole seconds."""
_COARSE_NS: Final = 2_000_000_000
RACY: Final = -1
"""The ctime of a file that was changed just before it was read: a second change might not show in its times."""


class Entry(NamedTuple):
    """A file, link or folder as `lstat` tells it."""

    path: str
    kind: FileKind
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int

    def matches(self, info: os.stat_result) -> bool:
        return kind_of(info) == self.kind and self == _entry(self.path, self.kind, info)

    def tracked(self, sha: bytes | None, read_ns: int, git_oid: str | None = None) -> TrackedFile:
        """`read_ns` is when it was examined."""
        ctime_ns = self.ctime_ns
        if self.kind != "directory" and is_racy(self.mtime_ns, ctime_ns, read_ns):
            ctime_ns = RACY
        return TrackedFile(
            self.path, self.kind, self.size, self.mtime_ns, ctime_ns, self.inode, self.mode, sha, git_oid
        )


class Scan(NamedTuple):
    """`new` are covered files that are not tracked, `differing` tracked ones whose `lstat` changed, `unread`
    tracked ones whose content was never kept. `gone` are tracked and no longer there; `left` are there and no
    longer covered. `outgrown` are tracked and above a limit now."""

    new: list[Entry]
    differing: list[Entry]
    unread: list[Entry]
    outgrown: list[Entry]
    gone: list[TrackedFile]
    left: list[str]
    not_covered: list[NotCovered]
    files: int


def kind_of(info: os.stat_result) -> FileKind | None:
    """None for a special file."""
    if stat.S_ISREG(info.st_mode):
        return "file"
    if stat.S_ISDIR(info.st_mode):
        return "directory"
    return "link" if stat.S_ISLNK(info.st_mode) else None


def is_racy(mtime_ns: int, ctime_ns: int, read_ns: int) -> bool:
    is_coarse = ctime_ns % 1_000_000_000 == 0
    return max(mtime_ns, ctime_ns) >= read_ns - (_COARSE_NS if is_coarse else _TICK_NS)


def _is_unchanged(known: TrackedFile, info: os.stat_result) -> bool:
    """A file keeps its kind as long as its inode and ctime are the same. A folder is never found unchanged here."""
    return (
        known.mtime_ns == info.st_mtime_ns
        and known.ctime_ns == info.st_ctime_ns
        and known.inode == info.st_ino
        and known.size == info.st_size
        and known.mode == info.st_mode & 0o7777
    )


def entry_of(path: str, info: os.stat_result) -> Entry | None:
    """None for a special file."""
    kind = kind_of(info)
    return _entry(path, kind, info) if kind is not None else None


def _entry(path: str, kind: FileKind, info: os.stat_result) -> Entry:
    mode = stat.S_IMODE(info.st_mode)
    if kind == "directory":
        return Entry(path, kind, 0, 0, 0, 0, mode)
    return Entry(path, kind, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, mode)


class Scanner:
    """`deadline` limits the walk of folders that were never walked, by `time.monotonic`; None for no limit."""

    def __init__(
        self,
        roots: Roots,
        coverage: Coverage,
        tracked: Mapping[str, TrackedFile],
        deadline: float | None = None,
        known_folders: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._roots = roots
        self._coverage = coverage
        self._deadline = deadline
        self._is_known = known_folders
        self._missing = dict(tracked)
        self._others = {(root.dev, root.ino) for root in roots}
        self._new: list[Entry] = []
        self._differing: list[Entry] = []
        self._unread: list[Entry] = []
        self._outgrown: list[Entry] = []
        self._not_covered: dict[str, tuple[Reason, int | None]] = {}
        self._files = 0

    def run(self) -> Scan:
        for number, root in enumerate(self._roots):
            self._walk_from(root, f"@{number}/" if number else "", self._top(root))
        return self._result()

    def _result(self) -> Scan:
        gone, left = self._sort_missing()
        places = [NotCovered(path, *found) for path, found in sorted(self._not_covered.items())]
        return Scan(
            self._new,
            self._differing,
            self._unread,
            self._outgrown,
            gone,
            left,
            places,
            self._files,
        )

    # --- the walk ------------------------------------------------------------------------------------------

    def _top(self, root: Root) -> WalkedFolder:
        return WalkedFolder("", _excludes(root), False, False)

    def _walk_from(self, root: Root, prefix: str, top: WalkedFolder) -> None:
        """`prefix` begins the names of the root's files in the journal."""
        pending = [top]
        later: list[WalkedFolder] = []
        while pending or later:
            if not pending:
                folder = later.pop()
                if self._deadline is not None and time.monotonic() > self._deadline:
                    self._leave_out(prefix + folder.path, "not_yet")
                    continue
            else:
                folder = pending.pop()
            for inner in self._enter(root, prefix, folder):
                is_known = self._deadline is None or self._is_known(prefix + inner.path)
                (pending if is_known else later).append(inner)

    def _enter(self, root: Root, prefix: str, folder: WalkedFolder) -> list[WalkedFolder]:
        try:
            fd = open_folder(root, folder.path)
        except OSError as error:
            self._refused(prefix + folder.path, error)
            return []
        try:
            if folder.path and self._is_other_root(fd):
                return []
            with _not_exhausted():
                names = os.listdir(fd)
            if ".gitignore" in names:
                folder = self._add_patterns(fd, folder)
            return self._examine(prefix, folder, fd, names, root)
        except OSError as error:
            self._refused(prefix + folder.path, error)
            return []
        finally:
            os.close(fd)

    def _add_patterns(self, fd: int, folder: WalkedFolder) -> WalkedFolder:
        """With the patterns of its own `.gitignore`."""
        own = _patterns(fd, ".gitignore", f"{folder.path}/" if folder.path else "")
        return folder._replace(chain=(own, *folder.chain)) if own else folder

    def _examine(
        self, prefix: str, folder: WalkedFolder, fd: int, names: list[str], root: Root
    ) -> list[WalkedFolder]:
        inner: list[WalkedFolder] = []
        base = f"{folder.path}/" if folder.path else ""
        missing, max_file = self._missing, self._coverage.max_file
        is_plain = not folder.is_ignored and not folder.is_left_out
        settings = self._coverage
        is_quick = is_plain and not settings.has_ignore
        full_base = prefix + base
        files = 0
        for name in names:
            path = full_base + name
            try:
                info = directories.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._refused(path, error)
                continue
            known = missing.get(path)
            if (  # the usual case, written out: it runs for every file of the workspace
                known is not None
                and known.ctime_ns == info.st_ctime_ns
                and known.mtime_ns == info.st_mtime_ns
                and known.inode == info.st_ino
                and known.size == info.st_size <= max_file
                and known.mode == info.st_mode & 0o7777
                and is_quick
            ):
                del missing[path]
                files += 1
                if known.sha is None and known.git_oid is None:
                    self._unread.append(_entry(path, known.kind, info))
                continue
            inside = base + name
            kind = kind_of(info)
            if kind == "directory":
                made = self._folder(prefix, inside, name, folder, root)
                if made is None:
                    continue
                if not made.is_left_out:
                    self._compare(_entry(path, kind, info), known)
                inner.append(made)
                continue
            if not name.isascii() and not _is_text(name):
                self._leave_out(make_printable(path), "name")
                continue
            if kind is None:
                self._leave_out(path, "special")
                continue
            if name.startswith(PREFIX):
                continue
            if name == ".git":  # of a worktree or a submodule
                self._leave_out(path, "git")
                continue
            size = info.st_size
            limit = max_file
            reason = settings.left_out(inside, name, False)
            if (not is_plain or reason is not None or known is None) and not settings.is_kept(
                inside, name, False
            ):
                if folder.is_left_out:
                    continue
                if reason is not None:
                    self._leave_out(path, reason)
                    continue
                if folder.is_ignored or is_ignored(folder.chain, inside, name, False):
                    limit = SMALL
            if size > limit and kind == "file":
                self._leave_out(path, "ignored" if limit == SMALL and size <= max_file else "too_large")
                if known is not None:
                    del missing[path]
                    self._outgrown.append(_entry(path, kind, info))
                continue
            files += 1
            if known is not None and _is_unchanged(known, info):
                del missing[path]
                if known.sha is None and known.git_oid is None:
                    self._unread.append(_entry(path, kind, info))
                continue
            self._compare(_entry(path, kind, info), known)
        self._files += files
        return inner

    def _compare(self, entry: Entry, known: TrackedFile | None) -> None:
        if known is None:
            self._new.append(entry)
            return
        del self._missing[entry.path]
        if entry.kind == known.kind == "directory" and entry.mode == known.mode:
            return
        if known.kind == "file" and known.sha is None and known.git_oid is None:
            self._unread.append(entry)
        else:
            self._differing.append(entry)

    def _folder(
        self, prefix: str, inside: str, name: str, parent: WalkedFolder, root: Root
    ) -> WalkedFolder | None:
        """How to walk a folder; None where it is left out."""
        coverage = self._coverage
        if not name.isascii() and not _is_text(name):
            self._leave_out(make_printable(prefix + inside), "name")
            return None
        fixed = coverage.fixed_folder(inside, name)
        if fixed is not None:
            self._leave_out(prefix + inside, fixed)
            return None
        if coverage.is_kept(inside, name, True):
            return WalkedFolder(inside, (), False, False)
        reason = coverage.left_out(inside, name, True)
        if parent.is_left_out or reason is not None:
            if reason is not None and not parent.is_left_out:
                self._leave_out(prefix + inside, reason)
            return WalkedFolder(inside, (), False, True) if coverage.may_keep_beneath(inside) else None
        if parent.is_ignored:
            return WalkedFolder(inside, parent.chain, True, False)
        if is_ignored(parent.chain, inside, name, True):
            if _has_many(root, inside):
                self._leave_out(prefix + inside, "ignored")
                return WalkedFolder(inside, (), False, True) if coverage.may_keep_beneath(inside) else None
            return WalkedFolder(inside, parent.chain, True, False)
        return WalkedFolder(inside, parent.chain, False, False)

    # --- what is not covered -------------------------------------------------------------------------------

    def _leave_out(self, path: str, reason: Reason, files: int | None = None) -> None:
        self._not_covered[path] = (reason, files)

    def _refused(self, path: str, error: OSError) -> None:
        """What vanished meanwhile, or is no folder any more, is found by the next scan as it is then."""
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            self._leave_out(path, "not_yet")
        elif error.errno == errno.EXDEV:
            self._leave_out(path, "mount")
        else:
            self._leave_out(path, "unreadable")

    def _is_other_root(self, fd: int) -> bool:
        """Its files have the name beneath the innermost root."""
        if len(self._others) == 1:
            return False
        info = os.fstat(fd)
        return (info.st_dev, info.st_ino) in self._others

    def _sort_missing(self) -> tuple[list[TrackedFile], list[str]]:
        """Tracked files that the walk did not meet: gone, no longer covered, or in a folder that could not be
        entered."""
        gone: list[TrackedFile] = []
        left: list[str] = []
        for path, known in self._missing.items():
            reason = self._reason_above(path)
            if reason is None or (reason == "special" and path in self._not_covered):
                gone.append(known)
            elif reason not in ("not_yet", "unreadable", "mount"):
                left.append(path)
        return gone, left

    def _reason_above(self, path: str) -> Reason | None:
        while path:
            found = self._not_covered.get(path)
            if found is not None:
                return found[0]
            path = path.rpartition("/")[0]
        root = self._not_covered.get("")
        return root[0] if root is not None else None


class WalkedFolder(NamedTuple):
    """A folder to walk. `path` is beneath its root; `chain` has the patterns that count in it, the innermost first.

    In one that `is_left_out` only what `keep` names is covered."""

    path: str
    chain: tuple[Patterns, ...]
    is_ignored: bool
    is_left_out: bool


# --- opening beneath a root ---------------------------------------------------------------------------------------


@contextmanager
def _not_exhausted() -> Iterator[None]:
    """Raises FileError, which no caller takes for a fact about a file, where the system has no descriptor or memory left:
    then the observation fails, and the next one finds the same changes."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise FileError(error) from None
        raise


@_not_exhausted()
def open_folder(root: Root, path: str) -> int:
    """A descriptor to list a folder. Refuses links and other file systems on the way."""
    if root.by_kernel and len(path) < _LONG:
        return open_beneath(root.fd, path or ".", _FOLDER)
    place = _enter_all(root, path)
    try:
        return directories.open(".", _FOLDER, dir_fd=place)
    finally:
        os.close(place)


@_not_exhausted()
def open_file(root: Root, path: str) -> int:
    """A descriptor to read a file. It may be no regular file: the caller looks."""
    if root.by_kernel and len(path) < _LONG:
        return open_beneath(root.fd, path, _FILE)
    parent, name = open_parent(root, path)
    try:
        return directories.open(name, _FILE, dir_fd=parent)
    finally:
        os.close(parent)


@_not_exhausted()
def open_parent(root: Root, path: str) -> tuple[int, str]:
    """A descriptor of a path's folder, which can only be used to reach what is in it, and the last name."""
    folder, _, name = path.rpartition("/")
    if root.by_kernel and len(folder) < _LONG:
        return open_beneath(root.fd, folder or ".", directories.PLACE | directories.DIRECTORY), name
    return _enter_all(root, folder), name


def _enter_all(root: Root, path: str) -> int:
    fd = os.dup(root.fd)
    for name in path.split("/") if path else ():
        try:
            inner = enter(root, fd, name)
        finally:
            os.close(fd)
        fd = inner
    return fd


def examine(roots: Roots, path: str) -> os.stat_result | None:
    """`lstat` of a path as rows name it; None for nothing, and where its folder is none any more."""
    number, inside = rooted(path)
    try:
        parent, name = open_parent(roots[number], inside)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        return directories.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    finally:
        os.close(parent)


def read_link(roots: Roots, path: str) -> bytes:
    number, inside = rooted(path)
    parent, name = open_parent(roots[number], inside)
    try:
        return os.fsencode(directories.readlink(name, dir_fd=parent))
    finally:
        os.close(parent)


# --- patterns and names -------------------------------------------------------------------------------------------


def _excludes(root: Root) -> tuple[Patterns, ...]:
    """`.git/info/exclude`, which counts for the whole root."""
    try:
        fd = open_folder(root, ".git/info")
    except OSError:
        return ()
    try:
        found = _patterns(fd, "exclude", "")
    finally:
        os.close(fd)
    return (found,) if found else ()


def _patterns(dir_fd: int, name: str, folder: str) -> Patterns:
    try:
        with _not_exhausted():
            fd = directories.open(name, _FILE, dir_fd=dir_fd)
    except OSError:
        return Patterns(())
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return Patterns(())
        data = os.read(fd, MOST_BYTES)
    except OSError:
        return Patterns(())
    finally:
        os.close(fd)
    return Patterns(data.decode("utf-8", "surrogateescape").split("\n"), folder)


def _has_many(root: Root, path: str) -> bool:
    """Whether a folder has more entries, at any depth, than an ignored one may have. Stops as soon as it is known."""
    count = 0
    pending: list[str] = [path]
    while pending:
        folder = pending.pop()
        try:
            fd = open_folder(root, folder)
        except OSError:
            continue
        try:
            with _not_exhausted(), os.scandir(fd) as entries:
                for entry in entries:
                    count += 1
                    if count > MOST_IN_IGNORED:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{folder}/{entry.name}")
        except OSError:
            continue
        finally:
            os.close(fd)
    return False


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def parents(path: str) -> Sequence[str]:
    """The folders above a path, the innermost first."""
    found: list[str] = []
    while path := path.rpartition("/")[0]:
        found.append(path)
    return found
