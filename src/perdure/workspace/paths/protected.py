"""Paths through which a write could become a command, or rewrite our own record of writes.

| rule | what matches |
|---|---|
| `name/` | this name at any depth, and everything beneath it |
| `a/b` | this file at any depth |
| `/a` | only at the top of a workspace root |

Names are compared as the most lenient file system would: without case, without Unicode form, without invisible
characters, without the trailing dots and the short names of NTFS. So `.GIT`, `.gi\u200bt` and `git~1` are `.git`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

import msgspec

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import ask_user
from perdure.text.printable import is_ignorable, make_printable

OURS: Final = ".perdure/"
NEVER: Final = (OURS, ".git/")
# What says what may be written. Only its owner changes it, by other means.
POLICY_FILES: Final = ("/perdure.toml", "/policy.yaml", ".resilient_write/policy.yaml")
GUARDED: Final = (
    # what starts MCP servers
    ".mcp.json",
    "/mcp.md",
    "/mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".claude/settings.json",
    ".claude/settings.local.json",
    # what an editor, a shell or git runs
    ".vscode/tasks.json",
    ".envrc",
    ".githooks/",
    ".husky/",
    # what a build service runs
    ".github/workflows/",
    ".gitlab-ci.yml",
    ".circleci/",
)


class Protection(msgspec.Struct, frozen=True):
    """What is protected, and what the policy frees again. A freed path needs no force; `own` cannot be freed."""

    own: tuple[str, ...] = POLICY_FILES
    never: tuple[str, ...] = NEVER
    guarded: tuple[str, ...] = GUARDED
    allowed: tuple[str, ...] = ()
    private: tuple[str, ...] = (OURS,)
    """What is kept there was often kept from being read: no tool reads it. Part of `never`."""

    def check(self, parts: Sequence[str], *, force: bool = False, reading: bool = False) -> None:
        """Refuse a protected path, given as its names beneath a workspace root.

        Reading is refused only in the directories of our own.
        """
        keys = [key for part in parts for key in _keys(part)]
        if not reading and (rule := _matching(self.own, keys)) is not None:
            raise _protected(parts, rule, "the policy of a workspace is changed by its owner alone", None)
        for rules, can_force in ((self.never, False), (self.guarded, True)):
            rule = _matching(rules, keys)
            if rule is None or (can_force and force) or (reading and rule not in self.private):
                continue
            if _matching(self.allowed, keys) is None:
                why = "it can start programs" if can_force else "Perdure never writes there"
                raise _protected(parts, rule, why, can_force)


def _protected(parts: Sequence[str], rule: str, why: str, can_force: bool | None) -> ToolError:
    """`can_force` is None where not even the policy can allow it."""
    path = make_printable("/".join(parts))
    next_step = ask_user(f"to change {path}.")
    if can_force is not None:
        way = f"to allow {rule} in the policy (protect.allow)"
        next_step = ask_user(
            f"whether {path} may be written; then call again with force:=true, or ask them {way}."
        )
        if not can_force:
            next_step = ask_user(f"{way}{', or use git itself' if rule == '.git/' else ''}.")
    return refuse(
        "policy_violation",
        "protected_path",
        f"{path} is protected ({rule}): {why}.",
        next_step=next_step,
        reason_hint="permission",
        suggested_action="ask_user",
        path=path,
        rule=rule,
        can_force=bool(can_force),
    )


def _matching(rules: tuple[str, ...], keys: Sequence[str]) -> str | None:
    """The first rule that holds for a path; None where none does."""
    index = _by_first_name(rules)
    for start, key in enumerate(keys):
        for rule, wanted in index.get(key, ()):
            end = start + len(wanted)
            is_whole = rule.endswith("/") or end == len(keys)
            if is_whole and keys[start:end] == wanted and not (start and rule.startswith("/")):
                return rule
    return None


@cache
def _by_first_name(rules: tuple[str, ...]) -> dict[str, list[tuple[str, list[str]]]]:
    index: dict[str, list[tuple[str, list[str]]]] = {}
    for rule in rules:
        wanted = [key for part in rule.strip("/").split("/") for key in _keys(part)]
        index.setdefault(wanted[0], []).append((rule, wanted))
    return index


@lru_cache(maxsize=1024)
def _keys(name: str) -> tuple[str, ...]:
    """What a name is to the most lenient file system; two where a backslash would separate."""
    if name.isascii():
        folded = name.lower()
    else:
        text = "".join(character for character in name if not is_ignorable(character))
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    keys = [part.partition(":")[0].rstrip(" .") for part in folded.replace("\\", "/").split("/")]
    return tuple(".git" if key == "git~1" else key for key in keys)
