"""Text as the model of the file tree understands it: line endings, edits, unified diffs, and merges of lines.

Written a second time on purpose, for texts small enough that the plain way is fast enough. Where the rules leave room
(lines that repeat, a last line without an end) a merge is `Unclear`: then several results are right, and `fits` tells
which are not.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec


@cache
def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def is_text(content: bytes) -> bool:
    return b"\0" not in content


def split(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def eol(text: str) -> Literal["lf", "crlf", "mixed", "none"]:
    ends = {line.endswith("\r\n") for line in split(text) if line.endswith("\n")}
    return "none" if not ends else "mixed" if len(ends) > 1 else "crlf" if True in ends else "lf"


def appended(old: bytes, added: bytes, *, as_sent: bool) -> bytes:
    """What is added takes on the ending that most lines of the file have."""
    if as_sent or not is_text(old) or eol(old.decode()) == "none":
        return old + added
    most = old.count(b"\r\n") * 2 > old.count(b"\n")
    unix = added.replace(b"\r\n", b"\n")
    return old + (unix.replace(b"\n", b"\r\n") if most else unix)


# --- edits ---------------------------------------------------------------------------------------------------


class Misfit(Exception):
    """An edit or a patch that does not go into the text, by the reason that must be given."""


def edited(content: bytes, edits: list[tuple[str, str, int]]) -> tuple[bytes, int]:
    """The content after these edits (old, new, count), and how many places changed."""
    body = content.decode()
    text, total = body.replace("\r\n", "\n"), 0
    for old, new, count in edits:
        if not old:
            raise Misfit("empty_old_string")
        if old == new:
            raise Misfit("nothing_to_change")
        # With overlaps: of "aa" in "aaa" it is not certain which one is meant.
        found = len(re.findall(f"(?={re.escape(old)})", text))
        apart = text.count(old)
        if found == 0:
            raise Misfit("old_string_not_found")
        if count != -1 and (found > count or found > apart):
            raise Misfit("ambiguous_match")
        if found < count:
            raise Misfit("insufficient_matches")
        text, total = text.replace(old, new), total + apart
    return (text.replace("\n", "\r\n") if eol(body) == "crlf" else text).encode(), total


# --- unified diffs -------------------------------------------------------------------------------------------


def unified(path: str, old: str | None, new: str | None) -> str:
    """A patch that a client would send; None for no file."""
    names = "/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}"
    return "".join(difflib.unified_diff(split(old or ""), split(new or ""), *names))


def patched(diff: str, old: str) -> str:
    """The text after a diff whose every line must fit exactly where it says."""
    have, result, at = split(old), list[str](), 0
    for head, body in re.findall(r"^@@ -(\S+) \+\S+ @@\n((?:[ +\-\\].*\n)*)", diff, re.MULTILINE):
        start, _, count = head.partition(",")
        begin = int(start) - (0 if count == "0" else 1)
        if have and not re.search("^[ -]", body, re.MULTILINE):
            raise Misfit("no_context")  # made for an empty file, as nothing in it says where it goes
        result += have[at:begin]
        at = begin
        for line in split(body.replace("\n\\ No newline at end of file\n", "\0")):
            for part in re.findall(r"[^\0]+\0?", line):
                mark, text = part[0], part[1:].removesuffix("\0")
                if mark in " -":
                    if have[at : at + 1] != [text]:
                        raise Misfit("hunk_does_not_apply")
                    at += 1
                if mark in " +":
                    result.append(text)
    return "".join(result + have[at:])


# --- merges --------------------------------------------------------------------------------------------------


class Unclear(msgspec.Struct, frozen=True):
    """Several results are right."""


class Clash(msgspec.Struct, frozen=True):
    """Both sides changed the same lines, or added lines at the same place."""


class _Region(NamedTuple):
    """Lines `start:end` of the base that a side has replaced by `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


def merged(base: bytes, now: bytes, back: bytes) -> bytes | Clash | Unclear:
    """`base` with what `now` and `back` each made of it, where that is one thing only."""
    texts = [split(one.decode()) for one in (base, now, back)]
    common = texts[0]
    if any(len(set(text)) < len(text) or not "".join(text[-1:] or "\n").endswith("\n") for text in texts):
        return Unclear()
    sides = [_regions(common, text) for text in texts[1:]]
    if sides[0] is None or sides[1] is None:
        return Unclear()
    if any(one != other and _collide(one, other) for one in sides[0] for other in sides[1]):
        return Clash()
    result: list[str] = []
    at = 0
    for region in sorted({*sides[0], *sides[1]}):
        result += [*common[at : region.start], *region.lines]
        at = region.end
    return "".join(result + common[at:]).encode()


def _regions(base: list[str], text: list[str]) -> list[_Region] | None:
    """What a side made of the base; None where lines that both have changed their order."""
    kept = [line for line in base if line in text]
    if [line for line in text if line in base] != kept:
        return None
    places = [(-1, -1), *((base.index(line), text.index(line)) for line in kept), (len(base), len(text))]
    found = [
        _Region(a + 1, next_a, tuple(text[b + 1 : next_b])) for (a, b), (next_a, next_b) in pairwise(places)
    ]
    return [region for region in found if region.start < region.end or region.lines]


def _collide(one: _Region, other: _Region) -> bool:
    if one.start == one.end and other.start == other.end:
        return one.start == other.start
    if max(one.start, other.start) < min(one.end, other.end):
        return True
    if one.start == one.end or other.start == other.end:
        point, span = (one, other) if one.start == one.end else (other, one)
        if span.start < point.start < span.end:
            return True
    touching = one.end == other.start or other.end == one.start
    return touching and not set(one.lines).isdisjoint(other.lines)


def fits(base: bytes, now: bytes, back: bytes, result: bytes) -> bool:
    """Whether an unclear merge keeps what was added since, has back what was undone, and adds nothing else."""
    was, later, undone, made = (Counter(split(one.decode())) for one in (base, now, back, result))
    return not (later - was) - made and not (undone - was) - made and not made - (later + undone)
