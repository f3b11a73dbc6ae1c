"""The wheel on a machine that has nothing but Python: installed without an extra, it does what the README says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.corpora.broken_files import SAMPLES, intact, slips
from perdure.testing.raw_client import RawClient

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
# The modules of the optional extras, without which a part of Perdure does not load.
EXTRAS = {"anyio", "httpx2", "jwt", "mcp", "opentelemetry", "psycopg", "psycopg_pool", "rich"}
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
CHECK_ALL = """
import json, sys
from perdure.validate.sandbox import Checker
with Checker() as checker:
    for form, text in json.load(sys.stdin):
        report = checker.check(text, format_hint=form)
        print(json.dumps([report.valid, len(report.errors), report.summary]))
"""


class Installed:
    """A virtual environment that holds the wheel and its ordinary dependencies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self.bin = folder / "venv" / "bin"
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERDURE"))
        }
        self.env = {**kept, "HOME": str(folder), "PERDURE_HOME": str(folder / "home")}

    def run(self, *words: str | Path, text: str | None = None) -> str:
        command = [str(word) for word in words]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, env=self.env, cwd=self.workspace
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def perdure(self, *words: str) -> str:
        return self.run(self.bin / "perdure", *words)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    here = Installed(folder)
    source = folder / "source"  # a build leaves files beside the source
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    here.run(sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", folder, source)
    here.run(sys.executable, "-m", "venv", folder / "venv")
    (wheel,) = folder.glob("perdure-*.whl")
    here.run(here.bin / "python", *PIP, "install", "-c", ROOT / "constraints.txt", wheel)
    return here


def test_the_wheel_holds_the_test_kit_and_no_tests(installed: Installed) -> None:
    (wheel,) = installed.folder.glob("perdure-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith(("harness/", "tests/"))]
    assert "perdure/testing/fake_server.py" in names


def test_each_module_imports_or_lacks_only_an_extra(installed: Installed) -> None:
    missing = json.loads(installed.run(installed.bin / "python", "-I", "-c", IMPORT_ALL))
    assert set(missing.values()) <= EXTRAS, missing
    assert not [module for module in missing if module.startswith("perdure.testing")]
    assert "perdure" in installed.perdure("--version")


def test_the_demo_runs(installed: Installed) -> None:
    assert "Every promise held" in installed.perdure("demo")


def test_each_format_is_checked(installed: Installed) -> None:
    """The intact file is valid, and at least one of the broken ones is noticed."""
    broken = [(form, slip.text) for form in SAMPLES for slip in slips(form)]
    files = [*((form, intact(form)) for form in SAMPLES), *broken]
    lines = installed.run(
        installed.bin / "python", "-I", "-c", CHECK_ALL, text=json.dumps(files)
    ).splitlines()
    reports = [json.loads(line) for line in lines]
    verdicts = {form: valid for form, (valid, _, _) in zip(SAMPLES, reports, strict=False)}
    assert verdicts == {form: None if form == "markdown" else True for form in SAMPLES}
    noticed = {
        form for (form, _), (_, errors, _) in zip(broken, reports[len(SAMPLES) :], strict=True) if errors
    }
    assert noticed == set(SAMPLES)


def test_the_host_serves_its_tools_and_refuses_broken_code(installed: Installed) -> None:
    command = [str(installed.bin / "perdure"), "run", "--workspace", str(installed.workspace)]
    with RawClient(command, installed.env, installed.workspace) as client:
        client.initialize(timeout=60)

        def write(content: str, mode: str) -> bool:
            words = {"path": "a.ts", "content": content, "mode": mode, "validate": "refuse"}
            return not client.call("safe_write", words, 60)["result"].get("isError")

        assert write("let a: number = 1;\n", "create")
        assert not write("let a: number = ;;{\n", "overwrite")
    assert (installed.workspace / "a.ts").read_text() == "let a: number = 1;\n"
    assert "a.ts" in installed.perdure("journal")


@pytest.fixture
def address(installed: Installed) -> Iterator[str]:
    """Where a `perdure serve` of the wheel listens."""
    command = [str(installed.bin / "perdure"), "serve", "--port", "0"]
    with subprocess.Popen(
        command,
        env=installed.env,
        cwd=installed.workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            lines: list[str] = []
            while not (found := re.search(r"http://[\d.:]+/", line := server.stdout.readline())):
                assert line, "".join(lines)
                lines.append(line)
            yield found[0]
        finally:
            server.terminate()


def test_http_and_the_dashboard_are_served(address: str) -> None:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "wheel", "version": "1"},
    }
    request = urllib.request.Request(
        address + "mcp",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode(),
        {"content-type": "application/json", "accept": "application/json, text/event-stream"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert '"serverInfo"' in answer.read().decode()
    with urllib.request.urlopen(address, timeout=60) as page:
        assert "<title>" in page.read().decode()


def test_hooks_and_the_doctor_run(installed: Installed) -> None:
    assert "PostToolUse" in installed.perdure("hook", "settings", "journal")
    assert installed.perdure("doctor").startswith("0 errors")
