"""Who takes part in a storm over the registry's file: our processes, and a program that knows nothing of them.

Each prints what it did, with when, and nothing else. Ours can be made slow, as on a machine that has more to do than it
can: then it stops at the places where another program can come in between. And they can have a bug.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from perdure.registry.entry import Entry
from perdure.registry.errors import AlreadyInstalled, RegistryError
from perdure.registry.filesystem import FileBackend, open_markdown
from perdure.registry.templates import Template
from perdure.storage.files.syscalls import exchange

FILE: Final = "mcp.md"
CERTAIN: Final = ("renamed", "append")
STYLES: Final = (*CERTAIN, "in-place", "naive", "slow")
THINKING_S: Final = 0.1
PAUSE_S: Final = (0.01, 0.15)
TRIES: Final = 5
SLOW_POINTS: Final = ("write.before_exchange", "write.exchanged", "write.swapped_back")


class Act(msgspec.Struct, frozen=True, array_like=True):
    """A change of one of ours that was acknowledged: from then on the entry shall be there, or be gone."""

    name: str
    is_there: bool
    ended_at: float


class Write(msgspec.Struct, frozen=True, array_like=True):
    """One section of the foreign program's, and when it had read the file that it wrote it into."""

    name: str
    read_at: float
    wrote_at: float


# --- ours ------------------------------------------------------------------------------------------------------


def installer(folder: Path, number: int, rounds: int, late_s: float, broken: str) -> None:
    """Installs `rounds` servers and removes every second one."""
    _BUGS[broken]()
    if late_s:
        _slow_down(late_s)
    backend = open_markdown(str(folder / FILE), os.environ)
    acts = []
    for turn in range(rounds):
        name = f"ours-{number}-{turn}"
        _install(backend, Entry(name=name, command=Template("python"), args=(Template("x" * 50),)))
        acts.append(Act(name, True, time.monotonic()))
        if turn % 2:
            _patiently(lambda name=name: backend.uninstall(name))  # type: ignore[misc]
            acts.append(Act(name, False, time.monotonic()))
    print(msgspec.json.encode(acts).decode())


def _install(backend: FileBackend, entry: Entry) -> None:
    """What was told to be unavailable may have been made all the same: who tries again looks."""
    try:
        backend.install(entry)
        return
    except RegistryError as error:
        if not error.retryable:
            raise
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
    from perdure.storage.files import exchange as exchanging
    from perdure.storage.files import pending

    for module in (pending, exchanging):
        for name in ("point", "passed"):
            setattr(module, name, _late(getattr(module, name), late_s))


def _late(point: Callable[[str], None], late_s: float) -> Callable[[str], None]:
    def late(name: str) -> None:
        point(name)
        if name in SLOW_POINTS:
            time.sleep(late_s)

    return late


def _forget() -> None:
    """Nobody brings back what a stale copy took away."""
    from perdure.registry.standing import Keeper

    Keeper.undone = lambda self, data, standing: []  # type: ignore[method-assign]


def _show() -> None:
    """Ours can be read before it is verified, and nobody looks after what that hides."""
    from perdure.registry.turns import Turn
    from perdure.storage.files import veil

    veil._leased = lambda fd: False
    Turn.adopt = lambda self, steps: None  # type: ignore[method-assign]


_BUGS: Final[dict[str, Callable[[], None]]] = {"": lambda: None, "forgets": _forget, "shows": _show}
BUGS: Final = tuple(name for name in _BUGS if name)


# --- theirs ----------------------------------------------------------------------------------------------------


def foreigner(folder: Path, style: str) -> None:
    """Adds sections until its input ends."""
    path = folder / FILE
    dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    writes: list[Write] = []
    print("editing", flush=True)
    os.set_blocking(0, False)
    while not _is_told():
        name = f"theirs-{len(writes)}"
        section = f"\n## {name}\ncommand: node\nargs: {'y' * 50}\n".encode()
        read_at = time.monotonic()
        match style:
            case "append":
                with open(path, "ab", buffering=0) as file:
                    file.write(section)
            case "in-place":
                _in_place(path, section)
            case "naive" | "slow":
                seen = path.read_bytes()
                time.sleep(THINKING_S if style == "slow" else 0)
                (folder / ".foreign").write_bytes(seen + section)
                os.replace(folder / ".foreign", path)
            case _:
                _renamed(path, dir_fd, section)
        writes.append(Write(name, read_at, time.monotonic()))
        time.sleep(random.uniform(*PAUSE_S))
    print(msgspec.json.encode(writes).decode(), flush=True)


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


def _is_told() -> bool:
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False
