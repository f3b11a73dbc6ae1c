"""SQL by rules that hold in every dialect, since no one grammar fits the files that people have.

What is reported is wrong everywhere: quotes and brackets that do not close, an operator or a comma before
nothing, clauses without content, and statements that run into each other. What only one dialect would
refuse is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from perdure.validate.balance import unbalanced
from perdure.validate.layout import Lines
from perdure.validate.report import Problem, Unsure, shown
from perdure.validate.spelling import one_slip
from perdure.validate.sql_tokens import Token, tokens
from perdure.validate.sql_words import (
    AFTER_COMMA,
    CLAUSES,
    COMPARISONS,
    ENDS_CLAUSE,
    NEEDS_OPERAND,
    NEW_STATEMENT,
    NO_NAMES,
    NOT_COLUMNS,
    OPERATORS,
    STARTERS,
    TYPES,
    WHOLE,
    WORDS_LIKE,
)

# Where the body of a function seems to end.
_BODY_ENDS: Final = re.compile(r"^(?=[ \t]*LANGUAGE\b)|^END(?:\s+\w+)?[ \t]*;?[ \t]*$", re.M | re.I)
_TEMPLATE: Final = re.compile(r"\{\{|\{%|<%|\$\{")
_SERVER: Final = re.compile(r"^\s*GO\s*$|\bdbo\b|\bDECLARE\s+@|^\s*/\s*$", re.M | re.I)


def check_sql(text: str) -> list[Problem]:
    found = _Reader(text.removeprefix("\ufeff")).run()
    if found and _TEMPLATE.search(text):
        raise Unsure("looks like a template: only its output can be checked")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.tokens, self.left_open = tokens(text)
        self.found: list[Problem] = []
        # Some tools take one statement a line, without an end.
        self.has_ends = any(token.text == ";" for token in self.tokens)
        self.is_server = _SERVER.search(text) is not None

    def run(self) -> list[Problem]:
        runaway = self._runaway_string()
        if runaway is not None:
            return [self._at(runaway, "a quote opened here runs on into later lines")]
        if self.left_open is not None:
            found = [self._at(self.left_open, f"{self._named(self.left_open)} opened here is never closed")]
            end = _BODY_ENDS.search(self.text, self.left_open.at) if self.left_open.text[0] == "$" else None
            if end is not None:
                place = self.lines.place(end.end())
                found.append(Problem(*place, f"'{self.left_open.text}' may be missing here"))
            return found
        for statement in self._statements():
            marks = [(t.text, t.at) for t in statement if t.kind == "mark" and t.text in "()"]
            self.found += unbalanced(marks, self.lines)
        self.found += [
            self._at(token, "a mark of a merge conflict")
            for token in self.tokens
            if token.text in ("<<<<<<<", ">>>>>>>") and self._is_first(token)
        ]
        if not self.found:
            for statement in self._statements():
                self._statement(statement)
        return self.found

    def _named(self, token: Token) -> str:
        return "a comment" if token.text == "/*" else "a quote"

    def _runaway_string(self) -> Token | None:
        """A string over lines that ends where another was meant to start: a word stands right behind it."""
        for token, after in zip(self.tokens, [*self.tokens[1:], self.left_open], strict=False):
            if (
                token.kind != "string"
                or token.text[0] not in "'\""
                or "\n" not in token.text
                or after is None
            ):
                continue
            adjacent = after.at == token.at + len(token.text)
            if (
                adjacent
                and after.kind in ("word", "number", "other", "open")
                and re.search(r"[,;)]\s*\n", token.text)
            ):
                return token
        if self.left_open is not None and self.left_open.text in "'\"":
            return self._first_runaway()
        return None

    def _first_runaway(self) -> Token | None:
        for token in self.tokens:
            if token.kind == "string" and token.text[0] in "'\"" and re.search(r"[,;)]\s*\n", token.text):
                return token
        return None

    def _statements(self) -> Iterator[list[Token]]:
        statement: list[Token] = []
        depth = 0
        for token in self.tokens:
            statement.append(token)
            depth += (token.text == "(") - (token.text == ")")
            # A rule holds statements in brackets; elsewhere a ';' in brackets says that one was not closed.
            if token.text == ";" and not (depth > 0 and "RULE" in [t.word for t in statement[1:4]]):
                yield statement
                statement = []
                depth = 0
        if statement:
            yield statement

    def _statement(self, statement: list[Token]) -> None:
        words = [token.word for token in statement]
        self._misspelt(statement, words)
        if {"OPERATOR", "AGGREGATE"} & set(words) or "OPCLASS" in words or words[0] in ("COPY", "DELIMITER"):
            return
        before = len(self.found)
        for index in range(len(statement)):
            self._pair(statement, words, index)
        if len(self.found) == before:
            self._runs_on(statement, words)
            self._columns(statement, words)
            self._whole(statement, words)

    def _misspelt(self, statement: list[Token], words: list[str]) -> None:
        if (
            words[0]
            and statement[0].kind == "word"
            and words[0] not in {*STARTERS, *WORDS_LIKE}
            and len(words) > 2
        ):
            meant = next((known for known in STARTERS if one_slip(words[0], known)), None)
            if meant:
                self.found.append(
                    self._at(statement[0], f"found {shown(statement[0].text)}, expected {meant}")
                )
        for index, token in enumerate(statement[1:-1], 1):
            if token.kind != "word" or not token.text.isupper() or not statement[0].text.isupper():
                continue
            if token.text in WORDS_LIKE:
                continue
            follows = statement[index - 1].kind in ("word", "number") or statement[index - 1].text in (
                ")",
                "*",
            )
            leads = statement[index + 1].kind in ("word", "string") or statement[index + 1].text == "("
            meant = next((known for known in CLAUSES if one_slip(token.text, known)), None)
            if meant and meant not in words and follows and leads and statement[index - 1].word != "AS":
                self.found.append(self._at(token, f"found {shown(token.text)}, expected {meant}"))

    def _pair(self, statement: list[Token], words: list[str], index: int) -> None:
        token, word = statement[index], words[index]
        following = words[index + 1] if index + 1 < len(words) else ""
        before = words[index - 1] if index else ""
        last = index + 1 == len(words)
        ends = last or (following in ENDS_CLAUSE and (following != "" or last))
        # A column may be called `values`.
        is_column = following == "VALUES" and words[0] in ("CREATE", "ALTER")
        # SQL Server lets the list of a table end with one.
        is_column |= following == ")" and words[0] == "CREATE" and self.is_server
        if word == "," and following in AFTER_COMMA and (following or last) and not is_column:
            self._expected(token, "something after ','", statement, index)
        elif token.kind == "operator" and word in OPERATORS and ends and before not in ("WITH", "(", ",", ""):
            generic = word == ">" and any(earlier.startswith("<") for earlier in words[:index])
            if not generic and not (word == "/" and last):
                self._expected(token, f"a value after '{word}'", statement, index)
        elif (
            word in NEEDS_OPERAND
            and token.kind == "word"
            and ends
            and following not in ("FROM", ",", "GROUP")
            and (word, following) != ("SELECT", "WHERE")
        ):
            if before not in (".", "AS", "(", ",") and not (word == "SET" and following != "WHERE"):
                self._expected(token, f"something after {word}", statement, index)
        elif (word == "JOIN" and following == "ON" and token.kind == "word") or (
            word in ("AND", "OR", "WHERE") and words[index + 1 : index + 3] == ["GROUP", "BY"]
        ):
            self._expected(token, f"something after {word}", statement, index)
        elif (
            word == "VALUES"
            and words[0] == "INSERT"
            and index + 1 < len(statement)
            and statement[index + 1].kind in ("number", "string")
        ):
            self._expected(token, "'(' after VALUES", statement, index)
        elif token.kind == "operator" and {word, following} <= COMPARISONS and word != ">":
            self._expected(token, f"a value after '{word}'", statement, index)
        elif word == "SET" and words[0] == "UPDATE" and self._is_valueless(statement, index):
            self._expected(statement[index + 1], "'=' after the column", statement, index + 1)
        elif self._touching(statement, index):
            self._expected(token, "',' or an operator", statement, index)

    def _is_valueless(self, statement: list[Token], index: int) -> bool:
        """A column and its new value with nothing between."""
        after = statement[index + 1 : index + 3]
        return len(after) == 2 and after[0].kind == "word" and after[1].kind in ("string", "number")

    def _touching(self, statement: list[Token], index: int) -> bool:
        """Two values with nothing between, as no dialect has them."""
        near = [t.text for t in statement[max(0, index - 1) : index + 3]]
        if (
            len(near) == 4
            and near[0] == near[3] == "."
            and statement[index].kind == statement[index + 1].kind == "word"
        ):
            return True
        if (
            near[1:3] == [")", "("]
            and statement[0].word == "INSERT"
            and "VALUES" in {t.word for t in statement[:index]}
        ):
            return True
        pair = [t.kind for t in statement[index : index + 2]]
        if pair not in (["number", "number"], ["number", "string"], ["string", "number"]):
            return False
        return statement[index - 1].text in ("(", ",", "=") if index else False

    def _expected(self, token: Token, what: str, statement: list[Token], index: int) -> None:
        after = shown(statement[index + 1].text) if index + 1 < len(statement) else "the end of the file"
        place = self.lines.place(token.at + len(token.text) - 1)
        self.found.append(Problem(*place, f"expected {what}, found {after}"))

    def _runs_on(self, statement: list[Token], words: list[str]) -> None:
        """A new statement on a line of its own, without ';' before it."""
        if words[0] not in {*WHOLE, "WITH"} or self.is_server or "BEGIN" in words or not self.has_ends:
            return
        depth = 0
        for index in range(1, len(statement) - 1):
            depth += {"(": 1, ")": -1}.get(words[index], 0)
            starts = NEW_STATEMENT.get(words[index]) == words[index + 1] or (
                words[index] == "SELECT" and words[0] != "INSERT" and "SELECT" in words[:index]
            )
            if words[0] == "WITH":
                starts = words[index] in ("CREATE", "ALTER", "DROP") and words[index + 1] == "TABLE"
            previous = statement[index - 1]
            operand = previous.kind in ("number", "string") or previous.text == ")" or _is_name(previous)
            joined = {"UNION", "INTERSECT", "EXCEPT", "MINUS"} & set(words[max(0, index - 4) : index])
            if depth == 0 and starts and operand and not joined and self._is_first(statement[index]):
                place = self.lines.place(previous.at + len(previous.text))
                self.found.append(Problem(*place, f"expected ';' before {words[index]}"))
                return

    def _columns(self, statement: list[Token], words: list[str]) -> None:
        """A column that starts on a new line after one without ','."""
        if words[0] != "CREATE" or "TABLE" not in words[:5] or "(" not in words or "FUNCTION" in words[:5]:
            return
        depth = 0
        for index in range(1, len(statement) - 1):
            depth += {"(": 1, ")": -1}.get(words[index], 0)
            name, previous = statement[index], statement[index - 1]
            if (
                depth != 1
                or words[index + 1] not in TYPES
                or previous.text in (",", "(")
                or not self._is_first(name)
            ):
                continue
            if name.kind in ("word", "string") and name.word not in NOT_COLUMNS and name.word not in TYPES:
                place = self.lines.place(previous.at + len(previous.text))
                self.found.append(Problem(*place, "expected ',' before the next column"))

    def _whole(self, statement: list[Token], words: list[str]) -> None:
        if words[0] == "UPDATE" and "SET" not in words and len(words) > 4 and "=" in words:
            self.found.append(self._at(statement[1], "expected SET in this UPDATE"))
        if words[0] in {*WHOLE, "WITH"} and words.count("CASE") > words.count("END") and "BEGIN" not in words:
            token = statement[len(words) - 1 - words[::-1].index("CASE")]
            self.found.append(self._at(token, "a CASE without END"))
        queries = words[0] in ("SELECT", "WITH") or words[:2] == ["CREATE", "VIEW"]
        for index, word in enumerate(words[1:-1], 1):
            if word in ("ORDER", "GROUP") and statement[index - 1].kind != "mark" and queries:
                following = statement[index + 1]
                if (
                    _is_name(following)
                    and following.word not in ("BY", "SIBLINGS")
                    and self._is_first(statement[index])
                ):
                    self.found.append(self._at(following, f"expected BY after {word}"))

    def _is_first(self, token: Token) -> bool:
        return self.lines.first_on_line(self.lines.place(token.at))

    def _at(self, token: Token, message: str) -> Problem:
        return Problem(*self.lines.place(token.at), message)


def _is_name(token: Token) -> bool:
    return token.kind == "word" and token.word not in NO_NAMES
