"""The short form of `make power`: real writes on a logged disk, and the states in which a power cut can leave it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from harness.power import devices

pytestmark = pytest.mark.thorough

SMALL = ("--calls", "14", "--seed", "7")

if (lacking := devices.missing()) is not None:
    pytest.skip(lacking, allow_module_level=True)


def cut(*options: str) -> tuple[int, str]:
    """In a process of its own, which has its own mounts."""
    command = [sys.executable, "-P", "-m", "harness.power", *SMALL, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=230)
    if done.returncode == 4:
        pytest.skip(done.stderr.strip())
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["journal", "strict", "state"])
def test_nothing_acknowledged_is_lost_with_the_power(mode: str) -> None:
    code, said = cut("--mode", mode, "--states", "150", "--lives", "3", "--recuts", "2")
    assert code == 0, said
    assert re.search(rf"^{mode} +150 states .* lost 0 ", said, re.MULTILINE), said


@pytest.mark.parametrize(
    "broken", ["journal-synced-later", "settled-unsynced", "files-not-synced", "state-synced-later"]
)
def test_a_seeded_bug_is_found(broken: str) -> None:
    code, said = cut("--broken", broken, "--states", "50", "--lives", "1")
    assert code == 0, said
    assert re.search(rf"^{broken} .* 50 states .* lost [1-9]", said, re.MULTILINE), said
