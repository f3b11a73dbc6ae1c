"""The journal: who changed which file, what just changed, and taking it back after a look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from perdure.dash.desk import Desk
from perdure.dash.html import Content, Markup, element, link, table
from perdure.dash.layout import card
from perdure.dash.pieces import badge, button, code, field, search, short, when
from perdure.dash.tools import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part

PAGE: Final = 50
LOOK: Final = 200
MOST_LOOKS: Final = 10
MOST_LINES: Final = 2000
_FILTERS: Final = ("path", "client", "session")
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_DONE: Final = {"undone": "The change was taken back.", "restored": "The version is back."}


async def journal(desk: Desk, ask: Ask) -> Page:
    wanted = {name: ask.get(name) for name in _FILTERS}
    entries, older = await _entries(desk, wanted, ask.get("before"))
    rows = table(
        "Changes, newest first",
        ("Time", "Path", "Change", "Size", "Client", "Session", "Entry"),
        (_row(entry) for entry in entries),
        "Nothing was written yet." if not any(wanted.values()) else "No change matches.",
    )
    more = link("Older changes", "/journal", {**wanted, "before": older}, class_="more") if older else None
    labels = (field(name.capitalize(), name, wanted[name]) for name in _FILTERS)
    return Page(
        "Journal",
        (
            *_notice(ask),
            Part("filter", card("Filter", search("Changes", "Show", "/journal", *labels))),
            Part("entries", card("Changes", rows, more)),
        ),
    )


async def entry(desk: Desk, ask: Ask) -> Page:
    """One write: its diff, and the versions of its file."""
    path, identity = _named(ask)
    found = await desk.tools.call("diff", path=path, to=identity)
    versions = (await desk.tools.call("history", path=path, n=PAGE))["versions"]
    query = {"path": path, "id": identity}
    actions = element(
        "div",
        link("Undo this change…", "/journal/undo", query, class_="button"),
        link("Restore this version…", "/journal/restore", query, class_="button"),
        class_="actions",
    )
    return Page(
        f"Change {identity} of {path}",
        (
            Part(
                "change", card("What it changed", shown_diff(await desk.tools.masked(found["diff"])), actions)
            ),
            Part("versions", card("Versions of this file", _versions(path, versions, identity))),
        ),
        is_live=False,
    )


async def undo(desk: Desk, ask: Ask) -> Page:
    """A dry run, and the button that does it."""
    path, identity = _named(ask)
    plan = await desk.tools.call("undo", journal_id=identity, dry_run=True)
    if conflicts := plan["conflicts"]:
        rows = ((code(one["path"]), one["reason"].replace("_", " ")) for one in conflicts)
        body = table("What stands against it", ("Path", "Reason"), rows, "")
        note = element("p", "This change cannot be taken back: later ones built on it.", class_="error")
        return Page("Undo", (Part("preview", card("Conflicts", note, body)),), is_live=False)
    diff = await desk.tools.call("diff", path=path, to=identity)
    files = table(
        "Files that change",
        ("Path", "After"),
        ((code(one["path"]), short(one["sha256"]) or "deleted") for one in plan["reverted"]),
        "",
    )
    shown = shown_diff(turned(await desk.tools.masked(diff["diff"])))
    go = button(desk, "Undo now", "/journal/undo", {"id": identity}, kind="main")
    return _preview(f"Undo change {identity}", path, identity, files, shown, go)


async def restore(desk: Desk, ask: Ask) -> Page:
    path, identity = _named(ask)
    diff = await desk.tools.call("diff", path=path, from_=identity, to="disk")
    if not diff["changed"]:
        note = element("p", "The file is as it was in this version.")
        return Page("Restore", (Part("preview", card("Nothing to do", note)),), is_live=False)
    fields = {"path": path, "id": identity, "sha256": await _hash_now(desk, path)}
    go = button(desk, "Restore now", "/journal/restore", fields, kind="main")
    shown = shown_diff(turned(await desk.tools.masked(diff["diff"])))
    return _preview(f"Restore version {identity}", path, identity, None, shown, go)


async def undo_now(desk: Desk, form: dict[str, str]) -> str:
    done = await desk.tools.call("undo", journal_id=form.get("id", ""))
    if done["conflicts"]:
        raise ToolFailed("the change cannot be taken back any more: the file was changed since")
    return "/journal?done=undone"


async def restore_now(desk: Desk, form: dict[str, str]) -> str:
    await desk.tools.call(
        "restore",
        path=form.get("path", ""),
        journal_id=form.get("id", ""),
        expected_prev_sha256=form.get("sha256", ""),
    )
    return "/journal?done=restored"


# --- what is shown --------------------------------------------------------------------------------------------


def shown_diff(diff: str) -> Markup:
    """A unified diff, line by line; what a line does is said by its sign and by its colour."""
    lines = diff.splitlines()
    if not lines:
        return element("p", "The content did not change.", class_="empty")
    rest = len(lines) - MOST_LINES
    kinds = line_kinds(lines[:MOST_LINES])
    found = [element("span", line or " ", class_=kind) for line, kind in zip(lines, kinds, strict=False)]
    note = element("p", f"{rest} more lines are not shown.", class_="hint") if rest > 0 else None
    body = element("pre", element("code", found), class_="diff", tabindex=0, aria_label="Diff", role="region")
    return element("div", body, note)


def turned(diff: str) -> str:
    """The diff the other way round: what will happen to the file."""
    lines = diff.splitlines()
    heads = [line[4:] for line in lines[:2]]
    swap = {"+": "-", "-": "+"}
    body = [
        f"@@ {_turned_place(line)} @@" if line.startswith("@@ ") else swap.get(line[:1], line[:1]) + line[1:]
        for line in lines[2:]
    ]
    return "\n".join([f"--- {heads[1]}", f"+++ {heads[0]}", *_in_order(body)]) if len(heads) == 2 else diff


def _in_order(lines: list[str]) -> list[str]:
    """What goes before what comes, in every run of changed lines. A note on a missing line end follows its line."""
    noted: list[list[str]] = []
    for line in lines:
        if line.startswith("\\") and noted:
            noted[-1].append(line)
        else:
            noted.append([line])
    runs = groupby(noted, key=lambda group: group[0][:1] in ("+", "-"))
    return [
        line
        for is_change, run in runs
        for group in (sorted(run, key=lambda group: group[0][:1], reverse=True) if is_change else run)
        for line in group
    ]


def _turned_place(line: str) -> str:
    old, new = line.split(" ")[1:3]
    return f"-{new[1:]} +{old[1:]}"


def line_kinds(lines: list[str]) -> Iterator[str]:
    """What each line of a unified diff is. The sizes in a hunk's head tell its lines from the heads of files: a removed
    line that begins with `--` looks like one."""
    old = new = 0
    for line in lines:
        if old > 0 or new > 0:
            sign = line[:1]
            old -= sign not in ("+", "\\")
            new -= sign not in ("-", "\\")
            yield {"+": "plus", "-": "minus"}.get(sign, "same")
        elif hunk := _HUNK.match(line):
            old, new = (int(size) if size else 1 for size in hunk.groups())
            yield "place"
        else:
            yield "file" if line.startswith(("+++", "---")) else "same"


def _row(one: dict[str, Any]) -> tuple[Content, ...]:
    query = {"path": one["path"], "id": one["journal_id"]}
    return (
        when(one["ts"]),
        link(code(one["path"]), "/journal", {"path": one["path"]}),
        badge(one["op"]),
        one["bytes"],
        link(one["client"], "/journal", {"client": one["client"]}),
        link(short(one["session"]), "/journal", {"session": one["session"]}),
        [
            link("Diff", "/journal/entry", query, aria_label=f"Diff of change {one['journal_id']}"),
            " ",
            link("Undo", "/journal/undo", query, aria_label=f"Undo change {one['journal_id']}"),
        ],
    )


def _versions(path: str, versions: list[dict[str, Any]], shown: str) -> Markup:
    rows = (
        (
            when(one["ts"]),
            badge(one["op"]),
            one["bytes"],
            one["client"],
            "this one"
            if one["journal_id"] == shown
            else link(
                f"Change {one['journal_id']}", "/journal/entry", {"path": path, "id": one["journal_id"]}
            ),
        )
        for one in versions
    )
    return table("Versions, newest first", ("Time", "Change", "Size", "Client", "Entry"), rows, "None.")


def _preview(title: str, path: str, identity: str, files: Markup | None, shown: Markup, go: Markup) -> Page:
    back = link("Cancel", "/journal/entry", {"path": path, "id": identity}, class_="button")
    note = element("p", "Nothing has changed yet. This is what will happen to ", code(path), ":")
    body = card("Preview", note, files, shown, element("div", go, back, class_="actions"))
    return Page(title, (Part("preview", body),), is_live=False)


def _notice(ask: Ask) -> tuple[Part, ...]:
    done = _DONE.get(ask.get("done"))
    return (Part("notice", element("p", done, class_="notice", role="status")),) if done else ()


# --- what is asked --------------------------------------------------------------------------------------------


def _named(ask: Ask) -> tuple[str, str]:
    path, identity = ask.get("path"), ask.get("id")
    if not path or not identity:
        raise NotThere
    return path, identity


async def _entries(desk: Desk, wanted: dict[str, str], before: str) -> tuple[list[dict[str, Any]], str]:
    """Newest first, and where older ones begin. The tool knows no sessions: those are looked for here."""
    found: list[dict[str, Any]] = []
    for _ in range(MOST_LOOKS):
        page = await desk.tools.call(
            "journal_tail",
            n=LOOK if wanted["session"] else PAGE,
            filter_path=wanted["path"],
            filter_client=wanted["client"],
            cursor=before,
        )
        before = page.get("next_cursor") or ""
        found += [one for one in reversed(page["entries"]) if wanted["session"] in ("", one["session"])]
        if len(found) >= PAGE or not before:
            break
    return found, before


async def _hash_now(desk: Desk, path: str) -> str:
    """Of the file as the preview shows it, so that nothing newer is overwritten; none where there is no file."""
    try:
        return str((await desk.tools.call("read", path=path, max_bytes=1, encoding="base64"))["sha256"])
    except ToolFailed:
        return ""
