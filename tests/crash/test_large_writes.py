"""Large contents: written byte for byte, once, whichever process is killed or replaced meanwhile."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from pathlib import Path

import pytest
from hosts import SOON, pids, wait_note

from harness.processes import wait_for
from testbed import Bed, Client

pytestmark = pytest.mark.thorough

LINE = 'é𝄞 "quoted" \\ and plain words between them\n'
BUILTIN = "perdure"


def content_of(number: int, size: int = 600_000) -> str:
    return f"{number}\n{LINE * (size // len(LINE))}"


def write(client: Client, name: str, content: str) -> int | str:
    return client.begin_use("safe_write", {"path": name, "content": content})


def frame_of(identity: str, path: str, content: str) -> bytes:
    params = {"name": "safe_write", "arguments": {"path": path, "content": content}}
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}).encode()


def expect_written(bed: Bed, client: Client, call: int | str, name: str, content: str) -> None:
    answer = client.wait(call, 30)
    assert not answer["result"].get("isError"), answer
    assert (bed.workspace / name).read_bytes() == content.encode()
    assert len(client.answers[call]) == 1


@pytest.mark.parametrize("size", [600_000, 5 << 20, 9 << 20])
def test_a_large_content_lands_byte_for_byte(bed: Bed, size: int) -> None:
    client = bed.run()
    content = content_of(1, size)
    expect_written(bed, client, write(client, "f", content), "f", content)
    (kept,) = (bed.store / "blobs").iterdir()
    assert kept.read_bytes() == content.encode()


def test_calls_in_a_worker_that_is_killed_are_written_by_the_next(bed: Bed) -> None:
    client = bed.run()
    worker = pids(client)[BUILTIN]
    os.kill(worker, signal.SIGSTOP)
    contents = [content_of(number) for number in range(6)]
    calls = [write(client, f"f{number}", content) for number, content in enumerate(contents)]
    wait_note(bed, "dispatch", count=len(calls), mount=BUILTIN)
    os.kill(worker, signal.SIGKILL)
    for number, (call, content) in enumerate(zip(calls, contents, strict=True)):
        expect_written(bed, client, call, f"f{number}", content)
    assert pids(client)[BUILTIN] != worker


def test_a_worker_killed_at_any_moment_of_a_large_write_costs_nothing(bed: Bed) -> None:
    """Each write has a kill at another moment; what was there before the answer is what is there after it."""
    client = bed.run()
    chance = random.Random(5)
    for number in range(12):
        worker = pids(client)[BUILTIN]
        content = content_of(number, 2_000_000)
        call = write(client, f"f{number}", content)
        wait_for(lambda: bool(client.answers.get(call)), chance.random() * 0.06)  # noqa: B023
        os.kill(worker, signal.SIGKILL)
        expect_written(bed, client, call, f"f{number}", content)
        assert wait_for(lambda: pids(client)[BUILTIN] != worker, SOON)  # noqa: B023


def test_a_host_that_is_replaced_goes_on_with_a_large_call_it_has_sent_in_part(bed: Bed) -> None:
    client = bed.run()
    worker = pids(client)[BUILTIN]
    os.kill(worker, signal.SIGSTOP)
    contents = [content_of(number, 2_000_000) for number in range(3)]
    calls = [write(client, "f0", contents[0])]
    wait_note(bed, "dispatch", mount=BUILTIN)
    os.kill(client.pid, signal.SIGUSR2)
    wait_note(bed, "rollout", phase="host_replaced")
    calls.append(write(client, "f1", contents[1]))
    os.kill(worker, signal.SIGCONT)
    for number in range(2):
        expect_written(bed, client, calls[number], f"f{number}", contents[number])
    expect_written(bed, client, write(client, "f2", contents[2]), "f2", contents[2])
    assert pids(client)[BUILTIN] == worker


def test_a_host_that_is_replaced_in_the_middle_of_a_frame_reads_it_to_its_end(bed: Bed) -> None:
    client = bed.run(bed.fake())
    before = pids(client)
    content = content_of(1, 2_000_000)
    frame = frame_of("x", "f", content) + b"\n"
    client.asked.append(("x", "tools/call", False))
    client.send_bytes(frame[:900_000])
    os.kill(client.pid, signal.SIGUSR2)
    wait_note(bed, "rollout", phase="host_replaced")
    client.send_bytes(frame[900_000:])
    expect_written(bed, client, "x", "f", content)
    assert pids(client) == before


def test_a_large_content_that_is_refused_is_kept_as_a_draft(bed: Bed) -> None:
    client = bed.run()
    key = "AKIA" + "Q7RZ3XW5T2B6N4M8"
    content = content_of(2, 3_000_000)
    middle = len(content) // 2
    content = f"{content[:middle]}\naws_access_key_id = {key}\n{content[middle:]}"
    answer = client.wait(write(client, "f", content), 30)["result"]
    assert answer["isError"]
    draft = re.search(r"draft\W+([\w-]+)", answer["content"][0]["text"])
    assert draft is not None
    assert not (bed.workspace / "f").exists()
    client.use("safe_write", {"path": "f", "draft": draft[1], "classify": False}, timeout=30)
    assert (bed.workspace / "f").read_bytes() == content.encode()


@pytest.mark.parametrize(
    ("bad", "code", "reason"),
    [
        (b"\xff", -32700, "invalid UTF-8"),
        (rb"\ud800", -32700, "lone surrogate"),
        (rb"\q", -32700, "not valid JSON"),
        (b"\x01", -32700, "not valid JSON"),
        (b'","content":"', None, "duplicate_argument"),
        (b'","x":' + b"[" * 200 + b"]" * 200 + b',"y":"', None, "too_deep"),
    ],
)
def test_a_broken_large_frame_is_answered_as_a_small_one_is(
    bed: Bed, bad: bytes, code: int | None, reason: str
) -> None:
    client = bed.run()
    pids(client)
    answers = []
    for number, size in enumerate((100, 700_000)):
        half = b"plain words " * (size // 24)
        arguments = b'{"path":"f","content":"' + half + bad + half + b'"}'
        params = b'{"name":"safe_write","arguments":' + arguments + b"}"
        client.asked.append((f"x{number}", "tools/call", False))
        client.send_bytes(
            b'{"jsonrpc":"2.0","id":"x%d","method":"tools/call","params":%b}\n' % (number, params)
        )
        answer = client.wait(f"x{number}")
        if code is not None:
            assert (answer["error"]["code"], answer["error"]["message"]) == (code, reason)
        else:
            assert reason in repr(answer)
        answers.append(json.dumps(answer).replace(f"x{number}", "x"))
    assert answers[0] == answers[1]
    assert not (bed.workspace / "f").exists()


@pytest.mark.parametrize("path", ["f", "sub/f", ".git/config", "../f", "first"])
def test_a_frame_that_is_cut_off_leaves_nothing(bed: Bed, path: str) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "first", "content": "opens the workspace\n"})
    before = sorted(str(file) for file in bed.workspace.rglob("*"))
    client.asked.append(("x", "tools/call", False))
    client.send_bytes(frame_of("x", path, content_of(1, 3_000_000))[:2_500_000] + b"\n")
    assert client.wait("x")["error"]["code"] == -32700
    assert sorted(str(file) for file in bed.workspace.rglob("*")) == before


def test_a_large_file_is_replaced_with_everything_of_the_old_one_or_left_alone(bed: Bed) -> None:
    client = bed.run()
    old, linked = bed.workspace / "old", bed.workspace / "d" / "linked"
    old.write_text("old\n")
    old.chmod(0o751)
    linked.parent.mkdir()
    linked.write_text("linked\n")
    (bed.workspace / "link").symlink_to("d/linked")
    contents = [content_of(number, 2_000_000) for number in range(5)]

    def use(path: str, content: str, **more: object) -> bool:
        arguments = {"path": path, "content": content, **more}
        return not client.use("safe_write", arguments, timeout=30)["result"].get("isError")

    assert use("old", contents[0], mode="overwrite")
    assert (old.read_text(), old.stat().st_mode & 0o777) == (contents[0], 0o751)
    assert not use("old", contents[1])
    assert old.read_text() == contents[0]
    assert use("old", contents[1], mode="append")
    assert old.read_text() == contents[0] + contents[1]
    assert use("link", contents[2], mode="overwrite")
    assert linked.read_text() == contents[2]
    assert (bed.workspace / "link").is_symlink()
    assert use("a/b/new", contents[3])
    assert (bed.workspace / "a" / "b" / "new").read_text() == contents[3]
    assert not use(".git/new", contents[4])
    assert temporary_files(bed.workspace) == []


def temporary_files(workspace: Path) -> list[str]:
    return [file.name for file in workspace.rglob(".perdure~*")]
