"""Random calls of every write tool, each with a content of its own, so that what is found tells who wrote it.

Three sorts of files: those that many calls change at once (logs, notes), those that belong to one call at a time
and are rewritten, patched, moved, deleted, undone and restored, and those that were there before.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from harness.crash.calls import Call, Effect, Gone, Line, Restored, Shelved, TookBack, Wrote, sha256

ANCHOR: Final = "the anchor\n"
LARGE: Final = 140_000
HUGE: Final = 2_400_000
"""Large enough to be copied in a thread of its own."""
SHARED: Final = ("log0", "log1", "@1/log2", "large-log")
NOTES: Final = ("notes0", "sub/notes1")
SAME: Final = ("same0", "sub/same1")
FOUND: Final = tuple(f"found/large{n}" for n in range(24))


class Owned(msgspec.Struct):
    """A file that one call at a time changes: its contents by their numbers in the journal, the newest last."""

    path: str
    versions: list[tuple[int, bytes]]
    is_undoable: bool = True
    is_restorable: bool = True

    @property
    def content(self) -> bytes:
        return self.versions[-1][1]


def initial(chance: random.Random) -> dict[str, bytes]:
    """Files that are there before the first call; the large ones are copied when they are first replaced."""
    found = {path: f"{path}\n".encode() for path in (*SHARED, *SAME)}
    found |= {path: f"{path}\n{ANCHOR}".encode() for path in NOTES}
    found["large-log"] = _filler("large-log", LARGE)
    found |= {path: _filler(f"{path} {chance.random()}", LARGE) for path in FOUND}
    return found


class Workload:
    def __init__(self, chance: random.Random) -> None:
        self.calls: list[Call] = []
        self._chance = chance
        self._owned: list[Owned] = []
        self._held: dict[int, Owned] = {}
        self._drafts: list[tuple[str, bytes]] = []
        self._again: list[Call] = []
        self._pieces: list[tuple[str, bytes]] = []
        self._found = list(FOUND)
        self._avoided: set[str] = set()

    def next(self, favoured: tuple[str, ...] = (), *, strictly: bool = False) -> Call:
        """A call that nobody else's call makes fail; half of them of favoured kinds, or all."""
        number = len(self.calls)
        if self._again and not strictly:
            first = self._again.pop()
            call = Call(number, "again", first.tool, first.arguments, first.effects)
        else:
            kinds = favoured if favoured and (strictly or self._chance.random() < 0.5) else _KINDS
            call = self._made(self._chance.choice(kinds), number)
        self.calls.append(call)
        return call

    def avoid(self, path: str) -> None:
        """Somebody else changed this file: no call can be built upon what it holds."""
        self._avoided.add(path)
        self._owned = [owned for owned in self._owned if owned.path != path]

    def settled(self, call: Call) -> None:
        """The call has its fate: what is certain now can be built upon."""
        owned = self._held.pop(call.number, None)
        if owned is not None and owned.path in self._avoided:
            owned = None
        if call.kind == "piece" and call.fate == "done":
            self._pieces.append((call.arguments["session"], call.arguments["content"].encode()))
        if call.kind == "keyed":
            self._again.append(call)
        if call.fate == "refused" and call.kind == "refused":
            content: str = call.arguments["content"]
            if call.payload.get("draft"):
                self._drafts.append((call.payload["draft"], content.encode()))
            if owned is not None:
                self._owned.append(owned)
        if call.fate == "done" and owned is not None:
            self._advance(call, owned)

    def _made(self, kind: str, number: int) -> Call:
        maker: Callable[[int], Call | None] = getattr(self, f"_{kind}")
        return maker(number) or self._create(number)

    # --- files of one call at a time ----------------------------------------------------------------------

    def _create(self, number: int) -> Call:
        path = self._chance.choice((f"n{number}/deep/f", f"d{number % 5}/f{number}", f"@1/n{number}/f"))
        content = self._text(number)
        call = _write(number, "create", path, content, "create")
        self._held[number] = Owned(path, [(0, content.encode())])
        return call

    def _rewrite(self, number: int) -> Call | None:
        if (owned := self._take(number)) is None:
            return None
        content = self._text(number)
        owned.versions.append((0, content.encode()))
        return _write(number, "rewrite", owned.path, content, "overwrite")

    def _patch(self, number: int) -> Call | None:
        if (owned := self._take(number)) is None:
            return None
        before = owned.content.decode().splitlines(keepends=True)
        after = [*before, f"patched {_token(number)}\n"]
        name = owned.path
        diff = "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))
        content = "".join(after).encode()
        owned.versions.append((0, content))
        op = {"op": "patch", "path": name, "patch": diff}
        return Call(number, "patch", "transaction", {"ops": [op]}, [Wrote(name, sha256(content))])

    def _delete(self, number: int) -> Call | None:
        if (owned := self._take(number)) is None:
            return None
        op = {"op": "delete", "path": owned.path}
        return Call(number, "delete", "transaction", {"ops": [op]}, [Gone(owned.path)])

    def _move(self, number: int) -> Call | None:
        if (owned := self._take(number)) is None:
            return None
        to = f"moved/m{number}"
        op = {"op": "move", "path": owned.path, "to": to}
        effects: list[Effect] = [Wrote(to, sha256(owned.content)), Gone(owned.path)]
        return Call(number, "move", "transaction", {"ops": [op]}, effects)

    def _undo(self, number: int) -> Call | None:
        if (owned := self._take(number, lambda one: one.is_undoable)) is None:
            return None
        owned.is_undoable = False
        seq = owned.versions[-1][0]
        return Call(number, "undo", "undo", {"journal_id": str(seq)}, [TookBack(owned.path, seq)])

    def _restore(self, number: int) -> Call | None:
        if (owned := self._take(number, lambda one: one.is_restorable and len(one.versions) > 1)) is None:
            return None
        owned.is_undoable = owned.is_restorable = False
        seq, content = owned.versions[0]
        owned.versions.append((0, content))
        arguments = {"path": owned.path, "journal_id": str(seq)}
        return Call(number, "restore", "restore", arguments, [Restored(owned.path, sha256(content))])

    def _refused(self, number: int) -> Call | None:
        """A name that is taken. The payload is kept as a draft."""
        if (owned := self._take(number)) is None:
            return None
        call = _write(number, "refused", owned.path, self._text(number), "create")
        call.meant = "refused"
        return call

    def _draft(self, number: int) -> Call | None:
        if not self._drafts:
            return None
        identity, content = self._drafts.pop()
        path = f"drafts/f{number}"
        self._held[number] = Owned(path, [(0, content)])
        arguments = {"path": path, "draft": identity}
        return Call(number, "draft", "safe_write", arguments, [Wrote(path, sha256(content))])

    # --- files of many calls ----------------------------------------------------------------------------------

    def _append(self, number: int) -> Call:
        path, text = self._chance.choice(SHARED), f"line {_token(number)}\n"
        arguments = {"path": path, "content": text, "mode": "append"}
        return Call(number, "append", "safe_write", arguments, [Line(path, text)])

    def _keyed(self, number: int) -> Call:
        call = self._append(number)
        call.kind = "keyed"
        call.arguments["idempotency_key"] = f"key {number}"
        return call

    def _edit(self, number: int) -> Call:
        path, text = self._chance.choice(NOTES), f"note {_token(number)}\n"
        edit = {"old": ANCHOR, "new": ANCHOR + text}
        return Call(number, "edit", "edit", {"path": path, "edits": [edit]}, [Line(path, text)])

    def _replace(self, number: int) -> Call:
        path, text = self._chance.choice(NOTES), f"note {_token(number)}\n"
        arguments = {"path": path, "old_string": ANCHOR, "new_string": ANCHOR + text}
        return Call(number, "replace", "safe_replace", arguments, [Line(path, text)])

    def _overwrite(self, number: int) -> Call:
        return _write(number, "overwrite", self._chance.choice(SAME), self._text(number), "overwrite")

    def _large(self, number: int) -> Call:
        path, size = self._chance.choice(SAME), self._chance.choice((LARGE, LARGE, HUGE))
        return _write(number, "large", path, _filler(_token(number), size).decode(), "overwrite")

    def _replace_found(self, number: int) -> Call | None:
        if not self._found:
            return None
        return _write(number, "replace_found", self._found.pop(), self._text(number), "overwrite")

    def _transaction(self, number: int) -> Call:
        """Two new files in two roots and a shared one: all, or none."""
        text, path = f"note {_token(number)}\n", self._chance.choice(NOTES)
        one, other = self._text(number), f"other {self._text(number)}"
        ops: list[dict[str, Any]] = [
            {"op": "write", "path": f"t{number}/a", "content": one},
            {"op": "edit", "path": path, "edits": [{"old": ANCHOR, "new": ANCHOR + text}]},
            {"op": "write", "path": f"@1/t{number}/b", "content": other},
        ]
        self._chance.shuffle(ops)
        effects: list[Effect] = [
            Wrote(f"t{number}/a", sha256(one.encode())),
            Line(path, text),
            Wrote(f"@1/t{number}/b", sha256(other.encode())),
        ]
        return Call(number, "transaction", "transaction", {"ops": ops}, effects)

    def _read(self, number: int) -> Call:
        path = self._chance.choice((*SHARED, *NOTES))
        return Call(number, "read", "read", {"path": path})

    # --- the shelf --------------------------------------------------------------------------------------------

    def _chunk(self, number: int) -> Call:
        """The next piece of a file that many build: it must be there once, whatever was sent again."""
        return self._sent_piece(number, "chunk", f"shared{number % 3}")

    def _piece(self, number: int) -> Call:
        return self._sent_piece(number, "piece", f"own{number}")

    def _sent_piece(self, number: int, kind: str, session: str) -> Call:
        content = _filler(_token(number), LARGE).decode() if number % 4 == 0 else self._text(number)
        effect = Shelved(f"chunk/{session}", sha256(content.encode()))
        return Call(number, kind, "chunk_append", {"session": session, "content": content}, [effect])

    def _compose(self, number: int) -> Call | None:
        if not self._pieces:
            return None
        session, content = self._pieces.pop()
        path = f"composed/f{number}"
        arguments = {"session": session, "output_path": path}
        return Call(number, "compose", "chunk_compose", arguments, [Wrote(path, sha256(content))])

    def _checkpoint(self, number: int) -> Call:
        data = self._text(number)
        effect = Shelved(f"checkpoint/c{number}", sha256(msgspec.json.encode(data)))
        return Call(number, "checkpoint", "checkpoint", {"name": f"c{number}", "data": data}, [effect])

    def _scratch(self, number: int) -> Call:
        content = self._text(number)
        sha = sha256(content.encode())
        return Call(
            number, "scratch", "scratch_put", {"content": content}, [Shelved(f"scratch/{sha.hex()}", sha)]
        )

    def _handoff(self, number: int) -> Call:
        envelope: dict[str, Any] = {
            "task_id": f"t{number}",
            "status": "partial",
            "agent": "storm",
            "summary": self._text(number),
            "next_steps": ["go on"],
            "last_good_state": [],
        }
        path, text = f"handoffs/h{number}.md", f"handed over {_token(number)}\n"
        arguments = {"envelope": envelope, "body": text, "path": path}
        return Call(number, "handoff", "handoff_write", arguments, [Line(path, text)])

    # --- inside -------------------------------------------------------------------------------------------------

    def _take(self, number: int, fits: Callable[[Owned], bool] = lambda _: True) -> Owned | None:
        fitting = [one for one in self._owned if fits(one)]
        if not fitting:
            return None
        owned = self._chance.choice(fitting)
        self._owned.remove(owned)
        self._held[number] = owned
        return owned

    def _advance(self, call: Call, owned: Owned) -> None:
        seqs = call.journal_ids()
        match call.kind:
            case "delete":
                return
            case "move":
                owned = Owned(call.arguments["ops"][0]["to"], [(seqs[0], owned.content)], is_undoable=False)
            case "undo":
                owned.versions.pop()
                if not owned.versions:
                    return
            case "refused":
                return
            case _:
                owned.versions[-1] = (seqs[0], owned.content)
                owned.is_undoable = call.kind != "restore"
        self._owned.append(owned)

    def _text(self, number: int) -> str:
        return "".join(f"{_token(number)} row {n}\n" for n in range(self._chance.randint(1, 40)))


