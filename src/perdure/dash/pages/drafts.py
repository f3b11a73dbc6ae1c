"""What was not written or is kept aside: refused payloads and why, the scratchpad, chunks, checkpoints.

Of a refused payload a page shows the content with what looks like a secret replaced; of everything else only what it is.
"""

from __future__ import annotations

from typing import Any, Final

from perdure.dash.components import block, button, card, code, facts, file_link, note, session_link, short
from perdure.dash.context import PageContext
from perdure.dash.html import Content, Markup, Row, element, link, table
from perdure.dash.times import when
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part
from perdure.text.times import format_time

MOST_SHOWN: Final = 100_000
RISK: Final = "risk"
_WHY: Final = {
    RISK: "it looks like it holds a secret",
    "file_already_exists": "the file existed already",
    "changed_since_seen": "the file had changed since the agent read it",
    "hash_mismatch": "the file was not the expected version",
    "elided": "it left out parts of the file",
    "syntax": "it would have broken the syntax",
    "protected": "the path is protected",
}
_EMPTY: Final = {
    "scratch": "The scratchpad is empty. What agents keep with scratch_put appears here.",
    "chunks": "No file is being written in pieces. What agents send with chunk_write appears here.",
    "points": "No checkpoints. What agents save with checkpoint appears here.",
}


async def drafts(context: PageContext, ask: Ask) -> Page:
    refused = await context.read_store(context.stores.drafts)
    chunks = (await context.tools.call("chunk_status"))["sessions"]
    scratch = (await context.tools.call("scratch_ref"))["entries"]
    points = (await context.tools.call("checkpoint_list"))["checkpoints"]
    gone = note("The draft was discarded.", kind="notice") if ask.get("done") == "discarded" else None
    return Page(
        "Drafts",
        (
            *((Part("notice", gone),) if gone is not None else ()),
            Part("refused", card("Refused payloads", _refused(refused)), news="draft"),
            Part("scratch", card("Scratchpad", _records("Scratch entries", scratch, _EMPTY["scratch"]))),
            Part("chunks", card("Files in pieces", _records("Chunk sessions", chunks, _EMPTY["chunks"]))),
            Part("checkpoints", card("Checkpoints", _records("Checkpoints", points, _EMPTY["points"]))),
        ),
    )


async def draft(context: PageContext, ask: Ask) -> Page:
    """One refused payload: why, and its content with secrets replaced."""
    one = await _named(context, ask.get("id"))
    identity = one["draft"]
    try:
        found = await context.tools.call("risk_score", draft=identity, redact=True)
    except ToolFailed as failed:
        found, content = {"detected_patterns": []}, note(failed.sentence)
    else:
        content = block("Content with secrets replaced", found["redacted"][:MOST_SHOWN])
    patterns = (
        (
            str(pattern.get("kind", "")).replace("_", " "),
            str(pattern.get("pattern", "")).replace("_", " "),
            _place(pattern),
        )
        for pattern in found["detected_patterns"]
    )
    risky = table("What looks like a secret", ("Kind", "Pattern", "Where"), patterns, "It holds no secret.")
    is_copy = one["reason"] == RISK and not found["detected_patterns"]
    title = "Redacted copy of a refused payload" if is_copy else f"Not written: {_why(one)}"
    discard = button(context, "Discard", "/drafts/discard", [("id", identity)], kind="danger")
    call = code(f"safe_write path={one['path'] or '…'} draft={identity}")
    how = note("An agent writes it with ", call, ".")
    if found["detected_patterns"]:
        how = note("A write with this content stays refused. A redacted copy is kept as a draft of its own.")
    return Page(
        f"Draft for {one['path'] or 'no file'}",
        (
            Part("draft", card(title, _facts(one), risky)),
            Part(
                "content",
                card("Content, secrets replaced", content, how, element("div", discard, class_="actions")),
            ),
        ),
        is_live=False,
    )


async def discard(context: PageContext, form: Ask) -> str:
    one = await _named(context, form.get("id"))
    if not await context.read_store(lambda: context.stores.discard_draft(one["draft"])):
        raise NotThere
    return "/drafts?done=discarded"


async def _named(context: PageContext, identity: str) -> dict[str, Any]:
    known = await context.read_store(context.stores.drafts)
    found = next((one for one in known if one["draft"] == identity), None)
    if found is None:
        raise NotThere
    return found


def _refused(drafts: list[dict[str, Any]]) -> Markup:
    """Those of one file stand together, under the newest of them."""
    newest = {path: order for order, path in reversed(list(enumerate(one["path"] for one in drafts)))}
    ordered = sorted(drafts, key=lambda one: newest[one["path"]])
    rows = (
        Row(
            one["draft"],
            (
                when(format_time(one["ts"])),
                file_or_none(one["path"]),
                _why(one),
                f"{one['size']:,} bytes",
                [one["client"], " ", session_link(one["session"])],
                link("View", "/drafts/draft", {"id": one["draft"]}, aria_label=f"View draft {one['draft']}"),
            ),
        )
        for one in ordered
    )
    heads = ("Time", "File", "Why not written", "Size", "Client", "Actions")
    empty = "Nothing was refused lately. A payload that is not written is kept here, so that no agent sends it twice."
    return table("Refused payloads, by file, newest first", heads, rows, empty)


def file_or_none(path: str) -> Content:
    return code(path) if path else "no file"


def _why(one: dict[str, Any]) -> str:
    reason = str(one["reason"])
    return _WHY.get(reason, reason.replace("_", " "))


def _place(pattern: dict[str, Any]) -> str:
    line, column = pattern.get("line"), pattern.get("column")
    return f"line {line}, column {column}" if line and column else f"line {line}" if line else ""


def _facts(one: dict[str, Any]) -> Markup:
    pairs: list[tuple[str, Content]] = [
        ("File", file_link(one["path"]) if one["path"] else "no file"),
        ("Time", when(format_time(one["ts"]))),
        ("Size", f"{one['size']:,} bytes"),
        ("Client", one["client"]),
        ("Session", session_link(one["session"])),
        ("Draft", short(one["draft"])),
    ]
    return facts([*pairs, *([("Workspace", one["workspace"])] if "workspace" in one else [])])


_TITLES: Final = {
    "sha256": "sha256",
    "ttl": "Kept for",
    "checkpoint_path": "Address",
    "created_at": "Created",
    "updated_at": "Updated",
    "expires_at": "Expires",
}


def _records(caption: str, records: list[dict[str, Any]], empty: str) -> Markup:
    """Metadata as it comes, one column per member that any of them has a value for."""
    names = dict.fromkeys(key for one in records for key, value in one.items() if value is not None)
    heads = [name for name in names if name != "notes"]
    rows = ([_member(name, one.get(name)) for name in heads] for one in records)
    titles = [_TITLES.get(name) or name.replace("_", " ").capitalize() for name in heads]
    return table(caption, titles, rows, empty)


def _member(name: str, value: Any) -> Content:
    if name.endswith(("_at", "ts")):
        return when(value)
    if name.endswith("sha256"):
        return short(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return ", ".join(map(str, value))[:200]
    return code(str(value)[:200])
