"""The first page: whether something is wrong, what happened, which tool fails, and what runs now."""

from __future__ import annotations

import time
from typing import Final

from perdure.dash.charts import Line, chart
from perdure.dash.desk import MOST_ROWS, Call, Desk
from perdure.dash.html import Markup, element, link, table
from perdure.dash.layout import card
from perdure.dash.pages.events import event_table
from perdure.dash.pages.servers import server_table
from perdure.dash.pages.tools import tool_table
from perdure.dash.pages.untrusted import untrusted_part
from perdure.dash.pieces import code, session_link
from perdure.dash.tools import ToolFailed
from perdure.dash.verdict import Verdict, judge
from perdure.dash.web import Ask, Page, Part

MOST_EVENTS: Final = 8
MOST_TOOLS: Final = 8


async def overview(desk: Desk, ask: Ask) -> Page:
    servers, counters = desk.servers(), desk.tool_counters()
    events = await desk.events()
    calls, failed = desk.pulse.window
    verdict = judge(servers, events, calls, failed, time.time())
    all_events = link("All events", "/events", class_="more") if len(events) > MOST_EVENTS else None
    all_tools = link("All tools", "/tools", class_="more") if len(counters) > MOST_TOOLS else None
    return Page(
        "Overview",
        (
            Part("verdict", _verdict(verdict, desk)),
            Part("figures", await _figures(desk, calls, failed)),
            untrusted_part(desk.untrusted),
            Part(
                "events", card("Latest events", event_table(events[:MOST_EVENTS]), all_events), news="event"
            ),
            Part("tools", card("Tools", tool_table(counters, MOST_TOOLS), all_tools)),
            Part("charts", _charts(desk)),
            Part("servers", card("Servers", server_table(servers))),
            Part("running", card("Running now", _running(desk.calls()))),
        ),
    )


def _verdict(verdict: Verdict, desk: Desk) -> Markup:
    hint = f" No client is connected yet; clients connect at {desk.address}." if not desk.clients else ""
    return element("p", element("b", verdict.text), hint, class_=f"verdict {verdict.level}", role="status")


async def _figures(desk: Desk, calls: int, failed: int) -> Markup:
    try:
        writes = None if desk.is_wrapped else await desk.look(desk.looks.writes_today)
    except ToolFailed:
        writes = None
    faults = desk.sessions.server_pool.faults
    share = f" ({failed / calls:.0%})" if failed and calls else ""
    second = ("Faults since the start", f"{faults:,}", "/events", bool(faults))
    if writes is not None:
        second = ("Changes today", f"{writes:,}", "/journal", False)
    figures = (
        ("Sessions", f"{len(desk.clients):,}", "/sessions", False),
        second,
        ("Calls in 5 min", f"{calls:,}", "/tools", False),
        ("Failed calls in 5 min", f"{failed:,}{share}", "/events?kind=failure", bool(failed)),
    )
    return element(
        "dl",
        [
            element(
                "div", element("dt", name), element("dd", link(value, to)), class_="bad" if is_bad else None
            )
            for name, value, to, is_bad in figures
        ],
        class_="figures",
    )


def _charts(desk: Desk) -> Markup:
    beats = list(desk.pulse.beats)
    return element(
        "div",
        chart(
            "Calls per second",
            "/s",
            Line("calls", "first", [beat.calls for beat in beats]),
            Line("failed", "bad", [beat.errors for beat in beats]),
        ),
        chart(
            "Latency",
            "ms",
            Line("p50", "first", [beat.p50 for beat in beats]),
            Line("p99", "second", [beat.p99 for beat in beats]),
        ),
        class_="charts",
    )


def _running(calls: list[Call]) -> Markup:
    return table(
        "Calls that wait for an answer",
        ("Tool", "Server", "Client", "Session", "Seconds"),
        (
            (code(call.name), call.mount, call.client, session_link(call.session), call.seconds)
            for call in calls[:MOST_ROWS]
        ),
        "No call is running.",
    )
