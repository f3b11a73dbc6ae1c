"""What a C or C++ source says of its own macros, and which other words look like one."""

from __future__ import annotations

import re
from typing import Final

_MACRO: Final = re.compile(
    r"_*[A-Z][A-Z0-9_]+|__\w+|[A-Z]\w*_[A-Z]\w*|[a-z]+_[A-Z][A-Z_]+|[a-z]{1,4}[A-Z]+_[A-Z0-9_]+|(?:PRI|SCN)[a-zA-Z]+\d*|_[A-Z]\w*|\w*fall_?through\w*|\w*(?:noreturn|_inline|_export|_public|_deprecated|_unused)"
)
_DEFINE: Final = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(?)((?:[^\n\\]|\\.|\\\n)*)", re.M)
_VALUE: Final = re.compile(r"[ \t]+[-+(\"'\w]")
# What is put before a declaration is no value.
_PREFIX: Final = re.compile(r"[ \t]+(?:__\w+|static|extern|inline|const|volatile|register|_\w+)\b")
_QUOTED: Final = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+'")
_STANDARD: Final = frozenset(
    (
        "NULL",
        "EOF",
        "FILE",
        "TRUE",
        "FALSE",
        "EXIT_SUCCESS",
        "EXIT_FAILURE",
        "INT_MAX",
        "INT_MIN",
        "UINT_MAX",
        "SIZE_MAX",
    )
)


class Macros:
    """`has_brackets` if one is defined with a bracket that it does not close, or closes one that it did not open."""

    def __init__(self, text: str) -> None:
        values: set[str] = set()
        others: set[str] = set()
        self.has_brackets = False
        for name, opened, body in _DEFINE.findall(text):
            is_value = not opened and _VALUE.match(body) and not _PREFIX.match(body)
            (values if is_value else others).add(name)
            plain = _QUOTED.sub("", opened + body)
            self.has_brackets |= any(plain.count(a) != plain.count(b) for a, b in ("()", "[]", "{}"))
        self._defined = others
        # Names that stand for a value or a type: the library's, and those defined here without arguments.
        self._values = _STANDARD | (values - others)

    def has(self, word: str) -> bool:
        return word in self._defined or (word not in self._values and _MACRO.fullmatch(word) is not None)
