"""The judge of the write storm: it accepts what may be, and names what may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.crash import chains, judge
from harness.crash.calls import Call, Effect, Gone, Line, TookBack, Wrote, sha256
from harness.crash.foreign import Edit
from harness.crash.place import Place
from harness.crash.plan import RANDOM, plan, reachable
from harness.crash.record import Record, Row

A, B, C = b"a\n", b"a\nb\n", b"a\nb\nb\n"


class Left(Record):
    """What a session left behind, as if."""

    def __init__(self, rows: list[Row], files: dict[str, bytes] | None = None) -> None:
        self.rows = rows
        self.files = {path: sha256(content) for path, content in (files or {}).items()}
        self.drafts: dict[str, bytes] = {}
        self.strays: list[str] = []
        self.contents = {sha256(content): content for content in (A, B, C)}
        self._lines: dict[bytes, frozenset[str]] = {}

    def content(self, sha: bytes) -> bytes | None:
        return self.contents.get(sha)

    def is_kept(self, sha: bytes) -> bool:
        return sha in self.contents


def row(seq: int, old: bytes | None, new: bytes | None, path: str = "f", **more: Any) -> Row:
    found = {
        "op": "write",
        "key": f"k{seq}",
        "txn": None,
        "undoes": None,
        "state": None,
        "draft": None,
        **more,
    }
    digests = [sha256(content) if content is not None else None for content in (old, new)]
    return Row(seq=seq, path=path, old=digests[0], new=digests[1], **found)


def call(effects: list[Effect], fate: str = "done", number: int = 0, **payload: Any) -> Call:
    made = Call(number, "create", "safe_write", {"path": "f"}, effects)
    if fate in ("done", "refused"):
        made.take({"result": {"structuredContent": payload, "isError": fate == "refused"}})
    elif fate == "unknown":
        data = {"class": "process", "code": "killed", "outcome": "unknown"}
        made.take({"error": {"code": -31094, "data": data}})
    else:
        made.fate = "unanswered"
    return made


WROTE: list[Effect] = [Wrote("f", sha256(A))]


def judged(calls: list[Call], rows: list[Row]) -> str:
    return "\n".join(judge.effects(calls, Left(rows)))


def test_an_acknowledged_effect_is_there_once_under_the_number_it_was_told() -> None:
    told = call(WROTE, journal_id="1")

    assert judged([told], [row(1, None, A)]) == ""
    assert "is lost" in judged([told], [])
    assert "is lost" in judged([told], [row(1, None, A, state="conflict")])
    assert "done twice" in judged([told], [row(1, None, A), row(2, A, A)])
    assert "said that it made rows [1], and made [2]" in judged([told], [row(2, None, A)])


def test_a_call_whose_fate_is_unknown_was_done_once_or_not_at_all() -> None:
    both: list[Effect] = [Wrote("f", sha256(A)), Wrote("g", sha256(B))]

    assert judged([call(both, "unknown")], []) == ""
    assert judged([call(both, "unanswered")], [row(1, None, A), row(2, None, B, "g")]) == ""
    assert "in part" in judged([call(both, "unknown")], [row(1, None, A)])


def test_what_was_refused_was_not_done() -> None:
    refused = call(WROTE, "refused")

    assert judged([refused], []) == ""
    assert "was not to be done, and was" in judged([refused], [row(1, None, A)])
    assert "is of no call" in judged([refused], [row(1, None, A)])


def test_an_acknowledged_change_is_newer_than_what_was_acknowledged_before_it_was_sent() -> None:
    told = call(WROTE, journal_id="1")
    told.floor = 1

    assert "row 1 was acknowledged before" in judged([told], [row(1, None, A)])


def test_lines_removals_and_undone_changes_are_counted() -> None:
    rows = [row(1, A, B), row(2, B, None, op="delete"), row(3, None, A, op="undo", undoes=9)]
    calls = [
        call([Line("f", "b\n")], number=1, journal_id="1"),
        call([Gone("f")], number=2, journal_id="2"),
        call([TookBack("f", 9)], number=3, journal_id="3"),
    ]

    assert judged(calls, rows) == ""
    assert "is of no call" in judged(calls[:2], rows)


def test_two_calls_with_one_idempotency_key_are_one() -> None:
    calls = [call(WROTE, "unknown", 1), call(WROTE, "done", 2, journal_id="1", deduplicated=True)]
    for one in calls:
        one.arguments["idempotency_key"] = "same"

    assert judged(calls, [row(1, None, A)]) == ""
    assert "done twice" in judged(calls, [row(1, None, A), row(2, A, A)])


def test_a_transaction_is_whole_and_a_key_has_one_plan() -> None:
    torn = Left([row(1, None, A, txn="t"), row(2, None, B, "g", txn="t", state="conflict")])
    twice = Left([row(1, None, A, key="k"), row(2, A, B, key="k")])

    assert list(judge.rows(torn)) == ["transaction t was done in part"]
    assert list(judge.rows(twice)) == ["invocation k was done 2 times"]


def test_every_call_has_one_answer_of_its_own_kind() -> None:
    twice = call(WROTE, journal_id="1")
    twice.take(twice.answers[0])
    given_up = call(WROTE, "unknown")
    bare_error = call(WROTE)
    bare_error.answers = [{"error": {"code": -1}}]
    bare_error.fate = "unknown"
    refused = call(
        WROTE, "refused", ok=False, error="conflict", reason_hint="", suggested_action="", context={}
    )

    assert "answered 2 times" in next(judge.answers([twice], set()))
    assert "given up" in next(judge.answers([given_up], set()))
    assert "without a class" in next(judge.answers([bare_error], set()))
    assert "was refused" in next(judge.answers([refused], set()))
    assert list(judge.answers([refused], {"f"})) == []
    given_up.hits = 3
    assert list(judge.answers([given_up], set())) == []


def test_contents_drafts_and_reads_are_what_their_hashes_say() -> None:
    left = Left([row(1, None, A)])
    read = call([], sha256=sha256(B).hex(), path="f")
    read.tool = "read"
    refused = call(WROTE, "refused", draft="d")
    refused.arguments["content"] = A.decode()

    assert "saw" in next(judge.reads(left, [read], []))
    assert list(judge.reads(left, [read], [Edit("f", None, sha256(B))])) == []
    assert "draft that does not hold" in next(judge.contents(left, [refused]))
    left.contents.clear()
    assert "is not kept" in next(judge.contents(left, []))


def test_a_process_that_fell_is_named_though_its_host_made_up_for_it(tmp_path: Path) -> None:
    place = Place(tmp_path, plan(7, 0))
    assert list(judge.falls(place)) == []

    (tmp_path / "stderr").write_text("Fatal Python error: Segmentation fault\n\nCurrent thread:\n")

    assert list(judge.falls(place)) == ["a process fell: Fatal Python error: Segmentation fault"]


def broken(rows: list[Row], edits: list[Edit], files: dict[str, bytes]) -> str:
    return "\n".join(chains.broken(Left(rows, files), edits))


def test_a_file_comes_to_its_content_step_by_step() -> None:
    edit = Edit("f", sha256(A), sha256(B))

    assert broken([row(1, None, A), row(2, A, B)], [], {"f": B}) == ""
    assert broken([row(1, None, A), row(2, B, C)], [edit], {"f": C}) == ""
    assert "but the file held" in broken([row(1, None, A), row(2, B, C)], [], {"f": C})
    assert "edit" in broken([row(1, None, A), row(2, A, C)], [edit], {"f": C})
    assert "is on disk" in broken([row(1, None, A)], [], {})
    assert "torn or of nobody" in broken([row(1, None, A)], [], {"f": A[:1]})
    assert "is on disk" in broken([], [], {"f": A})


def test_a_seed_gives_the_same_sessions_and_every_kind_goes_through_all_points() -> None:
    plans = [plan(7, number) for number in range(400)]

    assert plans == [plan(7, number) for number in range(400)]
    for kind in ("hosted", "paced", "bare"):
        aims = {point for one in plans if one.kind == kind for _, point in one.aims(one.chance())}
        assert aims == {*reachable(), RANDOM}
