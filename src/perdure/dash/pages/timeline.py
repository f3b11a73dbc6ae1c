"""The timeline: what agents and other programs did, turn by turn and call by call; one change with its diffs; a rewind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from perdure.dash.components import badge, button, card, code, count, facts, field, file_link, note, search
from perdure.dash.context import PageContext, mask_all
from perdure.dash.diffs import show_diff
from perdure.dash.html import Content, Markup, Row, address, element, link, table, text
from perdure.dash.pages.changes import conflicts_page
from perdure.dash.times import when
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part

PAGE: Final = 50
MOST_DIFFS: Final = 30
MOST_OPEN_DIFFS: Final = 5
MOST_SUGGESTED: Final = 50
MOST_FILES: Final = 200
PLACES_SHOWN: Final = 10
FILTERS: Final = {
    "client": "Client",
    "session": "Session",
    "turn": "Turn",
    "agent": "Agent",
    "path": "File or folder",
    "since": "Since",
}
HEADS: Final = ("Change", "Time", "Call", "Files", "Lines", "Actions")
EMPTY: Final = (
    "No changes yet. To record what an agent does, its shell commands included: "
    "perdure install CLIENT --hooks --apply"
)

Change = dict[str, Any]


async def timeline(context: PageContext, ask: Ask) -> Page:
    wanted = {name: ask.get(name) for name in FILTERS}
    given: dict[str, Any] = {**wanted, "turn": int(wanted["turn"]) if wanted["turn"].isdigit() else ""}
    payload = await context.tools.call("timeline", n=PAGE, cursor=ask.get("before"), **given)
    changes = await _masked(payload["changes"][::-1])
    turns = [
        card(_title(calls[0]), _call_table(calls))
        for calls in (list(group) for _, group in groupby(changes, key=_turn))
    ]
    empty: Content = EMPTY
    if any(wanted.values()):
        empty = ["No change matches. ", link("Show all changes", "/timeline")]
    body = turns or [card("Changes", element("p", empty, class_="empty"))]
    older = payload.get("next_cursor")
    more = link("Older changes", "/timeline", {**wanted, "before": older}, class_="more") if older else None
    fields = (_field(name, label, wanted[name], changes) for name, label in FILTERS.items())
    return Page(
        "Timeline",
        (
            *_notice(ask),
            Part("filter", _filter(fields, is_open=any(wanted.values()))),
            Part("turns", element("div", element("div", text(body), class_="days"), more), news="change"),
            Part("not-covered", _not_covered(payload["not_covered"])),
        ),
    )


async def change(context: PageContext, ask: Ask) -> Page:
    """One change: who made it and how, and the diff of each file."""
    identity = ask.get("id")
    if not identity.isdigit():
        raise NotThere
    # The newest change before the next row is the one that begins with this row.
    found = (await context.tools.call("timeline", n=1, cursor=str(int(identity) + 1)))["changes"]
    if not found or found[0]["id"] != identity:
        raise NotThere
    [one] = await _masked(found)
    diffs = [
        await _diff(context, path, identity, is_open=len(one["paths"]) <= MOST_OPEN_DIFFS)
        for path in one["paths"][:MOST_DIFFS]
    ]
    hidden = max(one["files"], len(one["paths"])) - len(diffs)
    rest = note(f"{count(hidden, 'more file')} not shown.") if hidden > 0 else None
    actions = element(
        "div",
        link("Undo this change…", "/journal/undo", {"id": identity}, class_="button")
        if one["status"] != "undone"
        else None,
        link("Rewind to before this change…", "/timeline/rewind", {"to": identity}, class_="button"),
        class_="actions",
    )
    return Page(
        f"Change {identity}",
        (Part("change", card("What it changed", _about(one), diffs, rest, actions)),),
        is_live=False,
    )


async def rewind(context: PageContext, ask: Ask) -> Page:
    """A dry run: what a rewind to before a change takes back, and whose it is."""
    identity = ask.get("to")
    if not identity:
        raise NotThere
    plan = await context.tools.call("rewind", to=identity, dry_run=True)
    if plan["conflicts"]:
        return conflicts_page("Rewind", plan["conflicts"], [])
    reverted = plan["reverted"]
    authors: dict[str, list[str]] = {}
    for one in reverted:
        authors.setdefault(one["path"], []).append(one.get("agent") or one["client"])
    newest = (await context.tools.call("timeline", n=1))["changes"][-1]["id"]
    go = button(
        context, "Rewind now", "/timeline/rewind", [("to", identity), ("newest", newest)], kind="danger"
    )
    shown = [(file_link(path), ", ".join(dict.fromkeys(names))) for path, names in authors.items()][
        :MOST_FILES
    ]
    hidden = len(authors) - len(shown)
    head = plan.get("head")
    left_out = len(plan.get("not_covered", ()))
    body = card(
        "Preview",
        element(
            "p",
            f"Nothing has changed yet. The workspace will be as it was before change {identity}: this change and all "
            f"later ones, by any agent or program, are undone in {count(len(authors), 'file')}.",
        ),
        table("Authors of what is taken back", ("Author", "Files"), _authors(reverted), ""),
        note("Git's HEAD was ", code(head["to"][:12]), " then; it stays where it is now.") if head else None,
        note(f"{count(left_out, 'place')} not covered: the rewind leaves them as they are.")
        if left_out
        else None,
        table("Files that are taken back", ("File", "By"), shown, ""),
        note(f"{count(hidden, 'more file')} not shown.") if hidden > 0 else None,
        element("div", go, link("Cancel", "/timeline", class_="button"), class_="actions"),
    )
    return Page(f"Rewind to before change {identity}", (Part("preview", body),), is_live=False)


async def rewind_now(context: PageContext, form: Ask) -> str:
    """What was previewed, unless something was changed since."""
    newest = (await context.tools.call("timeline", n=1))["changes"][-1]["id"]
    if newest != form.get("newest"):
        raise ToolFailed("nothing was rewound: a file was changed after the preview")
    done = await context.tools.call("rewind", to=form.get("to"), dry_run=False)
    if done["conflicts"]:
        raise ToolFailed("nothing was rewound: a file was changed after the preview")
    return address("/timeline", {"done": form.get("to"), "redo": done["journal_ids"][0]})


async def _masked(changes: list[Change]) -> list[Change]:
    """Command lines without what looks like a secret."""
    commands = await mask_all(one.get("command", "") for one in changes)
    return [
        {**one, "command": command} if command else one
        for one, command in zip(changes, commands, strict=True)
    ]


def _authors(reverted: list[dict[str, Any]]) -> list[tuple[Content, ...]]:
    files: dict[str, set[str]] = {}
    for one in reverted:
        agent = f", agent {one['agent']}" if one.get("agent") else ""
        files.setdefault(f"{one['client']}{agent}", set()).add(one["path"])
    return [(author, len(paths)) for author, paths in sorted(files.items())]


def _notice(ask: Ask) -> tuple[Part, ...]:
    identity, redo = ask.get("done"), ask.get("redo")
    if not identity or not redo:
        return ()
    back = link("Take the rewind back…", "/journal/undo", {"id": redo})
    words = f"The workspace is as it was before change {identity}. "
    return (Part("notice", note(words, back, kind="notice")),)


# --- pieces -----------------------------------------------------------------------------------------------


def _turn(one: Change) -> tuple[str, str, int | None]:
    return one["client"], one["session"], one.get("turn")


def _title(one: Change) -> Content:
    turn = f", turn {one['turn']}" if "turn" in one else ""
    session = [" ", code(one["session"][:8], title=one["session"])] if one["session"] else None
    return [f"{one['client']}{turn}", session]


def _call_table(calls: Sequence[Change]) -> Markup:
    rows = (Row(one["id"], _row(one)) for one in calls)
    return table("Calls, newest first", HEADS, rows, "")


def _row(one: Change) -> tuple[Content, ...]:
    identity = one["id"]
    undo = link("Undo", "/journal/undo", {"id": identity}, aria_label=f"Undo change {identity}")
    rewind = link(
        "Rewind", "/timeline/rewind", {"to": identity}, aria_label=f"Rewind to before change {identity}"
    )
    return (
        link(identity, "/timeline/change", {"id": identity}, aria_label=f"Change {identity}"),
        when(one["ts"]),
        _call(one),
        _files(one),
        _lines(one),
        [undo, " ", rewind] if one["status"] != "undone" else None,
    )


def _call(one: Change) -> Content:
    return [
        [element("b", one["tool"]), " "] if one["tool"] else None,
        [badge("agent", one["agent"]), " "] if "agent" in one else None,
        [badge(one["status"]), " "] if one["status"] != "done" else None,
        code(one["command"]) if "command" in one else None,
    ]


def _files(one: Change) -> Content:
    paths = one["paths"]
    if len(paths) == 1 and one["files"] <= 1:
        return file_link(paths[0])
    lines = [element("li", file_link(path)) for path in paths]
    if "more_paths" in one:
        lines.append(element("li", f"and {one['more_paths']:,} more"))
    return element("details", element("summary", count(one["files"], "file")), element("ul", lines))


def _lines(one: Change) -> Content:
    if one["added"] is None:
        return "not counted"
    return [
        element("span", f"+{one['added']:,}", class_="plus"),
        " ",
        element("span", f"−{one['removed']:,}", class_="minus"),
    ]


def _about(one: Change) -> Markup:
    pairs: list[tuple[str, Content]] = [("Time", when(one["ts"])), ("Client", one["client"])]
    for name, label in (("agent", "Agent"), ("turn", "Turn"), ("tool", "Tool"), ("command", "Command")):
        if one.get(name):
            pairs.append((label, code(one[name]) if name == "command" else one[name]))
    pairs += [("Status", badge(one["status"])), ("Files", f"{one['files']:,}"), ("Lines", _lines(one))]
    return facts(pairs)


async def _diff(context: PageContext, path: str, identity: str, *, is_open: bool) -> Markup:
    try:
        found = await context.tools.call("diff", path=path, to=identity)
        shown = show_diff(await context.tools.masked(found["diff"]), f"Diff of {path}")
    except ToolFailed as failed:  # a directory, or a content that is not kept any longer
        shown = note(failed.sentence)
    return element("details", element("summary", code(path)), shown, open=is_open)


def _not_covered(places: list[dict[str, Any]]) -> Markup:
    """What no undo brings back."""
    if not places:
        return Markup("")
    rows = ((code(one["path"]), one["reason"].replace("_", " "), one["files"] or "") for one in places)
    files = sum(one["files"] or 0 for one in places)
    with_files = f" with {count(files, 'file')}" if files else ""
    summary = element("summary", count(len(places), "place") + with_files)
    body = table("Not covered", ("Path", "Reason", "Files"), list(rows)[:PLACES_SHOWN], "")
    hidden = len(places) - PLACES_SHOWN
    rest = note(f"{count(hidden, 'more place')} not shown.") if hidden > 0 else None
    return card("Not covered", element("details", summary, body, rest))


def _filter(fields: Iterable[Markup], *, is_open: bool) -> Markup:
    form = search("Timeline", "Show", "/timeline", *fields)
    return element("details", element("summary", "Filter"), form, class_="card", open=is_open)


def _field(name: str, label: str, value: str, seen: Iterable[Change]) -> Markup:
    if name in ("path", "since"):
        return field(label, name, value, placeholder="10m, 2h, today" if name == "since" else None)
    known = list(dict.fromkeys(str(one[name]) for one in seen if one.get(name)))[:MOST_SUGGESTED]
    return field(label, name, value, known)
