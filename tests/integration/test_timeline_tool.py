"""`timeline`: changes of calls, of Perdure's own tools and of other programs, selected and paged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from write_tools import Tools

from perdure.storage.journal import Journal
from perdure.storage.timeline import NotCovered
from perdure.surfaces.write import timeline
from recorded_calls import Effect, record, record_other_program


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    made = Tools(tmp_path / "work")
    yield made
    made.close()


@pytest.fixture
def journal(tools: Tools) -> Journal:
    return tools.service.journal


def ask(tools: Tools, **given: Any) -> dict[str, Any]:
    is_ok, payload = tools.use("timeline", given)
    assert is_ok, payload
    return payload


def ids(tools: Tools, **given: Any) -> list[str]:
    return [change["id"] for change in ask(tools, **given)["changes"]]


def test_a_recorded_call_has_its_author_its_command_and_its_lines(tools: Tools, journal: Journal) -> None:
    first, _ = record(
        journal,
        Effect("src/a.py", b"1\n2\n", b"1\n3\n4\n"),
        Effect("b.txt", b"x\n", None),
        agent="tester",
        turn=2,
        command="make fix",
        call_id="call_9",
    )
    [change] = ask(tools)["changes"]
    assert change.pop("ts").endswith("Z")
    assert change.pop("transaction_id") == first.txn
    assert change == {
        "id": str(first.seq),
        "client": "claude-code",
        "session": "s1",
        "agent": "tester",
        "turn": 2,
        "tool": "Bash",
        "call_id": "call_9",
        "command": "make fix",
        "status": "done",
        "files": 2,
        "added": 2,
        "removed": 2,
        "paths": ["src/a.py", "b.txt"],
    }


def test_changes_of_perdures_own_tools_are_in_it_with_the_lines_that_they_changed(tools: Tools) -> None:
    tools.use("safe_write", {"path": "a", "content": "1\n2\n"})
    tools.use("edit", {"path": "a", "edits": [{"old": "2", "new": "two\nthree"}]})
    moved = {"op": "move", "path": "a", "to": "b"}
    tools.use("transaction", {"ops": [moved, {"op": "write", "path": "c", "content": "c\n"}]})
    tools.use("safe_write", {"path": "nul", "content": "AAA=", "encoding": "base64"})
    tools.use("safe_write", {"path": "large", "content": "x\n" * (1 << 19) + "y"})
    shown = [
        (change["tool"], change["files"], change["added"], change["removed"], change["paths"])
        for change in ask(tools)["changes"]
    ]
    assert shown == [
        ("safe_write", 1, 2, 0, ["a"]),
        ("edit", 1, 2, 1, ["a"]),
        ("transaction", 2, 1, 0, ["b", "c"]),
        ("safe_write", 1, 0, 0, ["nul"]),
        ("safe_write", 1, None, None, ["large"]),
    ]


def test_lines_are_counted_of_the_newest_changes_first_and_no_more_than_a_bound(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MOST_COMPARED", 10)
    for path in ("a", "b", "c"):
        tools.use("safe_write", {"path": path, "content": "1\n2\n"})
    assert [change["added"] for change in ask(tools)["changes"]] == [None, 2, 2]


def test_the_newest_page_comes_first_and_the_cursor_leads_to_older_ones(
    tools: Tools, journal: Journal
) -> None:
    made = [str(record(journal, Effect(f"f{n}", None, b"x\n"))[0].seq) for n in range(7)]
    page = ask(tools, n=3)
    assert [change["id"] for change in page["changes"]] == made[4:]
    page = ask(tools, n=3, cursor=page["next_cursor"])
    assert [change["id"] for change in page["changes"]] == made[1:4]
    last = ask(tools, n=3, cursor=page["next_cursor"])
    assert [change["id"] for change in last["changes"]] == made[:1]
    assert "next_cursor" not in last
    is_ok, refused = tools.use("timeline", {"cursor": "x"})
    assert (is_ok, refused["error"]) == (False, "invalid_input")


def test_every_filter_selects(tools: Tools, journal: Journal) -> None:
    def one(path: str, **who: Any) -> str:
        return str(record(journal, Effect(path, None, b"x\n"), **who)[0].seq)

    first = one("src/a", session="s1", turn=1)
    second = one("src/b", session="s1", turn=2, agent="tester")
    third = one("docs/a", session="s2", turn=1, client="codex")
    other = str(record_other_program(journal, Effect("notes", None, b"x\n"))[0].seq)
    assert ids(tools) == [first, second, third, other]
    assert ids(tools, agent="tester") == [second]
    assert ids(tools, session="s1") == [first, second]
    assert ids(tools, session="any") == [first, second, third, other]
    assert ids(tools, client="codex") == [third]
    assert ids(tools, client="another program") == [other]
    assert ids(tools, turn=1, session="s1") == [first]
    assert ids(tools, path="src") == [first, second]
    assert ids(tools, path="src/") == [first, second]
    assert ids(tools, path="src/b") == [second]
    assert ids(tools, path=".") == [first, second, third, other]
    assert ids(tools, path=str(tools.workspace / "src")) == [first, second]
    assert ids(tools, since="1h") == [first, second, third, other]
    assert ids(tools, since="2999-01-01T00:00Z") == []
    for wrong in ({"since": "soon"}, {"path": "../x"}, {"turn": 0}):
        assert tools.use("timeline", wrong)[0] is False


def test_a_turn_without_a_session_is_one_of_the_newest_session_that_has_turns(
    tools: Tools, journal: Journal
) -> None:
    record(journal, Effect("a", None, b"x\n"), session="s1", turn=1)
    newest = record(journal, Effect("b", None, b"x\n"), session="s2", turn=1)
    record_other_program(journal, Effect("c", None, b"x\n"))
    payload = ask(tools, turn=1)
    assert payload["session"] == "s2"
    assert [change["id"] for change in payload["changes"]] == [str(newest[0].seq)]
    assert ids(tools, turn=2) == []


def test_the_status_says_whether_a_call_ended_and_whether_its_change_still_holds(
    tools: Tools, journal: Journal
) -> None:
    for path, status in (("a", "done"), ("b", "unfinished"), ("c", "late"), ("d", "open")):
        (tools.workspace / path).write_bytes(b"x\n")
        record(journal, Effect(path, None, b"x\n"), status=status)  # type: ignore[arg-type]
    assert [change["status"] for change in ask(tools)["changes"]] == [
        "done",
        "unfinished",
        "late",
        "unfinished",
    ]
    is_ok, undone = tools.use("undo", {"journal_id": "1"})
    assert is_ok, undone
    changes = ask(tools)["changes"]
    assert [(change["tool"], change["status"]) for change in changes][::4] == [
        ("Bash", "undone"),
        ("undo", "done"),
    ]
    tools.use("undo", {"redo": True})
    assert ask(tools)["changes"][0]["status"] == "done"


def test_of_many_files_all_are_counted_and_some_are_named(tools: Tools, journal: Journal) -> None:
    record(
        journal,
        Effect("many", None, b"", {"kind": "directory"}),
        *(Effect(f"many/{n:04}.txt", None, b"x\n") for n in range(1000)),
    )
    [change] = ask(tools)["changes"]
    assert (change["files"], change["added"], change["removed"]) == (1000, 1000, 0)
    assert change["paths"] == [f"many/{n:04}.txt" for n in range(100)]
    assert change["more_paths"] == 900


def test_a_link_and_an_empty_directory_are_named(tools: Tools, journal: Journal) -> None:
    record(journal, Effect("to", None, b"src/a", {"kind": "link"}))
    record(journal, Effect("empty", None, b"", {"kind": "directory"}))
    assert [(change["files"], change["paths"]) for change in ask(tools)["changes"]] == [
        (1, ["to"]),
        (0, ["empty"]),
    ]


def test_what_is_not_covered_is_said_with_counts(tools: Tools, journal: Journal) -> None:
    places = [NotCovered("node_modules", "dependencies", 2310), NotCovered("pipe", "special")]
    journal.transact(lambda: journal.set_not_covered(places))
    assert ask(tools)["not_covered"] == [
        {"path": "node_modules", "reason": "dependencies", "files": 2310},
        {"path": "pipe", "reason": "special", "files": None},
    ]
    shown = tools.show("timeline", {"render": "porcelain", "detail": "concise"})[1]
    assert "not_covered: dependencies 2,310 files | special 1 place" in shown


def test_a_reader_sees_who_did_what_on_one_line(tools: Tools, journal: Journal) -> None:
    effects = [Effect(f"f{n}", None, b"x\n") for n in range(5)]
    record(journal, *effects, turn=3, command="touch f{0..4}")
    shown = tools.show("timeline", {"render": "porcelain", "detail": "concise"})[1].splitlines()
    assert shown[0] == "1 change"
    assert shown[1] == "id | ts | client | turn | tool | command | status | files | added | removed | paths"
    assert shown[2].endswith("| 3 | Bash | touch f{0..4} | done | 5 | 5 | 0 | f0, f1, f2, …")
