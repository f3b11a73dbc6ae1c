"""The short form of `python -m harness.crash.chunk_storm`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.crash.chunk_storm import storm

pytestmark = pytest.mark.thorough

MOST_MB = 100


def test_a_file_in_pieces_survives_its_workers(tmp_path: Path) -> None:
    seed = 1
    result = storm(tmp_path, megabytes=6, kills=6, seed=seed)
    assert result.is_exact, f"seed {seed}"
    assert (result.chunks, result.bytes > 6_000_000) == (24, True)
    assert result.kills > 0
    assert 0 < result.peak_mb < MOST_MB
