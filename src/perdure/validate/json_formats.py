"""JSON, and its relaxed relatives where the file's name says so, by one scanner.

| form | also allowed |
|---|---|
| json | nothing |
| jsonc | comments, trailing commas |
| json5 | the above, single quotes, bare keys, and JavaScript's numbers |
| jsonl | one JSON value per line |

The scanner keeps its own stack, so no depth of nesting can exhaust Python's. It stops at the first error. A key given
twice in one object is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from perdure.validate.report import Lines, Problem, quote_token, warning

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\n\r]+)|(?P<mark>[{}\[\]:,])
    |(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    |(?P<comment>//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)
    |(?P<unclosed>"[^\n]*|'[^\n]*|/\*.*)|(?P<word>[-+.\w$]+)|(?P<other>.)""",
    re.S | re.X,
)
_SCALAR: Final = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_SCALAR5: Final = re.compile(
    r"true|false|null|[-+]?(?:0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|Infinity|NaN)", re.ASCII
)
_STRING: Final = re.compile(
    r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\x00-\x1f]*)*"', re.ASCII
)
_BARE_KEY: Final = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_CLOSERS: Final = {"{": "}", "[": "]"}

_VALUE: Final = "a value"
_FIRST_VALUE: Final = "a value or ']'"
_KEY: Final = "a key"
_FIRST_KEY: Final = "a key or '}'"
_COLON: Final = "':'"
_SEPARATOR: Final = "',' or "
_END: Final = "the end of the file"


def check_json(text: str) -> list[Problem]:
    return _Scanner(text, "json").run()


def check_jsonc(text: str) -> list[Problem]:
    return _Scanner(text, "jsonc").run()


def check_json5(text: str) -> list[Problem]:
    return _Scanner(text, "json5").run()


def check_json_lines(text: str) -> list[Problem]:
    return [
        Problem(number, problem.col, problem.message, problem.severity)
        for number, row in enumerate(text.split("\n"), 1)
        if row.strip()
        for problem in _Scanner(row, "json").run()
    ]


class _Open(NamedTuple):
    """An object or array that is not closed yet; of an object the lines of its keys."""

    mark: str
    offset: int
    keys: dict[str, int]


class _SyntaxError(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem


class _Scanner:
    def __init__(self, text: str, form: str) -> None:
        self.text = text
        self.form = form
        self.lines = Lines(text)
        self.warnings: list[Problem] = []
        self.open: list[_Open] = []
        self.expected = _VALUE

    def run(self) -> list[Problem]:
        try:
            for kind, token, offset in self._tokens():
                self._take(kind, token, offset)
            if self.expected != _END:
                self._unexpected("", len(self.text))
        except _SyntaxError as error:
            return [*self.warnings, error.problem]
        return self.warnings

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        for match in _TOKEN.finditer(self.text):
            kind, token, offset = match.lastgroup or "", match[0], match.start()
            if kind == "space" or (self.form == "json5" and token.isspace()):
                continue
            if kind == "unclosed":
                self._fail(offset, f"{'a comment' if token[0] == '/' else 'a string'} that is not closed")
            if kind != "comment":
                yield kind, token, offset
            elif self.form == "json":
                self._fail(offset, "a comment: JSON has none")

    def _take(self, kind: str, token: str, offset: int) -> None:
        opener = self.open[-1].mark if self.open else ""
        if opener and token == _CLOSERS[opener] and self._may_close(opener):
            self.open.pop()
            self._value_done()
        elif self.expected in (_VALUE, _FIRST_VALUE):
            self._value(kind, token, offset)
        elif self.expected in (_KEY, _FIRST_KEY):
            self._key(kind, token, offset)
        elif token == ":" and self.expected == _COLON:
            self.expected = _VALUE
        elif token == "," and self.expected.startswith(_SEPARATOR):
            self.expected = _KEY if opener == "{" else _VALUE
        else:
            self._unexpected(token, offset)

    def _may_close(self, opener: str) -> bool:
        if self.expected.startswith(_SEPARATOR) or self.expected in (_FIRST_KEY, _FIRST_VALUE):
            return True
        after_comma = _KEY if opener == "{" else _VALUE
        return self.form != "json" and self.expected == after_comma

    def _value(self, kind: str, token: str, offset: int) -> None:
        if token in _CLOSERS:
            self.open.append(_Open(token, offset, {}))
            self.expected = _FIRST_KEY if token == "{" else _FIRST_VALUE
            return
        if kind == "string":
            self._check_string(token, offset)
        elif kind != "word" or not (_SCALAR5 if self.form == "json5" else _SCALAR).fullmatch(token):
            self._unexpected(token, offset)
        self._value_done()

    def _value_done(self) -> None:
        self.expected = f"{_SEPARATOR}'{_CLOSERS[self.open[-1].mark]}'" if self.open else _END

    def _key(self, kind: str, token: str, offset: int) -> None:
        name = token
        if kind == "string":
            self._check_string(token, offset)
            name = token[1:-1]
        elif self.form != "json5" or not _BARE_KEY.fullmatch(token):
            self._unexpected(token, offset)
        keys = self.open[-1].keys
        position = self.lines.position(offset)
        if name in keys:
            label = f" {quote_token(name)}" if name.isidentifier() else ""
            self.warnings.append(warning(*position, f"the key{label} was given already at line {keys[name]}"))
        keys[name] = position.line
        self.expected = _COLON

    def _check_string(self, token: str, offset: int) -> None:
        if self.form == "json5" or _STRING.fullmatch(token):
            return
        if token[0] == "'":
            self._fail(offset, "a string in single quotes: JSON wants double quotes")
        self._fail(offset, "an escape or a control character that JSON does not allow in a string")

    def _unexpected(self, token: str, offset: int) -> NoReturn:
        where = ""
        if self.open:
            line = self.lines.position(self.open[-1].offset).line
            where = f" in the '{self.open[-1].mark}' opened at line {line}"
        self._fail(offset, f"expected {self.expected}{where}, found {quote_token(token)}")

    def _fail(self, offset: int, message: str) -> NoReturn:
        raise _SyntaxError(Problem(*self.lines.position(offset), message))
