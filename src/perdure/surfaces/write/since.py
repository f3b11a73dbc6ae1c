"""The argument `since` of the tools that look back."""

from __future__ import annotations

from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import FILL, call_again
from perdure.text.times import InvalidTime, parse_time


def parse_since(text: str | None) -> int | None:
    """Parse the argument into microseconds since the epoch. Raises ToolError."""
    try:
        return parse_time(text)
    except InvalidTime:
        raise refuse(
            "invalid_input",
            "bad_time",
            "since must be a time such as 2026-11-17T13:00Z, 10m, 2h or today.",
            next_step=call_again(since=FILL),
            suggested_action="fix_syntax",
        ) from None
