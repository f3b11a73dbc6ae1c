"""One change, one file, and going back: what will happen is shown before it does."""

from __future__ import annotations

from typing import Any, Final

from perdure.dash.components import (
    badge,
    button,
    card,
    change_link,
    change_word,
    code,
    count,
    facts,
    file_link,
    note,
    session_link,
    short,
)
from perdure.dash.context import PageContext
from perdure.dash.diffs import reverse_diff, show_diff
from perdure.dash.html import Content, Markup, Row, address, element, link, table
from perdure.dash.pages.journal import line_count
from perdure.dash.times import when
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part

MOST_VERSIONS: Final = 100
MOST_DIFFS: Final = 30
_REASONS: Final = {
    "changed_since": "it was changed since",
    "later_edit": "a later change touches the same lines",
    "already_undone": "it was undone already",
}


async def entry(context: PageContext, ask: Ask) -> Page:
    """One change of a file, as a diff."""
    path, identity = _named(ask)
    found = await context.tools.call("diff", path=path, to=identity)
    query = {"path": path, "id": identity}
    actions = element(
        "div",
        link("Undo this change…", "/journal/undo", query, class_="button"),
        link("Restore this version…", "/journal/restore", query, class_="button"),
        link("All versions of this file", "/file", {"path": path}, class_="button"),
        class_="actions",
    )
    diff = show_diff(await context.tools.masked(found["diff"]))
    version = next((one for one in await _versions(context, path) if one["journal_id"] == identity), None)
    return Page(
        f"Change {identity} of {path}",
        (Part("change", card("What it changed", _about(version), diff, actions)),),
        is_live=False,
    )


async def file(context: PageContext, ask: Ask) -> Page:
    """The history of one file."""
    path = ask.get("path")
    if not path:
        raise NotThere
    versions = await _versions(context, path)
    counts = await context.line_counts(versions)
    latest = await context.tools.call("diff", path=path, to=versions[0]["journal_id"])
    now = await context.tools.call("diff", path=path, from_=versions[0]["journal_id"], to="disk")
    rows = (
        Row(
            one["journal_id"],
            (
                when(one["ts"]),
                badge(change_word(one)),
                line_count([one], counts),
                f"{one['bytes']:,} bytes",
                [one["client"], " ", session_link(one["session"])],
                _version_actions(path, one["journal_id"]),
            ),
        )
        for one in versions
    )
    heads = ("Time", "Change", "Lines", "Size", "Client", "Actions")
    return Page(
        path,
        (
            *(await _outside(context, path, now)),
            Part(
                "versions",
                card("Versions, newest first", table("Versions, newest first", heads, rows, "None.")),
                news="version",
            ),
            Part("latest", card("The latest change", show_diff(await context.tools.masked(latest["diff"])))),
        ),
    )


async def compare(context: PageContext, ask: Ask) -> Page:
    """What changed in a file since one of its versions."""
    path, identity = ask.exact("path"), ask.get("from")
    if not path or not identity:
        raise NotThere
    found = await context.tools.call("diff", path=path, from_=identity, to="disk")
    actions = element(
        "div",
        link("Restore this version…", "/journal/restore", {"path": path, "id": identity}, class_="button"),
        link("All versions of this file", "/file", {"path": path}, class_="button"),
        class_="actions",
    )
    body = card(
        f"From version {identity} to now", show_diff(await context.tools.masked(found["diff"])), actions
    )
    return Page(f"{path} since version {identity}", (Part("compare", body),), is_live=False)


async def undo(context: PageContext, ask: Ask) -> Page:
    """A dry run of one or many changes: by their ids, or those of a session since a time."""
    ids, session, since = ask.every("id"), ask.get("session"), ask.get("since")
    if ids:
        plan = await context.tools.call("undo", journal_id=",".join(ids), dry_run=True)
    elif session and since:
        plan = await context.tools.call("undo", session=session, since=since, dry_run=True)
    else:
        raise ToolFailed("no change is selected: tick some in the journal")
    if plan["conflicts"]:
        return conflicts_page("Undo", plan["conflicts"], ids)
    reverted = plan["reverted"]
    files = len({one["path"] for one in reverted})
    head = f"Nothing has changed yet. {count(len(reverted), 'change')} in {count(files, 'file')} will be undone; "
    # One id for each transaction: it is undone as a whole, and a form has room for a bounded number of fields.
    each = {one.get("transaction_id") or one["undone"]: one["undone"] for one in reverted}
    go = button(context, "Undo now", "/journal/undo", [("id", id_) for id_ in each.values()], kind="main")
    actions = element("div", go, link("Cancel", "/journal", class_="button"), class_="actions")
    rows = ((file_link(one["path"]), *_undone(one)) for one in reverted)
    heads = ("File", "Change", "By", "After the undo")
    body = card(
        "Preview",
        element("p", head, "later edits stay."),
        table("Changes that will be undone", heads, rows, ""),
        [await _reverse_of(context, one, is_open=len(reverted) == 1) for one in reverted[:MOST_DIFFS]],
        note(f"{len(reverted) - MOST_DIFFS} more diffs are not shown.")
        if len(reverted) > MOST_DIFFS
        else None,
        actions,
    )
    title = (
        f"Undo {count(len(reverted), 'change')}"
        if len(reverted) > 1
        else f"Undo change {reverted[0]['undone']}"
    )
    return Page(title, (Part("preview", body),), is_live=False)


