"""Restart budget, circuit, deadlines and the `mounts` tool: a server that cannot serve is said so at once."""

from __future__ import annotations

import pytest

from perdure.testing.raw_client import Object
from testbed import FULL, Bed, Client, Server

CIRCUIT = """
[limits]
unproductive_starts = 2
backoff_s = 0.01
circuit_s = {circuit_s}
"""


def mounts(client: Client, action: str, name: str = "fake") -> Object:
    return client.use_data("mounts", {"action": action, "name": name, **FULL})


def wait_tool(client: Client, name: str) -> None:
    """Until the list has the tool: after each look, the next change is awaited."""
    changes = 0
    while name not in client.names():
        changes += 1
        client.wait_notification("notifications/tools/list_changed", count=changes)


# The circuit


def test_a_server_that_crashes_at_every_start_opens_the_circuit(bed: Bed) -> None:
    bed.settings(CIRCUIT.format(circuit_s=60))
    client = bed.run(bed.fake("--crash-at-start=100"))
    client.wait_row("fake", circuit="open")
    error = client.use("fake__echo")["error"]
    assert error["code"] == -31098
    data = error["data"]
    assert (data["class"], data["code"], data["mount"]) == ("process", "circuit_open", "fake")
    assert (data["outcome"], data["retry"], data["attempts"]) == ("not_started", "later", 0)
    assert error["message"] == (
        "fake is not available: it ended with exit code 3. echo did not run. It is started again by itself; to do it now, "
        "call mounts with action=restart and name=fake."
    )
    health = client.health()
    assert health["state"] == "degraded"
    row = client.row("fake")
    assert row["state"] == "degraded"
    assert row["last_fault"]["code"] == "exited"
    assert "exit code 3" in row["last_fault"]["detail"]


def test_a_server_that_cannot_be_started_is_named_with_its_cause_and_what_to_do(bed: Bed) -> None:
    bed.settings(CIRCUIT.format(circuit_s=60))
    client = bed.run(Server("foo", ("nosuchcmd",), bed.root))
    client.wait_row("foo", circuit="open")
    assert client.use("foo__bar")["error"]["message"] == (
        "foo is not available: nosuchcmd: No such file or directory. bar did not run. Check the command, "
        "then call mounts with action=restart and name=foo."
    )


def test_a_call_that_waits_for_the_start_is_answered_when_the_circuit_opens(bed: Bed) -> None:
    bed.settings(CIRCUIT.format(circuit_s=60))
    client = bed.run(bed.fake("--crash-at-start=100"))
    error = client.use("fake__echo")["error"]
    assert error["code"] == -31098
    assert error["data"]["outcome"] == "not_started"


def test_the_circuit_closes_when_the_server_recovers_and_its_tools_are_announced(bed: Bed) -> None:
    bed.settings(CIRCUIT.format(circuit_s=0.2))
    fake = bed.fake("--crash-at-start=3")
    client = bed.run(fake)
    client.wait_row("fake", circuit="open")
    assert "fake__echo" not in client.names()
    wait_tool(client, "fake__echo")
    assert client.use_text("fake__echo", {"text": "back"}) == "back"
    row = client.row("fake")
    assert (row["circuit"], row["state"], row["restarts"]) == ("closed", "ready", 3)
    assert client.health()["state"] == "ready"


@pytest.mark.thorough
def test_one_open_circuit_leaves_the_other_servers_alone(bed: Bed) -> None:
    bed.settings(CIRCUIT.format(circuit_s=60))
    client = bed.run(bed.fake("--crash-at-start=100"), bed.fake(name="good"))
    client.wait_row("fake", circuit="open")
    assert client.use_text("good__echo", {"text": "fine"}) == "fine"
    assert client.use("fake__echo")["error"]["code"] == -31098


def test_a_command_that_cannot_be_run_opens_the_circuit_and_says_why(bed: Bed) -> None:
    bed.settings(CIRCUIT.format(circuit_s=60) + '\n[mounts]\nfake = ["/no/such/program"]\n')
    client = bed.run()
    client.wait_row("fake", circuit="open")
    fault = client.row("fake")["last_fault"]
    assert fault["code"] == "spawn_failed"
    assert "No such file" in fault["detail"]
    assert client.use("fake__echo")["error"]["code"] == -31098


