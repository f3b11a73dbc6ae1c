"""Every benchmark can be started: its modules import from the repository's root."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import bench

MODULES = sorted(path.stem for path in Path(bench.__file__).parent.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_benchmark_module_imports(name: str) -> None:
    importlib.import_module(f"bench.{name}")
