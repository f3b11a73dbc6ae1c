"""The generated reference is what the code says now."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@lru_cache
def _generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.generated()
    return found


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="argparse words its help differently in each version: 3.11 is kept"
)
@pytest.mark.parametrize("name", ["docs/reference/commands.md"])
def test_the_command_reference_is_the_commands_own_help(name: str) -> None:
    assert (ROOT / name).read_text() == _generated()[name], "run: python docs/generate.py"


@pytest.mark.parametrize(
    "name",
    [
        "docs/reference/tools.md",
        "docs/reference/limits.md",
        "docs/reference/reasons.md",
        "spec/tools.json",
        "spec/settings.schema.json",
        "spec/handoff.schema.json",
        "spec/policy.schema.json",
        "spec/error.schema.json",
    ],
)
def test_the_generated_reference_is_what_the_code_says(name: str) -> None:
    assert (ROOT / name).read_text() == _generated()[name], "run: python docs/generate.py"


def test_no_schema_is_left_out_of_what_is_generated() -> None:
    kept = {f"spec/{path.name}" for path in (ROOT / "spec").iterdir()}
    assert kept == {name for name in _generated() if name.startswith("spec/")}


def test_every_command_is_in_the_readme_table() -> None:
    from perdure.cli.main import COMMANDS

    readme = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if name not in readme] == []
