"""Calls that must not be done twice, from their first byte to a server until their answer has arrived.

| a call is | |
|---|---|
| saved | it was sent on: after a kill of ours it is asked about, not made again |
| on its way | its answer was written; whether it arrives is not known yet |
| undelivered | its answer found nobody, and waits for whoever asks the same again |

Beyond a bound the oldest answers are not kept. Their calls are: who asks again is told that the call was made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Raw

from perdure.kernel.state import Invocation
from perdure.protocol.fault_messages import host_error
from perdure.protocol.faults import OUTCOME_UNKNOWN, Fault
from perdure.protocol.frames import RequestId, encode_raw_error
from perdure.protocol.replay import Convergent

MOST_KEPT: Final = 256
MOST_BYTES: Final = 64 * 1024 * 1024
MOST_CALLS: Final = 4096


class Records(Protocol):
    """Where a session leaves which of its calls were sent on, for whoever comes after this process."""

    def save_call(self, session: str, identity: str, workspace: str, call: Invocation) -> None:
        """Raises StoreError where it cannot be written."""

    def forget_call(self, session: str, seq: int) -> None: ...


class Deliveries:
    """Of one session, named as the records know it."""

    def __init__(self, records: Records, session: str, identity: str, workspace: str) -> None:
        self.undelivered: dict[RequestId, bytes] = {}
        self._answers: dict[RequestId, int] = {}  # of these the whole answer is kept: its size
        self._bytes = 0
        self._records = records
        self._session = session
        self._identity = identity
        self._workspace = workspace
        self._saved: dict[RequestId, tuple[int, int]] = {}  # by id: its number, and what was asked
        self._on_their_way: set[RequestId] = set()

    def sending(self, call: Invocation) -> None:
        """Before the first byte of it goes to a server: from then on it may have happened. Raises StoreError."""
        is_answered = bool(call.task)  # with a task, which has a record of its own
        if is_answered or not call.attempts or isinstance(call.replay, Convergent):
            return
        if call.public_id not in self._saved:
            self._records.save_call(self._session, self._identity, self._workspace, call)
            self.take_up(call)

    def take_up(self, call: Invocation) -> None:
        """What a predecessor had sent on when it was killed."""
        self._saved[call.public_id] = (call.seq, asked(call.method, call.params))

    def question(self, identity: RequestId) -> int | None:
        """What was asked under this id, where that must not be done twice."""
        saved = self._saved.get(identity)
        return saved[1] if saved is not None else None

    def waits(self, identity: RequestId, question: int) -> bool:
        """Whether just this was asked before, and nobody has got its answer."""
        return self.question(identity) == question and identity not in self._on_their_way

    def sent(self, identity: RequestId | None, answer: bytes) -> Callable[[bool], None]:
        """What is returned hears whether it arrived: if not, the answer is kept."""
        saved = self._saved.get(identity) if identity is not None else None
        if identity is None or saved is None:
            return _ignored
        self._on_their_way.add(identity)

        def settled(arrived: bool) -> None:
            if self._saved.get(identity) is not saved:
                return  # its id has come to mean another call
            self._on_their_way.discard(identity)
            if arrived:
                self.delivered(identity)
            else:
                self.keep(identity, answer)

        return settled

    def delivered(self, identity: RequestId) -> None:
        """The client has its answer."""
        self._drop(identity)
        self._on_their_way.discard(identity)
        if (saved := self._saved.pop(identity, None)) is not None:
            self._records.forget_call(self._session, saved[0])

    def keep(self, identity: RequestId, answer: bytes) -> None:
        if identity not in self._saved:
            return
        self._drop(identity)
        self.undelivered[identity] = answer
        self._answers[identity] = len(answer)
        self._bytes += len(answer)
        while self._answers and (len(self._answers) > MOST_KEPT or self._bytes > MOST_BYTES):
            oldest = next(iter(self._answers))
            size = self._answers[oldest]
            self._drop(oldest)
            self.undelivered[oldest] = _no_longer_kept(oldest, size)
        while len(self.undelivered) > MOST_CALLS:
            self.delivered(next(iter(self.undelivered)))

    def _drop(self, identity: RequestId) -> None:
        self.undelivered.pop(identity, None)
        self._bytes -= self._answers.pop(identity, 0)


def asked(method: str, params: bytes | Raw | None) -> int:
    """What tells one question from another, within this process."""
    return hash((method, bytes(params) if params is not None else b""))


def _no_longer_kept(identity: RequestId, size: int) -> bytes:
    fault = Fault("resource", "answer_not_kept", 0, f"{size:,} bytes")
    error = host_error(
        OUTCOME_UNKNOWN, fault, mount="", call="", attempts=1, outcome="unknown", retry="never"
    )
    return encode_raw_error(identity, error)


def _ignored(arrived: bool) -> None:
    pass
