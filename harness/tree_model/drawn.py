"""Parts of calls to draw from: texts, passages, patches, preconditions, made for the tree as it is.

Every line that is made up is new, but for a few that repeat, so that a merge is nearly always certain and a text to be
replaced is sometimes ambiguous.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, Protocol

from hypothesis import strategies as st

from harness.tree_model import text
from harness.tree_model.state import Model

PATHS: Final = ("a", "b", "d/a", "d/e/c")
AT_FIRST: Final = (
    ("a", 0o644, b"a1\na2\na3\na4\na5\n"),
    ("b", 0o755, b"b1\nb2\nb3\n"),
    ("d/a", 0o600, b"d1\nd2\nd3\nd4\n"),
)
"""Files that nobody wrote through us."""
SESSIONS: Final = (("one", "alpha"), ("two", "alpha"), ("three", "beta"))
KEYS: Final = ("k1", "k2", "k3")


class Machine(Protocol):
    """What a call is drawn for."""

    model: Model
    step: int


@st.composite
def texts(draw: st.DrawFn, machine: Machine, old: str | None) -> str:
    """A text that has come out of another by a change of one place, or a new one."""
    have = text.split(old) if old is not None else []
    new = [f"{machine.step}{letter}\n" for letter in "uvwxyz"]
    how = draw(st.sampled_from(("change", "change", "add", "drop", "twin", "new", "new")))
    if not have or how == "new":
        return "".join(new[: draw(st.integers(0, 5))])
    at = draw(st.integers(0, len(have) - 1))
    match how:
        case "change":
            have[at] = new[0]
        case "add":
            have.insert(at, new[0])
        case "drop":
            del have[at]
        case "twin":
            have.insert(at, "twin\n")
    return "".join(have[:9])


@st.composite
def contents(draw: st.DrawFn, machine: Machine, path: str) -> bytes:
    old = machine.model.content(path)
    like = old.decode() if old is not None and text.is_text(old) else None
    made = draw(texts(machine, like))
    match draw(st.sampled_from(("as it is",) * 9 + ("unended", "crlf", "binary"))):
        case "unended":
            return made.removesuffix("\n").encode()
        case "crlf":
            return made.replace("\r\n", "\n").replace("\n", "\r\n").encode()
        case "binary":
            return b"\0" + made.encode()
    return made.encode()


def somebody(draw: st.DrawFn) -> tuple[str, str]:
    return draw(st.sampled_from(SESSIONS))


def some_path(draw: st.DrawFn, machine: Machine) -> str:
    """Mostly of a file that is there."""
    there = sorted(machine.model.files)
    return draw(st.sampled_from((*PATHS, *there, *there, *there)))


def precondition(draw: st.DrawFn, machine: Machine, path: str) -> str | None:
    """A precondition: none, right, or stale."""
    content = machine.model.content(path)
    match draw(st.sampled_from(("none",) * 7 + ("right", "right", "right", "absent", "stale"))):
        case "right":
            return text.sha256(content) if content is not None else ""
        case "absent":
            return ""
        case "stale":
            known = [one.new for one in machine.model.of(path) if one.new is not None]
            return text.sha256(known[0] if known else b"nobody's")
    return None


def filled(arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    """With those that were drawn at all."""
    return arguments | {name: value for name, value in more.items() if value is not None}


def some_key(draw: st.DrawFn) -> str | None:
    return draw(st.sampled_from((*(None,) * 6, *KEYS)))


@st.composite
def replacements(draw: st.DrawFn, machine: Machine, content: bytes | None) -> dict[str, Any]:
    """A passage that is there once, several times, or not at all."""
    have = [line.rstrip("\r\n") for line in text.split((content or b"").decode())]
    found = [*have, *have, *("\n".join(pair) for pair in pairwise(have)), "nowhere"]
    old = draw(st.sampled_from([one for one in found if one]))
    fresh = f"{machine.step}e"
    new = draw(
        st.sampled_from((fresh, fresh, fresh, f"{fresh}\n{fresh}f", f"{fresh}\n{fresh}f", "twin", old, ""))
    )
    return {"old": old, "new": new, "count": draw(st.sampled_from((1, 1, 1, 1, -1, 2)))}


def editable(machine: Machine, path: str) -> bytes | None:
    """What an edit can be drawn for: a file of mixed endings is left to tests of its own."""
    content = machine.model.content(path)
    return None if content is None or not text.is_text(content) or is_mixed(machine, path) else content


def is_mixed(machine: Machine, path: str) -> bool:
    content = machine.model.content(path)
    return content is not None and text.is_text(content) and text.eol(content.decode()) == "mixed"


@st.composite
def patches(draw: st.DrawFn, machine: Machine, path: str) -> str:
    """A unified diff of the file as it is, or of one that it never was; empty where there can be none."""
    content = machine.model.content(path)
    if content is None:
        return text.unified(path, None, draw(texts(machine, None)))
    whole = editable(machine, path)
    if whole is None or (whole and not whole.endswith(b"\n")):
        return ""
    old = whole.decode().replace("\r\n", "\n")
    match draw(st.sampled_from(("change", "change", "change", "change", "delete", "stale", "create"))):
        case "delete":
            return text.unified(path, old, None) if old else ""
        case "stale":
            return text.unified(path, "never\nthere\n", "never\n")
        case "create":
            return text.unified(path, None, "again\n")
    return text.unified(path, old, draw(texts(machine, old)))
