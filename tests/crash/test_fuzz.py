"""Mutated frames on both pipes. The long run is `make fuzz`."""

from __future__ import annotations

import pytest

from harness.host import fuzz
from harness.host.mutations import judge


@pytest.mark.parametrize("frames", [300, pytest.param(3000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("side", ["client", "child"])
def test_every_readable_request_among_mutated_frames_is_answered_once(side: str, frames: int) -> None:
    seed = 1

    score = fuzz.run(side, frames, seed)

    assert score.violations == [], f"seed {seed}"
    assert score.counts["mutated frames sent"] == frames
    assert score.counts["of them readable requests"] > frames // 20
    assert "malformed" in score.figures["quarantined"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"jsonrpc":"2.0","id":"ID","method":"ping"}', "request"),
        (b'{"jsonrpc":"2.0","id":"ID","method":"ping","params":null}\r', "request"),
        (b' { "method" : "p\\u00e9" , "\\u0069d" : "ID" , "jsonrpc" : "2.0" } ', "request"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', "other"),
        (b'{"jsonrpc":"2.0","id":"ID1","method":"ping"}', "other"),
        (b'{"jsonrpc":"2.0","id":["ID"],"method":"ping"}', "other"),
        (b'{"jsonrpc":"2.0","id":"ID","id":"ID","method":"ping"}', "other"),
        (b'{"jsonrpc":"2.0","id":"ID","method":"ping","params":[]}', "other"),
        (b'{"jsonrpc":"2.0","id":"ID","method":"ping","params":{"a":NaN}}', "other"),
        (b'{"jsonrpc":"2.0","id":"ID","method":"\\ud800"}', "other"),
        (b'{"jsonrpc":"2.0","id":"ID","method":"\xff"}', "other"),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":"ID","method":"ping"}', "other"),
        (b'[{"jsonrpc":"2.0","id":"ID","method":"ping"}]', "other"),
        (b'{"jsonrpc":"2.0","id":"ID","method":"ping","x":"' + b"y" * 200 + b'"}', "other"),
        (b" \r", "blank"),
    ],
)
def test_the_judge_knows_a_request_when_it_sees_one(line: bytes, kind: str) -> None:
    assert judge(line.replace(b"ID", b"z0123456789abcdef"), 200).kind == kind
