"""The copy of a registry on the network: a process that fails to make it harms nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.registry.http.mirror import Mirror


def test_a_copying_process_that_ends_before_it_reads_is_a_failure_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    # Longer than a pipe holds, so that it is still being written when the process ends.
    mirror = Mirror("https://catalog.test/" + "a" * 1_000_000, {"PERDURE_REGISTRY_POLL": "0.1"})
    mirror.open()
    mirror.tend()
    assert not Path(mirror.path).exists()
