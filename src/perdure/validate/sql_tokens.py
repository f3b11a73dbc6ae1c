"""SQL cut into tokens, whatever the dialect: strings, quoted names, dollar quotes, comments, client commands.

A backslash in a string is an escape in some dialects and a character in others. Whichever reading leaves no
string open is taken for the file.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_BODY: Final = r"""
    (?P<hash>(?:^|(?<=\n))[ \t]*\#[^\n>\-=][^\n]*|(?<=[;,(])[ \t]*\#[ \t][^\n]*)
    |(?P<comment>--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
    |(?P<client>(?:^|(?<=\n))[ \t]*(?:\\(?!g(?:set|exec|x|desc)?\b)[^\n]*|DELIMITER[ \t]+[^\n]*)
        |(?:^|(?<=\n))\.(?:%s)\b(?:[^\n<]*<<(?P<here>\w+)[^\n]*\n.{0,4000}?(?<=\n)(?P=here)(?!\w)|[^\n]*)
        |(?:^|(?<=\n))[ \t]*(?:(?:REM|REMARK|PROMPT|SPOOL|ACCEPT|WHENEVER|UNDEFINE|TTITLE|PAUSE)(?:[ \t][^\n]*)?(?=\n|$)
            |CONN(?:ECT)?[ \t]+(?!BY\b)[^\n;]*(?=\n|$)|@@?[\w./$&-]+\.sql\b[^\n]*))
    |(?P<sent>\\(?:;|(?:g|gset|gexec|gx|gdesc|watch|crosstabview|bind|parse)\b[^\n;]*))
    |(?P<space>\n|[^\S\n]+)
    |(?P<dollar>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<string>%s|(?<!\w)N?Q'(?:\[.*?\]|\{.*?\}|\(.*?\)|<.*?>|(?P<q>[!|^~\#%%/]).*?(?P=q))'|"(?:[^"]|"")*"|`[^`]*`)
    |(?P<open>/\*|\$\w*\$|['"`])
    |(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w))|(?P<word>[@\#:$]?[^\W\d][\w$\#]*|[@$:]\w+|\d\w*)
    |(?P<mark>[(){}\[\],;])|(?P<operator>[-+*/<>=~!@\#%%^&|?:.]+)|(?P<other>.)"""
_PLAIN: Final = r"""(?:[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|'(?:[^']|'')*')"""
_ESCAPED: Final = r"""[eE]?'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'"""
# What the shell of SQLite takes for itself.
_SHELL: Final = (
    "archive|auth|backup|bail|binary|cd|changes|check|clone|connection|databases|dbconfig|dbinfo|dump|echo|eqp|excel"
    "|exit|expert|explain|filectrl|fullschema|headers?|help|import|indexes|indices|limit|lint|load|log|mode|nonce"
    "|nullvalue|once|open|output|parameter|print|progress|prompt|quit|read|recover|restore|save|scanstats|schema"
    "|separator|session|sha3sum|shell|show|stats|system|tables?|testcase|timeout|timer|trace|version|vfs\\w+|width"
)
_READINGS: Final = tuple(
    re.compile(_BODY % (_SHELL, body), re.S | re.X | re.I) for body in (_PLAIN, _ESCAPED)
)
_COPY: Final = re.compile(
    r"(?P<head>\bcopy\b[^;]*\bfrom\s+stdin\b[^;]*;)[^\n]*\n.*?^\\\.", re.S | re.I | re.M
)
_DELIMITED: Final = re.compile(
    r"(?P<head>^[ \t]*DELIMITER[ \t]+(?P<mark>(?!;)\S+)[^\n]*\n)(?P<body>.*?)(?=^[ \t]*DELIMITER\b|\Z)",
    re.S | re.I | re.M,
)
_SKIPPED: Final = ("space", "comment", "hash", "client")


class Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The word in capitals, or "" if it is none; punctuation is itself."""
        return (
            self.text.upper()
            if self.kind == "word"
            else self.text
            if self.kind in ("mark", "operator")
            else ""
        )


def tokens(text: str) -> tuple[list[Token], Token | None]:
    """The tokens, and the quote or comment that is left open, if any."""
    text = _DELIMITED.sub(_with_ends, _COPY.sub(_without_rows, text))
    first: tuple[list[Token], Token | None] | None = None
    for reading in _READINGS:
        found, left = _read(reading, text)
        if left is None:
            return found, None
        first = first or (found, left)
    assert first is not None
    return first


def _with_ends(match: re.Match[str]) -> str:
    """What another mark ends between two DELIMITER lines, ended by ';'."""
    mark = match["mark"]
    return match["head"] + match["body"].replace(mark, ";".ljust(len(mark)))


def _without_rows(match: re.Match[str]) -> str:
    head = match["head"]
    return head + re.sub(r"[^\n]", " ", match[0][len(head) :])


def _read(reading: re.Pattern[str], text: str) -> tuple[list[Token], Token | None]:
    found: list[Token] = []
    for match in reading.finditer(text):
        kind = match.lastgroup or ""
        kind = "string" if kind in ("dollar", "tag", "q") else kind
        if kind == "open":
            return found, Token(kind, match[0], match.start())
        if kind == "sent":
            found.append(Token("mark", ";", match.start()))
        elif kind not in _SKIPPED:
            found.append(Token(kind, match[0], match.start()))
    return found, None
