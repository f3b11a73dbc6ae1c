"""Unified diffs: shown line by line, turned round."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from perdure.dash.html import Markup, element
from perdure.text.diff_lines import line_kinds, split_lines

MOST_LINES: Final = 2000


def show_diff(diff: str, label: str = "Diff") -> Markup:
    """A unified diff, line by line; what a line does is said by its sign and by its colour."""
    lines = split_lines(diff)
    if not lines:
        return element("p", "The content did not change.", class_="empty")
    rest = len(lines) - MOST_LINES
    kinds = line_kinds(lines[:MOST_LINES])
    found = [element("span", line or " ", class_=kind) for line, kind in zip(lines, kinds, strict=False)]
    note = element("p", f"{rest} more lines are not shown.", class_="hint") if rest > 0 else None
    body = element("pre", element("code", found), class_="diff", tabindex=0, aria_label=label, role="region")
    return element("div", body, note)


def reverse_diff(diff: str) -> str:
    """The diff the other way round: what will happen to the file."""
    lines = split_lines(diff)
    heads = [line[4:] for line in lines[:2]]
    swap = {"+": "-", "-": "+"}
    body = [
        f"@@ {_reverse_place(line)} @@" if line.startswith("@@ ") else swap.get(line[:1], line[:1]) + line[1:]
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


def _reverse_place(line: str) -> str:
    old, new = line.split(" ")[1:3]
    return f"-{new[1:]} +{old[1:]}"
