"""The first page: whether something is wrong, what happened, which tool fails, and what runs now."""

from __future__ import annotations

import time
from typing import Final

from perdure.dash.charts import Line, chart
from perdure.dash.components import card, code, session_link, untrusted_part
from perdure.dash.context import MOST_ROWS, Call, PageContext
from perdure.dash.html import Markup, element, link, table
from perdure.dash.pages.events import event_table
from perdure.dash.pages.servers import server_table
from perdure.dash.pages.tools import tool_table
from perdure.dash.tool_client import ToolFailed
from perdure.dash.verdict import Verdict, judge
from perdure.dash.web import Ask, Page, Part

MOST_EVENTS: Final = 8
MOST_TOOLS: Final = 8


async def overview(context: PageContext, ask: Ask) -> Page:
    servers, counters = context.servers(), context.tool_counters()
    events = await context.events()
    calls, failed = context.metrics.window
    verdict = judge(servers, events, calls, failed, time.time())
    all_events = link("All events", "/events", class_="more") if len(events) > MOST_EVENTS else None
    all_tools = link("All tools", "/tools", class_="more") if len(counters) > MOST_TOOLS else None
    return Page(
        "Overview",
        (
            Part("verdict", _verdict(verdict, context)),
            Part("figures", await _figures(context, calls, failed)),
            untrusted_part(context.untrusted),
            Part(
                "events", card("Latest events", event_table(events[:MOST_EVENTS]), all_events), news="event"
            ),
            Part("tools", card("Tools", tool_table(counters, MOST_TOOLS), all_tools)),
            Part("charts", _charts(context)),
            Part("servers", card("Servers", server_table(servers))),
            Part("running", card("Running now", _running(context.calls()))),
        ),
    )


def _verdict(verdict: Verdict, context: PageContext) -> Markup:
    hint = (
        f" No client is connected yet; clients connect at {context.address}." if not context.clients else ""
    )
    return element("p", element("b", verdict.text), hint, class_=f"verdict {verdict.level}", role="status")


async def _figures(context: PageContext, calls: int, failed: int) -> Markup:
    try:
        writes = None if context.is_wrapped else await context.read_store(context.stores.writes_today)
    except ToolFailed:
        writes = None
    faults = context.sessions.server_pool.faults
    share = f" ({failed / calls:.0%})" if failed and calls else ""
    second = ("Faults since the start", f"{faults:,}", "/events", bool(faults))
    if writes is not None:
        second = ("Changes today", f"{writes:,}", "/journal", False)
    figures = (
        ("Sessions", f"{len(context.clients):,}", "/sessions", False),
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


def _charts(context: PageContext) -> Markup:
    samples = list(context.metrics.samples)
    return element(
        "div",
        chart(
            "Calls per second",
            "/s",
            Line("calls", "first", [sample.calls for sample in samples]),
            Line("failed", "bad", [sample.errors for sample in samples]),
        ),
        chart(
            "Latency",
            "ms",
            Line("p50", "first", [sample.p50 for sample in samples]),
            Line("p99", "second", [sample.p99 for sample in samples]),
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
