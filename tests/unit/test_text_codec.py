"""Decoding and encoding: unedited content is encoded byte for byte, in the style of the file. And diffs."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.protocol.envelope import Envelope, ToolError
from perdure.text import lines
from perdure.text.codec import (
    Style,
    decode,
    detect_style,
    encode,
    encode_appended,
    encode_body,
    encode_payload,
    extract_lines,
)
from perdure.text.diffs import unified_diff

LINE = st.text(st.sampled_from("ab \té€\r\x0c\u2028"), max_size=4)
ENDED = st.tuples(LINE, st.sampled_from(["\n", "\r\n"])).map("".join)
BODY = st.tuples(st.lists(ENDED, max_size=8).map("".join), LINE).map("".join)


def refused(call: object, *given: object, **named: object) -> Envelope:
    with pytest.raises(ToolError) as caught:
        call(*given, **named)  # type: ignore[operator]
    return caught.value.envelope


# --- what a file is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "style"),
    [
        (b"", Style("utf-8", False, "none")),
        (b"a\n", Style("utf-8", False, "lf")),
        (b"a\r\nb\r\n", Style("utf-8", False, "crlf", "\r\n")),
        (b"a\r\nb\r\nc\n", Style("utf-8", False, "mixed", "\r\n")),
        (b"a\r\nb\nc\n", Style("utf-8", False, "mixed", "\n")),
        (b"old mac\rtext\r", Style("utf-8", False, "none")),
        (b"50%\r100%\n", Style("utf-8", False, "lf")),
        (b"\xef\xbb\xbfa\n", Style("utf-8", True, "lf")),
        ("\ufeffé\r\n".encode("utf-16-le"), Style("utf-16-le", True, "crlf", "\r\n")),
        ("\ufeffé\n".encode("utf-16-be"), Style("utf-16-be", True, "lf")),
        ("déjà vu\n".encode("latin-1"), Style("latin-1", False, "lf")),
        ("\u201cdéjà\u201d \u2013 vu\r\n".encode("cp1252"), Style("cp1252", False, "crlf", "\r\n")),
    ],
)
def test_detects_the_style_of_a_file(data: bytes, style: Style) -> None:
    assert detect_style(data) == style
    assert decode(data).style == style


@pytest.mark.parametrize(
    "data",
    [
        b"a\0b",
        b"\x89PNG\r\n\x1a\n\0\0",
        bytes(range(256)),
        "no mark".encode("utf-16-le"),
        "\ufeffab".encode("utf-32-le"),
        b"\xff\xfea",
        "größe und maß, doch ein Byte fehlt: é".encode()[:-1],
        b"caf\xe9 \x1b[0m",
    ],
)
def test_data_that_is_not_clearly_text_is_binary(data: bytes) -> None:
    assert detect_style(data) is None
    envelope = refused(decode, data)
    assert (envelope.error, envelope.reason_hint) == ("invalid_input", "encoding")
    assert envelope.context["reason"] == "binary_file"


def test_detects_the_style_of_a_beginning_that_ends_inside_a_character() -> None:
    cut = "größer\n€".encode()[:-1]
    assert detect_style(cut) is None
    assert detect_style(cut, complete=False) == Style("utf-8", False, "lf")


def test_decodes_in_the_given_encoding_or_refuses() -> None:
    assert decode(bytes(range(256)), "latin-1").body == bytes(range(256)).decode("latin-1")
    assert decode(b"a\0b", "utf-8").body == "a\0b"
    assert decode("é".encode("utf-16-be"), "utf-16-be").body == "é"
    assert decode("\ufeffé".encode("utf-16-be"), "utf-16").style == Style("utf-16-be", True)
    assert refused(decode, b"\xff", "utf-8").context["reason"] == "not_in_encoding"
    assert refused(decode, b"abc", "utf-16").context["reason"] == "not_in_encoding"
    assert refused(decode, b"abc", "utf-7").context["reason"] == "unknown_encoding"


# --- there and back ------------------------------------------------------------------------------------


@given(st.binary() | BODY.map(str.encode) | BODY.map(lambda body: ("\ufeff" + body).encode("utf-16-le")))
def test_unedited_content_is_encoded_byte_for_byte(data: bytes) -> None:
    for encoding in (None, "utf-8", "utf-16", "utf-16-be", "latin-1"):
        try:
            text = decode(data, encoding)
        except ToolError:
            continue
        assert encode(text, text.content) == data
        assert encode_body(text.style, text.body) == data


@given(BODY, st.data())
def test_an_unedited_line_keeps_its_own_ending(body: str, data: st.DataObject) -> None:
    text = decode(body.encode())
    before = lines.split(text.body)
    at = data.draw(st.integers(0, len(before)))
    if at == len(before) and before and not text.body.endswith("\n"):
        at -= 1
    edited = lines.split(text.content)
    edited.insert(at, "inserted\n")
    expected = "".join([*before[:at], f"inserted{text.style.newline}", *before[at:]])
    assert encode(text, "".join(edited)) == expected.encode()


def test_an_inserted_line_gets_the_ending_of_most_lines() -> None:
    text = decode(b"a\r\nb\nc\r\n")
    assert encode(text, "a\nnew\nb\nc\n") == b"a\r\nnew\r\nb\nc\r\n"
    assert encode(text, "a\nB\nBB\nc") == b"a\r\nB\r\nBB\r\nc"


def test_a_line_of_a_mixed_file_keeps_its_ending_where_only_its_text_changes() -> None:
    text = decode(b"a\r\nb\nc\r\n")
    assert encode(text, "a\nB\nc\n") == b"a\r\nB\nc\r\n"
    assert encode(text, "A\nB\nc") == b"A\r\nB\nc"


def test_content_of_a_crlf_file_is_edited_with_lf() -> None:
    text = decode("\ufeffa\r\nb".encode("utf-16-be"))
    assert text.content == "a\nb"
    assert encode(text, "a\nx\nb\n") == "\ufeffa\r\nx\r\nb\r\n".encode("utf-16-be")


def test_an_unencodable_character_is_refused_and_not_quoted() -> None:
    text = decode(b"caf\xe9\n")
    envelope = refused(encode, text, "café\nprice 5 €\n")
    assert (envelope.error, envelope.reason_hint) == ("invalid_input", "encoding")
    assert (envelope.context["line"], envelope.context["column"]) == (2, 9)
    assert "€" not in str(envelope.context)
    assert "price" not in str(envelope.context)
    assert refused(encode_payload, "\ud800").context["reason"] == "unencodable"


# --- payloads ------------------------------------------------------------------------------------------


def test_a_payload_is_encoded_as_it_was_sent() -> None:
    assert encode_payload("a\r\nb\n") == b"a\r\nb\n"
    assert encode_payload("é", "latin-1") == b"\xe9"
    assert encode_payload("é", "utf-16") == "\ufeffé".encode("utf-16-le")
    assert encode_payload("\ufeffé", "utf-16") == "\ufeffé".encode("utf-16-le")


@given(st.binary())
def test_any_bytes_can_be_sent_as_base64(data: bytes) -> None:
    assert encode_payload(base64.encodebytes(data).decode(), "base64") == data


@pytest.mark.parametrize("content", ["a", "YQ", "YQ==YQ==", "Y*Q=", "é", "YQ==="])
def test_invalid_base64_is_refused(content: str) -> None:
    assert refused(encode_payload, content, "base64").context["reason"] == "bad_base64"


@pytest.mark.parametrize(
    "existing", [b"a\r\n", "\ufeffa\r\n".encode("utf-16-le"), b"\xef\xbb\xbfa\r\n", b"\xe9\r\n"]
)
@pytest.mark.parametrize("content", ["é\nü\n", "é\r\nü\r\n", "\ufeffé\nü\n"])
def test_an_append_uses_the_encoding_and_line_ending_of_the_file(existing: bytes, content: str) -> None:
    both = existing + encode_appended(detect_style(existing), content)
    text = decode(both)
    assert text.body == decode(existing).body + "é\r\nü\r\n"
    assert text.style == decode(existing).style


def test_an_append_to_a_file_without_style_is_encoded_as_it_was_sent() -> None:
    assert encode_appended(detect_style(b"\0"), "a\r\nb\n") == b"a\r\nb\n"
    assert encode_appended(detect_style(b"one line"), "a\r\nb\n") == b"a\r\nb\n"
    assert encode_appended(detect_style(b"a\n"), "AA==", "base64") == b"\0"


# --- some lines ----------------------------------------------------------------------------------------


def test_only_newlines_end_lines() -> None:
    text = decode("a\x0c\u2028\rb\r\nc".encode())
    found = extract_lines(text)
    assert (found.content, found.total_lines, found.end_line, found.truncated) == (text.body, 2, 2, False)
    assert extract_lines(text, 2, 2).content == "c"
    assert extract_lines(text, 1, 9).end_line == 2
    assert extract_lines(decode(b"")).total_lines == 0


@pytest.mark.parametrize(("start", "end"), [(0, None), (4, None), (3, 2), (-1, 2), (None, 0)])
def test_lines_outside_the_file_are_refused(start: int | None, end: int | None) -> None:
    envelope = refused(extract_lines, decode(b"a\nb\nc\n"), start, end)
    assert (envelope.error, envelope.context["total_lines"]) == ("invalid_input", 3)


@given(BODY, st.integers(1, 12), st.integers(1, 5))
def test_an_excerpt_is_bounded_and_a_prefix_of_the_lines(body: str, room: int, start: int) -> None:
    text = decode(body.encode())
    whole = lines.split(body)
    if start > max(len(whole), 1):
        return
    found = extract_lines(text, start, max_bytes=room)
    assert len(found.content.encode()) <= room
    rest = "".join(whole[start - 1 :])
    assert rest.startswith(found.content)
    assert found.truncated == (found.content != rest)
    if found.content and found.end_line > start:
        assert found.content == "".join(whole[start - 1 : found.end_line])


def test_a_long_line_is_truncated_between_characters() -> None:
    found = extract_lines(decode("€€€\nx\n".encode()), max_bytes=7)
    assert (found.content, found.end_line, found.truncated) == ("€€", 1, True)


# --- differences ---------------------------------------------------------------------------------------


def test_a_unified_diff_describes_changes_of_style() -> None:
    found = unified_diff(b"a\nb\nc\n", b"a\nB\nc", old_label="a/f", new_label="b/f")
    assert (
        found.text == "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+B\n+c\n\\ No newline at end of file\n"
    )
    assert unified_diff(b"a\n", b"a\n", old_label="x", new_label="y").changed is False
    marked = unified_diff(b"a\n", b"\xef\xbb\xbfa\n", old_label="x", new_label="y")
    assert marked.changed
    assert marked.text.endswith("# byte order mark: added\n")
    assert unified_diff(None, b"a\n", old_label="x", new_label="y").text.startswith(
        "--- /dev/null\n+++ y\n@@ -0,0 +1 @@"
    )


def test_a_diff_of_binary_content_shows_none_of_it() -> None:
    found = unified_diff(b"a\0", b"b\0", old_label="x", new_label="y")
    assert found.binary
    assert found.text == "Binary files x and y differ (2 and 2 bytes)\n"


def test_a_long_diff_is_truncated_at_a_line_with_a_note() -> None:
    new = "".join(f"line {i}\n" for i in range(5000)).encode()
    found = unified_diff(b"", new, old_label="x", new_label="y", max_bytes=1000)
    assert found.truncated
    assert len(found.text) < 1100
    *_, before, note = found.text.splitlines()
    assert before.startswith("+line ")
    assert note.startswith("... diff cut at 1,000 bytes: 4,")
