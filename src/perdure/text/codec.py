"""Bytes as text and back, with everything kept: encoding, byte order mark, line endings, final newline.

    decode(data)             → Text: what the file says, and the style it says it in
    encode(text, content)    → bytes: the edited content, in the file's own style
    content_bytes(…)         → bytes: a payload as it was sent
    append_bytes(style, …)   → bytes: a payload in the style of the file it is added to
    excerpt(text, …)         → Excerpt: some lines, bounded

Content is edited in LF. A line of a mixed file keeps its own ending, also where another text takes its place; a
new one takes the ending that most lines have. A lone carriage return ends no line: it is a character and stays one.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from perdure.protocol.envelope import SuggestedAction, ToolError, refuse
from perdure.protocol.next_step import FILL, call_again
from perdure.text import lines
from perdure.text.lines import Change

Encoding = Literal["utf-8", "utf-16-le", "utf-16-be", "latin-1", "cp1252"]
Eol = Literal["lf", "crlf", "mixed", "none"]

MAX_BYTES: Final = 262_144
_BOM: Final = "\ufeff"
_MARKS: Final[tuple[tuple[bytes, Encoding], ...]] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ASKED: Final[dict[str, Encoding]] = {
    "utf-8": "utf-8",
    "utf-16": "utf-16-le",
    "utf-16-le": "utf-16-le",
    "utf-16-be": "utf-16-be",
    "latin-1": "latin-1",
    "cp1252": "cp1252",
}
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_ONLY_1252 = re.compile(rb"[\x80-\x9f]")  # control characters in Latin-1, quotes and dashes in Windows' own


class Style(msgspec.Struct, frozen=True):
    """How a file writes its text."""

    encoding: Encoding = "utf-8"
    bom: bool = False
    eol: Eol = "none"
    newline: str = "\n"  # the ending that most of its lines have

    @property
    def name(self) -> str:
        """The encoding as tools name it."""
        return "utf-16" if self.encoding.startswith("utf-16") else self.encoding


class Text(msgspec.Struct, frozen=True):
    """A file's text: `body` has the file's own line endings, without a byte order mark."""

    body: str
    style: Style

    @property
    def content(self) -> str:
        """The text in LF, as edits see it."""
        return self.body if self.style.eol in ("lf", "none") else self.body.replace("\r\n", "\n")


class Excerpt(msgspec.Struct, frozen=True):
    """Lines `start_line` to `end_line` of a text, with the file's own endings."""

    content: str
    start_line: int
    end_line: int
    total_lines: int
    truncated: bool


def _refuse(reason: str, message: str, action: SuggestedAction, next_step: str, **context: Any) -> ToolError:
    return refuse(
        "invalid_input",
        reason,
        message,
        next_step=next_step,
        reason_hint="encoding",
        suggested_action=action,
        **context,
    )


# --- from bytes --------------------------------------------------------------------------------------------


def decode(data: bytes, encoding: str | None = None) -> Text:
    """The text of a file, in its own encoding or in the one asked for. Binary data is refused."""
    if encoding is not None:
        return _asked(data, encoding)
    found = _detect(data, final=True)
    if found is None:
        raise _refuse("binary_file", "the file is not text.", "reread", call_again(encoding="base64"))
    body, codec, bom = found
    return Text(body, _style(body, codec, bom))


def style_of(data: bytes, *, complete: bool = True) -> Style | None:
    """The style of a file, or of its beginning where that is not complete. None: it is not text."""
    found = _detect(data, final=complete)
    return None if found is None else _style(*found)


def _asked(data: bytes, encoding: str) -> Text:
    codec = _ASKED.get(encoding)
    if codec is None:
        raise _refuse(
            "unknown_encoding",
            f"encoding must be {', '.join(_ASKED)} or base64.",
            "fix_syntax",
            call_again(encoding=FILL),
            choices=list(_ASKED),
        )
    bom = False
    for mark, marked in _MARKS:
        if data.startswith(mark) and (marked == codec or (encoding == "utf-16" and marked != "utf-8")):
            data, codec, bom = data[len(mark) :], marked, True
            break
    body = _decoded(data, codec, final=True)
    if body is None:
        raise _refuse(
            "not_in_encoding",
            f"the file is not valid {encoding}.",
            "reread",
            call_again(encoding=None),
            encoding=encoding,
        )
    return Text(body, _style(body, codec, bom))


