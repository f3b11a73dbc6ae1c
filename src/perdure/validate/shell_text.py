"""Shell scripts by `bash -n`, which reads commands and executes none; by tree-sitter's grammar if no bash is usable.

Bash gets no environment and no files, so it reads and runs nothing at its start either. A bash older than 4, as on
macOS, does not know the syntax of today's scripts and is not used.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from perdure.validate.grammar import check_grammar
from perdure.validate.lines import Lines
from perdure.validate.report import CannotCheck, Problem, quote_token

SECONDS: Final = 4
MIN_VERSION: Final = 4
FOLDERS: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin")
_SHEBANG: Final = re.compile(r"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-S[ \t]+)?)?(?:\S*/)?(\w[\w.-]*)")
_CHECKED: Final = {"sh", "bash", "dash", "ash", "busybox", "rbash"}
_ZSH: Final = re.compile(
    r"\}\s*always\s*\{|\$\{\(\w|^\s*(?:setopt|zmodload|autoload\s+-|compdef|zstyle|zle|emulate\s+-L)\b"
    r"|^\s*for\s+\w+\s+\(|\bprint\s+-[PrnRl]",
    re.M,
)
_TEMPLATE: Final = re.compile(r"<%=? [^\n]* -?%>|^[ \t]*(?:<%|\{%)", re.M)
_ERROR: Final = re.compile(rb"line (\d+): (.*)")
_TOKEN: Final = re.compile(rb"near unexpected token `(.{1,40}?)'")
_QUOTE: Final = re.compile(rb"looking for matching `(.)'")
_HERE: Final = re.compile(rb"here-document at line (\d+) delimited by end-of-file")


def check_shell(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    shebang = _SHEBANG.match(text)
    if shebang is not None and shebang[1] not in _CHECKED:
        raise CannotCheck("not checked: a script for another shell")
    bash = _find_bash(FOLDERS)
    complaint = _ask(bash, text) if bash is not None else None
    if complaint is None:
        return check_grammar("shell", text)
    if complaint and _ZSH.search(text):
        raise CannotCheck("not checked: looks like a script for another shell")
    if complaint and _TEMPLATE.search(text):
        raise CannotCheck("looks like a template: only its output can be checked")
    return [_problem(complaint, Lines(text))] if complaint else []


@cache
def _find_bash(folders: tuple[str, ...]) -> str | None:
    """The first bash that is new enough."""
    for folder in folders:
        bash = Path(folder, "bash")
        if bash.is_file() and _version(str(bash)) >= MIN_VERSION:
            return str(bash)
    return None


def _version(bash: str) -> int:
    try:
        answer = _run(bash, "-c", "echo $BASH_VERSINFO", text="").stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return int(answer) if answer.strip().isdigit() else 0


def _ask(bash: str, text: str) -> bytes | None:
    """The error messages of bash, empty if there are none, or None if it crashed: it recurses, and thousands of nested
    substitutions exhaust its stack."""
    try:
        run = _run(bash, "-O", "extglob", "-n", "/dev/stdin", text=text)
    except subprocess.TimeoutExpired:
        raise CannotCheck("validation took too long") from None
    if run.returncode < 0:
        return None
    # A wrong condition and an unclosed here-document do not change the exit status.
    if run.returncode == 0 and b"syntax error" not in run.stderr and not _HERE.search(run.stderr):
        return b""
    return run.stderr


def _run(bash: str, *options: str, text: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [bash, "--norc", "--noprofile", *options],
        input=text.encode("utf-8", "replace"),
        capture_output=True,
        env={"LC_ALL": "C.UTF-8", "PATH": ""},
        cwd="/",
        timeout=SECONDS,
        check=False,
    )


def _problem(complaint: bytes, lines: Lines) -> Problem:
    if here := _HERE.search(complaint):
        return Problem(*lines.at(int(here[1]), 1), "the here-document that begins here is never ended")
    error = _ERROR.search(complaint)
    if error is None:
        raise CannotCheck("the parser failed on this content")
    position = lines.at(int(error[1]), 1)
    if quote := _QUOTE.search(complaint):
        return Problem(*position, f"{quote_token(quote[1].decode('utf-8', 'replace'))} is never closed")
    if token := _TOKEN.search(complaint):
        return Problem(*position, f"syntax error near {quote_token(token[1].decode('utf-8', 'replace'))}")
    return Problem(*position, "syntax error: the file ends inside a block")
