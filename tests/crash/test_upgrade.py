"""The host replaces itself in place: same process, same session, same servers, nothing lost; or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hosts import SOON, alive, are_alive, mark, none_left, notes, pids, wait_note

import perdure
from harness.processes import descriptors, wait_for
from perdure.host import capsule as capsules
from perdure.host.capsule import Capsule, CapsuleError, read_capsule, write_capsule
from testbed import Bed, Client, Server


def replace(bed: Bed, client: Client, times: int = 1) -> None:
    os.kill(client.pid, signal.SIGUSR2)
    wait_note(bed, "rollout", times, phase="host_replaced")


# --- what goes along ----------------------------------------------------------------------------------------


def test_process_session_servers_and_a_call_in_flight_stay_the_same(bed: Bed) -> None:
    server = bed.fake()
    client = bed.run(server)
    before, session = pids(client), notes(bed, "session")[0]["session"]
    client.use("fake__die")
    before = pids(client)
    known = client.health()
    call = client.begin_use("fake__effect", {"key": "across", "delay_ms": 1500})

    asked = time.monotonic()
    replace(bed, client)

    health = client.health()
    assert pids(client) == before
    assert health["uptime_ms"] <= (time.monotonic() - asked) * 1000  # a new image counts anew
    assert health["restart_count"] == known["restart_count"] == 1
    assert health["generation"] == known["generation"]
    assert health["last_fault"] == known["last_fault"]
    assert client.wait(call)["result"]["structuredContent"]["pid"] == before["fake"]
    assert len(client.answers[call]) == 1
    assert server.dispatches.count("effect across") == 1
    assert {r["session"] for r in notes(bed, "rollout")} == {session}
    assert client.use_data("telemetry", {"render": "json"})["totals"]["requests"] > 5


@pytest.mark.thorough
def test_twenty_upgrades_in_a_row_lose_nothing(bed: Bed) -> None:
    mark(bed)
    server = bed.fake()
    client = bed.run(server)
    before = pids(client)
    calls = []

    for number in range(1, 21):
        calls.append(client.begin_use("fake__effect", {"key": f"k{number}", "delay_ms": 40 * (number % 4)}))
        replace(bed, client, number)
        calls.append(client.begin_use("fake__echo", {"text": str(number)}))

    assert all("result" in client.wait(call) for call in calls)
    assert all(len(client.answers[call]) == 1 for call in calls)
    assert sorted(server.effects) == sorted(f"effect k{n}" for n in range(1, 21))
    assert pids(client) == before
    assert are_alive(bed, 4), alive(bed)
    assert descriptors(client.pid) < 20
    assert list((bed.root / "home" / "capsules").iterdir()) == []


def test_half_a_frame_before_and_half_after_are_one(bed: Bed) -> None:
    client = bed.run(bed.fake())
    params = {"name": "fake__echo", "arguments": {"text": "whole"}}
    frame = (
        json.dumps({"jsonrpc": "2.0", "id": "halves", "method": "tools/call", "params": params}).encode()
        + b"\n"
    )
    client.use("health")
    client.send_bytes(frame[:70])

    replace(bed, client)
    client.send_bytes(frame[70:])
    client.asked.append(("halves", "tools/call", False))

    assert client.wait("halves")["result"]["content"][0]["text"] == "whole"


def test_what_the_client_has_not_read_yet_arrives_whole(bed: Bed) -> None:
    host = subprocess.Popen(
        bed.command(bed.fake()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=bed.environ,
        cwd=bed.workspace,
    )
    assert host.stdin is not None
    assert host.stdout is not None
    try:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        host.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode()
        )
        host.stdin.write(b"\n")
        for number in range(1, 5):
            params = {"name": "fake__big", "arguments": {"bytes": 1_000_000 + number}}
            frame = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            host.stdin.write(json.dumps(frame).encode() + b"\n")
        host.stdin.flush()
        wait_note(bed, "dispatch", 4)

        os.kill(host.pid, signal.SIGUSR2)
        wait_note(bed, "rollout", phase="host_replaced")

        sizes = {}
        while len(sizes) < 4:
            answer = json.loads(host.stdout.readline())
            if answer.get("id"):
                sizes[answer["id"]] = len(answer["result"]["content"][0]["text"])
        assert sizes == {number: 1_000_000 + number for number in range(1, 5)}
        host.stdin.close()
        assert host.wait(SOON) == 0
    finally:
        host.kill()
        host.wait()
        host.stdout.close()


@pytest.mark.thorough
def test_what_a_server_has_not_read_yet_arrives_whole(bed: Bed) -> None:
    bed.settings("[limits]\noutbox_bytes = 300000\n")
    client = bed.run(bed.fake())
    client.use("fake__stop_reading", {"ms": 1200})
    texts = {client.begin_use("fake__echo", {"text": text}): text for text in (c * 200_000 for c in "abcde")}
    client.use("health")

    replace(bed, client)

    for call, text in texts.items():
        assert client.wait(call)["result"]["content"][0]["text"] == text


def test_a_signal_that_comes_at_the_worst_moment_is_not_lost(bed: Bed) -> None:
    client = bed.run(bed.fake())
    before = pids(client)

    os.kill(client.pid, signal.SIGUSR2)
    assert wait_for(lambda: bool(list((bed.root / "home").glob("capsules/*"))), SOON)
    os.kill(client.pid, signal.SIGHUP)
    wait_note(bed, "rollout", phase="host_replaced")

    wait_note(bed, "rollout", phase="fenced", mount="fake")
    assert client.use_data("fake__whoami")["pid"] != before["fake"]


def test_a_child_that_died_unheard_is_noticed_by_the_successor(bed: Bed) -> None:
    client = bed.run(bed.fake())
    before = pids(client)

    os.kill(client.pid, signal.SIGUSR2)
    os.kill(before["fake"], signal.SIGKILL)

    assert client.use_text("fake__echo", {"text": "back"}) == "back"
    wait_note(bed, "rollout", phase="host_replaced")
    assert client.use_data("fake__whoami")["pid"] != before["fake"]
    assert client.row("fake")["restarts"] == 1


def test_a_killed_successor_leaves_nothing_behind(bed: Bed) -> None:
    mark(bed)
    client = bed.run(bed.fake("--stubborn"))
    pids(client)
    replace(bed, client)

    client.kill()

    assert none_left(bed), alive(bed)


def test_a_wrapped_server_keeps_its_session_too(bed: Bed) -> None:
    client = bed.start(bed.wrap_command(bed.fake()))
    client.initialize()
    pid = client.use_data("whoami")["pid"]

    replace(bed, client)

    assert client.use_data("whoami")["pid"] == pid


@pytest.mark.thorough
def test_the_servers_of_the_registry_stay_and_the_file_is_still_followed(bed: Bed) -> None:
    command, *args = bed.fake().argv
    text = (
        f"## fake\ncommand: {command}\nargs: {json.dumps(args)}\n## Allowed commands\n{Path(command).name}\n"
    )
    bed.trusted("mcp.md", text)
    client = bed.run()
    client.names()
    before = pids(client)
    replace(bed, client)
    assert pids(client) == before
    os.kill(before["fake"], signal.SIGKILL)
    client.wait_row("fake", state="ready", generation=2)
    assert client.row("fake")["exit_code"] == -signal.SIGKILL
    bed.trusted("mcp.md", text.replace("## fake", "## other"))
    client.wait_notification("notifications/tools/list_changed")
    assert [row["name"] for row in client.health()["mounts"]] == ["perdure", "other"]
    replace(bed, client, 2)
    client.wait_row("other", state="ready")


def test_the_command_replaces_the_host_and_rolls_its_servers_over(bed: Bed) -> None:
    client = bed.run(bed.fake())
    before = pids(client)

    done = subprocess.run(
        [sys.executable, "-P", "-m", "perdure", "reload", "--host", "--json"],
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert [host["pid"] for host in json.loads(done.stdout)["hosts"]] == [client.pid]
    wait_note(bed, "rollout", phase="host_replaced")
    wait_note(bed, "rollout", phase="fenced", mount="fake")
    assert client.use_data("fake__whoami")["pid"] != before["fake"]
    assert client.process.poll() is None


# --- files that change between the trial and the exec ---------------------------------------------------------

SWAP = """
import atexit, os

