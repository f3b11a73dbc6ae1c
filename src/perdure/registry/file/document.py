"""What the formats of a registry file have in common: slots that hold an entry or the reason why there is none."""

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
"""Bounds of what is read: a host reads it while its sessions wait."""


class ParsedEntry(msgspec.Struct, frozen=True):
    """One place in the file that stands for a server."""

    name: str
    entry: Entry | None
    error: str = ""
    line: int = 0
    """Where it begins in the file, from 1; 0 where that is not known."""


class Document(ABC):
    """A registry file as it was read. Every change gives a new text and leaves this one."""

    text: str
    allowed: frozenset[str] | None
    """The commands that may be started; None where the file says nothing."""

    @cached_property
    def slots(self) -> tuple[ParsedEntry, ...]:
        """Every place, in order. Of those with one name the first is the entry, the rest are duplicates."""
        return mark_duplicates(self._every_slot())

    def _check_count(self, starts: Sequence[int]) -> None:
        if len(starts) > MAX_SLOTS:
            [line] = line_numbers(self.text, [starts[MAX_SLOTS]])
            raise Unreadable(f"line {line}: the file lists more than {MAX_SLOTS:,} servers")

    @abstractmethod
    def slot(self, name: str) -> ParsedEntry | None:
        """The first of this name; the others are not even looked at."""

    @abstractmethod
    def _every_slot(self) -> list[ParsedEntry]: ...

    @abstractmethod
    def installed(self, *entries: Entry) -> str:
        """With one more entry or several, whose names are not there."""

    @abstractmethod
    def uninstalled(self, *names: str) -> str: ...

    @abstractmethod
    def enabled(self, name: str, enabled: bool) -> str:
        """With the switch of an entry that is there."""

    @abstractmethod
    def replaced(self, entry: Entry) -> str:
        """With another entry in the place of the one of the same name."""


def line_numbers(text: str, places: Sequence[int]) -> list[int]:
    """The lines, from 1, of places in a text, which are in order; in one pass."""
    ending = "\n" if "\n" in text else "\r"
    found, line, done = [], 1, 0
    for place in places:
        line += text.count(ending, done, place)
        done = place
        found.append(line)
    return found


def mark_duplicates(slots: Sequence[ParsedEntry]) -> tuple[ParsedEntry, ...]:
    seen: set[str] = set()
    found = []
    for slot in slots:
        found.append(ParsedEntry(slot.name, None, DUPLICATE, slot.line) if slot.name in seen else slot)
        seen.add(slot.name)
    return tuple(found)


# --- Reading a registry's file. Nothing of what it takes to change one: a host only reads ---


MAX_FILE_BYTES: Final = 8 * 1024 * 1024
WAIT_S: Final = 30.0
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def read_bytes(path: str) -> bytes | None:
    """What is in a regular file; None where there is none. Raises Unreadable for anything else."""
    fd = open_file(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            return file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise registry_error(error, os.path.basename(path)) from None


def open_file(path: str) -> int | None:
    """A descriptor of a regular file of a size that makes sense; None where there is no file."""
    name = os.path.basename(path)
    try:
        fd = directories.open(path, os.O_RDONLY | directories.NONBLOCK)  # without waiting for a pipe's writer
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
