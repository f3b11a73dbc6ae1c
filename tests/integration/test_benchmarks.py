"""The benchmarks start in the repository as it is, with nothing beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
SCRIPTS = re.findall(r"bench/\w+\.py", (ROOT / "Makefile").read_text())


def run(script: str, *words: str, folder: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PERDURE_CRAWL"}
    env["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, ROOT / script, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_benchmark_of_the_makefile_starts(tmp_path: Path, script: str) -> None:
    assert "usage:" in run(script, "--help", folder=tmp_path)


def test_the_registry_is_measured_on_records_made_for_it(tmp_path: Path) -> None:
    figures = run("bench/registry.py", "--quick", folder=tmp_path)
    assert re.search(r"catalog +\d+ records, 2800 servers", figures)
    assert "warm, p95" in figures
