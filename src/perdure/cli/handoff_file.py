"""A handoff read the short way: a file as Perdure itself writes it, beside files that are what they seem.

The same answer as the tool `handoff_read`, which is asked about everything else.
"""

from __future__ import annotations

import os

from perdure.cli.short_way import NotSimple, hash_of, looked, opened, sha256_for
from perdure.model.step_graph import GraphError, ready_steps
from perdure.surfaces.write import plain_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from perdure.cli.whereabouts import Whereabouts

MOST_BYTES = 256 * 1024
MOST_REFS = 50
STATUSES = ("complete", "partial", "blocked", "handed_off")
STEP_STATUSES = ("pending", "in_progress", "done", "blocked")
_NAMES = ("task_id", "agent")
_LISTS = ("next_steps", "open_questions", "blockers", "steps")
_HEX = frozenset("0123456789abcdef")
_SHELF = (
    "SELECT name, sha, size FROM shelf WHERE kind = 'checkpoint' AND (expires IS NULL OR expires > ?) "
    "ORDER BY name, at LIMIT ?"
)


class NoHandoff(Exception):
    """There is no such file."""


class _Step:
    def __init__(self, given: dict[str, Any]) -> None:
        self.id = str(given.get("id", ""))
        self.depends_on = given.get("depends_on", [])
        self.status = given.get("status", "pending")
        is_sound = _is_name(given.get("id")) and isinstance(given.get("description", ""), str)
        if not is_sound or not isinstance(self.depends_on, list) or self.status not in STEP_STATUSES:
            raise NotSimple
        if not all(map(_is_name, self.depends_on)):
            raise NotSimple


def read(where: Whereabouts, path: str) -> dict[str, Any]:
    """What `perdure handoff show` shows. Raises NotSimple, NoHandoff."""
    data = _data(where, path)
    front, body = _split(_text(data))
    try:
        envelope = plain_yaml.read(front)
        _check(envelope)
        ready = ready_steps([_Step(step) for step in envelope.get("steps", [])])
    except (plain_yaml.NotPlain, GraphError):
        raise NotSimple from None
    return {
        "handoff_path": path,
        "sha256": sha256_for(len(data))(data).hexdigest(),
        "drift_warnings": [found for good in envelope["last_good_state"] if (found := _drift(where, good))],
        "ready_steps": ready,
        "checkpoint_refs": looked(where, _checkpoints)["refs"],
        "envelope": envelope,
        "body": body,
    }


def _data(where: Whereabouts, path: str) -> bytes:
    fd = opened(where, path)
    if fd is None:
        raise NoHandoff
    with open(fd, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES or b"\r" in data or b"\0" in data:
        raise NotSimple
    return data


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise NotSimple from None


def _split(text: str) -> tuple[str, str]:
    begin, end = text.startswith("---\n"), text.find("\n---\n", 3)
    front = text[4 : end + 1]
    if not begin or end < 0 or any(line.startswith(("---", "...")) for line in front.split("\n")):
        raise NotSimple
    return front, text[end + 5 :]


def _check(envelope: dict[str, Any]) -> None:
    """Only what could not be otherwise; the tool says what is wrong with the rest."""
    summary = envelope.get("summary")
    is_sound = (
        all(_is_name(envelope.get(name)) for name in _NAMES)
        and envelope.get("status") in STATUSES
        and isinstance(summary, str)
        and 0 < len(summary) <= 20_000
        and all(isinstance(envelope.get(name, []), list) for name in _LISTS)
        and "next_steps" in envelope
        and isinstance(envelope.get("context_hints", []), (list, dict))
        and isinstance(envelope.get("last_good_state"), list)
        and all(isinstance(step, dict) for step in envelope.get("steps", []))
        and all(map(_is_good_file, envelope["last_good_state"]))
    )
    if not is_sound:
        raise NotSimple


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200


def _is_good_file(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    path, sha = value.get("path"), value.get("sha256")
    is_path = isinstance(path, str) and 0 < len(path) <= 4096 and not os.path.isabs(path)
    return is_path and isinstance(sha, str) and len(sha) == 64 and _HEX.issuperset(sha)


def _drift(where: Whereabouts, good: dict[str, str]) -> dict[str, str] | None:
    path, expected = good["path"], good["sha256"]
    actual = hash_of(where, path)
    if actual is None:
        return {"path": path, "reason": "missing", "expected_sha256": expected}
    if actual.hex() == expected:
        return None
    return {
        "path": path,
        "reason": "hash_mismatch",
        "expected_sha256": expected,
        "actual_sha256": actual.hex(),
    }


def _checkpoints(connection: apsw.Connection) -> dict[str, Any]:
    from time import time

    rows: list[Any] = connection.execute(_SHELF, (int(time() * 1_000_000), MOST_REFS)).fetchall()
    return {
        "refs": [
            {"name": name, "sha256": sha.hex(), "bytes": size, "path": f"perdure://checkpoints/{name}"}
            for name, sha, size in rows
        ]
    }
