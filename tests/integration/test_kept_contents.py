"""The contents that are kept of replaced files: lost or damaged ones are taken again, large ones outside the lock."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from write_tools import Tools

from perdure.platform import fault_points
from perdure.surfaces.write import write
from perdure.workspace import planning
from perdure.workspace.contents import ContentStore
from perdure.workspace.deferred import LARGE

SMALL = "small\n" * 100
LARGE_TEXT = "".join(f"line {number}\n" for number in range(13_000))
VERY_LARGE = "x" * 78 + "\n"


def done(tools: Tools, name: str, **arguments: Any) -> dict[str, Any]:
    is_done, answer = tools.use(name, arguments)
    assert is_done, answer
    return answer


def remove_blob(tools: Tools, sha256: str) -> None:
    os.unlink(os.path.join(tools.service.folder, "blobs", sha256))


def damage_blob(tools: Tools, sha256: str) -> None:
    with open(os.path.join(tools.service.folder, "blobs", sha256), "r+b") as file:
        file.write(b"damaged")


def cut_blob(tools: Tools, sha256: str) -> None:
    os.truncate(os.path.join(tools.service.folder, "blobs", sha256), 10)


def damage_row(tools: Tools, sha256: str) -> None:
    connection = apsw.Connection(os.path.join(tools.service.folder, "journal.db"))
    connection.execute("UPDATE contents SET codec = 0, data = x'00' WHERE sha = ?", (bytes.fromhex(sha256),))
    connection.close()


DAMAGES: list[tuple[str, Callable[[Tools, str], None]]] = [
    (LARGE_TEXT, remove_blob),
    (LARGE_TEXT, damage_blob),
    (LARGE_TEXT, cut_blob),
    (SMALL, damage_row),
]
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("safe_write", {"path": "a", "content": "new\n", "mode": "overwrite"}),
    ("safe_write", {"path": "a", "content": "more\n", "mode": "append"}),
    ("transaction", {"ops": [{"op": "delete", "path": "a"}]}),
    ("transaction", {"ops": [{"op": "edit", "path": "a", "edits": [{"old": "l", "new": "L", "count": -1}]}]}),
    ("edit", {"path": "a", "edits": [{"old": "l", "new": "L", "count": -1}]}),
]


@pytest.mark.parametrize(("content", "damage"), DAMAGES, ids=["missing", "damaged", "cut", "row"])
@pytest.mark.parametrize(
    ("tool", "arguments"), CHANGES, ids=["overwrite", "append", "delete", "edit op", "edit"]
)
def test_an_intact_file_whose_kept_content_is_lost_can_be_changed_and_had_back(
    tools: Tools,
    content: str,
    damage: Callable[[Tools, str], None],
    tool: str,
    arguments: dict[str, Any],
) -> None:
    damage(tools, done(tools, "safe_write", path="a", content=content)["sha256"])

    done(tools, tool, **arguments)
    file = tools.workspace / "a"
    assert not file.exists() or "damaged" not in file.read_text()

    done(tools, "undo")
    assert file.read_text() == content


def large(tools: Tools, path: str = "large") -> Path:
    file = tools.workspace / path
    file.write_text(VERY_LARGE * (LARGE // len(VERY_LARGE) + 1))
    return file


def test_a_large_file_is_read_outside_the_lock(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    file = large(tools)
    begun, goes_on = threading.Event(), threading.Event()
    capture = planning.capture

    def slow(store: ContentStore, fd: int) -> planning.Captured:
        if os.fstat(fd).st_size >= LARGE:
            begun.set()
            assert goes_on.wait(30)
        return capture(store, fd)

    monkeypatch.setattr(planning, "capture", slow)
    call = {"path": "large", "content": "mine\n", "mode": "overwrite"}
    answers: list[tuple[bool, dict[str, Any]]] = []
    writer = threading.Thread(target=lambda: answers.append(tools.use("safe_write", call)))
    writer.start()
    assert begun.wait(30)
    done(tools, "safe_write", path="small", content="meanwhile\n")
    goes_on.set()
    writer.join(30)

    assert answers[0][0]
    assert file.read_text() == "mine\n"


def test_a_large_file_that_changed_after_it_was_read_is_read_again(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = large(tools)
    theirs = file.read_text() + "theirs\n"
    capture = planning.capture
    edits = iter([theirs])

    def edited_then(store: ContentStore, fd: int) -> planning.Captured:
        captured = capture(store, fd)
        for text in edits:
            file.write_text(text)
        return captured

    monkeypatch.setattr(planning, "capture", edited_then)
    written = done(tools, "safe_write", path="large", content="mine\n", mode="overwrite")

    assert written["prev_sha256"] == hashlib.sha256(theirs.encode()).hexdigest()
    done(tools, "undo")
    assert file.read_text() == theirs


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("edit", {"path": "large", "edits": [{"old": "x", "new": "y"}]}),
        ("transaction", {"ops": [{"op": "edit", "path": "large", "edits": [{"old": "x", "new": "y"}]}]}),
        ("read", {"path": "large"}),
    ],
)
def test_a_file_that_is_too_large_for_memory_is_refused_by_name(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
) -> None:
    large(tools)
    monkeypatch.setattr(planning, "MOST_IN_MEMORY", LARGE - 1)
    is_done, answer = tools.use(tool, arguments)
    assert not is_done
    assert (answer["context"]["reason"], answer["context"]["path"]) == ("too_large", "large")


def test_a_file_that_is_too_large_for_memory_can_be_overwritten_appended_to_and_had_back(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = large(tools)
    before = file.read_text()
    monkeypatch.setattr(planning, "MOST_IN_MEMORY", LARGE - 1)
    monkeypatch.setattr(write, "MOST_COMPARED", LARGE - 1)
    done(tools, "safe_write", path="large", content="more\n", mode="append")
    assert file.read_text() == before + "more\n"
    done(tools, "transaction", ops=[{"op": "write", "path": "large", "content": "x\n", "mode": "overwrite"}])
    done(tools, "undo", n=2)
    assert file.read_text() == before


def test_what_was_composed_of_chunks_that_are_gone_and_did_not_land_is_a_draft(tools: Tools) -> None:
    done(tools, "chunk_write", session="s", index=1, content="one\n")
    fault_points.arm("write.before_create=enospc")
    try:
        is_done, answer = tools.use("chunk_compose", {"session": "s", "output_path": "a", "cleanup": True})
    finally:
        fault_points.arm("")
    assert not is_done
    done(tools, "safe_write", path="a", draft=answer["draft"])
    assert (tools.workspace / "a").read_text() == "one\n"


@pytest.mark.parametrize("damage", [remove_blob, damage_blob, cut_blob])
def test_an_undo_merges_no_damaged_content(tools: Tools, damage: Callable[[Tools, str], None]) -> None:
    first = done(tools, "safe_write", path="a", content=LARGE_TEXT)["sha256"]
    done(tools, "safe_write", path="a", content=LARGE_TEXT + "mine\n", mode="overwrite")
    later = "theirs\n" + LARGE_TEXT + "mine\n"
    assert tools.use("safe_write", {"path": "a", "content": later, "mode": "overwrite"}, "other")[0]
    damage(tools, first)

    (conflict,) = done(tools, "undo")["conflicts"]
    assert conflict["reason"] in ("blob_missing", "blob_damaged", "content_damaged")
    assert (tools.workspace / "a").read_text() == later


def damage_journal_page(folder: str, sha256: str) -> None:
    """Damage the page of the database that holds a part of this content; a free page may hold the same."""
    path = os.path.join(folder, "journal.db")
    connection = apsw.Connection(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stored = connection.execute("SELECT data FROM contents WHERE sha = ?", (bytes.fromhex(sha256),)).get
    page_size = connection.pragma("page_size")
    connection.close()
    with open(path, "r+b") as file:
        for match in re.finditer(re.escape(stored[len(stored) // 2 :][:64]), file.read()):
            file.seek(match.start() // page_size * page_size)
            file.write(b"\xff" * 4)  # the number of the page that holds the next part


def test_a_journal_that_cannot_be_read_is_told_instead_of_a_stale_file(tools: Tools) -> None:
    text = "\n".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(1000))
    seen = done(tools, "safe_write", path="a", content=text)["sha256"]
    assert tools.use("safe_write", {"path": "a", "content": "theirs\n", "mode": "overwrite"}, "other")[0]
    folder = tools.service.folder
    tools.close()
    damage_journal_page(folder, seen)

    again = Tools(tools.workspace)
    is_done, answer = again.use("safe_write", {"path": "a", "content": "mine\n", "mode": "overwrite"})
    again.close()
    assert not is_done
    assert answer["context"]["reason"] == "journal_damaged"
    assert (tools.workspace / "a").read_text() == "theirs\n"
