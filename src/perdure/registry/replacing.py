"""Changing a file that others change too: read, plan, and put in place only if nobody was faster.

    change_file(path, plan, holds)

`plan` gets the bytes that are there (None: no file) and gives those that shall be (None: leave it). Our own processes
take turns; against programs that take no lock the content is compared while the two files change places, and the
plan is made anew on what they wrote. While it is compared nobody can open ours, where the system can do that. Kept:
mode, owner, attributes, the target of a symbolic link. The old content is backed up first. A kill at any point leaves
the old file or the new one.

A program that had read the file before our change may write its stale copy afterwards. Of a registry each change brings
back what was undone that way (`perdure.registry.standing`). Of any other file we look again a moment later where somebody
else wrote it a short while ago, and `holds` says whether our change is still in it. And a file that somebody is just
writing is not taken for what it will be.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from typing import Final, NamedTuple

from perdure.model.envelope import ToolError
from perdure.model.fault_points import passed, point
from perdure.registry import backups
from perdure.registry.errors import ChangedMeanwhile, Forbidden, RegistryError, RegistryUnavailable
from perdure.registry.reading import MAX_BYTES, WAIT_S, opened, refused
from perdure.registry.standing import Keeper, Standing, Step
from perdure.registry.turns import Turn
from perdure.storage.files import fidelity
from perdure.storage.files.exchange import Conflict
from perdure.storage.files.identity import Expected
from perdure.storage.files.pending import PendingFile
from perdure.storage.files.syscalls import is_open_for_writing

SETTLE_S: Final = 0.03

Plan = Callable[[bytes | None], bytes | None]
Holds = Callable[[bytes | None], bool]


class Found(NamedTuple):
    """`is_busy`: another program has it open for writing."""

    data: bytes
    facts: fidelity.Facts
    written_at: float
    is_busy: bool = False


class Change(NamedTuple):
    """What is to be changed. Of a registry: which entries, who looks after them, and at least how long.

    `mine` are changes that were made before and are to be looked after once more.
    """

    plan: Plan
    holds: Holds | None = None
    about: tuple[str, ...] = ()
    keeper: Keeper | None = None
    for_s: float = 0.0
    mine: Sequence[Standing] = ()


class Made(NamedTuple):
    """What became of it. `number` is 0 where there was nothing to do, `again` what was brought back."""

    number: int = 0
    again: tuple[str, ...] = ()


def read_file(path: str) -> Found | None:
    """A regular file and its facts; None where there is none. Raises Unreadable for anything else."""
    fd = opened(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            data, facts = file.read(MAX_BYTES + 1), fidelity.capture(fd)
            return Found(data, facts, os.fstat(fd).st_mtime, is_open_for_writing(fd))
        except OSError as error:
            raise refused(error, os.path.basename(path)) from None


def change_file(path: str, plan: Plan, holds: Holds, *, wait_s: float = WAIT_S) -> None:
    """Raises what `plan` raises, before anything is touched, and RegistryError."""
    target = os.path.realpath(path)
    with told(target):
        if read_file(target) is None and plan(None) is None:
            return  # nothing to do, so nothing is made either
        with Turn(target, wait_s=wait_s) as turn:
            made(target, turn, Change(plan, holds), time.monotonic() + wait_s)


@contextmanager
def told(target: str) -> Iterator[None]:
    """What the system refuses, as an error of the registry's."""
    try:
        yield
    except ToolError as error:
        raise _refused_tool(error, os.path.basename(target)) from None
    except OSError as error:
        raise refused(error, os.path.basename(target)) from None


def made(target: str, turn: Turn, change: Change, until: float) -> Made:
    """The change, in our turn."""
    changed = Made()
    tried: list[Step] = []
    is_tried = False
    while True:
        found = _settled(target, until)
        point("registry.read")
        old = found.data if found is not None else None
        if changed.number and (change.holds is None or change.holds(old)):
            return changed
        if is_tried and time.monotonic() > until:
            raise ChangedMeanwhile(
                f"another program keeps changing {os.path.basename(target)}", hint="try again later"
            )
        is_tried = True
        if old is not None:
            turn.found(_sha(old))
        planned = _planned(turn, change, found, tried)
        if planned.data != old:
            number, is_shown = _put(target, turn, found, planned, change)
            tried = planned.steps(change) if is_shown else []
        elif planned.tried:
            number = turn.landed(_sha(old or b""), planned.tried, (), change.for_s)  # it came back by itself
        elif planned.refusal is not None:
            raise planned.refusal
        else:
            return changed
        if number:
            passed("registry.landed")
            if planned.refusal is not None:
                raise planned.refusal
            changed = Made(number, tuple(one.about for one in planned.again))
            if change.holds is None or not turn.is_contended:
                return changed
            time.sleep(SETTLE_S)


