"""Tasks on the wire, computed and never sent from here: read from a server's answer, and written under the host's handle."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from perdure.kernel.state import Invocation, Task
from perdure.protocol import eras
from perdure.protocol.eras import Era
from perdure.protocol.frames import Members, encode_members, joined, members, text_if_clear

_encode = msgspec.json.encode
_number = msgspec.json.Decoder(float)

POLL_MS: Final = 1000
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
RELATED: Final = "io.modelcontextprotocol/related-task"
_DETAILS: Final = ("result", "error", "inputRequests", "statusMessage")
_ENVELOPE: Final = ("resultType", "_meta")


def new_handle(session: str, number: int) -> str:
    """Not to be guessed, and it does not give the session away: whoever has it may read the result."""
    from hashlib import sha256

    return sha256(f"{session}.{number}".encode()).hexdigest()[:32]


def read_created(call: Invocation, era: Era, result: Raw | bytes) -> Members | None:
    """The task with which a server answered a call; None where it answered with a result."""
    if call.method != "tools/call" or b"taskId" not in bytes(result):
        return None
    try:
        answer = members(result)
        if era == "handshake":
            asked = "task" in members(call.params or b"{}")
            task = members(answer["task"]) if asked and "task" in answer else {}
        else:
            task = answer if bytes(answer.get("resultType", Raw(b""))) == b'"task"' else {}
    except ValueError:
        return None
    return task if inner_id(task) else None


def inner_id(task: Members) -> str:
    return text_if_clear(task.get("taskId")) or ""


def text_of(task: Members, key: str) -> str:
    return text_if_clear(task.get(key)) or ""


def with_handle(task: Members, handle: str) -> bytes:
    """The task as the client knows it."""
    kept = {key: value for key, value in task.items() if key not in _ENVELOPE}
    return joined({"taskId": Raw(_encode(handle)), **{k: v for k, v in kept.items() if k != "taskId"}})


def created_result(era: Era, result: Raw | bytes, handle: str) -> Raw | bytes:
    """The answer that made a task, with the handle in the place of the server's own id."""
    answer = members(result)
    if era == "modern":
        return encode_members({**answer, "taskId": Raw(_encode(handle))})
    task = members(answer["task"])
    return encode_members({**answer, "task": encode_members({**task, "taskId": Raw(_encode(handle))})})


def new_task(handle: str, wall: float, ttl_s: float) -> bytes:
    """A task of the host's own, as it begins."""
    at = timestamp(wall)
    return _encode(
        {
            "taskId": handle,
            "status": "working",
            "createdAt": at,
            "lastUpdatedAt": at,
            "ttlMs": round(ttl_s * 1000),
            "pollIntervalMs": POLL_MS,
        }
    )


def changed(task: Task, wall: float, status: str, **details: bytes) -> bytes:
    """The task with another status, and just that status's details."""
    known = {key: value for key, value in members(task.seen).items() if key not in _DETAILS}
    known["status"] = Raw(_encode(status))
    known["lastUpdatedAt"] = Raw(_encode(timestamp(wall)))
    return joined({**known, **{key: Raw(value) for key, value in details.items()}})


def status_of(task: Task) -> str:
    return text_of(members(task.seen), "status")


def answer_to(task: Task, method: str, era: Era) -> bytes:
    """The answer to a request about a task, from what is known of it. An acknowledgement of 2026 is empty."""
    if method == "tasks/result":
        assert task.result is not None
        return task.result
    if method == "tasks/get" or era == "handshake":
        return task.seen if era == "modern" else without_details(task)
    return b"{}"


def without_details(task: Task) -> bytes:
    """As the handshake era shows a task: its result has a method of its own."""
    known = members(task.seen)
    return joined({key: value for key, value in known.items() if key not in ("result", "error")})


def error_in(task: Task) -> Raw:
    return members(task.seen).get("error", Raw(b'{"code":-32603,"message":"the task has no result."}'))


def with_related_handle(result: Raw | bytes, handle: str) -> bytes:
    """A result of the handshake era names its task in `_meta`."""
    answer = members(result)
    meta = members(answer["_meta"]) if "_meta" in answer else {}
    meta[RELATED] = Raw(_encode({"taskId": handle}))
    return joined({**answer, "_meta": encode_members(meta)})


def expiry(task: Members, wall: float) -> float | None:
    """When its server may forget the task: its time to live, counted from now."""
    raw = task.get("ttlMs", task.get("ttl"))
    try:
        return wall + _number.decode(raw) / 1000.0 if raw is not None else None
    except msgspec.MsgspecError:
        return None


def declares_tasks(capabilities: Raw | bytes | None) -> bool:
    """Whether a client says that it can be answered with a task."""
    try:
        declared = members(capabilities) if capabilities is not None else {}
        return eras.TASKS in members(declared.get("extensions", Raw(b"{}")))
    except ValueError:
        return False


def declaring_tasks(capabilities: bytes) -> bytes:
    """The same capabilities with the extension among them: a server speaks of tasks to no other client."""
    try:
        declared = members(capabilities)
        extensions = members(declared.get("extensions", Raw(b"{}")))
    except ValueError:
        declared, extensions = {}, {}
    return joined({**declared, "extensions": encode_members({**extensions, eras.TASKS: Raw(b"{}")})})


def timestamp(wall: float) -> str:
    """ISO 8601 in UTC, computed here: the kernel imports no clock. Years count from March, so that leap days come last."""
    days, seconds = divmod(int(wall), 86400)
    era, day_of_era = divmod(days + 719468, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400 + (month <= 2)
    clock = f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return f"{year:04}-{month:02}-{day:02}T{clock}Z"
