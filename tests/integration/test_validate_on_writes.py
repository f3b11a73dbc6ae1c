"""`validate`, and a check of form on every way to write: only what a write breaks is refused."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from write_tools import Tools

GOOD = '{"a": 1,\n "b": [1, 2]}\n'
BAD = '{"a": 1,\n "b": [1, 2}\n'
MODULE = "def f(x):\n    return x\n"

Result = dict[str, Any]


def broken(answer: tuple[bool, Result]) -> Result:
    is_done, found = answer
    assert not is_done, found
    assert (found["error"], found["reason_hint"], found["suggested_action"]) == (
        "blocked",
        "syntax",
        "fix_syntax",
    )
    assert found["context"]["reason"] == "breaks_syntax"
    return found


def test_the_tool_says_what_is_wrong_and_where(tools: Tools) -> None:
    _, found = tools.use("validate", {"content": BAD, "target_path": "a.json"})
    assert (found["valid"], found["format"], found["level"]) == (False, "json", "exact")
    assert found["errors"][0]["line"] == 2
    assert set(found["errors"][0]) == {"line", "col", "message", "severity"}
    assert "line 2" in found["summary"]
    _, found = tools.use("rw.validate", {"content": "def f(:\n", "format_hint": "python"})
    assert (found["valid"], found["format"]) == (False, "python")
    _, found = tools.use("validate", {"content": "hello there"})
    assert (found["valid"], found["format"], found["errors"]) == (None, "unknown", [])
    assert tools.use("validate", {})[1]["context"]["reason"] == "content_or_draft"


def test_a_draft_can_be_checked(tools: Tools) -> None:
    found = broken(tools.use("safe_write", {"path": "a.json", "content": BAD, "validate": "refuse"}))
    _, found = tools.use("validate", {"draft": found["draft"], "target_path": "a.json"})
    assert found["valid"] is False


def test_no_way_to_write_breaks_a_file(tools: Tools) -> None:
    tools.use("safe_write", {"path": "a.json", "content": GOOD})
    tools.use("chunk_write", {"session": "s", "index": 1, "content": BAD})
    edit = {"old": "2]}", "new": "2}"}
    ops = [
        {"op": "edit", "path": "a.json", "edits": [edit]},
        {"op": "write", "path": "b.txt", "content": "x"},
    ]
    ways: list[tuple[str, Result]] = [
        ("safe_write", {"path": "b.json", "content": BAD}),
        ("safe_write", {"path": "a.json", "content": BAD, "mode": "overwrite"}),
        ("safe_write", {"path": "a.json", "content": "]", "mode": "append"}),
        ("edit", {"path": "a.json", "edits": [edit]}),
        ("safe_replace", {"path": "a.json", "old_string": "2]}", "new_string": "2}"}),
        ("transaction", {"ops": ops}),
        ("chunk_compose", {"session": "s", "output_path": "b.json"}),
    ]
    for name, arguments in ways:
        found = broken(tools.use(name, {**arguments, "validate": "refuse"}))
        assert (found["draft"] is not None, found["context"]["format"]) == (True, "json"), name
        assert {one["line"] for one in found["context"]["errors"]} & {2, 3}, name
    assert (tools.workspace / "a.json").read_text() == GOOD
    assert sorted(p.name for p in tools.workspace.iterdir()) == ["a.json"]


def test_a_warning_writes_and_says_so(tools: Tools) -> None:
    is_done, found = tools.use("safe_write", {"path": "a.json", "content": BAD, "validate": "warn"})
    assert is_done
    assert found["warnings"][0].startswith("json, line 2, column ")
    is_done, found = tools.use("safe_write", {"path": "b.json", "content": BAD})
    assert (is_done, found["warnings"]) == (True, [])


def test_a_file_that_was_broken_may_stay_broken(tools: Tools) -> None:
    tools.use("safe_write", {"path": "m.py", "content": MODULE + "def g(:\n    pass\n"})
    arguments = {"path": "m.py", "validate": "refuse"}
    is_done, found = tools.use("edit", {**arguments, "edits": [{"old": "return x", "new": "return x + 1"}]})
    assert is_done
    assert "line 3" in found["warnings"][0]
    assert tools.use("edit", {**arguments, "edits": [{"old": "return x + 1", "new": "return x + 2"}]})[0]
    assert tools.use("edit", {**arguments, "edits": [{"old": "g(:", "new": "g():"}]})[0]


def test_a_grammar_refuses_only_in_a_file_that_it_could_read_before(tools: Tools) -> None:
    program = "int f(int a) {\n  return a;\n}\n"
    wrong = program.replace("return a", "return a +")
    is_done, found = tools.use("safe_write", {"path": "new.c", "content": wrong, "validate": "refuse"})
    assert is_done
    assert found["warnings"][0].startswith("c, line 2, column ")
    tools.use("safe_write", {"path": "a.c", "content": program})
    edit = {"edits": [{"old": "return a", "new": "return a +"}], "validate": "refuse"}
    assert broken(tools.use("edit", {"path": "a.c", **edit}))["context"]["format"] == "c"
    tools.use("safe_write", {"path": "macros.c", "content": program.replace("int f", "API int f")})
    is_done, found = tools.use("edit", {"path": "macros.c", **edit})
    assert is_done
    assert found["warnings"]


def test_markdown_gets_hints_and_is_never_refused(tools: Tools) -> None:
    tools.use("safe_write", {"path": "a.md", "content": "# a\n"})
    arguments = {"path": "a.md", "content": "# a\n\n```\nb\n", "mode": "overwrite", "validate": "refuse"}
    is_done, found = tools.use("safe_write", arguments)
    assert is_done
    assert found["warnings"] == ["markdown, line 3, column 1: the code fence opened here is never closed"]


def test_what_cannot_be_checked_is_written_and_said(tools: Tools) -> None:
    for path, content, encoding in (("a.xyz", "hello", "utf-8"), ("a.json", "AAEC/w==", "base64")):
        arguments = {"path": path, "content": content, "encoding": encoding, "validate": "refuse"}
        is_done, found = tools.use("safe_write", arguments)
        assert is_done
        assert found["warnings"][0].startswith("not validated: ")


def test_a_transaction_is_judged_by_what_it_ends_with(tools: Tools) -> None:
    tools.use("safe_write", {"path": "a.json", "content": GOOD})
    ops = [
        {"op": "edit", "path": "a.json", "edits": [{"old": "2]}", "new": "2}"}]},
        {"op": "edit", "path": "a.json", "edits": [{"old": "2}", "new": "2, 3]}"}]},
    ]
    assert tools.use("transaction", {"ops": ops, "validate": "refuse"})[0]
    assert (tools.workspace / "a.json").read_text() == GOOD.replace("2]", "2, 3]")


def test_a_slow_check_holds_nobody_up(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one write waits for its check, others are written."""
    began, released = threading.Event(), threading.Event()
    check = tools.service.checker.check

    def slow(content: str, **more: Any) -> Any:
        began.set()
        assert released.wait(60)
        return check(content, **more)

    monkeypatch.setattr(tools.service.checker, "check", slow)
    answers: list[tuple[bool, Result]] = []
    arguments = {"path": "m.py", "content": MODULE, "validate": "refuse"}
    thread = threading.Thread(target=lambda: answers.append(tools.use("safe_write", arguments)))
    thread.start()
    assert began.wait(60)
    assert tools.use("safe_write", {"path": "other.py", "content": MODULE})[0]
    released.set()
    thread.join(60)
    assert answers[0][0]


def test_a_file_that_changes_during_its_check_is_checked_again(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools.workspace / "a.json").write_text(GOOD)
    check = tools.service.checker.check
    changed: list[float] = []

    def meanwhile(content: str, **more: Any) -> Any:
        if not changed:
            changed.append(time.time())
            (tools.workspace / "a.json").write_text(GOOD.replace("1, 2", "1, 2, 2"))
        return check(content, **more)

    monkeypatch.setattr(tools.service.checker, "check", meanwhile)
    arguments = {"path": "a.json", "edits": [{"old": '"a": 1', "new": '"a": 5'}], "validate": "refuse"}
    assert tools.use("edit", arguments)[0]
    assert (tools.workspace / "a.json").read_text() == '{"a": 5,\n "b": [1, 2, 2]}\n'