class _Planned(NamedTuple):
    """What shall be there, on which base, what it brings back, and why the rest is refused. `tried`: what was tried to
    make of the entries before, and is there."""

    data: bytes | None
    base: bytes | None
    again: list[Standing]
    refusal: RegistryError | None = None
    tried: tuple[Step, ...] = ()

    def steps(self, change: Change) -> list[Step]:
        """What it makes of the entries."""
        if self.tried or change.keeper is None or self.data == self.base:
            return list(self.tried)
        return change.keeper.steps(self.base, self.data, change.about)


def _planned(turn: Turn, change: Change, found: Found | None, tried: list[Step]) -> _Planned:
    """The plan on what is there and was undone. What others lost must come back even where the plan is refused."""
    old = found.data if found is not None else None
    if change.keeper is None:
        new = change.plan(old)
        return _Planned(old if new is None else new, old, [])
    written_at = found.written_at if found is not None else time.time()
    standing = turn.standing(change.mine)
    base, again = turn.restored(change.keeper, old, written_at, standing)
    if tried and change.keeper.is_made(base, tried):
        # Ours stood there by mistake, was taken back, and came back with what another program had read.
        return _Planned(base, base, again, tried=tuple(tried))
    try:
        return _on(base, again, change)
    except RegistryError as error:
        refused = _Planned(base, base, again, error)
    if any(one.about in change.about for one in again):
        # Refused for what was undone: then this is how it is made again.
        others = [one for one in standing if one.about not in change.about]
        try:
            return _on(*turn.restored(change.keeper, old, written_at, others), change)
        except RegistryError:
            pass
    return refused


def _on(base: bytes | None, again: list[Standing], change: Change) -> _Planned:
    new = change.plan(base)
    return _Planned(base if new is None else new, base, again)


def _settled(target: str, until: float) -> Found | None:
    """The file when nobody is writing it: what a program has only half written is nobody's content."""
    while True:
        found = read_file(target)
        if found is None or not found.is_busy:
            again = read_file(target) if found is not None else None
            if found is None or (again is not None and again.data == found.data):
                return found
        if time.monotonic() > until:
            raise ChangedMeanwhile(
                f"another program keeps writing {os.path.basename(target)}", hint="try again later"
            )
        time.sleep(0.001)


class _Put(NamedTuple):
    """The number of what landed; 0 if somebody was faster. Then it may have been seen all the same."""

    number: int = 0
    is_shown: bool = False


def _put(target: str, turn: Turn, found: Found | None, planned: _Planned, change: Change) -> _Put:
    assert planned.data is not None
    if found is not None:
        backups.keep(target, found.data)
        point("registry.backed_up")
    folder, name = os.path.split(target)
    if found is None:
        os.makedirs(folder, exist_ok=True)
    dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        expected = "" if found is None else _sha(found.data)
        turn.begin(expected, _sha(planned.data))
        like = None if found is None else found.facts
        with PendingFile(dir_fd, name, like=like, sync=True, veiled=found is not None) as file:
            file.write(planned.data)
            landed = file.create() if found is None else file.replace_if(Expected(expected))
        return _Put(turn.landed(landed.sha256, planned.steps(change), planned.again, change.for_s))
    except Conflict as conflict:
        with conflict:
            _kept(target, turn, conflict, planned.data, change.keeper)
        return _Put(is_shown=any(shown is None for shown, _ in conflict.mistakes))
    except ToolError as error:
        if error.envelope.context.get("reason") == "file_already_exists":
            return _Put()
        raise
    finally:
        os.close(dir_fd)


def _kept(target: str, turn: Turn, conflict: Conflict, ours: bytes, keeper: Keeper | None) -> None:
    """What lost its name is backed up, and what was hidden for a moment is looked after."""
    for one in conflict.displaced:
        backups.keep(target, _content(one))
    if keeper is not None:
        for shown, meant in conflict.mistakes:
            turn.adopt(keeper.steps(ours if shown is None else _content(shown), _content(meant)))


def _content(file: FileIO) -> bytes:
    file.seek(0)
    return file.read() or b""


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refused_tool(error: ToolError, name: str) -> Forbidden | RegistryUnavailable:
    message = f"{name}: {error.envelope.context.get('message', 'the system refused')}"
    if error.envelope.reason_hint == "permission":
        return Forbidden(message, hint="check its permissions")
    return RegistryUnavailable(message)
