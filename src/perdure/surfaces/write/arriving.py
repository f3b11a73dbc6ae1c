"""Large contents taken while they arrive: kept, hashed, looked through and put into their file before the call that
brings them is there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from perdure import risk
from perdure.model.envelope import ToolError
from perdure.model.handover import SLOT_BYTES
from perdure.risk.ahead import Ahead
from perdure.storage.blobs import ArrivingBlob, Blob
from perdure.storage.following import Follower
from perdure.surfaces.write.beforehand import Beforehand
from perdure.surfaces.write.confine import Place

Find = Callable[[], Place]


class ArrivingContent:
    """One content (`surfaces.port.Arriving`). `arrivals` knows it from when it becomes a text until its call is over.

    `find` tells where it shall stand, if that is known already.
    """

    def __init__(
        self, blob: ArrivingBlob, arrivals: Arrivals, *, is_looked_at: bool, find: Find | None
    ) -> None:
        self._arrivals = arrivals
        self._blob = blob
        self._hash = _Hash()
        self._ahead: Ahead | None = None
        self.text: str | None = None
        self.data = memoryview(b"")
        self._keeping = Follower(blob.reach, blob.close)
        self._hashing = Follower(self._hash.reach)
        self._looking = Follower(self._look) if is_looked_at else None
        self.beforehand = Beforehand(find, SLOT_BYTES) if find is not None else None

    def reach(self, beginning: memoryview) -> None:
        for taker in self._takers():
            taker.reach(beginning)

    def end(self, data: memoryview) -> None:
        self.data = data
        for taker in self._takers():
            taker.reach(data)
            taker.end()

    def becomes(self, text: str) -> None:
        self.text = text
        self._arrivals.add(self)

    def close(self) -> None:
        self._arrivals.forget(self)
        # Those who take it know it as it knows them: without this, text after text would wait for the garbage collector.
        self.text, self.data = None, memoryview(b"")
        for taker in self._takers():
            taker.close()

    def prepare(self, find: Find) -> None:
        """Put it into a file as well, where it shall stand, unless it is on its way there."""
        if self.beforehand is None:
            self.beforehand = Beforehand(find, len(self.data))
            self.beforehand.reach(self.data)
            self.beforehand.end()

    def ahead(self) -> Ahead | None:
        """What has looked through it."""
        if self._looking is not None:
            self._looking.result()
        return self._ahead

    def put(self) -> Blob | None:
        """Keep it; None where that has to be done from the start."""
        try:
            self._keeping.result()
        except (OSError, ToolError):
            return None
        self._hashing.result()
        return self._blob.put(self._hash.hexdigest())

    def _takers(self) -> list[Follower | Beforehand]:
        takers = (self._keeping, self._hashing, self.beforehand, self._looking)
        return [taker for taker in takers if taker is not None]

    def _look(self, beginning: memoryview) -> None:
        if self._ahead is None:
            self._ahead = risk.looking_ahead()
        if self._ahead is not None:
            self._ahead.reach(beginning)


class _Hash:
    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._size = 0

    def reach(self, beginning: memoryview) -> None:
        self._digest.update(beginning[self._size :])
        self._size = len(beginning)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


class Arrivals:
    """The contents that became texts, by the very text that a call has."""

    def __init__(self, begin: Callable[[], ArrivingBlob], *, looks: bool) -> None:
        self._begin = begin
        self._looks = looks
        self._texts: dict[int, ArrivingContent] = {}

    def begin(self, find: Find | None) -> ArrivingContent:
        return ArrivingContent(self._begin(), self, is_looked_at=self._looks, find=find)

    def add(self, arriving: ArrivingContent) -> None:
        self._texts[id(arriving.text)] = arriving

    def of(self, text: str | None) -> ArrivingContent | None:
        return self._texts.get(id(text))

    def forget(self, arriving: ArrivingContent) -> None:
        self._texts.pop(id(arriving.text), None)
