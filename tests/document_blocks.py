"""The code blocks of a page, and what a test does with each.

A block without a language holds commands and is run. A comment before it says otherwise:
`<!-- not run: REASON -->`, or `<!-- background -->` for a server that runs until the page ends.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted([*(DOCS / "tutorial").glob("*.md"), *(DOCS / "how-to").glob("*.md")])

_MARK = r"(?: *<!-- (?P<mark>[^>]*?) -->\n)?"
_BLOCK = re.compile(rf"^{_MARK} *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.S | re.M)


class Block(NamedTuple):
    page: str
    language: str
    mark: str
    text: str

    @property
    def is_command(self) -> bool:
        return self.language in ("", "sh")

    @property
    def reason_not_run(self) -> str:
        return self.mark.partition("not run: ")[2]


def blocks(path: Path) -> list[Block]:
    page = path.relative_to(DOCS).as_posix()
    return [
        Block(page, match["language"], match["mark"] or "", textwrap.dedent(match["text"]))
        for match in _BLOCK.finditer(path.read_text(encoding="utf-8"))
    ]


def commands(text: str) -> list[str]:
    """The lines of a block without the remarks behind them."""
    lines = [re.split(r"\s{2,}#", line)[0].rstrip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]
