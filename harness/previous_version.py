"""Take over what an earlier version left: its workspace, its state store, its running host.

python -m harness.previous_version make OLD/src FOLDER     write the fixtures of tests/fixtures/previous_version
python -m harness.previous_version upgrade OLD/src         replace a running host of that version by this one
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import perdure
from perdure.testing.raw_client import RawClient

LARGE: Final = "".join(f"line {number} of a large file\n" for number in range(12_000))
"""Large enough to be kept as a blob, and it packs well."""


def unpack(archive: Path, folder: Path) -> None:
    """Extract a fixture. Python 3.11 has filters only from 3.11.4 on."""
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(folder)


def _environment(source: Path, folder: Path, **more: str) -> dict[str, str]:
    """What a process of that version runs in: its source, and a home of its own."""
    (folder / "home").mkdir(exist_ok=True)
    (folder / "workspace").mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(source),
        "HOME": str(folder / "home"),
        "PERDURE_HOME": str(folder / "home"),
        "PERDURE_WORKSPACE": str(folder / "workspace"),
        "PERDURE_STATE": str(folder / "state.db"),
        **more,
    }


def _use(client: RawClient, tool: str, /, **arguments: Any) -> dict[str, Any]:
    result = client.call(tool, {**arguments, "render": "json", "detail": "full"})["result"]
    answer: dict[str, Any] = result["structuredContent"]
    assert not result.get("isError"), answer
    return answer


# --- the fixtures ---------------------------------------------------------------------------------------------------


def make(source: Path, target: Path) -> None:
    """Fill the stores with a worker of the version in `source`, and take a snapshot of its kernel."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        worker = [sys.executable, "-P", "-m", "perdure", "worker"]
        with RawClient(worker, _environment(source, folder)) as client:
            client.initialize()
            (folder / "draft").write_text(_fill_workspace(client))
            _fill_state(client)
        dying = _environment(source, folder, PERDURE_FAULT="commit.decided=kill")
        with RawClient(worker, dying) as client:
            client.initialize()
            client.start_call("safe_write", {"path": "killed.txt", "content": "decided before the kill\n"})
            client.wait_end()
        with tarfile.open(target / "stores.tar.gz", "w:gz") as archive:
            for member in ("workspace", "draft", "state.db", "state.db-wal"):
                if (folder / member).exists():
                    archive.add(folder / member, member)
        snapshot = [sys.executable, "-P", "-c", "from harness.previous_version import snapshot; snapshot()"]
        path = os.pathsep.join([str(source), str(Path(__file__).parents[1])])
        taken = subprocess.run(
            snapshot, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True
        )
        (target / "kernel.snapshot").write_bytes(taken.stdout)


def _fill_workspace(client: RawClient) -> str:
    """One of everything that the journal keeps; returns the id of a draft."""
    _use(client, "safe_write", path="notes.txt", content="one\ntwo\nthree\n")
    _use(client, "edit", path="notes.txt", edits=[{"old": "two", "new": "2"}])
    _use(client, "safe_write", path="large.txt", content=LARGE)
    _use(client, "safe_write", path="large.txt", content="small now\n", mode="overwrite")
    _use(client, "safe_write", path="gone.txt", content="deleted later\n")
    _use(
        client,
        "transaction",
        ops=[
            {"op": "delete", "path": "gone.txt"},
            {"op": "move", "path": "notes.txt", "to": "moved.txt"},
            {"op": "write", "path": "new.txt", "content": "new\n"},
        ],
    )
    _use(client, "safe_write", path="undone.txt", content="undone\n")
    _use(client, "undo", path="undone.txt")
    refused = {"path": "new.txt", "content": "refused: the file exists\n", "render": "json"}
    draft: str = client.call("safe_write", refused)["result"]["structuredContent"]["draft"]
    for index, content in enumerate(("first chunk\n", "second chunk\n"), start=1):
        _use(client, "chunk_write", session="chunks", index=index, content=content)
    _use(client, "scratch_put", content="scratched\n", label="scratch")
    _use(client, "checkpoint", name="before", data={"step": 3})
    _use(client, "handoff_write", envelope=_HANDOFF, body="Go on with step two.\n")
    return draft


_HANDOFF: Final = {
    "task_id": "upgrade",
    "agent": "previous",
    "status": "partial",
    "summary": "Half of it is done.",
    "next_steps": ["step two"],
    "last_good_state": [],
}


def _fill_state(client: RawClient) -> None:
    _use(client, "set_state", key="a", value='{"n": 1}')
    _use(client, "set_state", key="a", value='{"n": 2}')
    _use(client, "set_state", key="deleted", value="1")
    _use(client, "delete_state", key="deleted")
    _use(client, "lease", action="acquire", name="build", owner="previous", ttl_s=86_400)


def snapshot() -> None:
    """Print the snapshot of a kernel that has served, lost and queued calls."""
    from harness.kernel.stage import Stage, tool
    from perdure.protocol.mounts import MountSpec

    stage = Stage(MountSpec("w", builtin=True))
    stage.initialize()
    tools = [tool("get", "convergent"), tool("put", "probe"), tool("once", "never")]
    stage.serve("w", tools)
    stage.call(1, "get", {"n": 1})
    stage.call("probed", "put", {"n": 2})
    stage.lose("w")
    stage.call("queued", "once", {"n": 3})
    sys.stdout.buffer.write(stage.kernel.snapshot())


# --- a running host ---------------------------------------------------------------------------------------------------


def upgrade(source: Path) -> None:
    """Start a host of the version in `source`, put this one in its place, and replace it with a call in flight."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        installed = folder / "installed"
        installed.symlink_to(source)
        effects = folder / "effects.log"
        fake = f"{sys.executable} -m perdure.testing.fake_server --effects {effects}"
        command = [sys.executable, "-P", "-m", "perdure", "run", "--mount", f"fake={fake}"]
        with RawClient(command, _environment(installed, folder)) as client:
            client.initialize()
            before = _use(client, "safe_write", path="a.txt", content="written before\n")
            _use(client, "set_state", key="k", value='"before"')
            running = client.start_call("fake__effect", {"key": "across", "delay_ms": 3000})
            client.wait_until(lambda: effects.exists(), 10, "the call is dispatched")

            installed.unlink()
            installed.symlink_to(Path(perdure.__path__[0]).parent)
            os.kill(client.pid, signal.SIGUSR2)
            _wait_replaced(folder / "home")

            assert "result" in client.wait(running), client.answers[running]
            assert len(client.answers[running]) == 1
            assert effects.read_text().count("effect across") == 1, effects.read_text()
            assert _use(client, "read", path="a.txt")["sha256"] == before["sha256"]
            assert _use(client, "get_state", key="k")["version"] == 1
            client.request(
                "tools/call", {"name": "mounts", "arguments": {"action": "restart", "name": "perdure"}}
            )
            assert _use(client, "undo", path="a.txt", session="any")["reverted"][0]["path"] == "a.txt"
            _use(client, "safe_write", path="large.txt", content=LARGE)
            assert (folder / "workspace" / "large.txt").read_text() == LARGE
    print("replaced: one answer for the call in flight, one effect, the write undone by the new version")


def _wait_replaced(home: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for log in home.rglob("*.jsonl"):
            if any(json.loads(line).get("phase") == "host_replaced" for line in log.read_text().splitlines()):
                return
        time.sleep(0.05)
    raise AssertionError("the host was not replaced")


def main() -> None:
    match sys.argv[1:]:
        case ["make", source, target]:
            make(Path(source).resolve(), Path(target))
        case ["upgrade", source]:
            upgrade(Path(source).resolve())
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
