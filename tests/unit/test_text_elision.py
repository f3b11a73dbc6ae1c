"""The elision check: placeholders for left-out content are detected, ordinary dots are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.text import elision
from perdure.text.elision import MAX_ELISIONS, Elision, find_elisions

OLD = "".join(f"def function_{i}(value):\n    return value + {i}\n\n\n" for i in range(20))

PLACEHOLDERS = [
    "rest of file unchanged",
    "... rest of file unchanged ...",
    "# rest of file unchanged",
    "# ... rest of the file remains unchanged ...",
    "# The rest of the code remains the same.",
    "// ... (rest of the code remains the same)",
    "// ... existing code ...",
    "// ...existing code...",
    "# ... existing code ...",
    "/* ... existing code ... */",
    "{/* ... existing code ... */}",
    "<!-- ... existing content ... -->",
    "<!-- rest of the page unchanged -->",
    "-- ... remaining columns and other definitions ...",
    "% ... rest of the document ...",
    "; ... remaining code ...",
    "(* ... other cases ... *)",
    "// rest of the implementation",
    "// rest of your code here",
    "# Rest of the class stays the same",
    "    # ... other methods ...",
    "        // ... other imports",
    "// ... same as before ...",
    "# same as before",
    "// unchanged",
    "# ... unchanged ...",
    "# all other functions remain unchanged",
    "// previous code remains unchanged",
    "// Existing methods remain the same",
    "// keep existing code",
    "# keep the rest as is",
    "// ... code omitted for brevity ...",
    "# omitted for brevity",
    "# Other routes truncated for clarity",
    "# 120 lines omitted",
    "... 35 more lines unchanged ...",
    "...  # rest of the function",
    "    ...  # unchanged",
    "pass  # rest of the code remains the same".replace("pass", "..."),
    "… rest of the document unchanged …",
    "# everything else remains the same",
    "// no changes below",
    "// Rest of file unchanged...",
]

MARKERS = [
    "[... truncated ...]",
    "... [500 more lines] ...",
    "<!-- (1,204 more bytes) -->",
    "# (unchanged)",
    "[rest of file unchanged]",
    "(rest of file unchanged)",
    "[Trimmed input",
    "[Trimmed input: 4,096 characters]",
    "def f(): [Trimmed input",
    "<unchanged>",
    "<unchanged/>",
    "<rest of file unchanged>",
    "[... 40 lines omitted ...]",
    "[truncated output]",
    "[content truncated]",
    "<!-- [content omitted] -->",
    "# [1,204 lines truncated]",
    "[snip]",
    "<snip>",
    "(output truncated)",
]

ELLIPSES = ["# ...", "    # ...", "// ...", "// …", "/* ... */", "<!-- ... -->", "-- ...", "; ...", "% ...", "{/* ... */}",
            "(* ... *)", "# (...)", "// [...]", "#...", "REM ...", ":: ...", "// ... ..."]  # fmt: skip

ORDINARY = [
    "print('rest of file unchanged')",
    "keep(rest of the file)",
    "see [2 more items] below",
    "...",
    "    ...",
    "def f(): ...",
    "    def f(self) -> int: ...",
    "x: tuple[int, ...] = ()",
    "Callable[..., None]",
    "array[..., 0]",
    "const all = [...rest, ...others];",
    "    ...props,",
    "    ...existing,",
    "  ...other",
    "  ...unchanged,",
    "    ...rest,",
    "function f(...args) {",
    "foo(...args);",
    "fmt.Println(append(all, rest...)...)",
    "case 1 ... 9:",
    "for i in 0...9 {",
    'print("Loading...")',
    "# Loading the remaining items...",
    "// TODO: handle the other cases...",
    "# wait for it... then go on",
    "# ...and then the result is kept",
    "// ... and so on, until the queue is empty",
    "And so it went on... for years.",
    "To be continued...",
    "...but that is another story.",
    "The rest of the file is read in chunks.",
    "The rest of the code remains the same.",
    "This leaves the rest of the file unchanged, which is what we want.",
    "# the rest of the arguments go to the child",
    "# keep the rest of the queue in order",
    "# existing code paths are covered by the other tests",
    "# existing users",
    "# Other methods",
    "## Remaining work",
    "# previous line",
    "# same as above but reversed: the last one wins",
    "// unchanged since 1.0, see the changelog",
    "assert unchanged",
    "unchanged",
    "status: unchanged",
    'return "[output truncated]"',
    "note = f'... diff cut: {n} lines omitted for brevity'",
    'raise ValueError("rest of file unchanged")',
    'message = "[Trimmed input"',
    "if is_unchanged(rest): keep(existing)",
    "[existing]: https://example.org/existing",
    "- rest",
    "* the rest",
    "<rest>",
    "(remaining)",
    "<Unchanged value={x} />",
    ">>> f(1)  # doctest: +ELLIPSIS",
    "... print(x)",
    ".. note:: unchanged behaviour",
    "# truncated to 80 characters",
    "-- removed in version 2",
    "# hidden files are skipped",
    "% of the same kind",
    "#!/usr/bin/env python",
    "# ... 1, 2, 3 ... 10",
    "git diff main...feature",
    "see sections 3...5",
    "leave",
    "keep",
    "---",
    "# ---",
    "# ........................",
    "<!-- ...................... -->",
]  # fmt: skip


@pytest.mark.parametrize("line", PLACEHOLDERS)
def test_a_placeholder_is_detected(line: str) -> None:
    assert find_elisions(f"first\n{line}\nlast\n", OLD) == [Elision(2, "placeholder")]
    assert find_elisions(f"first\n{line}\n") == [Elision(2, "placeholder")]


@pytest.mark.parametrize("line", MARKERS)
def test_a_trimmed_marker_is_detected(line: str) -> None:
    assert find_elisions(f"first\n\n{line}\n", OLD) == [Elision(3, "trimmed_marker")]


@pytest.mark.parametrize("line", ELLIPSES)
def test_a_comment_with_only_an_ellipsis_is_detected(line: str) -> None:
    assert find_elisions(f"{line}\nlast\n", OLD) == [Elision(1, "ellipsis_comment")]


@pytest.mark.parametrize("line", ORDINARY)
def test_an_ordinary_line_is_no_elision(line: str) -> None:
    assert find_elisions(f"{OLD}{line}\n{OLD}", OLD) == []
    assert find_elisions(f"first\n{line}\nlast\n") == []


@pytest.mark.parametrize("line", [*PLACEHOLDERS, *MARKERS, *ELLIPSES])
def test_a_line_of_the_old_content_is_no_elision(line: str) -> None:
    assert find_elisions(f"new\n    {line.strip()}\n", f"{OLD}{line}\n") == []
    assert len(find_elisions(f"{line}\nnew\n{line}\n", f"{OLD}{line}\n")) == 1


def test_an_ellipsis_in_a_comment_is_an_elision_only_if_the_text_shrank() -> None:
    line = "# ... and the helpers from above\n"
    assert find_elisions(OLD + line, OLD) == []
    assert find_elisions(OLD[:300] + line, OLD) == [Elision(OLD[:300].count("\n") + 1, "shrunk_ellipsis")]
    assert find_elisions("def f():\n    return 1\n...\n", OLD) == [Elision(3, "shrunk_ellipsis")]


def test_stubs_are_no_elision() -> None:
    assert find_elisions("class A:\n    def f(self) -> int: ...\n    def g(self):\n        ...\n", OLD) == []


@pytest.mark.parametrize(
    "comment",
    [
        "# For example:\n#     def f():\n#     ...\n#     f()\n",
        "# Where the key is known, the\n# original code is left unchanged.\n",
        "# The tokens of the final line\n# are omitted for brevity.\n",
        "/**\n * class A {\n *   // ... other methods\n * }\n */\n",
    ],
)
def test_words_and_dots_inside_a_longer_comment_are_no_elision(comment: str) -> None:
    assert find_elisions(OLD + comment, OLD) == []


def test_a_shorter_text_is_no_elision() -> None:
    assert find_elisions("def f():\n    return 1\n", OLD) == []
    assert find_elisions("", OLD) == []


def test_an_ellipsis_in_an_example_of_a_document_is_no_elision() -> None:
    document = "# How to\n\n```python\ndef f():\n    # ...\n```\n\nDone.\n"
    assert find_elisions(document) == []
    assert find_elisions(document.replace("Done.", "<!-- ... -->")) == [Elision(8, "ellipsis_comment")]


def test_elisions_are_bounded_and_hold_no_content() -> None:
    found = find_elisions("# ... existing code ...\n" * 500, OLD)
    assert len(found) == MAX_ELISIONS
    assert "existing" not in str(found)


@given(st.text(st.sampled_from("abc .…#/*[]<>()\n\"'"), max_size=80))
def test_an_unchanged_text_has_no_elision(text: str) -> None:
    assert find_elisions(text, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "# ... " * 100_000,
        "[... " * 100_000,
        "[" + " " * 100_000,
        ("# " + "." * 230 + "x\n") * 5_000,
        "existing code " * 50_000 + "\n",
        "same\n" * 100_000,
        "İ" + "# unchanged\n" * 50_000,
        "".join(f"# the same as {i}\n" for i in range(12_000)),
    ],
)
@pytest.mark.timeout(60)
def test_hostile_text_is_examined_in_time(text: str) -> None:
    find_elisions(text, "x\n" * 20)


PIECES = st.one_of(
    st.text(st.characters(max_codepoint=127), max_size=6),
    st.sampled_from(elision._KEYWORDS).flatmap(
        lambda key: st.lists(st.booleans(), min_size=len(key), max_size=len(key)).map(
            lambda raised: "".join(
                letter.upper() if up else letter for letter, up in zip(key, raised, strict=True)
            )
        )
    ),
    st.sampled_from(elision._KEYWORDS).map(lambda key: key[:-1]),
)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_the_fast_test_finds_every_keyword(text: str) -> None:
    if text.isascii():
        assert elision.has_no_keyword(text.encode()) == (not elision._find_lines_with_keyword(text))
    else:
        assert not elision.has_no_keyword(text.encode())