def _detect(data: bytes, *, final: bool) -> tuple[str, Encoding, bool] | None:
    for mark, codec in _MARKS:
        if data.startswith(mark):
            body = _decoded(data[len(mark) :], codec, final=final)
            # UTF-32 begins like UTF-16; its NULs tell.
            return None if body is None or "\0" in body else (body, codec, True)
    if b"\0" in data:
        return None
    body = _decoded(data, "utf-8", final=final)
    if body is not None:
        return body, "utf-8", False
    if _CONTROL.search(data) is not None or not _clearly_not_utf8(data):
        return None
    western: Encoding = "cp1252" if _ONLY_1252.search(data) else "latin-1"
    body = _decoded(data, western, final=final)
    return (body, western, False) if body is not None else None


def _decoded(data: bytes, codec: Encoding, *, final: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(codec)("strict").decode(data, final)
    except UnicodeError:
        return None


def _clearly_not_utf8(data: bytes) -> bool:
    """Most of what is not ASCII is not UTF-8 either. A UTF-8 file with a damaged byte is not Latin-1."""
    shown = data.decode("utf-8", "replace")
    damaged = shown.count("\ufffd")
    others = len(shown) - len(shown.encode("ascii", "ignore"))
    return damaged > others - damaged


def _style(body: str, codec: Encoding, bom: bool) -> Style:
    crlf = body.count("\r\n")
    lf = body.count("\n") - crlf
    eol: Eol = "mixed" if crlf and lf else "crlf" if crlf else "lf" if lf else "none"
    return Style(codec, bom, eol, "\r\n" if crlf > lf else "\n")


# --- to bytes ----------------------------------------------------------------------------------------------


def encode(text: Text, content: str) -> bytes:
    """The edited content (in LF) as the file would write it."""
    match text.style.eol:
        case "lf" | "none":
            body = content
        case "crlf":
            body = content.replace("\n", "\r\n")
        case "mixed":
            body = _own_endings(text, content)
    return encode_body(text.style, body)


def encode_body(style: Style, body: str) -> bytes:
    """A text that already has its line endings, in the encoding of a file."""
    mark = _BOM.encode(style.encoding) if style.bom else b""
    return mark + _encoded(body, style.encoding)


def _own_endings(text: Text, content: str) -> str:
    if content == text.content:
        return text.body
    before, after = lines.split(text.body), lines.split(content)
    old = [line.removesuffix("\n") for line in lines.split(text.content)]
    new = [line.removesuffix("\n") for line in after]
    found = [line[:-1] + text.style.newline if line.endswith("\n") else line for line in after]
    for at_old, at_new in _paired(old, new):
        if before[at_old].endswith("\n") and after[at_new].endswith("\n"):
            found[at_new] = new[at_new] + before[at_old][len(old[at_old]) :]
    return "".join(found)


def _paired(old: list[str], new: list[str]) -> Iterator[tuple[int, int]]:
    """Lines that are the same, or stand in the place of one another."""
    at_old = at_new = 0
    for change in [*lines.changes(old, new), Change(len(old), len(old), len(new), len(new))]:
        yield from zip(range(at_old, change.a0), range(at_new, change.b0), strict=True)
        if change.a1 - change.a0 == change.b1 - change.b0:
            yield from zip(range(change.a0, change.a1), range(change.b0, change.b1), strict=True)
        at_old, at_new = change.a1, change.b1


def content_bytes(content: str, encoding: str = "utf-8") -> bytes:
    """A payload as it was sent; UTF-16 is little-endian with a byte order mark."""
    if encoding == "base64":
        try:
            return base64.b64decode("".join(content.split()).encode("ascii"), validate=True)
        except (binascii.Error, UnicodeError):
            raise _refuse(
                "bad_base64", "content is not valid base64.", "fix_syntax", call_again(content=FILL)
            ) from None
    codec = _ASKED.get(encoding)
    if codec is None:
        raise _refuse(
            "unknown_encoding",
            f"encoding must be {', '.join(_ASKED)} or base64.",
            "fix_syntax",
            call_again(encoding=FILL),
            choices=[*_ASKED, "base64"],
        )
    marked = encoding == "utf-16" and not content.startswith(_BOM)
    return encode_body(Style(codec, marked), content)


def as_sent(data: bytes, encoding: str) -> str | None:
    """The text of a payload that was kept; None where it is none in this encoding."""
    try:
        body = _asked(data, encoding).body
    except ToolError:
        return None
    return None if "\0" in body else body


def is_wide(head: bytes) -> bool:
    """Whether a file that is not text may be UTF-32, or UTF-16 without a mark: every second byte is mostly NUL."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return True
    some = head[: min(len(head), 4096) & ~1]
    fewer, more = sorted((some[::2].count(0), some[1::2].count(0)))
    return len(some) >= 4 and more * 4 > len(some) and fewer * 20 <= len(some)


def append_bytes(style: Style | None, content: str, encoding: str = "utf-8") -> bytes:
    """A payload in the encoding and the line ending of the file it is added to.

    To a file that is not text (`style` None), or as base64, it is added as it was sent.
    """
    if style is None or encoding == "base64":
        return content_bytes(content, encoding)
    body = content.removeprefix(_BOM)
    if style.eol != "none":
        body = body.replace("\r\n", "\n")
        if style.newline != "\n":
            body = body.replace("\n", style.newline)
    return _encoded(body, style.encoding)


def _encoded(text: str, codec: Encoding) -> bytes:
    try:
        return text.encode(codec)
    except UnicodeEncodeError as error:
        raise _refuse(
            "unencodable",
            f"the content has a character that {codec} cannot write.",
            "escape",
            call_again(encoding="utf-8"),
            encoding=codec,
            line=lines.number_at(text, error.start),
            column=error.start - text.rfind("\n", 0, error.start),
        ) from None


# --- some lines --------------------------------------------------------------------------------------------


def _no_such_lines(count: int) -> str:
    lines_told = f"{count} line{'' if count == 1 else 's'}"
    return f"the file has {lines_told}: start_line must be from 1 to {max(count, 1)}, and end_line not before it."


def excerpt(
    text: Text, start_line: int | None = None, end_line: int | None = None, max_bytes: int = MAX_BYTES
) -> Excerpt:
    """Lines from `start_line` to `end_line`: whole lines while they fit, or the beginning of the first."""
    whole = lines.split(text.body)
    first = 1 if start_line is None else start_line
    last = len(whole) if end_line is None else end_line
    if first < 1 or (end_line is not None and end_line < first) or first > max(len(whole), 1):
        raise refuse(
            "invalid_input",
            "no_such_lines",
            _no_such_lines(len(whole)),
            next_step=call_again(start_line=None, end_line=None),
            suggested_action="reread",
            total_lines=len(whole),
        )
    if max_bytes < 1:
        raise refuse(
            "invalid_input",
            "bad_limit",
            "max_bytes must be at least 1.",
            next_step=call_again(max_bytes=None),
            suggested_action="fix_syntax",
        )
    last = min(last, len(whole))
    taken: list[str] = []
    room = max_bytes
    for line in whole[first - 1 : last]:
        size = len(line) if line.isascii() else len(line.encode())
        if size > room:
            if not taken:
                taken.append(line[:room].encode()[:room].decode("utf-8", "ignore"))
            break
        taken.append(line)
        room -= size
    end = first - 1 + len(taken)
    cut = end < last or (bool(taken) and taken[-1] != whole[end - 1])
    return Excerpt("".join(taken), first, end, len(whole), cut)
