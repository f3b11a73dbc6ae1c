"""What a command shows a person: within the width, in colour only where that is wanted, in any encoding.

Names come from clients, agents and files, so nothing that would move the cursor is ever printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from json import dumps
from typing import TextIO

WIDTH = 80
NARROWEST = 40
UNLIMITED = 1_000_000  # into a pipe or a file nothing is cut
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PLAIN = str.maketrans({"…": "~", "−": "-", "·": "-", "●": "*", "█": "#", "░": "."})


class Screen:
    """Standard output, and what may be shown on it."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out if out is not None else sys.stdout
        self.is_terminal = self.out.isatty()
        self.width = self._width()
        self.has_colour = (
            self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self._is_plain = not _can_show(self.out, "…−·●█░")
        if hasattr(self.out, "reconfigure"):
            self.out.reconfigure(errors="replace")

    def _width(self) -> int:
        if not self.is_terminal:
            return UNLIMITED
        given = os.environ.get("COLUMNS", "")
        if given.isdigit() and int(given) > 0:
            return max(int(given), NARROWEST)
        try:
            return max(os.get_terminal_size(self.out.fileno()).columns or WIDTH, NARROWEST)
        except (OSError, ValueError):
            return WIDTH

    def line(self, text: str = "", style: str = "") -> None:
        self.out.write(self.styled(self.fit(text), style) + "\n")

    def styled(self, text: str, style: str) -> str:
        text = text.translate(_PLAIN) if self._is_plain else text
        if not style or not self.has_colour:
            return text
        codes = ";".join(_STYLES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def fit(self, text: str) -> str:
        return cut(text, self.width)


def column(head: str, cells: Iterable[str], *, right: bool = False) -> list[str]:
    """The head and the cells of a column, all of one width."""
    texts = [head, *cells]
    width = max(map(len, texts))
    return [text.rjust(width) if right else text.ljust(width) for text in texts]


def print_table(columns: list[list[str]], screen: Screen) -> None:
    for number, cells in enumerate(zip(*columns, strict=True)):
        screen.line("  ".join(cells).rstrip(), "" if number else "dim")


def _can_show(out: TextIO, text: str) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def encodable(text: str) -> str:
    """JSON text for standard output: characters that its encoding lacks are escaped, so it stays valid JSON."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("_", "-")
    if text.isascii() or encoding in ("utf-8", "utf8"):
        return text
    return "".join(c if c.isascii() else dumps(c)[1:-1] for c in text)


def clean(text: object) -> str:
    """One line of printable characters."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def cut_left(text: str, width: int) -> str:
    """Of a path the end says most."""
    return text if len(text) <= width else "…" + text[len(text) - max(width - 1, 0) :]


def home(path: str) -> str:
    """A path as people write it."""
    base = os.path.expanduser("~")
    return "~" + path[len(base) :] if base not in ("/", "") and path.startswith(base + os.sep) else path


def count(number: int, word: str, words: str = "") -> str:
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    left = max(int(seconds), 0)
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size}{unit}")
        left %= size
    return " ".join(parts[:2])


def milliseconds(value: float) -> str:
    if value >= 1000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def size(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError("the last unit takes all")
