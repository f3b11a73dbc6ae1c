"""`perdure doctor`: what is wrong is found and explained, what is safe is mended, and nothing is given away."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import apsw
import pytest
from commands import SCRIPT, Terminal, run_here, told

from perdure.storage.files import temp_names
from testbed import Bed

SECRET = "s3cr3t-value-of-a-variable"


def findings(bed: Bed, check: str, *words: str, code: int = 0, **environ: str) -> list[dict[str, Any]]:
    found = told(bed, "doctor", "--only", check, *words, code=code, **environ)
    assert found["ok"] is (code == 0)
    return [one for one in found["findings"] if one["level"] != "ok"]


def only(bed: Bed, check: str, *words: str, code: int = 0, **environ: str) -> dict[str, Any]:
    (one,) = findings(bed, check, *words, code=code, **environ)
    assert one["why"]
    assert one["todo"]
    return one


def age(path: Path) -> None:
    then = time.time() - 3600
    os.utime(path, (then, then), follow_symlinks=False)


def write(bed: Bed, **files: str) -> None:
    """Files written by a worker that ended in good order."""
    client = bed.run()
    for name, content in files.items():
        client.use("safe_write", {"path": name, "content": content})
    assert client.close() == 0


# --- a healthy one -----------------------------------------------------------------------------------------


def test_where_nothing_is_wrong_it_says_so_check_by_check(bed: Bed) -> None:
    write(bed, a="x\n")
    done = run_here(bed, "doctor")
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    names = {line.split()[1] for line in done.stdout.splitlines()[1:] if line.startswith("ok")}
    assert names >= {
        "versions",
        "permissions",
        "disk",
        "leftovers",
        "locks",
        "journal",
        "state",
        "mounts",
    }
    assert done.stdout.splitlines()[0] == "0 errors  0 warnings"
    note = "note     clients     no client is configured to use perdure: `perdure install CLIENT --apply`"
    assert note in done.stdout


@pytest.mark.parametrize("text", ['{"mcpServers": {', None])
def test_a_registry_that_cannot_be_read_is_an_error(bed: Bed, text: str | None) -> None:
    path = bed.root / "mcp.json"
    bed.environ["PERDURE_REGISTRY"] = str(path)
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    found = only(bed, "mounts", code=1)
    assert found["what"].startswith(f"the registry {path} cannot be read: ")


def test_an_unknown_check_and_a_bad_settings_file_are_usage_errors(bed: Bed) -> None:
    done = run_here(bed, "doctor", "--only", "weather")
    assert done.returncode == 2
    assert "no check weather" in done.stderr
    bed.settings("rendr = 'json'\n")
    done = run_here(bed, "doctor")
    assert done.returncode == 2
    assert "rendr" in done.stderr


# --- mounts ------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_every_broken_mount_is_named_with_its_own_reason_and_the_good_ones_are_fine(bed: Bed) -> None:
    good = bed.fake()
    bed.trusted(
        "mcp.md",
        "# MCP servers\n"
        "## gone\ncommand: /no/such/program\n"
        "## unset\ncommand: python3\nenv: KEY=$NOT_SET_ANYWHERE\n"
        "## forbidden\ncommand: perl\n"
        f'## dies\ncommand: {sys.executable}\nargs: ["-c", "raise SystemExit(3)", "--token={SECRET}"]\n'
        f"env: TOKEN={SECRET}\n"
        "## nonsense\ncommand python3\n"
        f"## Allowed commands\n/no/such/program\npython3\n{sys.executable}\n",
    )

    done = run_here(bed, "doctor", "--only", "mounts", "--json", "--mount", good.mount)
    found = json.loads(done.stdout)

    assert done.returncode == 1
    wrong = {one["what"].split()[0]: one for one in found["findings"] if one["level"] == "error"}
    assert set(wrong) == {"gone", "unset", "forbidden", "dies", "nonsense"}
    assert "No such file" in wrong["gone"]["what"]
    assert "NOT_SET_ANYWHERE" in wrong["unset"]["what"]
    assert "not in the allowed list" in wrong["forbidden"]["what"]
    assert "process/exited" in wrong["dies"]["what"]
    assert all(one["why"] and one["todo"] for one in wrong.values())
    assert any(one["what"].startswith("fake starts") for one in found["findings"] if one["level"] == "ok")
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.thorough
def test_a_mount_is_tried_with_the_time_limits_it_would_have(bed: Bed) -> None:
    bed.settings(
        f"[timeouts]\nstartup = 0.5\n[mounts]\nslow = {json.dumps([sys.executable, '-c', 'import time; time.sleep(600)'])}\n"
    )
    assert "timeout/startup_timeout" in only(bed, "mounts", code=1)["what"]


def test_what_was_started_to_try_the_mounts_is_gone_afterwards(bed: Bed) -> None:
    server = bed.fake()
    findings(bed, "mounts", "--mount", server.mount)
    assert not list((bed.root / "home" / "hosts").glob("*"))
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(server.ledgers) not in running


# --- permissions -------------------------------------------------------------------------------------------


def test_what_others_could_read_is_found_and_mended(bed: Bed) -> None:
    write(bed, a="x\n")
    paths = (
        bed.store,
        bed.store / "journal.db",
        bed.root / "home" / "hosts",
    )
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)

    before = findings(bed, "permissions", code=1)
    mended = findings(bed, "permissions", "--fix")

    assert len(before) == 3
    assert all(one["fixable"] for one in before)
    assert all(one["fixed"].startswith("set the mode") for one in mended)
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o700, 0o600, 0o700]
    assert findings(bed, "permissions") == []


@pytest.mark.parametrize("folder", ["backups", "bundles", "serve", "sign-ins", "views", "of-a-later-version"])
def test_each_folder_of_ours_that_others_can_read_is_found(bed: Bed, folder: str) -> None:
    path = bed.root / "home" / folder
    path.mkdir(parents=True)
    path.chmod(0o755)
    assert only(bed, "permissions", code=1)["what"] == f"{path} can be reached by others (mode 755)"


def test_a_store_that_its_owner_cannot_write_is_found(bed: Bed) -> None:
    write(bed, a="x\n")
    journal = bed.store / "journal.db"
    journal.chmod(0o400)
    assert "cannot be used by its owner" in only(bed, "permissions", code=1)["what"]
    findings(bed, "permissions", "--fix")
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600


# --- journal and state ---------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_drift_is_a_warning_and_a_broken_chain_an_error(bed: Bed) -> None:
    write(bed, a="x\n", b="y\n")
    (bed.workspace / "a").write_text("of another program\n")
    assert only(bed, "journal")["what"] == "a was changed since change 1"

    connection = apsw.Connection(str(bed.store / "journal.db"))
    connection.execute("UPDATE journal SET bytes = 7 WHERE seq = 1")
    connection.close()

    levels = [one["level"] for one in findings(bed, "journal", code=1)]
    assert levels.count("error") >= 1


def test_a_broken_journal_does_not_break_the_doctor(bed: Bed) -> None:
    bed.store.mkdir(mode=0o700, parents=True)
    (bed.store / "journal.db").write_bytes(b"nonsense" * 1000)
    assert "not a database" in only(bed, "journal", code=1)["what"]


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["journal", "state"])
def test_a_store_of_a_newer_version_is_told_and_not_touched(bed: Bed, family: str) -> None:
    write(bed, a="x\n")
    assert run_here(bed, "state", "set", "k", "1").returncode == 0
    path = bed.store / "journal.db" if family == "journal" else bed.root / "home" / "state.db"
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()
    before = path.read_bytes()

    assert "format 99" in only(bed, family, code=1)["what"]

    assert path.read_bytes() == before


def test_a_state_store_that_is_none_is_told(bed: Bed) -> None:
    (bed.root / "other.db").write_bytes(b"nonsense" * 1000)
    found = only(bed, "state", "--state", str(bed.root / "other.db"), code=1)
    assert "not a database" in found["what"]


# --- leftovers and locks -------------------------------------------------------------------------------------


def test_what_dead_processes_left_is_found_and_removed_and_nothing_else(bed: Bed) -> None:
    write(bed, a="x\n")
    home = bed.root / "home"
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    old = home / "hosts" / f"{gone.pid}.sock"
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(old.parent)
        try:
            made.bind(old.name)
        finally:
            os.chdir(here)
    capsule = home / "capsules" / "0123"
    capsule.parent.mkdir(exist_ok=True)
    capsule.touch()
    fresh = home / "capsules" / "4567"
    fresh.touch()
    mine = temp_names.fresh("w")
    _, start, space, end = mine.removeprefix(temp_names.PREFIX + "w").split(".")
    dead = bed.workspace / f"{temp_names.PREFIX}w{gone.pid:x}.{start}.{space}.{end}"
    kept = bed.workspace / f"{temp_names.PREFIX}x{gone.pid:x}.{start}.{space}.{end}"
    alive = bed.workspace / mine
    for path in (dead, kept, alive):
        path.write_text("content")
    age(old)
    age(capsule)

    found = findings(bed, "leftovers")
    assert {one["what"].rpartition(": ")[2] for one in found} == {str(p) for p in (old, capsule, dead, kept)}
    findings(bed, "leftovers", "--fix")

    assert [path.exists() for path in (old, capsule, dead)] == [False, False, False]
    assert [path.exists() for path in (fresh, alive, kept)] == [True, True, True]
    (left,) = findings(bed, "leftovers")
    assert "only copy" in left["why"]


def test_a_lock_whose_holder_is_stopped_is_told_with_its_process(bed: Bed) -> None:
    write(bed, a="x\n")
    lock = bed.workspace
    code = (
        "import fcntl, os, sys, time; f = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert findings(bed, "locks") == []
        os.kill(holder.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)

        assert f"process {holder.pid}" in only(bed, "locks", code=1)["what"]
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()


# --- the machine ---------------------------------------------------------------------------------------------


def test_a_host_of_another_version_is_told(bed: Bed) -> None:
    client = bed.run(bed.fake())
    announced = bed.root / "home" / "hosts" / f"{client.pid}.json"
    announced.write_text(json.dumps({**json.loads(announced.read_text()), "version": "0.0.1"}))
    found = only(bed, "versions")
    assert f"host {client.pid} runs 0.0.1" in found["what"]
    assert f"--pid {client.pid}" in found["todo"]


def test_a_part_that_is_not_installed_is_a_note_unless_it_is_needed(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("psycopg", "rich"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    note = only(bed, "extras")
    assert (note["level"], note["what"].partition(": ")[2]) == ("note", "postgres, top")
    found = findings(bed, "extras", "--state", "postgresql://127.0.0.1:9/x", code=1)
    assert [(one["level"], "postgres" in one["what"]) for one in found] == [("error", True), ("note", False)]


def test_each_extra_of_the_package_is_known_to_the_doctor() -> None:
    from perdure.cli.doctor.machine import OPTIONAL

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"all", "test", "lint"}
    assert set(OPTIONAL) == extras
    assert project["optional-dependencies"]["all"] == [f"perdure[{','.join(OPTIONAL)}]"]


def test_a_full_disk_is_told(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    from perdure.cli.doctor import machine
    from perdure.cli.doctor.finding import DoctorContext
    from perdure.host.settings import Settings

    context = DoctorContext(Settings(workspaces=(str(bed.workspace),)), ())
    assert [one.level for one in machine.check_disk(context)] == ["ok"]
    monkeypatch.setattr(machine, "FULL_BYTES", shutil.disk_usage(bed.workspace).total * 2)
    assert {one.level for one in machine.check_disk(context)} == {"error"}


# --- clients -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".cursor/mcp.json", '{"mcpServers": {"p": {"command": "/old/venv/bin/perdure", "args": ["%s"]}}}'),
        (
            "config/zed/settings.json",
            '{// mine\n "context_servers": {"p": {"command": "/old/venv/bin/perdure",}}}',
        ),
        (".codex/config.toml", '[mcp_servers.p]\ncommand = "/old/venv/bin/perdure"\nargs = ["%s"]\n'),
        ("config/goose/config.yaml", "extensions:\n  p:\n    cmd: /old/venv/bin/perdure\n    args: [%s]\n"),
    ],
    ids=["json", "json with comments", "toml", "yaml"],
)
def test_a_client_that_starts_a_perdure_which_is_gone_is_told(bed: Bed, file: str, text: str) -> None:
    path = bed.root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("%s", SECRET))

    found = only(bed, "clients", code=1)

    assert str(path) in found["what"]
    assert "/old/venv/bin/perdure" in found["what"]
    assert SECRET not in json.dumps(found)
    path.write_text(text.replace("/old/venv/bin/perdure", str(Path(sys.executable).with_name("perdure"))))
    assert findings(bed, "clients") == []


def test_a_hook_that_cannot_be_started(bed: Bed) -> None:
    # given hooks of ours that work
    file = Path(bed.environ["HOME"]) / ".claude" / "settings.json"
    assert run_here(bed, "install", "claude-code", "--hooks", "--apply").returncode == 0
    notes = [finding["what"] for finding in findings(bed, "clients")]
    assert "the hooks of claude-code can be started, and none of them has run yet" in notes
    # when the program is gone, or is another one
    hooks = file.read_text()
    for program, reason in (
        ("/nowhere/python", "/nowhere/python is not there"),
        ("/bin/false", "it ends with 1"),
    ):
        file.write_text(hooks.replace(sys.executable, program))
        # then it is said, with the way out
        (found,) = [one for one in findings(bed, "clients", code=1) if one["level"] == "error"]
        assert found["what"] == f"the hook in {file} cannot be started: {reason}"
        assert found["todo"] == "`perdure install claude-code --hooks --apply`"


def test_a_hook_that_has_run_is_told(bed: Bed) -> None:
    assert run_here(bed, "install", "claude-code", "--hooks", "--apply").returncode == 0
    payload = {"hook_event_name": "SessionEnd", "session_id": "s", "cwd": str(bed.workspace)}
    hook = subprocess.run(
        [*SCRIPT, "hook", "journal", "--client", "claude-code"],
        input=json.dumps(payload).encode(),
        env=bed.environ,
        cwd=bed.workspace,
        timeout=60,
        check=True,
    )
    assert hook.returncode == 0
    shown = [finding["what"] for finding in told(bed, "doctor", "--only", "clients")["findings"]]
    assert any(re.fullmatch(r"a hook of claude-code ran \d+s ago", what) for what in shown), shown


def test_hooks_that_run_twice_are_told(bed: Bed) -> None:
    assert run_here(bed, "install", "claude-code", "--hooks", "--apply").returncode == 0
    file = Path(bed.environ["HOME"]) / ".claude" / "settings.json"
    for is_enabled, level in ((True, ["warning"]), (False, [])):
        settings = json.loads(file.read_text())
        file.write_text(json.dumps({**settings, "enabledPlugins": {"perdure@perdure": is_enabled}}))
        told_twice = [one for one in findings(bed, "clients") if "twice" in one["what"]]
        assert [one["level"] for one in told_twice] == level


def test_a_check_that_fails_does_not_keep_the_others_from_being_made(bed: Bed) -> None:
    (bed.root / "home").write_text("not a folder")
    done = run_here(bed, "doctor", "--json")
    assert done.returncode == 1
    assert {one["check"] for one in json.loads(done.stdout)["findings"]} >= {"versions", "journal", "mounts"}
    assert "Traceback" not in done.stderr


def test_on_a_terminal_it_is_coloured_and_piped_it_is_not(bed: Bed) -> None:
    shown = Terminal(bed, "doctor", "--only", "disk,versions")
    assert shown.end() == 0
    assert "\x1b[32mok" in shown.shown
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -1', "-", *SCRIPT, "doctor", "--only", "disk,versions,clients"],
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == "0 errors  0 warnings\n"
    assert done.stderr == ""
