"""A hook of a workspace that no process serves: its own process records it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.cli.locations import find_project
from perdure.hooks.clients import read_event, reply, sender
from perdure.hooks.last_run import note_run
from perdure.hooks.relay import RelayError, find_client
from perdure.storage.workspace_store import is_known
from perdure.workspace.timeline.event import HookAnswer, HookEvent

LOCK_S: Final = 2.0
"""How long it waits for another process that writes to the workspace."""


def parse_payload(hook: bytes) -> dict[str, Any] | None:
    """The JSON object that a client gave; a byte order mark may stand before it."""
    try:
        payload = json.loads(hook)
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


def record(
    hook: bytes,
    client: str | None,
    workspace: str | None,
    state: str | None = None,
    *,
    tell: Callable[[str], object],
) -> str:
    """Returns what the hook prints. `tell` is given what the user should know. Raises where the hook could not be
    recorded."""
    payload = parse_payload(hook)
    if payload is None:
        tell("standard input is not the JSON object of a hook")
        return ""
    event = read_event(payload, client, os.environ)
    if event is None or not event.may_change_files:
        return ""
    note_run(client or sender(payload))
    event = msgspec.structs.replace(event, process=find_client())
    place = find_project(workspace, event.project, event.cwd)
    if workspace is None and _is_too_wide(place):
        return ""
    return reply(payload, client, _hand_over(event, place, state, tell))


def _is_too_wide(place: str) -> bool:
    """The home folder and the root of the file system are recorded only if Perdure knows them as workspaces: a client
    that is started there works on no project."""
    is_wide = place in (os.path.realpath(os.path.expanduser("~")), os.path.abspath(os.sep))
    return is_wide and not is_known(place)


def _hand_over(
    event: HookEvent, workspace: str, state: str | None, tell: Callable[[str], object]
) -> HookAnswer:
    from perdure.cli.worker_settings import write_settings
    from perdure.host.settings import load
    from perdure.worker.compose import open_write
    from perdure.workspace.reservations.hook_answer import handle_event
    from perdure.workspace.timeline.recorder import Recorder

    settings = load({"workspace": [workspace], "state": state}, os.environ, leave_out_faults=True)
    answer = HookAnswer()
    if settings.timeline.enabled or settings.reservations.mode != "off":
        service = open_write(write_settings(settings), lock_s=LOCK_S)
        try:
            answer = handle_event(service, Recorder(service, settings.timeline), event)
        finally:
            service.close()
    if settings.faults:
        tell(settings.faults[0].detail)
    return answer


def describe(error: BaseException) -> str:
    from perdure.host.settings_file import SettingsError
    from perdure.present.error_text import describe_error

    return str(error) if isinstance(error, (SettingsError, RelayError)) else describe_error(error)
