"""Times as people write them, and as the journal keeps them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from perdure.model.envelope import refuse

_EPOCH = datetime(1970, 1, 1)  # of UTC; without a zone, which would have to be worked out each time


def iso(ts: int) -> str:
    """Microseconds as UTC text that sorts as it reads."""
    return (_EPOCH + timedelta(microseconds=ts)).isoformat(timespec="microseconds") + "Z"


def microseconds(text: str | None) -> int | None:
    """A time as a caller gives it: ISO 8601, UTC where it names no zone."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise refuse("invalid_input", "bad_time", "since is a time in ISO 8601") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int((when - datetime.fromtimestamp(0, UTC)) / timedelta(microseconds=1))
