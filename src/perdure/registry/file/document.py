"""What the formats of a registry file share: slots with an entry or an error, and reading the file."""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec

from perdure.platform import directories
from perdure.registry.entry import Entry
from perdure.registry.errors import Forbidden, RegistryUnavailable, Unreadable

DUPLICATE = "duplicate"
MAX_BYTES: Final = 1024 * 1024
MAX_SLOTS: Final = 2000
"""Bounds: a host reads the file while its sessions wait."""


class ParsedEntry(msgspec.Struct, frozen=True):
    """One section or member of the file: a server, or the error that keeps it from being one."""

    name: str
    entry: Entry | None
    error: str = ""
    line: int = 0
    """The line where it begins, from 1; 0 if unknown."""


class Document(ABC):
    """A parsed registry file. Every change returns a new text."""

    text: str
    allowed: frozenset[str] | None
    """The commands that may be started; None if the file has no list."""

    @cached_property
    def slots(self) -> tuple[ParsedEntry, ...]:
        """In the order of the file. Of several with one name the first is the entry, the others are duplicates."""
        return mark_duplicates(self._every_slot())

    def _check_count(self, starts: Sequence[int]) -> None:
        if len(starts) > MAX_SLOTS:
            [line] = line_numbers(self.text, [starts[MAX_SLOTS]])
            raise Unreadable(f"line {line}: the file lists more than {MAX_SLOTS:,} servers")

    @abstractmethod
    def slot(self, name: str) -> ParsedEntry | None:
        """The first of this name; the others are not parsed."""

    @abstractmethod
    def _every_slot(self) -> list[ParsedEntry]: ...

    @abstractmethod
    def with_entries(self, *entries: Entry) -> str:
        """With new entries, whose names are free."""

    @abstractmethod
    def without_entries(self, *names: str) -> str:
        """Without these names, their duplicates included: one of those would become the entry."""

    @abstractmethod
    def with_enabled(self, name: str, enabled: bool) -> str: ...

    @abstractmethod
    def with_replaced(self, entry: Entry) -> str:
        """With this entry in place of the one of the same name."""


def line_numbers(text: str, offsets: Sequence[int]) -> list[int]:
    """The line numbers, from 1, of sorted offsets in a text; in one pass."""
    ending = "\n" if "\n" in text else "\r"
    numbers, line, done = [], 1, 0
    for offset in offsets:
        line += text.count(ending, done, offset)
        done = offset
        numbers.append(line)
    return numbers


def mark_duplicates(slots: Sequence[ParsedEntry]) -> tuple[ParsedEntry, ...]:
    seen: set[str] = set()
    marked = []
    for slot in slots:
        marked.append(ParsedEntry(slot.name, None, DUPLICATE, slot.line) if slot.name in seen else slot)
        seen.add(slot.name)
    return tuple(marked)


# --- Reading a registry's file. Editing is in other modules, which a host does not import ---


MAX_FILE_BYTES: Final = 8 * 1024 * 1024
WAIT_S: Final = 30.0
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def read_bytes(path: str) -> bytes | None:
    """The content of a regular file; None if there is none. Raises Unreadable for anything else."""
    fd = open_file(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            return file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise registry_error(error, os.path.basename(path)) from None


def open_file(path: str) -> int | None:
    """A descriptor of a regular file of a bounded size; None if there is no file."""
    name = os.path.basename(path)
    try:
        fd = directories.open(
            path, os.O_RDONLY | directories.NONBLOCK
        )  # a pipe without a writer does not block
    except FileNotFoundError:
        return None
    except OSError as error:
        raise registry_error(error, name) from None
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_size <= MAX_FILE_BYTES:
        return fd
    os.close(fd)
    is_large = stat.S_ISREG(info.st_mode)
    raise Unreadable(f"{name} is larger than {MAX_FILE_BYTES} bytes" if is_large else f"{name} is not a file")


def registry_error(error: OSError, name: str) -> Forbidden | RegistryUnavailable | Unreadable:
    if error.errno in _FORBIDDEN:
        return Forbidden(f"{name}: {error.strerror}", hint="check its permissions")
    if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
        return Unreadable(f"{name} is not a file")
    return RegistryUnavailable(f"{name}: {error.strerror or 'input or output failed'}")
