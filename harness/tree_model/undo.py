"""`undo` and redo, said on the model: which changes are meant, and what the files become without them."""

from __future__ import annotations

from harness.tree_model import text
from harness.tree_model.answers import Evidence, Payload, Refusal, Request, WrongMerge, sha_of
from harness.tree_model.state import Entry, Model, View


def undo(model: Model, request: Request, evidence: Evidence) -> Payload | None:
    given, view = request.arguments, View(model, request.session, request.client)
    selected = _chosen(model, request)
    if not selected:
        raise Refusal("not_found", "nothing_to_undo")
    op = "redo" if given.get("redo") else "undo"
    view.together()
    reverted, conflicts = [], []
    for entry in selected:
        try:
            after = _taken_back(view, entry, None if given.get("dry_run") else evidence)
        except _Later as later:
            if later.reason is None:
                return None
            conflicts.append({"path": entry.path, "reason": later.reason})
            continue
        now = view.content(entry.path)
        if now is None:
            view.give_mode(entry.path, entry.file_mode)
        mode = "delete" if after is None else "overwrite" if now is not None else "create"
        made = view.put(entry.path, after, op, mode, undoes=entry.seq)
        reverted.append(
            {
                "path": made.path,
                "journal_id": str(made.seq),
                "sha256": sha_of(after),
                "undone": str(entry.seq),
                **{name: getattr(entry, name) for name in ("op", "client", "session")},
            }
        )
    if conflicts:
        return {"reverted": [], "conflicts": conflicts, "journal_ids": []}
    if given.get("dry_run"):
        unnumbered = [{**one, "journal_id": None} for one in reverted]
        return {"reverted": unnumbered, "conflicts": [], "journal_ids": [], "dry_run": True}
    view.land()
    return {"reverted": reverted, "conflicts": [], "journal_ids": [one["journal_id"] for one in reverted]}


class _Later(Exception):
    """A change that cannot be taken back, and why. No reason: a merge was unclear, and nothing changed."""

    def __init__(self, reason: str | None) -> None:
        self.reason = reason


def _chosen(model: Model, request: Request) -> list[Entry]:
    """The changes an undo is about, newest first and whole transactions at a time."""
    given = request.arguments
    if "journal_id" in given:
        entry = model.entry(given["journal_id"])
        if entry is None:
            raise Refusal("not_found", "version_not_found")
        if not model.is_effective(entry):
            raise Refusal("conflict", "already_undone")
        return _whole(model, entry)
    wanted = ("undo",) if given.get("redo") else ("write", "edit", "patch", "move", "delete", "restore")
    since = given.get("since", "")
    asked_for = {name: given[name] for name in ("path", "session", "client") if name in given}
    if "session" not in given and "client" not in given:
        asked_for["session"] = request.session
    elif given.get("session") == "any":
        del asked_for["session"]
    found: list[list[Entry]] = []
    for entry in reversed(model.entries):
        asked = all(getattr(entry, name) == value for name, value in asked_for.items())
        if not asked or entry.op not in wanted or model.times[entry.seq] < since:
            continue
        if any(entry in group for group in found) or not model.is_effective(entry):
            continue
        found.append(_whole(model, entry))
    return [one for group in (found if since else found[: given.get("n", 1)]) for one in group]


def _whole(model: Model, entry: Entry) -> list[Entry]:
    if entry.group is None:
        return [entry]
    return [one for one in reversed(model.entries) if one.group == entry.group and model.is_effective(one)]


def _taken_back(view: View, entry: Entry, evidence: Evidence | None) -> bytes | None:
    now = view.content(entry.path)
    if now == entry.new:
        return entry.old
    if now is None or entry.new is None or entry.old is None:
        raise _Later("changed_since")
    if not all(map(text.is_text, (now, entry.new, entry.old))):
        raise _Later("changed_since")
    match text.merged(entry.new, now, entry.old):
        case bytes(after):
            return after
        case text.Clash():
            raise _Later("later_edit")
        case text.Unclear():
            if evidence is None or evidence.conflicted:
                raise _Later(None)
            made = evidence.made(entry.seq)
            if made is None or not text.fits(entry.new, now, entry.old, made):
                raise WrongMerge(f"undo of {entry.seq}: {entry.new!r}, {now!r}, {entry.old!r} made {made!r}")
            return made
