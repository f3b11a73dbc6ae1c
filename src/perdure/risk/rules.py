"""The rules: the formats of tokens as their vendors publish them, one TOML file for each trade (`formats/`).

    [api_key]                                                                              the kind of the rules below
    groq_key = { format = "gsk_{a48-60}", example = "…", counterexample = "…" }            a token with a mark of its own
    ai21_key = { names = ["ai21"], format = "{a32}", example = "…", counterexample = "…" } one that is known by a name

`tier = "generic"` only warns. A token with `names` has no mark: it counts where it is assigned to a key, token or the like
with one of these names beside it (any case, `_` for any separator or none). Lengths are the least that the vendor is known
to issue, so that a longer successor is found as well. In examples `·` is left out: with it they match no scanner's rules.

A format is written as its vendor prints it: literal text, `{a36}` for 36 characters of a class, `{a20-40}`
for a range, `{a20+}` for an open end (bounded here), `{uuid}`, and `[live|test]` for a choice. It gives
the literal that the engine looks for, how far before it a match may begin, and the pattern that confirms a match.

| class | characters |      | class | characters |
|---|---|---|---|---|
| d | 0-9 | | u | A-Z 0-9 |
| h | 0-9 a-f | | w | A-Z a-z 0-9 _ - |
| H | 0-9 A-F a-f | | s | as w, and . |
| a | A-Z a-z 0-9 | | b | A-Z a-z 0-9 + / = |
| l | a-z 0-9 | | B | A-Z 2-7 |
| A | A-Z a-z | | e | A-Z a-z 0-9 % |
| m | M N O | | | |
"""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path
from typing import Final

import msgspec

from perdure.risk.report import Tier

FORMATS: Final = Path(__file__).with_name("formats")

CLASSES: Final = {
    "d": "0-9",
    "h": "0-9a-f",
    "H": "0-9A-Fa-f",
    "a": "A-Za-z0-9",
    "l": "a-z0-9",
    "u": "A-Z0-9",
    "w": "A-Za-z0-9_\\-",
    "s": "A-Za-z0-9_.\\-",
    "b": "A-Za-z0-9+/=",
    "B": "A-Z2-7",
    "A": "A-Za-z",
    "e": "A-Za-z0-9%",
    "m": "MNO",
}
UUID: Final = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
UUID_LENGTH: Final = 36
# An open end is closed here, so that no confirmation reads far.
OPEN_END: Final = 400
PIECE: Final = re.compile(r"\{(uuid)\}|\{([a-zA-Z])(\d+)(?:(\+)|-(\d+))?\}|\[([^\]|]*(?:\|[^\]|]*)+)\]")
# A body that goes on is another thing than the token; a token may follow an escaped line break, or Telegram's `bot`.
BEFORE: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=/bot))"
# A mark without a separator comes up in base64 by chance: there it must not follow base64.
BEFORE_PLAIN: Final = r"(?:(?<![A-Za-z0-9+/])|(?<=\\[nrt]))"
PLAIN_MARK: Final = 4


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One format of the files, with a text that has such a secret and one that has none."""

    format: str
    example: str
    counterexample: str
    names: tuple[str, ...] = ()
    tier: Tier = "precise"


@functools.cache
def load_rules() -> dict[tuple[str, str], Rule]:
    """Every rule, by its kind and name."""
    import tomli

    rules: dict[tuple[str, str], Rule] = {}
    for path in sorted(FORMATS.glob("*.toml")):
        kinds = msgspec.convert(tomli.loads(path.read_text("utf-8")), dict[str, dict[str, Rule]])
        rules |= {(kind, name): rule for kind, named in kinds.items() for name, rule in named.items()}
    return rules


class Field(msgspec.Struct, frozen=True):
    """A run of characters of one class."""

    characters: str
    least: int
    most: int

    @property
    def pattern(self) -> str:
        if self.characters == "uuid":
            return UUID
        return f"[{CLASSES[self.characters]}]{{{self.least},{self.most}}}"


Piece = str | Field


def parse(form: str) -> list[tuple[Piece, ...]]:
    """A format's pieces, once for each combination of its choices."""
    parts: list[tuple[Piece, ...]] = []
    end = 0
    for found in PIECE.finditer(form):
        if found.start() > end:
            parts.append((form[end : found.start()],))
        parts.append(_piece(found))
        end = found.end()
    if end < len(form):
        parts.append((form[end:],))
    return [_merge_literals(pieces) for pieces in itertools.product(*parts)]


def _piece(found: re.Match[str]) -> tuple[Piece, ...]:
    uuid, characters, least, open_end, most, choices = found.groups()
    if uuid:
        return (Field("uuid", UUID_LENGTH, UUID_LENGTH),)
    if choices is not None:
        return tuple(choices.split("|"))
    low = int(least)
    return (Field(characters, low, max(OPEN_END, low) if open_end else int(most or low)),)


def _merge_literals(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Neighbouring literals become one, since a choice is only part of its literal."""
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece != "":
            joined.append(piece)
    return tuple(joined)


def pattern(pieces: tuple[Piece, ...]) -> str:
    """What matches exactly these pieces."""
    return "".join(re.escape(piece) if isinstance(piece, str) else piece.pattern for piece in pieces)


def token_pattern(pieces: tuple[Piece, ...]) -> bytes:
    """The pieces with nothing of theirs before or after: one token, not a part of a longer word. Its groups are
    the fields, which is what is random in it.
    """
    first, last = pieces[0], pieces[-1]
    if isinstance(first, str) and len(first) <= PLAIN_MARK and first.isalnum():
        before = BEFORE_PLAIN
    else:
        before = BEFORE if isinstance(first, Field) or first[0].isalnum() else ""
    after = f"(?![{_class_after(last)}])" if isinstance(last, Field) else ""
    inside = "".join(re.escape(piece) if isinstance(piece, str) else f"({piece.pattern})" for piece in pieces)
    return f"{before}{inside}{after}".encode()


def _class_after(field: Field) -> str:
    if field.characters == "uuid":
        return CLASSES["w"]
    return CLASSES["a"] if field.characters in "hHluBAd" else CLASSES[field.characters]


def longest(pieces: tuple[Piece, ...]) -> int:
    return sum(len(piece) if isinstance(piece, str) else piece.most for piece in pieces)
