"""The lines of a unified diff: what each is, and how many are added and removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

MOST_BYTES: Final = 1 << 20
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def split_lines(diff: str) -> list[str]:
    """A line ends with a line feed only: `str.splitlines` would also split a line of a file at a form feed."""
    return diff.removesuffix("\n").split("\n") if diff else []


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


def has_counted_lines(entry: dict[str, Any]) -> bool:
    """Whether the lines of this entry of the journal are counted. A move changes none, a link and a directory have none; a
    large file takes too long."""
    return bool(entry["mode"] != "move" and "kind" not in entry and entry["bytes"] <= MOST_BYTES)


def count_lines(diff: str) -> tuple[int, int] | None:
    """How many lines it adds and removes. None for a diff without lines, such as that of a binary file."""
    kinds = list(line_kinds(split_lines(diff)))
    return (kinds.count("plus"), kinds.count("minus")) if "place" in kinds or not kinds else None
