"""Porcelain: deterministic, bounded, unambiguous."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.present.porcelain import CONCISE, FULL, Bounds, bounded_lines, render
from perdure.present.scalar import Place, clipped, json_text, scalar, text
from perdure.present.shape import Field, Shape

ANYTHING = st.text(st.characters(codec=None))
PLACES = st.sampled_from(["atom", "line", "cell"])
WROTE = Shape(
    "wrote {path}  {bytes}  sha256 {sha256}  journal {journal_id}",
    (
        Field("path"),
        Field("sha256", "digest"),
        Field("bytes", "bytes"),
        Field("journal_id"),
        Field("wrote_at", full_only=True),
        Field("warnings", "items"),
    ),
)
WRITTEN = {
    "path": "src/app.py",
    "sha256": "4b0c12d98a31" + "f" * 52,
    "bytes": 1204,
    "journal_id": "318",
    "wrote_at": "2026-01-01T00:00:00Z",
    "warnings": [],
}
BARE = Shape("", ())


def read_back(shown: str) -> str:
    value = json.loads(shown) if shown.startswith('"') else shown
    assert isinstance(value, str)
    return value


# --- scalars -----------------------------------------------------------------------------------------


@given(ANYTHING, PLACES)
def test_a_scalar_that_fits_reads_back_as_itself(value: str, place: Place) -> None:
    assert read_back(text(value, place, 10_000)) == value


@given(ANYTHING, PLACES, st.integers(3, 60))
def test_a_scalar_is_printable_and_within_its_bound(value: str, place: Place, limit: int) -> None:
    shown = text(value, place, limit)
    assert shown.isprintable()
    assert len(shown) <= limit
    if place == "cell":
        assert "|" not in shown
    if place == "atom" and not shown.startswith('"'):
        assert " " not in shown


@given(ANYTHING, st.integers(30, 60))
def test_a_truncated_scalar_is_a_json_string_that_says_how_much_is_missing(value: str, limit: int) -> None:
    shown = text(value, "line", limit, "detail=full")
    kept, quote, mark = shown.rpartition('"')
    if not mark or not quote:
        assert read_back(shown) == value
        return
    start = read_back(kept + quote)
    assert value.startswith(start)
    missing = len(value) - len(start)
    assert mark in (
        f"… {missing} more character{'' if missing == 1 else 's'}: detail=full",
        f"… +{missing}",
    )


@given(ANYTHING, ANYTHING)
def test_two_values_never_look_alike(one: str, other: str) -> None:
    assert (text(one, "line", 10_000) == text(other, "line", 10_000)) == (one == other)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ("-", '"-"'),
        ("", '""'),
        (True, "true"),
        (0, "0"),
        (1.5, "1.5"),
        ("plain text", "plain text"),
        (" padded", '" padded"'),
        ("two\nlines", '"two\\nlines"'),
        ("bell\x07", '"bell\\u0007"'),
        ("\x7f", '"\\u007f"'),
        ("right\u202eleft", '"right\\u202eleft"'),
        ("ghp_aB3d…", "ghp_aB3d…"),
        ("cut… 3 more", '"cut… 3 more"'),
        ("\U000e0001", '"\\udb40\\udc01"'),
        ("file\udc80", '"file\\udc80"'),
        ('say "x"', '"say \\"x\\""'),
        ({"a": ["b|c", "…"]}, '{"a":["b\\u007cc","…"]}'),
    ],
)
def test_scalars_are_delimited_where_they_would_be_ambiguous(value: Any, shown: str) -> None:
    assert scalar(value) == shown


def test_a_bar_is_escaped_only_where_bars_separate() -> None:
    assert text("a|b", "line") == "a|b"
    assert text("a|b", "cell") == '"a\\u007cb"'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.thorough
@given(JSON)
def test_json_text_is_json_on_one_printable_line(value: Any) -> None:
    shown = json_text(value)
    assert shown.isprintable()
    assert "|" not in shown
    assert json.loads(shown) == value


@given(st.text(st.characters(categories=["L"])), st.integers(1, 40))
def test_a_clipped_line_keeps_its_bound_and_marks_the_cut(line: str, limit: int) -> None:
    cut = clipped(line, limit)
    assert len(cut) <= limit
    assert cut == line or "…" in cut


# --- a payload ---------------------------------------------------------------------------------------


def test_the_summary_comes_first_and_says_it_all() -> None:
    assert render(WRITTEN, WROTE) == "wrote src/app.py  1,204 bytes  sha256 4b0c12d98a31  journal 318"


def test_full_repeats_every_field_in_declared_order() -> None:
    assert render(WRITTEN, WROTE, "full").split("\n") == [
        "wrote src/app.py  1,204 bytes  sha256 " + WRITTEN["sha256"] + "  journal 318",  # type: ignore[operator]
        "path: src/app.py",
        f"sha256: {WRITTEN['sha256']}",
        "bytes: 1,204 bytes",
        "journal_id: 318",
        "wrote_at: 2026-01-01T00:00:00Z",
        "warnings: -",
    ]


def test_a_segment_of_the_summary_is_left_out_with_its_value() -> None:
    assert render({**WRITTEN, "journal_id": None}, WROTE).endswith("sha256 4b0c12d98a31")


def test_the_order_of_the_payload_does_not_matter() -> None:
    backwards = dict(reversed(WRITTEN.items()))
    for detail in ("concise", "full"):
        assert render(backwards, WROTE, detail) == render(WRITTEN, WROTE, detail)


def test_what_was_not_declared_is_shown_last_and_only_in_full() -> None:
    more = {"extra\nkey": {"a": 1}, **WRITTEN}
    assert render(more, WROTE) == render(WRITTEN, WROTE)
    assert render(more, WROTE, "full").split("\n")[-1] == '"extra\\nkey": {"a":1}'


def test_a_function_may_choose_the_summary() -> None:
    shape = Shape(lambda p: "ok {n}" if p["n"] else "nothing", (Field("n"),))
    assert render({"n": 1}, shape) == "ok 1"
    assert render({"n": 0}, shape) == "nothing\nn: 0"


MOUNTS = Shape(
    "{state}  {mounts:mount}  p50 {latency.p50}",
    (
        Field("state"),
        Field("latency", "record", columns=(Field("p50"), Field("p99", full_only=True))),
        Field(
            "mounts",
            "table",
            columns=(
                Field("name"),
                Field("calls", "count"),
                Field("latency", "record", columns=(Field("p50"), Field("p99", full_only=True))),
                Field("pid", full_only=True),
            ),
        ),
    ),
)
MOUNTED = {
    "state": "ready",
    "latency": {"p50": 1.5, "p99": 9},
    "mounts": [
        {"name": "a|b", "calls": 12345, "latency": {"p50": 1, "p99": 2}, "pid": 7},
        {"name": "two\nlines", "calls": 1},
    ],
}


def test_a_list_is_a_table_with_a_header_and_bars() -> None:
    assert render(MOUNTED, MOUNTS).split("\n") == [
        "ready  2 mounts  p50 1.5",
        "latency: p50 1.5",
        "name | calls | latency.p50",
        '"a\\u007cb" | 12,345 | 1',
        '"two\\nlines" | 1 | -',
    ]
    assert render(MOUNTED, MOUNTS, "full").split("\n")[-2] == '"a\\u007cb" | 12,345 | 1 | 2 | 7'


@given(st.lists(st.fixed_dictionaries({"name": ANYTHING, "calls": st.integers(0, 9)}), max_size=5))
def test_every_row_of_a_table_has_as_many_cells_as_its_header(rows: list[dict[str, Any]]) -> None:
    table = Shape("{t:row}", (Field("t", "table", columns=(Field("name"), Field("calls"))),))
    lines = render({"t": rows}, table, "full").split("\n")
    for line, row in zip(lines[3:], rows, strict=False):
        name, calls = line.split(" | ")
        assert read_back(name) == row["name"]
        assert calls == str(row["calls"])


def test_a_column_that_no_row_has_is_left_out() -> None:
    shape = Shape(
        "", (Field("keys", "table", columns=(Field("key"), Field("value", "json"), Field("version"))),)
    )
    rows = [{"key": "a", "version": 1}, {"key": "b", "version": 2}]
    assert render({"keys": rows}, shape).splitlines()[1:] == ["key | version", "a | 1", "b | 2"]
    assert render({"keys": [*rows, {"key": "c", "value": None}]}, shape).splitlines()[1:] == [
        "key | value | version",
        "a | null | 1",
        "b | null | 2",
        "c | null | -",
    ]


def test_rows_and_items_beyond_the_bound_are_counted() -> None:
    shape = Shape("x", (Field("t", "table", columns=(Field("n"),)), Field("i", "items")))
    shown = render({"t": [{"n": n} for n in range(1005)], "i": list(range(7))}, shape, bounds=Bounds(rows=2))
    assert shown.split("\n")[-2:] == [
        "… 1,003 more rows: render=json detail=full",
        "i: 0 | 1 | … 5 more items: render=json detail=full",
    ]


def test_three_keys_at_two_lines_of_eight_characters_say_that_something_is_omitted() -> None:
    shown = render({"a": 1, "b": 2, "c": 3}, BARE, "full", Bounds(lines=2, width=8))
    assert shown.split("\n") == ["a: 1", "… +2"]
    wide = render({"a": 1, "b": 2, "c": 3}, BARE, "full", Bounds(lines=2, more="detail=full"))
    assert wide.split("\n")[1] == "… 2 more lines: detail=full"


@pytest.mark.thorough
@given(st.dictionaries(ANYTHING, JSON | ANYTHING, max_size=8), st.integers(1, 6), st.integers(1, 30))
def test_declared_bounds_hold_for_any_payload(payload: dict[str, Any], lines: int, width: int) -> None:
    shown = render(payload, BARE, "full", Bounds(lines=lines, width=width)).split("\n")
    assert len(shown) <= lines
    assert all(len(line) <= max(width, 2) for line in shown)
    assert all(line.isprintable() for line in shown)


def test_nothing_to_say_is_ok() -> None:
    assert render({"ok": True}, BARE) == "ok"


# --- blocks ------------------------------------------------------------------------------------------

BLOCK = Shape("read {path}", (Field("path"), Field("content", "block")))


def block(content: str, bounds: Bounds | None = None) -> list[str]:
    return render({"path": "f", "content": content}, BLOCK, bounds=bounds).split("\n")[1:]


def test_text_of_many_lines_is_fenced_and_exact() -> None:
    assert block("a | b\n\tc…\n") == ["content: 2 lines", "~~~", "a | b", "\tc…", "~~~"]
    assert block("one") == ["content: one"]


def test_a_fence_never_occurs_in_what_it_encloses() -> None:
    assert block("x\n~~~~\ny\n") == ["content: 3 lines", "~~~~~", "x", "~~~~", "y", "~~~~~"]


def test_what_cannot_be_shown_exactly_is_said() -> None:
    assert block("a\nb")[0] == "content: 2 lines, no final newline"
    assert block("a\r\nb\r\n") == ["content: 2 lines, crlf", "~~~", "a", "b", "~~~"]
    assert block("a\x1b[0m\\\nb\n") == ["content: 2 lines, escaped", "~~~", "a\\x1b[0m\\\\", "b", "~~~"]


def test_a_long_block_is_cut_and_counted() -> None:
    shown = block("x\n" * 600, Bounds(block=1000))
    assert shown[0] == "content: 500 lines"
    assert shown[-1] == "… 200 more characters: render=json detail=full"


@given(ANYTHING)
def test_a_block_can_be_read_back_by_its_fences(content: str) -> None:
    shown = render({"path": "f", "content": content + "\nend\n"}, BLOCK)
    header, fence, *body = shown.split("\n")[1:]
    assert body[-1] == fence
    assert body.count(fence) == 1
    if header.endswith(("line", "lines")):
        assert "\n".join(body[:-1]) == content + "\nend"


def test_concise_is_bounded_more_tightly_than_full() -> None:
    assert CONCISE.lines < FULL.lines
    assert CONCISE.rows < CONCISE.lines
    assert bounded_lines(["x" * 5000], CONCISE).endswith("… 4,036 more characters: detail=full")


# --- counts, words and hints --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "payload", "line"),
    [
        ("{n:change}", {"n": 1}, "1 change"),
        ("{n:change}", {"n": 1200}, "1,200 changes"),
        ("{rows:entry/entries}", {"rows": []}, "0 entries"),
        ("{rows:entry/entries}", {"rows": [{}]}, "1 entry"),
        ("{bytes}", {"bytes": 1}, "1 byte"),
        ("{n:change} since", {"n": 2}, "2 changes since"),
    ],
)
def test_a_count_has_a_singular(template: str, payload: dict[str, Any], line: str) -> None:
    shape = Shape(
        template, (Field("n", "count"), Field("rows", "table", full_only=True), Field("bytes", "bytes"))
    )
    assert render(payload, shape) == line


@pytest.mark.parametrize("template", ["{n} changes", "{rows}", "kept {items}", "{rows} rows"])
def test_a_template_cannot_say_1_changes(template: str) -> None:
    fields = (Field("n", "count"), Field("rows", "table"), Field("items", "items"))
    with pytest.raises(ValueError, match="noun"):
        Shape(template, fields)
    with pytest.raises(ValueError, match="noun"):
        render({"n": 1, "rows": [], "items": []}, Shape(lambda _: template, fields))


def test_the_only_row_of_a_table_fits_the_summary() -> None:
    shape = Shape("undid {rows.0.op} of {rows.0.path}", (Field("rows", "table"),))
    assert render({"rows": [{"op": "edit", "path": "a b.py"}]}, shape) == 'undid edit of "a b.py"'


def test_a_sentence_that_is_the_whole_summary_has_no_quotes() -> None:
    assert render({"summary": "valid JSON"}, Shape("{summary}", (Field("summary"),))) == "valid JSON"


def test_json_that_does_not_fit_a_line_is_a_whole_block() -> None:
    shape = Shape("read", (Field("data", "json"),))
    assert render({"data": {"a": 1}}, shape) == 'read\ndata: {"a":1}'
    data = {f"key{n}": "x" * 20 for n in range(40)}
    lines = render({"data": data}, shape).split("\n")
    assert lines[1] == "data: 42 lines"
    assert json.loads("\n".join(lines[3:-1])) == data


def test_words_and_quiet_fields_are_for_the_concise_reader() -> None:
    shape = Shape(
        "{n:change}",
        (
            Field("n", "count"),
            Field("state", quiet=True),
            Field("drift", "table", words=lambda rows: [f"{row['path']} is gone" for row in rows]),
        ),
    )
    payload = {"n": 1, "state": "ok", "drift": [{"path": "a.py"}]}
    assert render(payload, shape) == "1 change\ndrift: a.py is gone"
    assert render(payload, shape, "full").split("\n")[1:] == [
        "n: 1",
        "state: ok",
        "drift: 1 row",
        "path",
        "a.py",
    ]


def test_a_hint_is_the_last_line_even_where_others_are_cut() -> None:
    shape = Shape(
        "{n:row}", (Field("n", "count"), Field("t", "table")), hint=lambda payload: f"next: {payload['n']}"
    )
    shown = render({"n": 9, "t": [{"a": n} for n in range(9)]}, shape, bounds=Bounds(lines=3)).split("\n")
    assert shown[-2:] == ["… 10 more lines: render=json detail=full", "next: 9"]


def test_a_hint_is_one_line_whatever_it_names() -> None:
    shape = Shape("read", (), hint=lambda payload: f"next: read path='{payload['path']}'")
    assert render({"path": "a\nwrote b\udc80"}, shape) == "read\nnext: read path='a\\nwrote b\\udc80'"


def test_a_time_is_exact_only_in_full() -> None:
    shape = Shape("saved {at}", (Field("at", "time"),))
    payload = {"at": "2026-11-18T03:10:37.123456Z"}
    assert render(payload, shape) == "saved 2026-11-18T03:10:37Z"
    assert render(payload, shape, "full").startswith("saved 2026-11-18T03:10:37.123456Z\n")
