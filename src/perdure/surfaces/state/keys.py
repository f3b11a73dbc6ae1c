"""What a guarded write decides, as pure functions over a step: the statuses and messages that clients rely on."""

from __future__ import annotations

from typing import Any

from perdure.storage.state import Entry, Name
from perdure.storage.state_rounds import Payload, Step
from perdure.text.times import format_time

ANY = -1


def mismatch(step: Step, name: Name, expected: int) -> Payload | None:
    """Why a write that expects a version may not happen, or None."""
    entry, key = step.live(name), name[2]
    base: Payload = {"key": key, "revision": step.revision}
    if expected == ANY or (expected == 0 and entry is None):
        return None
    if entry is None:
        message = "Key does not exist. Use expected_version=0 to create, or force_set_state."
        return {"status": "not_found", **base, "message": message}
    actual = entry.version
    if expected == actual:
        return None
    if expected == 0:
        message = (
            f"Key already exists (version={actual}). "
            f"Use expected_version={actual} to update, or force_set_state."
        )
        return {
            **_current(entry),
            **base,
            "message": message,
            "expected_version": 0,
            "actual_version": actual,
        }
    message = f"Version mismatch: expected {expected}, actual {actual}. Call get_state and retry."
    return {
        **_current(entry),
        **base,
        "message": message,
        "expected_version": expected,
        "actual_version": actual,
    }


def _current(entry: Entry) -> Payload:
    """What a caller that expected another version needs, so that it need not read the key first."""
    return {"status": "conflict", "value": entry.value, "version": entry.version}


def set_key(step: Step, name: Name, value: str, expected: int, expires: int | None) -> Payload:
    refused = mismatch(step, name, expected)
    if refused is not None:
        return refused
    return wrote(step.put(name, value, expires))


def delete_key(step: Step, name: Name, expected: int) -> Payload:
    refused = mismatch(step, name, expected)
    if refused is not None:
        return refused
    if step.live(name) is None:
        return {"status": "ok", "key": name[2], "deleted": False, "revision": step.revision}
    gone = step.put(name, None)
    return {
        "status": "ok",
        "key": name[2],
        "deleted": True,
        "version": gone.version,
        "revision": gone.revision,
    }


def wrote(entry: Entry) -> Payload:
    return {
        "status": "ok",
        "key": entry.key,
        "version": entry.version,
        "revision": entry.revision,
        **times(entry),
    }


def shown(entry: Entry) -> Payload:
    return {
        "status": "ok",
        "key": entry.key,
        "value": entry.value,
        "version": entry.version,
        "revision": entry.revision,
        **times(entry),
    }


def times(entry: Entry) -> dict[str, Any]:
    found = {"updated_at": format_time(entry.updated)}
    if entry.expires is not None:
        found["expires_at"] = format_time(entry.expires)
    return found
