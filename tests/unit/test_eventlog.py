"""The event log under several writers: every record whole, none lost while its file is kept."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.storage.event_log import EventLog
from testbed import Bed

WRITERS, RECORDS = 8, 200


def write(path: str, writer: int, max_bytes: int, kept: int) -> None:
    log = EventLog(path, max_bytes=max_bytes, kept=kept)
    for number in range(RECORDS):
        log.add(1.5, "session", "test", {"writer": writer, "number": number, "padding": "x" * (number % 50)})
        if number % 3 == 0:
            log.flush()
    log.flush()
    log.close()
    os._exit(1 if log.lost else 0)


def write_together(path: Path, *, max_bytes: int, kept: int) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write, args=(str(path), n, max_bytes, kept)) for n in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * WRITERS


def records(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def files(path: Path) -> list[Path]:
    """The log and what was rotated, newest first."""
    numbered = [path.with_name(f"{path.name}.{n}") for n in range(1, 1000)]
    return [file for file in (path, *numbered) if file.exists()]


def test_every_record_of_every_writer_is_intact(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    write_together(path, max_bytes=1 << 30, kept=1)

    found = records(path)
    assert len(found) == WRITERS * RECORDS
    for writer in range(WRITERS):
        assert [r["number"] for r in found if r["writer"] == writer] == list(range(RECORDS))
    assert {r["v"] for r in found} == {1}
    assert path.stat().st_mode & 0o777 == 0o600


def test_rotation_among_writers_loses_nothing_that_is_still_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    write_together(path, max_bytes=4096, kept=500)

    assert len(files(path)) > 5
    found = records(*files(path))
    assert sorted((r["writer"], r["number"]) for r in found) == [
        (writer, number) for writer in range(WRITERS) for number in range(RECORDS)
    ]


def test_no_more_files_are_kept_than_asked_and_the_newest_records_are_among_them(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(str(path), max_bytes=2000, kept=3)

    for number in range(5000):
        log.add(0.0, "s", "test", {"number": number})
        log.flush()

    assert {file.name for file in files(path)} == {path.name, *(f"{path.name}.{n}" for n in (1, 2, 3))}
    numbers = [r["number"] for r in records(*reversed(files(path)))]
    assert numbers == list(range(numbers[0], 5000))
    assert all(file.stat().st_size < 20_000 for file in files(path))


def test_a_writer_that_was_idle_follows_the_file_that_others_rotated(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    idle = EventLog(str(path), max_bytes=1000, kept=1)
    idle.add(0.0, "idle", "test", {"number": 1})
    idle.flush()
    busy = EventLog(str(path), max_bytes=1000, kept=1)
    for number in range(1000):
        busy.add(0.0, "busy", "test", {"number": number})
        busy.flush()

    idle._checked -= 3600  # an hour later
    idle.add(0.0, "idle", "test", {"number": 2})
    idle.flush()

    assert [r["number"] for r in records(*files(path)) if r["session"] == "idle"] == [2]


def test_half_of_a_surrogate_pair_is_written_as_its_escape(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))

    log.add(0.0, "s", "lifecycle", {"mount": "a\ud800"})
    log.flush()

    assert json.loads((tmp_path / "events.jsonl").read_text())["mount"] == "a\\ud800"


def test_a_log_that_cannot_be_written_is_counted_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "missing").write_text("not a folder")
    log = EventLog(str(tmp_path / "missing" / "events.jsonl"))

    log.add(0.0, "s", "test", {})
    log.add(0.0, "s", "test", {})
    log.flush()

    assert log.lost == 2
    (tmp_path / "missing").unlink()
    log.add(0.0, "s", "test", {"back": True})
    log.flush()
    assert [r["back"] for r in records(tmp_path / "missing" / "events.jsonl")] == [True]


def test_a_torn_record_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(str(path))
    whole = os.write
    monkeypatch.setattr("perdure.storage.event_log.os.write", lambda fd, data: whole(fd, data[:10]))
    log.add(0.0, "s", "test", {"number": 1})
    log.flush()
    monkeypatch.undo()

    log.add(0.0, "s", "test", {"number": 2})
    log.flush()

    torn, good = path.read_bytes().splitlines()
    assert len(torn) == 10
    assert json.loads(good)["number"] == 2
    assert log.lost == 1


def test_threads_of_one_process_may_each_have_a_log(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")

    def one(writer: int) -> None:
        log = EventLog(path, max_bytes=4096, kept=500)
        for number in range(RECORDS):
            log.add(0.0, "s", "test", {"writer": writer, "number": number})
            log.flush()

    threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(records(*files(Path(path)))) == 4 * RECORDS


def test_nothing_that_a_call_says_or_gets_is_in_the_log_of_a_session(bed: Bed) -> None:
    secret = "correct-horse-battery-staple"
    bed.environ["SECRET_TOKEN"] = secret
    client = bed.run(bed.fake())
    client.expected_strays = 1

    client.use("fake__echo", {"text": secret})
    client.use("fake__effect", {"key": secret, "crash": "after", "times": 1})
    client.use("fake__read_effect", {"key": secret, "crash": "before", "times": 1})
    client.use("fake__answer_badly", {"kind": "not_object", "key": secret})
    client.use("fake__progress", {"n": 2, "key": secret}, _meta={"progressToken": secret})
    client.use(f"fake__{secret}")
    client.use("health", {"no_such_argument": secret})
    client.ask("resources/read", {"uri": f"fake://item/{secret}"})
    client.ask("x/echo", {"value": secret})
    client.cancel(secret, secret)
    client.send_bytes(b'{"jsonrpc":"2.0","broken":"' + secret.encode() + b'"\n')
    client.close()

    (log,) = [file for file in (bed.root / "home" / "log").iterdir() if file.suffix == ".jsonl"]
    events = {record["event"] for record in records(log)}
    assert {"session", "lifecycle", "dispatch", "fault", "replay"} <= events
    assert secret.encode() not in log.read_bytes()
