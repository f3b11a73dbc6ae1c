"""The journal: which files changed, by whom, and by how much; newest first, by day, one row for a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from perdure.dash.components import (
    badge,
    card,
    change_link,
    change_word,
    code,
    field,
    file_link,
    note,
    search,
    session_link,
)
from perdure.dash.context import PageContext
from perdure.dash.html import Content, Markup, Row, element, link, table, text
from perdure.dash.line_counts import Counts
from perdure.dash.pages.events import day_of
from perdure.dash.times import day_name, when
from perdure.dash.web import Ask, Page, Part

PAGE: Final = 50
LOOK: Final = 200
MOST_LOOKS: Final = 10
MOST_SUGGESTED: Final = 50
FILTERS: Final = {"path": "Path contains", "client": "Client", "session": "Session", "change": "Change"}
HEADS: Final = ("Time", "File", "Change", "Lines", "Client", "Actions")
EMPTY: Final = "No changes yet. Files that agents write, edit, move or delete through Perdure appear here."

Entry = dict[str, Any]


async def journal(context: PageContext, ask: Ask) -> Page:
    wanted = {name: ask.get(name) for name in FILTERS}
    entries, older, seen = await _entries(context, wanted, ask.get("before"))
    counts = await context.line_counts(entries)
    days = [
        card(day_name(day), change_table(list(group), counts, "", selects=True))
        for day, group in groupby(entries, key=lambda entry: day_of(entry["ts"]))
    ]
    nothing = card(
        "Changes", element("p", EMPTY if not any(wanted.values()) else _no_match(), class_="empty")
    )
    more = link("Older changes", "/journal", {**wanted, "before": older}, class_="more") if older else None
    bar = element("div", element("button", "Undo selected…", class_="main"), class_="selection")
    form = element("form", text(days), bar, method="get", action="/journal/undo", class_="days")
    fields = (_field(name, label, wanted[name], seen) for name, label in FILTERS.items())
    return Page(
        "Journal",
        (
            *_notice(ask),
            Part("filter", card("Filter", search("Changes", "Show", "/journal", *fields))),
            Part("entries", element("div", form if days else nothing, more), news="change"),
        ),
    )


def change_table(entries: Sequence[Entry], counts: Counts, empty: str, *, selects: bool = False) -> Markup:
    """One row for each change; the files of a transaction are folded into one."""
    groups = [list(group) for _, group in groupby(entries, key=_change)]
    rows = (Row(group[0]["journal_id"], _row(group, counts, selects)) for group in groups)
    return table("Changes, newest first", HEADS, rows, empty)


def line_count(entries: Iterable[Entry], counts: Counts) -> Content:
    found = [counts[one["journal_id"]] for one in entries if one["journal_id"] in counts]
    if not found:
        return ""
    plus, minus = sum(one[0] for one in found), sum(one[1] for one in found)
    return [
        element("span", f"+{plus:,}", class_="plus"),
        " ",
        element("span", f"−{minus:,}", class_="minus"),
    ]


async def entries_of_session(context: PageContext, session: str) -> list[Entry]:
    found, _, _ = await _entries(context, {"session": session}, "")
    return found


def _change(entry: Entry) -> str:
    """What entries of one change have in common."""
    return str(entry.get("transaction_id") or entry["journal_id"])


def _row(group: list[Entry], counts: Counts, selects: bool) -> tuple[Content, ...]:
    newest = group[0]
    identity, path = newest["journal_id"], newest["path"]
    box = element(
        "input", type="checkbox", name="id", value=identity, aria_label=f"Select change {identity} of {path}"
    )
    words = list(dict.fromkeys(change_word(one) for one in group))
    query = {"id": identity} if len(group) > 1 else {"path": path, "id": identity}
    undo = link("Undo", "/journal/undo", query, aria_label=f"Undo change {identity}")
    return (
        [box, " ", when(newest["ts"], has_day=False)] if selects else when(newest["ts"]),
        file_link(path) if len(group) == 1 else _folded(group, counts),
        [[badge(word), " "] for word in words],
        line_count(group, counts),
        [newest["client"], " ", session_link(newest["session"])],
        [change_link(path, identity), " ", undo] if len(group) == 1 else undo,
    )


def _folded(group: list[Entry], counts: Counts) -> Markup:
    """The files of one transaction, in the order in which they were changed."""
    lines = [
        element(
            "li",
            file_link(one["path"]),
            " ",
            line_count([one], counts),
            " ",
            change_link(one["path"], one["journal_id"]),
        )
        for one in reversed(group)
    ]
    first = group[-1]["path"]
    if len(group) == 2 and {one["op"] for one in group} == {"move"}:
        source, target = sorted(group, key=lambda one: one["sha256"] is not None)
        summary: Content = [code(source["path"]), " → ", code(target["path"])]
    else:
        summary = [f"{len(group)} files: ", code(first), " …"]
    return element("details", element("summary", summary), element("ul", lines))


def _field(name: str, label: str, value: str, seen: Iterable[Entry]) -> Markup:
    known = list(dict.fromkeys(_member(one, name) for one in seen))[:MOST_SUGGESTED]
    return field(label, name, value, known)


def _no_match() -> Content:
    return ["No change matches. ", link("Show all changes", "/journal")]


def _notice(ask: Ask) -> tuple[Part, ...]:
    match ask.get("done"):
        case "undone":
            number = ask.get("n", "1")
            words = "1 change was undone." if number == "1" else f"{number} changes were undone."
            redo = ask.get("redo")
            back = [" ", link("Take the undo back…", "/journal/undo", {"id": redo})] if redo else None
            content: Content = [words, back]
        case "restored":
            content = "The version was restored."
        case _:
            return ()
    return (Part("notice", note(content, kind="notice")),)


async def _entries(
    context: PageContext, wanted: dict[str, str], before: str
) -> tuple[list[Entry], str, list[Entry]]:
    """Newest first; where older ones begin; and all that were looked at. The tool matches whole paths, so the filters
    are applied here, to a bounded number of entries."""
    found: list[Entry] = []
    seen: list[Entry] = []
    for _ in range(MOST_LOOKS):
        page = await context.tools.call("journal_tail", n=LOOK, cursor=before)
        entries = list(reversed(page["entries"]))
        seen += entries
        found += [one for one in entries if _matches(one, wanted)]
        before = page.get("next_cursor") or ""
        if len(found) > PAGE:
            return found[:PAGE], found[PAGE - 1]["journal_id"], seen
        if not before or len(found) == PAGE:
            break
    return found, before, seen


def _member(entry: Entry, name: str) -> str:
    return change_word(entry) if name == "change" else str(entry[name])


def _matches(entry: Entry, wanted: dict[str, str]) -> bool:
    same = (wanted.get(name, "") in ("", _member(entry, name)) for name in ("client", "session", "change"))
    return wanted.get("path", "") in entry["path"] and all(same)
