"""HTML from Python, escaped by construction: only what was built here is taken for markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, Union
from urllib.parse import urlencode

Content = Union["Markup", str, int, float, None, Iterable["Content"]]
Attribute = str | int | float | bool | None

_EMPTY: Final = frozenset({"meta", "link", "input", "br", "line", "path", "polyline"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __str__(self) -> str:
        """As plain text, for what takes no other."""
        return "".join(self)


def element(name: str, /, *children: Content, **attributes: Attribute) -> Markup:
    """`class_` and `for_` lose their underscore; others become hyphens. None and False are left out."""
    head = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Markup(f"<{name}{head}>" if name not in ("line", "path", "polyline") else f"<{name}{head}/>")
    return Markup(f"<{name}{head}>{text(children)}</{name}>")


def text(content: Content) -> Markup:
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int | float):
        return Markup(escape(str(content)))
    return Markup("".join(text(one) for one in content))


def link(label: Content, path: str, query: dict[str, str] | None = None, **attributes: Attribute) -> Markup:
    return element("a", label, href=address(path, query), **attributes)


def address(path: str, query: dict[str, str] | None = None) -> str:
    """A path of ours with its query; a name from outside never becomes more than a value in it."""
    given = {key: value for key, value in (query or {}).items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[Content]], empty: str) -> Markup:
    """With a caption for those who hear it; one line says so where there is nothing."""
    found = [element("tr", [_cell(one) for one in row]) for row in rows]
    if not found:
        return element("p", empty, class_="empty")
    made = element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", [element("th", head, scope="col") for head in heads])),
        element("tbody", found),
    )
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _cell(content: Content) -> Markup:
    return element("td", content, class_="number" if isinstance(content, int | float) else None)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
