"""The one result builder: two renders, two details, one representation each."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.present.result import ERROR_BOUNDS, failure, success
from perdure.present.shape import Field, Shape
from perdure.protocol.envelope import Envelope, ErrorKind, ReasonHint, SuggestedAction
from perdure.protocol.tools import Render, View

SHAPE = Shape(
    "{state}  {mounts:mount}",
    (
        Field("state"),
        Field("uptime_ms", "count", full_only=True),
        Field("totals", "record", columns=(Field("requests", "count"), Field("replays", full_only=True))),
        Field("mounts", "table", columns=(Field("name"), Field("pid", full_only=True))),
    ),
)
PAYLOAD = {
    "mounts": [{"name": "a", "pid": 7}],
    "state": "ready",
    "uptime_ms": 5,
    "totals": {"requests": 3, "replays": 1},
    "undeclared": 1,
}


def test_porcelain_carries_no_structured_content() -> None:
    for detail in ("concise", "full"):
        result = success(PAYLOAD, SHAPE, View("porcelain", detail))
        assert set(result) == {"content", "isError"}
        assert result["isError"] is False
        assert result["content"][0]["text"].startswith("ready  1 mount\n")


def test_json_full_is_the_whole_object_in_declared_order() -> None:
    structured = success(PAYLOAD, SHAPE, View("json", "full"))["structuredContent"]
    assert structured == {"ok": True, **PAYLOAD}
    assert list(structured) == ["ok", "state", "uptime_ms", "totals", "mounts", "undeclared"]


def test_json_concise_is_a_real_summary() -> None:
    assert success(PAYLOAD, SHAPE, View("json", "concise"))["structuredContent"] == {
        "ok": True,
        "state": "ready",
        "totals": {"requests": 3},
        "mounts": [{"name": "a"}],
    }


def test_json_text_is_the_same_object_and_compact() -> None:
    result = success(PAYLOAD, SHAPE, View("json", "full"))
    text = result["content"][0]["text"]
    assert json.loads(text) == result["structuredContent"]
    assert text == json.dumps(result["structuredContent"], separators=(",", ":"))


def test_a_struct_is_a_payload_and_a_number_is_not() -> None:
    class Mount(msgspec.Struct):
        name: str

    class Health(msgspec.Struct):
        state: str
        mounts: tuple[Mount, ...]

    text = success(Health("ready", (Mount("a"),)), SHAPE)["content"][0]["text"]
    assert text == "ready  1 mount\nname\na"
    with pytest.raises(TypeError):
        success(7, SHAPE)


def test_a_tool_whose_clients_expect_a_status_gets_no_ok() -> None:
    shape = Shape("{status} {key}", (Field("status"), Field("key")), ok=False)
    payload = {"status": "ok", "key": "k"}
    for detail in ("concise", "full"):
        assert success(payload, shape, View("json", detail))["structuredContent"] == payload


def test_a_file_name_that_is_not_utf8_is_spelled_out() -> None:
    shape = Shape("read {path}", (Field("path"),))
    result = success({"path": "caf\udce9"}, shape, View("json"))
    assert result["structuredContent"]["path"] == "caf\\udce9"
    assert success({"path": "caf\udce9"}, shape)["content"][0]["text"] == 'read "caf\\udce9"'


def test_a_shape_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError):
        Shape("x", (Field("a"), Field("a")))
    with pytest.raises(ValueError):
        Shape("x", (Field("a", "text", columns=(Field("b"),)),))


# --- failures ----------------------------------------------------------------------------------------

BLOCKED = Envelope(
    error="blocked",
    reason_hint="content_filter",
    detected_patterns=("github_pat", "a|b"),
    suggested_action="redact",
    retry_budget=2,
    draft="d_12",
    context={
        "tool": "safe_write",
        "reason": "risk",
        "message": "not written: line 3 looks like a token.",
        "next": "safe_write path=src/app.py draft=d_12",
        "path": "src/app.py",
        "hint": "",
        "missing": [],
        "detected": [{"line": 3}],
    },
)


def test_an_error_in_porcelain_is_a_sentence_a_next_step_and_what_is_not_said_yet() -> None:
    result = failure(BLOCKED)
    assert set(result) == {"content", "isError"}
    assert result["isError"] is True
    assert result["content"][0]["text"].split("\n") == [
        "not written: line 3 looks like a token.",
        "next: safe_write path=src/app.py draft=d_12",
        "retry_budget: 2",
        'detected_patterns: github_pat | "a\\u007cb"',
        'detected: [{"line":3}]',
        "[blocked/risk]",
    ]


def test_an_error_in_json_is_the_whole_envelope_whatever_the_detail() -> None:
    for detail in ("concise", "full"):
        result = failure(BLOCKED, View("json", detail))
        assert result["isError"] is True
        assert result["structuredContent"] == json.loads(result["content"][0]["text"])
        assert result["structuredContent"]["draft"] == "d_12"
        assert set(result["structuredContent"]) == set(Envelope.__struct_fields__)


def words(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


@given(
    st.builds(
        Envelope,
        error=words(ErrorKind),
        reason_hint=words(ReasonHint),
        suggested_action=words(SuggestedAction),
        detected_patterns=st.lists(st.text(), max_size=40).map(tuple),
        retry_budget=st.integers(0, 9),
        draft=st.none() | st.text(),
        context=st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text()), max_size=50),
    ),
    words(Render),
)
def test_any_error_is_bounded_and_can_be_sent(envelope: Envelope, render: Render) -> None:
    result = failure(envelope, View(render))
    msgspec.json.encode(result)
    if render == "porcelain":
        lines = result["content"][0]["text"].split("\n")
        assert len(lines) <= ERROR_BOUNDS.lines + 1
        assert all(len(line) <= ERROR_BOUNDS.width and line.isprintable() for line in lines)
        assert lines[-1].startswith(f"[{envelope.error}/")


def test_presenting_costs_the_host_nothing_it_does_not_have() -> None:
    code = (
        "import sys, msgspec, threading; before = set(sys.modules); import perdure.present.result;"
        "print(*sorted(m for m in set(sys.modules) - before if not m.startswith('perdure')))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.split() == []