if os.environ.get("PERDURE_RESUME_TRIAL") == "1":
    path, content = os.environ["SWAPPED_FILE"], os.environ["SWAPPED_CONTENT"]

    def swap():
        os.unlink(path)
        if content == "fifo":
            os.mkfifo(path)
        elif content == "folder":
            os.mkdir(path)
        else:
            with open(path, "w") as file:
                file.write(content)

    atexit.register(swap)
"""


def swap_after_the_trial(bed: Bed, path: Path, content: str) -> None:
    """The trial successor's last act is to replace a file: after it was tried, before the host becomes its successor."""
    folder = bed.root / "hooks"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SWAP)
    paths = [str(folder), *filter(None, [bed.environ.get("PYTHONPATH")])]
    bed.environ["PYTHONPATH"] = os.pathsep.join(paths)
    bed.environ |= {"SWAPPED_FILE": str(path), "SWAPPED_CONTENT": content}


def listed(*servers: Server) -> str:
    allowed = f"## Allowed commands\n{Path(servers[0].argv[0]).name}\n"
    sections = (f"## {s.name}\ncommand: {s.argv[0]}\nargs: {json.dumps(s.argv[1:])}\n" for s in servers)
    return "".join(sections) + allowed


@pytest.mark.thorough
def test_a_registry_that_changes_during_an_upgrade_is_followed_afterwards(bed: Bed) -> None:
    kept, gone, new = (bed.fake(name=name) for name in ("kept", "gone", "new"))
    registry = bed.root / "mcp.md"
    registry.write_text(listed(kept, gone))
    bed.environ["PERDURE_REGISTRY"] = str(registry)
    swap_after_the_trial(bed, registry, listed(kept, new))
    client = bed.run()
    client.names()
    before = pids(client)
    call = client.begin_use("kept__slow", {"ms": 300})

    replace(bed, client)

    assert "result" in client.wait(call)
    client.wait_notification("notifications/tools/list_changed")
    client.wait_row("new", state="ready")
    assert [row["name"] for row in client.health()["mounts"]] == ["perdure", "kept", "new"]
    assert client.row("kept")["pid"] == before["kept"]


