"""`perdure hook journal`: one event of a client's hook, handed to the recorder.

The hook never keeps the client from working: whatever fails is one line on standard error and one in the log, and the
exit code is 0. A failed observation loses nothing: the next one finds the same changes. Printed is only what concerns
reservations (`workspace/reservations/hook_answer.py`), because clients add it to the conversation.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

from perdure.hooks.relay import MOST_BYTES, RelayError, relay

if TYPE_CHECKING:
    from perdure.workspace.timeline.event import HookAnswer, HookEvent

LOCK_S: Final = 2.0
"""How long it waits for another process that writes to the workspace."""
DEADLINE_S: Final = 15.0
"""After this the client goes on without it: less than the time that the clients' entries allow."""


def run(client: str | None, workspace: str | None) -> int:
    """Hand the hook to the worker that serves the workspace; without one, record it here."""
    watchdog = Timer(DEADLINE_S, _abandon)
    watchdog.daemon = True
    watchdog.start()
    try:
        hook = sys.stdin.buffer.read(MOST_BYTES) if sys.stdin is not None else b""
        if (reply := relay(hook, client=client, workspace=workspace)) is not None:
            _print(reply)
        else:
            payload = parse_payload(hook)
            if payload is None:
                _tell("standard input is not the JSON object of a hook")
            else:
                _print(_record(payload, client, workspace))
    except (
        BaseException
    ) as error:  # SystemExit and KeyboardInterrupt too: an exit code of 2 would block the call
        _tell(_describe(error))
    watchdog.cancel()
    return 0


def read_payload() -> dict[str, Any] | None:
    return parse_payload(sys.stdin.buffer.read(MOST_BYTES)) if sys.stdin is not None else None


def parse_payload(hook: bytes) -> dict[str, Any] | None:
    """The JSON object that a client gave; a byte order mark may stand before it."""
    from json import loads

    try:
        payload = loads(hook)
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


def _print(reply: str) -> None:
    if reply:
        print(reply, flush=True)


def _record(payload: dict[str, Any], client: str | None, workspace: str | None) -> str:
    """Returns what the hook prints."""
    from perdure.hooks.clients import read_event, reply

    event = read_event(payload, client, os.environ)
    if event is None or not event.may_change_files:
        return ""
    import msgspec

    from perdure.cli.workspace import find_project
    from perdure.platform.process_tree import client_process

    event = msgspec.structs.replace(event, process=client_process())
    place = find_project(workspace, event.project, event.cwd)
    if workspace is None and _is_too_wide(place):
        return ""
    return reply(payload, client, _hand_over(event, place))


def _is_too_wide(place: str) -> bool:
    """The home folder and the root of the file system are recorded only if Perdure knows them as workspaces: a client
    that is started there works on no project."""
    from perdure.storage.workspace_store import is_known

    is_wide = place in (os.path.realpath(os.path.expanduser("~")), os.path.abspath(os.sep))
    return is_wide and not is_known(place)


def _hand_over(event: HookEvent, workspace: str) -> HookAnswer:
    from perdure.cli.write_settings import write_settings
    from perdure.host.settings import load
    from perdure.worker.compose import open_write
    from perdure.workspace.reservations.hook_answer import handle_event
    from perdure.workspace.timeline.event import HookAnswer
    from perdure.workspace.timeline.recorder import Recorder

    settings = load({"workspace": [workspace]}, os.environ, leave_out_faults=True)
    answer = HookAnswer()
    if settings.timeline.enabled or settings.reservations.mode != "off":
        service = open_write(write_settings(settings), lock_s=LOCK_S)
        try:
            answer = handle_event(service, Recorder(service, settings.timeline), event)
        finally:
            service.close()
    if settings.faults:
        _tell(settings.faults[0].detail)
    return answer


def _describe(error: BaseException) -> str:
    """Without any content: a message may be shown and is logged."""
    from perdure.host.settings import SettingsError
    from perdure.present.tool_errors import tool_error
    from perdure.protocol.envelope import ToolError
    from perdure.storage.errors import StorageError

    if isinstance(error, (SettingsError, RelayError)):
        return str(error)
    if isinstance(error, (ToolError, StorageError)):
        envelope = tool_error(error).envelope
        return str(envelope.context.get("message") or envelope.error)
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
