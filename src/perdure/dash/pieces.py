"""What several pages are made of."""

from __future__ import annotations

from typing import Literal

from perdure.dash.desk import Desk
from perdure.dash.html import Attribute, Content, Markup, element


def button(
    desk: Desk,
    label: str,
    to: str,
    fields: dict[str, str],
    *,
    kind: Literal["plain", "danger", "main"] = "plain",
    said: str | None = None,
) -> Markup:
    """A form of one button: every change is posted, with the value that only our pages know."""
    hidden = {"csrf": desk.csrf, **fields}
    return element(
        "form",
        [element("input", type="hidden", name=name, value=value) for name, value in hidden.items()],
        element("button", label, class_=kind, aria_label=said),
        method="post",
        action=to,
    )


def badge(word: str) -> Markup:
    return element("span", word.replace("_", " "), class_=f"badge {word}")


def when(stamp: object) -> Markup:
    """An ISO 8601 time, to the second."""
    said = str(stamp or "")
    return element("time", said[:19].replace("T", " "), datetime=said) if said else Markup("")


def code(content: Content, **attributes: Attribute) -> Markup:
    return element("code", content, **attributes)


def short(identity: object) -> Markup:
    """The head of a hash or session id; the whole of it for whoever points at it."""
    said = str(identity or "")
    return code(said[:10], title=said) if said else Markup("")


def field(label: str, name: str, value: str, **attributes: Attribute) -> Markup:
    return element(
        "label",
        element("span", label),
        element("input", name=name, value=value, autocomplete="off", **attributes),
    )


def search(title: str, label: str, to: str, *fields: Markup) -> Markup:
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
