"""Calls and foreign edits to draw from, made for the tree as it is: mostly sensible, often stale, sometimes wrong."""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from harness.tree_model import drawn, text
from harness.tree_model.answers import Request
from harness.tree_model.foreign import Foreign

NOBODY: Final = "d_0"
MOMENTS: Final = (
    "commit.planning",
    *("commit.decided", "write.sealed") * 3,
    *("write.before_exchange", "write.exchanged", "write.verified") * 2,
    "write.before_create",
    "write.created",
    "remove.before_rename",
    "remove.renamed",
    "remove.before_unlink",
    "commit.file_landed",
)
LONG_AGO: Final = "2000-01-01T00:00:00Z"


class Meddled(NamedTuple):
    """A call, and what another program does while it is under way."""

    request: Request
    edit: Foreign


@st.composite
def safe_writes(draw: st.DrawFn) -> Request:
    machine = draw(st.runner())
    path = drawn.some_path(draw, machine)
    there = path in machine.model.files
    mode = draw(
        st.sampled_from((("overwrite", "append") * 3 if there else ()) + ("create", "overwrite", "append"))
    )
    arguments: dict[str, Any] = {"path": path, "mode": mode}
    known = sorted(machine.model.drafts)
    draft = draw(st.sampled_from((None,) * 8 + (*known[-2:], NOBODY)))
    if draft is not None:
        arguments["draft"] = draft
    else:
        content = draw(drawn.contents(machine, "" if mode == "append" else path))
        if text.is_text(content):
            arguments["content"] = content.decode()
        else:
            arguments |= {"content": base64.b64encode(content).decode(), "encoding": "base64"}
    expected = drawn.precondition(draw, machine, path)
    return Request(
        "safe_write",
        drawn.filled(arguments, expected_prev_sha256=expected, idempotency_key=drawn.some_key(draw)),
        *drawn.somebody(draw),
    )


@st.composite
def edits(draw: st.DrawFn) -> Request:
    machine = draw(st.runner())
    path = drawn.some_path(draw, machine)
    if drawn.is_mixed(machine, path):
        path = "d/none"
    edit = draw(drawn.replacements(machine, drawn.editable(machine, path)))
    more = {
        "expected_prev_sha256": drawn.precondition(draw, machine, path),
        "idempotency_key": drawn.some_key(draw),
    }
    if draw(st.booleans()):
        given = {"path": path, "old_string": edit["old"], "new_string": edit["new"], "count": edit["count"]}
        return Request("safe_replace", drawn.filled(given, **more), *drawn.somebody(draw))
    several = [edit, {"old": edit["new"], "new": f"{machine.step}g", "count": 1}][: draw(st.integers(1, 2))]
    return Request("edit", drawn.filled({"path": path, "edits": several}, **more), *drawn.somebody(draw))


@st.composite
def _operation(draw: st.DrawFn, machine: drawn.Machine, before: list[dict[str, Any]]) -> dict[str, Any]:
    """One more operation of a transaction; a patch is drawn only for a file that it finds as it is now."""
    path = drawn.some_path(draw, machine)
    touched = {name for one in before for name in (one["path"], one.get("to"))}
    sent = [one["content"] for one in before if one["path"] == path and one["op"] == "write"]
    kind = draw(st.sampled_from(("write", "write", "edit", "move", "move", "delete", "patch")))
    if kind == "move":
        free = [one for one in drawn.PATHS if one not in machine.model.files and one not in touched]
        return {"op": "move", "path": path, "to": draw(st.sampled_from((*free, *free, *free, *drawn.PATHS)))}
    if kind == "delete":
        return {"op": "delete", "path": path}
    if kind == "edit" and not any(drawn.is_mixed(machine, one) for one in drawn.PATHS):
        content = sent[-1].encode() if sent else drawn.editable(machine, path)
        return {"op": "edit", "path": path, "edits": [draw(drawn.replacements(machine, content))]}
    if kind == "patch" and path not in touched:
        patch = draw(drawn.patches(machine, path))
        if patch:
            return {"op": "patch", "path": path, "patch": patch}
    return {
        "op": "write",
        "path": path,
        "content": draw(drawn.texts(machine, None)),
        "mode": draw(st.sampled_from(("overwrite", "overwrite", "create"))),
    }


@st.composite
def transactions(draw: st.DrawFn) -> Request:
    machine = draw(st.runner())
    operations: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 4))):
        operations.append(draw(_operation(machine, operations)))
    path = draw(st.sampled_from((None,) * 8 + drawn.PATHS))
    expected = drawn.precondition(draw, machine, path) if path is not None else None
    arguments = drawn.filled(
        {"ops": operations},
        expected={path: expected} if expected is not None else None,
        idempotency_key=drawn.some_key(draw),
    )
    return Request("transaction", arguments, *drawn.somebody(draw))


