"""One open store: changes in shared rounds, reads beside them, waits, lost calls, and forgetting."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import msgspec

from perdure.protocol.calls import Call, Done, KeyStatus
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import ask_user
from perdure.protocol.replay import SAFE_TO_RETRY, STILL_UNKNOWN
from perdure.protocol.tools import View
from perdure.storage.errors import StateError
from perdure.storage.state import Answer, Author, Loaded, Name, StateBackend, Wanted
from perdure.storage.state_limits import StateLimits
from perdure.storage.state_rounds import Job, Payload, Rounds, Step
from perdure.surfaces.state.limits import MOST_WAITS

TEND_EVERY_S: Final = 60.0
TEND_ROWS: Final = 500
DAY_US: Final = 86400 * 1_000_000


class StateService:
    def __init__(self, backend: StateBackend, limits: StateLimits | None = None) -> None:
        self.backend = backend
        self.limits = limits or StateLimits()
        self.waits = threading.Semaphore(MOST_WAITS)
        self._rounds = Rounds(backend)
        self._closing = threading.Event()
        self._tender: threading.Thread | None = None

    def commit(
        self, call: Call, names: frozenset[Name], decide: Callable[[Step], Payload]
    ) -> Future[Payload]:
        """Submit a decision over these names, under the call's invocation key. Durable when the future is completed."""

        def within_quota(step: Step) -> Payload:
            payload = decide(step)
            self._check_quota(step)
            return payload

        key = call.invocation_key or f"own:{os.urandom(12).hex()}"
        author = Author(call.client, call.session, call.tool)
        self._tend()
        view = (call.view.render, call.view.detail)
        return self._rounds.submit(Job(names, within_quota, author, key=key, view=view))

    def _check_quota(self, step: Step) -> None:
        for namespace, more in step.usage.items():
            used = step.used(namespace)
            over = [
                what
                for what, grew, now, most in (
                    ("keys", more.keys, used.keys, self.limits.namespace_keys),
                    ("bytes", more.bytes, used.bytes, self.limits.namespace_bytes),
                )
                if grew > 0 and now > most
            ]
            if over:
                what = over[0]
                quota = getattr(self.limits, f"namespace_{what}")
                raise refuse(
                    "quota_exceeded",
                    f"namespace_{what}",
                    f"not written: namespace {namespace} would have {getattr(used, what):,} {what}; its quota is {quota:,}.",
                    next_step=ask_user("which keys may be deleted, or to raise the quota of the namespace"),
                    reason_hint="size_limit",
                    suggested_action="ask_user",
                    quota=quota,
                )

    def expire_due(self) -> None:
        """Make the expiry of what is over a change that waiters see."""
        author, key = Author("perdure", "", "expiry"), f"own:{os.urandom(12).hex()}"
        self._rounds.submit(Job(frozenset(), lambda _: {}, author, key=key)).result()

    # --- lost calls -----------------------------------------------------------------------------------------------

    def probe(self, key: str) -> KeyStatus:
        """Whether the effect under a key is there. Asked under the lock: a commit on its way is waited for."""
        found: dict[str, Answer] = {}

        def look(loaded: Loaded) -> None:
            found.update(loaded.answers)

        try:
            self.backend.round(Wanted(answers=frozenset({key})), look)
        except StateError:
            return STILL_UNKNOWN
        if (known := found.get(key)) is None:
            return SAFE_TO_RETRY
        view = View(known.render, known.detail)  # type: ignore[arg-type]
        return Done(msgspec.json.decode(known.result), view)

    # --- forgetting -----------------------------------------------------------------------------------------------

    def _tend(self) -> None:
        if self._tender is None:
            self._tender = threading.Thread(target=self._forget, name="state-tender", daemon=True)
            self._tender.start()

    def _forget(self) -> None:
        """Now and then, a little at a time, so that no caller waits for it."""
        while not self._closing.wait(TEND_EVERY_S):
            now = int(time.time() * 1_000_000)
            try:
                while self.backend.forget(
                    answers_before=now - int(self.limits.answers_days * DAY_US),
                    history_before=now - int(self.limits.history_days * DAY_US),
                    limit=TEND_ROWS,
                ):
                    if self._closing.wait(0.05):
                        return
            except StateError:
                continue

    def close(self) -> None:
        self._closing.set()
        self._rounds.close()
        self.backend.close()