@pytest.mark.parametrize(
    "content",
    [
        "fifo",
        pytest.param("folder", marks=pytest.mark.thorough),
        pytest.param("\x00\x01", marks=pytest.mark.thorough),
    ],
)
def test_a_registry_that_becomes_unreadable_during_an_upgrade_costs_nothing(bed: Bed, content: str) -> None:
    registry = bed.root / "mcp.json"
    bed.environ["PERDURE_REGISTRY"] = str(registry)
    command, *args = bed.fake().argv
    own = {"allowedCommands": [Path(command).name]}
    registry.write_text(
        json.dumps({"mcpServers": {"fake": {"command": command, "args": args}}, "perdure": own})
    )
    swap_after_the_trial(bed, registry, "{,}" if content == "\x00\x01" else content)
    client = bed.run()
    client.names()
    before = pids(client)

    replace(bed, client)

    assert client.use_data("fake__whoami")["pid"] == before["fake"]
    assert wait_for(lambda: bool(client.health().get("file_faults")), SOON)
    assert str(registry) in client.health()["file_faults"][0]["detail"]
    client.kill_mount("fake")  # what it is started with went along
    assert client.use_text("fake__echo", {"text": "again"}) == "again"


def test_settings_that_break_during_an_upgrade_cost_nothing(bed: Bed) -> None:
    bed.settings("[limits]\npending = 100\n")
    swap_after_the_trial(bed, bed.workspace / "perdure.toml", "[limits]\npending = -1\nx = [")
    client = bed.run(bed.fake())
    before = pids(client)

    replace(bed, client)

    assert pids(client) == before
    assert client.use_text("fake__echo", {"text": "on"}) == "on"


