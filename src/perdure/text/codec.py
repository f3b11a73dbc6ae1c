"""Decode and encode files without loss: encoding, byte order mark, line endings and final newline are kept.

    decode(data)                → Text: the file's text and its style
    encode(text, content)       → bytes: the edited content, in the file's own style
    encode_payload(…)           → bytes: a payload as it was sent
    encode_appended(style, …)   → bytes: a payload in the style of the file it is appended to
    extract_lines(text, …)      → Excerpt: a bounded range of lines

Content is edited with LF. In a file with mixed endings each line keeps its own, also if its text changes; a new line
gets the ending of most lines. A lone carriage return does not end a line: it is kept as a character.
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
_BYTE_ORDER_MARKS: Final[tuple[tuple[bytes, Encoding], ...]] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CODECS: Final[dict[str, Encoding]] = {
    "utf-8": "utf-8",
    "utf-16": "utf-16-le",
    "utf-16-le": "utf-16-le",
    "utf-16-be": "utf-16-be",
    "latin-1": "latin-1",
    "cp1252": "cp1252",
}
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_CP1252_ONLY = re.compile(rb"[\x80-\x9f]")  # control characters in Latin-1, quotes and dashes in cp1252


class Style(msgspec.Struct, frozen=True):
    """The encoding and line endings of a file."""

    encoding: Encoding = "utf-8"
    bom: bool = False
    eol: Eol = "none"
    newline: str = "\n"  # the ending of most lines

    @property
    def name(self) -> str:
        """The encoding as the tools call it."""
        return "utf-16" if self.encoding.startswith("utf-16") else self.encoding


class Text(msgspec.Struct, frozen=True):
    """The text of a file. `body` has the file's own line endings and no byte order mark."""

    body: str
    style: Style

    @property
    def content(self) -> str:
        """The text with LF as line ending, for edits."""
        return self.body if self.style.eol in ("lf", "none") else self.body.replace("\r\n", "\n")


class Excerpt(msgspec.Struct, frozen=True):
    """Lines `start_line` to `end_line` of a file, with their own endings."""

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


# --- decoding ----------------------------------------------------------------------------------------------


def decode(data: bytes, encoding: str | None = None) -> Text:
    """Decode a file in the given encoding, or in the one detected. Raises ToolError for binary data."""
    if encoding is not None:
        return _decode_as(data, encoding)
    detected = _detect(data, final=True)
    if detected is None:
        raise _refuse("binary_file", "the file is not text.", "reread", call_again(encoding="base64"))
    body, codec, bom = detected
    return Text(body, _make_style(body, codec, bom))


def detect_style(data: bytes, *, complete: bool = True) -> Style | None:
    """Detect the style of a file, or of its beginning if `data` is not complete; None if it is not text."""
    detected = _detect(data, final=complete)
    return None if detected is None else _make_style(*detected)


def _decode_as(data: bytes, encoding: str) -> Text:
    codec = _CODECS.get(encoding)
    if codec is None:
        raise _refuse(
            "unknown_encoding",
            f"encoding must be {', '.join(_CODECS)} or base64.",
            "fix_syntax",
            call_again(encoding=FILL),
            choices=list(_CODECS),
        )
    bom = False
    for mark, mark_codec in _BYTE_ORDER_MARKS:
        if data.startswith(mark) and (
            mark_codec == codec or (encoding == "utf-16" and mark_codec != "utf-8")
        ):
            data, codec, bom = data[len(mark) :], mark_codec, True
            break
    body = _decode_or_none(data, codec, final=True)
    if body is None:
        raise _refuse(
            "not_in_encoding",
            f"the file is not valid {encoding}.",
            "reread",
            call_again(encoding=None),
            encoding=encoding,
        )
    return Text(body, _make_style(body, codec, bom))


def _detect(data: bytes, *, final: bool) -> tuple[str, Encoding, bool] | None:
    for mark, codec in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            body = _decode_or_none(data[len(mark) :], codec, final=final)
            # The mark of UTF-32 begins with that of UTF-16; the decoded text then has NULs.
            return None if body is None or "\0" in body else (body, codec, True)
    if b"\0" in data:
        return None
    body = _decode_or_none(data, "utf-8", final=final)
    if body is not None:
        return body, "utf-8", False
    if _CONTROL_BYTES.search(data) is not None or not _is_clearly_not_utf8(data):
        return None
    codec_8bit: Encoding = "cp1252" if _CP1252_ONLY.search(data) else "latin-1"
    body = _decode_or_none(data, codec_8bit, final=final)
    return (body, codec_8bit, False) if body is not None else None


