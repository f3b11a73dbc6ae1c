"""What the owner of a workspace allows: one struct, in which every key is known and every value is checked.

| key | what it settles |
|---|---|
| `thresholds`, `weights`, `disable_families`, `extend_patterns`, `limits` | the risk check (`perdure.risk`) |
| `classify` | `true`: calls decide, and it is on unless they say no; `false`: never; `always`: no call can say no |
| `max_bytes` | a larger file is refused |
| `protect` | `never`, `guarded` and `allow`: rules as in `protected.py`, besides the built-in ones |
| `retry_budget` | how often the same content may be refused at the same path |
| `unseen` | a file replaced that the session has not read: `warn` says so, `refuse` does not do it, `allow` is silent |
| `scratch` | `get: false`: nothing is read back; `encrypt: true`: contents are sealed on disk |
| `version` | 1 |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from perdure import risk
from perdure.protocol.msgspec_types import prepare_type
from perdure.risk.settings import (
    FAMILIES,
    SECRET_WEIGHT,
    BadPattern,
    ExtraPattern,
    RiskSettings,
    Share,
    Thresholds,
)
from perdure.workspace.paths.protected import GUARDED, NEVER, OURS, Protection

KEY_PATH = tuple[str, ...]
_STEP: Final = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")
_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")
_RULE: Final = re.compile(r"/?[^/*?\[\]\\]+(?:/[^/*?\[\]\\]+)*/?")

Rule = Annotated[str, Meta(min_length=1, max_length=400)]


class BadPolicy(ValueError):
    """Something in a policy that cannot be meant, and the path of keys that leads to it."""

    def __init__(self, message: str, path: KEY_PATH = (), *, is_pattern: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.is_pattern = is_pattern


class Protect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    never: tuple[Rule, ...] = ()
    guarded: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()


class RetryBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    default: Annotated[int, Meta(ge=0, le=1000)] = 3


class Scratch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    get: bool = True
    encrypt: bool = False


class Policy(RiskSettings, frozen=True, forbid_unknown_fields=True):
    """The whole of it; every part has a default."""

    version: Literal[1] = 1
    classify: bool | Literal["always"] = True
    max_bytes: Annotated[int, Meta(ge=1)] | None = None
    protect: Protect = Protect()
    retry_budget: RetryBudget = RetryBudget()
    scratch: Scratch = Scratch()
    unseen: Literal["warn", "refuse", "allow"] = "warn"

    def protection(self, files: tuple[str, ...] = (), private: tuple[str, ...] = ()) -> Protection:
        """`files` are the policy's own, as rules: no policy frees them. `private` are directories of our own."""
        return Protection(
            never=(*NEVER, *private, *self.protect.never),
            private=(OURS, *private),
            guarded=(*GUARDED, *self.protect.guarded),
            allowed=self.protect.allow,
            own=(*Protection().own, *files),
        )


DEFAULT: Final = Policy()
KEYS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Policy))


def parse(table: Mapping[str, Any]) -> Policy:
    """A policy from what a file says. A part that is null is a part that is not there."""
    given = {key: value for key, value in table.items() if value is not None}
    _check_entries(given)
    try:
        policy = msgspec.convert(given, type=prepare_type(Policy))
    except msgspec.ValidationError as error:
        raise _bad(error) from None
    _check_rules(policy.protect)
    try:
        risk.check(policy)
    except BadPattern as error:
        path = ("extend_patterns", error.family, str(error.number))
        raise BadPolicy(str(error), path, is_pattern=True) from None
    except ValueError as error:
        raise BadPolicy(str(error), ("extend_patterns",)) from None
    return policy


def tighten(base: Policy, table: Mapping[str, Any]) -> tuple[Policy, tuple[str, ...]]:
    """`base` with everything of `table` that only refuses more, and the keys that do not: those wait for trust."""
    given = parse(table)
    present = {key: value for key, value in table.items() if value is not None}
    found: dict[str, Any] = {}
    loose: list[str] = []
    for key in present:
        if key == "version":
            continue
        if (rule := _TIGHTER.get(key)) is None:
            loose.append(key)
            continue
        found[key], names = rule(getattr(base, key), getattr(given, key), present[key], base)
        loose += [f"{key}.{name}" if name else key for name in names]
    return msgspec.structs.replace(base, **found), tuple(loose)


# For one key: its value in the base and in the file, what the file writes there, the base. Gives the tighter value and
# the names below the key that would loosen ("" for the key itself).
_Tighter = Callable[[Any, Any, Any, Policy], tuple[Any, list[str]]]


def _lower_fields(known: Any, given: Any, written: Any, base: Policy) -> tuple[Any, list[str]]:
    names = [name for name in written if written[name] is not None]
    lower = {name: min(getattr(known, name), getattr(given, name)) for name in names}
    loose = [name for name in names if getattr(given, name) > getattr(known, name)]
    return msgspec.structs.replace(known, **lower), loose


def _lower_thresholds(
    known: Thresholds, given: Thresholds, written: Any, base: Policy
) -> tuple[Thresholds, list[str]]:
    """What only hints is held below `high`: with `medium` as high as that it would count as low."""
    found, loose = _lower_fields(known, given, written, base)
    return (found, loose) if found.medium < found.high else (known, [*written])


