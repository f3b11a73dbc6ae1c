"""Seeded bugs fit the product as it is: each can be applied, and none is silently about a name that has gone."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.seeded_bugs import SeededBugs, after, before, replace, skip_if


@pytest.mark.parametrize(
    ("judge", "count"), [("kernel", 57), ("serve", 50), ("crash", 19), ("power", 6), ("tree_model", 8)]
)
def test_every_seeded_bug_fits_the_product(judge: str, count: int) -> None:
    """In a process of its own, because a bug stays until the process ends."""
    script = (
        f"from harness.{judge}.seeded_bugs import BUGS; [b.apply() for b in BUGS.values()]; print(len(BUGS))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= count


def test_a_target_that_has_gone_is_an_error() -> None:
    with pytest.raises(AttributeError, match="settle"):
        replace(SimpleNamespace(recover=len), "settle", len)


def test_a_step_gets_the_arguments_of_the_function_that_it_goes_with() -> None:
    trace: list[tuple[str, int]] = []
    product = SimpleNamespace(write=lambda number: trace.append(("write", number)))
    before(product, "write", lambda number: trace.append(("before", number)))
    after(product, "write", lambda number: trace.append(("after", number)))
    skip_if(product, "write", lambda number: number == 2)
    product.write(1)
    product.write(2)
    assert trace == [("before", 1), ("write", 1), ("after", 1)]


def test_two_bugs_of_one_judge_have_two_names() -> None:
    bugs = SeededBugs()
    bugs.add("a bug", "a trial")(lambda: None)
    assert bugs["a bug"].trial == "a trial"
    with pytest.raises(ValueError, match="a bug"):
        bugs.add("a bug")(lambda: None)
