"""Two clients on one workspace: undo takes back one's own changes, and nobody's file is replaced in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from write_tools import Tools

from perdure.cli.main import main

ME, OTHER = "claude", "cursor"


def done(tools: Tools, agent: str, name: str, **arguments: Any) -> dict[str, Any]:
    is_done, answer = tools.use(name, arguments, agent)
    assert is_done, answer
    return answer


def refused(tools: Tools, agent: str, name: str, **arguments: Any) -> dict[str, Any]:
    is_done, answer = tools.use(name, arguments, agent)
    assert not is_done, answer
    return answer


@pytest.fixture
def theirs_is_newest(tools: Tools) -> Tools:
    done(tools, ME, "safe_write", path="mine", content="mine\n")
    done(tools, OTHER, "safe_write", path="theirs", content="theirs\n")
    return tools


def test_undo_takes_back_the_newest_change_of_its_own_session(theirs_is_newest: Tools) -> None:
    (reverted,) = done(theirs_is_newest, ME, "undo")["reverted"]
    assert (reverted["path"], reverted["client"], reverted["op"], reverted["undone"]) == (
        "mine",
        ME,
        "write",
        "1",
    )
    assert (theirs_is_newest.workspace / "theirs").exists()


def test_undo_of_any_session_says_whose_change_it_was(theirs_is_newest: Tools) -> None:
    (reverted,) = done(theirs_is_newest, ME, "undo", session="any")["reverted"]
    assert (reverted["path"], reverted["client"], reverted["session"]) == ("theirs", OTHER, OTHER)


@pytest.mark.parametrize("whose", [{"client": OTHER}, {"session": OTHER}, {"journal_id": "2"}])
def test_a_change_of_another_is_taken_back_where_the_call_names_it(
    theirs_is_newest: Tools, whose: dict[str, str]
) -> None:
    assert [one["path"] for one in done(theirs_is_newest, ME, "undo", **whose)["reverted"]] == ["theirs"]


def test_where_only_others_changed_something_the_refusal_says_how_to_take_that_back(tools: Tools) -> None:
    done(tools, OTHER, "safe_write", path="theirs", content="theirs\n")
    context = refused(tools, ME, "undo")["context"]
    assert context["reason"] == "nothing_to_undo"
    assert context["next"] == "undo session=any   (or journal_tail)"


def test_redo_takes_back_the_undo_of_its_own_session(theirs_is_newest: Tools) -> None:
    done(theirs_is_newest, ME, "undo")
    done(theirs_is_newest, OTHER, "undo")
    assert [one["path"] for one in done(theirs_is_newest, ME, "undo", redo=True)["reverted"]] == ["mine"]


@pytest.mark.parametrize("since", ["10m", "2h", "3d", "600s", "today"])
def test_since_takes_a_time_ago(theirs_is_newest: Tools, since: str) -> None:
    reverted = done(theirs_is_newest, ME, "undo", since=since, session="any", dry_run=True)["reverted"]
    assert [one["path"] for one in reverted] == ["theirs", "mine"]


def test_since_that_is_no_time_is_refused_with_examples(tools: Tools) -> None:
    assert "10m, 2h or today" in refused(tools, ME, "undo", since="a while")["context"]["message"]


def test_the_command_takes_back_the_newest_change_whoever_made_it(
    theirs_is_newest: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs_is_newest.close()
    assert main(["undo", "--workspace", str(theirs_is_newest.workspace)]) == 0
    assert OTHER in capsys.readouterr().out
    assert not (theirs_is_newest.workspace / "theirs").exists()


# --- files that the session has not read ---------------------------------------------------------------------


def test_overwriting_a_file_that_the_session_has_not_read_says_so(tools: Tools) -> None:
    (tools.workspace / "a").write_text("theirs...")
    written = done(tools, ME, "safe_write", path="a", content="mine\n", mode="overwrite")
    assert written["warnings"] == [
        "replaced 9 bytes of a that this session had not read; undo gives them back"
    ]
    assert done(tools, ME, "safe_write", path="a", content="again\n", mode="overwrite")["warnings"] == []


def test_a_file_that_was_read_or_whose_hash_is_given_is_overwritten_without_a_word(tools: Tools) -> None:
    for path in ("a", "b"):
        (tools.workspace / path).write_text("theirs")
    sha256 = done(tools, ME, "read", path="a")["sha256"]
    assert done(tools, ME, "safe_write", path="a", content="x", mode="overwrite")["warnings"] == []
    overwritten = done(
        tools, ME, "safe_write", path="b", content="x", mode="overwrite", expected_prev_sha256=sha256
    )
    assert overwritten["warnings"] == []


def test_a_transaction_says_which_file_it_replaced_unread(tools: Tools) -> None:
    for path in ("a", "b"):
        (tools.workspace / path).write_text("theirs")
    sha256 = done(tools, OTHER, "read", path="b")["sha256"]
    ops = [{"op": "write", "path": path, "content": "mine", "mode": "overwrite"} for path in ("a", "b")]
    (warning,) = done(tools, ME, "transaction", ops=ops, expected={"b": sha256})["warnings"]
    assert "6 bytes of a " in warning


@pytest.mark.parametrize("unseen", ["refuse", "allow"])
def test_the_policy_decides_about_unread_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen: str
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    (tmp_path / "policy.yaml").write_text(f"version: 1\nunseen: {unseen}\n")
    (tmp_path / "work" / "a").write_text("theirs")
    tools = Tools(tmp_path / "work", policy=tmp_path / "policy.yaml")
    call: dict[str, Any] = {"path": "a", "content": "mine", "mode": "overwrite"}
    try:
        if unseen == "allow":
            assert done(tools, ME, "safe_write", **call)["warnings"] == []
        else:
            assert refused(tools, ME, "safe_write", **call)["context"]["reason"] == "unseen"
            assert (tmp_path / "work" / "a").read_text() == "theirs"
            done(tools, ME, "read", path="a")
            done(tools, ME, "safe_write", **call)
    finally:
        tools.close()


def test_chunks_are_composed_over_a_file_only_where_the_call_says_overwrite(tools: Tools) -> None:
    (tools.workspace / "a").write_text("theirs")
    done(tools, ME, "chunk_write", session="s", index=1, content="mine")

    failed = refused(tools, ME, "chunk_compose", session="s", output_path="a")
    assert failed["context"]["reason"] == "file_already_exists"
    assert (tools.workspace / "a").read_text() == "theirs"

    composed = done(tools, ME, "chunk_compose", session="s", output_path="a", mode="overwrite")
    assert "had not read" in composed["warnings"][0]
    assert (tools.workspace / "a").read_text() == "mine"
