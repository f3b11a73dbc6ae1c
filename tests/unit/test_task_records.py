"""Tasks on disk: a failed write is reported once, and costs no other record."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from perdure.host import task_records
from perdure.host.event_lines import describe_event
from perdure.host.task_records import TaskRecords
from perdure.kernel.state import Ended, Task


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskRecords:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return TaskRecords()


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size`: the kernel writes what fits, then fails with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def encode(handle: str, status: str = "completed") -> bytes:
    seen = msgspec.json.encode({"taskId": handle, "status": status})
    return msgspec.json.encode(Task(handle, "a", "a__slow", Ended(), seen, host="gone"))


def load(records: TaskRecords) -> set[str]:
    """What a host reads that starts after this one has ended."""
    path = Path(records._path())
    path.rename(path.with_name("1-0.jsonl"))
    try:
        return set(TaskRecords().load())
    finally:
        path.with_name("1-0.jsonl").rename(path)


def test_a_failed_write_is_reported_once_and_so_is_the_next_success(records: TaskRecords) -> None:
    assert records.save("first", encode("first")) is None
    size = os.stat(records._path()).st_size

    with file_limit(size + 10):
        failed = records.save("second", encode("second"))
        again = records.save("third", encode("third"))
    recovered = records.save("fourth", encode("fourth"))

    assert failed is not None
    assert failed.fields["code"] == "tasks_not_recorded"
    assert "File too large" in describe_event(failed.event, failed.fields)
    assert again is None
    assert recovered is not None
    assert describe_event(recovered.event, recovered.fields) == "tasks are recorded on disk again"
    assert records.save("fifth", encode("fifth")) is None


def test_a_torn_line_damages_no_other_and_what_was_missed_is_written_later(records: TaskRecords) -> None:
    records.save("first", encode("first"))
    size = os.stat(records._path()).st_size
    with file_limit(size + 10):
        records.save("second", encode("second"))
        assert os.stat(records._path()).st_size == size + 10  # the torn line
        records.save("third", encode("third"))
        assert load(records) == {"first"}

    records.save("fourth", encode("fourth"))

    assert load(records) == {"first", "second", "third", "fourth"}


def test_a_task_that_is_forgotten_while_writing_fails_is_not_written(records: TaskRecords) -> None:
    records.save("first", encode("first"))
    with file_limit(os.stat(records._path()).st_size):
        records.save("second", encode("second"))
        records.save("second", b"")
        records.save("first", b"")
    records.save("third", encode("third"))
    assert load(records) == {"third"}


def test_a_compaction_that_fails_loses_no_record(
    records: TaskRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_records, "_SLACK", 0)
    handles = {f"t{number}" for number in range(20)}
    for handle in handles:
        records.save(handle, encode(handle))
    folder = Path(records._path()).parent
    blocker = folder / f"{records.host}.jsonl.{os.getpid()}"  # where the compacted file is prepared
    blocker.mkdir()
    notes = [records.save(handle, encode(handle, "failed")) for handle in handles for _ in range(3)]
    blocker.rmdir()
    notes.append(records.save("last", encode("last")))

    assert [note.event for note in notes if note is not None] == ["fault", "tasks_recorded"]
    assert load(records) == {*handles, "last"}
    assert os.stat(records._path()).st_size < 30 * len(encode("t10"))


def test_a_directory_that_cannot_be_made_is_reported_and_its_records_follow(
    records: TaskRecords, tmp_path: Path
) -> None:
    (tmp_path / "home").write_bytes(b"")
    failed = records.save("first", encode("first"))
    (tmp_path / "home").unlink()
    records.save("second", encode("second"))
    assert failed is not None
    assert load(records) == {"first", "second"}
