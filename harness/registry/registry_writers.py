"""The writers of the registry storm: processes of ours, and a foreign program that takes no lock of ours.

Each prints the changes it made, with times, and nothing else. Processes of ours can be delayed at the points where
another program can come in between, as on an overloaded machine. And they can be given a bug.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from harness.seeded_bugs import SeededBugs, replace
from perdure.platform.files import exchange
from perdure.registry.entry import Entry
from perdure.registry.errors import AlreadyInstalled, RegistryError
from perdure.registry.file_lock import FileLock
from perdure.registry.filesystem import FileBackend, open_markdown
from perdure.registry.templates import Template
from perdure.storage.files import pending

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


class Write(msgspec.Struct, frozen=True, array_like=True):
    """One section of the foreign program, and when it read and wrote the file. `is_stale`: it wrote its copy without
    a comparison. `is_in_backup`: it wrote into our file before the swap back, and a backup holds the section."""

    name: str
    read_at: float
    wrote_at: float
    is_stale: bool
    is_in_backup: bool = False


# --- ours ------------------------------------------------------------------------------------------------------


def installer(folder: Path, number: int, rounds: int, late_s: float, broken: str) -> None:
    """Installs `rounds` servers and removes every second one."""
    if broken:
        BUGS[broken].apply()
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
    print(msgspec.json.encode(acts).decode())


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
    from perdure.storage.files import pending
    from perdure.storage.files import swap as exchanging

    for module in (pending, exchanging):
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
    replace(pending, "unexpected", lambda file, expected, **_: None)


@BUGS.add("races")
def skip_comparison_and_locks() -> None:
    """The displaced content is not compared, and no lock is taken."""
    skip_comparison()
    replace(FileLock, "_acquire", lambda self: None)
    replace(pending, "alone", nullcontext)


# --- theirs ----------------------------------------------------------------------------------------------------


def foreigner(folder: Path, style: str) -> None:
    """Adds sections until its input ends."""
    path = folder / FILE
    dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    writes: list[Write] = []
    print("editing", flush=True)
    os.set_blocking(0, False)
    while not _is_stopped():
        if style != "none":
            writes = _checked(path, writes, style)
            name = f"theirs-{len(writes)}"
            read_at = time.monotonic()
            _write(path, dir_fd, style, f"\n## {name}\ncommand: node\nargs: {'y' * 50}\n".encode())
            writes.append(Write(name, read_at, time.monotonic(), style in STALE))
        time.sleep(random.uniform(*PAUSE_S))
    print(msgspec.json.encode(_checked(path, writes, style)).decode(), flush=True)


def _checked(path: Path, writes: Sequence[Write], style: str) -> list[Write]:
    """Wait until all sections are back: a process of ours may be between its exchange and the swap back. A section that
    stays missing is left to the judge, unless it was written into our file and is in a backup."""
    checked = list(writes)
    deadline = time.monotonic() + SWAP_BACK_S
    while True:
        text = path.read_bytes()
        missing = [
            index
            for index, write in enumerate(checked)
            if not write.is_in_backup and f"## {write.name}\n".encode() not in text
        ]
        if style in IN_PLACE:
            backed_up = _backed_up(path) if missing else b""
            for index in missing:
                if f"## {checked[index].name}\n".encode() in backed_up:
                    checked[index] = structs.replace(checked[index], is_in_backup=True)
        if not missing or time.monotonic() > deadline:
            return checked
        time.sleep(0.005)


def _backed_up(path: Path) -> bytes:
    contents = []
    for backup in (path.parent / "home" / "backups").glob("*/*"):
        with suppress(FileNotFoundError):  # an old one that was removed meanwhile
            contents.append(backup.read_bytes())
    return b"".join(contents)


def _write(path: Path, dir_fd: int, style: str, section: bytes) -> None:
    match style:
        case "append":
            with open(path, "ab", buffering=0) as file:
                file.write(section)
        case "in-place":
            _in_place(path, section)
        case "naive" | "slow":
            seen = path.read_bytes()
            time.sleep(THINKING_S if style == "slow" else 0)
            (path.parent / ".foreign").write_bytes(seen + section)
            os.replace(path.parent / ".foreign", path)
        case _:
            _renamed(path, dir_fd, section)


def _renamed(path: Path, dir_fd: int, section: bytes) -> None:
    beside = f".foreign-{os.getpid()}"
    while True:
        seen = path.read_bytes()
        (path.parent / beside).write_bytes(seen + section)
        exchange(dir_fd, beside, path.name)
        if (path.parent / beside).read_bytes() == seen:
            os.unlink(path.parent / beside)
            return
        exchange(dir_fd, beside, path.name)


def _in_place(path: Path, section: bytes) -> None:
    content = path.read_bytes() + section
    with open(path, "wb", buffering=0) as file:
        file.write(content[: len(content) // 2])
        file.write(content[len(content) // 2 :])


def _is_stopped() -> bool:
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False