@st.composite
def undos(draw: st.DrawFn) -> Request:
    machine = draw(st.runner())
    model = machine.model
    arguments: dict[str, Any] = {"n": draw(st.integers(1, 3))}
    seqs = [one.seq for one in model.entries]
    match draw(st.sampled_from(("own", "any", "path", "session", "client", "since", "journal_id"))):
        case "any":
            arguments["session"] = "any"
        case "path":
            arguments["path"] = draw(st.sampled_from(drawn.PATHS))
            arguments |= draw(st.sampled_from(({}, {"session": "any"})))
        case "session":
            arguments["session"] = drawn.somebody(draw)[0]
        case "client":
            arguments["client"] = drawn.somebody(draw)[1]
        case "since":
            arguments["since"] = model.times[draw(st.sampled_from(seqs[-6:]))] if seqs else LONG_AGO
            arguments |= draw(st.sampled_from(({}, {"session": "any"})))
        case "journal_id":
            arguments["journal_id"] = str(draw(st.sampled_from([*seqs[-8:], 10**6])))
    if draw(st.integers(0, 2 if any(one.op == "undo" for one in model.entries) else 9)) == 0:
        arguments["redo"] = True
    arguments |= {"dry_run": True} if draw(st.integers(0, 9)) == 9 else {}
    return Request("undo", arguments, *drawn.somebody(draw))


@st.composite
def restores(draw: st.DrawFn) -> Request:
    machine = draw(st.runner())
    rows = machine.model.entries
    row = draw(st.sampled_from(rows)) if rows else None
    path = row.path if row is not None and draw(st.integers(0, 9)) else draw(st.sampled_from(drawn.PATHS))
    arguments = {"path": path, "journal_id": str(row.seq if row is not None else 1)}
    expected = drawn.precondition(draw, machine, path)
    return Request("restore", drawn.filled(arguments, expected_prev_sha256=expected), *drawn.somebody(draw))


@st.composite
def again(draw: st.DrawFn) -> Request:
    """A call under a key that was used before, with the same arguments."""
    machine = draw(st.runner())
    known = machine.model.keys
    if not known:
        return draw(safe_writes())
    one = known[draw(st.sampled_from(sorted(known)))]
    return Request(one.tool, one.arguments, *drawn.somebody(draw))


def changes() -> st.SearchStrategy[Request]:
    return st.one_of(writes(), undos())


def writes() -> st.SearchStrategy[Request]:
    return st.one_of(changes_of_one(), transactions())


def changes_of_one() -> st.SearchStrategy[Request]:
    return st.one_of(safe_writes(), edits(), restores())


def changes_of_many() -> st.SearchStrategy[Request]:
    return st.one_of(transactions(), transactions(), undos())


@st.composite
def foreign_edits(draw: st.DrawFn) -> Foreign:
    machine = draw(st.runner())
    path = drawn.some_path(draw, machine)
    what = draw(st.sampled_from(("write", "replace", "delete", "rename", "chmod", "revert")))
    if what == "revert":  # as a checkout does: a content that the file had before
        had = [one.old for one in machine.model.of(path) if one.old is not None]
        return Foreign("replace", path, draw(st.sampled_from(had)) if had else b"reverted\n")
    if what in ("write", "replace") or path not in machine.model.files:
        return Foreign(what if what == "write" else "replace", path, draw(drawn.contents(machine, path)))
    return Foreign(
        what, path, to=draw(st.sampled_from(drawn.PATHS)), mode=draw(st.sampled_from((0o600, 0o755, 0o640)))
    )


@st.composite
def meddled(draw: st.DrawFn, requests: st.SearchStrategy[Request], *whats: str) -> Meddled:
    """A call, and mostly one of its files changed by somebody else meanwhile."""
    request = draw(requests)
    machine = draw(st.runner())
    given = request.arguments
    paths = [given["path"]] if "path" in given else [one["path"] for one in given["ops"]]
    path = draw(st.sampled_from((*paths * 4, *drawn.PATHS)))
    return Meddled(request, Foreign(draw(st.sampled_from(whats)), path, f"{machine.step} sudden\n".encode()))


def moments() -> st.SearchStrategy[str]:
    """The first or the second time that a call passes a fault point."""
    return st.builds("{}@{}".format, st.sampled_from(MOMENTS), st.sampled_from((1, 1, 2)))


@st.composite
def looks(draw: st.DrawFn) -> Request:
    """Calls that change nothing."""
    machine = draw(st.runner())
    path, who = drawn.some_path(draw, machine), drawn.somebody(draw)
    ids = [str(one.seq) for one in machine.model.of(path)]
    match draw(st.sampled_from(("read", "read", "history", "diff", "journal_tail"))):
        case "read":
            return Request("read", {"path": path}, *who)
        case "history":
            return Request("history", {"path": path, "n": draw(st.integers(1, 4))}, *who)
        case "diff":
            to = draw(st.sampled_from(("disk", "disk", *ids, "1000000")))
            return Request(
                "diff",
                drawn.filled({"path": path, "to": to}, **{"from": draw(st.sampled_from((None, *ids)))}),
                *who,
            )
    by = draw(st.sampled_from(("", "filter_path", "filter_mode", "filter_client")))
    value = {"filter_path": path, "filter_mode": "overwrite", "filter_client": who[1]}
    return Request("journal_tail", {"n": draw(st.integers(1, 6))} | ({by: value[by]} if by else {}), *who)
