"""Large contents in shared memory: the same files and answers as through the pipe, whoever dies or is replaced."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from hosts import SOON, pids, wait_note

from harness.processes import wait_for
from perdure.model import handover
from testbed import Bed, Client

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs files in memory")
LINE = 'é𝄞 "quoted" \\ and plain words between them\n'
BUILTIN = "perdure"


def content_of(number: int, size: int = 600_000) -> str:
    return f"{number}\n{LINE * (size // len(LINE))}"


def opened(pid: int) -> dict[str, str]:
    """What a process has open: names by the paths to open it by."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        with suppress(FileNotFoundError):
            found[path] = os.readlink(path)
    return found


def arenas(pid: int) -> list[str]:
    """The shared memory that a process has open, as paths to open it by. One that is mapped is open twice."""
    found = [path for path, name in opened(pid).items() if "perdure-arena" in name]
    return list({os.stat(path).st_ino: path for path in found}.values())


def in_slot(pid: int, slot: int, size: int) -> bytes:
    (path,) = arenas(pid)
    with open(path, "rb") as file:
        return os.pread(file.fileno(), size, handover.begin(slot))


def taken(pid: int) -> int:
    (path,) = arenas(pid)
    with open(path, "rb") as file:
        return os.pread(file.fileno(), handover.SLOTS, handover.FLAGS).count(1)


def write(client: Client, name: str, content: str) -> int | str:
    return client.begin_use("safe_write", {"path": name, "content": content})


def expect_written(bed: Bed, client: Client, call: int | str, name: str, content: str) -> None:
    answer = client.wait(call, 30)
    assert not answer["result"].get("isError"), answer
    assert (bed.workspace / name).read_bytes() == content.encode()
    assert len(client.answers[call]) == 1


def test_a_large_content_goes_through_shared_memory_and_lands_byte_for_byte(bed: Bed) -> None:
    client = bed.run()
    worker = pids(client)[BUILTIN]
    for number in range(4):
        content = content_of(number)
        expect_written(bed, client, write(client, f"f{number}", content), f"f{number}", content)
        assert in_slot(worker, 0, len(content.encode())) == content.encode()
        assert wait_for(lambda: taken(worker) == 0, SOON)


def test_a_content_that_fits_no_slot_goes_through_the_pipe(bed: Bed) -> None:
    client = bed.run()
    worker = pids(client)[BUILTIN]
    for number, size in enumerate((handover.SLOT_BYTES + 1_000, 600_000)):
        content = content_of(number, size)
        expect_written(bed, client, write(client, f"f{number}", content), f"f{number}", content)
        assert wait_for(lambda: taken(worker) == 0, SOON)


def test_other_servers_never_see_it(bed: Bed) -> None:
    client = bed.run(bed.fake())
    found = pids(client)
    assert len(arenas(found[BUILTIN])) == len(arenas(client.pid)) == 1
    assert arenas(found["fake"]) == []
    assert handover.VARIABLE.encode() not in Path(f"/proc/{found['fake']}/environ").read_bytes()
    text = content_of(1)
    assert client.use_text("fake__echo", {"text": text}, timeout=30) == text
    assert in_slot(found[BUILTIN], 0, 2) == b"\0\0"
    client.use("safe_write", {"path": "a.py", "content": "x = 1\n", "validate": "refuse"}, timeout=30)
    children = Path(f"/proc/{found[BUILTIN]}/task/{found[BUILTIN]}/children").read_text().split()
    assert [path for child in children for path in arenas(int(child))] == []


def test_whatever_waits_in_a_worker_that_is_killed_is_written_by_the_next(bed: Bed) -> None:
    client = bed.run()
    worker = pids(client)[BUILTIN]
    os.kill(worker, signal.SIGSTOP)
    contents = [content_of(number) for number in range(handover.SLOTS + 2)]
    calls = [write(client, f"f{number}", content) for number, content in enumerate(contents)]
    assert wait_for(lambda: taken(worker) == handover.SLOTS, SOON)
    os.kill(worker, signal.SIGKILL)
    for number, (call, content) in enumerate(zip(calls, contents, strict=True)):
        expect_written(bed, client, call, f"f{number}", content)
    successor = pids(client)[BUILTIN]
    assert successor != worker
    assert len(arenas(client.pid)) == len(arenas(successor)) == 1
    assert wait_for(lambda: taken(successor) == 0, SOON)


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
    assert len(arenas(client.pid)) == 1


def test_a_host_that_is_replaced_leaves_what_is_in_a_slot_to_its_worker_and_goes_on_with_it(bed: Bed) -> None:
    client = bed.run()
    worker = pids(client)[BUILTIN]
    os.kill(worker, signal.SIGSTOP)
    contents = [content_of(number) for number in range(3)]
    calls = [write(client, "f0", contents[0])]
    assert wait_for(lambda: taken(worker) == 1, SOON)
    os.kill(client.pid, signal.SIGUSR2)
    wait_note(bed, "rollout", phase="host_replaced")
    calls.append(write(client, "f1", contents[1]))
    assert wait_for(lambda: taken(worker) == 2, SOON)
    os.kill(worker, signal.SIGCONT)
    for number in range(2):
        expect_written(bed, client, calls[number], f"f{number}", contents[number])
    assert wait_for(lambda: taken(worker) == 0, SOON)
    expect_written(bed, client, write(client, "f2", contents[2]), "f2", contents[2])
    assert pids(client)[BUILTIN] == worker
    assert in_slot(worker, 0, len(contents[2].encode())) == contents[2].encode()
    assert len(arenas(client.pid)) == 1


