"""Sessions: who is connected, and what one session called and wrote."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from perdure.dash.charts import NO_DATA, milliseconds
from perdure.dash.components import badge, card, code, count, facts, field, search, session_link, short
from perdure.dash.context import MOST_ROWS, PageContext
from perdure.dash.html import Cell, Content, Figure, Markup, Row, element, link, table
from perdure.dash.pages.events import LABELS
from perdure.dash.pages.journal import change_table, entries_of_session
from perdure.dash.pages.tools import tool_table
from perdure.dash.times import when
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part
from perdure.host.recent_events import describe_call
from perdure.kernel.state import EndedCall
from perdure.protocol.eras import LATEST_MODERN
from perdure.serve.http_session import HttpSession

HEADS: Final = (
    "Client",
    "Session",
    "Workspace",
    "Started",
    "Last call",
    "Calls",
    "Failed",
    "Running",
    "Last used",
)
EMPTY: Final = "No client is connected. Clients connect at {0}, or with perdure attach."
SINCE: Final = ("10m", "1h", "today")


async def sessions(context: PageContext, ask: Ask) -> Page:
    known = sorted(context.clients, key=lambda one: -one.used_at)
    rows = (Row(_id(one), _row(context, one)) for one in known[:MOST_ROWS])
    body = table("Sessions, the last used first", HEADS, rows, EMPTY.format(context.address))
    hint = "A session that is not used for five minutes leaves this list; it comes back with its next call."
    title = count(len(known), "session")
    return Page("Sessions", (Part("sessions", card(title, body, element("p", hint, class_="hint"))),))


async def session(context: PageContext, ask: Ask) -> Page:
    """One session: its calls, its tools and its writes. Its writes are known as long as the journal is."""
    identity = ask.get("id")
    found = next((one for one in context.sessions.all if _id(one) == identity), None)
    entries = await _entries(context, identity)
    if found is None and not entries:
        raise NotThere
    client = found.kernel.state.session.client_name if found is not None else entries[0]["client"]
    parts = [Part("session", card(f"Session of {client}", _facts(context, identity, found)))]
    if found is not None:
        metrics = found.kernel.state.metrics
        parts.append(Part("calls", card("Latest calls", _calls(metrics.recent)), news="call"))
        parts.append(Part("tools", card("Tools", tool_table(metrics.tools, MOST_ROWS))))
    if not context.is_wrapped:
        writes = change_table(
            entries, await context.line_counts(entries), "This session has changed no file."
        )
        undo = _undo_form(identity) if entries else None
        more = link("All in the journal", "/journal", {"session": identity}, class_="more")
        parts.append(Part("writes", card("Changes", undo, writes, more), news="change"))
    return Page(f"{client} · {identity[:8]}", tuple(parts))


async def _entries(context: PageContext, identity: str) -> list[dict[str, Any]]:
    if context.is_wrapped or not identity:
        return []
    try:
        return await entries_of_session(context, identity)
    except ToolFailed:
        return []  # the calls of the session are shown all the same


def _facts(context: PageContext, identity: str, found: HttpSession | None) -> Markup:
    if found is None:
        return facts(
            [("Session", short(identity)), ("State", "not in memory: it is not connected or not used")]
        )
    state, totals = found.kernel.state.session, found.kernel.state.metrics.totals
    return facts(
        [
            ("Session", short(identity)),
            ("Workspace", _workspace(context, found)),
            ("Protocol", state.version or LATEST_MODERN),
            ("Started", when(_wall(state.started_at))),
            ("Last used", when(_wall(found.used_at))),
            ("Requests", totals.requests),
            ("Failed", totals.errors),
            ("Sent again after a fault", totals.replays),
        ]
    )


def _row(context: PageContext, one: HttpSession) -> tuple[Cell, ...]:
    state, metrics = one.kernel.state.session, one.kernel.state.metrics
    last = metrics.recent[-1] if metrics.recent else None
    return (
        state.client_name,
        session_link(state.session_id),
        _workspace(context, one),
        when(_wall(state.started_at)),
        code(last.tool) if last is not None else NO_DATA,
        metrics.totals.requests,
        metrics.totals.errors,
        len(one.kernel.state.calls),
        when(_wall(one.used_at)),
    )


def _calls(calls: list[EndedCall]) -> Markup:
    return table(
        "Latest calls, newest first",
        ("Time", "Tool", "Server", "Took", "Outcome"),
        (
            Row(
                f"{call.at} {call.tool}",
                (
                    when(_wall(call.at)),
                    code(call.tool),
                    call.mount,
                    Figure(milliseconds(call.ms)),
                    _outcome(call),
                ),
            )
            for call in reversed(calls)
        ),
        "This session has called no tool yet.",
    )


def _outcome(call: EndedCall) -> Content:
    if call.ending == "success":
        return badge("ok")
    kind, words = describe_call(call.ending, call.code)
    return [badge(kind, LABELS[kind]), f" {words}"]


def _undo_form(identity: str) -> Markup:
    hidden = element("input", type="hidden", name="session", value=identity)
    since = field("Since", "since", "1h", SINCE, required=True)
    return search("Undo the changes of this session", "Undo all since then…", "/journal/undo", hidden, since)


def _workspace(context: PageContext, one: HttpSession) -> Content:
    names = [one.workspace] if one.workspace else list(context.sessions.settings.workspaces)
    return element("span", ", ".join(os.path.basename(path) for path in names), title="\n".join(names))


def _id(one: HttpSession) -> str:
    return one.kernel.state.session.session_id


def _wall(at: float) -> float:
    """A time of the kernel's clock in seconds since 1970."""
    return round(time.time() - (time.monotonic() - at))
