"""What each session of a storm is: whom it kills, where, how often, under which settings; all of it from one seed.

| kind | who is there | limits | who is killed |
|---|---|---|---|
| hosted | a client, the host, its worker | raised, for speed | worker, host, both |
| paced | the same | the product's own | the same, 1.5 s apart |
| bare | a worker alone; the session plays the host | none | the worker |
"""

from __future__ import annotations

import random
from itertools import cycle
from typing import Final, Literal

import msgspec

from perdure.platform import fault_points

Kind = Literal["hosted", "paced", "bare"]
Victim = Literal["worker", "host", "both", "bare"]

RANDOM: Final = "at random"
WIDTH: Final = 3
_KINDS: Final[tuple[Kind, ...]] = (
    *("hosted", "bare", "hosted", "paced"),
    *("hosted", "hosted", "bare", "hosted"),
)
_KILLS: Final[dict[Kind, int]] = {"hosted": 24, "paced": 8, "bare": 48}
_VICTIMS: Final[tuple[Victim, ...]] = (
    *("worker", "host", "worker", "worker"),
    *("both", "worker", "worker"),
)

_NO_EDITS: Final = "no other program edits the files"
_OF_WRITES: Final = ("write.", "remove.", "commit.", "recover.", "blob.")

_STRICT: Final = frozenset({"write.before_fsync", "write.before_dir_fsync"})
_RENAMED: Final = frozenset({"write.before_replace", "write.replaced"})
_EXCHANGED: Final = frozenset(
    {
        "write.exchanged",
        "write.verified",
        "write.before_unlink",
        "write.before_swap_back",
        "write.swapped_back",
    }
)
_EDITED: Final = frozenset({"write.before_swap_back", "write.swapped_back"})


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One session. `points` are where it kills, in turn with random moments."""

    seed: int
    number: int
    kind: Kind
    kills: int
    points: tuple[str, ...]
    strict: bool = False
    exchange: bool = True
    foreign: bool = False
    neighbour: bool = False

    def chance(self) -> random.Random:
        return random.Random(f"{self.seed}.{self.number}")

    def aims(self, chance: random.Random) -> list[tuple[Victim, str]]:
        """Whom to kill, and where, kill by kill: of any seven everyone is one, and everyone goes through all points."""
        victims: list[Victim] = []
        while len(victims) < self.kills:
            victims += chance.sample(_VICTIMS, len(_VICTIMS)) if self.kind != "bare" else ["bare"]
        places = {victim: cycle(chance.sample(found, len(found))) for victim, found in self._places().items()}
        return [(victim, next(places[victim])) for victim in victims[: self.kills]]

    def _places(self) -> dict[Victim, list[str]]:
        return {victim: [*self.points, RANDOM] for victim in ("bare", *_VICTIMS)}

    def __str__(self) -> str:
        ways = [
            "strict" if self.strict else "journal",
            "exchange" if self.exchange else "no exchange",
            *(["foreign edits"] if self.foreign else []),
            *(["a neighbour"] if self.neighbour else []),
        ]
        return f"session {self.number} of seed {self.seed}: {self.kind}, {', '.join((*ways, *self.points))}"


def unreached(*, alone: bool = False) -> dict[str, str]:
    """Points of the table at which nobody is killed, and why."""
    return dict.fromkeys(sorted(_EDITED), _NO_EDITS) if alone else {}


def reachable(*, alone: bool = False) -> tuple[str, ...]:
    ours = (name for name in fault_points.names() if name.startswith(_OF_WRITES))
    return tuple(name for name in ours if name not in unreached(alone=alone))


def plan(
    seed: int, number: int, *, most_kills: int = 1000, only: Kind | None = None, company: bool | None = None
) -> Plan:
    """The session of that number. Sessions of one kind go through all points, `WIDTH` at a time.

    `only` makes all of them of one kind; `company` says for all whether others are at the same files: a program that
    edits them, a second worker.
    """
    kind = only or _KINDS[number % len(_KINDS)]
    before = number // len(_KINDS) * _KINDS.count(kind) + _KINDS[: number % len(_KINDS)].count(kind)
    earlier = number if only else before
    points = _grouped(seed, kind, company is False)
    chosen = points[earlier % len(points)]
    chance = random.Random(f"{seed}.{number}.ways")
    wanted = frozenset(chosen)
    exchange = not wanted & _RENAMED and bool(wanted & _EXCHANGED or chance.random() < 0.85)
    return Plan(
        seed=seed,
        number=number,
        kind=kind,
        kills=min(_KILLS[kind], most_kills),
        points=chosen,
        strict=bool(wanted & _STRICT) or chance.random() < 0.25,
        exchange=exchange,
        foreign=company is not False and (company or bool(wanted & _EDITED) or chance.random() < 0.3),
        neighbour=company is not False and kind == "bare" and (company or chance.random() < 0.4),
    )


def _grouped(seed: int, kind: Kind, alone: bool) -> list[tuple[str, ...]]:
    """All points in groups; those that only a plain rename passes stay apart from those of an exchange."""
    chance = random.Random(f"{seed}.{kind}")
    apart = sorted(_RENAMED)
    rest = [name for name in reachable(alone=alone) if name not in _RENAMED]
    chance.shuffle(rest)
    groups = [tuple(rest[at : at + WIDTH]) for at in range(0, len(rest), WIDTH)]
    groups.insert(chance.randrange(len(groups) + 1), tuple(apart))
    return groups
