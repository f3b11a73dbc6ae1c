"""Everything that commands print: tables, colours, counts, sizes, times, errors, diffs and progress bars.

On a terminal lines are cut to its width; into a pipe or a file nothing is cut. Colour is used only on a terminal that
has it. Names come from clients, agents and files, so no control character is ever printed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from json import dumps
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from perdure.protocol.envelope import ToolError
    from perdure.storage.errors import StorageError

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
        return truncate(text, self.width)


def column(head: str, cells: Iterable[str], *, right: bool = False) -> list[str]:
    """The head and the cells of a column, all of one width. Empty where no cell has text: the table goes without it."""
    texts = [head, *cells]
    if not any(texts[1:]):
        return []
    width = max(map(len, texts))
    return [text.rjust(width) if right else text.ljust(width) for text in texts]


def print_table(columns: list[list[str]], screen: Screen) -> None:
    for number, cells in enumerate(zip(*filter(None, columns), strict=True)):
        screen.line("  ".join(cells).rstrip(), "" if number else "dim")


def _can_show(out: TextIO, text: str) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


# --- text and numbers ------------------------------------------------------------


def clean(text: object) -> str:
    """One line of printable characters."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def truncate(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def truncate_left(text: str, width: int) -> str:
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


# --- times: in the zone of this machine --------------------------------------------------

_EPOCH = datetime.fromtimestamp(0, UTC)


def microseconds_of(text: str) -> int:
    """Microseconds since 1970 of a time in a result: ISO 8601 in UTC."""
    return int((datetime.fromisoformat(text) - _EPOCH) / timedelta(microseconds=1))


def time_zone() -> str:
    """The name of the local time zone, such as `CET`."""
    return datetime.now().astimezone().tzname() or "local"


def short_time(ts_us: int) -> str:
    """Local: the time of day for today, else the day; at most 12 characters."""
    then, now = _local(ts_us), datetime.now().astimezone()
    if then.date() == now.date():
        return then.strftime("%H:%M:%S")
    return then.strftime("%b %d %H:%M" if then.year == now.year else "%Y-%m-%d")


def full_time(ts_us: int) -> str:
    """Local, with the offset to UTC: `2026-11-18T09:03:58-05:00`."""
    return _local(ts_us).isoformat(timespec="seconds")


