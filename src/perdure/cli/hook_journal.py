"""`perdure hook journal`: one event of a client's hook, handed to the recorder.

The hook never keeps the client from working: whatever fails is one line on standard error and one in the log, and the
exit code is 0. A failed observation loses nothing: the next one finds the same changes. Nothing is printed, because
clients add what a hook prints to the conversation.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from perdure.workspace.timeline.event import HookEvent

MOST_BYTES: Final = 64 * 1024 * 1024
LOCK_S: Final = 2.0
"""How long it waits for another process that writes to the workspace."""
DEADLINE_S: Final = 15.0
"""After this the client goes on without it: less than the time that the clients' entries allow."""


def run(client: str | None, workspace: str | None) -> int:
    watchdog = Timer(DEADLINE_S, _abandon)
    watchdog.daemon = True
    watchdog.start()
    try:
        payload = read_payload()
        if payload is None:
            _tell("standard input is not the JSON object of a hook")
        else:
            _record(payload, client, workspace)
    except (
        BaseException
    ) as error:  # SystemExit and KeyboardInterrupt too: an exit code of 2 would block the call
        _tell(_describe(error))
    watchdog.cancel()
    return 0


def read_payload() -> dict[str, Any] | None:
    """The JSON object on standard input; a byte order mark may stand before it."""
    from json import loads

    if sys.stdin is None:
        return None
    try:
        payload = loads(sys.stdin.buffer.read(MOST_BYTES))
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


def _record(payload: dict[str, Any], client: str | None, workspace: str | None) -> None:
    from perdure.hooks.clients import read_event

    event = read_event(payload, client, os.environ)
    if event is None or not event.may_change_files:
        return
    from perdure.cli.workspace import find_project

    place = find_project(workspace, event.project, event.cwd)
    if workspace is not None or not _is_too_wide(place):
        _hand_over(event, place)


def _is_too_wide(place: str) -> bool:
    """The home folder and the root of the file system are recorded only if Perdure knows them as workspaces: a client
    that is started there works on no project."""
    from perdure.storage.workspace_store import is_known

    is_wide = place in (os.path.realpath(os.path.expanduser("~")), os.path.abspath(os.sep))
    return is_wide and not is_known(place)


def _hand_over(event: HookEvent, workspace: str) -> None:
    from perdure.cli.write_settings import write_settings
    from perdure.host.settings import load
    from perdure.worker.compose import open_write
    from perdure.workspace.timeline.recorder import Recorder

    settings = load({"workspace": [workspace]}, os.environ, leave_out_faults=True)
    if settings.timeline.enabled:
        service = open_write(write_settings(settings), lock_s=LOCK_S)
        try:
            Recorder(service, settings.timeline).handle(event)
        finally:
            service.close()
    if settings.faults:
        _tell(settings.faults[0].detail)


def _describe(error: BaseException) -> str:
    """Without any content: a message may be shown and is logged."""
    from perdure.host.settings import SettingsError
    from perdure.protocol.envelope import ToolError

    if isinstance(error, SettingsError):
        return str(error)
    if isinstance(error, ToolError):
        return str(error.envelope.context.get("message") or error.envelope.error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return f"{place}{error.strerror or type(error).__name__}"
    return type(error).__name__


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
        from perdure.worker.logs import log_to_events

        log_to_events(private_dir("log"))
        logging.getLogger("perdure.hooks").warning("%s", message)
