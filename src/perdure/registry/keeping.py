"""A change of a registry's entries, looked after for a while: a stale copy that is written over it does not stay.

Whoever makes the next change brings it back as well (`perdure.registry.standing`), and looks after all that stood then.
So a change that was followed by another one is only looked at once more, in the end. And it has to be looked after only
as long as stale copies are likely to come: a quarter of a second where another program was seen writing the file, and
up to a second where such programs were seen to take longer. Nobody is held up by it.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Final

from perdure.model.fault_points import passed
from perdure.registry.errors import ChangedMeanwhile
from perdure.registry.reading import WAIT_S, read_bytes
from perdure.registry.replacing import Change, made, read_file, told
from perdure.registry.standing import Standing
from perdure.registry.turns import Turn, latest

LINGER_S: Final = 0.25
LONGEST_S: Final = 1.0
LAGS: Final = 2
LOOK_S: Final = 0.025


def change_entries(path: str, change: Change, *, wait_s: float = WAIT_S) -> None:
    """Raises what the plan raises, before anything is touched, and RegistryError."""
    target = os.path.realpath(path)
    with told(target):
        if read_file(target) is None and change.plan(None) is None:
            return  # nothing to do, so nothing is made either
        with Turn(target, wait_s=wait_s) as turn:
            done = made(target, turn, change, time.monotonic() + wait_s)
            standing = turn.standing()
            mine = [one for one in standing if one.number == done.number and one.about in change.about]
            linger_s = _linger(turn) if turn.is_contended else change.for_s
        if done.number and linger_s:
            watch = _Watch(target, change, mine, time.monotonic() + wait_s)
            watch.take_over(standing, done.number)
            watch.keep(linger_s)


def _linger(turn: Turn) -> float:
    return max(LINGER_S, min(LAGS * turn.lag, LONGEST_S))


class _Watch:
    """Looks whether a change, and all that stood when it was made, is still there."""

    def __init__(self, target: str, change: Change, mine: list[Standing], end: float) -> None:
        self._target = target
        self._change = change
        self._mine = mine
        self._end = end
        self._standing: list[Standing] = []
        self._number = 0

    def take_over(self, standing: list[Standing], number: int) -> None:
        """All that stands when we made a change."""
        self._standing = standing
        self._number = number

    def keep(self, linger_s: float) -> None:
        """Raises ChangedMeanwhile where another program does not stop undoing it."""
        quiet_at = time.monotonic() + linger_s
        seen: object = None
        is_last = False
        while not is_last:
            is_last = time.monotonic() >= quiet_at
            passed("registry.looking")
            facts = _facts(self._target)
            if facts != seen or is_last:
                seen = facts
                if self._is_undone(is_last) and (longer_s := self._bring_back()):
                    quiet_at = min(time.monotonic() + longer_s, self._end)
                    is_last = False
            if not is_last:
                time.sleep(LOOK_S)

    def _is_undone(self, is_last: bool) -> bool:
        """Who came after us looks after it for us, but for the last time."""
        data = read_bytes(self._target)
        last = latest(self._target)
        if data is not None and hashlib.sha256(data).hexdigest() == last.landed:
            return False
        if last.number != self._number and not is_last:
            return False
        assert self._change.keeper is not None
        return bool(self._change.keeper.undone(data, self._standing))

    def _bring_back(self) -> float:
        """How long to look on; 0 where nothing had to be done."""
        left_s = max(0.0, self._end - time.monotonic())
        with Turn(self._target, wait_s=left_s) as turn:
            again = self._change._replace(plan=lambda data: data, about=(), mine=self._mine)
            done = made(self._target, turn, again, self._end)
            ours = {one.about for one in self._mine}
            self.take_over(turn.standing(), turn.record.number)
            self._mine = [one for one in self._standing if one.about in ours]
            linger_s = _linger(turn)
            if ours.intersection(done.again) and time.monotonic() + linger_s > self._end:
                turn.give_up(ours)
                raise ChangedMeanwhile(
                    f"another program keeps writing an older {os.path.basename(self._target)} back",
                    hint="close it, or let it read the file anew, and try again",
                )
            return linger_s if done.number else 0.0


def _facts(target: str) -> object:
    try:
        info = os.stat(target)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size