def _higher_weights(
    known: dict[str, float], given: dict[str, float], written: Any, base: Policy
) -> tuple[dict[str, float], list[str]]:
    """Without a weight of its own, a family's surest rules weigh as much as a secret."""
    higher = {name: value for name, value in given.items() if value >= known.get(name, SECRET_WEIGHT)}
    return {**known, **higher}, [name for name in given if name not in higher]


def _more_families(
    known: frozenset[str], given: frozenset[str], written: Any, base: Policy
) -> tuple[frozenset[str], list[str]]:
    return known, [""] if given - known else []


def _sure_patterns(
    known: dict[str, tuple[ExtraPattern, ...]], given: Any, written: Any, base: Policy
) -> tuple[dict[str, tuple[ExtraPattern, ...]], list[str]]:
    """A pattern takes the place of built-in ones that it overlaps, so only one that refuses by itself tightens."""
    found, loose = dict(known), []
    for family, patterns in given.items():
        if family not in base.disable_families and all(one.weight == SECRET_WEIGHT for one in patterns):
            found[family] = (*found.get(family, ()), *patterns)
        else:
            loose.append(family)
    return found, loose


def _stricter_classify(known: Any, given: Any, written: Any, base: Policy) -> tuple[Any, list[str]]:
    ranks = {False: 0, True: 1, "always": 2}
    return max(known, given, key=ranks.__getitem__), [""] if ranks[given] < ranks[known] else []


def _stricter_unseen(known: str, given: str, written: Any, base: Policy) -> tuple[str, list[str]]:
    ranks = {"allow": 0, "warn": 1, "refuse": 2}
    return max(known, given, key=ranks.__getitem__), [""] if ranks[given] < ranks[known] else []


def _smaller_files(known: int | None, given: int, written: Any, base: Policy) -> tuple[int | None, list[str]]:
    is_larger = known is not None and given > known
    return known if is_larger else given, [""] if is_larger else []


def _more_protection(known: Protect, given: Protect, written: Any, base: Policy) -> tuple[Protect, list[str]]:
    found = Protect((*known.never, *given.never), (*known.guarded, *given.guarded), known.allow)
    return found, ["allow"] if set(given.allow) - set(known.allow) else []


def _closer_scratch(known: Scratch, given: Scratch, written: Any, base: Policy) -> tuple[Scratch, list[str]]:
    loose = [
        name for name, is_loose in (("get", given.get and not known.get), ("encrypt", known.encrypt and not given.encrypt))
        if is_loose and written.get(name) is not None
    ]  # fmt: skip
    return Scratch(get=known.get and given.get, encrypt=known.encrypt or given.encrypt), loose


_TIGHTER: Final[dict[str, _Tighter]] = {
    "thresholds": _lower_thresholds,
    "weights": _higher_weights,
    "disable_families": _more_families,
    "extend_patterns": _sure_patterns,
    "limits": _lower_fields,
    "classify": _stricter_classify,
    "unseen": _stricter_unseen,
    "max_bytes": _smaller_files,
    "protect": _more_protection,
    "retry_budget": _lower_fields,
    "scratch": _closer_scratch,
}


def _check_entries(given: Mapping[str, Any]) -> None:
    """Check each entry by itself where the owner chooses the keys: converting all at once would not name the bad one."""
    extra = given.get("extend_patterns", {})
    known = FAMILIES | (set(extra) if isinstance(extra, dict) else set())
    for key, kind in (("weights", Share), ("extend_patterns", tuple[ExtraPattern, ...])):
        entries = given.get(key, {})
        for name, value in entries.items() if isinstance(entries, dict) else ():
            if name not in known:
                raise BadPolicy(_no_family(str(name), known), (key, str(name)))
            try:
                msgspec.convert(value, type=prepare_type(kind))
            except msgspec.ValidationError as error:
                raise _bad(error, (key, str(name))) from None
    disabled = given.get("disable_families", [])
    for number, name in enumerate(disabled if isinstance(disabled, list) else ()):
        if name not in known:
            raise BadPolicy(_no_family(str(name), known), ("disable_families", str(number)))


def _no_family(name: str, known: frozenset[str] | set[str]) -> str:
    return f"there is no family {name!r}; there are {', '.join(sorted(known))}"


def _check_rules(protect: Protect) -> None:
    for key in ("never", "guarded", "allow"):
        for number, rule in enumerate(getattr(protect, key)):
            if not _RULE.fullmatch(rule) or ".." in rule.split("/"):
                raise BadPolicy(
                    f"{rule!r} is not a path rule: names parted by /, without wildcards",
                    ("protect", key, str(number)),
                )


def _bad(error: msgspec.ValidationError, base: KEY_PATH = ()) -> BadPolicy:
    message, _, place = str(error).partition(" - at ")
    path = base + tuple(key or number for key, number in _STEP.findall(place))
    if (unknown := _UNKNOWN.search(message)) is not None:
        path += (unknown[1],)
        message = f"unknown key {unknown[1]!r}"
    return BadPolicy(message, path)
