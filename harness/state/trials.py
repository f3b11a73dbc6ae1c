"""The trials: increments by many processes, mixed clients under kills, late lease holders, a restarted server.

Each gives a list of what is wrong, empty where nothing is, and a line that says what was done.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from harness.state import linear, serial
from harness.state.events import Event, Recorder
from harness.state.subjects import Subject, Usable, opened
from perdure.storage.state import StateBackend

SINGLE = tuple(f"r{i}" for i in range(4))
SHARED = tuple(f"t{i}" for i in range(4))


class Verdict(NamedTuple):
    wrong: list[str]
    told: str


def increments(state: str, folder: str, *, processes: int, each: int) -> Verdict:
    """Every process reads, adds one and writes under the version it read, until it succeeds."""
    subjects = opened("worker", state, folder, processes)
    try:
        with ThreadPoolExecutor(processes) as pool:
            tries = sum(pool.map(lambda subject: _increment(subject, each), subjects))
        final = subjects[0].done("get_state", key="n")
    finally:
        for subject in subjects:
            subject.close()
    total = processes * each
    is_right = (int(final["value"]), final["version"]) == (total, total)
    wrong = [] if is_right else [f"{total} acknowledged, the value is {final['value']}"]
    return Verdict(wrong, f"{processes} processes, {total} guarded increments, {tries - total} conflicts")


def _increment(subject: Subject, count: int) -> int:
    tries = 0
    for _ in range(count):
        status = ""
        while status != "ok":
            found = subject.done("get_state", key="n")
            value = int(found.get("value", "0")) + 1
            expected = found.get("version", 0)
            answer = subject.done("set_state", key="n", value=str(value), expected_version=expected)
            status, tries = answer["status"], tries + 1
    return tries


def mixed(
    state: str,
    folder: str,
    look: Callable[[], StateBackend],
    *,
    clients: int,
    seconds: float,
    seed: int,
    kills: bool = False,
    meanwhile: Callable[[threading.Event], None] | None = None,
) -> Verdict:
    """Clients that get, set, delete, transact and hold leases on few keys; then both checkers on all of it."""
    recorder = Recorder()
    over = threading.Event()
    subjects = opened("run" if kills else "worker", state, folder, clients)
    killed = [0]
    disturber = meanwhile or (lambda over: _kill(subjects, over, killed, seed) if kills else None)
    try:
        disturbing = threading.Thread(target=disturber, args=(over,))
        disturbing.start()
        recorded(subjects, recorder, seconds, seed)
        over.set()
        disturbing.join()
    finally:
        over.set()
        for subject in subjects:
            subject.close()
    return judged(recorder.events, look, killed[0])


def recorded(subjects: Sequence[Usable], recorder: Recorder, seconds: float, seed: int) -> None:
    """Each subject with a client of its own, for so long."""
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(len(subjects)) as pool:
        runs = [
            pool.submit(_client, subject, recorder, random.Random(f"{seed}:{i}"), f"c{i}", until)
            for i, subject in enumerate(subjects)
        ]
        for run in runs:
            run.result()


def judged(events: list[Event], look: Callable[[], StateBackend], killed: int = 0) -> Verdict:
    backend = look()
    try:
        rows = log_rows(backend)
    finally:
        backend.close()
    wrong = serial.anomalies(events, rows)
    wrong += linear.anomalies(e for e in events if e.arguments.get("key") in SINGLE)
    kinds = {name: sum(e.outcome == name for e in events) for name in ("done", "refused", "unknown")}
    told = (
        f"{len(events)} calls ({kinds['refused']} refused, {kinds['unknown']} unknown), {len(rows)} changes"
    )
    return Verdict(wrong, told + (f", {killed} kills" if killed else ""))


def log_rows(backend: StateBackend) -> list[serial.Row]:
    """The whole log, with values, from the store itself."""
    found: list[serial.Row] = []
    for key in (*SINGLE, *SHARED):
        for change in backend.history(("key", "default", key), 10**9):
            e = change.entry
            found.append(serial.row(e.revision, e.key, e.version, e.value))
    return found


def _client(subject: Usable, recorder: Recorder, draw: random.Random, name: str, until: float) -> None:
    number = 0
    versions: dict[str, int] = {}
    token: int | None = None
    while time.monotonic() < until:
        number += 1
        identity = f"{name}-{number}"
        if draw.random() < 0.05:
            token = _leased(subject, draw)
        tool, arguments = _drawn(draw, identity, versions, token)
        event = recorder.call(identity, tool, arguments, subject.use)
        if event.outcome == "done" and "version" in event.answer:
            versions[arguments["key"]] = event.answer["version"]
        elif event.status == "conflict" and "actual_version" in event.answer:
            versions[arguments["key"]] = event.answer["actual_version"]


def _leased(subject: Usable, draw: random.Random) -> int | None:
    name = draw.choice(("l0", "l1"))
    outcome, answer = subject.use("lease", {"action": "acquire", "name": name, "ttl_s": 0.5})
    return answer.get("token") if outcome == "done" else None


def _drawn(
    draw: random.Random, identity: str, versions: dict[str, int], token: int | None
) -> tuple[str, dict[str, Any]]:
    value = json.dumps({"by": identity})
    chance = draw.random()
    if chance < 0.2:
        one, other = draw.sample(SHARED, 2)
        compare: list[dict[str, Any]] = [{"key": one, "version": versions.get(one, 0)}]
        if token is not None and draw.random() < 0.3:
            compare.append({"key": "l0", "lease_token": token})
        then = [{"op": "set", "key": key, "value": value} for key in (one, other)]
        return "state_txn", {"compare": compare, "then": then}
    if chance < 0.3:
        return "get_state", {"key": draw.choice(SHARED)}
    key = draw.choice(SINGLE)
    if chance < 0.55:
        return "get_state", {"key": key}
    if chance < 0.62:
        return "delete_state", {"key": key}
    expected = versions.get(key, 0) if draw.random() < 0.7 else -1
    arguments: dict[str, Any] = {"key": key, "value": value, "expected_version": expected}
    return "set_state", arguments


def _kill(subjects: list[Subject], over: threading.Event, killed: list[int], seed: int) -> None:
    draw = random.Random(f"{seed}:kill")
    while not over.wait(draw.uniform(0.2, 1.2)):
        killed[0] += draw.choice(subjects).kill_worker()


def fencing(state: str, folder: str, *, rounds: int) -> Verdict:
    """A holder pauses past the end of its lease, another takes it and writes, and then the first one wakes."""
    wrong: list[str] = []
    late, next_one = opened("worker", state, folder, 2)
    try:
        for i in range(rounds):
            name, key = f"lease{i % 8}", f"guarded{i % 8}"
            old = late.done("lease", action="acquire", name=name, owner="late", ttl_s=0.01)["token"]
            got: dict[str, Any] = {"status": "held"}
            while got["status"] == "held":
                got = next_one.done("lease", action="acquire", name=name, owner="next", ttl_s=60)
            mine = {"key": key, "value": str(i), "lease": name}
            done = next_one.done("set_state", **mine, lease_token=got["token"])
            refused = late.done("set_state", key=key, value='"late"', lease=name, lease_token=old)
            in_txn = late.done(
                "state_txn",
                compare=[{"key": name, "lease_token": old}],
                then=[{"op": "set", "key": key, "value": '"late"'}],
            )
            after = late.done("get_state", key=key)
            is_right = (
                done["status"] == "ok"
                and refused.get("reason") == "stale_token"
                and in_txn["succeeded"] is False
                and after["value"] == str(i)
                and got["token"] > old
            )
            if not is_right:
                wrong.append(f"round {i}: {refused} {in_txn} {after}")
            next_one.done("lease", action="release", name=name, token=got["token"])
    finally:
        late.close()
        next_one.close()
    return Verdict(wrong, f"{rounds} rounds, {rounds - len(wrong)} late holders refused")
