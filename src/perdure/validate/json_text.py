"""JSON, exactly, and its relaxed relatives where the file's name says so.

| form | also allowed |
|---|---|
| json | nothing (a byte-order mark is a warning) |
| jsonc | comments, trailing commas |
| json5 | the above, single quotes, bare keys, and JavaScript's numbers |
| jsonl | one JSON value per line |

The standard decoder accepts a text quickly. Only if it does not, or if a key is given twice, the scanner here looks for
the positions; it keeps its own stack, so no depth of nesting can exhaust Python's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Literal

from perdure.validate.lines import Lines
from perdure.validate.report import Problem, quote_token, warning

Form = Literal["json", "jsonc", "json5"]
Token = tuple[str, str, int]

_BOM = "\ufeff"
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\n\r]+)|(?P<blank>\s+)|(?P<mark>[{}\[\]:,])
    |(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    |(?P<comment>//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)
    |(?P<loose>"[^\n]*|'[^\n]*|/\*.*)|(?P<word>[-+.\w$]+)|(?P<other>.)""",
    re.S | re.X,
)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_NUMBER5: Final = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|Infinity|NaN)", re.ASCII
)
_BARE_KEY: Final = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_BAD_ESCAPE: Final = re.compile(r"\\(?![\"\\/bfnrt]|u[0-9a-fA-F]{4})|[\x00-\x1f]")
_ESCAPE: Final = re.compile(r"\\.", re.S)
_CLOSERS: Final = {"{": "}", "[": "]"}


class _RepeatedKey(Exception):
    pass


def check_json(text: str) -> list[Problem]:
    problems: list[Problem] = []
    if text.startswith(_BOM):
        text = text[1:]
        problems.append(warning(1, 1, "a byte-order mark is before the JSON"))
    if not _is_plain(text):
        problems += _Scanner(text, "json").run()
    return problems


def check_jsonc(text: str) -> list[Problem]:
    return _Scanner(text.removeprefix(_BOM), "jsonc").run()


def check_json5(text: str) -> list[Problem]:
    return _Scanner(text.removeprefix(_BOM), "json5").run()


def check_json_lines(text: str) -> list[Problem]:
    problems: list[Problem] = []
    for number, row in enumerate(text.removeprefix(_BOM).split("\n"), 1):
        if row.strip() and not _is_plain(row):
            problems += [Problem(number, p.col, p.message, p.severity) for p in _Scanner(row, "json").run()]
    return problems


def _is_plain(text: str) -> bool:
    """Whether the standard decoder takes it, without a repeated key."""
    try:
        json.loads(
            text,
            object_pairs_hook=_no_repeats,
            parse_int=_nothing,
            parse_float=_nothing,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError, _RepeatedKey):
        return False
    return True