def test_a_host_that_is_replaced_in_the_middle_of_a_frame_reads_it_to_its_end(bed: Bed) -> None:
    client = bed.run(bed.fake())
    found = pids(client)
    content = content_of(1, 2_000_000)
    params = {"name": "safe_write", "arguments": {"path": "f", "content": content}}
    frame = (
        json.dumps({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}).encode() + b"\n"
    )
    client.asked.append(("x", "tools/call", False))
    client.send_bytes(frame[:900_000])
    os.kill(client.pid, signal.SIGUSR2)
    wait_note(bed, "rollout", phase="host_replaced")
    client.send_bytes(frame[900_000:])
    expect_written(bed, client, "x", "f", content)
    assert pids(client) == found
    assert arenas(found["fake"]) == []


def blobs_without_a_name(pid: int) -> list[int]:
    """How much is in files of a process that were never given a name among the kept contents."""
    return sizes_without_a_name(pid, r"/blobs/.*")


def files_without_a_name(pid: int, folder: Path) -> list[int]:
    """The same for those right in a folder."""
    return sizes_without_a_name(pid, f"^{re.escape(str(folder))}/[^/]*")


def sizes_without_a_name(pid: int, pattern: str) -> list[int]:
    sizes = []
    for path, name in opened(pid).items():
        if re.search(pattern + r"[(]deleted[)]$", name):
            with suppress(FileNotFoundError):
                sizes.append(os.stat(path).st_size)
    return sizes


def test_a_content_is_on_its_way_to_the_disk_before_all_of_it_is_here(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "first", "content": "opens the workspace\n"})
    worker = pids(client)[BUILTIN]
    content = content_of(1, 4_000_000)
    params = {"name": "safe_write", "arguments": {"path": "f", "content": content}}
    frame = json.dumps({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}).encode()
    client.asked.append(("x", "tools/call", False))
    client.send_bytes(frame[:3_500_000])
    assert wait_for(lambda: any(size >= 1 << 20 for size in blobs_without_a_name(worker)), SOON)
    assert wait_for(
        lambda: any(size >= 1 << 20 for size in files_without_a_name(worker, bed.workspace)), SOON
    )
    assert not list((bed.workspace / ".perdure" / "blobs").iterdir())
    assert sorted(path.name for path in bed.workspace.iterdir()) == [".perdure", "first"]
    client.send_bytes(frame[3_500_000:] + b"\n")
    expect_written(bed, client, "x", "f", content)
    (kept,) = (bed.workspace / ".perdure" / "blobs").iterdir()
    assert kept.read_bytes() == content.encode()
    assert wait_for(lambda: blobs_without_a_name(worker) == [], SOON)


def test_a_content_that_is_refused_after_it_arrived_is_kept_as_a_draft_all_the_same(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "first", "content": "opens the workspace\n"})
    worker = pids(client)[BUILTIN]
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
    assert wait_for(lambda: blobs_without_a_name(worker) == [], SOON)


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
    told = []
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
        told.append(json.dumps(answer).replace(f"x{number}", "x"))
    assert told[0] == told[1]
    assert not (bed.workspace / "f").exists()


@pytest.mark.parametrize("path", ["f", "sub/f", ".git/config", "../f", "first"])
def test_a_text_that_never_becomes_a_call_leaves_nothing_wherever_it_was_meant_to_stand(
    bed: Bed, path: str
) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "first", "content": "opens the workspace\n"})
    worker = pids(client)[BUILTIN]
    before = sorted(str(found) for found in bed.workspace.rglob("*"))
    params = {"name": "safe_write", "arguments": {"path": path, "content": content_of(1, 3_000_000)}}
    frame = json.dumps({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}).encode()
    client.asked.append(("x", "tools/call", False))
    client.send_bytes(frame[:2_500_000] + b"\n")
    assert client.wait("x")["error"]["code"] == -32700
    content = content_of(2, 3_000_000)
    expect_written(bed, client, write(client, "next", content), "next", content)
    assert wait_for(lambda: blobs_without_a_name(worker) == [], SOON)
    assert wait_for(lambda: files_without_a_name(worker, bed.workspace) == [], SOON)
    (bed.workspace / "next").unlink()
    after = sorted(str(found) for found in bed.workspace.rglob("*") if found.parent.name != "blobs")
    assert after == before


def test_a_large_file_is_replaced_with_everything_of_the_old_one_or_left_alone(bed: Bed) -> None:
    """What was made ready before the plan is fit for a new file; each of these is planned as something else."""
    client = bed.run()
    worker = pids(client)[BUILTIN]
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
    assert wait_for(lambda: files_without_a_name(worker, bed.workspace) == [], SOON)
