"""The writers of the registry storm: processes of ours, and a foreign program that takes no lock of ours.

Each prints the changes it made, with times, and nothing else. A process of ours also prints when it swapped back. All
can be delayed at the points where another program can come in between, as on an overloaded machine. And processes of
ours can be given a bug.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from harness.seeded_bugs import SeededBugs, after, before, replace
from perdure.platform.files import exchange
from perdure.registry.entry import Entry
from perdure.registry.errors import AlreadyInstalled, RegistryError
from perdure.registry.file.backend import FileBackend, open_markdown
from perdure.registry.file.lock import FileLock
from perdure.registry.templates import Template
from perdure.storage.files import pending, swap

FILE: Final = "mcp.md"
STYLES: Final = ("none", "renamed", "append", "in-place", "naive", "slow")
STALE: Final = ("in-place", "naive", "slow")
IN_PLACE: Final = ("append", "in-place")
THINKING_S: Final = 0.1
PAUSE_S: Final = (0.01, 0.15)
TRIES: Final = 5
SWAP_BACK_S: Final = 5.0
SLOW_POINTS: Final = ("write.before_exchange", "write.exchanged", "write.swapped_back")


class Act(msgspec.Struct, frozen=True, array_like=True):
    """An acknowledged change of ours: from `ended_at` on the entry must be there, or be gone."""

    name: str
    is_there: bool
    began_at: float
    ended_at: float


class SwapBack(msgspec.Struct, frozen=True, array_like=True):
    """The time in which a name held our content before it was swapped back: a foreign program had changed the file."""

    exchanged_at: float
    swapped_back_at: float


class Report(msgspec.Struct, frozen=True, array_like=True):
    """The output of one process of ours."""

    acts: list[Act]
    swap_backs: list[SwapBack]


class Write(msgspec.Struct, frozen=True, array_like=True):
    """One section of the foreign program, and when it read and wrote the file. `is_stale`: it wrote its copy without
    a comparison. `lost_names`: its own sections that the content it read was the first to lack, and that its write
    therefore drops. `is_in_backup`: it wrote into our file before the swap back, and a backup holds the section."""

    name: str
    read_at: float
    read_ended_at: float
    wrote_at: float
    is_stale: bool
    lost_names: tuple[str, ...] = ()
    is_in_backup: bool = False


# --- ours ------------------------------------------------------------------------------------------------------


def installer(folder: Path, number: int, rounds: int, late_s: float, broken: str) -> None:
    """Installs `rounds` servers and removes every second one."""
    if broken:
        BUGS[broken].apply()
    swap_backs = _record_swap_backs()
    if late_s:
        _slow_down(late_s)
    backend = open_markdown(str(folder / FILE), os.environ)
    acts = []
    for turn in range(rounds):
        name = f"ours-{number}-{turn}"
        began_at = time.monotonic()
        _install(backend, Entry(name=name, command=Template("python"), args=(Template("x" * 50),)))
        acts.append(Act(name, True, began_at, time.monotonic()))
        if turn % 2:
            began_at = time.monotonic()
            _patiently(lambda name=name: backend.uninstall(name))  # type: ignore[misc]
            acts.append(Act(name, False, began_at, time.monotonic()))
    print(msgspec.json.encode(Report(acts, swap_backs)).decode())


def _record_swap_backs() -> list[SwapBack]:
    """Record each exchange that is swapped back. The returned list grows with every swap."""
    swap_backs: list[SwapBack] = []
    exchanged_at = 0.0

    def begin(*_: object) -> None:
        nonlocal exchanged_at
        exchanged_at = time.monotonic()

    before(pending, "exchange", begin)
    after(swap, "_swap", lambda *_: swap_backs.append(SwapBack(exchanged_at, time.monotonic())))
    return swap_backs


def _install(backend: FileBackend, entry: Entry) -> None:
    """An entry of this name can be there already: a failed attempt may have been applied, and a foreign program that
    read our file before the swap back may have written our entry."""
    try:
        _patiently(lambda: backend.install(entry))
    except AlreadyInstalled:
        if backend.load(entry.name) != entry:
            raise


def _patiently(step: Callable[[], object]) -> None:
    """What an agent does with an error that says that a second try may mend it."""
    for tries_left in reversed(range(TRIES)):
        try:
            step()
            return
        except RegistryError as error:
            if not error.retryable or not tries_left:
                raise


def _slow_down(late_s: float) -> None:
    for module in (pending, swap):
        for name in ("point", "passed"):
            setattr(module, name, _late(getattr(module, name), late_s))


def _late(point: Callable[[str], None], late_s: float) -> Callable[[str], None]:
    def late(name: str) -> None:
        point(name)
        if name in SLOW_POINTS:
            time.sleep(late_s)

    return late


BUGS: Final = SeededBugs()


@BUGS.add("overwrites")
def skip_comparison() -> None:
    """The displaced content is not compared."""
    replace(swap, "mismatch_reason", lambda file, expected, **_: None)


@BUGS.add("races")
def skip_comparison_and_locks() -> None:
    """The displaced content is not compared, and no lock is taken."""
    skip_comparison()
    replace(FileLock, "_acquire", lambda self: None)
    replace(pending, "directory_lock", nullcontext)


# --- theirs ----------------------------------------------------------------------------------------------------


class Read(NamedTuple):
    content: bytes
    began_at: float
    ended_at: float


def foreigner(folder: Path, style: str, late_s: float) -> None:
    """Adds sections until its input ends."""
    path = folder / FILE
    dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    writes: list[Write] = []
    print("editing", flush=True)
    os.set_blocking(0, False)
    while not _is_stopped():
        if style != "none":
            writes = _checked(path, writes, style)
            time.sleep(random.uniform(0, late_s))
            writes.append(_add_section(path, dir_fd, style, writes))
        time.sleep(random.uniform(*PAUSE_S))
    print(msgspec.json.encode(_checked(path, writes, style)).decode(), flush=True)


def _add_section(path: Path, dir_fd: int, style: str, writes: Sequence[Write]) -> Write:
    name = f"theirs-{len(writes)}"
    began_at = time.monotonic()
    read = _write(path, dir_fd, style, f"\n## {name}\ncommand: node\nargs: {'y' * 50}\n".encode())
    wrote_at = time.monotonic()
    is_stale = style in STALE
    if read is None:
        return Write(name, began_at, began_at, wrote_at, is_stale)
    lost_names = tuple(_missing(read.content, writes).keys() - _lost(writes))
    return Write(name, read.began_at, read.ended_at, wrote_at, is_stale, lost_names)


def _missing(content: bytes, writes: Sequence[Write]) -> dict[str, int]:
    """The names of the sections that `content` lacks, with their places in `writes`."""
    return {
        write.name: index
        for index, write in enumerate(writes)
        if not write.is_in_backup and f"## {write.name}\n".encode() not in content
    }


def _lost(writes: Sequence[Write]) -> set[str]:
    return {name for write in writes for name in write.lost_names}


def _checked(path: Path, writes: Sequence[Write], style: str) -> list[Write]:
    """Wait until all sections are back: a process of ours may be between its exchange and the swap back. A section that
    stays missing is left to the judge, unless it was written into our file and is in a backup. Sections that the
    program dropped itself, because the content it read lacked them, are not waited for."""
    checked = list(writes)
    deadline = time.monotonic() + SWAP_BACK_S
    while True:
        missing = _missing(path.read_bytes(), checked)
        if style in IN_PLACE:
            backed_up = _backed_up(path) if missing else b""
            for name, index in missing.items():
                if f"## {name}\n".encode() in backed_up:
                    checked[index] = structs.replace(checked[index], is_in_backup=True)
        if not missing.keys() - _lost(checked) or time.monotonic() > deadline:
            return checked
        time.sleep(0.005)


def _backed_up(path: Path) -> bytes:
    contents = []
    for backup in (path.parent / "home" / "backups").glob("*/*"):
        with suppress(FileNotFoundError):  # an old one that was removed meanwhile
            contents.append(backup.read_bytes())
    return b"".join(contents)


def _write(path: Path, dir_fd: int, style: str, section: bytes) -> Read | None:
    """Add a section. Return the read that the new content was made from, if the style reads the file."""
    match style:
        case "append":
            with open(path, "ab", buffering=0) as file:
                file.write(section)
            return None
        case "in-place":
            return _in_place(path, section)
        case "naive" | "slow":
            read = _read(path)
            time.sleep(THINKING_S if style == "slow" else 0)
            (path.parent / ".foreign").write_bytes(read.content + section)
            os.replace(path.parent / ".foreign", path)
            return read
        case _:
            return _renamed(path, dir_fd, section)


def _renamed(path: Path, dir_fd: int, section: bytes) -> Read:
    temp_name = f".foreign-{os.getpid()}"
    while True:
        read = _read(path)
        (path.parent / temp_name).write_bytes(read.content + section)
        exchange(dir_fd, temp_name, path.name)
        if (path.parent / temp_name).read_bytes() == read.content:
            os.unlink(path.parent / temp_name)
            return read
        exchange(dir_fd, temp_name, path.name)


def _in_place(path: Path, section: bytes) -> Read:
    read = _read(path)
    content = read.content + section
    with open(path, "wb", buffering=0) as file:
        file.write(content[: len(content) // 2])
        file.write(content[len(content) // 2 :])
    return read


def _read(path: Path) -> Read:
    began_at = time.monotonic()
    content = path.read_bytes()
    return Read(content, began_at, time.monotonic())


def _is_stopped() -> bool:
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False
