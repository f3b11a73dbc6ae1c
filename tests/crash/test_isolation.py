"""One server that misbehaves takes nothing from another. How long calls take is measured by bench/isolation.py."""

from __future__ import annotations

import pytest

from testbed import Bed, Client

CALLS = 200
LIMITS = "[limits]\nrestarts_per_minute = 1000000\nframe_bytes = 1000000\ndrain_s = 0.2\n"


def hang(client: Client) -> None:
    for _ in range(8):
        client.begin_use("bad__hang")


def wedge(client: Client) -> None:
    client.begin_use("bad__wedge")
    for _ in range(8):
        client.begin_use("bad__echo", {"text": "never read"})


def stop_reading(client: Client) -> None:
    client.use("bad__stop_reading")
    for _ in range(40):
        client.begin_use("bad__echo", {"text": "x" * 100_000})


def flood_with_noise(client: Client) -> None:
    client.use("bad__flood", {"kind": "noise", "seconds": 60})


def flood_with_notifications(client: Client) -> None:
    client.use("bad__flood", {"kind": "notifications", "seconds": 60})


def flood_with_junk(client: Client) -> None:
    client.use("bad__flood", {"kind": "junk_json", "seconds": 60})


def flood_without_line_ends(client: Client) -> None:
    client.begin_use("bad__answer_badly", {"kind": "oversize", "bytes": 50_000_000})


def crash_again_and_again(client: Client) -> None:
    for _ in range(20):
        client.begin_use("bad__die", {"signal": "SIGKILL"})


@pytest.mark.thorough
@pytest.mark.parametrize(
    "misbehave",
    [
        hang,
        wedge,
        stop_reading,
        flood_with_noise,
        flood_with_notifications,
        flood_with_junk,
        flood_without_line_ends,
        crash_again_and_again,
    ],
    ids=lambda case: case.__name__,
)
def test_every_call_of_another_server_is_answered(bed: Bed, misbehave: object) -> None:
    assert callable(misbehave)
    bed.settings(LIMITS)
    client = bed.run(bed.fake(name="bad"), bed.fake(name="good"))
    client.use("bad__echo", {"text": "up"})
    good = client.row("good")

    misbehave(client)
    for number in range(CALLS):
        assert client.use_text("good__echo", {"text": str(number)}) == str(number)

    assert client.row("good")["restarts"] == good["restarts"] == 0
    assert client.row("good")["pid"] == good["pid"]


def test_a_server_that_does_not_read_gets_no_more_than_the_bound_and_is_replaced(bed: Bed) -> None:
    """Answers to its questions are not calls: nothing refuses them, so they must end it before they pile up."""
    bed.settings("[limits]\noutbox_bytes = 10000\nframe_bytes = 20000\n")
    client = bed.run(bed.fake(name="deaf"), bed.fake(name="good"))
    client.use("deaf__stop_reading")

    for number in range(3000):
        client.notify("notifications/x/news", {"number": number, "text": "x" * 100})

    row = client.wait_row("deaf", restarts=1, state="ready")
    assert row["last_fault"]["code"] == "outbox_full"
    assert client.use_text("good__echo", {"text": "here"}) == "here"
    assert client.use_text("deaf__echo", {"text": "back"}) == "back"
