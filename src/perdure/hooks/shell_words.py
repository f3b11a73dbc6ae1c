"""The files that a shell command may name: its words, read and never evaluated.

This is a hint for the attribution of changes, not a shell: a word too many is harmless, and a command that is long or
cannot be read gives fewer words.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Final

MAX_COMMAND: Final = 8192
MAX_PATHS: Final = 64
MAX_PATH: Final = 1024

_HEREDOC: Final = re.compile(
    r"<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1([^\n]*)\n.*?(?:^[ \t]*\2[ \t]*$|\Z)", re.S | re.M
)
_PATCH_FILE: Final = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)[ \t\r]*$", re.M)
_OPERATOR: Final = re.compile(r"[();<>|&]+")
_GLOB: Final = re.compile(r"[*?\[]")
_PRINTERS: Final = ("echo", "printf")
_NO_PATH: Final = re.compile(r"[$`{}\0\n]|://")


def patch_files(patch: str) -> list[str]:
    """The files in the headers of a patch as `apply_patch` reads it."""
    return [found[1] for found in _PATCH_FILE.finditer(patch)]


def command_files(command: str) -> list[str]:
    """In order of appearance, at most `MAX_PATHS`. A `cd` moves the base of what follows."""
    files = patch_files(command) if "*** " in command else []
    base, program, is_target = "", "", False
    for word in _words(_HEREDOC.sub(r"<<\2 \3\n", command)):
        if _OPERATOR.fullmatch(word):
            is_target = bool(set(word) & {"<", ">"})
            program = program if is_target else ""
            continue
        path = _path(word)
        if not program and not is_target:
            program = "" if "=" in word else word  # after `NAME=value` the program is still to come
        elif path is not None and (is_target or program not in _PRINTERS):
            path = os.path.join(base, os.path.expanduser(path))
            if program == "cd" and not is_target:
                base = path
            else:
                files.append(path)
        is_target = False
    return list(dict.fromkeys(files))[:MAX_PATHS]


def _words(command: str) -> list[str]:
    text = command[:MAX_COMMAND].replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            words.append(word)
    except ValueError:  # a quote that does not end: what came before it counts
        pass
    return words


def _path(word: str) -> str | None:
    """The path that a word may be: of an option its value, of a pattern the folder before its first wildcard."""
    if word.startswith("-") or re.match(r"\w+=", word):
        word = word.partition("=")[2]
    if not word or len(word) > MAX_PATH or word.isdigit() or _NO_PATH.search(word):
        return None
    if (glob := _GLOB.search(word)) is not None:
        word = os.path.dirname(word[: glob.start()])
    return word or None
