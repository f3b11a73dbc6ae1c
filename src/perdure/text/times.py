"""Times as people write them, and as the journal keeps them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import FILL, call_again

_AGO: Final = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_EPOCH = datetime(1970, 1, 1)  # of UTC; without a zone, which would have to be worked out each time


def iso(ts: int) -> str:
    """Microseconds as UTC text that sorts as it reads."""
    return (_EPOCH + timedelta(microseconds=ts)).isoformat(timespec="microseconds") + "Z"


def microseconds(text: str | None) -> int | None:
    """A time as a caller gives it: ISO 8601, UTC where it names no zone; `10m` ago; `today` or `yesterday`, from
    midnight here."""
    if text is None:
        return None
    if (ago := _AGO.fullmatch(text)) is not None:
        when = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    elif text in ("today", "yesterday"):
        day = datetime.now().astimezone() - timedelta(days=text == "yesterday")
        when = day.replace(hour=0, minute=0, second=0, microsecond=0)
    else:
        when = _iso_time(text)
    return int((when - datetime.fromtimestamp(0, UTC)) / timedelta(microseconds=1))


def _iso_time(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise refuse(
            "invalid_input",
            "bad_time",
            "since must be a time such as 2026-11-17T13:00Z, 10m, 2h or today.",
            next_step=call_again(since=FILL),
            suggested_action="fix_syntax",
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
