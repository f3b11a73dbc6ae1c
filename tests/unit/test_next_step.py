"""A next step is written and read back as the same call, and repeats nothing of a call that could be content."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.protocol.next_step import (
    FILL,
    Question,
    ToolCall,
    ask_user,
    call_again,
    call_tool,
    complete,
    either,
    parse,
)

VALUES = st.text() | st.integers(-(2**53), 2**53) | st.booleans() | st.lists(st.text(), max_size=3)


def test_a_call_is_quoted_as_in_a_shell() -> None:
    line = call_tool("diff", path="my file.py", from_="12", n=3, edits=[{"old": "a b"}], content=FILL)
    assert line == """diff path='my file.py' from=12 n:=3 edits:='[{"old":"a b"}]' content=..."""
    assert parse(line) == ToolCall(
        "diff", {"path": "my file.py", "from": "12", "n": 3, "edits": [{"old": "a b"}], "content": "..."}
    )


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), VALUES, max_size=4))
def test_any_call_is_one_line_and_read_back(arguments: dict[str, object]) -> None:
    line = either(call_tool("tool", **arguments), "don't")
    assert line.isprintable()
    assert parse(line) == ToolCall("tool", arguments)


def test_alternatives_stand_after_three_spaces_and_a_question_is_for_the_user() -> None:
    line = either(call_tool("edit", path="(a)"), call_tool("read", path="a"), "give up")
    assert line == "edit path='(a)'   (or read path=a; or give up)"
    assert parse(line) == ToolCall("edit", {"path": "(a)"})
    assert parse(ask_user("whether it's meant")) == Question("whether it's meant")


@pytest.mark.parametrize("line", ["", "read path", "read 'path=a", "read n:=x"])
def test_what_is_no_step_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parse(line)


def test_the_failed_call_is_repeated_with_what_changes() -> None:
    sent = {
        "path": "a b",
        "content": "the whole text",
        "mode": "create",
        "force": True,
        "idempotency_key": "k",
    }
    assert complete(call_again(mode="overwrite"), "safe_write", sent, "d_1") == (
        "safe_write path='a b' mode=overwrite force:=true draft=d_1"
    )
    assert complete(call_again(content=FILL, force=None), "safe_write", sent, "d_1") == (
        "safe_write path='a b' mode=create content=..."
    )
    assert complete("read path=x", "safe_write", sent) == "read path=x"


def test_text_that_might_be_content_is_not_repeated() -> None:
    sent = {"old_string": "SECRET", "edits": ["SECRET"], "path": "x" * 300, "unknown": "SECRET"}
    assert complete(either(call_again(), "stop"), "edit", sent) == (
        "edit old_string=... edits=... path=... unknown=...   (or stop)"
    )
