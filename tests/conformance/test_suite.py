"""The official conformance suite passes through Perdure wherever it passes without it, and in front of its own servers."""

from __future__ import annotations

from pathlib import Path

import extensions
import node
import pytest
import suite
from suite import Comparison, Verdict

pytestmark = pytest.mark.node


def test_nothing_that_the_server_does_alone_is_lost_through_perdure() -> None:
    try:
        found = suite.compare()
    except node.Unavailable as missing:
        pytest.skip(str(missing))
    by_revision = {comparison.revision: comparison for comparison in found}
    assert [bad for one in found for bad in one.lost] == []
    assert {revision: len(one.through) for revision, one in by_revision.items()} == {
        "2025-11-25": 33,
        "2026-07-28": 40,
    }
    assert [name for one in found for name, verdict in one.alone.items() if not verdict.is_good] == []


def test_every_scenario_that_is_required_of_a_client_passes() -> None:
    try:
        verdicts = suite.judge_clients()
    except node.Unavailable as missing:
        pytest.skip(str(missing))
    assert {scenario: verdict.failed for scenario, verdict in verdicts.items() if not verdict.is_good} == {}
    assert len(verdicts) == 32


@pytest.mark.parametrize("stand", [extensions.wrapped, extensions.two_mounts], ids=["wrap", "two-mounts"])
def test_every_scenario_of_tasks_passes_with_one_server_and_with_two(
    tmp_path: Path, stand: extensions.Stand
) -> None:
    try:
        started = suite.command()
    except node.Unavailable as missing:
        pytest.skip(str(missing))
    with stand(tmp_path, "tasks.py") as url:
        verdicts = extensions.judge(started, url, extensions.TASKS, tmp_path / "verdicts")
    assert {name: verdict.failed for name, verdict in verdicts.items() if not verdict.is_good} == {}
    assert len(verdicts) == 10
    assert sum(len(verdict.passed) for verdict in verdicts.values()) == 44


@pytest.mark.parametrize(
    ("through", "lost"),
    [
        ({"ping": Verdict(frozenset({"a", "b"}), frozenset())}, []),
        ({"ping": Verdict(frozenset({"a"}), frozenset({"b"}))}, ["ping: b"]),
        ({"ping": Verdict(frozenset({"a", "b"}), frozenset({"c"}))}, []),
        ({}, ["ping: all of it"]),
    ],
)
def test_what_fails_only_through_perdure_is_lost(through: dict[str, Verdict], lost: list[str]) -> None:
    alone = {"ping": Verdict(frozenset({"a", "b"}), frozenset({"c"}))}
    assert Comparison("2025-11-25", alone, through).lost == lost