def _decode_or_none(data: bytes, codec: Encoding, *, final: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(codec)("strict").decode(data, final)
    except UnicodeError:
        return None


def _is_clearly_not_utf8(data: bytes) -> bool:
    """Whether most non-ASCII bytes are not UTF-8 either. A UTF-8 file with one damaged byte is not Latin-1."""
    text = data.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    non_ascii = len(text) - len(text.encode("ascii", "ignore"))
    return damaged > non_ascii - damaged


def _make_style(body: str, codec: Encoding, bom: bool) -> Style:
    crlf = body.count("\r\n")
    lf = body.count("\n") - crlf
    eol: Eol = "mixed" if crlf and lf else "crlf" if crlf else "lf" if lf else "none"
    return Style(codec, bom, eol, "\r\n" if crlf > lf else "\n")


# --- encoding ----------------------------------------------------------------------------------------------


def encode(text: Text, content: str) -> bytes:
    """Encode edited content (with LF) in the style of the file."""
    match text.style.eol:
        case "lf" | "none":
            body = content
        case "crlf":
            body = content.replace("\n", "\r\n")
        case "mixed":
            body = _restore_endings(text, content)
    return encode_body(text.style, body)


def encode_body(style: Style, body: str) -> bytes:
    """Encode a text that already has the file's line endings."""
    mark = _BOM.encode(style.encoding) if style.bom else b""
    return mark + _encode_or_refuse(body, style.encoding)


def _restore_endings(text: Text, content: str) -> str:
    """Give each line of the content the ending that its line had in a file with mixed endings."""
    if content == text.content:
        return text.body
    old_ended, new_ended = lines.split(text.body), lines.split(content)
    old = [line.removesuffix("\n") for line in lines.split(text.content)]
    new = [line.removesuffix("\n") for line in new_ended]
    result = [line[:-1] + text.style.newline if line.endswith("\n") else line for line in new_ended]
    for old_index, new_index in _pair_lines(old, new):
        if old_ended[old_index].endswith("\n") and new_ended[new_index].endswith("\n"):
            result[new_index] = new[new_index] + old_ended[old_index][len(old[old_index]) :]
    return "".join(result)


def _pair_lines(old: list[str], new: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the indexes of lines that are equal, or that a change replaced one by one."""
    old_index = new_index = 0
    for change in [*lines.diff(old, new), Change(len(old), len(old), len(new), len(new))]:
        yield from zip(range(old_index, change.a_start), range(new_index, change.b_start), strict=True)
        if change.a_end - change.a_start == change.b_end - change.b_start:
            yield from zip(
                range(change.a_start, change.a_end), range(change.b_start, change.b_end), strict=True
            )
        old_index, new_index = change.a_end, change.b_end


def encode_payload(content: str, encoding: str = "utf-8") -> bytes:
    """Encode a payload as it was sent. UTF-16 is little-endian with a byte order mark."""
    if encoding == "base64":
        try:
            return base64.b64decode("".join(content.split()).encode("ascii"), validate=True)
        except (binascii.Error, UnicodeError):
            raise _refuse(
                "bad_base64", "content is not valid base64.", "fix_syntax", call_again(content=FILL)
            ) from None
    codec = _CODECS.get(encoding)
    if codec is None:
        raise _refuse(
            "unknown_encoding",
            f"encoding must be {', '.join(_CODECS)} or base64.",
            "fix_syntax",
            call_again(encoding=FILL),
            choices=[*_CODECS, "base64"],
        )
    needs_bom = encoding == "utf-16" and not content.startswith(_BOM)
    return encode_body(Style(codec, needs_bom), content)


def decode_payload(data: bytes, encoding: str) -> str | None:
    """Decode a payload that was kept; None if it is not text in this encoding."""
    try:
        body = _decode_as(data, encoding).body
    except ToolError:
        return None
    return None if "\0" in body else body


def looks_like_wide_unicode(head: bytes) -> bool:
    """Whether a file that is not text may be UTF-32, or UTF-16 without a mark: every second byte is mostly NUL."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return True
    sample = head[: min(len(head), 4096) & ~1]
    fewer, more = sorted((sample[::2].count(0), sample[1::2].count(0)))
    return len(sample) >= 4 and more * 4 > len(sample) and fewer * 20 <= len(sample)


def encode_appended(style: Style | None, content: str, encoding: str = "utf-8") -> bytes:
    """Encode a payload in the style of the file it is appended to.

    If the file is not text (`style` is None), or the payload is base64, it is encoded as it was sent.
    """
    if style is None or encoding == "base64":
        return encode_payload(content, encoding)
    body = content.removeprefix(_BOM)
    if style.eol != "none":
        body = body.replace("\r\n", "\n")
        if style.newline != "\n":
            body = body.replace("\n", style.newline)
    return _encode_or_refuse(body, style.encoding)


def _encode_or_refuse(text: str, codec: Encoding) -> bytes:
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


# --- excerpts ----------------------------------------------------------------------------------------------


def _describe_line_count(count: int) -> str:
    size = f"{count} line{'' if count == 1 else 's'}"
    return f"the file has {size}: start_line must be from 1 to {max(count, 1)}, and end_line not before it."


def extract_lines(
    text: Text, start_line: int | None = None, end_line: int | None = None, max_bytes: int = MAX_BYTES
) -> Excerpt:
    """Return lines `start_line` to `end_line`, from one: as many whole lines as fit, or the beginning of the first."""
    all_lines = lines.split(text.body)
    first = 1 if start_line is None else start_line
    last = len(all_lines) if end_line is None else end_line
    if first < 1 or (end_line is not None and end_line < first) or first > max(len(all_lines), 1):
        raise refuse(
            "invalid_input",
            "no_such_lines",
            _describe_line_count(len(all_lines)),
            next_step=call_again(start_line=None, end_line=None),
            suggested_action="reread",
            total_lines=len(all_lines),
        )
    if max_bytes < 1:
        raise refuse(
            "invalid_input",
            "bad_limit",
            "max_bytes must be at least 1.",
            next_step=call_again(max_bytes=None),
            suggested_action="fix_syntax",
        )
    last = min(last, len(all_lines))
    selected: list[str] = []
    bytes_left = max_bytes
    for line in all_lines[first - 1 : last]:
        size = len(line) if line.isascii() else len(line.encode())
        if size > bytes_left:
            if not selected:
                selected.append(line[:bytes_left].encode()[:bytes_left].decode("utf-8", "ignore"))
            break
        selected.append(line)
        bytes_left -= size
    end = first - 1 + len(selected)
    is_truncated = end < last or (bool(selected) and selected[-1] != all_lines[end - 1])
    return Excerpt("".join(selected), first, end, len(all_lines), is_truncated)
