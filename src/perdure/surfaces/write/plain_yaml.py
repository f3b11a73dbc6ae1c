"""Front matter in the form in which we write it ourselves, read without a YAML parser, which takes long to load.

Block mappings and sequences, scalars on one line, quoted or of letters that leave no doubt. For everything else the
answer is NotPlain, and the parser has to look; a test holds the two to the same values.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 64 * 1024
MOST_DEPTH = 8
_WORDS = {"true": True, "false": False}
# What begins or is one of these may be a number, a date, a truth or an operator.
_DOUBTFUL = frozenset(
    ["yes", "no", "on", "off", "y", "n", "true", "false", "null", "~", "inf", "nan", "=", "<<"]
)
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    '"': '"',
    "\\": "\\",
    "r": "\r",
    "0": "\0",
    "e": "\x1b",
    "b": "\b",
    "a": "\a",
}


class NotPlain(Exception):
    """Left to the parser."""


def read(text: str) -> dict[str, Any]:
    """The mapping between the two fences."""
    if len(text.encode()) > MOST_BYTES or "\t" in text or "\r" in text or text[-1:] != "\n":
        raise NotPlain
    lines = [(len(line) - len(line.lstrip(" ")), line.lstrip(" ")) for line in text.split("\n")[:-1]]
    if not lines or any(not line or line[0] == "#" for _, line in lines):
        raise NotPlain
    reader = _Reader(lines)
    found = reader.mapping(0, 0)
    if reader.at != len(lines):
        raise NotPlain
    return found


class _Reader:
    """Lines as how far each is indented, and the rest of it."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.lines = lines
        self.at = 0

    def _next(self) -> tuple[int, str]:
        return self.lines[self.at] if self.at < len(self.lines) else (-1, "")

    def mapping(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._next()[0] == indent and not _is_item(self._next()[1]):
            key, colon, rest = self._next()[1].partition(":")
            if not colon or not _is_name(key) or key in found or (rest and rest[0] != " "):
                raise NotPlain
            self.at += 1
            found[key] = scalar(rest[1:]) if rest else self._below(indent, depth)
        if not found:
            raise NotPlain
        return found

    def _below(self, indent: int, depth: int) -> Any:
        """What stands under a key that has nothing beside it."""
        if depth > MOST_DEPTH:
            raise NotPlain
        deeper, text = self._next()
        if deeper >= indent and _is_item(text):
            return self.sequence(deeper, depth + 1)
        if deeper > indent:
            return self.mapping(deeper, depth + 1)
        return None

    def sequence(self, indent: int, depth: int) -> list[Any]:
        found: list[Any] = []
        while self._next()[0] == indent and _is_item(self._next()[1]):
            rest = self._next()[1][2:]
            if not rest:
                self.at += 1
                if self._next()[0] > indent:
                    raise NotPlain
                found.append(None)
            elif _is_entry(rest):
                # The first key of a mapping stands beside the dash; the others below it.
                self.lines[self.at] = (indent + 2, rest)
                found.append(self.mapping(indent + 2, depth + 1))
            elif rest[0] == " " or _is_item(rest):
                raise NotPlain
            else:
                self.at += 1
                found.append(scalar(rest))
        return found


def _is_item(text: str) -> bool:
    return text.startswith("- ") or text == "-"


def _is_entry(text: str) -> bool:
    key, colon, rest = text.partition(":")
    return bool(colon) and _is_name(key) and (not rest or rest[0] == " ")


def _is_name(text: str) -> bool:
    return text.isascii() and text.replace("_", "a").isalnum() and text[0].isalpha() and text not in _DOUBTFUL


def scalar(text: str) -> Any:
    if text in ("[]", "{}"):
        return [] if text == "[]" else {}
    if text[:1] == "'":
        return _single(text)
    if text[:1] == '"':
        return _double(text)
    if text in _WORDS:
        return _WORDS[text]
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and len(digits) < 18:
        return int(text)
    if not _is_text(text):
        raise NotPlain
    return text


def _is_text(text: str) -> bool:
    """Whether it can only be a text: it begins with a letter, is no word with a meaning, and hides no mark."""
    if not text or not text[0].isalpha() or not text.isprintable() or text != text.strip():
        return False
    return text.lower() not in _DOUBTFUL and ": " not in text and " #" not in text and text[-1] != ":"


def _single(text: str) -> str:
    inner = text[1:-1].replace("''", "\0")
    if len(text) < 2 or text[-1] != "'" or "'" in inner or not inner.replace("\0", "").isprintable():
        raise NotPlain
    return inner.replace("\0", "'")


def _double(text: str) -> str:
    if len(text) < 2 or text[-1] != '"' or not text.isprintable():
        raise NotPlain
    parts = []
    letters = iter(text[1:-1])
    for letter in letters:
        if letter == '"':
            raise NotPlain
        if letter == "\\":
            letter = _ESCAPES.get(next(letters, ""), "")
            if not letter:
                raise NotPlain
        parts.append(letter)
    return "".join(parts)
