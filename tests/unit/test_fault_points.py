"""The table of fault points is the truth, and an armed point does what it says."""

from __future__ import annotations

import re
import threading
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.platform import fault_points
from perdure.platform.fault_points import arm, names, passed, point, shortened

SOURCE = Path(perdure.__file__).parent


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def test_every_point_in_the_code_is_in_the_table_and_the_other_way_round() -> None:
    used: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        used |= set(re.findall(r'(?:\bpoint|\bpassed|shortened)\("([^"]+)"', path.read_text()))
        used |= set(re.findall(r'write_all\([^"]*"([^"]+)"\)', path.read_text()))

    assert used == set(names())


def test_a_point_that_is_not_armed_costs_next_to_nothing() -> None:
    assert min(timeit.repeat(lambda: point("write.landed"), number=10_000, repeat=5)) / 10_000 < 2e-6


def test_an_error_is_raised_at_the_named_hit_only() -> None:
    arm("write.landed=enospc@2; blob.landed=eio")
    point("write.landed")
    with pytest.raises(OSError, match=r"write\.landed") as failed:
        point("write.landed")
    point("write.landed")

    assert failed.value.errno == 28
    with pytest.raises(OSError, match=r"blob\.landed"):
        point("blob.landed")


def test_nothing_fails_where_nothing_can_fail_any_more() -> None:
    arm("write.landed=eio")

    passed("write.landed")


def test_a_star_counts_every_point() -> None:
    arm("*=eio@3")
    point("write.named")
    point("write.sealed")
    with pytest.raises(OSError, match=r"blob\.clone"):
        point("blob.clone")


def test_a_short_write_is_shorter_but_never_empty() -> None:
    arm("write.chunk=short")

    assert [shortened("write.chunk", size) for size in (1, 2, 100)] == [1, 1, 50]
    assert shortened("blob.chunk", 100) == 100


def test_a_pause_lasts_until_its_file_is_gone(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    arm(f"write.named=pause:{gate}")
    waiting = threading.Thread(target=point, args=("write.named",))
    waiting.start()
    while not gate.exists():
        pass
    assert waiting.is_alive()

    gate.unlink()

    waiting.join(5)
    assert not waiting.is_alive()


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="no such action"):
        arm("write.named=explode")


def test_the_environment_arms_a_process() -> None:
    assert fault_points.VARIABLE == "PERDURE_FAULT"
