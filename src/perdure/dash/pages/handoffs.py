"""The current handoff: its summary first, what changed since as words, then its steps and the rest."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.dash.components import badge, card, change_link, code, count, facts, file_link, short
from perdure.dash.context import PageContext, mask
from perdure.dash.html import Content, Markup, Row, element, link, table
from perdure.dash.times import when
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import Ask, Page, Part

DEFAULT: Final = "HANDOFF.md"
LOOK: Final = 500
EMPTY: Final = "No handoff yet. What an agent leaves for the next one with handoff_write appears here."
_FACTS: Final = {"task_id": "Task", "agent": "Agent", "updated_at": "Written"}
_OWN_PLACE: Final = frozenset(
    {*_FACTS, "status", "summary", "steps", "last_good_state", "open_drafts", "journal_head"}
)


async def handoffs(context: PageContext, ask: Ask) -> Page:
    path = ask.get("path", DEFAULT)
    written = [
        one
        for one in reversed((await context.tools.call("journal_tail", n=LOOK))["entries"])
        if one["op"] == "handoff"
    ]
    try:
        found = await context.tools.call("handoff_read", path=path)
    except ToolFailed as failed:
        empty = EMPTY if path == DEFAULT and not written else failed.sentence
        body = card(path, element("p", empty, class_="empty"))
    else:
        body = element("div", await _handoff(context, path, found))
    rows = (
        Row(
            one["journal_id"],
            (
                when(one["ts"]),
                link(code(one["path"]), "/handoffs", {"path": one["path"]}),
                one["client"],
                change_link(one["path"], one["journal_id"]),
            ),
        )
        for one in written
    )
    past = table(
        "Handoffs, newest first", ("Time", "Path", "Client", "Actions"), rows, "None was written lately."
    )
    return Page(
        "Handoffs",
        (Part("handoff", body), Part("written", card("Written lately", past), news="handoff")),
    )


async def _handoff(context: PageContext, path: str, found: dict[str, Any]) -> list[Markup]:
    envelope = found["envelope"]
    known = facts((label, _fact(name, envelope.get(name))) for name, label in _FACTS.items())
    summary = await _prose(str(envelope.get("summary") or "It has no summary."))
    cards = [card([path, " ", badge(str(envelope.get("status", "")))], summary, known)]
    if drift := found["drift_warnings"]:
        lines = [element("li", await _drift(context, one)) for one in drift]
        cards.append(card("Changed since the handoff", element("ul", lines, class_="drift")))
    if steps := envelope.get("steps"):
        cards.append(card("Steps", _steps(steps, set(found["ready_steps"]))))
    rest = {name: value for name, value in envelope.items() if name not in _OWN_PLACE and value}
    for name, value in rest.items():
        cards.append(card(name.replace("_", " ").capitalize(), await _value(value)))
    if files := envelope.get("last_good_state"):
        rows = ((file_link(str(one.get("path"))), short(one.get("sha256"))) for one in files)
        cards.append(card("Files as they were", table("Files of the handoff", ("File", "sha256"), rows, "")))
    if found["body"]:
        cards.append(card("Notes", await _prose(found["body"])))
    if drafts := envelope.get("open_drafts"):
        verb = "was" if len(drafts) == 1 else "were"
        kept = f"{count(len(drafts), 'refused payload')} {verb} kept when it was written. "
        cards.append(card("Drafts", element("p", kept, link("Show drafts", "/drafts"))))
    return cards


async def _drift(context: PageContext, warning: dict[str, Any]) -> Content:
    path = str(warning["path"])
    match warning["reason"]:
        case "missing":
            return [file_link(path), " was deleted since"]
        case "hash_mismatch":
            return [
                file_link(path),
                " changed since ",
                await _compare_link(context, path, warning["expected_sha256"]),
            ]
        case _:
            return [code(path), " cannot be looked at: the path leads out of the workspace"]


async def _compare_link(context: PageContext, path: str, sha256: str) -> Content:
    """To what changed since the version that the handoff names, if the journal has it."""
    try:
        versions = (await context.tools.call("history", path=path, n=100))["versions"]
    except ToolFailed:
        return "(it is not in the journal)"
    known = next((one for one in versions if (one["sha256"] or "").startswith(sha256)), None)
    if known is None:
        return "(the journal does not have the version that the handoff names)"
    return ["(", link("diff", "/file/compare", {"path": path, "from": known["journal_id"]}), ")"]


def _steps(steps: list[dict[str, Any]], ready: set[str]) -> Markup:
    rows = (
        (
            one.get("id"),
            badge(str(one.get("status", "pending"))),
            one.get("description"),
            ", ".join(map(str, one.get("depends_on", ()))),
            "yes" if one.get("id") in ready else "",
        )
        for one in steps
    )
    return table("Steps", ("Step", "Status", "What", "After", "Ready"), rows, "")


def _fact(name: str, value: Any) -> Content:
    return when(str(value)) if name.endswith("_at") and value else _plain(value) if value is not None else ""


async def _value(value: Any) -> Markup:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return element("ul", [element("li", await mask(one)) for one in value])
    return await _prose(_plain(value))


def _plain(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    )


async def _prose(text: str) -> Markup:
    return element("div", await mask(text), class_="prose")
