"""Servers: how each one is, its page, and restarting, disabling and enabling it for everyone."""

from __future__ import annotations

import time
from typing import Final, Literal, cast

from perdure.dash.components import block, button, card, code, count, facts, health, note, session_link
from perdure.dash.context import PageContext, ServerRow, mask
from perdure.dash.html import Content, Figure, Markup, address, element, link, table
from perdure.dash.pages.events import event_table
from perdure.dash.pages.tools import WAITS, tool_figures
from perdure.dash.times import lasting, when
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part
from perdure.kernel.events import Order

MOST_LINES: Final = 40
MOST_EVENTS: Final = 20
EMPTY: Final = "No server has been started yet: the first session starts them."
_DONE: Final = {
    "restart": "was restarted",
    "enable": "was enabled",
    "disable": "was disabled for all sessions",
}


async def servers(context: PageContext, ask: Ask) -> Page:
    return Page(
        "Servers", (Part("servers", card("Servers behind all sessions", server_table(context.servers()))),)
    )


async def server(context: PageContext, ask: Ask) -> Page:
    row = _named(context, ask.get("name"))
    counters = context.tool_counters()
    offered = context.tools_of(row.name)
    tools = table(
        f"Tools of {row.name}",
        ("Tool", "Calls", "Failed", "p50", "p99", "Description"),
        ((code(name, class_="name"), *tool_figures(counters.get(name)), text) for name, text in offered),
        "This server has not listed its tools yet.",
    )
    found = [event for event in await context.events() if event.subject == row.name]
    stderr = await mask(row.stderr)
    return Page(
        row.name,
        (
            *_notice(context, row, ask.get("done")),
            Part(
                "server",
                card([row.name, " ", health(row.state)], _facts(context, row), _actions(context, row)),
            ),
            Part(
                "events", card("Events", event_table(found[:MOST_EVENTS], f"Nothing happened to {row.name}."))
            ),
            Part("stderr", card("End of standard error", _stderr(row.name, stderr))),
            Part("tools", card(_tool_count(len(offered)), tools, element("p", WAITS, class_="hint"))),
        ),
    )


async def disable(context: PageContext, ask: Ask) -> Page:
    """What it would mean, and the button that does it."""
    row = _named(context, ask.get("name"))
    if row.spec.builtin:
        raise ToolFailed(_never(row.name))
    calls = [call for call in context.calls() if call.mount == row.name]
    users = [one for one in context.clients if row.name in one.kernel.state.mounts]
    names = [one.kernel.state.session for one in users]
    who = table(
        "Sessions that use it",
        ("Client", "Session"),
        ((state.client_name, session_link(state.session_id)) for state in names),
        "No session uses it now.",
    )
    text = (
        f"{count(len(users), 'session')} can use {row.name}, and {count(len(calls), 'call')} of it "
        f"{'is' if len(calls) == 1 else 'are'} running. Its tools disappear from every session, new ones too, until it is "
        "enabled again or perdure serve is restarted. Running calls end with an error."
    )
    go = button(
        context, "Disable now", "/mounts/order", [("action", "disable"), ("name", row.name)], kind="danger"
    )
    back = link("Cancel", "/mounts/server", {"name": row.name}, class_="button")
    body = card(
        "Nothing has changed yet", element("p", text), who, element("div", go, back, class_="actions")
    )
    return Page(f"Disable {row.name}?", (Part("disable", body),), is_live=False)


async def order(context: PageContext, form: Ask) -> str:
    """Restart, disable or enable a server for everyone."""
    action = form.get("action")
    row = _named(context, form.get("name"))
    if action not in _DONE:
        raise NotThere
    if action == "disable" and row.spec.builtin:
        raise ToolFailed(_never(row.name))
    context.sessions.order(Order(row.name, cast("Literal['restart', 'enable', 'disable']", action)))
    return address("/mounts/server", {"name": row.name, "done": action})


def server_table(rows: list[ServerRow]) -> Markup:
    return table(
        "Servers behind all sessions",
        ("Server", "State", "Tools", "Up for", "Sessions", "Restarts", "Last fault"),
        (
            (
                link(row.name, "/mounts/server", {"name": row.name}),
                [health(row.state), _retry(row)],
                row.tools,
                Figure(_uptime(row) or "–"),
                row.sessions,
                row.restarts,
                row.fault or "none",
            )
            for row in rows
        ),
        EMPTY,
    )


def _facts(context: PageContext, row: ServerRow) -> Markup:
    command = context.sessions.shown_command(row.spec)
    pairs: list[tuple[str, Content]] = [
        ("State", [health(row.state), _retry(row)]),
        ("Started", when(row.started_at) or "not running"),
        ("Up for", _uptime(row) or "not running"),
        ("Process", ", ".join(map(str, row.pids)) or "none"),
        ("Sessions", row.sessions),
        ("Restarts after faults", row.restarts),
        ("Last fault", [row.fault or "none", note(row.hint) if row.hint else None]),
    ]
    return element(
        "div", facts(pairs), facts([("Command", code(command) if command else "not known")]), class_="about"
    )


def _actions(context: PageContext, row: ServerRow) -> Markup | None:
    if row.state == "untrusted":
        return note(row.hint)
    if row.state == "disabled":
        return element("div", _button(context, row.name, "enable", "main"), class_="actions")
    stop = link("Disable…", "/mounts/disable", {"name": row.name}, class_="button danger")
    return element(
        "div",
        _button(context, row.name, "restart", "plain"),
        stop if not row.spec.builtin else note("The built-in server cannot be disabled."),
        class_="actions",
    )


def _button(context: PageContext, name: str, action: str, kind: Literal["plain", "main"]) -> Markup:
    fields = [("action", action), ("name", name)]
    label = action.capitalize()
    return button(context, label, "/mounts/order", fields, kind=kind, said=f"{label} {name}")


def _notice(context: PageContext, row: ServerRow, done: str) -> tuple[Part, ...]:
    if done not in _DONE:
        return ()
    back = _button(context, row.name, "enable", "plain") if done == "disable" else None
    return (Part("notice", element("div", note(f"{row.name} {_DONE[done]}.", kind="notice"), back)),)


def _stderr(name: str, said: str) -> Markup:
    if not said:
        return element("p", f"{name} has written nothing to standard error.", class_="empty")
    return block(f"Standard error of {name}", "\n".join(said.splitlines()[-MOST_LINES:]))


def _uptime(row: ServerRow) -> str:
    return lasting(time.time() - row.started_at) if row.started_at is not None else ""


def _retry(row: ServerRow) -> Content:
    if row.retry_at is None:
        return None
    left = max(0, round(row.retry_at - time.monotonic()))
    return element("span", f" tries again in {left} s", class_="hint")


def _named(context: PageContext, name: str) -> ServerRow:
    row = next((row for row in context.servers() if row.name == name), None)
    if row is None:
        raise NotThere
    return row


def _never(name: str) -> str:
    return f"{name} is the built-in server: without it no agent could write, undo or share state"


def _tool_count(number: int) -> str:
    return count(number, "tool") if number else "Tools"
