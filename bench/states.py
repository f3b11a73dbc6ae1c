"""Keys read and written through a server, beside a peer and beside the worker without its host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import apsw

from bench import peers
from bench.client import Client
from bench.report import Report, ms, p50

BLOCK = 40
KEYS = 20
IN_FLIGHT = 8
GET_FLOOR, SET_FLOOR, FLIGHT_FLOOR = 5.0, 3.0, 8.0
HOST_LIMIT, LIST_LIMIT = 3.0, 3.0
WAKE_SQLITE_S = 0.020
VALUE = '{"phase": "research", "progress": 0.3}'


@contextmanager
def server(argv: list[str], scratch: Path, name: str, state: str | None = None) -> Iterator[Client]:
    """A server with a home and a store of its own."""
    home = scratch / name
    home.mkdir(exist_ok=True)
    unwanted = ("PYTHON", "XDG_", "PERDURE_", "CHECKPOINT_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    env |= {
        "HOME": str(home),
        "PERDURE_HOME": str(home / "perdure"),
        "CHECKPOINT_DB_PATH": state or str(home / "state.db"),
    }
    with Client(argv, cwd=home, env=env) as client:
        client.initialize()
        client.call_until_ready("force_set_state", {"key": "k0", "value": VALUE})
        for i in range(KEYS):
            client.call("force_set_state", {"key": f"k{i}", "value": VALUE})
        yield client


def host(perdure: str) -> list[str]:
    return [perdure, "run", "--surfaces", "state"]


def worker(perdure: str) -> list[str]:
    return [perdure, "worker", "--surfaces", "state"]


def timed(client: Client, tool: str, arguments: dict[str, Any]) -> float:
    request = client.prepare("tools/call", {"name": tool, "arguments": arguments})
    start = time.perf_counter()
    client.post(request)
    return client.arrived - start


def measure_one(scratch: Path, perdure: str, report: Report, *, calls: int) -> None:
    """One call at a time, in blocks that take turns, so that what else the machine does hits all alike."""
    report.title("one client")
    with ExitStack() as stack:
        subjects = {
            "perdure": stack.enter_context(server(host(perdure), scratch, "ours")),
            "worker": stack.enter_context(server(worker(perdure), scratch, "alone")),
            "peer": stack.enter_context(
                server([str(peers.AGENTCHECKPOINT.bin / "agentcheckpoint")], scratch, "peer")
            ),
        }
        times: dict[tuple[str, str], list[float]] = {}
        for block in range(calls // BLOCK):
            for name, client in subjects.items():
                for i in range(BLOCK):
                    key = f"k{(block + i) % KEYS}"
                    read = timed(client, "get_state", {"key": key})
                    write = timed(client, "force_set_state", {"key": key, "value": VALUE})
                    times.setdefault((name, "get"), []).append(read)
                    times.setdefault((name, "set"), []).append(write)
    for what, floor in (("get", GET_FLOOR), ("set", SET_FLOOR)):
        ours, theirs = times["perdure", what], times["peer", what]
        rates = len(ours) / sum(ours), len(theirs) / sum(theirs)
        text = f"{rates[0]:,.0f}/s, peer {rates[1]:,.0f}/s, {rates[0] / rates[1]:.1f}x, at least {floor:.0f}x"
        report.above(f"{what}, calls per second", text, rates[0] / rates[1], floor)
        report.figure(f"{what}, p50", f"{ms(p50(ours))}, peer {ms(p50(theirs))}")
    ours, alone = p50(times["perdure", "get"]), p50(times["worker", "get"])
    report.ratio("get through the host, p50", f"{ms(ours)}, worker {ms(alone)}", ours / alone, HOST_LIMIT)


def in_flight(client: Client, calls: int, most: int, value: str = VALUE) -> float:
    """Seconds for so many sets of different keys with `most` of them in flight at any time."""
    sent = done = 0
    start = time.perf_counter()
    while done < calls:
        while sent < calls and sent - done < most:
            arguments = {"key": f"k{sent % 200}", "value": value}
            client.send("tools/call", {"name": "force_set_state", "arguments": arguments})
            sent += 1
        frame = client.receive()
        if "result" not in frame or frame["result"].get("isError"):
            raise ValueError(f"a set failed: {str(frame)[:300]}")
        done += 1
    return client.arrived - start


def measure_in_flight(scratch: Path, perdure: str, report: Report, *, calls: int) -> None:
    report.title(f"sets, {IN_FLIGHT} in flight")
    rounds = 4
    with ExitStack() as stack:
        ours = stack.enter_context(server(host(perdure), scratch, "ours"))
        peer = stack.enter_context(
            server([str(peers.AGENTCHECKPOINT.bin / "agentcheckpoint")], scratch, "peer")
        )
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for client, found in ((ours, rates[0]), (peer, rates[1])):
                found.append(calls / rounds / in_flight(client, calls // rounds, IN_FLIGHT))
    mine, theirs = p50(rates[0]), p50(rates[1])
    text = f"{mine:,.0f}/s, peer {theirs:,.0f}/s, {mine / theirs:.1f}x, at least {FLIGHT_FLOOR:.0f}x"
    report.above("set, calls per second", text, mine / theirs, FLIGHT_FLOOR)


def fill(path: str, keys: int) -> None:
    """A store of so many keys, put there directly: through the tools it would take longer than the rest."""
    connection = apsw.Connection(path)
    with connection:
        connection.execute("DELETE FROM entries; DELETE FROM changes")
        rows = (
            ("key", "default", f"p{i // 50:06}:{i % 50:02}", 1, i + 1, 0, None, VALUE) for i in range(keys)
        )
        connection.executemany("INSERT INTO entries VALUES (?,?,?,?,?,?,?,?)", rows)
        connection.execute("UPDATE store SET revision = ?", (keys,))
    connection.close()


def measure_list(scratch: Path, perdure: str, report: Report, *, keys: int) -> None:
    report.title("list_state, a prefix of 50 keys")
    found: dict[int, list[float]] = {}
    for count in (1_000, keys):
        path = str(scratch / f"store{count}.db")
        with server(host(perdure), scratch, f"make{count}", path):
            pass
        fill(path, count)
        with server(host(perdure), scratch, f"list{count}", path) as client:
            for i in range(60):
                prefix = f"p{(i * 7919) % (count // 50):06}:"
                found.setdefault(count, []).append(timed(client, "list_state", {"prefix": prefix}))
    small, large = p50(found[1_000]), p50(found[keys])
    text = f"{ms(large)} in {keys:,} keys, {ms(small)} in 1,000"
    report.ratio("list_state, p50", text, large / small, LIST_LIMIT)


def wake_ups(waiter: Client, writer: Client, count: int) -> list[float]:
    """Seconds from the answer of a set to the answer of a wait for it in another process."""
    found: list[float] = []
    for i in range(count):
        waiting = waiter.send(
            "tools/call", {"name": "state_wait", "arguments": {"key": "woken", "timeout_s": 15}}
        )
        time.sleep(0.03)  # until it waits for sure
        writer.call("force_set_state", {"key": "woken", "value": str(i)})
        waiter.result(waiting)
        found.append(max(0.0, waiter.arrived - writer.arrived))
    return found


def measure_wait(scratch: Path, perdure: str, report: Report, *, wakes: int) -> None:
    report.title("state_wait, two processes on SQLite")
    path = str(scratch / "shared.db")
    with (
        server(host(perdure), scratch, "one", path) as one,
        server(host(perdure), scratch, "two", path) as two,
    ):
        found = wake_ups(one, two, wakes)
    text = f"{ms(p50(found))}, at most {ms(WAKE_SQLITE_S)}"
    report.at_most("wake-up, p50", text, p50(found), WAKE_SQLITE_S)
