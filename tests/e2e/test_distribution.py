"""The wheel as people get it: built twice it is the same, it is small, and `uvx` and `pipx` run it from an index."""

from __future__ import annotations

import hashlib
import html
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure import __version__
from perdure.testing.raw_client import RawClient

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
MOST_BYTES = 3_000_000
EPOCH = "1767225600"


def run(*words: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path, age_s: int) -> Path:
    """A wheel, built from a copy of the source whose files have another age."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for path in source.rglob("*"):
        os.utime(path, (time.time() - age_s,) * 2)
        path.chmod(0o755 if path.is_dir() else 0o644)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    run(*PIP, "wheel", "--no-deps", "--wheel-dir", folder, source, env=environment)
    (wheel,) = folder.glob("perdure-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("build"), 3600)


def test_two_builds_are_the_same_bytes_and_small(wheel: Path, tmp_path: Path) -> None:
    again = build(tmp_path, 500_000)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()
    assert wheel.stat().st_size <= MOST_BYTES


# --- from an index ----------------------------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def index(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an index on this machine that holds the wheel and everything that it needs."""
    folder = tmp_path_factory.mktemp("index")
    files = folder / "files"
    try:
        run(
            *PIP,
            "download",
            "--only-binary=:all:",
            "--dest",
            files,
            wheel,
            "pip",
            "-c",
            ROOT / "constraints.txt",
        )
    except AssertionError as error:
        pytest.skip(f"the dependencies cannot be downloaded: {str(error)[-300:]}")
    for file in sorted(files.glob("*.whl")):
        project = re.sub(r"[-_.]+", "-", file.name.split("-")[0]).lower()
        page = folder / "simple" / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        with page.open("a") as out:
            out.write(f'<a href="../../files/{html.escape(file.name)}#sha256={digest}">{file.name}</a><br>\n')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `uv`, `uvx` and `pipx`."""
    folder = tmp_path_factory.mktemp("installers")
    run(sys.executable, "-m", "venv", folder)
    try:
        run(folder / "bin" / "python", *PIP[1:], "install", "uv", "pipx")
    except AssertionError as error:
        pytest.skip(f"uv and pipx cannot be installed: {str(error)[-300:]}")
    return folder / "bin"


@pytest.fixture
def environment(tmp_path: Path, index: str, installers: Path) -> dict[str, str]:
    """A home of its own, in which nothing but the local index is known."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PERDURE", "PIP", "UV", "XDG", "VIRTUAL_ENV"))
    }
    return {
        **kept,
        "HOME": str(tmp_path),
        "PATH": f"{installers}:/usr/bin:/bin",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index,
        "UV_DEFAULT_INDEX": index,
        "UV_NO_CONFIG": "1",
        "UV_PYTHON": sys.executable,
        "PIPX_DEFAULT_PYTHON": sys.executable,
    }


def test_uvx_runs_it(environment: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    assert __version__ in run("uvx", "perdure", "--version", env=environment, cwd=work)
    with RawClient(
        [shutil.which("uvx", path=environment["PATH"]) or "", "perdure", "run"], environment, work
    ) as client:
        client.initialize(timeout=120)
        client.call("safe_write", {"path": "a.txt", "content": "x\n"}, 60)
    assert (work / "a.txt").read_text() == "x\n"


def test_pipx_installs_it(environment: dict[str, str], tmp_path: Path) -> None:
    run("pipx", "install", "perdure", env=environment, cwd=tmp_path)
    program = tmp_path / ".local" / "bin" / "perdure"
    assert stat.S_ISREG(program.resolve().stat().st_mode)
    assert __version__ in run(program, "--version", env=environment, cwd=tmp_path)
    # and the launcher of the packages for clients finds it there, although the folder is not in PATH
    launcher = ROOT / "packaging" / "launch.sh"
    assert __version__ in run("sh", launcher, "--version", env=environment, cwd=tmp_path)


def test_it_runs_as_a_module() -> None:
    assert __version__ in run(sys.executable, "-P", "-m", "perdure", "--version")


def test_the_bundle_for_desktop_clients_runs(environment: dict[str, str], tmp_path: Path) -> None:
    bundle, work = tmp_path / "bundle", tmp_path / "work"
    shutil.copytree(ROOT / "packaging" / "mcpb", bundle)
    work.mkdir()
    command = ["uv", "run", "--directory", str(bundle), "server/main.py", "run", "--workspace", str(work)]
    command[0] = shutil.which("uv", path=environment["PATH"]) or ""
    with RawClient(command, environment, work) as client:
        client.initialize(timeout=120)
        client.call("safe_write", {"path": "a.txt", "content": "x\n"}, 60)
    assert (work / "a.txt").read_text() == "x\n"


# --- the container ----------------------------------------------------------------------------------------------


def test_what_the_image_runs_serves_and_is_healthy(tmp_path: Path) -> None:
    """There is no container here: the command and the health check of the image, with its environment, as a process."""
    import json
    import socket

    text = (ROOT / "packaging" / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    entrypoint, command = (
        json.loads(re.findall(rf"^{name} (.+)$", text, re.M)[-1]) for name in ("ENTRYPOINT", "CMD")
    )
    health = json.loads(re.search(r"^HEALTHCHECK .*?CMD (.+)$", text, re.M)[1])  # type: ignore[index]
    variables = dict(re.findall(r"(PERDURE_\w+)=(\S+)", text))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {
        **os.environ,
        **variables,
        "HOME": str(tmp_path),
        "PERDURE_HOME": str(tmp_path / "home"),
        "PERDURE_PORT": port,
        "PERDURE_ATTACH": str(tmp_path / "attach.sock"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    words = [*entrypoint, *(str(folder) if word == "/work" else word for word in command)]
    health = [word.replace("8765", port) for word in health]

    without = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (without.returncode, "token" in without.stderr) == (2, True)

    environment["PERDURE_TOKEN"] = "a-token-of-sufficient-length"
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        try:
            while port not in (line := server.stdout.readline()):
                assert line
            run(*health, env=environment)
        finally:
            server.terminate()
    assert subprocess.run(health, env=environment, capture_output=True, check=False).returncode == 1
