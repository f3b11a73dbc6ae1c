"""The lines of an export that an import reads."""

from __future__ import annotations

from perdure.surfaces.state.transfer import Line, Skipped, json_lines


def test_lines_that_cannot_be_imported_are_skipped_with_the_reason() -> None:
    rows = list(
        json_lines(
            [
                b'{"key": "a", "value": "1"}\n',
                b"not JSON\n",
                b"\n",
                b'{"key": "b", "value": "1", "expires_at": "never"}\n',
            ]
        )
    )
    assert rows[1:] == [
        Skipped(2, "not a line of an export"),
        Skipped(4, "expires_at is not a time", "b"),
    ]
    assert isinstance(rows[0], Line)
