"""When the next kill is due: as soon as somebody stands at the point it is meant for, or else after a while, anywhere."""

from __future__ import annotations

import random
import time
from typing import Final

from harness.crash.plan import RANDOM, Plan, Victim

PACE_S: Final = 1.5
SILENT_S: Final = 5.0
_LATE_S: Final = {"hosted": 0.5, "paced": 3.0, "bare": 0.25}


class Aim:
    """The kills of a session, one after the other."""

    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._left = plan.aims(chance)
        self._killed_at = self._due = time.monotonic()
        self._is_late = False
        self.point = RANDOM
        self._take()

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def victim(self) -> Victim:
        return self._left[0][0]

    def hit(self) -> None:
        """The kill was made: on to the next."""
        del self._left[0]
        self._killed_at = time.monotonic()
        self._take()

    def miss(self) -> None:
        """Nobody was there yet."""
        self._due = time.monotonic() + 0.01

    def work_goes_on(self) -> None:
        """Somebody serves again after the last kill: from here on the point should be reached soon."""
        if self.point != RANDOM and not self._is_late:
            self._is_late = True
            self._due = time.monotonic() + _LATE_S[self._plan.kind]

    def is_at(self, point: str) -> bool:
        return bool(self) and point == self.point and self._may_kill()

    def is_due(self) -> bool:
        return bool(self) and time.monotonic() >= self._due and self._may_kill()

    def _take(self) -> None:
        self.point = self._left[0][1] if self._left else RANDOM
        wait = self._chance.uniform(0, 0.3) if self.point == RANDOM else SILENT_S
        self._due = time.monotonic() + wait + (PACE_S if self._plan.kind == "paced" else 0.0)
        self._is_late = False

    def _may_kill(self) -> bool:
        """The product's own limits stand a kill every second and a half."""
        return self._plan.kind != "paced" or time.monotonic() - self._killed_at >= PACE_S
