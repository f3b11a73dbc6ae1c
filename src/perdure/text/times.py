"""Format the journal's timestamps, and parse the times that callers write."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_AGE: Final = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_EPOCH: Final = datetime(1970, 1, 1)  # in UTC; naive, since formatting an aware time is slower


class InvalidTime(Exception):
    """A text that is not a time."""


def format_time(microseconds: int) -> str:
    """Format microseconds since the epoch as ISO 8601 in UTC. The texts sort like the times."""
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str | None) -> int | None:
    """Parse a time into microseconds since the epoch. Raises InvalidTime.

    `text` is ISO 8601 (UTC if it has no zone), an age such as `10m`, or `today` or `yesterday`: local midnight.
    """
    if text is None:
        return None
    try:
        time = _parse(text)
    except (ValueError, OverflowError):  # OverflowError: an age that goes back before year 1
        raise InvalidTime(text) from None
    return int((time - datetime.fromtimestamp(0, UTC)) / timedelta(microseconds=1))


def _parse(text: str) -> datetime:
    if (age := _AGE.fullmatch(text)) is not None:
        return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    if text in ("today", "yesterday"):
        day = datetime.now().astimezone() - timedelta(days=text == "yesterday")
        return day.replace(hour=0, minute=0, second=0, microsecond=0)
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
