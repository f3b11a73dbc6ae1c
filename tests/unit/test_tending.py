"""What is forgotten, and what never is."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.protocol.envelope import ToolError
from perdure.storage.blobs import Blobs
from perdure.storage.journal import Draft, Invocation, NewRow
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.workspace import retention as module
from perdure.workspace.commit import Committer
from perdure.workspace.contents import Content, ContentStore
from perdure.workspace.retention import DAY, RetentionTask
from perdure.workspace.retention_limits import Keep
from perdure.workspace.writer_lock import WriterLock

NOW = 1_800_000_000.0
LONG_AGO = NOW - 200 * DAY
LARGE = 200_000


class World:
    """A journal whose clock can be set, with its blobs, and one file per name."""

    def __init__(self, folder: Path) -> None:
        self.clock = LONG_AGO
        (folder / ".perdure").mkdir()
        self.journal = SqliteJournal(str(folder / ".perdure"), str(folder / "anchor"), self._tick)
        self.blobs = Blobs(folder / "blobs")
        self.store = ContentStore(self.journal, self.blobs)
        self.committer = Committer(self.journal, WriterLock(str(folder / "lock")), lambda: None)
        self.now: dict[str, Content | None] = {}

    def _tick(self) -> float:
        self.clock += 0.001
        return self.clock

    def tending(self, **keep: float) -> RetentionTask:
        return RetentionTask(self.committer, self.journal, self.blobs, Keep(**keep))

    def content(self, size: int = 40) -> Content:
        return self.store.take(os.urandom(size))

    def write(self, path: str, after: Content | None) -> int:
        """One change of a file, settled at once; its number."""
        before = self.now.get(path)

        def work() -> int:
            for content in (before, after):
                if content is not None:
                    self.store.record(content)
            row = self.journal.append(
                NewRow(
                    path=path,
                    op="write",
                    mode="overwrite",
                    old_sha=before.digest if before else None,
                    new_sha=after.digest if after else None,
                    bytes=0,
                    client="c",
                    session="s",
                )
            )
            self.journal.settle([row.seq])
            return row.seq

        self.now[path] = after
        return self.journal.transact(work)

    def has(self, content: Content) -> bool:
        if self.journal.has_content(content.digest):
            return self.store.load(content.sha256) is not None
        with pytest.raises(ToolError, match="not_found"):
            self.store.load(content.sha256)
        return False

    def age_files(self) -> None:
        for blob in self.blobs:
            with self.blobs.open(blob.sha256) as file:
                os.utime(file.fileno(), (LONG_AGO, LONG_AGO))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(module, "IN_REACH", 3)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    found = World(tmp_path)
    yield found
    found.committer.close()
    found.journal.close()


@pytest.mark.parametrize("size", [40, LARGE])
def test_what_was_replaced_long_ago_is_dropped_and_what_stands_is_kept(world: World, size: int) -> None:
    versions = [world.content(size) for _ in range(6)]
    for content in versions:
        world.write("a", content)
    for _ in range(3):
        world.write("other", world.content())
    world.age_files()

    world.tending(days=90).once(NOW)

    # The last change of a file can be undone however old it is: what it replaced and what it made are there.
    assert [world.has(content) for content in versions] == [False] * 4 + [True] * 2
    assert not list(world.journal.verify())


def test_young_changes_and_the_newest_stay(world: World) -> None:
    old = [world.content() for _ in range(4)]
    for content in old:
        world.write("a", content)
    world.clock = NOW - 10 * DAY
    young = [world.content() for _ in range(10)]
    for content in young:
        world.write("a", content)

    world.tending(days=90).once(NOW)

    # The first young row still needs the last old content.
    assert [world.has(content) for content in old] == [False] * 3 + [True]
    assert all(world.has(content) for content in young)


def test_too_much_is_dropped_from_the_oldest_on(world: World) -> None:
    world.clock = NOW - DAY
    versions = [world.content(LARGE) for _ in range(10)]
    for content in versions:
        world.write("a", content)
    world.age_files()

    world.tending(megabytes=5 * LARGE / 1_000_000).once(NOW)

    assert [world.has(content) for content in versions] == [False] * 5 + [True] * 5
    assert world.blobs.total() == 5 * LARGE


def test_changes_in_reach_of_an_undo_stay_whatever_their_size(world: World) -> None:
    versions = [world.content(LARGE) for _ in range(10)]
    for content in versions:
        world.write("a", content)
    world.age_files()

    world.tending(days=0, megabytes=0).once(NOW)

    # Three rows are in reach: they need four contents.
    assert [world.has(content) for content in versions] == [False] * 6 + [True] * 4


def test_a_deleted_file_can_still_be_had_back(world: World) -> None:
    content = world.content()
    world.write("a", content)
    world.write("a", None)
    for _ in range(5):
        world.write("b", world.content())

    world.tending(days=90).once(NOW)

    assert world.has(content)


def test_a_content_that_came_back_is_kept_for_its_later_use(world: World) -> None:
    first, second = world.content(), world.content()
    for content in (first, second, first):
        world.write("a", content)
    world.clock = NOW - DAY
    world.write("a", second)

    world.tending(days=90).once(NOW)

    assert world.has(first)
    assert world.has(second)


def test_an_open_intent_stops_it(world: World) -> None:
    first = world.content()
    world.write("a", first)

    def open_row() -> int:
        return world.journal.append(
            NewRow(
                path="a",
                op="write",
                mode="overwrite",
                old_sha=first.digest,
                new_sha=None,
                bytes=0,
                client="c",
                session="s",
            )
        ).seq

    world.journal.transact(open_row)
    world.now["a"] = None
    for _ in range(5):
        world.write("a", world.content())

    world.tending(days=0, megabytes=0).once(NOW)

    assert world.has(first)


def test_drafts_go_with_their_age_and_take_only_their_own_content_along(world: World) -> None:
    alone, shared, fresh = world.content(LARGE), world.content(), world.content()
    world.write("a", shared)

    def draft(content: Content) -> None:
        world.store.record(content, by_row=False)
        known = Draft("d_" + content.sha256[:24], content.digest, content.size, "a", "refused")
        world.journal.save_draft(known, "c", "s")

    for content in (alone, shared):
        world.journal.transact(lambda content=content: draft(content))  # type: ignore[misc]
    world.clock = NOW - DAY
    world.journal.transact(lambda: draft(fresh))
    world.age_files()

    world.tending(days=90).once(NOW)

    assert [world.has(content) for content in (alone, shared, fresh)] == [False, True, True]
    assert world.journal.draft("d_" + alone.sha256[:24]) is None
    assert world.journal.draft("d_" + fresh.sha256[:24]) is not None
    assert world.blobs.total() == 0


def test_answers_to_lost_calls_expire(world: World) -> None:
    def remember(key: str) -> None:
        world.journal.record_invocation(Invocation(key, "safe_write", b"", None, "json", "full", b"{}"), None)

    world.journal.transact(lambda: remember("old"))
    world.clock = NOW - DAY
    world.journal.transact(lambda: remember("new"))

    world.tending(answers_days=7).once(NOW)

    assert world.journal.invocation("old") is None
    assert world.journal.invocation("new") is not None


def test_a_file_that_nothing_names_is_swept_when_it_is_old(world: World) -> None:
    orphan = world.blobs.put(os.urandom(LARGE))
    world.age_files()
    fresh = world.blobs.put(os.urandom(LARGE))

    world.tending().once(time.time())

    assert [blob.sha256 for blob in world.blobs] == [fresh.sha256]
    assert not world.blobs.has(orphan.sha256)


def test_a_content_that_is_sent_again_meanwhile_is_not_lost(world: World) -> None:
    content = world.content(LARGE)
    for _ in range(6):
        world.write("a", content if world.now.get("a") is not content else world.content(LARGE))
    world.write("a", world.content())
    for _ in range(4):
        world.write("b", world.content())
    world.age_files()
    again = world.store.take_pieces([world.store.load(content.sha256)])  # sent, and not yet referred to

    world.tending(days=0, megabytes=0).once(NOW)
    world.write("c", again)

    assert world.has(again)


@pytest.mark.parametrize("seed", range(15))
def test_any_history_can_be_undone_as_far_as_is_promised(world: World, seed: int) -> None:
    """Random changes over few files and few contents: every row in reach, and the last of each file, stays undoable."""
    chance = random.Random(seed)
    pool = [world.content() for _ in range(6)]
    rows: list[tuple[str, Content | None, Content | None]] = []
    for _ in range(60):
        path = chance.choice("abcd")
        after = chance.choice([*pool, None])
        rows.append((path, world.now.get(path), after))
        world.write(path, after)
        if chance.random() < 0.1:
            world.tending(days=0, megabytes=0).once(NOW)
    world.tending(days=0, megabytes=0).once(NOW)

    last = {path: at for at, (path, _, _) in enumerate(rows)}
    needed: set[str] = set()
    for at, (path, before, after) in enumerate(rows):
        if at >= len(rows) - 3 or last[path] == at:
            needed |= {content.sha256 for content in (before, after) if content is not None}
    used = {content.sha256 for _, _, content in rows if content is not None}
    assert {content.sha256 for content in pool if content.sha256 in used and world.has(content)} == needed
    assert not list(world.journal.verify())
