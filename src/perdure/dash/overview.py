"""The first page, and those about what runs: servers and sessions."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal, cast

from perdure import risk
from perdure.dash.charts import Line, chart, number
from perdure.dash.desk import MOST_ROWS, Desk, MountRow
from perdure.dash.html import Content, Markup, element, link, table, text
from perdure.dash.layout import card
from perdure.dash.pieces import badge, button, code, short
from perdure.dash.untrusted import untrusted_part
from perdure.dash.web import Ask, NotThere, Page, Part
from perdure.kernel.events import Order
from perdure.model.eras import LATEST_MODERN
from perdure.serve.session import HttpSession

MOST_LINES: Final = 40


async def overview(desk: Desk, ask: Ask) -> Page:
    rows, calls = desk.mounts(), desk.calls()
    return Page(
        "Overview",
        (
            Part("figures", _figures(desk, rows, len(calls))),
            untrusted_part(desk.untrusted),
            Part("charts", _charts(desk)),
            Part("servers", card("Servers", _servers(rows))),
            Part(
                "running",
                card(
                    "Running now",
                    table(
                        "Calls that wait for an answer",
                        ("Tool", "Server", "Client", "Session", "Seconds"),
                        (
                            (code(one.name), one.mount, one.client, short(one.session), one.seconds)
                            for one in calls[:MOST_ROWS]
                        ),
                        "No call is running.",
                    ),
                ),
            ),
        ),
    )


async def mounts(desk: Desk, ask: Ask) -> Page:
    rows = desk.mounts()
    shown = [_mount(desk, row, await _shown_words(row.said)) for row in rows]
    return Page("Servers", (Part("mounts", text(shown)),))


async def _shown_words(said: str) -> str:
    """What a server wrote to standard error, without what looks like a secret. The check takes its time."""
    return await asyncio.to_thread(_masked, said) if said else ""


@lru_cache(maxsize=64)
def _masked(said: str) -> str:
    return risk.redact(said, risk.scan(said))


async def sessions(desk: Desk, ask: Ask) -> Page:
    found = sorted(desk.clients, key=lambda one: -one.used_at)
    body = table(
        "Sessions in memory",
        (
            "Client",
            "Session",
            "Workspace",
            "Protocol",
            "Requests",
            "Errors",
            "Replays",
            "Running",
            "Last used",
        ),
        (_session(desk, one) for one in found[:MOST_ROWS]),
        "Nobody is connected. Clients connect at /mcp.",
    )
    return Page("Sessions", (Part("sessions", card(f"{len(found)} in memory", body)),))


async def order(desk: Desk, form: dict[str, str]) -> str:
    """Restart, stop or start a server for everyone."""
    action, name = form.get("action", ""), form.get("name", "")
    if action not in ("restart", "enable", "disable") or name not in {row.name for row in desk.mounts()}:
        raise NotThere
    desk.sessions.order(Order(name, cast("Literal['restart', 'enable', 'disable']", action)))
    return "/mounts"


def _figures(desk: Desk, rows: list[MountRow], running: int) -> Markup:
    now = desk.pulse.recent()
    open_circuits = sum(row.circuit != "closed" for row in rows)
    faults = desk.sessions.switchboard.faults
    replays = sum(one.kernel.state.metrics.totals.replays for one in desk.clients)
    figures: Iterable[tuple[str, str, bool]] = (
        ("Sessions", str(len(desk.clients)), False),
        ("Calls per second", str(now.calls), False),
        ("Calls", f"{desk.pulse.calls:,}", False),
        ("Running", str(running), False),
        ("p50", f"{number(now.p50)} ms", False),
        ("p99", f"{number(now.p99)} ms", False),
        ("Errors", f"{desk.pulse.errors:,}", bool(desk.pulse.errors)),
        ("of tools", f"{desk.pulse.tool_errors:,}", False),
        ("Faults", f"{faults:,}", bool(faults)),
        ("Replays", f"{replays:,}", False),
        ("Open circuits", str(open_circuits), bool(open_circuits)),
    )
    return element(
        "dl",
        [
            element("div", element("dt", name), element("dd", value), class_="bad" if is_bad else None)
            for name, value, is_bad in figures
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
            Line("errors", "bad", [beat.errors for beat in beats]),
        ),
        chart(
            "Latency",
            "ms",
            Line("p50", "first", [beat.p50 for beat in beats]),
            Line("p99", "second", [beat.p99 for beat in beats]),
        ),
        class_="charts",
    )


def _servers(rows: list[MountRow]) -> Markup:
    return table(
        "Servers behind all sessions",
        ("Server", "State", "Circuit", "Restarts", "Last fault"),
        (
            (
                link(row.name, "/mounts"),
                badge(row.state),
                badge(row.circuit),
                row.restarts,
                row.fault or "none",
            )
            for row in rows
        ),
        "No server has been started yet: the first session starts them.",
    )


def _mount(desk: Desk, row: MountRow, said: str) -> Markup:
    facts: tuple[tuple[str, Content], ...] = (
        ("Circuit", badge(row.circuit)),
        ("Restarts", row.restarts),
        ("Tools", row.tools),
        ("Sessions", row.sessions),
        ("Processes", ", ".join(map(str, row.pids)) or "none"),
        (
            "Last fault",
            [row.fault or "none", element("span", f" {row.hint}", class_="hint") if row.hint else None],
        ),
    )
    if row.state == "untrusted":
        hint = element("p", row.hint, class_="hint")
        return element("section", element("h2", row.name, " ", badge(row.state)), hint, class_="card")
    other = "enable" if row.state == "disabled" else "disable"
    return element(
        "section",
        element("h2", row.name, " ", badge(row.state)),
        element(
            "dl",
            [element("div", element("dt", name), element("dd", said)) for name, said in facts],
            class_="facts",
        ),
        _stderr(row.name, said),
        element(
            "div",
            _order(desk, row.name, "restart", "plain"),
            _order(desk, row.name, other, "danger" if other == "disable" else "main"),
            class_="actions",
        ),
        class_="card",
    )


def _stderr(name: str, said: str) -> Markup:
    if not said:
        return element("p", "Nothing on standard error.", class_="empty")
    lines = "\n".join(said.splitlines()[-MOST_LINES:])
    body = element(
        "pre", element("code", lines), tabindex=0, role="region", aria_label=f"Standard error of {name}"
    )
    return element("div", element("h3", "End of standard error"), body)


def _order(desk: Desk, name: str, action: str, kind: Literal["plain", "danger", "main"]) -> Markup:
    said = f"{action.capitalize()} {name}"
    return button(
        desk, action.capitalize(), "/mounts/order", {"action": action, "name": name}, kind=kind, said=said
    )


def _session(desk: Desk, one: HttpSession) -> tuple[Content, ...]:
    state, totals = one.kernel.state.session, one.kernel.state.metrics.totals
    return (
        state.client_name,
        link(short(state.session_id), "/journal", {"session": state.session_id}),
        os.path.basename(one.workspace) or "all",
        state.version or LATEST_MODERN,
        totals.requests,
        totals.errors,
        totals.replays,
        len(one.kernel.state.calls),
        f"{max(0, time.monotonic() - one.used_at):.0f} s ago",
    )
