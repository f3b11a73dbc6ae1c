"""Calls per tool: which tools are used, which fail, which are slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perdure.dash.charts import NO_DATA, milliseconds
from perdure.dash.components import card, code
from perdure.dash.context import MOST_ROWS, PageContext
from perdure.dash.html import Cell, Figure, Markup, element, table
from perdure.dash.web import Ask, Page, Part
from perdure.kernel.metrics import quantile
from perdure.kernel.state import ToolCounters

EMPTY: Final = "No tool was called yet. Each tool that a client calls appears here."
WAITS: Final = "The time of tools that wait by intent, such as state_wait, is left out."


async def tools(context: PageContext, ask: Ask) -> Page:
    body = tool_table(context.tool_counters(), MOST_ROWS)
    hint = element("p", f"All clients, since perdure serve was started. {WAITS}", class_="hint")
    return Page("Tools", (Part("tools", card("Calls per tool", body, hint)),))


def tool_table(counters: Mapping[str, ToolCounters], most: int, empty: str = EMPTY) -> Markup:
    """Tools that fail come first, then those that are used most."""
    known = sorted(counters.items(), key=lambda item: (-item[1].errors, -item[1].requests, item[0]))
    return table(
        "Calls per tool",
        ("Tool", "Calls", "Failed", "p50", "p99"),
        ((code(name, class_="name"), *tool_figures(found)) for name, found in known[:most]),
        empty,
    )


def tool_figures(found: ToolCounters | None) -> tuple[Cell, ...]:
    """Calls, failed calls, p50 and p99."""
    if found is None:
        return (0, 0, Figure(NO_DATA), Figure(NO_DATA))
    known = found.latency
    failed = element("b", f"{found.errors:,}", class_="bad") if found.errors else 0
    times = (Figure(milliseconds(quantile(known, share) if known.count else None)) for share in (0.5, 0.99))
    return (Figure(f"{found.requests:,}"), Figure(failed), *times)
