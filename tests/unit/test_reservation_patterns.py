"""Which paths a reservation covers, and which two cannot be granted to different owners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.workspace.reservations.patterns import covers, overlap


@pytest.mark.parametrize(
    ("pattern", "path", "is_covered"),
    [
        ("src", "src/a.py", True),
        ("src", "src", True),
        ("src", "srcs/a.py", False),
        ("src/a.py", "src", False),
        ("*.py", "x/y/a.py", True),
        ("/*.py", "x/a.py", False),
        ("/*.py", "a.py", True),
        ("src/*.py", "src/x/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**", "src/a/b", True),
        ("**", "a/b", True),
        ("**/tests", "a/tests/x", True),
        ("src/a*", "src/ab/c", True),
        ("src/*", "src/a/b/c.py", True),
        ("[a-c]?.md", "docs/b1.md", True),
        ("[!a]?.md", "a1.md", False),
        ("SRC", "src/a", True),
        ("caf\u00e9", "cafe\u0301/menu", True),
    ],
)
def test_a_pattern_covers(pattern: str, path: str, is_covered: bool) -> None:
    assert covers(pattern, path) is is_covered


@pytest.mark.parametrize(
    ("first", "second", "do_overlap"),
    [
        ("src/*.py", "src/a*", True),
        ("*.py", "*.md", False),
        ("src", "src/a/b.py", True),
        ("a/**/z", "**/b/z", True),
        ("a*b", "*ab", True),
        ("x/*", "y/**", False),
        ("a", "b", False),
        ("*.py", "docs", True),
        ("src/*.py", "src/a.md", False),
        ("**", "a", True),
    ],
)
def test_two_patterns_overlap(first: str, second: str, do_overlap: bool) -> None:
    assert overlap(first, second) is do_overlap
    assert overlap(second, first) is do_overlap


_NAMES = st.sampled_from(["a", "b", "ab", "*", "a*", "?", "*b", "a.c", "*.c", "**"])
_PATTERNS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)
_PATHS = st.lists(st.sampled_from(["a", "b", "ab", "a.c", "b.c"]), min_size=1, max_size=5).map("/".join)


@given(_PATTERNS, _PATTERNS, _PATHS)
def test_patterns_that_cover_one_path_overlap(first: str, second: str, path: str) -> None:
    """Else two owners could both hold it."""
    if covers(first, path) and covers(second, path):
        assert overlap(first, second)
