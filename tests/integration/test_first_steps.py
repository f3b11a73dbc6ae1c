"""What somebody meets who types something wrong, on any terminal: a sentence, the nearest name, never a traceback."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
from contextlib import redirect_stdout
from importlib import import_module

import pytest
from commands import SCRIPT, Terminal, perdure, run_here

from perdure.cli.main import COMMANDS, main
from testbed import Bed


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("statsu",), "status"),
        (("status", "--jsno"), "--json"),
        (("journal", "--pth", "x"), "--path"),
        (("state", "gte", "k"), "get"),
        (("state", "list", "--prefx", "k"), "--prefix"),
        (("handoff", "shwo"), "show"),
        (("hook", "steeer"), "steer"),
        (("install", "curser"), "cursor"),
        (("completion", "bsh"), "bash"),
        (("serve", "--prot", "1"), "--port"),
        (("run", "--rendr", "json"), "--render"),
        (("worker", "--surface", "write", "--polcy", "x"), "--policy"),
        (("doctor", "--fxi"), "--fix"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_wrong_name_is_answered_with_the_nearest(bed: Bed, words: tuple[str, ...], near: str) -> None:
    done = run_here(bed, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"did you mean {near}?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", ["20", "200"])
def test_every_command_explains_itself_on_any_terminal(
    monkeypatch: pytest.MonkeyPatch, name: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = io.BytesIO()
    terminal = io.TextIOWrapper(shown, "ascii", write_through=True)
    with redirect_stdout(terminal), pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: perdure {name}" in " ".join(shown.getvalue().decode().split())
    assert import_module(COMMANDS[name][0]).parser().description


@pytest.fixture
def written(bed: Bed) -> Bed:
    client = bed.run()
    for number in range(40):
        client.use("safe_write", {"path": f"ünï {number}.txt", "content": "→\n" * 50})
    client.use("safe_write", {"path": "ünï 0.txt", "content": "←\n" * 50, "mode": "overwrite"})
    client.use("set_state", {"key": "schlüssel", "value": '"→"'})
    assert client.close() == 0
    return bed


READING = [
    ("status",),
    ("top", "--once"),
    ("journal",),
    ("history", "ünï 0.txt"),
    ("diff", "ünï 0.txt"),
    ("verify",),
    ("doctor", "--only", "journal,state"),
    ("state", "list"),
    ("state", "get", "schlüssel"),
    ("state", "history", "schlüssel"),
    ("state", "export"),
]


@pytest.mark.thorough
@pytest.mark.parametrize("words", [words for words in READING if words[0] != "diff"], ids=" ".join)
def test_a_terminal_without_the_letters_gets_what_it_can_show(written: Bed, words: tuple[str, ...]) -> None:
    done = perdure(written, *words, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    if words != ("state", "export"):
        told = perdure(written, *words, "--json", PYTHONIOENCODING="ascii")
        wanted = perdure(written, *words, "--json")
        if words[0] not in ("top", "status", "doctor"):
            assert json.loads(told.stdout) == json.loads(wanted.stdout)
        assert json.loads(told.stdout)


@pytest.mark.thorough
def test_a_diff_is_exact_in_a_pipe_and_readable_on_an_ascii_terminal(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "ünï.txt", "content": "→\n"})
    client.use("safe_write", {"path": "ünï.txt", "content": "←\n", "mode": "overwrite"})
    assert client.close() == 0
    words = ("diff", "ünï.txt")
    ascii_only = {"PYTHONIOENCODING": "ascii"}

    piped = perdure(bed, *words, **ascii_only).stdout
    assert piped.splitlines()[-3:] == ["@@ -1 +1 @@", "-→", "+←"]
    told = perdure(bed, *words, "--json", **ascii_only).stdout
    assert told.isascii()
    assert json.loads(told)["diff"] == piped
    terminal = Terminal(bed, *words, NO_COLOR="1", **ascii_only)
    assert terminal.end() == 0
    assert terminal.shown.splitlines()[-3:] == ["@@ -1 +1 @@", "-?", "+?"]
    assert terminal.shown.isascii()


@pytest.mark.thorough
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_whoever_reads_only_the_beginning_hears_of_no_error(written: Bed, words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*SCRIPT, *words],
        env=written.environ,
        cwd=written.workspace,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_a_closed_standard_error_is_no_reason_to_fail_otherwise(bed: Bed) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*SCRIPT, "statsu"], env=bed.environ, stderr=writing, timeout=60, check=False)
    os.close(writing)
    assert done.returncode in (1, 2)


@pytest.mark.thorough
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_colours_are_only_for_terminals_that_want_them(written: Bed, words: tuple[str, ...]) -> None:
    assert "\x1b" not in perdure(written, *words).stdout
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        terminal = Terminal(written, *words, **environ)
        assert terminal.end() == 0
        assert "\x1b[3" not in terminal.shown


def test_an_interrupted_wait_ends_without_a_traceback(bed: Bed) -> None:
    waiting = subprocess.Popen(
        [*SCRIPT, "state", "wait", "k", "--timeout-s", "60"],
        env=bed.environ,
        cwd=bed.workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 20
    while not (bed.root / "home" / "state.db").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.5)  # there is no event that says that it waits now
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=20)
    assert waiting.returncode in (1, 130)
    assert "Traceback" not in said


@pytest.mark.thorough
def test_a_damaged_journal_is_said_to_be_damaged_by_every_command(bed: Bed) -> None:
    bed.store.mkdir(mode=0o700, parents=True)
    (bed.store / "journal.db").write_bytes(os.urandom(9000))
    for words in (("journal",), ("history", "a"), ("diff", "a"), ("verify",), ("undo",), ("status",)):
        done = perdure(bed, *words)
        assert done.returncode in (1, 4), words
        assert "cannot be read" in done.stdout + done.stderr, words
        assert "Traceback" not in done.stderr


def test_a_key_is_looked_for_without_making_a_store(bed: Bed) -> None:
    done = perdure(bed, "state", "get", "k", "--state", "nowhere/x.db")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "perdure state get: no key k\n")
    for words in (("list",), ("export",)):
        assert perdure(bed, "state", *words, "--state", "nowhere/x.db").returncode == 0
    assert list(bed.workspace.iterdir()) == []


@pytest.mark.thorough
def test_a_database_that_is_not_there_is_told_once(bed: Bed) -> None:
    done = perdure(bed, "state", "get", "k", "--state", "postgresql://nobody:hidden@127.0.0.1:1/x")
    assert done.returncode == 4, done
    assert len(done.stderr.splitlines()) <= 4, done.stderr
    assert "hidden" not in done.stderr