_KINDS: Final = (
    *("create", "create", "create", "rewrite", "rewrite", "patch", "delete", "move", "undo", "restore"),
    *("refused", "draft", "append", "append", "keyed", "edit", "replace", "overwrite", "overwrite"),
    *("transaction", "transaction", "large", "replace_found", "read"),
    *("chunk", "chunk", "piece", "compose", "checkpoint", "scratch", "handoff"),
)


def favoured(point: str) -> tuple[str, ...]:
    """The calls that pass a point most often."""
    match point.partition("."):
        case ("remove", _, _):
            return ("delete", "move", "create")
        case ("blob", _, "clone"):
            return ("replace_found",)
        case ("blob", _, _):
            return ("large", "replace_found")
        case ("write", _, "parent_made" | "before_create" | "created"):
            return ("create", "transaction")
        case ("write", _, "before_swap_back" | "swapped_back"):
            return ("append", "edit", "overwrite", "transaction")
        case _:
            return ()


def _token(number: int) -> str:
    return f"c{number:05}"


def _filler(word: str, size: int) -> bytes:
    return ((f"{word} " * 200 + "\n") * (size // (200 * len(word)) + 1)).encode()


def _write(number: int, kind: str, path: str, content: str, mode: str) -> Call:
    arguments = {"path": path, "content": content, "mode": mode}
    return Call(number, kind, "safe_write", arguments, [Wrote(path, sha256(content.encode()))])
