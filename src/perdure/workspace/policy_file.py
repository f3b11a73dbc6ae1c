"""Where a policy is written down, and reading it: nothing in it is ignored, and an error names file and line.

A file that the user named is read, whatever it is called; of a `perdure.toml` the table `[policy]`. Without a name
these count, in this order: what the workspace's `perdure.toml` says or names, then in the first root
`.perdure/policy.yaml`, `.resilient_write/policy.yaml`, and `policy.yaml` where it has a key of a policy, since other
programs have files of that name; then the user's own.

The first of them that the user trusts is the policy. Every other file of the workspace that is not trusted can only
tighten it: what would loosen waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import ask_user
from perdure.storage.files.bounded_read import read_bounded
from perdure.storage.trust import TrustStore
from perdure.text.toml_lines import find_key_line
from perdure.workspace.policy import DEFAULT, KEY_PATH, KEYS, BadPolicy, Policy, parse, tighten

TOML_FILE: Final = "perdure.toml"
PLACES: Final = (".perdure/policy.yaml", ".resilient_write/policy.yaml")
SHARED_PLACE: Final = "policy.yaml"
MOST_BYTES: Final = 1024 * 1024
_TELLING: Final = KEYS - {"version"}


class Loaded(NamedTuple):
    """A policy, and its files as rules beneath the roots, so that no tool writes to them."""

    policy: Policy = DEFAULT
    own: tuple[str, ...] = ()


class Candidate(NamedTuple):
    """One file of a policy in a workspace: the content, and whether it is trusted."""

    path: str
    text: _Text
    content: bytes
    is_trusted: bool


class _Text(NamedTuple):
    values: Any
    line: Callable[[KEY_PATH], int]


def load(
    named: str | None, roots: Sequence[str], *, in_settings: str | None = None, user: str | None = None
) -> Loaded:
    """The policy in force. Raises ToolError where it cannot be read or cannot be meant.

    `named` was typed by the user. `in_settings` is what the workspace's `perdure.toml` is or names, `user` the same of
    the user's file.
    """
    if named is not None and _is_absent_override(named, roots[0]):
        return Loaded(own=_rules(named, roots))
    if named is not None:
        return Loaded(_policy(named, roots), _rules(named, roots))
    candidates = candidates_in(roots, in_settings)
    trusted = next((one for one in candidates if one.is_trusted), None)
    if trusted is not None:
        policy = _checked(trusted.path, trusted.text, roots, parse)
    else:
        policy = _policy(user, roots) if user is not None else DEFAULT
    for one in candidates:
        if not one.is_trusted:
            policy, _ = _checked(one.path, one.text, roots, partial(tighten, policy))
    paths = [one.path for one in candidates] or ([user] if user is not None else [])
    return Loaded(policy, tuple(rule for path in paths for rule in _rules(path, roots)))


def candidates_in(roots: Sequence[str], in_settings: str | None = None) -> list[Candidate]:
    """The policy's files in a workspace, in their order. Raises ToolError for one that cannot be read."""
    store = TrustStore()
    found: list[Candidate] = []
    for path in _places(roots[0], in_settings):
        try:
            content = read_bounded(path, MOST_BYTES)
        except FileNotFoundError:
            if path == in_settings:  # it was named, so it is missed
                raise _broken(_shown(path, roots), "there is no such file", None) from None
            continue
        except OSError as error:
            raise _broken(_shown(path, roots), error.strerror or "it cannot be read", None) from None
        text = _read(path, content, _shown(path, roots))
        # Only settings that are trusted can name a file elsewhere. A link in the workspace is a file of the workspace.
        is_elsewhere = os.path.relpath(path, roots[0]).startswith(os.pardir)
        is_trusted = is_elsewhere or store.verdict(path, content) == "trusted"
        found.append(Candidate(path, text, content, is_trusted))
    return found


def _places(root: str, in_settings: str | None) -> list[str]:
    found = [] if in_settings is None else [in_settings]
    found += [path for place in PLACES if os.path.exists(path := os.path.join(root, place))]
    shared = os.path.join(root, SHARED_PLACE)
    if os.path.isfile(shared) and is_policy(shared):
        found.append(shared)
    return list(dict.fromkeys(found))


_Result = TypeVar("_Result")


def _policy(path: str, roots: Sequence[str]) -> Policy:
    shown = _shown(path, roots)
    try:
        text = _read(path, read_bounded(path, MOST_BYTES), shown)
    except OSError as error:
        raise _broken(shown, error.strerror or "it cannot be read", None) from None
    return _checked(path, text, roots, parse)


