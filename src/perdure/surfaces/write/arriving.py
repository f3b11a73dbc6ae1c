"""Large contents taken while they arrive: written and looked through before the call that brings them is there."""

from __future__ import annotations

from collections.abc import Callable

from perdure import risk
from perdure.model.envelope import ToolError
from perdure.risk.ahead import Ahead
from perdure.storage.beside import Beside
from perdure.storage.blobs import ArrivingBlob, Blob
from perdure.surfaces.write.beforehand import Beforehand
from perdure.surfaces.write.confine import Place


class ArrivingContent:
    """One content (`surfaces.port.Arriving`). `arrivals` knows it from when it is complete until its call is over."""

    def __init__(self, blob: ArrivingBlob, arrivals: Arrivals, *, is_looked_at: bool) -> None:
        self._blob = blob
        self._arrivals = arrivals
        self._is_looked_at = is_looked_at
        self._ahead: Ahead | None = None
        self.text: str | None = None
        self.data = b""
        self.beforehand: Beforehand | None = None

    def more(self, piece: bytes) -> None:
        if self._is_looked_at and self._ahead is None:
            self._ahead = risk.looking_ahead()
        ahead = self._ahead
        looking = Beside(lambda: ahead.more(piece)) if ahead is not None else None
        self._blob.more(piece)
        if looking is not None:
            looking.result()

    def complete(self, text: str, data: bytes, taken: Callable[[], object]) -> None:
        self.text, self.data, self._taken = text, data, taken
        self._arrivals.add(self)

    def ahead(self) -> Ahead | None:
        """What has looked through its beginning, to go on from there."""
        return self._ahead if self._is_taken() else None

    def prepare(self, find: Callable[[], Place]) -> None:
        """Put it into a file as well, where it shall stand, while it is being kept."""
        self.beforehand = Beforehand(find, self.data)

    def put(self, data: bytes) -> Blob | None:
        """Keep it; None where that has to be done from the start."""
        return self._blob.put(data) if self._is_taken() else None

    def _is_taken(self) -> bool:
        try:
            self._taken()
        except (OSError, ToolError):
            return False
        return True

    def close(self) -> None:
        self._arrivals.forget(self)
        if self.beforehand is not None:
            self.beforehand.close()
        self._blob.close()


class Arrivals:
    """The contents that are complete, by the very text that a call has."""

    def __init__(self, begin: Callable[[], ArrivingBlob], *, looks: bool) -> None:
        self._begin = begin
        self._looks = looks
        self._complete: dict[int, ArrivingContent] = {}

    def begin(self) -> ArrivingContent:
        return ArrivingContent(self._begin(), self, is_looked_at=self._looks)

    def add(self, arriving: ArrivingContent) -> None:
        self._complete[id(arriving.text)] = arriving

    def of(self, text: str | None) -> ArrivingContent | None:
        return self._complete.get(id(text))

    def forget(self, arriving: ArrivingContent) -> None:
        self._complete.pop(id(arriving.text), None)
