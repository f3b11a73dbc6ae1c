"""The rows of a change, folded: what became of each file."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from perdure.storage.journal import Row
from perdure.workspace.changed_files import fold

EMPTY = sha256(b"").digest()


def row(seq: int, path: str, old: str | None, new: str | None, **detail: Any) -> Row:
    return Row(
        seq=seq,
        ts=seq,
        path=path,
        op="native",
        mode="overwrite",
        old_sha=old.encode() if old is not None else None,
        new_sha=new.encode() if new is not None else None,
        bytes=1,
        client="c",
        session="s",
        key=None,
        txn="t",
        undoes=None,
        detail=detail,
    )


def ops(*rows: Row) -> list[tuple[str, str]]:
    return [(file.op, file.path) for file in fold(rows)]


def test_each_file_has_the_op_that_describes_all_of_its_rows() -> None:
    assert ops(
        row(1, "new", None, "a"),
        row(2, "changed", "a", "b"),
        row(3, "gone", "a", None),
        row(4, "script", "a", "a", file_mode=0o755, mode_before=0o644),
        row(5, "new", "a", "b"),
        row(6, "link", None, "to", kind="link"),
        row(7, "passing", None, "a"),
        row(8, "passing", "a", None),
    ) == [
        ("create", "new"),
        ("change", "changed"),
        ("delete", "gone"),
        ("mode", "script"),
        ("link", "link"),
        ("delete", "passing"),
    ]
    [file] = fold([row(1, "a", "1", "2"), row(2, "a", "2", "3")])
    assert (file.old_sha, file.new_sha) == (b"1", b"3")


def test_a_move_is_one_file_with_its_old_path_and_content() -> None:
    [file] = fold(
        [
            row(1, "b", None, "x", moved_from="a", file_mode=0o755),
            row(2, "a", "x", None, moved_to="b", file_mode=0o644),
        ]
    )
    assert (file.op, file.path, file.source, file.old_sha) == ("rename", "b", "a", b"x")
    assert (file.git_mode_before, file.git_mode) == (0o100644, 0o100755)


def test_what_took_the_place_of_a_moved_file_is_a_change_of_its_own() -> None:
    moved = [row(1, "b", None, "x", moved_from="a"), row(2, "a", "x", None, moved_to="b")]
    assert ops(*moved, row(3, "a", None, "y")) == [("rename", "b"), ("change", "a")]


def test_half_a_move_is_what_it_looks_like() -> None:
    assert ops(row(1, "b", None, "x", moved_from="a")) == [("create", "b")]
    assert ops(row(2, "a", "x", None, moved_to="b")) == [("delete", "a")]


def test_a_directory_counts_only_where_no_file_tells_of_it() -> None:
    folder = {"kind": "directory"}
    assert ops(
        row(1, "src", None, "", **folder), row(2, "src/a", None, "x"), row(3, "empty", None, "", **folder)
    ) == [("create", "src/a"), ("create", "empty")]
    assert ops(
        row(1, "src/deep/a", "x", None),
        row(2, "src/deep", "", None, **folder),
        row(3, "src", "", None, **folder),
    ) == [("delete", "src/deep/a")]
    mode = row(1, "src", "", "", kind="directory", file_mode=0o700, mode_before=0o755)
    assert ops(mode, row(2, "src/a", None, "x")) == [("mode", "src"), ("create", "src/a")]


def test_modes_are_those_of_git() -> None:
    [script, link, gone] = fold(
        [
            row(1, "script", "a", "a", file_mode=0o755, mode_before=0o644),
            row(2, "link", "x", "to", kind="link", kind_before="file"),
            row(3, "gone", "x", None, file_mode=0o600),
        ]
    )
    assert (script.git_mode_before, script.git_mode) == (0o100644, 0o100755)
    assert (link.git_mode_before, link.git_mode) == (None, 0o120000)
    assert (gone.git_mode_before, gone.git_mode) == (0o100600, None)
