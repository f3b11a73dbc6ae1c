"""Tokens that carry their vendor's mark: found by a literal, confirmed by the whole format.

A literal at the beginning of the format is looked for as it is. A short one, or one in the middle, is looked for
together with some characters that follow it (its trigger), so that a common word does not cost a confirmation.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from perdure.risk import checksums, randomness
from perdure.risk.candidates import Candidate
from perdure.risk.randomness import DIGIT, LOWER, UPPER
from perdure.risk.report import Tier
from perdure.risk.rules import CLASSES, Field, Piece, load_rules, longest, parse, token_pattern

PLAIN_LITERAL: Final = 4
# So short a mark comes up in random text by chance.
SHORT_MARK: Final = 4
TRIGGER_BODY: Final = 6
TRIGGER_WHOLE: Final = 16
TRIGGER_PIECES: Final = 4
# A single character is looked for with what stands before it.
TRIGGER_LEAD: Final = 8
# Beside a mark that is also a word of every program more must match.
TRIGGER_BODY_OF_COMMON: Final = 12
COMMON_MARKS: Final = frozenset((
    "access-", "app-", "client-", "console-", "dev:", "ext_", "key-", "key_", "live_", "nfo_", "pat_", "preview:",
    "private_", "prod:", "production_", "re_", "sandbox_", "secret-", "secret_", "sl.", "standard_", "test_", "ver:", "web_",
))  # fmt: skip
BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
BASE64_RUN: Final = re.compile(rb"[A-Za-z0-9+/_-]*")
NEAR: Final = 24
LEAST_RUN: Final = 12
# How a checksum in base64 is announced.
CHECKSUMS: Final = (b"sha1-", b"sha256-", b"sha384-", b"sha512-")


class Trigger(NamedTuple):
    """What the engine looks for: a pattern of fixed width, and where the literal is in it ("" for the literal alone)."""

    pattern: str
    lead: int
    width: int


class Token:
    """One combination of a format's choices."""

    __slots__ = ("_pattern", "_pieces", "back", "kind", "literal", "reach", "rule", "tier", "trigger")

    def __init__(self, rule: str, kind: str, tier: Tier, pieces: tuple[Piece, ...]) -> None:
        anchor = _anchor(pieces)
        literal = pieces[anchor]
        assert isinstance(literal, str), rule
        self.rule, self.kind, self.tier = rule, kind, tier
        self.literal = literal
        self.back = longest(pieces[:anchor])
        self.reach = longest(pieces)
        self.trigger = _trigger(pieces, anchor)
        self._pieces = pieces
        self._pattern: re.Pattern[bytes] | None = None

    def confirm(self, data: bytes, at: int) -> Candidate | None:
        """The token whose literal is at this offset."""
        pattern = self._pattern
        if pattern is None:
            pattern = self._pattern = re.compile(token_pattern(self._pieces))
        if self.back:
            found = pattern.search(data, max(0, at - self.back), at + self.reach + 1)
            if found is None or not found.start() <= at < found.end():
                return None
        else:
            found = pattern.match(data, at)
            if found is None:
                return None
        token = found[0]
        body = b"".join(found.groups())
        if not randomness.KNOWN_EXAMPLES.isdisjoint((token, body)) or (
            randomness.made_up(body) and not checksums.proves(token)
        ):
            return None
        if len(self.literal) <= SHORT_MARK and _is_inside_base64(data, *found.span()):
            return None
        shown = 0 if self.back else len(self.literal)
        return Candidate(
            found.start(),
            found.end(),
            self.rule,
            self.kind,
            self.tier,
            shown,
            len(self.literal) + len(self._pieces),
        )


@functools.cache
def tokens() -> tuple[Token, ...]:
    """Every format with a mark of its own."""
    return tuple(
        Token(name, kind, rule.tier, pieces)
        for (kind, name), rule in load_rules().items()
        if not rule.names
        for pieces in parse(rule.format)
    )


@functools.cache
def marks() -> tuple[str, ...]:
    """What the tokens of a vendor begin with, where that is no word of every program."""
    literals = {token.literal for token in tokens() if token.back == 0 and len(token.literal) >= SHORT_MARK}
    return tuple(sorted(literals - COMMON_MARKS))


def mask_tokens(text: str, marker: str) -> str:
    """A short text with every token of a known format replaced. Looks for each literal in turn: no engine is used."""
    data = text.encode("utf-8", "surrogatepass")
    spans: list[tuple[int, int]] = []
    for token in tokens():
        literal = token.literal.encode()
        at = data.find(literal)
        while at >= 0:
            if candidate := token.confirm(data, at):
                spans.append((candidate.start, candidate.end))
            at = data.find(literal, at + 1)
    parts: list[bytes] = []
    end = 0
    for start, stop in sorted(spans):
        if start >= end:
            parts += [data[end:start], marker.encode()]
        end = max(end, stop)
    return b"".join([*parts, data[end:]]).decode("utf-8", "surrogatepass")


def _is_inside_base64(data: bytes, start: int, end: int) -> bool:
    """Whether random base64 goes on before or after the match. A short mark comes up in base64 by chance, once in some
    megabytes."""
    before = data[max(0, start - NEAR) : start]
    if before.endswith(CHECKSUMS) or _is_random_run(before[len(before.rstrip(BASE64)) :]):
        return True
    after = BASE64_RUN.match(data, end, end + NEAR)
    return after is not None and _is_random_run(after[0])


def _is_random_run(run: bytes) -> bool:
    return len(run) >= LEAST_RUN and all(kind.search(run) for kind in (DIGIT, LOWER, UPPER))


def _anchor(pieces: tuple[Piece, ...]) -> int:
    """The literal to look for: the first if it is long enough, else the longest, the first of these. A run of
    one character is none: in a longer run it would be found at every place.
    """
    lengths = [
        (len(piece), -place)
        for place, piece in enumerate(pieces)
        if isinstance(piece, str) and (len(piece) == 1 or len(set(piece)) > 1)
    ]
    length, place = lengths[0]
    return 0 if place == 0 and length >= PLAIN_LITERAL - 1 else -max(lengths)[1]


def _trigger(pieces: tuple[Piece, ...], anchor: int) -> Trigger:
    literal = pieces[anchor]
    assert isinstance(literal, str)
    if len(literal) >= PLAIN_LITERAL and literal not in COMMON_MARKS:
        return Trigger("", 0, len(literal))
    onwards, width = _onwards(
        pieces[anchor:], TRIGGER_BODY_OF_COMMON if literal in COMMON_MARKS else TRIGGER_BODY
    )
    if len(literal) > 1 or anchor == 0:
        return Trigger(onwards, 0, width)
    before = pieces[anchor - 1]
    assert isinstance(before, Field)
    return Trigger(f"{_class(before)}{{{TRIGGER_LEAD}}}{onwards}", TRIGGER_LEAD, TRIGGER_LEAD + width)


def _onwards(pieces: tuple[Piece, ...], body: int) -> tuple[str, int]:
    """The literal and what follows it, in a fixed width: short fields as a whole, then the begin of the next."""
    patterns: list[str] = []
    width = 0
    for piece in pieces[:TRIGGER_PIECES]:
        if isinstance(piece, str):
            patterns.append(re.escape(piece))
            width += len(piece)
            continue
        whole = piece.least == piece.most <= TRIGGER_WHOLE
        count = piece.least if whole else min(piece.least, body)
        patterns.append(f"{_class(piece)}{{{count}}}")
        width += count
        if not whole:
            break
    return "".join(patterns), width


def _class(field: Field) -> str:
    return f"[{CLASSES['H' if field.characters == 'uuid' else field.characters]}]"
