"""Normalization: the certain meaning or an error, never a guess."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.present.normalize import MAX_DEPTH, arguments, presentation, strict_object
from perdure.present.paths import path_text
from perdure.protocol.envelope import Envelope, ToolError
from perdure.protocol.next_step import complete
from perdure.protocol.tools import View, arg


class Edit(msgspec.Struct):
    old: str
    count: int = 1


class Params(msgspec.Struct, rename={"start": "from"}):
    path: Annotated[str, arg("Which.", aliases=("file_path", "filename"), path="relative")]
    count: Annotated[int, arg("How many.", ge=-1)] = 1
    limit: Annotated[int | None, arg("At most.")] = None
    ratio: float = 0.5
    force: bool = False
    mode: Literal["create", "overwrite"] = "create"
    edits: list[Edit] = []
    expected: dict[str, int] = {}
    either: int | str = 0
    other: Annotated[str, arg("Elsewhere.", aliases=("elsewhere",), path="absolute")] | None = None
    start: str = ""


def normal(**given: Any) -> Params:
    return arguments(Params, {"path": "a", **given}, roots=("/srv/project",))


def refused(given: dict[str, Any]) -> Envelope:
    with pytest.raises(ToolError) as caught:
        arguments(Params, given, roots=("/srv/project",))
    envelope = caught.value.envelope
    assert envelope.error == "invalid_input"
    return envelope


# --- numbers and flags -------------------------------------------------------------------------------


@given(st.integers(-(10**18), 10**18))
def test_an_integer_like_string_is_that_integer(value: int) -> None:
    assert normal(either=value).either == value
    assert arguments(Edit, {"old": "", "count": str(value)}).count == value


@pytest.mark.parametrize(
    "value", ["1.0", "1e3", "+1", " 1", "1 ", "01", "-0x1", "", "one", "١", "1_000", "9" * 20]
)
def test_a_string_that_is_not_plainly_an_integer_is_refused(value: str) -> None:
    refused({"path": "a", "count": value})


@pytest.mark.parametrize("value", [1.5, True, None, [1], {"a": 1}, float(2**60)])
def test_nothing_is_rounded_or_reinterpreted_as_an_integer(value: Any) -> None:
    refused({"path": "a", "count": value})


def test_an_integral_number_is_an_integer() -> None:
    assert normal(count=3.0).count == 3
    assert type(normal(count=3.0).count) is int


def test_nothing_is_clamped() -> None:
    assert refused({"path": "a", "count": -2}).context["message"] == "count must be at least -1."


def test_a_number_that_cannot_be_kept_exactly_is_refused() -> None:
    assert normal(ratio=3).ratio == 3.0
    refused({"path": "a", "ratio": 2**60 + 1})
    refused({"path": "a", "ratio": "0.5"})


def test_true_and_false_may_be_spelled_and_nothing_else() -> None:
    assert normal(force="true").force is True
    assert normal(force="false").force is False
    for value in ("True", "yes", "1", 1, 0, None, ""):
        refused({"path": "a", "force": value})


def test_null_is_only_accepted_where_it_is_declared() -> None:
    assert normal(limit=None).limit is None
    assert normal(limit="5").limit == 5
    refused({"path": "a", "mode": None})


def test_where_two_types_are_declared_nothing_is_converted() -> None:
    assert normal(either="5").either == "5"


# --- names -------------------------------------------------------------------------------------------


def test_an_alias_stands_for_its_field() -> None:
    assert arguments(Params, {"file_path": "x"}).path == "x"
    assert normal(elsewhere="x").other == "/srv/project/x"


def test_two_names_for_one_field_must_agree() -> None:
    assert arguments(Params, {"file_path": "x", "path": "x"}).path == "x"
    assert arguments(Params, {"path": "file:///x", "filename": "/x"}).path == "/x"
    assert refused({"path": "x", "filename": "y"}).context["reason"] == "conflicting_alias"


def test_an_unknown_argument_is_refused_with_the_nearest_name() -> None:
    context = refused({"path": "a", "expectd": {}}).context
    assert context["reason"] == "unknown_argument"
    assert context["argument"] == "expectd"
    assert context["nearest"] == "expected"
    assert refused({"filenam": "a"}).context["nearest"] == "path"
    assert refused({"Path": "a"}).context["nearest"] == "path"
    assert "nearest" not in refused({"path": "a", "zzzzzz": 1}).context


def test_members_of_nested_objects_are_held_to_the_same_rules() -> None:
    assert normal(edits=[{"old": "x", "count": "2"}]).edits == [Edit("x", 2)]
    assert normal(expected={"a": "3"}).expected == {"a": 3}
    assert refused({"path": "a", "edits": [{"old": "x", "cout": 1}]}).context["nearest"] == "edits[0].count"
    assert refused({"path": "a", "edits": [{}]}).context["missing"] == ["edits[0].old"]


def test_every_missing_argument_is_named() -> None:
    assert refused({}).context["missing"] == ["path"]


def test_fields_go_by_the_name_on_the_wire() -> None:
    assert normal(**{"from": "x"}).start == "x"
    refused({"path": "a", "start": "x"})


def test_a_wrong_choice_is_answered_with_the_choices() -> None:
    assert refused({"path": "a", "mode": "replace"}).context["choices"] == ["create", "overwrite"]


def test_all_faults_of_a_call_are_said_at_once_in_plain_words() -> None:
    given = {"cout": 1, "mode": "replace", "force": 3, "edits": [{"old": {"a": 1}}, {}], "zzz": 1}
    context = refused(given).context
    assert context["faults"] == [
        "there is no argument cout (did you mean count?)",
        "mode must be create or overwrite",
        "force must be true or false, and you sent a number",
        "edits[0].old must be a string, and you sent an object (for JSON, send its text)",
        "edits[1].old is missing",
        "there is no argument zzz (there are path, count, limit, ratio, force, mode, edits, expected, either, other "
        "and from)",
        "path is missing",
    ]
    assert context["message"] == "; ".join([*context["faults"][:6], "1 more."])
    assert complete(context["next"], "tool", given) == "tool mode=... force=... edits=... count=... path=..."


class Bounds(msgspec.Struct):
    some: Annotated[list[Edit], arg(min_length=1, max_length=2)] = []
    name: Annotated[str, arg(min_length=1, max_length=4)] = "x"
    n: Annotated[int, arg(ge=1, le=9)] = 1
    ratio: Annotated[float, arg(gt=0)] = 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"some": []}, "some is empty: give at least 1 {old}."),
        ({"some": [{"old": ""}] * 3}, "some has 3 items: give at most 2."),
        ({"some": "x"}, "some must be a list, and you sent a string."),
        ({"name": ""}, "name must not be empty."),
        ({"name": "12345"}, "name must have at most 4 characters, and it has 5."),
        ({"name": None}, "name must be a string, and you sent null."),
        ({"n": 10}, "n must be from 1 to 9."),
        ({"n": 1.5}, "n must be a whole number, and you sent another number."),
        ({"ratio": 0}, "ratio must be more than 0."),
        ({"ratio": "1"}, "ratio must be a number, and you sent a string."),
    ],
)
def test_a_bound_that_is_not_kept_is_said_with_what_is_accepted(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError) as caught:
        arguments(Bounds, given)
    assert caught.value.envelope.context["message"] == message


SENT = st.text(st.characters(categories=["L"]), min_size=12, max_size=30)


@given(SENT, st.sampled_from(["count", "limit", "ratio", "force", "mode", "edits", "expected"]))
def test_a_refusal_never_repeats_a_value(value: str, field: str) -> None:
    for sent in (value, [value], {value: value}):
        envelope = refused({"path": "a", field: sent})
        assert value not in json.dumps(msgspec.to_builtins(envelope), ensure_ascii=False)


def test_a_name_that_is_not_a_name_is_not_repeated() -> None:
    assert "secret" not in str(refused({"path": "a", "my secret text": 1}))


# --- presentation ------------------------------------------------------------------------------------


def test_render_and_detail_are_taken_out_and_default_to_the_servers() -> None:
    assert presentation({"a": 1}, View("json", "full")) == (View("json", "full"), {"a": 1})
    assert presentation({"render": "json", "detail": "full", "a": 1}, View()) == (
        View("json", "full"),
        {"a": 1},
    )


@pytest.mark.parametrize(
    "wrong", [{"render": "xml"}, {"detail": "Full"}, {"render": None}, {"detail": ["full"]}]
)
def test_a_view_nobody_offers_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ToolError):
        presentation(wrong, View())


# --- paths -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "relative", "absolute"),
    [
        ("src/a.py", "src/a.py", "/srv/project/src/a.py"),
        ("/srv/project/src/a.py", "src/a.py", "/srv/project/src/a.py"),
        ("/srv/project", ".", "/srv/project"),
        ("/srv/projects/a", "/srv/projects/a", "/srv/projects/a"),
        ("/etc/passwd", "/etc/passwd", "/etc/passwd"),
        ("../a", "../a", "../a"),
        ("/srv/project/../x", "/srv/project/../x", "/srv/project/../x"),
        ("file:///srv/project/a%20b", "a b", "/srv/project/a b"),
        ("file://localhost/srv/project/a", "a", "/srv/project/a"),
        ("FILE:///etc/x", "/etc/x", "/etc/x"),
        ("file:///srv/project/%C3%A9", "é", "/srv/project/é"),
        ("100%", "100%", "/srv/project/100%"),
    ],
)
def test_a_path_is_given_in_the_style_that_was_declared(given: str, relative: str, absolute: str) -> None:
    roots = ("/srv/project", "/srv/other")
    assert path_text(given, "relative", roots) == relative
    assert path_text(given, "absolute", roots) == absolute


@pytest.mark.parametrize(
    "uri",
    [
        "file:a",
        "file://",
        "file://host/a",
        "file:///a?x",
        "file:///a#x",
        "file:///a%2Fb",
        "file:///a%00",
        "file:///a%zz",
        "file:///a%",
        "file:///a%2",
        "file:///%ff",
    ],
)
def test_a_file_uri_of_uncertain_meaning_is_refused(uri: str) -> None:
    assert refused({"path": uri}).context["reason"] == "bad_file_uri"


@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1))
def test_a_file_uri_is_the_path_that_was_encoded(name: str) -> None:
    from urllib.parse import quote

    assert path_text(f"file:///{quote(name)}", "relative", ()) == f"/{name}"


# --- strict JSON -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a":1,"a":1}', "duplicate_argument"),
        (b'{"a":[{"b":1,"\\u0062":2}]}', "duplicate_argument"),
        (b'{"a":NaN}', "not_a_number"),
        (b'{"a":-Infinity}', "not_a_number"),
        (b'{"a":1e999}', "number_too_large"),
        (b'{"a":"\\ud800"}', "bad_text"),
        (b'{"\\udc00":1}', "bad_text"),
        (b'{"a":"\xff"}', "bad_text"),
        (b"[]", "not_an_object"),
        (b"7", "not_an_object"),
        (b"{", "not_json"),
        (b'{"a":1}x', "not_json"),
        (b"\xef\xbb\xbf{}", "not_json"),
        (b'{"a":01}', "not_json"),
        (b'{"a":"\n"}', "not_json"),
        (b'{"a":' + b"9" * 5000 + b"}", "not_json"),
        (b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "too_deep"),
        (b'{"a":' * 100_000, "too_deep"),
    ],
)
def test_json_that_two_readers_could_read_differently_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(ToolError) as caught:
        strict_object(raw)
    assert caught.value.envelope.context["reason"] == reason


@pytest.mark.parametrize("bad", [rb'"\ud800 "', b'"\xff"', rb'["\udc00"]', b'{"a": "\xc3"}'])
def test_bad_text_in_an_argument_is_refused(bad: bytes) -> None:
    with pytest.raises(ToolError) as caught:
        strict_object(b'{"content":' + bad + b"}")
    assert caught.value.envelope.context["reason"] == "bad_text"


def test_depth_is_counted_outside_strings_and_up_to_the_bound() -> None:
    code = '[[["\\"{{{' * 1000
    assert strict_object(json.dumps({"content": code}).encode()) == {"content": code}
    inner: Any = 1
    for _ in range(MAX_DEPTH - 1):
        inner = [inner]
    assert strict_object(json.dumps({"a": inner}).encode()) == {"a": inner}


@pytest.mark.thorough
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8")),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(codec="utf-8")),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
            max_leaves=10,
        ),
    ),
    st.booleans(),
)
def test_every_other_object_is_read_exactly(value: dict[str, Any], ascii_only: bool) -> None:
    assert strict_object(json.dumps(value, ensure_ascii=ascii_only).encode()) == value
