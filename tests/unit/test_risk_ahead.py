"""A text looked through in pieces gives what it gives as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import risk
from perdure.risk.scanner import default_scanner

pytest.importorskip("hyperscan")

SECRETS = (
    "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "AKIA" + "Q7RZ3XW5T2B6N4M8",
    "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq\n-----END RSA " + "PRIVATE KEY-----",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "password = 'Tr0ub4dor&3xyz'",
    "postgresql://user:" + "hunter2secret@db.example.org/x",
    " -u admin:" + "S3cretPassw0rd http://x",
)
FILLING = st.sampled_from(["plain words and no more\n", "x", "\n", "é𝄞 ", "key eyJ -u :// AKIA ghp_ "])
PARTS = st.one_of(
    st.sampled_from(SECRETS),
    st.tuples(FILLING, st.integers(0, 60)).map(lambda drawn: drawn[0] * drawn[1]),
)


@given(st.lists(PARTS, min_size=1, max_size=12), st.lists(st.integers(1, 700), min_size=1, max_size=8))
def test_a_text_in_pieces_gives_the_report_of_the_whole(parts: list[str], sizes: list[int]) -> None:
    text = "".join(parts)
    data = text.encode()
    ahead = risk.looking_ahead()
    assert ahead is not None
    at = 0
    for size in sizes:
        if at < len(data):
            ahead.reach(data[: at + size])
        at += size
    assert risk.scan(text, data=data, ahead=ahead) == risk.scan(text)


@pytest.mark.parametrize("secret", SECRETS)
def test_where_to_look_is_the_same_wherever_the_text_is_cut(secret: str) -> None:
    data = ("words before it\n" * 40 + secret + "\nwords after it\n" * 40).encode()
    whole = list(default_scanner()._gate.hits(data))
    assert whole
    start = data.index(secret.encode())
    for cut in range(start - 3, start + len(secret) + 3):
        ahead = risk.looking_ahead()
        assert ahead is not None
        ahead.reach(memoryview(data)[:cut])
        hits, _ = ahead.finish(data)
        assert list(hits) == whole, cut


@pytest.mark.parametrize("cut", [1, 199, 200, 201, 399, 400])
def test_a_long_line_is_one_wherever_it_is_cut(cut: int) -> None:
    data = b"short\n" + b"y" * 401 + b"\nshort\n"
    ahead = risk.looking_ahead()
    assert ahead is not None
    ahead.reach(data[: 6 + cut])
    assert ahead.finish(data)[1] is False
