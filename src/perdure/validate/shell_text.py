"""Shell scripts: bash itself says whether one is right, without running any of it; tree-sitter says where.

`bash -n` reads commands and executes none. It gets no environment and no files, so nothing is read or run on
its start either. Where there is no bash, tree-sitter's word stands. At an open block or quote bash names only
the end of the file; the block is then found by matching the words that open and close one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Final

from perdure.validate.code_text import explained
from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem, Unsure, shown
from perdure.validate.shell_words import unmatched
from perdure.validate.sources import Source
from perdure.validate.spelling import one_slip
from perdure.validate.trees import first_stop, parse

SECONDS: Final = 4
_SAID: Final = re.compile(rb"line (\d+): (.*)")
_OTHER_SHELL: Final = re.compile(r"#!.*\b(?:zsh|fish|csh|tcsh|ksh|elvish|nu|xonsh)\b")
_SHEBANG: Final = re.compile(r"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-S[ \t]+)?)?(?:\S*/)?(\w[\w.-]*)")
_CHECKED: Final = {"sh", "bash", "dash", "ash", "busybox", "rbash"}
_ZSH: Final = re.compile(
    r"\}\s*always\s*\{|\$\{\(\w|^\s*(?:setopt|zmodload|autoload\s+-|compdef|zstyle|zle|emulate\s+-L)\b"
    r"|^\s*for\s+\w+\s+\(|\bprint\s+-[PrnRl]",
    re.M,
)
_TEMPLATE: Final = re.compile(r"<%=? [^\n]* -?%>|^[ \t]*(?:<%|\{%)", re.M)
_TOKEN: Final = re.compile(rb"near unexpected token `(.{1,40}?)'")
_HERE: Final = re.compile(rb"here-document at line (\d+) delimited by end-of-file")
_QUOTE: Final = re.compile(rb"looking for matching `(.)'")


def check_shell(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    if _OTHER_SHELL.match(text):
        raise Unsure("not checked: a script for another shell")
    found = _found(text)
    if found and _is_for_others(text):
        raise Unsure("not checked: looks like a script for another shell")
    if found and _TEMPLATE.search(text):
        raise Unsure("looks like a template: only its output can be checked")
    return found


def _is_for_others(text: str) -> bool:
    shebang = _SHEBANG.match(text)
    return (shebang is not None and shebang[1] not in _CHECKED) or _ZSH.search(text) is not None


def _found(text: str) -> list[Problem]:
    bash = shutil.which("bash", path="/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin")
    if bash is None:
        return _by_tree(text)
    try:
        verdict = _ask(bash, text)
    except _Crashed:
        return _by_tree(text)
    return _placed(verdict, text) if verdict is not None else []


class _Crashed(Exception):
    """Bash did not get through the script: it recurses, and some thousands of substitutions in each other end it."""


def _ask(bash: str, text: str) -> bytes | None:
    """What bash says against the script, or None if nothing."""
    try:
        run = subprocess.run(
            [bash, "--norc", "--noprofile", "-O", "extglob", "-n", "/dev/stdin"],
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"LC_ALL": "C.UTF-8", "PATH": ""},
            cwd="/",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unsure("validation took too long") from None
    if run.returncode < 0:
        raise _Crashed
    # A wrong condition ends the reading, and a here-document may end with the file; neither shows in the exit code.
    if run.returncode == 0 and b"syntax error" not in run.stderr and not _HERE.search(run.stderr):
        return None
    return run.stderr


def _placed(verdict: bytes, text: str) -> list[Problem]:
    lines = Lines(text)
    here = _HERE.search(verdict)
    if here is not None:
        line = min(int(here[1]), len(lines.rows))
        begun = Problem(*_of_token("<<", line, lines), "the here-document begun here is never ended")
        return [begun, *_almost_ended(line, lines)]
    first = _SAID.search(verdict)
    if first is None:
        raise Unsure("the parser failed on this content")
    line = min(int(first[1]), len(lines.rows))
    opened = _open_parenthesis(line, lines)
    if opened is not None:
        return [Problem(*opened, "a '(' on this line has no ')'")]
    brace = _open_brace(line, lines)
    if brace is not None:
        return [Problem(*brace, "a '${' on this line has no '}'")]
    quote = _QUOTE.search(verdict)
    if quote is not None and quote[1] in b"\"'`":
        return _open_quote(line, quote[1].decode("ascii"), lines)
    blocks = unmatched(text, lines)
    if blocks and blocks[0].line <= line:
        return blocks
    token = _TOKEN.search(verdict)
    if token is None:
        return blocks or _by_tree(text) or [Problem(*lines.end(), "the file ends inside a block or a quote")]
    odd = _odd_quote(line, '"', lines)
    if odd is not None and line - odd.line < 15:
        return [Problem(*odd, "a quote on this line has no partner")]
    word = token[1].decode("utf-8", "replace")
    return [Problem(*_of_token(word, line, lines), f"found {shown(word)}, which cannot stand here")]


def _of_token(token: str, line: int, lines: Lines) -> Place:
    at = lines.row(line).find(token)
    return Place(line, (at if at >= 0 else lines.lead(line)) + 1)


def _open_quote(line: int, mark: str, lines: Lines) -> list[Problem]:
    """Bash names the last quote that it could not close; an earlier line may be the one with an odd count."""
    odd = _odd_quote(line, mark, lines)
    if odd is not None:
        return [Problem(*odd, f"a {mark} on this line has no partner")]
    return [Problem(*_of_token(mark, line, lines), f"a {mark} opened here is never closed")]


def _almost_ended(begun: int, lines: Lines) -> list[Problem]:
    """A later line that is the end of a here-document but for one slip, or for its indentation."""
    named = re.search(r"<<-?\s*[\"'\\]?(\w+)", lines.row(begun))
    for line in range(begun + 1, len(lines.rows) + 1):
        row = lines.row(line).strip()
        if named and (row[:-1] == named[1] or row == named[1] or one_slip(row, named[1])):
            return [Problem(line, 1, f"this does not end the here-document of line {begun}")]
    return []


def _open_brace(last: int, lines: Lines) -> Place | None:
    """A parameter whose closing quote comes before its brace."""
    for number in range(1, last + 1):
        match = re.search(r"\$\{[\w\[\]@*#!]+\"(?!.{0,200}\})", lines.row(number))
        if match:
            return Place(number, match.start() + 1)
    return None


def _open_parenthesis(last: int, lines: Lines) -> Place | None:
    """A substitution whose line ends with its closing quote, or a list of values that nothing closes."""
    for number in range(1, last + 1):
        row = lines.row(number)
        if row.count("$(") > row.count(")") and row.rstrip().endswith('"') and not _is_odd(row, '"'):
            return Place(number, row.index("$(") + 1)
        values = re.match(r"\s*[\w]+\+?=\((?![^()]*\))(?=.)[^()$`]*$", row)
        if values and not any(
            ")" in lines.row(later) for later in range(number + 1, last + 1) if later < last
        ):
            return Place(number, row.index("(") + 1)
    return _open_substitution(last, lines)


def _open_substitution(last: int, lines: Lines) -> Place | None:
    """An assignment of a substitution that no later line closes."""
    for number in range(last, 0, -1):
        row = lines.row(number)
        if row.count(")") > row.count("("):
            return None
        if re.match(r"\s*(?:local\s+)?\w+=\"?\$\(", row) and row.count("(") > row.count(")"):
            return Place(number, row.index("$(") + 1)
    return None


def _odd_quote(last: int, mark: str, lines: Lines) -> Place | None:
    """The first line up to `last` with a quote that is closed neither on it nor soon after."""
    for number in range(1, last + 1):
        row = lines.row(number)
        if _is_odd(row, mark) and not _continues(lines, number, mark):
            return Place(number, row.index(mark) + 1)
    return None


def _is_odd(row: str, mark: str) -> bool:
    other = "'" if mark == '"' else '"'
    plain = re.sub(rf"\\.|(?:^|\s)#.*|{other}[^{other}]*{other}", "", row)
    return plain.count(mark) % 2 == 1


def _continues(lines: Lines, number: int, mark: str) -> bool:
    """Whether the quote is closed within the next few lines, as strings over lines are."""
    following = [
        _is_odd(lines.row(other), mark) for other in range(number + 1, min(number + 12, len(lines.rows) + 1))
    ]
    odd = [index for index, is_odd in enumerate(following) if is_odd]
    if not odd:
        return False
    closing = lines.row(number + 1 + odd[0])
    before = closing[: closing.index(mark)]
    return "=" not in before and not re.match(r"\s*(?:echo|printf|local|export|if|for)\b", before)


def _by_tree(text: str) -> list[Problem]:
    source = Source(text)
    if not parse("shell", source.data).root_node.has_error:
        return []
    stop = first_stop("shell", source.data)
    return [explained("shell", stop, source)] if stop else [Problem(1, 1, "cannot be read")]
