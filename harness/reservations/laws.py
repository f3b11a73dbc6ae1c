"""The laws of reservations, judged from what all agents tell.

| law | |
|---|---|
| refused | no write of a tool, and none that a hook let pass, is in a path that another owner held all the while |
| exclusive | a reservation is not granted while another owner holds an overlapping one, unless both are shared |
| tokens | a token is greater than each that was granted before it was asked for |
| told | a shell command that changed a held path is told so |
| owner told | its owner is told at a later call, unless it was killed |
| put back | with `shell = restore` its line is gone, unless a call of the owner was open or the file was changed again |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.reservations.report import Granted, Told, Write
from perdure.workspace.reservations.patterns import covers, overlap


class History:
    """What was told lately: a reservation may outlast its round."""

    def __init__(self, told: Sequence[Told]) -> None:
        self._released: dict[int, float] = {}
        for token, at in (pair for one in told for pair in one.released.items()):
            self._released[token] = min(at, self._released.get(token, at))
        self._renewed = {token: until for one in told for token, until in one.renewed.items()}
        self.granted = [one for each in told for one in each.granted]
        self.writes = [one for each in told for one in each.writes]

    def until(self, granted: Granted) -> float:
        last = self._renewed.get(granted.token, granted.until)
        return min(last, self._released.get(granted.token, float("inf")))

    def holders(self, write: Write) -> Iterator[Granted]:
        """The reservations of others that were in the way of a write for all of its time."""
        for one in self.granted:
            holds = one.since < write.began and write.answered < self.until(one)
            if one.owner == write.owner or not holds or not any(covers(p, write.path) for p in one.paths):
                continue
            if one.mode == "exclusive" or not self._shares(write):
                yield one

    def _shares(self, write: Write) -> bool:
        """Whether the writer may have held a reservation of its own: it was granted before the write was answered."""
        return any(
            one.owner == write.owner
            and one.since < write.answered
            and any(covers(p, write.path) for p in one.paths)
            for one in self.granted
        )


def find_violations(told: Sequence[Told], lately: Sequence[Told], shell: str = "tell") -> Iterator[str]:
    """Of a round. `lately` is what was told since the oldest reservation that may be in force began, the round
    included."""
    history = History(lately)
    for write in (write for each in told for write in each.writes if write.is_checked):
        for held in history.holders(write):
            if write.by != "shell":
                yield f"refused: {write} while {held}"
            else:
                yield from _judge_shell(write, held, history, shell)
    for granted in (one for each in told for one in each.granted):
        yield from _judge_grant(granted, history)


def _judge_shell(write: Write, held: Granted, history: History, shell: str) -> Iterator[str]:
    if f"{write.path} is reserved by" not in write.notice:
        yield f"told: {write} while {held}"
    elif shell == "restore" and write.is_line_left and not _may_stay(write, held, history):
        yield f"put back: {write} while {held}"


def _may_stay(write: Write, held: Granted, history: History) -> bool:
    is_owners = "a call of the owner may have made" in write.notice
    is_changed = "it was changed again" in write.notice
    return any(
        other is not write
        and other.began < write.answered
        and write.began < other.answered + SLACK_S
        and ((is_changed and other.path == write.path) or (is_owners and other.by != "tool"))
        for other in history.writes
    )


SLACK_S = 5.0
"""An agent tells of a write when it was answered; the hook after it comes later."""


def _judge_grant(granted: Granted, history: History) -> Iterator[str]:
    for other in history.granted:
        if other is granted or other.since >= granted.began:
            continue
        if other.token >= granted.token:
            yield f"tokens: {granted} after {other}"
        is_in_force = other.owner != granted.owner and granted.since < history.until(other)
        overlaps = any(overlap(one, two) for one in granted.paths for two in other.paths)
        if is_in_force and overlaps and "exclusive" in (granted.mode, other.mode):
            yield f"exclusive: {granted} while {other}"


class OwnersToTell:
    """Shell changes that owners still have to be told of."""

    def __init__(self) -> None:
        self._pending: dict[tuple[int, str], str] = {}

    def add(self, told: Sequence[Told], lately: Sequence[Told]) -> None:
        history = History(lately)
        for write in (write for each in told for write in each.writes):
            if write.by == "shell" and write.is_checked:
                for held in history.holders(write):
                    self._pending[held.owner, write.line] = f"{write} while {held}"
        for each in told:
            for notice in each.notices:
                for key in [key for key in self._pending if key[0] == each.agent and key[1] in notice]:
                    del self._pending[key]

    def forget(self, agent: int) -> None:
        """It was killed."""
        self._pending = {key: text for key, text in self._pending.items() if key[0] != agent}

    def violations(self) -> list[str]:
        return [f"owner told: {text}" for text in self._pending.values()]
