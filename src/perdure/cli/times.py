"""Times as commands show them: in the time zone of this machine, which is named, and how long ago."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime.fromtimestamp(0, UTC)


def microseconds_of(text: str) -> int:
    """Of a time as results have it: ISO 8601 in UTC."""
    return int((datetime.fromisoformat(text) - _EPOCH) / timedelta(microseconds=1))


def zone() -> str:
    """The name of the local time zone, such as `CET`."""
    return datetime.now().astimezone().tzname() or "local"


def short(ts_us: int) -> str:
    """Local: the time of day for today, else the day; at most 12 characters."""
    then, now = _local(ts_us), datetime.now().astimezone()
    if then.date() == now.date():
        return then.strftime("%H:%M:%S")
    return then.strftime("%b %d %H:%M" if then.year == now.year else "%Y-%m-%d")


def full(ts_us: int) -> str:
    """Local, with the offset to UTC: `2026-11-18T09:03:58-05:00`."""
    return _local(ts_us).isoformat(timespec="seconds")


def age(ts_us: int) -> str:
    """`30 s ago`, `5 min ago`, `3 h ago`, `12 d ago`."""
    seconds = max(int(time.time() - ts_us / 1_000_000), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _local(ts_us: int) -> datetime:
    return (_EPOCH + timedelta(microseconds=ts_us)).astimezone()