def _no_repeats(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _RepeatedKey


def _nothing(_: str) -> None:
    return None


def _refuse(word: str) -> None:
    raise ValueError(word)


class _Wrong(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class _Scanner:
    """Reads a text with a stack of its own: up to the first error, with every repeated key on the way."""

    def __init__(self, text: str, form: Form) -> None:
        self.text = text
        self.form = form
        self.lines = Lines(text)
        self.problems: list[Problem] = []
        self.open: list[tuple[str, int, dict[str, int]]] = []
        self.expected = "a value"

    def run(self) -> list[Problem]:
        try:
            for token in self._tokens():
                self._take(token)
            if self.open or self.expected != "the end of the file":
                self._wrong(("end", "", len(self.text)))
        except _Wrong as wrong:
            self.problems.append(wrong.problem)
        return self.problems

    def _tokens(self) -> Iterator[Token]:
        skipped = {"json": ("space",), "jsonc": ("space", "comment"), "json5": ("space", "blank", "comment")}
        for match in _TOKEN.finditer(self.text):
            kind = match.lastgroup or ""
            if kind not in skipped[self.form]:
                yield kind, match[0], match.start()

    def _take(self, token: Token) -> None:
        kind, text, _ = token
        if kind in ("other", "loose", "comment", "blank"):
            self._wrong_token(token)
        match self.expected:
            case "a value":
                self._value(token)
            case "a value or ']'":
                self._close("]") if text == "]" else self._value(token)
            case "a key" | "a key or '}'":
                trailing = self.expected == "a key" and self.form != "json"
                if text == "}" and (trailing or self.expected != "a key"):
                    self._close("}")
                else:
                    self._key(token)
            case "':'":
                if text != ":":
                    self._wrong(token)
                self.expected = "a value"
            case "the end of the file":
                self._wrong(token)
            case _:
                self._after_value(token)

    def _value(self, token: Token) -> None:
        kind, text, offset = token
        if text in ("{", "["):
            self.open.append((text, offset, {}))
            self.expected = "a key or '}'" if text == "{" else "a value or ']'"
            return
        if text == "]" and self.form != "json" and self.open and self.open[-1][0] == "[":
            self._close("]")
            return
        if kind == "string":
            self._string(token)
        elif kind != "word" or not self._is_scalar(text):
            self._wrong(token)
        self._value_done()

    def _is_scalar(self, word: str) -> bool:
        if word in ("true", "false", "null"):
            return True
        return (_NUMBER5 if self.form == "json5" else _NUMBER).fullmatch(word) is not None

    def _string(self, token: Token) -> None:
        _, text, offset = token
        if text[0] == "'" and self.form != "json5":
            self._fail(offset, "a string in single quotes: JSON wants double quotes")
        bad = None if self.form == "json5" else _BAD_ESCAPE.search(_ESCAPE.sub(_keep_if_bad, text))
        if bad:
            what = "a control character" if bad[0] < " " else "an escape that JSON does not have"
            self._fail(offset, f"{what} in a string")

    def _key(self, token: Token) -> None:
        kind, text, offset = token
        if kind == "string":
            self._string(token)
        elif not (self.form == "json5" and _BARE_KEY.fullmatch(text)):
            self._wrong(token)
        name = text[1:-1] if kind == "string" else text
        seen = self.open[-1][2]
        position = self.lines.position(offset)
        if name in seen:
            label = f" {quote_token(name)}" if name.isidentifier() else ""
            self.problems.append(warning(*position, f"the key{label} was given already at line {seen[name]}"))
        seen[name] = position.line
        self.expected = "':'"

    def _after_value(self, token: Token) -> None:
        opener = self.open[-1][0]
        if token[1] == ",":
            self.expected = "a key" if opener == "{" else "a value"
        elif token[1] == _CLOSERS[opener]:
            self._close(token[1])
        else:
            self._wrong(token)

    def _close(self, mark: str) -> None:
        if not self.open or _CLOSERS[self.open[-1][0]] != mark:
            self._wrong(("mark", mark, len(self.text)))
        self.open.pop()
        self._value_done()

    def _value_done(self) -> None:
        self.expected = f"',' or '{_CLOSERS[self.open[-1][0]]}'" if self.open else "the end of the file"

    def _wrong_token(self, token: Token) -> None:
        kind, text, offset = token
        if kind == "comment":
            self._fail(offset, "a comment: JSON has none")
        if kind == "loose":
            self._fail(offset, f"{'a comment' if text[0] == '/' else 'a string'} that is not closed")
        self._wrong(token)

    def _wrong(self, token: Token) -> None:
        where = ""
        if self.open:
            mark, opened, _ = self.open[-1]
            where = f" in the '{mark}' opened at line {self.lines.position(opened).line}"
        self._fail(token[2], f"expected {self.expected}{where}, found {quote_token(token[1])}")

    def _fail(self, offset: int, message: str) -> None:
        raise _Wrong(Problem(*self.lines.position(offset), message))


def _keep_if_bad(escape: re.Match[str]) -> str:
    """Good pairs vanish, so that the second half of one is not taken for the start of another."""
    return "" if escape[0][1] in '"\\/bfnrt' else escape[0]