def _checked(
    path: str, text: _Text, roots: Sequence[str], use: Callable[[Mapping[str, Any]], _Result]
) -> _Result:
    try:
        return use(text.values)
    except BadPolicy as error:
        key = ".".join(error.path)
        what = f"{key}: {error}" if key else str(error)
        raise _broken(_shown(path, roots), what, text.line(error.path), is_pattern=error.is_pattern) from None


def _is_absent_override(path: str, root: str) -> bool:
    """Whether RW_POLICY_FILE names it and it is not there: then the defaults count, whatever the workspace has."""
    named = os.environ.get("RW_POLICY_FILE")
    return bool(named) and path == os.path.join(root, str(named)) and not os.path.lexists(path)


def is_policy(path: str) -> bool:
    """By its keys. One that cannot be read at all is not ours to judge."""
    try:
        values = _read(path, read_bounded(path, MOST_BYTES), SHARED_PLACE).values
    except (OSError, ToolError):
        return False
    return isinstance(values, dict) and not _TELLING.isdisjoint(values)


def values_of(path: str, content: bytes) -> Mapping[str, Any]:
    """What a file says, before it is checked. Raises ToolError."""
    values: Mapping[str, Any] = _read(path, content, os.path.basename(path)).values
    return values


def _read(path: str, data: bytes, shown: str) -> _Text:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _broken(shown, "it is not UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    found = _toml(text, shown) if path.endswith(".toml") else _yaml(text, shown)
    if not isinstance(found.values, dict):
        raise _broken(shown, "it is not a mapping of keys to values", 1)
    return found


def _toml(text: str, shown: str) -> _Text:
    import tomllib

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _broken(shown, str(error), None) from None
    except (ValueError, RecursionError):  # what the parser lets through: thousands of digits, or of brackets
        raise _broken(shown, "it is nested too deeply, or a number has too many digits", None) from None
    inside: KEY_PATH = ("policy",) if os.path.basename(shown) == TOML_FILE else ()
    return _Text(
        values.get("policy", {}) if inside else values, lambda path: find_key_line(text, (*inside, *path))
    )


def _yaml(text: str, shown: str) -> _Text:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        values = YAML(typ="safe", pure=True).load(text)
        tree = YAML(typ="safe", pure=True).compose(text)
    except (YAMLError, ValueError, RecursionError) as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        what = error.problem if isinstance(error, MarkedYAMLError) else None
        line = mark.line + 1 if mark is not None else None
        if isinstance(error, ReaderError):  # a character that YAML does not take
            line = text.count("\n", 0, error.position) + 1
        raise _broken(shown, what or "it is not valid YAML", line) from None
    return _Text({} if values is None else values, lambda path: _yaml_line(tree, path))


def _yaml_line(tree: Any, path: KEY_PATH) -> int:
    """As far as the path can be followed."""
    node, line = tree, 1
    for step in path:
        entries = node.value if node is not None and isinstance(node.value, list) else []
        if entries and isinstance(entries[0], tuple):
            pair = next(((key, value) for key, value in entries if key.value == step), None)
        else:
            at = int(step) if step.isdigit() else len(entries)
            pair = (entries[at], entries[at]) if at < len(entries) else None
        if pair is None:
            break
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


def folder_rules(folders: Sequence[str], roots: Sequence[str]) -> tuple[str, ...]:
    """Folders that no tool writes to, where a root contains them: a workspace may be the user's home."""
    return tuple(f"{rule}/" for folder in folders for rule in _rules(folder, roots) if rule != "/.")


def _rules(path: str, roots: Sequence[str]) -> tuple[str, ...]:
    """The file beneath each root that holds it, where a tool could reach it."""
    real = os.path.realpath(path)
    found = (os.path.relpath(real, os.path.realpath(root)) for root in roots)
    return tuple(f"/{rest}" for rest in found if not rest.startswith(os.pardir))


def _shown(path: str, roots: Sequence[str]) -> str:
    """No path of the machine in an error."""
    rules = _rules(path, roots[:1])
    return rules[0][1:] if rules else os.path.basename(path)


def _broken(shown: str, what: str, line: int | None, *, is_pattern: bool = False) -> ToolError:
    where = f"{shown}, line {line}" if line is not None else shown
    return refuse(
        "policy_violation",
        "bad_regex" if is_pattern else "bad_policy",
        f"the policy is not in force, so nothing is done: {where}: {what.rstrip('.')}.",
        next_step=ask_user(f"to fix {where}: {what.rstrip('.')}."),
        reason_hint="syntax",
        suggested_action="ask_user",
        file=shown,
        line=line,
    )
