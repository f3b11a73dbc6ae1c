"""Components that several pages share: cards, badges, links, forms, and the notice about untrusted files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from perdure.dash.context import PageContext
from perdure.dash.html import Attribute, Content, Markup, element, link, table
from perdure.dash.web import Part
from perdure.protocol.pending_trust import UntrustedFile, command_for

SHOWN_DIGITS: Final = 12
HEALTH: Final = {
    "ready": "healthy",
    "cold": "not started",
    "recovering": "restarting",
    "degraded": "paused",
    "untrusted": "not trusted",
}


def button(
    context: PageContext,
    label: str,
    to: str,
    fields: Iterable[tuple[str, str]],
    *,
    kind: Literal["plain", "danger", "main"] = "plain",
    said: str | None = None,
) -> Markup:
    """A form of one button: every change is posted, with the value that only our pages know."""
    hidden = [("csrf", context.csrf), *fields]
    return element(
        "form",
        [element("input", type="hidden", name=name, value=value) for name, value in hidden],
        element("button", label, class_=kind, aria_label=said),
        method="post",
        action=to,
    )


def card(title: Content, *content: Content) -> Markup:
    return element("section", element("h2", title), content, class_="card")


def badge(word: str, label: str = "") -> Markup:
    """`word` names its colour in the style sheet."""
    return element("span", label or word.replace("_", " "), class_=f"badge {word}")


def health(state: str) -> Markup:
    return badge(state, HEALTH.get(state, state))


def code(content: Content, **attributes: Attribute) -> Markup:
    return element("code", content, **attributes)


def short(identity: object) -> Markup:
    """The head of a hash or an id; the whole of it is its title and what a click on it copies."""
    text = str(identity or "")
    return code(text[:SHOWN_DIGITS], title=text, data_copy=text) if text else Markup("")


def file_link(path: str, label: Content = None) -> Markup:
    return link(label or code(path), "/file", {"path": path})


def session_link(session: str, label: Content = None) -> Markup:
    return link(label or code(session[:8]), "/sessions/session", {"id": session}, title=session)


def change_link(path: str, identity: str, label: str = "Diff") -> Markup:
    query = {"path": path, "id": identity}
    return link(label, "/journal/entry", query, aria_label=f"{label} of change {identity}")


def count(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def change_word(entry: dict[str, Any]) -> str:
    """What a change did to a file: `create`, `overwrite`, `edit`, `undo` …"""
    return str(entry["mode"] if entry["op"] == "write" else entry["op"])


def facts(pairs: Iterable[tuple[str, Content]]) -> Markup:
    shown = [element("div", element("dt", name), element("dd", value)) for name, value in pairs]
    return element("dl", shown, class_="facts")


def note(*content: Content, kind: Literal["error", "notice", "hint"] = "hint") -> Markup:
    role = {"error": "alert", "notice": "status"}.get(kind)
    return element("p", *content, class_=kind, role=role)


def block(label: str, content: Content) -> Markup:
    return element("pre", element("code", content), tabindex=0, aria_label=label, role="region")


def field(
    label: str, name: str, value: str, suggestions: Iterable[str] = (), **attributes: Attribute
) -> Markup:
    choices = [element("option", value=one) for one in suggestions]
    known = f"known-{name}" if choices else None
    return element(
        "label",
        element("span", label),
        element("input", name=name, value=value, autocomplete="off", list=known, **attributes),
        element("datalist", choices, id=known) if choices else None,
    )


def search(title: str, label: str, to: str, *fields: Markup | None) -> Markup:
    return element(
        "form",
        fields,
        element("button", label),
        method="get",
        action=to,
        class_="search",
        role="search",
        aria_label=title,
    )


def untrusted_part(files: Iterable[UntrustedFile]) -> Part:
    """Settings files of the workspace that wait for trust, and what to type: no page can grant it. Empty where nothing
    waits, since a part of a live page stays in its place."""
    rows = [
        (
            code(file.path),
            ", ".join(f"{start.name}: {start.shown}" for start in file.starts) or "nothing",
            ", ".join(file.settings) or "nothing",
            code(command_for(file.path)),
        )
        for file in files
    ]
    if not rows:
        return Part("untrusted", Markup(""))
    heads = ("File", "Would start", "Would set", "To trust it, type")
    return Part("untrusted", card("Not trusted", table("Files that wait for trust", heads, rows, "")))
