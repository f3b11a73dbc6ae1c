"""Events: what went wrong, what was refused, what was taken back, newest first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from itertools import groupby
from typing import Final

from perdure.dash.components import badge, card, code, file_link, session_link
from perdure.dash.context import MOST_ROWS, PageContext
from perdure.dash.html import Content, Markup, Row, element, link, table, text
from perdure.dash.times import day_name, moment, when
from perdure.dash.web import Ask, Page, Part
from perdure.host.recent_events import Event, Kind

LABELS: Final[dict[Kind, str]] = {
    "fault": "fault",
    "restart": "restart",
    "pause": "paused",
    "refusal": "refused",
    "conflict": "conflict",
    "failure": "failed call",
    "lost": "lost call",
    "operator": "operator",
    "undo": "undo",
}
EMPTY: Final = (
    "Nothing happened yet. Faults, restarts, refused and failed calls, conflicts and undos appear here."
)
_OF_A_TOOL: Final = frozenset({"refusal", "conflict", "failure", "lost"})


async def events(context: PageContext, ask: Ask) -> Page:
    wanted = ask.get("kind")
    found = [event for event in await context.events(1000) if wanted in ("", event.kind)]
    kinds = [_choice(kind, label, wanted) for kind, label in (("", "all"), *LABELS.items())]
    days = [card(day, event_table(group)) for day, group in by_day(found[:MOST_ROWS])]
    body = text(days) if days else card("Events", element("p", EMPTY, class_="empty"))
    return Page(
        "Events",
        (
            Part("kinds", element("p", kinds, class_="choices")),
            Part("events", element("div", body, class_="days"), news="event"),
        ),
    )


def event_table(events: Iterable[Event], empty: str = EMPTY) -> Markup:
    rows = (Row(f"{event.at} {event.subject}", _row(event)) for event in events)
    return table("Events, newest first", ("Time", "Kind", "Event", "Client"), rows, empty)


def by_day(events: Iterable[Event]) -> list[tuple[str, list[Event]]]:
    """In the order of the events, under the name of their day."""
    days = groupby(events, key=lambda event: day_of(event.at))
    return [(day_name(day), list(group)) for day, group in days]


def day_of(stamp: str | float) -> date:
    found = moment(stamp)
    return found.date() if found is not None else date.min


def _row(event: Event) -> tuple[Content, ...]:
    client: Content = event.client
    if event.session:
        client = [event.client, " ", session_link(event.session)]
    return (
        when(event.at),
        badge(event.kind, LABELS[event.kind]),
        [_subject(event), " ", event.text, f" (×{event.count})" if event.count > 1 else None],
        client,
    )


def _subject(event: Event) -> Content:
    if event.kind == "undo":
        return file_link(event.subject)
    if event.kind in _OF_A_TOOL:
        return code(event.subject)
    return link(event.subject, "/mounts/server", {"name": event.subject})


def _choice(kind: str, label: str, wanted: str) -> Markup:
    return link(label, "/events", {"kind": kind}, aria_current="true" if kind == wanted else None)
