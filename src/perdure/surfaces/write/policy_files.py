"""Where a policy is written down, and reading it: nothing in it is ignored, and an error names file and line.

A file that was named is read, whatever it is called; of a `perdure.toml` the table `[policy]`. Without a name these
are looked for in the first root: `.perdure/policy.yaml`, `.resilient_write/policy.yaml`, and `policy.yaml` where it
has a key of a policy, since other programs have files of that name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from perdure.model.envelope import ToolError, refuse
from perdure.model.toml_places import line_of
from perdure.storage.bounded_read import read_bounded
from perdure.surfaces.write.policy import DEFAULT, KEY_PATH, KEYS, BadPolicy, Policy, parse

TOML_FILE: Final = "perdure.toml"
PLACES: Final = (".perdure/policy.yaml", ".resilient_write/policy.yaml")
SHARED_PLACE: Final = "policy.yaml"
MOST_BYTES: Final = 1024 * 1024
_TELLING: Final = KEYS - {"version"}


class Loaded(NamedTuple):
    """A policy, and its file as a rule beneath the roots, so that no tool writes to it."""

    policy: Policy = DEFAULT
    own: tuple[str, ...] = ()


class _Text(NamedTuple):
    values: Any
    line: Callable[[KEY_PATH], int]


def load(named: str | None, roots: Sequence[str]) -> Loaded:
    """The policy in force. Raises ToolError where it cannot be read or cannot be meant."""
    path = named if named is not None else _found(roots[0])
    if path is None:
        return Loaded()
    shown = _shown(path, roots)
    try:
        text = _read(path, shown)
        return Loaded(parse(text.values), _rules(path, roots))
    except OSError as error:
        raise _broken(shown, error.strerror or "it cannot be read", None) from None
    except BadPolicy as error:
        key = ".".join(error.path)
        raise _broken(shown, f"{key}: {error}" if key else str(error), text.line(error.path)) from None


def _found(root: str) -> str | None:
    for place in PLACES:
        path = os.path.join(root, place)
        if os.path.exists(path):
            return path
    path = os.path.join(root, SHARED_PLACE)
    return path if os.path.isfile(path) and _is_policy(path) else None


def _is_policy(path: str) -> bool:
    """By its keys. One that cannot be read at all is not ours to judge."""
    try:
        values = _read(path, SHARED_PLACE).values
    except (OSError, ToolError):
        return False
    return isinstance(values, dict) and not _TELLING.isdisjoint(values)


def _read(path: str, shown: str) -> _Text:
    data = read_bounded(path, MOST_BYTES)
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
    return _Text(values.get("policy", {}) if inside else values, lambda path: line_of(text, (*inside, *path)))


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


def _rules(path: str, roots: Sequence[str]) -> tuple[str, ...]:
    """The file beneath each root that holds it, where a tool could reach it."""
    real = os.path.realpath(path)
    found = (os.path.relpath(real, os.path.realpath(root)) for root in roots)
    return tuple(f"/{rest}" for rest in found if not rest.startswith(os.pardir))


def _shown(path: str, roots: Sequence[str]) -> str:
    """No path of the machine in an error."""
    rules = _rules(path, roots[:1])
    return rules[0][1:] if rules else os.path.basename(path)


def _broken(shown: str, what: str, line: int | None) -> ToolError:
    where = f"{shown}, line {line}" if line is not None else shown
    return refuse(
        "policy_violation",
        "bad_policy",
        f"the policy is not in force, so nothing is done: {where}: {what}",
        reason_hint="syntax",
        suggested_action="ask_user",
        file=shown,
        line=line,
    )
