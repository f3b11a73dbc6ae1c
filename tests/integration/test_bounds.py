"""Everything is bounded: overflow refuses the newcomer in words, and nothing is dropped."""

from __future__ import annotations

import pytest

from perdure.testing.raw_client import Object
from testbed import Bed


def expect_refused(response: Object, code: int, name: str) -> None:
    assert response["error"]["code"] == code
    data = response["error"]["data"]
    assert (data["class"], data["code"]) == ("resource", name)
    assert (data["outcome"], data["retry"], data["attempts"]) == ("not_started", "later", 0)


def test_one_request_too_many_is_refused_and_the_pending_ones_are_kept(bed: Bed) -> None:
    bed.settings("[limits]\npending = 3\n")
    fake = bed.fake()
    client = bed.run(fake)
    client.names()
    held = [client.begin_use("fake__slow", {"ms": 400, "key": f"k{n}"}) for n in range(3)]
    expect_refused(client.use("fake__slow", {"key": "newcomer"}), -31096, "too_many_pending")
    assert [client.wait(call)["result"]["structuredContent"]["key"] for call in held] == ["k0", "k1", "k2"]
    assert "slow newcomer" not in fake.dispatches
    assert client.use_text("fake__echo", {"text": "room again"}) == "room again"


@pytest.mark.thorough
def test_one_waiting_call_too_many_is_refused_and_the_queue_is_served_in_order(bed: Bed) -> None:
    bed.settings("[limits]\nin_flight = 1\nqueue = 2\n")
    fake = bed.fake()
    client = bed.run(fake)
    client.names()
    held = [client.begin_use("fake__slow", {"ms": 250, "key": f"k{n}"}) for n in range(3)]
    expect_refused(client.use("fake__slow", {"key": "newcomer"}), -31097, "queue_full")
    for call in held:
        assert "result" in client.wait(call)
    assert fake.dispatches == ["slow k0", "slow k1", "slow k2"]


def test_a_cancelled_waiting_call_makes_room_and_is_never_dispatched(bed: Bed) -> None:
    bed.settings("[limits]\nin_flight = 1\nqueue = 1\n")
    fake = bed.fake()
    client = bed.run(fake)
    client.names()
    running = client.begin_use("fake__slow", {"ms": 300, "key": "running"})
    waiting = client.begin_use("fake__slow", {"ms": 0, "key": "waiting"})
    client.cancel(waiting)
    successor = client.begin_use("fake__slow", {"ms": 0, "key": "successor"})
    for call in (running, successor):
        assert "result" in client.wait(call)
    assert waiting not in client.answers
    assert fake.dispatches == ["slow running", "slow successor"]


@pytest.mark.thorough
def test_a_frame_of_the_clients_that_is_too_long_is_refused_under_its_id(bed: Bed) -> None:
    bed.settings("[limits]\nframe_bytes = 100_000\n")
    fake = bed.fake()
    client = bed.run(fake)
    client.names()
    error = client.use("fake__echo", {"text": "x" * 200_000, "key": "long"})["error"]
    assert error["code"] == -32600
    assert (error["data"]["class"], error["data"]["code"]) == ("resource", "frame_too_large")
    assert error["data"]["limit"] == 100_000
    assert error["data"]["outcome"] == "not_started"
    assert client.use_text("fake__echo", {"text": "short"}) == "short"
    assert fake.dispatches == ["echo -"]


def test_an_answer_that_is_too_long_ends_its_call_and_not_its_server(bed: Bed) -> None:
    bed.settings("[limits]\nframe_bytes = 100_000\n")
    client = bed.run(bed.fake())
    pid = client.use_data("fake__whoami")["pid"]
    error = client.use("fake__big", {"bytes": 200_000})["error"]
    assert error["code"] == -31094
    assert (error["data"]["class"], error["data"]["code"]) == ("resource", "answer_too_large")
    assert client.use_text("fake__big", {"bytes": 50_000}) == "x" * 50_000
    assert client.use_data("fake__whoami")["pid"] == pid


def test_a_list_that_is_too_long_is_a_failed_start_and_not_a_silence(bed: Bed) -> None:
    bed.settings("[limits]\nframe_bytes = 3_000\nunproductive_starts = 1\ncircuit_s = 60\n")
    client = bed.run(bed.fake())
    row = client.wait_row("fake", circuit="open")
    assert row["last_fault"]["code"] == "handshake_refused"
    assert client.use("fake__echo")["error"]["code"] == -31098


@pytest.mark.thorough
def test_long_frames_pass_both_ways_below_the_bound(bed: Bed) -> None:
    client = bed.run(bed.fake())
    text = "é" * 3_000_000
    assert client.use_text("fake__echo", {"text": text}, timeout=30) == text


@pytest.mark.thorough
def test_what_a_server_does_not_read_waits_outside_its_pipe_within_bounds(bed: Bed) -> None:
    bed.settings("[limits]\noutbox_bytes = 300_000\nqueue = 3\n")
    client = bed.run(bed.fake(), bed.fake(name="other"))
    client.names()
    client.use("fake__stop_reading", {"ms": 1500})
    calls = [client.begin_use("fake__echo", {"text": "x" * 100_000}) for _ in range(12)]
    # Another server is served all the while.
    assert client.use_text("other__echo", {"text": "unhindered"}) == "unhindered"
    refused = [call for call in calls if "error" in client.wait(call)]
    assert 0 < len(refused) < 12
    for call in refused:
        expect_refused(client.wait(call), -31097, "queue_full")


@pytest.mark.thorough
def test_a_flood_of_noise_does_not_keep_others_waiting(bed: Bed) -> None:
    client = bed.run(bed.fake(), bed.fake(name="other"))
    client.names()
    flood = client.begin_use("fake__flood", {"kind": "noise", "seconds": 1, "answer": "last"})
    for number in range(50):
        assert client.use_text("other__echo", {"text": str(number)}) == str(number)
    assert "result" in client.wait(flood)
