"""The registry's benchmark runs in the repository as it is, with nothing beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
def test_the_registry_is_measured_on_records_made_for_it() -> None:
    env = {name: value for name, value in os.environ.items() if name != "PERDURE_CRAWL"}
    env["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-m", "bench.registry", "--quick"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"catalog +\d+ records, 2800 servers", done.stdout)
    assert "warm, p95" in done.stdout
