"""Another program rewrites a file, without a lock, while Perdure's own processes write to it: nobody's content is lost
unseen.

    python -m harness.races.foreign_editor [--seconds 20] [--style renamed|in-place]

The foreign program keeps account. Each of its versions is complete at some moment; with the next one it learns what
stood at the name instead. If that is not its own last version, Perdure has displaced it, and must have kept it: in
the journal, as the old content of an acknowledged write, or as a draft. Whatever else it finds at the name must be a
content that Perdure's journal knows.

    renamed     writes beside the file and changes places with it, in one step
    in-place    opens the file, cuts it to nothing and writes into it, in two parts
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from harness.races.write_racers import Racers
from harness.store_location import anchor_of, store_of
from perdure.platform.files import exchange
from perdure.storage.blobs import Blobs
from perdure.storage.journal import Filter
from perdure.storage.sqlite.database import open_reader
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.workspace.contents import ContentStore

Style = Literal["renamed", "in-place"]
STYLES: Final[tuple[Style, ...]] = ("renamed", "in-place")
FILE: Final = "shared"
ALL: Final = 1_000_000


class Account(msgspec.Struct):
    """What the foreign program says: its versions, and those of them it did not find where it had put them."""

    versions: list[str] = []
    displaced: list[str] = []
    strange: list[str] = []


class Outcome(msgspec.Struct):
    foreign: int = 0
    displaced: int = 0
    acknowledged: int = 0
    refused: int = 0
    drafts: int = 0
    violations: list[str] = []


# --- the foreign program --------------------------------------------------------------------------------------


class Editor:
    def __init__(self, folder: Path) -> None:
        self.account = Account()
        self._path = folder / FILE
        self._dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._last = _sha(self._path.read_bytes())
        self._number = 0

    def renamed(self) -> None:
        content = self._next()
        beside = f".editor-{os.getpid()}"
        (self._path.parent / beside).write_bytes(content)
        exchange(self._dir_fd, beside, FILE)
        self._found((self._path.parent / beside).read_bytes())
        os.unlink(beside, dir_fd=self._dir_fd)
        self._wrote(content)

    def in_place(self) -> None:
        content = self._next()
        with open(self._path, "r+b", buffering=0) as file:
            found = file.read()
            file.seek(0)
            file.truncate()
            half = len(content) // 2
            file.write(content[:half])
            file.write(content[half:])
        self._found(found)
        self._wrote(content)

    def _next(self) -> bytes:
        self._number += 1
        return f"foreign {self._number}\n{'-' * 500}\n<mark>\n".encode()

    def _found(self, content: bytes) -> None:
        found = _sha(content)
        if found != self._last:
            self.account.displaced.append(self._last)
            self.account.strange.append(found)

    def _wrote(self, content: bytes) -> None:
        self._last = _sha(content)
        self.account.versions.append(self._last)


def edit_until_told(folder: Path, style: Style) -> None:
    """Until the input ends; then the account as one line."""
    editor = Editor(folder)
    print("editing", flush=True)
    os.set_blocking(0, False)
    while os.read(0, 1) != b"" if _is_readable() else True:
        editor.renamed() if style == "renamed" else editor.in_place()
        # Now and then it thinks: on a busy machine nobody else would ever get a turn.
        time.sleep(0.03 if len(editor.account.versions) % 40 == 0 else 0.001)
    print(json.dumps(msgspec.to_builtins(editor.account)), flush=True)


def _is_readable() -> bool:
    import select

    return bool(select.select([0], [], [], 0)[0])


# --- the race -------------------------------------------------------------------------------------------------


def race(base: Path, style: Style, seconds: float, racers: int = 2) -> Outcome:
    """Our processes append, replace and edit while the foreign one rewrites the same file."""
    ours = Racers(base, "worker", racers)
    (ours.workspace / FILE).write_bytes(b"begin\n<mark>\n")
    command = [sys.executable, "-P", "-m", "harness.races.foreign_editor", "--edit", str(ours.workspace)]
    foreign = subprocess.Popen(
        [*command, "--style", style], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    outcome = Outcome()
    try:
        assert foreign.stdout is not None
        assert foreign.stdout.readline() == "editing\n"
        acknowledged = _write(ours, seconds, outcome)
        said, _ = foreign.communicate(timeout=60)
        account = msgspec.json.decode(said, type=Account)
        ours.race("journal_tail", [{} for _ in ours.clients])
    finally:
        foreign.kill()
        foreign.communicate()
        ours.close()
    _judge(base, account, acknowledged, outcome)
    return outcome


def _write(ours: Racers, seconds: float, outcome: Outcome) -> list[dict[str, Any]]:
    """What was acknowledged."""
    acknowledged: list[dict[str, Any]] = []
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        line = f"ours {number} {{}}\n"
        if number % 3 == 0:
            edits = [{"old": "<mark>", "new": f"<mark> {number}"}]
            calls = [{"path": FILE, "edits": edits} for _ in ours.clients]
            answers = ours.race("edit", calls)
        elif number % 3 == 1:
            texts = [line.format(racer) for racer in range(len(ours.clients))]
            answers = ours.race("safe_write", [{"path": FILE, "content": t, "mode": "append"} for t in texts])
        else:
            seen = ours.race("read", [{"path": FILE} for _ in ours.clients])
            calls = [
                {"path": FILE, "content": line.format(racer), "mode": "overwrite"}
                | {"expected_prev_sha256": told.get("sha256", "0" * 64)}
                for racer, told in enumerate(seen)
            ]
            answers = ours.race("safe_write", calls)
        acknowledged += [told for told in answers if told["ok"]]
        outcome.refused += sum(not told["ok"] for told in answers)
        outcome.violations += [
            f"refused as {told['error']}: {told['context']}"
            for told in answers
            if not told["ok"] and told["error"] not in ("conflict", "stale_precondition", "not_found")
        ]
    outcome.acknowledged = len(acknowledged)
    return acknowledged


def _judge(base: Path, account: Account, acknowledged: list[dict[str, Any]], outcome: Outcome) -> None:
    folder = store_of(base / "workspace", base / "home")
    journal = SqliteJournal(str(folder), str(anchor_of(base / "workspace", base / "home")))
    blobs = Blobs(folder / "blobs")
    reader = open_reader(str(folder / "journal.db"))
    try:
        store = ContentStore(journal, blobs)
        rows = {str(row.seq): row for row in journal.rows(Filter(path=FILE), ALL)}
        made = {
            sha.hex() for (sha,) in reader.execute("SELECT new_sha FROM journal WHERE new_sha IS NOT NULL")
        }
        drafts = {sha.hex() for (sha,) in reader.execute("SELECT sha FROM drafts")}
        begun = _sha(b"begin\n<mark>\n")
        known = {*account.versions, begun, *made}
        kept = drafts | {row.old_sha.hex() for row in rows.values() if row.old_sha is not None}
        outcome.foreign, outcome.displaced = len(account.versions), len(account.displaced)
        outcome.drafts = len(drafts & set(account.versions))
        wrong = outcome.violations.append
        for sha in set(account.displaced) - set(account.strange):  # the others came back
            if sha in kept and not store.has(sha):
                wrong(f"{sha[:12]} is named and not kept")
            if sha in account.versions and sha not in kept:
                wrong(f"{sha[:12]}, version {account.versions.index(sha) + 1}, was displaced and is nowhere")
        for sha in account.strange:
            if sha not in known:
                wrong(f"{sha[:12]} stood at the name and is nobody's")
        for told in acknowledged:
            row = rows.get(told["journal_id"])
            if row is None or row.new_sha is None or row.new_sha.hex() != told["sha256"]:
                wrong(f"{told['journal_id']} was acknowledged and is not in the journal")
            elif row.old_sha is not None and row.old_sha.hex() not in known:
                wrong(f"{told['journal_id']} is based on a content that was never complete")
        outcome.violations += [f"journal: {problem.kind} {problem.detail}" for problem in journal.verify()]
        last = _sha((base / "workspace" / FILE).read_bytes())
        if last not in known:
            wrong("what is there in the end is nobody's")
    finally:
        reader.close()
        blobs.close()
        journal.close()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--style", choices=STYLES, default="renamed")
    parser.add_argument("--edit", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.edit:
        edit_until_told(Path(options.edit), options.style)
        return 0
    with tempfile.TemporaryDirectory(prefix="perdure-foreign-") as base:
        outcome = race(Path(base), options.style, options.seconds)
    print(
        f"{options.style}: foreign versions {outcome.foreign:,}  displaced {outcome.displaced:,}  "
        f"kept as drafts {outcome.drafts:,}  ours acknowledged {outcome.acknowledged:,}  refused {outcome.refused:,}"
    )
    print(f"violations {len(outcome.violations)}")
    for one in outcome.violations[:20]:
        print(f"  {one[:300]}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
