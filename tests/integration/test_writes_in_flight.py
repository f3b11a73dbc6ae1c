"""Many writes on their way at once, to a real worker: they wait without threads, and nothing waits for them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.syscalls.traced_worker import Worker
from perdure.worker.server import MAX_THREADS

pytestmark = pytest.mark.thorough

MANY = 3 * MAX_THREADS


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path)
    assert made.use("safe_write", {"path": "seen", "content": "first\n"})[0]
    yield made
    made.client.close()


@contextmanager
def locked(worker: Worker) -> Iterator[None]:
    """As another process holds the workspace while it writes: nobody else's write gets on."""
    fd = os.open(worker.workspace, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_pings_and_reads_are_answered_while_more_writes_wait_than_there_are_threads(worker: Worker) -> None:
    client = worker.client
    with locked(worker):
        sent = [client.start_call("safe_write", {"path": f"d/{n}", "content": f"{n}\n"}) for n in range(MANY)]
        assert client.request("ping")["result"] == {}
        assert worker.use("read", {"path": "seen"})[1]["content"] == "first\n"
        assert not any(client.answers.get(one) for one in sent)
        assert len(os.listdir(f"/proc/{client.pid}/task")) < MAX_THREADS, "each of them keeps a thread"
    for n, one in enumerate(sent):
        assert client.wait(one, 30)["result"]["structuredContent"]["path"] == f"d/{n}"
    assert sorted(os.listdir(worker.workspace / "d"), key=int) == [str(n) for n in range(MANY)]


def test_of_writes_that_share_a_round_a_refused_one_takes_nothing_from_the_others(worker: Worker) -> None:
    client = worker.client
    with locked(worker):
        sent = {
            name: client.start_call("safe_write", {"path": name, "content": f"{name}\n"})
            for name in ("a", "seen", "b", "nothing/../../escape", "c")
        }
    told = {name: client.wait(one, 30)["result"] for name, one in sent.items()}
    assert [name for name in sent if told[name].get("isError")] == ["seen", "nothing/../../escape"]
    refused = told["seen"]["structuredContent"]
    assert (refused["error"], refused["context"]["reason"]) == ("stale_precondition", "file_already_exists")
    assert worker.use("safe_write", {"path": "again", "draft": refused["draft"]})[0], (
        "what was refused is kept"
    )
    assert (worker.workspace / "again").read_text() == "seen\n"
    assert [(worker.workspace / name).read_text() for name in "abc"] == ["a\n", "b\n", "c\n"]


def test_a_secret_is_refused_and_kept_while_the_workspace_is_not_to_be_had(worker: Worker) -> None:
    """What is refused before its round waits for one to be kept in: that too must not keep the reader."""
    client = worker.client
    secret = "AKIA" + "QYLPMN5HHHFPZAM2"
    with locked(worker):
        sent = client.start_call(
            "safe_write", {"path": "keys", "content": f"aws_access_key_id = {secret}\n" * 3}
        )
        assert client.request("ping")["result"] == {}
    told = client.wait(sent, 30)["result"]["structuredContent"]
    assert (told["error"], told["context"]["reason"]) == ("blocked", "risk")
    assert told["draft"]
    assert told["context"]["redacted_draft"]
    assert not (worker.workspace / "keys").exists()


def test_a_write_that_is_cancelled_while_it_waits_is_not_made(worker: Worker) -> None:
    client = worker.client
    with locked(worker):
        client.start_call("safe_write", {"path": "leads", "content": "leads\n"})
        given_up = client.start_call("safe_write", {"path": "given up", "content": "no\n"})
        client.cancel(given_up)
        assert client.request("ping")["result"] == {}
    assert worker.use("safe_write", {"path": "after", "content": "after\n"})[0]
    assert not (worker.workspace / "given up").exists()
    assert not client.answers.get(given_up)


def test_writes_of_one_path_land_in_the_order_they_were_sent(worker: Worker) -> None:
    client = worker.client
    with locked(worker):
        sent = [
            client.start_call("safe_write", {"path": "log", "content": f"{n}\n", "mode": "append"})
            for n in range(20)
        ]
    for one in sent:
        assert not client.wait(one, 30)["result"].get("isError")
    assert (worker.workspace / "log").read_text() == "".join(f"{n}\n" for n in range(20))


def test_the_end_of_input_lets_writes_finish_that_are_on_their_way(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    assert worker.use("safe_write", {"path": "first", "content": "x\n"})[0]
    for n in range(20):
        worker.client.start_call("safe_write", {"path": f"late/{n}", "content": f"{n}\n"})
    worker.client.close_stdin()
    worker.client.wait_end(30)
    assert len(os.listdir(worker.workspace / "late")) == 20
    assert len([n for n in worker.client.answers.values() if n]) == 22
