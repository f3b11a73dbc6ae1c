"""Every benchmark of `make bench` can be started, and every module of `bench` belongs to one of them."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import bench

FOLDER = Path(bench.__file__).parent
BENCHMARKS = re.findall(r"python -m bench\.(\w+)", (FOLDER.parent / "Makefile").read_text())


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_explains_its_options(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {name} ")


def test_every_module_is_a_benchmark_or_imported_by_one() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    found, waiting = set(), list(BENCHMARKS)
    while waiting:
        found.add(name := waiting.pop())
        importlib.import_module(f"bench.{name}")
        waiting += (names & imported_names(FOLDER / f"{name}.py")) - found
    assert found == names


def imported_names(path: Path) -> set[str]:
    """Of modules of `bench`, also where a function imports them."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    beside = {alias.name for node in nodes if node.module == "bench" for alias in node.names}
    return beside | {node.module.removeprefix("bench.") for node in nodes if node.module}
