"""`perdure` as a person meets it at a terminal: the workspace around the folder, diffs, undo, help, one order of rows."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from commands import SCRIPT, Terminal, perdure

from perdure.cli.locations import find_workspace
from perdure.cli.main import main
from perdure.cli.tool_command import CommandCall
from perdure.protocol.tools import View
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker.compose import Settings, open_write
from testbed import Bed

Run = Callable[..., tuple[int, str, str]]
Write = Callable[..., Any]


class AgentCall(CommandCall):
    def __init__(self, tool: str, view: View) -> None:
        super().__init__(tool, view)
        self.client, self.session = "claude-code", "session-of-the-agent"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace with a subfolder, which is the current one."""
    for name in ("PERDURE_WORKSPACE", "RW_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "proj"
    (folder / "sub").mkdir(parents=True)
    monkeypatch.chdir(folder / "sub")
    return folder


@pytest.fixture
def write(project: Path) -> Write:
    """A tool of the write surface, called as an agent calls it."""

    def call(name: str, **given: Any) -> Any:
        surface = WriteSurface(lambda: open_write(Settings(workspaces=(str(project),))))
        tool = {one.spec.name: one for one in surface.tools()}[name]
        try:
            return tool.run(
                msgspec.convert(given, type=tool.spec.params), AgentCall(name, View("json", "full"))
            )
        finally:
            surface.close()

    return call


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return go


# --- which workspace ------------------------------------------------------------------------------------------


def test_the_workspace_is_the_nearest_known_one_above_else_the_git_root_else_here(
    project: Path, write: Write
) -> None:
    assert find_workspace(".") == str(project / "sub")
    (project / ".git").mkdir()
    assert find_workspace(".") == str(project)
    (project / ".git").rmdir()
    write("safe_write", path="a.txt", content="1\n")
    (project / "sub" / "repository" / ".git").mkdir(parents=True)
    assert find_workspace("repository") == str(project)
    (project.parent / ".git").mkdir()  # of the home folder: settings, not a project
    (project.parent / "other").mkdir()
    assert find_workspace(str(project.parent / "other")) == str(project.parent / "other")


def test_a_command_in_a_subfolder_names_the_workspace_beside_its_data(run: Run, write: Write) -> None:
    write("safe_write", path="sub/a.txt", content="1\n")
    code, text, error = run("journal")
    assert (code, error) == (0, "workspace ~/proj\n")
    assert "sub/a.txt" in text
    assert "workspace" not in text
    assert run("journal", "--json")[2] == ""


def test_paths_are_relative_to_the_current_folder(run: Run, project: Path, write: Write) -> None:
    write("safe_write", path="sub/a.txt", content="1\n")
    write("safe_write", path="a.txt", content="above\n")
    assert run("cat", "a.txt@1")[1] == "1\n"
    assert run("cat", "../a.txt@2")[1] == "above\n"
    assert json.loads(run("history", "a.txt", "--json")[1])["path"] == "sub/a.txt"
    assert run("history", "../../outside")[0] == 2


@pytest.mark.parametrize("words", [("journal",), ("undo",), ("undo", "--dry-run"), ("restore", "a", "1")])
def test_a_workspace_without_changes_says_what_would_fill_it(
    run: Run, project: Path, words: tuple[str, ...]
) -> None:
    code, text, error = run(*words)
    assert code == (0 if words == ("journal",) else 1)
    assert (
        "No changes yet in ~/proj/sub. Agents' writes through Perdure appear here (perdure install CLIENT)."
    ) in text + error
    assert not (project.parent / "home").exists()


def test_a_hook_takes_the_clients_project_and_else_the_workspace_around_its_folder(
    project: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.cli.locations import find_project

    write("safe_write", path="a.txt", content="1\n")
    sub = str(project / "sub")
    assert find_project(None, None, sub) == str(project)
    assert find_project(None, sub, str(project)) == sub
    monkeypatch.setenv("PERDURE_WORKSPACE", str(project))
    assert find_project(None, sub, sub) == str(project)
    assert find_project(sub, None, str(project)) == sub


# --- one change -------------------------------------------------------------------------------------------------


def test_a_diff_goes_into_git_apply(run: Run, project: Path, write: Write) -> None:
    old, new = "one\r\ntwo\nthree é", "one\r\n2\nthree é\n"
    write("safe_write", path="sub/with space.txt", content=old)
    write("safe_write", path="sub/with space.txt", content=new, mode="overwrite")
    diff = run("diff", "with space.txt")[1]
    subprocess.run(
        ["git", "apply", "-R"], cwd=project, input=diff.encode(), check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert (project / "sub" / "with space.txt").read_bytes() == old.encode()
    code, text, error = run("diff", "nosuch")
    assert (code, text) == (1, "")
    assert "Perdure has recorded no change of sub/nosuch" in error


def test_show_has_who_when_and_the_diff_of_every_file(run: Run, write: Write) -> None:
    write("safe_write", path="a.txt", content="1\n")
    ops = [
        {"op": "move", "path": "a.txt", "to": "b.txt"},
        {"op": "write", "path": "c.txt", "content": "new\n"},
    ]
    write("transaction", ops=ops)
    code, text, _ = run("show", "3")
    assert code == 0
    for part in ("change 2", "by     claude-code", " s ago", "2 files  +1 -0 lines"):
        assert part in text
    assert "rename a.txt -> b.txt\n" in text
    assert "create c.txt\n--- /dev/null\n+++ b/c.txt\n@@ -0,0 +1 @@\n+new\n" in text
    found = json.loads(run("show", "4", "--json")[1])
    assert (found["id"], found["files"], found["status"]) == ("2", 2, "done")
    assert [(one["path"], one["op"], one.get("from")) for one in found["entries"]] == [
        ("b.txt", "rename", "a.txt"),
        ("c.txt", "create", None),
    ]
    assert json.loads(run("show", found["transaction_id"], "--json")[1])["id"] == "2"
    assert run("show", "99")[0] == 1
    assert run("cat", "../c.txt@4")[1] == "new\n"
    assert "deleted by change" in run("cat", "../a.txt@4")[2]


def test_undo_says_what_whose_and_when_what_it_kept_and_how_to_redo(
    run: Run, project: Path, write: Write
) -> None:
    write("safe_write", path="a.txt", content="1\n2\n3\n4\n5\n")
    write("safe_write", path="a.txt", content="one\n2\n3\n4\n5\n", mode="overwrite")
    (project / "a.txt").write_text("one\n2\n3\n4\nfive\n")
    preview = run("undo", "--dry-run")[1]
    assert preview.startswith("would undo #2 overwrite a.txt by claude-code, ")
    assert "perdure undo 2\n" in preview
    code, text, _ = run("undo", "2")
    assert code == 0
    assert text.startswith("undid #2 overwrite a.txt by claude-code, ")
    assert "kept the later edits of a.txt\nRedo: perdure undo --redo 3\n" in text
    assert (project / "a.txt").read_text() == "1\n2\n3\n4\nfive\n"
    assert run("undo", "--redo")[1].startswith("redid #2 overwrite a.txt by claude-code, ")
    code, text, _ = run("undo", "--since", "10m")
    assert (code, text.splitlines()[0]) == (3, "nothing was changed: 1 conflict")
    (project / "a.txt").write_text("one\n2\n3\n4\n5\n")
    found = json.loads(run("undo", "--since", "10m", "--json")[1])
    assert [(one["id"], one["client"]) for one in found["reverted"]] == [
        ("2", "claude-code"),
        ("1", "claude-code"),
    ]
    assert (found["conflicts"], found["kept"], len(found["ids"])) == ([], [], 2)
    assert not (project / "a.txt").exists()


# --- listings ---------------------------------------------------------------------------------------------------


def test_every_listing_is_newest_last_in_local_time_with_the_same_words(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        write("safe_write", path="sub/a.txt", content="1\n")
        write("safe_write", path="sub/a.txt", content="2\n", mode="overwrite")
        write("undo")
        write("transaction", ops=[{"op": "move", "path": "sub/a.txt", "to": "log/" + "long" * 40}])
        shown = [run("journal")[1], run("history", "a.txt")[1], run("status")[1]]
    finally:
        monkeypatch.undo()
        time.tzset()
    for text in shown:
        rows = [line.split() for line in text.splitlines() if line.split()[0].isdigit()]
        ids = [int(row[0]) for row in rows]
        assert ids == sorted(ids)
        assert [row[2] for row in rows][:3] == ["create", "overwrite", "undo"]
        assert all(row[1].endswith(("-05:00", "-04:00")) for row in rows)
    assert f"sub/a.txt -> log/{'long' * 40}" in shown[0]


@pytest.mark.thorough
def test_on_a_terminal_rows_fit_and_say_how_long_ago(bed: Bed) -> None:
    bed.run().use("safe_write", {"path": "a-rather-long-name/" * 5 + "x.txt", "content": "x\n"})
    shown = Terminal(bed, "journal", columns=80, TZ="Asia/Tokyo", NO_COLOR="1")
    assert shown.end() == 0
    head, row = shown.shown.splitlines()
    assert "when JST" in head
    assert " s ago" in row
    assert "x.txt" in row
    assert max(len(head), len(row)) <= 80
    assert "a-rather-long-name/" * 5 + "x.txt" in perdure(bed, "journal").stdout


def test_the_journal_counts_the_lines_of_each_change(run: Run, write: Write) -> None:
    write("safe_write", path="a.txt", content="one\ntwo\nthree\n")
    write("edit", path="a.txt", edits=[{"old": "two", "new": "-- 2\x0c\nand"}])
    write("transaction", ops=[{"op": "move", "path": "a.txt", "to": "b.txt"}])
    write("transaction", ops=[{"op": "delete", "path": "b.txt"}])
    write("safe_write", path="large.txt", content="x" * (1 << 20) + "y")

    rows = run("journal")[1].splitlines()
    entries = json.loads(run("journal", "--json")[1])["entries"]

    end = rows[0].index("lines") + len("lines")
    assert [row[end - 6 : end].strip() for row in rows] == ["lines", "+3 -0", "+2 -1", "", "+0 -4", ""]
    counts = [(entry.get("added"), entry.get("removed")) for entry in entries]
    assert counts == [(3, 0), (2, 1), (None, None), (None, None), (0, 4), (None, None)]


# --- room -------------------------------------------------------------------------------------------------------


def test_du_shows_what_is_kept_and_gc_removes_what_is_not_to_be_kept(
    run: Run, project: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.workspace import retention

    monkeypatch.setattr(retention, "IN_REACH", 2)
    for number in range(6):
        write(
            "safe_write",
            path="a.txt",
            content=f"{number}\n" * 20_000,
            mode="overwrite" if number else "create",
        )
    (store,) = json.loads(run("du", "--json")[1])["workspaces"]
    assert (store["workspace"], store["is_orphan"]) == (str(project), False)
    assert "~/proj" in run("du")[1]
    assert json.loads(run("gc", "--dry-run", "--json")[1])["bytes"] == 0
    (project / "perdure.toml").write_text("[keep]\ndays = 0\n")
    assert run("trust", "--yes")[0] == 0
    preview = json.loads(run("gc", "--dry-run", "--json")[1])
    assert preview["bytes"] > 0
    assert run("cat", "../a.txt@1")[1].startswith("0\n")
    assert json.loads(run("gc", "--json")[1])["bytes"] == preview["bytes"]
    assert run("cat", "../a.txt@1")[0] != 0
    assert run("undo")[0] == 0  # what undo promises is there
    assert run("verify")[0] == 0


def test_gc_removes_the_store_of_a_folder_that_is_gone_only_when_asked_and_old(
    run: Run, project: Path, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import shutil

    write("safe_write", path="a.txt", content="1\n")
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(project)
    (store,) = json.loads(run("du", "--json")[1])["workspaces"]
    assert store["is_orphan"]
    assert "(the folder is gone)" in run("du")[1]
    assert json.loads(run("gc", "--orphans", "--json")[1])["workspaces"][0]["removable"] is False
    (tmp_path / ".config" / "perdure").mkdir(parents=True)
    (tmp_path / ".config" / "perdure" / "perdure.toml").write_text("[keep]\ndays = 0\n")
    assert "perdure gc --orphans removes them" in run("gc")[1]
    assert run("gc", "--orphans", "--dry-run")[1].startswith("would free ")
    assert Path(store["store"]).exists()
    assert run("gc", "--orphans")[1].startswith("freed ")
    assert not Path(store["store"]).exists()


# --- help -------------------------------------------------------------------------------------------------------


def test_bare_perdure_prints_help_on_a_terminal_and_serves_a_pipe(bed: Bed) -> None:
    shown = Terminal(bed)
    assert shown.end() == 0
    assert "usage: perdure [COMMAND]" in shown.shown
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "0"},
        },
    }
    served = perdure(bed, stdin=json.dumps(request) + "\n")
    assert json.loads(served.stdout.splitlines()[0])["id"] == 1


def test_an_unknown_command_gets_the_similar_names_and_help_takes_a_command(run: Run) -> None:
    assert run("jurnal") == (2, "", "perdure: no command jurnal; did you mean journal? Similar: uninstall.\n")
    assert run("xyzzy") == (2, "", "perdure: no command xyzzy; `perdure help` lists the commands\n")
    with pytest.raises(SystemExit) as ended:
        main(["help", "state", "get"])
    assert ended.value.code == 0


def test_help_of_a_command_is_its_own(bed: Bed) -> None:
    assert "usage: perdure undo" in perdure(bed, "help", "undo").stdout


# --- serve ------------------------------------------------------------------------------------------------------


def test_serve_says_where_it_is_and_who_holds_a_taken_port(bed: Bed) -> None:
    with subprocess.Popen(
        [*SCRIPT, "serve", "--port", "0"],
        env=bed.environ,
        cwd=bed.workspace,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            lines = [server.stderr.readline().rstrip() for _ in range(4)]
            address = lines[0].removeprefix("perdure serve: ")
            assert lines[1] == f"  dashboard  {address.removesuffix('mcp')}"
            assert lines[2].startswith("  workspace  ")
            assert "perdure attach" in lines[3]
            port = address.rpartition(":")[2].partition("/")[0]
            taken = perdure(bed, "serve", "--port", port)
            assert taken.returncode == 4
            assert f"port {port} is used by perdure serve, pid {server.pid} (" in taken.stderr
            assert "`perdure attach` joins it; --port 0 takes another." in taken.stderr
        finally:
            server.terminate()


def test_a_port_of_another_program_is_named_with_its_process(bed: Bed) -> None:
    import os

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = perdure(bed, "serve", "--port", str(port))
    assert taken.returncode == 4
    assert f", pid {os.getpid()}. --port 0 takes another." in taken.stderr


# --- what to do next --------------------------------------------------------------------------------------------


def test_install_lists_the_clients_of_this_machine_and_ends_with_what_to_do_next(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert run("install")[1].startswith("No client was found on this machine. Perdure knows claude-code, ")
    (project.parent / ".cursor").mkdir()
    code, text, _ = run("install")
    assert (code, [line.split() for line in text.splitlines()[1:2]]) == (
        0,
        [["cursor", "no", "server,", "hooks", "~/.cursor/mcp.json"]],
    )
    assert "Next: perdure install --all --hooks shows the changes" in text
    assert "+++" in run("install", "cursor")[1]
    applied = run("install", "cursor", "--apply")[1]
    assert "+++" not in applied
    assert applied.splitlines()[0].startswith("perdure added  ")
    assert "Next: restart Cursor, then ask for the tools of perdure." in applied
    assert run("install")[1].splitlines()[1].split()[1] == "yes"


def test_verify_does_not_call_a_changed_file_sound(run: Run, project: Path, write: Write) -> None:
    write("safe_write", path="a.txt", content="1\n")
    assert run("verify")[1] == "sound  1 write\n"
    (project / "a.txt").write_text("of another program\n")
    code, text, _ = run("verify")
    assert (code, text.splitlines()[-1]) == (
        0,
        "the journal is sound; 1 file changed outside of Perdure  1 write",
    )


def test_reload_without_a_host_and_a_handoff_without_input_say_what_is_missing(run: Run, bed: Bed) -> None:
    code, _, error = run("reload")
    assert (code, error.startswith("perdure reload: no running host; a client starts one")) == (1, True)
    empty = perdure(bed, "handoff", "write")
    assert empty.returncode == 2
    assert "standard input: it is empty; expected the envelope: JSON or YAML with task_id" in empty.stderr


def test_top_keeps_the_process_id_of_a_server_that_has_failed() -> None:
    from perdure.cli.top import mount_line

    fault = {"class": "process", "code": "killed"}
    mount = {
        "name": "notes",
        "state": "ready",
        "pid": 1234567,
        "restarts": 12,
        "circuit": "closed",
        "last_fault": fault,
    }
    assert "pid 1234567" in mount_line(mount)[:50]


@pytest.mark.thorough
def test_one_tool_is_called_from_the_terminal(bed: Bed) -> None:
    """The `next:` line of an error is a command."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return perdure(bed, "call", *words)

    assert call("safe_write", "path=a.txt", "content=hello").stdout.startswith("wrote a.txt  5 bytes")
    refused = call("safe_write", "path=a.txt", "content=bye")
    assert (refused.returncode, refused.stdout) == (3, "")
    step = next(line for line in refused.stderr.splitlines() if line.startswith("next: "))
    followed = call(*shlex.split(step.removeprefix("next: ").partition("   (")[0]))
    assert (followed.returncode, (bed.workspace / "a.txt").read_text()) == (0, "bye")
    edits = 'edits:=[{"old": "bye", "new": "so long"}]'
    assert json.loads(call("edit", "path=a.txt", edits, "--json").stdout)["replacements"] == 1
    unknown = call("raed", "path=a.txt")
    assert (unknown.returncode, "did you mean read?" in unknown.stderr) == (2, True)
    assert "is not JSON" in call("read", "path=a.txt", "start_line:=x").stderr
    assert "write KEY=VALUE" in call("read", "a.txt").stderr


@pytest.mark.thorough
def test_a_mounted_tool_gets_only_the_arguments_that_were_typed(bed: Bed) -> None:
    """Its schema may forbid others, so `--json` adds nothing to the call."""
    schema = {
        "type": "object",
        "properties": {"key": {"type": "string"}},
        "additionalProperties": False,
    }
    catalog = bed.root / "catalog.json"
    catalog.write_text(json.dumps([{"name": "strict", "inputSchema": schema}]))
    command, *arguments = bed.fake(f"--catalog={catalog}", name="notes").argv
    bed.trusted("mcp.md", f"# MCP servers\n\n## notes\ncommand: {command}\nargs: {json.dumps(arguments)}\n")
    called = perdure(bed, "call", "notes__strict", "key=a", "--json")
    assert called.returncode == 0, called
    assert json.loads(called.stdout) == {"tool": "strict", "arguments": {"key": "a"}}
    refused = perdure(bed, "call", "notes__strict", "key=a", "colour=red", "--json")
    assert "Unknown arguments: colour" in refused.stderr


def test_a_command_without_its_subcommand_lists_them(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("handoff")
    assert ended.value.code == 2
    assert "a command is missing: show, write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("serve", "--port", "99999"), "99999: expected a number from 0 to 65535"),
        (("top", "--interval", "soon"), "soon: expected seconds from 0.1 to 3600"),
    ],
)
def test_a_number_that_cannot_be_meant_is_named_with_its_range(
    words: tuple[str, ...], sentence: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*words)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_commands_say_that_there_is_nothing_yet(run: Run, project: Path) -> None:
    assert run("verify") == (
        0,
        "Nothing to check: No changes yet in ~/proj/sub. Agents' writes through Perdure appear here "
        "(perdure install CLIENT).\n",
        "",
    )
    assert run("gc")[1] == "Nothing to remove: Perdure keeps no store on this machine.\n"
    assert "no host is running" in run("top", "--once")[1]
