"""The tools that only look, said on the model: `read`, `history`, `diff`, `journal_tail`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.tree_model import text
from harness.tree_model.answers import Payload, Refusal, Request, shown
from harness.tree_model.state import Entry, Model


def _read(model: Model, request: Request) -> Payload:
    path = request.arguments["path"]
    content = model.content(path)
    if content is None:
        raise Refusal("not_found", "file_not_found", path=path)
    if not text.is_text(content):
        raise Refusal("invalid_input", "binary_file")
    model.read(request.session, path)
    body = content.decode()
    count = len(text.split(body))
    return {
        "path": path,
        "content": body,
        "sha256": text.sha256(content),
        "bytes": len(content),
        "encoding": "utf-8",
        "eol": text.eol(body),
        "start_line": 1,
        "end_line": count,
        "total_lines": count,
        "truncated": False,
    }


def _history(model: Model, request: Request) -> Payload:
    path = request.arguments["path"]
    rows = [shown(one) for one in reversed(model.of(path))][: request.arguments["n"]]
    if not rows:
        raise Refusal("not_found", "no_history", path=path)
    return {
        "path": path,
        "versions": [{k: v for k, v in row.items() if k not in ("path", "prev_sha256")} for row in rows],
    }


def _tail(model: Model, request: Request) -> Payload:
    given = request.arguments
    asked = {name.removeprefix("filter_"): value for name, value in given.items() if name != "n"}
    found = [one for one in model.entries if all(getattr(one, name) == asked[name] for name in asked)]
    newest = found[-given["n"] :]
    payload: Payload = {"entries": [shown(one) for one in newest]}
    return payload | ({"next_cursor": str(newest[0].seq)} if len(found) > len(newest) else {})


def _diff(model: Model, request: Request) -> Payload:
    """Without the diff itself: `sides` tells what it must lead from and to."""
    given = request.arguments
    old, new, label = sides(model, request)
    return {"path": given["path"], "from": label, "to": given["to"], "changed": old != new}


def sides(model: Model, request: Request) -> tuple[bytes | None, bytes | None, str]:
    given = request.arguments
    path, to = given["path"], given["to"]
    row = None if to == "disk" else _version(model, path, to)
    new = model.content(path) if row is None else row.new
    if "from" in given:
        return _version(model, path, given["from"]).new, new, given["from"]
    rows = model.of(path)
    if row is None:
        if not rows:
            return None, new, "nothing"
        row = rows[-1]
        if row.new != new:
            return row.new, new, str(row.seq)
    at = rows.index(row)
    return row.old, new, str(rows[at - 1].seq) if at else "nothing"


def _version(model: Model, path: str, journal_id: str) -> Entry:
    found = model.entry(journal_id, path)
    if found is None:
        raise Refusal("not_found", "version_not_found", path=path)
    return found


READS: Final[dict[str, Callable[[Model, Request], Payload]]] = {
    "read": _read,
    "history": _history,
    "journal_tail": _tail,
    "diff": _diff,
}