async def undo_now(context: PageContext, form: Ask) -> str:
    """Just the changes that were previewed."""
    done = await context.tools.call("undo", journal_id=",".join(form.every("id")))
    if done["conflicts"]:
        raise ToolFailed("nothing was undone: a file was changed after the preview")
    ids = done["journal_ids"]
    return address("/journal", {"done": "undone", "n": str(len(ids)), "redo": ids[0]})


async def restore(context: PageContext, ask: Ask) -> Page:
    path, identity = _named(ask)
    diff = await context.tools.call("diff", path=path, from_=identity, to="disk")
    if not diff["changed"]:
        text = element("p", "The file is as it was in this version.")
        return Page("Restore", (Part("preview", card("Nothing to do", text)),), is_live=False)
    fields = [("path", path), ("id", identity), ("sha256", await _hash_now(context, path))]
    go = button(context, "Restore now", "/journal/restore", fields, kind="main")
    back = link("Cancel", "/file", {"path": path}, class_="button")
    body = card(
        "Preview",
        element("p", "Nothing has changed yet. This is what will happen to ", code(path), ":"),
        show_diff(reverse_diff(await context.tools.masked(diff["diff"]))),
        element("div", go, back, class_="actions"),
    )
    return Page(f"Restore version {identity}", (Part("preview", body),), is_live=False)


async def restore_now(context: PageContext, form: Ask) -> str:
    await context.tools.call(
        "restore",
        path=form.get("path"),
        journal_id=form.get("id"),
        expected_prev_sha256=form.get("sha256"),
    )
    return "/journal?done=restored"


# --- pieces -----------------------------------------------------------------------------------------------


def _about(version: dict[str, Any] | None) -> Markup | None:
    if version is None:
        return None
    return facts(
        [
            ("Time", when(version["ts"])),
            ("Change", badge(change_word(version))),
            ("Client", version["client"]),
            ("Session", session_link(version["session"])),
            ("Size", f"{version['bytes']:,} bytes"),
            ("sha256", short(version["sha256"]) or "deleted"),
        ]
    )


async def _outside(context: PageContext, path: str, now: dict[str, Any]) -> tuple[Part, ...]:
    """What another program changed since the newest version; no part where nothing did."""
    if not now["changed"]:
        return ()
    diff = show_diff(await context.tools.masked(now["diff"]))
    text = note("Another program changed this file since. The next write through Perdure records it.")
    return (Part("outside", card("Not in the journal yet", text, diff)),)


def _version_actions(path: str, identity: str) -> Content:
    query = {"path": path, "id": identity}
    return [
        change_link(path, identity),
        " ",
        link("Restore", "/journal/restore", query, aria_label=f"Restore version {identity}"),
        " ",
        link("Undo", "/journal/undo", query, aria_label=f"Undo change {identity}"),
    ]


def conflicts_page(title: str, conflicts: list[dict[str, Any]], ids: list[str]) -> Page:
    first = {one["path"]: one["reason"] for one in reversed(conflicts)}
    rows = (
        (file_link(path), _REASONS.get(reason, reason.replace("_", " "))) for path, reason in first.items()
    )
    text = "This cannot be undone, so nothing was changed. To go back anyway, restore an older version of the file."
    hint = "Leave these files out of the selection to undo the others." if len(ids) > 1 else None
    body = table("Files that cannot be undone", ("File", "Why"), rows, "")
    card_body = card("Conflicts", note(text, kind="error"), body, note(hint) if hint else None)
    return Page(title, (Part("preview", card_body),), is_live=False)


def _undone(one: dict[str, Any]) -> tuple[Content, ...]:
    after = short(one["sha256"]) or "deleted"
    return (
        [badge(one["op"]), f" {one['undone']}"],
        [one["client"], " ", session_link(one["session"])],
        after,
    )


async def _reverse_of(context: PageContext, one: dict[str, Any], *, is_open: bool) -> Markup:
    """What undoing one change does to its file."""
    diff = await context.tools.call("diff", path=one["path"], to=one["undone"])
    shown = show_diff(reverse_diff(await context.tools.masked(diff["diff"])))
    summary = element("summary", "What will happen to ", code(one["path"]))
    return element("details", summary, shown, open=is_open)


async def _versions(context: PageContext, path: str) -> list[dict[str, Any]]:
    found = (await context.tools.call("history", path=path, n=MOST_VERSIONS))["versions"]
    return [{**one, "path": path} for one in found]


def _named(ask: Ask) -> tuple[str, str]:
    path, identity = ask.exact("path"), ask.get("id")
    if not path or not identity:
        raise NotThere
    return path, identity


async def _hash_now(context: PageContext, path: str) -> str:
    """Of the file as the preview shows it, so that nothing newer is overwritten; none where there is no file."""
    try:
        return str((await context.tools.call("read", path=path, max_bytes=1, encoding="base64"))["sha256"])
    except ToolFailed:
        return ""