def age(ts_us: int) -> str:
    """`30 s ago`, `5 min ago`, `3 h ago`, `12 d ago`."""
    seconds = max(int(time.time() - ts_us / 1_000_000), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _local(ts_us: int) -> datetime:
    return (_EPOCH + timedelta(microseconds=ts_us)).astimezone()


# --- JSON and errors ------------------------------------------------------------


def encodable(text: str) -> str:
    """JSON text for standard output: characters that its encoding lacks are escaped, so it stays valid JSON."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("_", "-")
    if text.isascii() or encoding in ("utf-8", "utf8"):
        return text
    return "".join(c if c.isascii() else dumps(c)[1:-1] for c in text)


def print_json(payload: Any) -> None:
    import msgspec

    print(encodable(msgspec.json.encode(payload).decode()))


EXIT_CODES: Final = {
    "invalid_input": 2,
    "conflict": 3,
    "stale_precondition": 3,
    "quota_exceeded": 4,
    "policy_violation": 4,
}
USAGE: Final = 2
UNAVAILABLE: Final = 4
# What the sentence says already, or what only a program has use for.
_NOT_SHOWN: Final = frozenset({"tool", "reason", "message", "next", "path", "fault", "how"})


def exit_code(envelope: dict[str, Any]) -> int:
    if "fault" in envelope["context"]:
        return UNAVAILABLE
    if (envelope["error"], envelope["reason_hint"]) == ("policy_violation", "encoding"):
        return USAGE  # what was sent is incomplete or malformed, not forbidden
    if envelope["context"].get("reason") == "escapes_workspace":
        return USAGE  # a path that was mistyped
    return EXIT_CODES.get(envelope["error"], 1)


def error_text(command: str, envelope: dict[str, Any]) -> str:
    """One sentence, then the other facts, a line each; last the code, as tools give it."""
    context = envelope["context"]
    message = context.get("message") or envelope["error"].replace("_", " ")
    path = context.get("path")
    where = f": {clean(path)}" if isinstance(path, str) and path and path not in message else ""
    lines = [f"perdure {command}: {clean(message)}{where}"]
    lines += [
        f"  {clean(name)}: {_value_text(value)}" for name, value in context.items() if name not in _NOT_SHOWN
    ]
    if envelope["detected_patterns"]:
        lines.append(f"  found: {', '.join(map(clean, envelope['detected_patterns']))}")
    if envelope["draft"]:
        lines.append(f"  the content is kept as draft {clean(envelope['draft'])}")
    if "reason" in context:
        lines.append(f"[{envelope['error']}/{clean(context['reason'])}]")
    return "\n".join(lines)


def _value_text(value: Any) -> str:
    return clean(value if isinstance(value, str) else dumps(value, ensure_ascii=False))


def print_error(command: str, error: ToolError | StorageError, as_json: bool) -> int:
    """To a person as text on standard error, with `--json` as the envelope that tools give. Returns the exit code."""
    import msgspec

    from perdure.present.tool_errors import tool_error

    envelope = msgspec.to_builtins(tool_error(error).envelope)
    if as_json:
        print_json(envelope)
    else:
        print(error_text(command, envelope), file=sys.stderr)
    return exit_code(envelope)


# --- diffs ------------------------------------------------------------

_DIFF_STYLES = {b"+": "green", b"-": "red", b"@": "cyan"}


def print_diff(diff: bytes, screen: Screen) -> None:
    if not screen.is_terminal:
        screen.out.flush()
        screen.out.buffer.write(diff)
        screen.out.buffer.flush()
        return
    is_header = True
    for line in diff.splitlines(keepends=True):
        is_header = is_header and not line.startswith(b"@@")
        style = "bold" if is_header else _DIFF_STYLES.get(line[:1], "")
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        # Whatever a file holds, it does not move the cursor of a terminal.
        shown = "".join(c if c.isprintable() or c == "\t" else "?" for c in text)
        screen.out.write(screen.styled(shown, style) + "\n")


# --- progress ------------------------------------------------------------

AFTER_S = 1.0
EVERY_S = 0.1
BAR = 24


class Progress:
    """A progress bar on standard error, for people at a terminal only. `beside` is the stream of the command's own lines:
    where that is a terminal too, no bar is drawn among them."""

    def __init__(self, out: TextIO | None = None, beside: TextIO | None = None) -> None:
        out = out if out is not None else sys.stderr
        is_apart = beside is None or not beside.isatty()
        self._screen = Screen(out) if out.isatty() and is_apart else None
        self._due = time.monotonic() + AFTER_S
        self._has_drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_drawn and self._screen is not None:
            self._screen.out.write("\r\x1b[K")
            self._screen.out.flush()

    def stage(self, text: str) -> None:
        """Something that cannot say how far it is; shown at once."""
        if self._screen is not None:
            self._has_drawn = True
            self._screen.out.write(
                f"\r{self._screen.styled(truncate(text, self._screen.width - 1), '')}\x1b[K"
            )
            self._screen.out.flush()

    def at(self, stage: str, done: int, total: int = 0) -> None:
        """Called as often as one likes."""
        if self._screen is None or (now := time.monotonic()) < self._due:
            return
        self._due, self._has_drawn = now + EVERY_S, True
        text = f"{stage}  {done:,}"
        if total:
            share = min(done / total, 1.0)
            full = int(share * BAR)
            text = f"{stage}  {'█' * full}{'░' * (BAR - full)} {share:4.0%}  {done:,} of {total:,}"
        shown = self._screen.styled(truncate(text, self._screen.width - 1), "")
        self._screen.out.write(f"\r{shown}\x1b[K")
        self._screen.out.flush()
