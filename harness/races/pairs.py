"""Every pair of tools that change files, both calls at once on one path: the outcome is one of the two serial ones.

    python -m harness.races.pairs [--rounds 200] [--way one|two|alias] [--kinds overwrite,undo]

What the product does with the two calls one after the other, in either order, is recorded first. Then both frames are
sent before an answer is read. Together they must answer, and leave the file, as one of the two orders did: a call
that was acknowledged and undone by the other is a lost change, a refusal that no order gives is a false conflict, a
success that no order gives is a false success. The journal's rows of the path must follow one another without a gap,
and end with what is on disk.

| way | |
|---|---|
| one | both calls go to one worker |
| two | each goes to a worker of its own |
| alias | to one worker; the second call reaches the file through a symbolic link |
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from harness.progress import progress
from perdure.testing.raw_client import RawClient, RequestId

Way = Literal["one", "two", "alias"]
WAYS: Final[tuple[Way, ...]] = ("one", "two", "alias")
ANSWER_S: Final = 60.0
LINES: Final = "".join(f"line {number}\n" for number in range(1, 21))
_VOLATILE: Final = re.compile(rb"(?m)^(journal_head|open_drafts|updated_at):.*\n(?:- .*\n)*")

Arguments = dict[str, Any]
Make = Callable[[str, "Setup"], tuple[str, Arguments]]


class Setup(NamedTuple):
    """What was done to a path before the two calls: its rows, oldest first."""

    path: str
    rows: list[str]


def _overwrite(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "safe_write", {"path": path, "content": "overwritten\n" * 3, "mode": "overwrite"}


def _create(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "safe_write", {"path": path, "content": "created\n"}


def _append(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "safe_write", {"path": path, "content": "appended\n", "mode": "append"}


def _edit(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "edit", {"path": path, "edits": [{"old": "line 5\n", "new": "line five\n"}]}


def _replace(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "safe_replace", {"path": path, "old_string": "line 12\n", "new_string": "line twelve\n"}


def _transaction(path: str, setup: Setup) -> tuple[str, Arguments]:
    edits = [{"old": "line 18\n", "new": "line eighteen\n"}]
    return "transaction", {
        "ops": [
            {"op": "edit", "path": path, "edits": edits},
            {"op": "write", "path": f"{setup.path}.beside", "content": "beside\n", "mode": "overwrite"},
        ]
    }


def _delete(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "transaction", {"ops": [{"op": "delete", "path": setup.path}]}


def _move(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "transaction", {"ops": [{"op": "move", "path": setup.path, "to": f"{setup.path}.moved"}]}


def _compose(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "chunk_compose", {"session": "pairs", "output_path": path, "mode": "overwrite"}


def _undo(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "undo", {"path": path, "session": "any"}


def _undo_newest(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "undo", {"session": "any"}


def _undo_one(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "undo", {"journal_id": setup.rows[1]}


def _redo(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "undo", {"path": path, "session": "any", "redo": True}


def _restore(path: str, setup: Setup) -> tuple[str, Arguments]:
    return "restore", {"path": path, "journal_id": setup.rows[0]}


def _handoff(path: str, setup: Setup) -> tuple[str, Arguments]:
    envelope = {
        "task_id": "pairs",
        "status": "partial",
        "agent": "pairs",
        "summary": "two at once",
        "next_steps": [],
        "last_good_state": [],
    }
    return "handoff_write", {"path": path, "envelope": envelope, "body": "body\n"}


KINDS: Final[dict[str, Make]] = {
    "overwrite": _overwrite,
    "create": _create,
    "append": _append,
    "edit": _edit,
    "replace": _replace,
    "transaction": _transaction,
    "delete": _delete,
    "move": _move,
    "compose": _compose,
    "undo": _undo,
    "undo newest": _undo_newest,
    "undo one": _undo_one,
    "redo": _redo,
    "restore": _restore,
    "handoff": _handoff,
}
PAIRS: Final = tuple(itertools.combinations_with_replacement(KINDS, 2))


class Outcome(NamedTuple):
    """What both calls came to, in the order of the pair, and what is on disk afterwards, without what differs from
    run to run."""

    answers: tuple[str, str]
    files: tuple[tuple[str, str], ...]


class Tally(msgspec.Struct):
    rounds: int = 0
    violations: list[str] = []


class Racers:
    """Workers on one workspace, and the serial outcomes of the pairs that were raced."""

    def __init__(self, base: Path, way: Way) -> None:
        self.workspace = base / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self._way = way
        env = {**os.environ, "PERDURE_HOME": str(base / "home")}
        command = [sys.executable, "-P", "-m", "perdure", "worker", "--workspace", str(self.workspace)]
        self._clients = [
            RawClient([*command, "--render", "json", "--detail", "full"], env=env)
            for _ in range(2 if way == "two" else 1)
        ]
        for client in self._clients:
            client.initialize(timeout=ANSWER_S)
        self._number = 0
        self._serial: dict[tuple[str, str], tuple[Outcome, Outcome]] = {}
        self._use(self._clients[0], "chunk_write", {"session": "pairs", "index": 1, "content": "composed\n"})

    def close(self) -> None:
        for client in self._clients:
            client.kill()

    def race(self, first: str, second: str) -> Iterator[str]:
        """One round; what is wrong with it."""
        if (first, second) not in self._serial:
            self._serial[first, second] = (
                self._in_order(first, second, (0, 1)),
                self._in_order(first, second, (1, 0)),
            )
        setup, calls = self._prepared(first, second)
        # Something for the worker to commit, so that both calls are there when it comes to them.
        blocker = self._frame("scratch_put", {"content": "x" * 100_000, "label": "pairs"})
        frames = [self._frame(*call) for call in calls]
        to_first = [blocker, *(frames if self._way != "two" else frames[:1])]
        self._clients[0].send_bytes(b"".join(frame for _, frame in to_first))
        if self._way == "two":
            self._clients[1].send_bytes(frames[1][1])
        self._answer(0, blocker[0])
        answers = [self._answer(at, identity) for at, (identity, _) in enumerate(frames)]
        outcome = self._outcome(setup, answers)
        if outcome not in self._serial[first, second]:
            yield f"{first} and {second}: {outcome}, but one after the other {self._serial[first, second]}"
        yield from self._broken_rows(setup, f"{first} and {second}")

    def _in_order(self, first: str, second: str, order: tuple[int, int]) -> Outcome:
        setup, calls = self._prepared(first, second)
        answers: dict[int, Arguments] = {}
        for at in order:
            answers[at] = self._use(self._client(at), *calls[at])
        return self._outcome(setup, [answers[0], answers[1]])

    def _prepared(self, first: str, second: str) -> tuple[Setup, list[tuple[str, Arguments]]]:
        """A file with four changes, the last of them taken back: there is something to undo and something to redo."""
        self._number += 1
        path = f"{self._number}.md"
        rows = [
            self._done("safe_write", {"path": path, "content": LINES}),
            self._done("edit", {"path": path, "edits": [{"old": "line 2\n", "new": "line two\n"}]}),
            self._done("edit", {"path": path, "edits": [{"old": "line 9\n", "new": "line nine\n"}]}),
            self._done("edit", {"path": path, "edits": [{"old": "line 15\n", "new": "line fifteen\n"}]}),
        ]
        self._done("undo", {"journal_id": rows[-1]["journal_id"]})
        for client in self._clients:
            self._use(client, "read", {"path": path})
        setup = Setup(path, [row["journal_id"] for row in rows])
        link = path
        if self._way == "alias":
            link = f"{self._number}.link"
            os.symlink(path, self.workspace / link)
        return setup, [KINDS[first](path, setup), KINDS[second](link, setup)]

    def _done(self, tool: str, arguments: Arguments) -> Arguments:
        answer = self._use(self._clients[0], tool, arguments)
        assert answer["ok"], answer
        return answer

    def _client(self, at: int) -> RawClient:
        return self._clients[at % len(self._clients)]

    def _use(self, client: RawClient, tool: str, arguments: Arguments) -> Arguments:
        return _payload(client.wait(client.start_call(tool, arguments), ANSWER_S))

    def _frame(self, tool: str, arguments: Arguments) -> tuple[RequestId, bytes]:
        self._number += 1
        identity = f"at-once-{self._number}"
        params = {"name": tool, "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}
        return identity, msgspec.json.encode(request) + b"\n"

    def _answer(self, at: int, identity: RequestId) -> Arguments:
        return _payload(self._client(at).wait(identity, ANSWER_S))

    def _outcome(self, setup: Setup, answers: list[Arguments]) -> Outcome:
        files = {}
        for ending in ("", ".beside", ".moved"):
            file = self.workspace / f"{setup.path}{ending}"
            if file.exists():
                files[ending] = _VOLATILE.sub(b"", file.read_bytes()).decode()
        first, second = (_told(setup, answer) for answer in answers)
        return Outcome((first, second), tuple(files.items()))

    def _broken_rows(self, setup: Setup, pair: str) -> Iterator[str]:
        entries = self._use(self._clients[0], "journal_tail", {"n": 1000, "filter_path": setup.path})[
            "entries"
        ]
        for older, newer in itertools.pairwise(entries):
            if newer["prev_sha256"] != older["sha256"]:
                yield f"{pair}: row {newer['journal_id']} does not follow {older['journal_id']}"
        file = self.workspace / setup.path
        on_disk = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None
        if entries[-1]["sha256"] != on_disk:
            yield f"{pair}: the last row is not what is on disk"


def _payload(answer: Arguments) -> Arguments:
    if "result" not in answer:
        return {"ok": False, "error": f"JSON-RPC {answer.get('error')}", "context": {}}
    payload: Arguments = answer["result"]["structuredContent"]
    return payload


def _told(setup: Setup, answer: Arguments) -> str:
    """An answer, without what differs from run to run."""
    if not answer.get("ok"):
        return f"refused: {answer['context'].get('reason') or answer['error']}"
    if "reverted" in answer:
        undone = [
            (one["path"].replace(setup.path, ""), _name(setup, one["undone"])) for one in answer["reverted"]
        ]
        return f"undid {undone}" if undone else f"conflicts {[one['reason'] for one in answer['conflicts']]}"
    return f"done: {answer.get('mode_applied') or [one['op'] for one in answer['files']]}"


def _name(setup: Setup, journal_id: str) -> str:
    """Which of the rows before the two calls; those of the calls themselves have no name."""
    return f"change {setup.rows.index(journal_id)}" if journal_id in setup.rows else "later"


def run(base: Path, way: Way, rounds: int, pairs: tuple[tuple[str, str], ...] = PAIRS) -> Tally:
    racers = Racers(base, way)
    tally = Tally()
    began = time.monotonic()
    try:
        for _ in range(rounds):
            for first, second in pairs:
                tally.rounds += 1
                tally.violations += racers.race(first, second)
                progress(f"{way}: {tally.rounds} rounds  {len(tally.violations)} violations", began)
    finally:
        racers.close()
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Every pair of tools that change files, at once on one path."
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    options = parser.parse_args()
    pairs = tuple(itertools.combinations_with_replacement(options.kinds, 2))
    is_bad = False
    for way in options.way or WAYS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            tally = run(Path(folder), way, options.rounds, pairs)
        for violation in tally.violations[:20]:
            print(violation)
        spent = time.monotonic() - began
        print(f"{way}: {tally.rounds} rounds  {len(tally.violations)} violations  {spent:.0f} s")
        is_bad = is_bad or bool(tally.violations)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
