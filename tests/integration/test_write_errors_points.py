"""Every named step of a write fails, wherever `strace` is or is not: the answer is true and the files are whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from write_tools import Tools

from harness.crash.write_kinds import HUGE_KINDS, KINDS, Kind, found_in
from perdure.platform import fault_points
from perdure.protocol.envelope import Envelope

ACTIONS = ("eio", "enospc", "edquot", "erofs", "eacces", "eintr", "short")


@pytest.fixture(params=["journal", pytest.param("strict", marks=pytest.mark.thorough)])
def tools(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "workspace").mkdir()
    opened = Tools(tmp_path / "workspace", request.param)
    yield opened
    fault_points.arm("")
    opened.close()


def attempt(tools: Tools, kind: Kind, folder: str, action: str, number: int) -> bool:
    """One change, failing at the `number`-th step of it. Whether it has so many."""
    place = tools.workspace / folder
    kind.prepare(place)
    first = kind.first_call(folder)
    journal_id = tools.use("edit", first)[1]["journal_id"] if first is not None else None
    before, _ = found_in(place)

    fault_points.arm(f"*={action}@{number}")
    done, told = tools.use(kind.tool, kind.call(folder, journal_id))
    is_met = fault_points.met() >= number
    fault_points.arm("")

    after, left = found_in(place)
    assert left == []
    if done:
        assert kind.is_done(after), "acknowledged, and not done"
    else:
        envelope = msgspec.convert(told, Envelope, strict=True)
        assert envelope.context["reason"] != "unexpected", envelope
        assert after == before, "refused, and the files are not as they were"
        again, told = tools.use(kind.tool, kind.call(folder, journal_id))
        assert again, told
        assert kind.is_done(found_in(place)[0])
    return is_met


@pytest.mark.parametrize(
    "kind",
    [*KINDS, *(pytest.param(kind, marks=pytest.mark.thorough) for kind in HUGE_KINDS)],
    ids=lambda kind: kind.name,
)
def test_a_failure_at_any_step_is_typed_and_nothing_is_lost(tools: Tools, kind: Kind) -> None:
    """Each step fails in two ways, which are other ones at the next step and for the next kind."""
    ways = len(ACTIONS) if os.environ.get("PERDURE_EVERY_FAULT") else 2
    tools.use("safe_write", {"path": "warm", "content": "x"})
    number, is_met = 0, True
    while is_met:
        number += 1
        for way in range(ways):
            action = ACTIONS[(number + 3 * way + len(kind.name)) % len(ACTIONS)]
            is_met = attempt(tools, kind, f"{number}-{way}", action, number)
    assert number > 5, "the faults were never met"
    assert list(tools.service.journal.verify()) == []


@pytest.mark.parametrize("kind", [*KINDS, *HUGE_KINDS], ids=lambda kind: kind.name)
def test_a_short_write_at_any_step_goes_on_where_it_stopped(tools: Tools, kind: Kind) -> None:
    for place in ("write.chunk", "blob.chunk"):
        folder = place.replace(".", "-")
        kind.prepare(tools.workspace / folder)
        first = kind.first_call(folder)
        journal_id = tools.use("edit", first)[1]["journal_id"] if first is not None else None
        fault_points.arm(f"{place}=short")
        done, told = tools.use(kind.tool, kind.call(folder, journal_id))
        fault_points.arm("")
        assert done, told
        assert kind.is_done(found_in(tools.workspace / folder)[0])
