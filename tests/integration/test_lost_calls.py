"""A server dies with a call in its hands: each call is dispatched as often as it may be, and answered honestly."""

from __future__ import annotations

import os
import signal

import pytest

from perdure.testing.raw_client import Object
from testbed import ERAS, FULL, Bed, Client, Era

OUTCOME = "perdure/outcome"
pytestmark = pytest.mark.parametrize("server", ERAS, ids=lambda era: f"{era}-server")


def expect_unknown(response: Object, attempts: int = 1) -> None:
    error = response["error"]
    assert error["code"] == -31094
    data = error["data"]
    assert (data["class"], data["code"], data["mount"]) == ("process", "killed", "fake")
    assert (data["outcome"], data["retry"], data["attempts"]) == ("unknown", "never", attempts)
    assert data["generation"] >= 1
    assert error["message"] == (
        "fake was ended by SIGKILL while effect ran (sent once). It may or may not have taken effect: "
        "check before you send it again."
    )


def expect_working(client: Client) -> None:
    assert client.use_text("fake__echo", {"text": "and on"}) == "and on"


@pytest.mark.parametrize("era", ERAS, ids=lambda era: f"{era}-client")
def test_a_call_that_may_not_be_repeated_is_dispatched_once_and_its_outcome_is_unknown(
    bed: Bed, server: Era, era: Era
) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake, era=era)
    for crash in ("before", "during", "after"):
        expect_unknown(client.use("fake__effect", {"key": crash, "crash": crash, "times": 1}))
        expect_working(client)
        assert fake.dispatches.count(f"effect {crash}") == 1
    assert fake.effects == ["effect during", "effect after"]


@pytest.mark.parametrize("tool", ["read_effect", "idem_effect"])
def test_a_call_that_may_be_repeated_is_replayed_once_and_says_so(bed: Bed, server: Era, tool: str) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake)
    for crash in ("before", "during", "after"):
        result = client.use(f"fake__{tool}", {"key": crash, "crash": crash, "times": 1})["result"]
        assert result["structuredContent"]["key"] == crash
        assert result["_meta"][OUTCOME] == {"outcome": "replayed", "attempts": 2}
        assert fake.dispatches.count(f"{tool} {crash}") == 2
    assert client.row("fake")["restarts"] == 3


def test_a_call_that_crashes_its_server_every_time_is_given_up_after_one_replay(
    bed: Bed, server: Era
) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake)
    error = client.use("fake__read_effect", {"key": "k", "crash": "before"})["error"]
    assert error["code"] == -31095
    data = error["data"]
    assert (data["class"], data["code"]) == ("replay", "replays_exhausted")
    assert (data["outcome"], data["retry"], data["attempts"]) == ("unknown", "safe", 2)
    assert fake.dispatches == ["read_effect k"] * 2
    expect_working(client)


def test_an_answer_written_before_death_is_delivered(bed: Bed, server: Era) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake)
    response = client.use("fake__effect", {"key": "k", "crash": "after_answer", "times": 1})
    assert response["result"]["structuredContent"]["key"] == "k"
    expect_working(client)
    assert fake.dispatches.count("effect k") == 1


def test_calls_in_flight_together_are_each_settled_by_their_own_class(bed: Bed, server: Era) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake)
    pid = client.use_data("fake__whoami")["pid"]
    tools = [("effect", f"e{n}") for n in range(3)] + [("read_effect", f"r{n}") for n in range(3)]
    calls = {key: client.begin_use(f"fake__{tool}", {"key": key, "linger_ms": 700}) for tool, key in tools}
    while len(fake.effects) < len(tools):
        client.use("fake__echo")
    os.kill(pid, signal.SIGKILL)
    for tool, key in tools:
        response = client.wait(calls[key])
        if tool == "effect":
            expect_unknown(response)
        else:
            assert response["result"]["_meta"][OUTCOME]["outcome"] == "replayed"
    assert sorted(fake.effects) == sorted(
        [f"effect e{n}" for n in range(3)] + [f"read_effect r{n}" for n in range(3)] * 2
    )


def test_reads_of_the_protocol_itself_are_replayed(bed: Bed, server: Era) -> None:
    fake = bed.fake(f"--era={server}", "--hang-at=resources/read", "--hang-times=1")
    client = bed.run(fake)
    client.names()
    pid = client.row("fake")["pid"]
    read = client.begin("resources/read", {"uri": "fake://a"})
    client.use("fake__echo")  # the read has reached the server by now, and hangs there
    os.kill(pid, signal.SIGKILL)
    assert client.wait(read)["result"]["contents"][0]["uri"] == "fake://a"


def test_progress_does_not_go_back_when_a_call_is_replayed(bed: Bed, server: Era) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake)
    response = client.use(
        "fake__progress", {"n": 4, "crash_at": 2, "times": 1, "key": "k"}, _meta={"progressToken": "t"}
    )
    assert response["result"]["structuredContent"]["steps"] == 4
    heard = [n["params"]["progress"] for n in client.notifications if n["method"] == "notifications/progress"]
    assert heard == [1, 2, 3, 4]
    assert fake.dispatches == ["progress k"] * 2


def test_one_server_dying_leaves_the_other_alone(bed: Bed, server: Era) -> None:
    one, two = bed.fake(f"--era={server}", name="fake"), bed.fake(f"--era={server}", name="two")
    client = bed.run(one, two)
    pid = client.use_data("two__whoami")["pid"]
    slow = client.begin_use("two__slow", {"ms": 100, "key": "s"})
    expect_unknown(client.use("fake__effect", {"key": "k", "crash": "after", "times": 1}))
    assert client.wait(slow)["result"]["structuredContent"] == {"key": "s"}
    assert client.use_data("two__whoami")["pid"] == pid
    assert client.row("two")["restarts"] == 0


def test_health_and_lists_answer_while_the_server_is_away(bed: Bed, server: Era) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake)
    names = client.names()
    client.use("fake__die", {})
    assert client.names() == names
    row = client.row("fake")
    assert row["restarts"] == 1
    assert row["last_fault"]["code"] == "killed"
    totals = client.use_data("telemetry", FULL)["totals"]
    assert totals["recovery_errors"] == 1
    assert totals["recovery_faults"] >= 1
    expect_working(client)


def test_a_queued_call_reaches_the_successor_as_its_first_dispatch(bed: Bed, server: Era) -> None:
    """Nothing was sent, so nothing can be unknown: even a call that may not be repeated is served."""
    bed.settings("[limits]\nin_flight = 1\n")
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake)
    client.names()
    first = client.begin_use("fake__effect", {"key": "first", "crash": "after", "delay_ms": 50, "times": 1})
    second = client.begin_use("fake__effect", {"key": "second"})
    expect_unknown(client.wait(first))
    answer = client.wait(second)["result"]
    assert OUTCOME not in answer.get("_meta", {})
    assert fake.dispatches == ["effect first", "effect second"]
