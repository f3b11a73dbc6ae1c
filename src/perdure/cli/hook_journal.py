"""`perdure hook journal`: one event of a client's hook, handed to the worker that serves the workspace.

The hook never keeps the client from working: whatever fails is one line on standard error and one in the log, and the
exit code is 0. A failed observation loses nothing: the next one finds the same changes. Printed is
only what concerns reservations (`workspace/reservations/hook_answer.py`), because clients add it to the conversation.

A client starts this for every call of a tool, so the path to the worker imports little. What a hook without a worker needs
is in `cold_hook.py`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Timer

from perdure.hooks.relay import MOST_BYTES, relay

DEADLINE_S = 15.0
"""After this the client goes on without it: less than the time that the clients' entries allow."""


def run(client: str | None, workspace: str | None, state: str | None = None) -> int:
    """Hand the hook to the worker that serves the workspace; without one, record it here."""
    watchdog = Timer(DEADLINE_S, _abandon)
    watchdog.daemon = True
    watchdog.start()
    try:
        hook = sys.stdin.buffer.read(MOST_BYTES) if sys.stdin is not None else b""
        reply = relay(hook, client=client, workspace=workspace)
        if reply is None:
            from perdure.cli.cold_hook import record

            reply = record(hook, client, workspace, state, tell=_tell)
        if reply:
            print(reply, flush=True)
    except (
        BaseException
    ) as error:  # SystemExit and KeyboardInterrupt too: an exit code of 2 would block the call
        from perdure.cli.cold_hook import describe

        _tell(describe(error))
    watchdog.cancel()
    return 0


def _abandon() -> None:
    """Ends the process: an open transaction is rolled back by the next one, as after a kill."""
    try:
        _tell(f"not recorded within {DEADLINE_S:.0f} s; the next hook catches up")
    finally:
        os._exit(0)


def _tell(message: str) -> None:
    with suppress(Exception):
        if sys.stderr is not None:
            print(f"perdure hook journal: {message}", file=sys.stderr, flush=True)
    with suppress(Exception):
        import logging

        from perdure.storage.user_dirs import private_dir
        from perdure.worker.diagnostics import log_to_events

        log_to_events(private_dir("log"))
        logging.getLogger("perdure.hooks").warning("%s", message)
