"""Rolling servers over to what is installed now: SIGHUP, and `perdure reload`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from hosts import SOON, notes, pids, wait_note

from harness.processes import is_running, wait_for
from testbed import Bed

LIST_CHANGED = "notifications/tools/list_changed"


def reload(bed: Bed, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "perdure", "reload", *options],
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        check=False,
    )


def changed(client: object) -> list[str]:
    return [n["method"] for n in client.notifications if n["method"] == LIST_CHANGED]  # type: ignore[attr-defined]


@pytest.mark.thorough
def test_the_same_catalog_is_taken_over_silently_and_running_work_stays_where_it_is(bed: Bed) -> None:
    server = bed.fake()
    client = bed.run(server)
    before = pids(client)
    running = client.begin_use("fake__effect", {"key": "old", "delay_ms": 1000})
    client.use("health")

    os.kill(client.pid, signal.SIGHUP)
    wait_note(bed, "rollout", phase="fenced", mount="fake")

    after = client.use_data("fake__whoami")["pid"]
    assert after != before["fake"]
    assert client.wait(running)["result"]["structuredContent"]["pid"] == before["fake"]
    assert server.dispatches.count("effect old") == 1
    assert wait_for(lambda: not is_running(before["fake"]), SOON)
    assert changed(client) == []
    assert client.row("fake")["restarts"] == 0


def test_a_changed_catalog_is_announced_and_served_when_the_client_asks(bed: Bed) -> None:
    catalog = bed.root / "catalog.json"
    catalog.write_text('["first"]')
    client = bed.run(bed.fake("--catalog", str(catalog)))
    assert "fake__first" in client.names()
    before = pids(client)["fake"]

    catalog.write_text('["first", "second"]')
    os.kill(client.pid, signal.SIGHUP)
    client.wait_notification(LIST_CHANGED)

    assert {"fake__first", "fake__second"} <= set(client.names())
    assert client.use_data("fake__second", {"a": 1})["tool"] == "second"
    assert client.use_data("fake__whoami")["pid"] != before
    assert client.use_data("fake__first")["tool"] == "first"
    assert len(changed(client)) == 1


def test_a_client_that_does_not_ask_gets_the_new_server_after_a_while(bed: Bed) -> None:
    bed.settings("[limits]\nrefresh_grace_s = 0.2\n")
    catalog = bed.root / "catalog.json"
    catalog.write_text('["first"]')
    client = bed.run(bed.fake("--catalog", str(catalog)))
    before = pids(client)["fake"]

    catalog.write_text('["second"]')
    os.kill(client.pid, signal.SIGHUP)
    client.wait_notification(LIST_CHANGED)
    wait_note(bed, "rollout", phase="fenced", mount="fake")

    assert client.use_data("fake__second")["tool"] == "second"
    assert client.use_data("fake__whoami")["pid"] != before


def test_a_failing_candidate_keeps_the_incumbent(bed: Bed) -> None:
    catalog = bed.root / "catalog.json"
    catalog.write_text('["first"]')
    client = bed.run(bed.fake("--catalog", str(catalog)))
    before = pids(client)["fake"]
    running = client.begin_use("fake__slow", {"ms": 500})

    catalog.write_text("this is no catalog")
    os.kill(client.pid, signal.SIGHUP)
    wait_note(bed, "rollout", phase="refused", mount="fake")

    assert "result" in client.wait(running)
    assert client.use_data("fake__whoami")["pid"] == before
    row = client.row("fake")
    assert (row["state"], row["restarts"]) == ("ready", 0)
    assert row["last_fault"]["class"] == "rollout"
    assert changed(client) == []

    catalog.write_text('["first"]')
    os.kill(client.pid, signal.SIGHUP)
    wait_note(bed, "rollout", phase="fenced", mount="fake")
    assert client.use_data("fake__whoami")["pid"] != before


def test_the_worker_rolls_over_too(bed: Bed) -> None:
    client = bed.run(bed.fake())
    before = pids(client)

    os.kill(client.pid, signal.SIGHUP)
    for mount in before:
        wait_note(bed, "rollout", phase="fenced", mount=mount)

    after = pids(client)
    assert all(after[mount] != before[mount] for mount in before)


def test_the_command_finds_the_host_of_its_workspace_and_says_what_it_told(bed: Bed) -> None:
    client = bed.run(bed.fake())
    before = pids(client)["fake"]

    done = reload(bed, "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is True
    (host,) = told["hosts"]
    assert (host["pid"], host["workspace"]) == (client.pid, str(bed.workspace))
    assert "fake" in host["mounts"]
    wait_note(bed, "rollout", phase="fenced", mount="fake")
    assert client.use_data("fake__whoami")["pid"] != before


def test_the_command_speaks_to_people_too(bed: Bed) -> None:
    client = bed.run(bed.fake())
    pids(client)

    for option in (("--all",), ("--pid", str(client.pid)), ("--workspace", str(bed.workspace))):
        done = reload(bed, *option)
        assert done.returncode == 0, done.stderr
        assert str(client.pid) in done.stdout
        assert "fake" in done.stdout


def test_the_command_fails_where_no_host_matches(bed: Bed) -> None:
    client = bed.run(bed.fake())
    elsewhere = bed.root / "elsewhere"
    elsewhere.mkdir()

    for option in (("--workspace", str(elsewhere)), ("--pid", "1")):
        assert reload(bed, *option).returncode == 1
        done = reload(bed, *option, "--json")
        assert (done.returncode, json.loads(done.stdout)) == (1, {"ok": False, "hosts": []})
    assert not notes(bed, "rollout")
    client.close()
    assert reload(bed).returncode == 1
