"""One line that answers whether something is wrong, from what is known of servers, events and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from perdure.dash.components import count
from perdure.dash.context import ServerRow
from perdure.dash.times import ago
from perdure.host.recent_events import Event

WINDOW_S: Final = 300.0
# Agents miss an edit now and then. A share of failed calls above this is worth a look.
MOST_FAILED_SHARE: Final = 0.1
LEAST_FAILED: Final = 5
MOST_NAMED: Final = 3

Level = Literal["good", "warn", "bad"]


class Verdict(msgspec.Struct, frozen=True):
    level: Level
    text: str


def judge(
    servers: Sequence[ServerRow], events: Sequence[Event], calls: int, failed: int, now: float
) -> Verdict:
    """`calls` and `failed` are those of the last five minutes; `now` is in seconds since 1970."""
    down = [_down(row) for row in servers if row.state == "degraded"]
    recent = [event for event in events if event.kind == "fault" and now - event.at < WINDOW_S]
    is_down = {row.name for row in servers if row.state == "degraded"}
    faults = [_fault(event, servers, now) for event in recent if event.subject not in is_down]
    many = failed >= LEAST_FAILED and failed >= calls * MOST_FAILED_SHARE
    counted = [f"{count(failed, 'failed call')} in 5 min"] if many else []
    problems = [*_named(down, "servers are down"), *_named(faults, "faults"), *counted]
    if problems:
        return Verdict("bad" if down else "warn", f"{'; '.join(problems)}.")
    if failed:
        return Verdict("good", f"All well. {failed} of {count(calls, 'call')} in 5 min failed.")
    return Verdict("good", "All well.")


def _named(sentences: list[str], others: str) -> list[str]:
    more = len(sentences) - MOST_NAMED
    return sentences if more <= 0 else [*sentences[:MOST_NAMED], f"{more} more {others}"]


def _down(row: ServerRow) -> str:
    return f"{row.name} is paused after repeated failures" + (f" ({row.fault})" if row.fault else "")


def _fault(event: Event, servers: Sequence[ServerRow], now: float) -> str:
    state = next((row.state for row in servers if row.name == event.subject), "")
    then = {
        "ready": " and restarted",
        "recovering": " and is being restarted",
        "starting": " and is being restarted",
    }
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"{event.sentence}{times} {ago(now - event.at)}{then.get(state, '')}"
