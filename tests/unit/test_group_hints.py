"""An error that tells the caller to use a tool says how to get that tool listed."""

from __future__ import annotations

import msgspec

from perdure.kernel.core import Kernel
from perdure.kernel.events import ClientOversize
from perdure.protocol.envelope import Envelope
from perdure.worker.call import hint_in_envelope


def failed(**context: str) -> Envelope:
    return Envelope(error="not_found", context=context)


def test_the_group_of_the_tool_to_call_next_is_named() -> None:
    envelope = failed(message="the version is gone", next="state_history key=plan")
    assert (
        hint_in_envelope(envelope, {"state", "chunks"}).context["enable"] == "tools action=enable group=state"
    )


def test_without_a_tool_that_is_not_listed_nothing_is_added() -> None:
    envelope = failed(message="the version is gone", next="state_history key=plan")
    assert hint_in_envelope(envelope, {"chunks"}) == envelope
    assert hint_in_envelope(envelope, ()) == envelope
    assert hint_in_envelope(failed(message="a path is missing"), {"state"}).context == {
        "message": "a path is missing"
    }


def refusal_of_a_large_frame(profile: str) -> str:
    kernel = Kernel({}, session_id="s", profile=profile)
    (sent,) = kernel.handle(ClientOversize(100_000_000, b'{"jsonrpc":"2.0","id":1,', b"}"), 1.0)
    return str(msgspec.json.decode(sent.frame)["error"]["message"])  # type: ignore[union-attr]


def test_a_request_that_is_too_large_names_the_chunks() -> None:
    assert "(tools action=enable group=chunks)" in refusal_of_a_large_frame("core")
    assert refusal_of_a_large_frame("full").endswith("send it in chunks.")