@pytest.mark.thorough
def test_a_restart_by_hand_closes_an_open_circuit(bed: Bed) -> None:
    bed.settings(CIRCUIT.format(circuit_s=60))
    client = bed.run(bed.fake("--crash-at-start=2"))
    client.wait_row("fake", circuit="open")
    mounts(client, "restart")
    assert client.use_text("fake__echo", {"text": "by hand"}) == "by hand"
    assert client.row("fake")["circuit"] == "closed"


@pytest.mark.thorough
def test_a_server_that_works_between_its_crashes_never_opens_the_circuit(bed: Bed) -> None:
    bed.settings(CIRCUIT.format(circuit_s=60))
    client = bed.run(bed.fake())
    for number in range(6):
        assert client.use_text("fake__echo", {"text": str(number)}) == str(number)
        client.use("fake__die")
    assert client.use_text("fake__echo", {"text": "on"}) == "on"
    row = client.row("fake")
    assert (row["circuit"], row["restarts"]) == ("closed", 6)


# The mounts tool


@pytest.mark.thorough
def test_mounts_lists_every_server(bed: Bed) -> None:
    client = bed.run(bed.fake(name="one"), bed.fake(name="two"))
    client.names()
    listed = {row["name"]: row for row in mounts(client, "list", "")["mounts"]}
    assert {"one", "two"} <= set(listed)
    assert listed["one"]["tools"] == sum(1 for name in client.names() if name.startswith("one__"))


def test_restart_replaces_the_process_and_settles_what_it_held(bed: Bed) -> None:
    fake = bed.fake()
    client = bed.run(fake)
    pid = client.use_data("fake__whoami")["pid"]
    held = client.begin_use("fake__slow", {"ms": 60_000, "key": "held"})
    client.use("fake__echo")
    mounts(client, "restart")
    error = client.wait(held)["error"]
    assert error["code"] == -31094
    assert error["data"]["code"] == "restarted"
    assert client.use_data("fake__whoami")["pid"] != pid


@pytest.mark.thorough
def test_a_disabled_server_is_hidden_refused_and_comes_back(bed: Bed) -> None:
    client = bed.run(bed.fake())
    assert "fake__echo" in client.names()
    mounts(client, "disable")
    client.wait_notification("notifications/tools/list_changed")
    assert not [name for name in client.names() if name.startswith("fake__")]
    assert client.row("fake")["state"] == "disabled"
    error = client.use("fake__echo")["error"]
    assert error["code"] == -31098
    assert (error["data"]["code"], error["data"]["outcome"]) == ("disabled", "not_started")
    mounts(client, "enable")
    assert client.use_text("fake__echo", {"text": "again"}) == "again"
    assert "fake__echo" in client.names()


def test_an_unknown_mount_is_refused_with_the_known_ones(bed: Bed) -> None:
    client = bed.run(bed.fake())
    result = client.use("mounts", {"action": "restart", "name": "nobody", **FULL})["result"]
    assert result["isError"]
    assert result["structuredContent"]["error"] == "not_found"
    assert "fake" in result["structuredContent"]["context"]["mounts"]


def test_a_restart_without_a_name_or_with_a_wrong_one_names_the_servers(bed: Bed) -> None:
    client = bed.run(bed.fake())
    [unnamed, misspelt] = [
        client.use("mounts", {"action": "restart", **more})["result"]["content"][0]["text"].split("\n")
        for more in ({}, {"name": "fak"})
    ]
    assert unnamed[:2] == [
        "restart needs name: one of fake, perdure.",
        "next: mounts action=restart name=...",
    ]
    assert misspelt[:2] == [
        "no server is named fak: one of fake, perdure.",
        "next: mounts action=restart name=fake",
    ]


