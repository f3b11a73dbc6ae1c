"""Commands that read take short cuts, and nobody can tell: same options, same answers, no heavy module."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from typing import Any

import apsw
import pytest
from commands import perdure

from perdure.cli.parsing import quickly
from perdure.cli.plain_json import dumps
from testbed import Bed

HEAVY = ("argparse", "msgspec", "typing", "dataclasses", "inspect", "socket", "shutil", "re")


VALUES = {
    "plain": "1234567",
    "text": '"some words"',
    "object": '{"a": [1, 2], "b": "c|d"}',
    "ünï": "1",
    "with space": "1",
    "bar|key": "1",
    "back": '"a\\\\b…"',
}


ENVELOPE = {
    "task_id": "t-1",
    "status": "partial",
    "agent": "a",
    "summary": "Half: the first part's done # so far\nThe second is not.",
    "next_steps": ["go on", "2026-01-01", "- x"],
    "last_good_state": [{"path": "b.txt", "sha256": "0" * 64}, {"path": "gone", "sha256": "1" * 64}],
    "steps": [
        {"id": "one", "description": "it", "status": "done"},
        {"id": "2", "description": "", "depends_on": ["one"]},
    ],
    "context_hints": {"nested": {"deep": [1, True, None]}},
}


@pytest.fixture
def written(bed: Bed) -> Bed:
    """A workspace with a history, at rest."""
    client = bed.run()
    client.use("safe_write", {"path": "a", "content": "one\n"})
    client.use("safe_write", {"path": "a", "content": "two\n", "mode": "overwrite"})
    ops = [{"op": "write", "path": "src/ünï code.py", "content": "x = 1\n"}, {"op": "delete", "path": "a"}]
    client.use("transaction", {"ops": ops})
    client.use("undo")
    client.use("safe_write", {"path": "b.txt", "content": "b\n" * 40})
    client.use("edit", {"path": "b.txt", "edits": [{"old": "b\n" * 40, "new": "c\n" * 39 + "end"}]})
    client.use("safe_write", {"path": "large", "content": "0123456789abcdef" * 8192 + "\n"})
    client.use("safe_write", {"path": "nul", "content": "AAEC", "encoding": "base64"})
    client.use("checkpoint", {"name": "half", "content": "x"})
    client.use("handoff_write", {"envelope": ENVELOPE, "body": "Free text.\n"})
    for key, value in VALUES.items():
        client.use("set_state", {"key": key, "value": value})
    client.use("set_state", {"key": "kept a while", "value": "1", "ttl_s": 3600})
    client.use("set_state", {"key": "other", "value": "2", "namespace": "n"})
    for number in range(120):
        client.use("set_state", {"key": f"many/{number:03}", "value": "1"})
    assert client.close() == 0
    store = apsw.Connection(str(bed.root / "home" / "state.db"))
    store.execute("UPDATE store SET revision = 1234567")
    store.execute("UPDATE entries SET revision = 1234000 + revision, version = 4321 WHERE key = 'plain'")
    store.close()
    assert perdure(bed, "verify").returncode == 0  # whoever opens it next settles what is open
    return bed


def modules(bed: Bed, *words: str) -> set[str]:
    """What a command loads on its way."""
    code = (
        "import sys; sys.argv[1:] = sys.argv[1:]\n"
        "from perdure.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(' '.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "--json"),
        ("top", "--once"),
        ("journal",),
        ("journal", "--json"),
        ("history", "a"),
        ("diff", "b.txt"),
        ("verify",),
        ("handoff", "show"),
        ("state", "get", "plain"),
        ("state", "list", "--prefix", "many/"),
        ("state", "history", "plain"),
        ("state", "export"),
        ("--help",),
        ("--version",),
    ],
    ids=" ".join,
)
def test_a_command_that_only_reads_loads_nothing_heavy(written: Bed, words: tuple[str, ...]) -> None:
    assert modules(written, *words).isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "words",
    [
        ("journal",),
        ("journal", "-n", "2"),
        ("journal", "--path", "a"),
        ("journal", "--mode", "delete"),
        ("journal", "--client", "raw-client"),
        ("journal", "--client", "nobody"),
        ("history", "a"),
        ("history", "src/ünï code.py"),
    ],
    ids=" ".join,
)
def test_the_short_way_and_the_tool_give_the_same_answer(written: Bed, words: tuple[str, ...]) -> None:
    short = perdure(written, *words, "--json")
    assert "perdure.surfaces.write.surface" not in modules(written, *words, "--json")
    (written.workspace / "other").mkdir()
    tool = perdure(
        written, *words, "--json", "--workspace", ".", "--workspace", "other"
    )  # two: the tool has to look
    assert (short.returncode, tool.returncode) == (0, 0)
    assert json.loads(short.stdout) == json.loads(tool.stdout)
    shown = perdure(written, *words).stdout
    assert shown == perdure(written, *words, "--workspace", ".", "--workspace", "other").stdout
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    "words",
    [
        *(("get", key) for key in (*VALUES, "kept a while", "no such key")),
        *(("history", key) for key in (*VALUES, "kept a while", "no such key")),
        ("history", "other", "--namespace", "n"),
        ("get", "other", "--namespace", "n"),
        ("list",),
        ("list", "--prefix", "many/"),
        ("list", "--prefix", "many/11"),
        ("list", "--prefix", "nothing"),
        ("list", "--namespace", "n"),
    ],
    ids=" ".join,
)
def test_shared_state_is_read_the_short_way_to_the_letter(written: Bed, words: tuple[str, ...]) -> None:
    for more in ((), ("--json",)):
        short = perdure(written, "state", *words, *more)
        tool = perdure(
            written, "state", "--namespace", "default", *words, *more
        )  # before it: the parser has to look
        assert (short.returncode, short.stderr) == (tool.returncode, tool.stderr)
        if more:
            assert json.loads(short.stdout) == json.loads(tool.stdout)
        else:
            assert short.stdout == tool.stdout


def test_an_export_is_the_same_whoever_writes_it(written: Bed) -> None:
    for more in ((), ("--namespace", "n"), ("--namespace", "nobody's")):
        short = perdure(written, "state", "export", *more)
        tool = perdure(written, "state", "--json", "export", *more)  # before it: the parser has to look
        assert (short.returncode, short.stdout, short.stderr) == (0, tool.stdout, tool.stderr)
    assert len(perdure(written, "state", "export").stdout.splitlines()) == len(VALUES) + 122


def by_the_tool(bed: Bed, *words: str) -> tuple[int, str, str]:
    """A second workspace, and the short way is not taken."""
    (bed.workspace / "other").mkdir(exist_ok=True)
    done = perdure(bed, *words, "--workspace", ".", "--workspace", "other")
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "b.txt"),
        ("diff", "a"),
        ("diff", "large"),
        ("diff", "nul"),
        ("diff", "src/ünï code.py"),
        ("diff", "never written"),
        ("diff", "b.txt", "--to", "9"),
        ("diff", "b.txt", "--from", "8", "--to", "9"),
        ("diff", "b.txt", "--from", "9", "--to", "8"),
        ("diff", "b.txt", "--to", "1"),
        ("diff", "b.txt", "--to", "x"),
        ("diff", ".perdure/journal.db"),
        ("handoff", "show"),
        ("handoff", "show", "b.txt"),
        ("handoff", "show", "nothing"),
        ("history", "nothing"),
    ],
    ids=" ".join,
)
def test_files_are_compared_and_handoffs_read_the_short_way_to_the_letter(
    written: Bed, words: tuple[str, ...]
) -> None:
    for changed in (False, True):
        if changed:
            (written.workspace / "b.txt").write_text("b\nanother\n")
        short = perdure(written, *words)
        assert (short.returncode, short.stdout, short.stderr) == by_the_tool(written, *words)
        told = perdure(written, *words, "--json")
        assert json.loads(told.stdout) == json.loads(by_the_tool(written, *words, "--json")[1])


def test_a_workspace_is_verified_the_short_way_with_the_same_answer(written: Bed) -> None:
    sound = perdure(written, "verify")
    assert "perdure.worker.compose" not in modules(written, "verify")
    assert (sound.returncode, sound.stdout, sound.stderr) == by_the_tool(written, "verify")

    (written.workspace / "b.txt").write_text("another\n")
    (written.workspace / "large").unlink()
    (written.workspace / "a").unlink(missing_ok=True)
    drifted = perdure(written, "verify", "--json")
    assert "perdure.worker.compose" not in modules(written, "verify")
    assert drifted.returncode == 0
    assert json.loads(drifted.stdout) == json.loads(by_the_tool(written, "verify", "--json")[1])


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE journal SET path = 'z' WHERE seq = 2",
        "DELETE FROM journal WHERE seq = 3",
        "DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)",
        "UPDATE journal SET detail = '{\"a\":1}' WHERE seq = 1",
        "UPDATE contents SET data = x'00', codec = 0 WHERE data IS NOT NULL",
    ],
)
def test_whatever_is_not_sound_is_found_all_the_same(written: Bed, damage: str) -> None:
    journal = apsw.Connection(str(written.workspace / ".perdure" / "journal.db"))
    journal.execute(damage)
    journal.close()
    short = perdure(written, "verify")
    assert short.returncode == 1
    assert "not sound" in short.stdout
    assert (short.returncode, short.stdout, short.stderr) == by_the_tool(written, "verify")


def test_a_damaged_blob_is_found_all_the_same(written: Bed) -> None:
    blobs = [path for path in (written.workspace / ".perdure" / "blobs").iterdir() if len(path.name) == 64]
    assert blobs
    blobs[0].write_bytes(b"other")
    assert perdure(written, "verify").returncode == 1


@pytest.mark.parametrize(
    "words",
    [("journal",), ("verify",), ("status",), ("history", "a"), ("diff", "a"), ("handoff", "show")],
    ids=" ".join,
)
def test_to_read_where_nothing_was_written_makes_nothing(bed: Bed, words: tuple[str, ...]) -> None:
    done = perdure(bed, *words)
    assert "Traceback" not in done.stderr
    assert list(bed.workspace.iterdir()) == []


def test_the_formats_that_are_read_the_short_way_are_the_newest() -> None:
    from perdure.storage.sqlite import glance
    from perdure.storage.sqlite.database import migrations
    from perdure.storage.sqlite.state_opening import APPLICATION_ID

    assert max(number for number, _ in migrations("journal")) == glance.JOURNAL_FORMAT
    assert max(number for number, _ in migrations("state")) == glance.STATE_FORMAT
    assert APPLICATION_ID == glance.STATE_ID


def test_a_path_that_the_journal_writes_otherwise_is_found_all_the_same(written: Bed) -> None:
    wanted = json.loads(perdure(written, "history", "a", "--json").stdout)
    (written.workspace / "link").symlink_to("src")
    for path in ("./a", str(written.workspace / "a"), "src/../a"):
        assert json.loads(perdure(written, "history", path, "--json").stdout) == wanted
    found = json.loads(perdure(written, "history", "link/ünï code.py", "--json").stdout)
    assert found["path"] == "src/ünï code.py"


def test_what_a_killed_process_left_open_is_settled_before_it_is_shown(written: Bed) -> None:
    journal = str(written.workspace / ".perdure" / "journal.db")
    connection = apsw.Connection(journal)
    connection.execute("INSERT INTO intents SELECT max(seq), 'another boot' FROM journal")
    connection.close()

    assert perdure(written, "journal", "--json").returncode == 0

    connection = apsw.Connection(journal)
    assert connection.execute("SELECT count(*) FROM intents").fetchall() == [(0,)]
    connection.close()


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("status", []),
        ("status", ["--json", "--workspace", "a", "--workspace", "b", "--state", "s"]),
        ("top", ["--once", "--workspace", "x"]),
        ("journal", ["--json", "--mode", "create", "--path", "p"]),
        ("history", ["a", "--json"]),
        ("history", ["--workspace", "w", "a"]),
        ("diff", ["--workspace", "w", "a", "--from", "1", "--to", "2", "--json"]),
        ("verify", ["--json"]),
    ],
)
def test_simple_options_mean_the_same_with_and_without_the_parser(command: str, argv: list[str]) -> None:
    module = import_module(f"perdure.cli.{command}")
    quick = quickly(argv, module.SIMPLE, ("path",) if command in ("history", "diff") else ())
    parsed = vars(module.parser().parse_args(argv))
    assert {name: parsed[name] for name in vars(quick)} == vars(quick)


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["-n", "3"],
        ["--path"],
        ["--path", "--json"],
        ["--jso"],
        ["extra"],
        ["--path=a"],
        ["--", "a"],
    ],
    ids=" ".join,
)
def test_whatever_is_not_simple_is_left_to_the_parser(argv: list[str]) -> None:
    from perdure.cli import journal

    assert quickly(argv, journal.SIMPLE) is None


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1.5, 1e300, "", 'q"\\\n\x00é😀\ud800', [], {}, {"a": [1, {"b": (2, False)}], "ü": None}],
    ids=repr,
)
def test_plain_json_is_what_the_standard_package_writes(value: Any) -> None:
    assert dumps(value) == json.dumps(value)


def test_no_journal_is_an_empty_one(bed: Bed) -> None:
    done = perdure(bed, "journal")
    assert (done.returncode, done.stdout) == (0, "nothing\n")
