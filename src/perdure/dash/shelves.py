"""What agents leave for each other: shared state, handoffs, and what is kept aside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from perdure.dash.desk import Desk
from perdure.dash.html import Content, Markup, element, link, table
from perdure.dash.layout import card
from perdure.dash.pieces import badge, code, field, search, short, when
from perdure.dash.tools import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part
from perdure.model.when import iso

T = TypeVar("T")

DEFAULT: Final = "default"
HANDOFF: Final = "HANDOFF.md"
LOOK: Final = 500


async def state(desk: Desk, ask: Ask) -> Page:
    namespace, prefix = ask.get("namespace", DEFAULT), ask.get("prefix")
    found = await desk.tools.call("list_state", namespace=namespace, prefix=prefix, cursor=ask.get("after"))
    known = await _looked(desk.looks.state)
    query = {"namespace": namespace, "prefix": prefix}
    keys = table(
        "Keys",
        ("Key", "Version", "Revision", "Changed"),
        (
            (
                link(code(one["key"]), "/state/key", {"namespace": namespace, "key": one["key"]}),
                one["version"],
                one["revision"],
                when(one["updated_at"]),
            )
            for one in found["keys"]
        ),
        "No key matches.",
    )
    after = found.get("next_cursor")
    more = link("More keys", "/state", {**query, "after": after}, class_="more") if after else None
    fields = (field("Namespace", "namespace", namespace), field("Prefix", "prefix", prefix))
    return Page(
        "State",
        (
            Part("find", card("Find", search("Keys", "Show", "/state", *fields))),
            Part("keys", card("Keys", keys, more)),
            Part("namespaces", card("Namespaces", _namespaces(known["namespaces"], namespace))),
            Part("leases", card("Leases", _leases(known["leases"]))),
            Part("lease", await _lease(desk, ask, namespace)),
            Part("waiters", card("Waiters", _waiters(desk))),
        ),
    )


async def key(desk: Desk, ask: Ask) -> Page:
    namespace, name = ask.get("namespace", DEFAULT), ask.query.get("key", "")
    if not name:
        raise NotThere
    past = (await desk.tools.call("state_history", namespace=namespace, key=name, limit=50))["versions"]
    shown = [await desk.tools.masked(str(one.get("value") or "")) for one in past]
    rows = (
        (
            one["version"],
            one["revision"],
            when(one["updated_at"]),
            one["client"],
            code(one["tool"]),
            _past(one, value),
        )
        for one, value in zip(past, shown, strict=True)
    )
    heads = ("Version", "Revision", "Changed", "Client", "Tool", "Value")
    now = element("p", "Deleted.") if not past or past[0]["deleted"] else _value(shown[0])
    return Page(
        name,
        (
            Part("value", card("Value", element("p", "Namespace ", code(namespace)), now)),
            Part(
                "history", card("History", table("Versions, newest first", heads, rows, "It never existed."))
            ),
        ),
    )


async def handoffs(desk: Desk, ask: Ask) -> Page:
    path = ask.get("path", HANDOFF)
    try:
        parts = _handoff(desk, await desk.tools.call("handoff_read", path=path))
        body = [one if isinstance(one, Markup) else await _prose(desk, one) for one in parts]
    except ToolFailed as failed:
        body = [element("p", f"{str(failed).capitalize()}.", class_="empty")]
    written = [
        one
        for one in reversed((await desk.tools.call("journal_tail", n=LOOK))["entries"])
        if one["op"] == "handoff"
    ]
    rows = (
        (
            when(one["ts"]),
            link(code(one["path"]), "/handoffs", {"path": one["path"]}),
            one["client"],
            link("Diff", "/journal/entry", {"path": one["path"], "id": one["journal_id"]}),
        )
        for one in written
    )
    past = table(
        "Handoffs, newest first", ("Time", "Path", "Client", "Entry"), rows, "None was written lately."
    )
    return Page(
        "Handoffs", (Part("handoff", card(path, body)), Part("written", card("Written lately", past)))
    )


async def drafts(desk: Desk, ask: Ask) -> Page:
    """Never their contents: what was refused or put aside may be what nobody should see."""
    refused = await _looked(desk.looks.drafts)
    chunks = (await desk.tools.call("chunk_status"))["sessions"]
    scratch = (await desk.tools.call("scratch_ref"))["entries"]
    points = (await desk.tools.call("checkpoint_list"))["checkpoints"]
    return Page(
        "Drafts",
        (
            Part("refused", card("Refused payloads", _refused(refused))),
            Part("scratch", card("Scratchpad", _records("Scratch entries", scratch))),
            Part("chunks", card("Files in pieces", _records("Chunk sessions", chunks))),
            Part("checkpoints", card("Checkpoints", _records("Checkpoints", points))),
        ),
    )


# --- state ----------------------------------------------------------------------------------------------------


async def _looked(look: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(look)
    except Exception as error:  # of any backend: the page says so, and the others are shown
        raise ToolFailed(f"the store cannot be looked at ({type(error).__name__})") from None


def _namespaces(known: list[dict[str, Any]], shown: str) -> Markup:
    rows = (
        (
            link(code(one["namespace"]), "/state", {"namespace": one["namespace"]})
            if one["namespace"] != shown
            else element("b", one["namespace"]),
            one.get("keys", ""),
            one.get("leases", ""),
        )
        for one in known
    )
    return table("Namespaces of the store", ("Namespace", "Keys", "Leases"), rows, "There is none yet.")


def _leases(known: list[dict[str, Any]]) -> Markup:
    rows = (
        (
            link(code(one["name"]), "/state", {"namespace": one["namespace"], "lease": one["name"]}),
            one["namespace"],
            one["owner"],
            f"{one['expires_in_s']:.0f} s" if one["expires_in_s"] is not None else "no end",
        )
        for one in known
    )
    return table("Leases that are held", ("Lease", "Namespace", "Owner", "Left"), rows, "No lease is held.")


def _refused(drafts: list[dict[str, Any]]) -> Markup:
    """Their ids are what a write tool takes instead of the content."""
    rows = (
        (
            when(iso(one["ts"])),
            code(one["path"]),
            one["reason"].replace("_", " "),
            one["size"],
            one["client"],
            short(one["session"]),
            code(one["draft"]),
            *([one["workspace"]] if "workspace" in one else []),
        )
        for one in drafts
    )
    heads = ["Time", "Path", "Reason", "Size", "Client", "Session", "Draft"]
    heads += ["Workspace"] if any("workspace" in one for one in drafts) else []
    return table("Refused payloads, newest first", heads, rows, "Nothing was refused lately.")


async def _lease(desk: Desk, ask: Ask, namespace: str) -> Markup:
    name = ask.get("lease")
    hidden = element("input", type="hidden", name="namespace", value=namespace)
    form = search("Leases", "Look up", "/state", hidden, field("Lease", "lease", name))
    if not name:
        return card("Find a lease", form)
    found = await desk.tools.call("lease", action="status", name=name, namespace=namespace)
    owner = f" by {found['owner']} until " if found.get("owner") else None
    return card(
        "Find a lease",
        form,
        element("p", code(name), " ", badge(found["status"]), owner, when(found.get("expires_at"))),
    )


def _waiters(desk: Desk) -> Markup:
    rows = (
        (
            code(str(one.arguments.get("key") or f"{one.arguments.get('prefix', '')}…")),
            str(one.arguments.get("namespace") or DEFAULT),
            one.client,
            short(one.session),
            one.seconds,
        )
        for one in desk.calls()
        if one.name == "state_wait"
    )
    return table("Who waits", ("Key", "Namespace", "Client", "Session", "Seconds"), rows, "Nobody waits.")


def _past(one: dict[str, Any], value: str) -> Content:
    return element("i", "deleted") if one["deleted"] else code(value[:200])


def _value(value: str) -> Markup:
    try:
        pretty = msgspec.json.format(value.encode(), indent=2).decode()
    except msgspec.MsgspecError:
        pretty = value
    return element("pre", element("code", pretty), tabindex=0, aria_label="Value", role="region")


# --- handoffs and what is kept ----------------------------------------------------------------------------------


def _handoff(desk: Desk, found: dict[str, Any]) -> list[Content]:
    """Markup, and text that must still be masked."""
    envelope = found["envelope"]
    known = ("task_id", "status", "agent", "updated_at")
    facts = [
        element("div", element("dt", name.replace("_", " ")), element("dd", _fact(name, envelope.get(name))))
        for name in known
    ]
    parts: list[Content] = [element("dl", facts, class_="facts")]
    for warning in found["drift_warnings"]:
        parts.append(element("p", f"Drift: {_plain(warning)}", class_="error"))
    if steps := envelope.get("steps"):
        ready = set(found["ready_steps"])
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
        parts.append(table("Steps", ("Step", "Status", "What", "After", "Ready"), rows, ""))
    rest = {name: value for name, value in envelope.items() if name not in (*known, "steps") and value}
    for name, value in rest.items():
        parts += [element("h3", name.replace("_", " ")), _plain(value)]
    if found["body"]:
        parts += [element("h3", "body"), found["body"]]
    return parts


def _fact(name: str, value: Any) -> Markup | str:
    return when(value) if name.endswith("_at") else _plain(value) if value is not None else ""


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(f"• {one}" for one in value)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


async def _prose(desk: Desk, content: Content) -> Markup:
    return element("div", await desk.tools.masked(str(content)), class_="prose")


def _records(caption: str, records: list[dict[str, Any]]) -> Markup:
    """Metadata as it comes, one column per member that any of them has."""
    heads = [name for name in dict.fromkeys(key for one in records for key in one) if name not in ("notes",)]
    rows = ([_member(name, one.get(name)) for name in heads] for one in records)
    return table(caption, [name.replace("_", " ") for name in heads], rows, "Nothing is kept.")


def _member(name: str, value: Any) -> Content:
    if name.endswith(("_at", "ts")):
        return when(value)
    if name.endswith("sha256"):
        return short(value)
    if value is None or isinstance(value, str | int | float):
        return value if not isinstance(value, bool) else ("yes" if value else "no")
    return code(_plain(value)[:200])