def test_a_server_that_cannot_start_is_told_once_on_standard_error(bed: Bed) -> None:
    client = bed.start([*bed.command(), "--mount", "foo=no-such-command-anywhere"])
    client.initialize()
    client.wait_row("foo", circuit="open")
    reason = "no-such-command-anywhere: No such file or directory"
    assert client.stderr.splitlines()[0] == f"perdure: foo did not start: {reason} (try 1 of 5)"
    assert client.stderr.count(reason) == 1
    message = client.use("foo__search")["error"]["message"]
    assert message == (
        f"foo is not available: {reason}. search did not run. Check the command, then call mounts with "
        "action=restart and name=foo."
    )


# Deadlines


@pytest.mark.thorough
def test_a_call_that_takes_too_long_is_answered_and_cancelled_and_its_server_kept(bed: Bed) -> None:
    bed.settings("[timeouts]\ncall = 1\n")
    fake = bed.fake()
    client = bed.run(fake)
    client.names()
    pid = client.use_data("fake__whoami")["pid"]
    error = client.use("fake__hang", {"key": "k"})["error"]
    assert error["code"] == -31099
    data = error["data"]
    assert (data["class"], data["code"], data["mount"]) == ("timeout", "deadline", "fake")
    assert (data["outcome"], data["retry"], data["attempts"]) == ("unknown", "never", 1)
    assert client.use_data("fake__whoami")["pid"] == pid
    for _ in range(1000):
        if "cancelled k" in fake.effects:
            break
        client.use("fake__echo")
    assert fake.effects == ["cancelled k"]


@pytest.mark.thorough
def test_progress_moves_the_deadline(bed: Bed) -> None:
    bed.settings("[timeouts]\ncall = 1\n")
    client = bed.run(bed.fake())
    client.names()
    response = client.use("fake__progress", {"n": 3, "delay_ms": 450}, _meta={"progressToken": 1})
    assert response["result"]["structuredContent"]["steps"] == 3


def test_a_wedged_server_is_replaced_and_what_may_be_replayed_is(bed: Bed) -> None:
    bed.settings("[timeouts]\ncall = 1\n[limits]\nping_s = 0.5\n")
    fake = bed.fake()
    client = bed.run(fake)
    client.names()
    pid = client.use_data("fake__whoami")["pid"]
    wedged = client.begin_use("fake__wedge", {"key": "w"})
    reading = client.begin_use("fake__echo", {"text": "patience", "key": "r"})
    error = client.wait(wedged)["error"]
    assert error["code"] == -31099
    assert (error["data"]["outcome"], error["data"]["retry"]) == ("unknown", "never")
    assert client.wait(reading)["result"]["structuredContent"] == {"text": "patience"}
    assert client.use_data("fake__whoami")["pid"] != pid
    assert client.row("fake")["last_fault"]["code"] == "unresponsive"
    assert fake.dispatches.count("wedge w") == 1


@pytest.mark.thorough
def test_a_server_that_stops_reading_is_replaced(bed: Bed) -> None:
    bed.settings("[timeouts]\ncall = 1\n[limits]\nping_s = 0.5\n")
    client = bed.run(bed.fake())
    client.names()
    pid = client.use_data("fake__whoami")["pid"]
    client.use("fake__stop_reading")
    assert client.use_text("fake__echo", {"text": "x" * 1_000_000}) == "x" * 1_000_000
    assert client.use_data("fake__whoami")["pid"] != pid


@pytest.mark.thorough
def test_a_call_to_a_server_that_never_starts_was_not_started(bed: Bed) -> None:
    bed.settings("[timeouts]\ncall = 0.3\nstartup = 60\n")
    client = bed.run(bed.fake("--hang-at=start"))
    error = client.use("fake__effect", {"key": "k"})["error"]
    assert error["code"] == -31099
    assert (error["data"]["outcome"], error["data"]["retry"]) == ("not_started", "safe")


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["start", "initialize", "tools/list"])
def test_a_start_that_hangs_is_given_up_and_the_next_one_serves(bed: Bed, place: str) -> None:
    bed.settings("[timeouts]\nstartup = 1\n")
    client = bed.run(bed.fake(f"--hang-at={place}", "--hang-times=1", "--era=handshake"))
    assert client.use_text("fake__echo", {"text": "second"}) == "second"
    assert client.row("fake")["last_fault"]["code"] == "startup_timeout"