# --- a bad successor ----------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("host/stdio.py", "from __future__ import annotations", "raise ImportError('half installed')"),
        ("kernel/snapshot.py", "SNAPSHOT_VERSION: Final = ", "SNAPSHOT_VERSION: Final = 1000 + "),
        ("host/capsule.py", "CAPSULE_VERSION = ", "CAPSULE_VERSION = 1000 + "),
        (
            "kernel/state.py",
            "class State(msgspec.Struct):",
            "class State(msgspec.Struct):\n    unheard_of: int",
        ),
    ],
    ids=["fails at import", "other snapshot version", "other capsule version", "other state"],
)
def test_a_bad_successor_keeps_the_incumbent_and_a_good_one_takes_over(
    bed: Bed, installed: Path, file: str, old: str, new: str
) -> None:
    client = bed.run(bed.fake())
    before = pids(client)
    source = (installed / file).read_text()
    call = client.begin_use("fake__slow", {"ms": 700})

    assert old in source
    (installed / file).write_text(source.replace(old, new, 1))
    os.kill(client.pid, signal.SIGUSR2)
    wait_note(bed, "rollout", phase="host_kept")

    assert "result" in client.wait(call)
    assert client.use_text("fake__echo", {"text": "incumbent"}) == "incumbent"
    assert pids(client) == before
    assert not notes(bed, "rollout", phase="host_replaced")
    assert list((bed.root / "home" / "capsules").iterdir()) == []

    (installed / file).write_text(source)
    (installed / "__init__.py").write_text(
        (installed / "__init__.py").read_text().replace(perdure.__version__, "99.0")
    )
    replace(bed, client)

    assert pids(client) == before
    presence = json.loads((bed.root / "home" / "hosts" / f"{client.pid}.json").read_text())
    assert presence["version"] == "99.0"


# --- the capsule --------------------------------------------------------------------------------------------


@pytest.fixture
def capsule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Capsule:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return Capsule(
        capsules.CAPSULE_VERSION, 1, 0, 1, True, b"unread", b"unwritten", 5, 6, "mark", [], b"kernel"
    )


def test_a_capsule_is_for_its_owner_alone_and_can_be_opened_once(capsule: Capsule) -> None:
    path = write_capsule(capsule)

    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    assert read_capsule(path, consume=False) == capsule
    assert read_capsule(path, consume=True) == capsule
    assert not os.path.exists(path)
    with pytest.raises(CapsuleError):
        read_capsule(path, consume=True)


def test_a_link_is_refused_and_both_ends_are_left_alone(capsule: Capsule, tmp_path: Path) -> None:
    target = write_capsule(capsule)
    link = tmp_path / "link"
    link.symlink_to(target)

    with pytest.raises(CapsuleError):
        read_capsule(str(link), consume=True)

    assert link.is_symlink()
    assert os.path.exists(target)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_touch_is_refused_and_left_alone(capsule: Capsule, mode: int) -> None:
    path = write_capsule(capsule)
    os.chmod(path, mode)

    with pytest.raises(CapsuleError, match="private"):
        read_capsule(path, consume=True)

    assert os.path.exists(path)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_is_no_file_is_refused_and_left_alone(capsule: Capsule, tmp_path: Path, make: object) -> None:
    assert callable(make)
    path = str(tmp_path / "odd")
    make(path, 0o600)

    with pytest.raises(CapsuleError):
        read_capsule(path, consume=True)

    assert os.path.exists(path)


def test_another_version_is_refused(capsule: Capsule) -> None:
    import msgspec

    path = write_capsule(msgspec.structs.replace(capsule, version=999))

    with pytest.raises(CapsuleError, match="version 999"):
        read_capsule(path, consume=True)


@pytest.mark.parametrize("keep", [0, 1, 10, -1])
def test_a_damaged_capsule_is_refused_and_consumed(capsule: Capsule, keep: int) -> None:
    path = write_capsule(capsule)
    with open(path, "rb+") as file:
        file.truncate(keep if keep >= 0 else os.path.getsize(path) + keep)

    with pytest.raises(CapsuleError, match="damaged"):
        read_capsule(path, consume=True)

    assert not os.path.exists(path)


def test_an_oversize_capsule_is_refused_and_consumed(
    capsule: Capsule, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_capsule(capsule)
    monkeypatch.setattr(capsules, "MAX_CAPSULE", 10)

    with pytest.raises(CapsuleError, match="too large"):
        read_capsule(path, consume=True)

    assert not os.path.exists(path)


def test_a_capsule_written_for_another_process_is_refused(bed: Bed, capsule: Capsule) -> None:
    """An old variable in the environment must never make a host out of somebody else's descriptors."""
    path = write_capsule(capsule)

    done = subprocess.run(
        bed.command(),
        env={**bed.environ, "PERDURE_HOME": os.environ["PERDURE_HOME"], capsules.RESUME_ENV: path},
        cwd=bed.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "snapshot of the session" in done.stderr
    assert done.stdout == ""
