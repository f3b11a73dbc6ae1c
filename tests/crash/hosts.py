"""What the crash tests ask of a bed: which of its processes live, and what its hosts wrote down."""

from __future__ import annotations

import json
from typing import Any

from harness.processes import MARK, marked, wait_for
from testbed import Bed, Client

SOON = 15.0


def mark(bed: Bed) -> None:
    """From here on every process that the bed starts, and all of theirs, can be found."""
    bed.environ[MARK] = str(bed.root)
    bed.mount_env = [MARK]


def alive(bed: Bed) -> list[int]:
    return marked(str(bed.root))


def are_alive(bed: Bed, count: int) -> bool:
    """A process that is just being started cannot be told from none: they may take a moment to be seen."""
    return wait_for(lambda: len(alive(bed)) == count, SOON)


def none_left(bed: Bed) -> bool:
    return wait_for(lambda: not alive(bed) and not alive(bed), SOON)


def pids(client: Client) -> dict[str, int]:
    """The processes that serve, by mount, when all of them do."""
    for name in [row["name"] for row in client.health()["mounts"]]:
        client.wait_row(name, state="ready")
    return {row["name"]: row["pid"] for row in client.health()["mounts"]}


def notes(bed: Bed, event: str, **wanted: Any) -> list[dict[str, Any]]:
    """The records of the event log so far."""
    path = bed.root / "home" / "log" / "events.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    found = [record for line in lines if (record := json.loads(line))["event"] == event]
    return [r for r in found if all(r.get(key) == value for key, value in wanted.items())]


def wait_note(bed: Bed, event: str, count: int = 1, **wanted: Any) -> dict[str, Any]:
    assert wait_for(lambda: len(notes(bed, event, **wanted)) >= count, SOON), notes(bed, event)
    return notes(bed, event, **wanted)[count - 1]
