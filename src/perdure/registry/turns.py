"""Whose turn it is to change a file: one process at a time, with a record that survives a kill.

The lock and the record are one file of ours per changed file, in the state directory and not beside it. The record
says what its owner was about to do, so that the next one can tell what a killed process left: an unfinished content,
the old file, or somebody else's newer content that it had just displaced and must be put back.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import structs

from perdure.model.fault_points import point
from perdure.model.learned import learned
from perdure.registry import backups
from perdure.registry.errors import RegistryUnavailable
from perdure.registry.reading import WAIT_S
from perdure.registry.standing import REMEMBERED, Keeper, Standing, Step, made_again, noted
from perdure.storage import temp_names
from perdure.storage.digest import sha256_of
from perdure.storage.files.exchange import open_aside
from perdure.storage.places import private_dir

CONTENDED_S: Final = 5.0
LAG_S: Final = 30.0


class Record(msgspec.Struct, frozen=True):
    """`landed` is the hash of what was last put in place, `foreign_at` when another program's content was last
    found there; `changes` numbers what was changed last, by what it was about, and `standing` is what is still looked
    after. `lag` is how long after a change a stale copy was written over it, `lag_at` when that was seen. The rest
    is set while a change is under way."""

    landed: str = ""
    foreign_at: float = 0.0
    pid: int = 0
    start: int = 0
    expected: str = ""
    planned: str = ""
    number: int = 0
    changes: dict[str, int] = {}
    standing: list[Standing] = []
    lag: float = 0.0
    lag_at: float = 0.0


class Latest(msgspec.Struct, frozen=True):
    """Of a record, what we put in place last, and the number of that change."""

    landed: str = ""
    number: int = 0


def latest(target: str) -> Latest:
    """Without waiting for anybody. What is just being written says nothing."""
    try:
        with open(_record_path(target), "rb") as file:
            return msgspec.json.decode(file.read(), type=learned(Latest))
    except (OSError, msgspec.MsgspecError):
        return Latest()


def _record_path(target: str) -> str:
    name = hashlib.sha256(os.fsencode(target)).hexdigest()[:32]
    return os.path.join(private_dir("registry-turns"), name)


class Turn:
    """Our turn to change one file. Raises RegistryUnavailable if another process holds it for too long."""

    def __init__(self, target: str, *, wait_s: float = WAIT_S) -> None:
        self._target = target
        self._path = _record_path(target)
        self._wait_s = wait_s
        self._fd = -1
        self.record = Record()

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._lock()
            self.record = self._read()
            point("registry.locked")
            if self.record.pid:
                self._settle()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.record.pid:
            self._note_idle(self.record.landed)
        self._close()

    def begin(self, expected: str, planned: str) -> None:
        """Said before anything is put in place: what is expected there, and what will be."""
        owner = temp_names.parsed(temp_names.fresh("x"))
        assert owner is not None
        pid, start, _ = owner.owner
        self._note(structs.replace(self.record, pid=pid, start=start, expected=expected, planned=planned))

    def found(self, sha256: str) -> None:
        """What was read before a change: whether it is ours shows who else is at it."""
        if sha256 != self.record.landed:
            self.record = structs.replace(self.record, foreign_at=time.time())

    @property
    def is_contended(self) -> bool:
        """Whether another program wrote this file a short while ago."""
        return 0 <= time.time() - self.record.foreign_at < CONTENDED_S

    @property
    def lag(self) -> float:
        """How long after a change another program wrote a stale copy over it, at worst, in the last while."""
        return self.record.lag if 0 <= time.time() - self.record.lag_at < LAG_S else 0.0

    def landed(self, sha256: str, steps: Sequence[Step], again: Sequence[Standing], for_s: float) -> int:
        """The number of this change, by which it can be told later whether one of ours came after it.

        `steps` are what it made of each entry, looked after for `for_s`, `again` what it brought back.
        """
        now, number = time.time(), self.record.number + 1
        for_s = CONTENDED_S if self.is_contended else for_s
        standing = made_again(self.standing(again), {one.about for one in again}, number, now, CONTENDED_S)
        names = dict.fromkeys([*(one.about for one in again), *(step.about for step in steps)])
        kept = [(name, at) for name, at in self.record.changes.items() if name not in names]
        self.record = structs.replace(
            self.record,
            number=number,
            changes={**dict(kept[-REMEMBERED:]), **dict.fromkeys(names, number)},
            standing=noted(standing, steps, number, now, for_s),
        )
        self._note_idle(sha256)
        return number

    def standing(self, also: Sequence[Standing] = ()) -> list[Standing]:
        """What is looked after, and of `also` what no later change of ours was about."""
        now = time.time()
        found = [one for one in self.record.standing if one.at <= now < one.until]
        names = {one.about for one in found}
        return found + [
            one for one in also if one.about not in names and self.record.changes.get(one.about) == one.number
        ]

    def restored(
        self, keeper: Keeper, data: bytes | None, written_at: float, standing: Sequence[Standing]
    ) -> tuple[bytes | None, list[Standing]]:
        """A content with what a stale copy, written at this time, took out of it; and what that is."""
        data, again = keeper.restored(data, standing)
        now = time.time()
        lag = max((min(written_at, now) - one.at for one in again if not one.is_theirs), default=0.0)
        if lag > self.lag:
            self.record = structs.replace(self.record, lag=min(lag, CONTENDED_S), lag_at=now)
        return data, again

    def adopt(self, steps: Iterable[Step]) -> None:
        """What another program changed and we hid for a moment is looked after as our own changes are."""
        now = time.time()
        until = now + CONTENDED_S
        standing = self.standing()
        names = {one.about for one in standing}
        standing += [
            Standing(one.about, [one.before], one.after, one.entry, self.record.number, now, now, until, True)
            for one in steps
            if one.about not in names
        ]
        self.record = structs.replace(self.record, standing=standing[-REMEMBERED:], foreign_at=now)

    def give_up(self, names: Iterable[str]) -> None:
        """Nobody brings these back from now on."""
        left = [one for one in self.record.standing if one.about not in set(names)]
        self._note(structs.replace(self.record, standing=left))

    def _note_idle(self, landed: str) -> None:
        self._note(structs.replace(self.record, landed=landed, pid=0, start=0, expected="", planned=""))

    def _note(self, record: Record) -> None:
        self.record = record
        data = msgspec.json.encode(record)
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not _queued(self._fd, self._wait_s):
                raise RegistryUnavailable(
                    f"another process keeps {os.path.basename(self._target)} locked",
                    hint="try again later",
                ) from None
        except OSError:
            pass  # a file system without locks: the exchange still compares

    def _read(self) -> Record:
        try:
            return msgspec.json.decode(
                os.pread(self._fd, os.fstat(self._fd).st_size, 0), type=learned(Record)
            )
        except msgspec.MsgspecError:
            return Record()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- what a killed process left ---------------------------------------------------------------------

    def _settle(self) -> None:
        """Remove its temporary files; a content that it had displaced and nobody knows goes back to its name."""
        folder = os.path.dirname(self._target)
        try:
            dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for name in os.listdir(dir_fd):
                temp = temp_names.parsed(name)
                if temp is None or temp.owner[:2] != (self.record.pid, self.record.start):
                    continue
                if temp.use == "w":
                    os.unlink(name, dir_fd=dir_fd)
                else:
                    self._settle_one(dir_fd, name)
        finally:
            os.close(dir_fd)
        self._note_idle(self.record.landed)

    def _settle_one(self, dir_fd: int, name: str) -> None:
        file = open_aside(dir_fd, name)
        if file is None:
            return
        with file:
            sha256 = sha256_of(file.fileno())
            if sha256 not in (self.record.expected, self.record.planned):
                if _sha_at(self._target) == self.record.planned:
                    os.replace(name, os.path.basename(self._target), src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
                    return
                backups.keep(self._target, os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0))
        os.unlink(name, dir_fd=dir_fd)


def _queued(fd: int, wait_s: float) -> bool:
    """The lock in the order in which it was asked for, as the kernel gives it; False if it took too long.

    The kernel knows no limit to that, so another thread waits. Where it is given up the descriptor is closed, and with
    it goes the lock, should it come later.
    """
    from threading import Thread

    waiting = Thread(target=fcntl.flock, args=(fd, fcntl.LOCK_EX), daemon=True)
    waiting.start()
    waiting.join(wait_s)
    return not waiting.is_alive()


def _sha_at(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return sha256_of(file.fileno())
    except OSError:
        return ""
