"""HTML from Python, escaped by construction: only what was built here is taken for markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple, Union
from urllib.parse import urlencode

Content = Union["Markup", str, int, float, None, Iterable["Content"]]
Attribute = str | int | float | bool | None
Query = Mapping[str, str | Sequence[str]]

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


def link(label: Content, path: str, query: Query | None = None, **attributes: Attribute) -> Markup:
    return element("a", label, href=address(path, query), **attributes)


def address(path: str, query: Query | None = None) -> str:
    """A path of ours with its query; a name from outside never becomes more than a value in it."""
    given = {key: value for key, value in (query or {}).items() if value}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


class Figure(NamedTuple):
    """A cell with a number in it, and perhaps its unit: it is not broken, and on a narrow screen stands beside others."""

    content: Content


class Row(NamedTuple):
    """A row with an identity of its own, by which the page's script knows which ones are new."""

    id: str
    cells: Sequence[Cell]


Cell = Union[Content, "Figure"]


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], empty: Content) -> Markup:
    """With a caption for those who hear it; `empty` says what would fill it. On a narrow screen each row is a card, so
    every cell says what it is, and the roles say what a card no longer shows."""
    found = [_row(heads, row) for row in rows]
    if not found:
        return element("p", empty, class_="empty")
    titles = [element("th", head, scope="col", role="columnheader") for head in heads]
    return element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", titles, role="row"), role="rowgroup"),
        element("tbody", found, role="rowgroup"),
        role="table",
    )


def _row(heads: Sequence[str], row: Sequence[Cell]) -> Markup:
    identity, cells = (row.id, row.cells) if isinstance(row, Row) else (None, row)
    shown = [_cell(head, cell) for head, cell in zip(heads, cells, strict=True)]
    return element("tr", shown, role="row", data_row=identity)


def _cell(head: str, content: Cell) -> Markup:
    is_number = isinstance(content, int | float | Figure)
    content = content.content if isinstance(content, Figure) else content
    is_empty = content is None or content == ""
    kind = "number" if is_number else "nothing" if is_empty else None
    return element("td", content, class_=kind, data_label=head or None, role="cell")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
