"""The risk of contents of any size, and of what a change adds to one."""

from __future__ import annotations

import pytest

from perdure import risk
from perdure.risk import DEFAULT
from perdure.surfaces.write import screening

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zB9dF1hJ3lN5"
OTHER = "ghp_" + "zY2xW4vU6tS8rQ1pO3nM5lK7jI9hG2fE4dC6"
LINE = "the quick brown fox jumps over the lazy dog\n"


def test_a_secret_in_a_large_content_is_found_once_with_its_line() -> None:
    data = (LINE * 60_000 + f"key: {TOKEN}\n" + LINE * 60_000).encode()
    assert len(data) > 4 * screening.WINDOW
    report = screening.whole([data[i : i + 70_000] for i in range(0, len(data), 70_000)], DEFAULT)
    assert [(one.rule, one.line, one.column) for one in report.findings] == [("ghp", 60_001, 6)]
    assert (report.verdict, report.total) == ("high", 1)
    assert (report.bytes, report.line_count) == (len(data), 120_001)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_the_longest_line_of_a_content_in_pieces_is_that_of_the_whole(step: int) -> None:
    for content in ("é\nabc\n\nlåst", "one line", "", "\n\n", "ab\ncdéfg\n", "a\n" + "b" * 20):
        data = content.encode()
        pieces = [data[at : at + step] for at in range(0, len(data), step)]
        assert screening.longest_line(pieces) == max(map(len, content.split("\n")))


@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_a_secret_across_two_windows_is_found(shift: int) -> None:
    text = "." * (screening.WINDOW - 30 - shift) + f"\n{TOKEN}\n" + LINE * 10_000
    report = screening.whole([text.encode()], DEFAULT)
    assert (report.verdict, report.findings[0].line) == ("high", 2)


def test_what_stood_there_before_is_not_held_against_a_change() -> None:
    before = f"{LINE}a = '{TOKEN}'\n{LINE * 3}end\n"
    assert screening.added(before, before.replace("end", "fin"), DEFAULT).verdict == "safe"
    assert screening.added(before, before.replace("'\n", "' # ours\n"), DEFAULT).verdict == "safe"
    report = screening.added(before, before.replace("end", OTHER), DEFAULT)
    assert [(one.line, one.kind) for one in report.findings] == [(6, "github_pat")]
    assert report.verdict == "high"


def test_a_secret_that_a_change_completes_is_found() -> None:
    before = f"{LINE * 200}key = '{TOKEN[:20]}'\n{LINE}"
    report = screening.added(before, before.replace(TOKEN[:20], TOKEN), DEFAULT)
    assert (report.verdict, report.findings[0].line) == ("high", 201)


def test_a_second_secret_beside_a_known_one_is_found() -> None:
    before = f"a = '{TOKEN}'\n"
    assert screening.added(before, before + f"b = '{OTHER}'\n", DEFAULT).verdict == "high"


def test_a_copy_of_a_known_secret_is_not_new() -> None:
    before = f"a = '{TOKEN}'\n"
    assert screening.added(before, before + f"b = '{TOKEN}'\n", DEFAULT).verdict == "safe"


def test_what_is_told_shows_no_secret() -> None:
    report = risk.scan(f"token {TOKEN}\npassword = 'Tr0ub4dor&3xyzzy'\n", DEFAULT)
    said = repr((screening.told(report), screening.warnings(report)))
    assert TOKEN not in said
    assert "Tr0ub4dor" not in said
    assert "line 1" in said


def test_text_in_other_encodings_is_read() -> None:
    for codec in ("utf-8", "utf-16", "latin-1"):
        assert TOKEN in screening.readable(f"é {TOKEN}\n".encode(codec))
    assert TOKEN in screening.readable(b"\x00\xff\x01" + TOKEN.encode() + b"\x00")


def test_pieces_after_the_first_difference() -> None:
    before, after = [b"a" * 5000, b"b", b"c"], [b"a" * 5000, b"x", b"c"]
    assert list(screening.after_difference(iter(before), iter(after))) == [b"a" * 4096 + b"x", b"c"]
    assert list(screening.after_difference(iter(before), iter(before))) == []
