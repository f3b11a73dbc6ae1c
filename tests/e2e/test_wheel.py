"""The wheel on a machine that has nothing but Python: it installs, and each module imports or lacks only an extra."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
# The modules of the optional extras, without which a part of Perdure does not load.
EXTRAS = {
    "anyio",
    "httpx2",
    "jwt",
    "mcp",
    "opentelemetry",
    "psycopg",
    "psycopg_pool",
    "rich",
    "tree_sitter",
    "uvicorn",
    "yaml",
}
IMPORT_ALL = """
import importlib, json, pkgutil, perdure
missing = {}
for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing[module.name] = error.name.split(".")[0]
print(json.dumps(missing))
"""


def run(*words: str | Path) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_installs_and_imports_without_test_dependencies(tmp_path: Path) -> None:
    run(sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("perdure-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith(("harness/", "tests/"))]
    assert "perdure/testing/fake_server.py" in names

    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, *PIP, "install", "-c", ROOT / "constraints.txt", wheel)
    missing = json.loads(run(python, "-I", "-c", IMPORT_ALL))

    assert set(missing.values()) <= EXTRAS, missing
    assert not [module for module in missing if module.startswith("perdure.testing")]
    assert "perdure" in run(tmp_path / "venv" / "bin" / "perdure", "--version")
