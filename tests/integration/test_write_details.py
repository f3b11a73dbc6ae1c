"""The write tools in the details that a caller meets: names, modes, encodings, what is kept of what was refused."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from write_tools import Tools

from perdure.platform import fault_points
from perdure.protocol.calls import Call
from perdure.workspace.paths.roots import Roots

Result = dict[str, Any]
WHOLE = "def a():\n    pass\n\nb = 1\n"
ELIDED = WHOLE.replace("b = 1", "# ... rest of the code unchanged ...")
EDIT = {"old": "b = 1", "new": "# ... rest of the code unchanged ..."}
PATCH = "@@ -4 +4 @@\n-b = 1\n+# ... rest of the code unchanged ...\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    found = Tools(tmp_path / "one", others=(tmp_path / "two",))
    yield found
    found.close()


@pytest.fixture
def here(tools: Tools) -> Path:
    return tools.workspace


def done(tools: Tools, tool: str, **arguments: Any) -> Result:
    is_done, found = tools.use(tool, arguments)
    assert is_done, found
    return found


def refused(tools: Tools, tool: str, **arguments: Any) -> Result:
    is_done, found = tools.use(tool, arguments)
    assert not is_done, found
    return found


def written(tools: Tools, *ops: Result) -> Result:
    return done(tools, "transaction", ops=list(ops))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


# --- a root beside the first -----------------------------------------------------------------------------------


def test_a_file_of_another_root_has_one_name_however_it_is_given(tools: Tools, tmp_path: Path) -> None:
    outer = tmp_path / "two"
    done(tools, "safe_write", path=str(outer / "a"), content="1\n")
    done(tools, "safe_write", path=f"file://{outer}/a", content="2\n", mode="overwrite")
    for name in (str(outer / "a"), "@1/a"):
        rows = done(tools, "journal_tail", filter_path=name)["entries"]
        assert [row["path"] for row in rows] == ["@1/a", "@1/a"]
    done(tools, "undo", path=str(outer / "a"))
    assert (outer / "a").read_text() == "1\n"


def test_no_error_names_the_folders_of_the_host(tools: Tools, tmp_path: Path) -> None:
    target = str(tmp_path / "two" / "a")
    done(tools, "safe_write", path=target, content="1\n")
    for tool, arguments in (
        ("safe_write", {"path": target, "content": "2\n"}),
        ("transaction", {"ops": [{"op": "write", "path": target, "content": "2\n"}]}),
        ("transaction", {"ops": [{"op": "delete", "path": target + "b"}]}),
        ("edit", {"path": target + "b", "edits": [{"old": "a", "new": "b"}]}),
        ("read", {"path": target + "b"}),
        ("restore", {"path": target, "journal_id": "99"}),
    ):
        assert str(tmp_path) not in repr(refused(tools, tool, **arguments))


# --- identities ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["9" * 30, "9" * 5000, "-1", "1.0", "٣", "", "x"])
def test_a_number_that_was_never_given_out_is_no_surprise(tools: Tools, given: str) -> None:
    done(tools, "safe_write", path="a", content="1\n")
    answers = [
        refused(tools, "restore", path="a", journal_id=given),
        refused(tools, "diff", path="a", **{"from": given}),
        refused(tools, "diff", path="a", to=given),
        refused(tools, "undo", journal_id=given),
        refused(tools, "journal_tail", cursor=given),
    ]
    assert [answer["error"] for answer in answers] == ["not_found"] * 4 + ["invalid_input"]


def test_a_mode_that_no_row_can_have_is_refused(tools: Tools) -> None:
    answer = refused(tools, "journal_tail", filter_mode="bogus")
    assert (answer["error"], "replace" in answer["context"]["choices"]) == ("invalid_input", True)


@pytest.mark.parametrize("key", ["", "k" * 513])
def test_an_idempotency_key_is_neither_empty_nor_endless(tools: Tools, here: Path, key: str) -> None:
    answer = refused(tools, "safe_write", path="a", content="1\n", idempotency_key=key)
    assert (answer["error"], (here / "a").exists()) == ("invalid_input", False)


def test_a_link_leads_to_the_rows_of_its_file(tools: Tools, here: Path) -> None:
    done(tools, "safe_write", path="a", content="1\n")
    (here / "link").symlink_to("a")
    assert len(done(tools, "journal_tail", filter_path="link")["entries"]) == 1
    done(tools, "undo", path="link")
    assert not (here / "a").exists()


def test_what_a_file_was_can_be_asked_whatever_stands_at_its_name_now(tools: Tools, here: Path) -> None:
    for name in ("linked", "folder", "gone"):
        done(tools, "safe_write", path=name, content="1\n")
    os.link(here / "linked", here / "another")
    for name in ("folder", "gone"):
        (here / name).unlink()
    (here / "folder").mkdir()
    for name in ("linked", "folder", "gone"):
        assert len(done(tools, "history", path=name)["versions"]) == 1
        assert len(done(tools, "journal_tail", filter_path=name)["entries"]) == 1


def test_a_preview_names_no_rows_that_do_not_exist(tools: Tools) -> None:
    done(tools, "safe_write", path="a", content="1\n")
    preview = done(tools, "undo", dry_run=True)
    assert [one["journal_id"] for one in preview["reverted"]] == [None]


# --- bringing back ---------------------------------------------------------------------------------------------


def test_a_deleted_file_comes_back_with_its_mode(tools: Tools, here: Path) -> None:
    made = done(tools, "safe_write", path="run", content="#!/bin/sh\n")
    (here / "run").chmod(0o750)
    written(tools, {"op": "delete", "path": "run"})
    restored = done(tools, "restore", path="run", journal_id=made["journal_id"])
    assert (restored["mode_applied"], mode_of(here / "run")) == ("create", 0o750)


def test_a_version_in_which_the_file_was_gone_is_restored_by_removing_it(tools: Tools, here: Path) -> None:
    done(tools, "safe_write", path="a", content="1\n")
    gone = written(tools, {"op": "delete", "path": "a"})["files"][0]["journal_id"]
    done(tools, "safe_write", path="a", content="2\n")
    assert done(tools, "restore", path="a", journal_id=gone)["mode_applied"] == "delete"
    assert not (here / "a").exists()
    assert refused(tools, "restore", path="a", journal_id=gone)["error"] == "not_found"


def test_what_was_forced_once_can_be_restored(tools: Tools, here: Path) -> None:
    made = done(tools, "safe_write", path=".envrc", content="export A=1\n", force=True)
    done(tools, "safe_write", path=".envrc", content="export A=2\n", mode="overwrite", force=True)
    done(tools, "restore", path=".envrc", journal_id=made["journal_id"])
    assert (here / ".envrc").read_text() == "export A=1\n"


# --- patches ---------------------------------------------------------------------------------------------------


def test_a_patch_changes_modes_and_undo_changes_them_back(tools: Tools, here: Path) -> None:
    (here / "run").write_text("echo\n")
    (here / "run").chmod(0o640)
    patch = (
        "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
        "diff --git a/new b/new\nnew file mode 100755\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+echo\n"
    )
    written(tools, {"op": "patch", "path": "run", "patch": patch})
    assert [mode_of(here / name) for name in ("run", "new")] == [0o750, 0o755]
    done(tools, "undo")
    assert (mode_of(here / "run"), (here / "new").exists()) == (0o640, False)
    done(tools, "undo", redo=True)
    assert [mode_of(here / name) for name in ("run", "new")] == [0o750, 0o755]


def test_a_binary_file_is_renamed_by_a_patch_without_being_read_as_text(tools: Tools, here: Path) -> None:
    (here / "a.bin").write_bytes(b"\0\1\2")
    patch = "diff --git a/a.bin b/b.bin\nsimilarity index 100%\nrename from a.bin\nrename to b.bin\n"
    files = written(tools, {"op": "patch", "path": "a.bin", "patch": patch})["files"]
    assert [(file["path"], file["op"]) for file in files] == [("b.bin", "move"), ("a.bin", "move")]
    assert (here / "b.bin").read_bytes() == b"\0\1\2"


def test_a_diff_made_by_a_library_is_for_the_path_it_comes_with(tools: Tools, here: Path) -> None:
    before, after = ["1\n", "2\n"], ["1\n", "two\n"]
    (here / "a").write_text("".join(before))
    patch = "".join(difflib.unified_diff(before, after))
    written(tools, {"op": "patch", "path": "a", "patch": patch})
    assert (here / "a").read_text() == "1\ntwo\n"


# --- what is kept of what was refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("safe_write", {"path": "a", "content": ELIDED, "mode": "overwrite"}),
        ("edit", {"path": "a", "edits": [EDIT]}),
        ("transaction", {"ops": [{"op": "edit", "path": "a", "edits": [EDIT]}]}),
        ("transaction", {"ops": [{"op": "patch", "path": "a", "patch": PATCH}]}),
        ("transaction", {"ops": [{"op": "write", "path": "a", "content": ELIDED, "mode": "overwrite"}]}),
    ],
)
def test_elided_content_is_refused_and_kept_by_every_way_to_write(
    tools: Tools, here: Path, tool: str, arguments: Result
) -> None:
    (here / "a").write_text(WHOLE)
    answer = refused(tools, tool, **arguments)
    assert (answer["error"], answer["context"]["reason"]) == ("blocked", "elided_content")
    assert (here / "a").read_text() == WHOLE
    done(tools, "safe_write", path="b", draft=answer["draft"], force=True)
    assert (here / "b").read_text() == ELIDED
    done(tools, tool, **arguments, force=True)
    assert (here / "a").read_text() == ELIDED


def test_all_that_a_refused_transaction_brought_is_kept(tools: Tools, here: Path) -> None:
    (here / "taken").write_text("theirs\n")
    ops = [{"op": "write", "path": name, "content": f"for {name}\n"} for name in ("a", "taken", "b")]
    answer = refused(tools, "transaction", ops=ops)
    assert (answer["context"]["operation"], answer["retry_budget"]) == (1, 3)
    drafts = answer["context"]["drafts"]
    assert [one["operation"] for one in drafts] == [0, 1, 2]
    assert drafts[1]["draft"] == answer["draft"]
    written(
        tools,
        *({"op": "write", "path": f"{one['operation']}", "draft": one["draft"]} for one in drafts),
    )
    assert [(here / name).read_text() for name in "012"] == ["for a\n", "for taken\n", "for b\n"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"content": "5 €\n", "encoding": "latin-1"},
        {"content": "5 €\n", "expected_prev_sha256": "no hash"},
        {"content": "5 €\n", "idempotency_key": "used"},
    ],
)
def test_a_payload_with_unfit_arguments_is_kept_and_its_tries_are_not_counted(
    tools: Tools, here: Path, arguments: Result
) -> None:
    done(tools, "safe_write", path="other", content="x\n", idempotency_key="used")
    answers = [refused(tools, "safe_write", path="a", **arguments) for _ in range(6)]
    assert len({answer["error"] for answer in answers[:4]}) == 1
    if arguments.get("idempotency_key") is None:
        assert {answer["error"] for answer in answers} == {"invalid_input"}
    done(tools, "safe_write", path="a", draft=answers[0]["draft"])
    assert (here / "a").read_text() == "5 €\n"


def test_a_disk_that_fails_under_a_large_payload_is_told_every_time(tools: Tools) -> None:
    fault_points.arm("blob.chunk=eio")
    try:
        answers = [
            refused(tools, "safe_write", path=f"{n}", content="a line of many\n" * 20_000) for n in range(6)
        ]
    finally:
        fault_points.arm("")
    assert {answer["context"]["reason"] for answer in answers} == {"io_error"}


def test_tries_are_counted_anew_once_the_content_was_written(tools: Tools, here: Path) -> None:
    (here / "a").write_text("theirs\n")
    for _ in range(5):
        answer = refused(tools, "safe_write", path="a", content="mine\n")
    assert answer["error"] == "quota_exceeded"
    done(tools, "safe_write", path="a", content="mine\n", mode="overwrite")
    assert refused(tools, "safe_write", path="a", content="mine\n")["retry_budget"] == 3


def test_a_lost_call_that_the_host_makes_again_is_one_try(
    tools: Tools, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "a").write_text("theirs\n")
    made = tools._call
    keys = iter(("k1", "k1", "k1", "k2", "k2"))

    def keyed(client: str) -> Call:
        call: Any = made(client)
        call.invocation_key = next(keys)
        return call

    monkeypatch.setattr(tools, "_call", keyed)
    answers = [refused(tools, "safe_write", path="a", content="mine\n") for _ in range(5)]
    assert [answer["retry_budget"] for answer in answers] == [3, 3, 3, 2, 2]


# --- encodings -------------------------------------------------------------------------------------------------


def test_a_draft_is_appended_in_the_encoding_of_the_file(tools: Tools, here: Path) -> None:
    (here / "a").write_bytes("one\r\n".encode("utf-16"))
    draft = refused(tools, "safe_write", path="a", content="é\n")["draft"]
    done(tools, "safe_write", path="a", draft=draft, mode="append")
    assert (here / "a").read_bytes() == "one\r\né\r\n".encode("utf-16")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_text_is_not_appended_to_a_file_whose_encoding_nobody_can_tell(
    tools: Tools, here: Path, encoding: str
) -> None:
    before = "one\ntwo\n".encode(encoding)
    (here / "a").write_bytes(before)
    answer = refused(tools, "safe_write", path="a", content="three\n", mode="append")
    assert (answer["error"], answer["reason_hint"]) == ("invalid_input", "encoding")
    assert (here / "a").read_bytes() == before
    done(tools, "safe_write", path="a", content="AAE=", encoding="base64", mode="append")
    assert (here / "a").read_bytes() == before + b"\0\1"


def test_base64_has_no_lines_to_choose_from(tools: Tools, here: Path) -> None:
    (here / "a").write_bytes(b"\0\1")
    assert refused(tools, "read", path="a", encoding="base64", start_line=1)["error"] == "invalid_input"


# --- sums ------------------------------------------------------------------------------------------------------


def test_a_write_that_did_not_land_is_in_no_sum(tools: Tools, here: Path) -> None:
    fault_points.arm("write.before_create=enospc")
    try:
        refused(tools, "safe_write", path="a", content="1\n")
    finally:
        fault_points.arm("")
    empty = done(tools, "analytics")
    assert (empty["total_writes"], empty["period"]["first_entry"]) == (0, None)
    assert (empty["period"]["last_entry"], empty["write_velocity"]["peak_minute"]) == (None, None)
    made = done(tools, "safe_write", path="b", content="22\n")
    sums = done(tools, "analytics")
    assert (sums["total_writes"], sums["by_mode"], sums["total_bytes_written"]) == (1, {"create": 1}, 3)
    assert sums["period"]["first_entry"] == sums["period"]["last_entry"] == made["wrote_at"]


# --- the program's own files --------------------------------------------------------------------------------------


def test_a_part_that_could_not_be_loaded_once_is_loaded_by_the_next_call(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system fails while a module is looked for: Python then takes its folder for none."""
    (tmp_path / "late_part.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.path_importer_cache, str(tmp_path), None)
    anchored = Roots.anchored

    def loading(self: Roots, path: str) -> str:
        importlib.import_module("late_part")
        return anchored(self, path)

    monkeypatch.setattr(Roots, "anchored", loading)
    answer = refused(tools, "safe_write", path="a", content="1\n")
    assert (answer["context"]["reason"], answer["suggested_action"]) == ("not_loaded", "retry_later")
    done(tools, "safe_write", path="a", content="1\n")
