"""What did my agents do, and what went wrong: the pages that answer it, on a real `perdure serve`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from visitor import SECRET, Visitor, agent, furnish

from compiled_rules import put_compiled_rules
from perdure.dash.context import ServerRow
from perdure.dash.verdict import judge
from perdure.host.recent_events import Event
from perdure.protocol.mounts import MountSpec
from perdure.testing import fake_server
from perdure.testing.http_client import HttpClient, ServeProcess

FAKE = shlex.join([sys.executable, "-P", "-S", fake_server.__file__])


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """Two agents, one mounted server that was killed, a refused secret, a conflict."""
    process = ServeProcess(tmp_path_factory.mktemp("eventful"), "--mount", f"notes={FAKE}")
    one, other = agent(process, "claude-code"), agent(process, "cursor")
    furnish(one)
    for client in (one, other):
        client.call("notes__echo", {"text": "x"})
    one.call("notes__die", {"signal": "SIGKILL"})
    for client in (one, other):
        client.call("notes__echo", {"text": "x"})
    other.call("get_state", {"key": "plan"})
    other.call("edit", {"path": "a.txt", "edits": [{"old": "nowhere", "new": "x"}], "render": "json"})
    other.call("safe_write", {"path": "a.txt", "content": "x\n", "render": "json"})
    other.call("safe_write", {"path": "b.env", "content": f"key = {SECRET}\n", "render": "json"})
    yield process
    assert process.stop() == 0


def text_of(page: str) -> str:
    """What a reader sees."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


# --- the verdict ----------------------------------------------------------------------------------------------


def row(state: str, **fault: str) -> ServerRow:
    return ServerRow("notes", MountSpec("notes"), state=state, last_fault=dict(fault))


def test_the_verdict_is_one_line() -> None:
    killed = Event(1000.0, "fault", "notes", "was killed (SIGKILL)")
    old = Event(100.0, "fault", "notes", "was killed (SIGKILL)")
    fault = {"class": "process", "code": "exited", "detail": "exit code 1"}
    cases = [
        ([row("ready")], [], 0, 0, "good", "All well."),
        ([row("ready")], [old], 120, 3, "good", "All well. 3 of 120 calls in 5 min failed."),
        (
            [row("ready")],
            [killed],
            400,
            41,
            "warn",
            "notes was killed (SIGKILL) 1 min ago and restarted; 41 failed calls in 5 min.",
        ),
        (
            [row("degraded", **fault)],
            [killed],
            1,
            1,
            "bad",
            "notes is paused after repeated failures (ended with exit code 1).",
        ),
    ]
    for servers, events, calls, failed, level, text in cases:
        verdict = judge(servers, events, calls, failed, now=1070.0)
        assert (verdict.level, verdict.text) == (level, text)


def test_the_overview_leads_with_what_went_wrong(eventful: ServeProcess) -> None:
    page = text_of(Visitor(eventful.port).text("/"))
    assert "notes was killed (SIGKILL) less than a minute ago and restarted" in page
    assert page.index("notes was killed") < page.index("Sessions 2") < page.index("Latest events")
    assert "Failed calls in 5 min" in page


# --- the timeline -----------------------------------------------------------------------------------------------


def test_the_timeline_names_what_happened_once(eventful: ServeProcess) -> None:
    visitor = Visitor(eventful.port)
    page = text_of(visitor.text("/events"))
    # one process was killed while two sessions used it
    assert page.count("notes was killed (SIGKILL)") == 1
    assert page.count("notes was started again") == 1
    assert "(×2)" not in page.partition("notes was killed")[2][:20]
    assert "lost call notes__die was lost with its server" in page
    assert "refused safe_write was refused" in page
    assert "safe_write met a conflict: file already exists" in page
    assert "claude-code" in page
    only = text_of(visitor.text("/events?kind=fault"))
    assert "notes was killed" in only
    assert "safe_write" not in only


def test_an_undo_is_on_the_timeline(served: ServeProcess) -> None:
    client = agent(served)
    furnish(client)
    client.call("undo", {"path": "a.txt"})
    assert "undo a.txt was undone" in text_of(Visitor(served.port).text("/events"))


# --- tools, sessions, servers, files ------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    put_compiled_rules(tmp_path / "home")
    process = ServeProcess(tmp_path)
    yield process
    assert process.stop() == 0


def test_each_tool_has_its_calls_failures_and_times_without_waits(served: ServeProcess) -> None:
    client = agent(served)
    client.call("state_wait", {"key": "door", "timeout_s": 0.2})
    client.call("read", {"path": "missing"})
    client.call("list_state", {})
    cells = dict(
        re.findall(
            r"<tr[^>]*><td[^>]*><code[^>]*>(\w+)</code></td>(.*?)</tr>", Visitor(served.port).text("/tools")
        )
    )
    assert next(iter(cells)) == "read"
    assert text_of(cells["read"]).startswith("1 1 ")
    assert text_of(cells["list_state"]).startswith("1 0 ")
    assert text_of(cells["state_wait"]) == "1 0 – –"


def test_the_tools_of_a_session_that_ended_still_count(served: ServeProcess) -> None:
    client = agent(served)
    client.call("list_state", {})
    client.send("DELETE")
    page = text_of(Visitor(served.port).text("/tools"))
    assert "list_state 1 0" in page


def test_a_session_has_a_page_with_its_calls_and_writes(eventful: ServeProcess) -> None:
    visitor = Visitor(eventful.port)
    page = visitor.text("/sessions")
    addresses = [unescape(one) for one in re.findall(r'href="(/sessions/session\?[^"]*)"', page)]
    pages = [text_of(visitor.text(one)) for one in addresses]
    claude = next(one for one in pages if "Session of claude-code" in one)
    cursor = next(one for one in pages if "Session of cursor" in one)
    assert "notes__die" in claude
    assert "edit +1 −1" in claude
    assert "a.txt" in claude
    assert "Undo all since then…" in claude
    assert "This session has changed no file." in cursor
    assert "met a conflict" in cursor
    assert visitor.get("/sessions/session?id=nobody").status == 404


def test_a_server_has_a_page_with_its_command_tools_and_last_fault(eventful: ServeProcess) -> None:
    page = text_of(Visitor(eventful.port).text("/mounts/server?name=notes"))
    for words in (
        *("healthy", "Started", "Up for", "killed (SIGKILL)", "notes__echo 4 0"),
        *("Restarts after faults 1", "notes was started again"),
    ):
        assert words in page, words
    assert "closed" not in page


def test_a_file_has_a_page_with_its_history(eventful: ServeProcess) -> None:
    page = text_of(Visitor(eventful.port).text("/file?path=a.txt"))
    assert "edit +1 −1" in page
    assert "create +1 −0" in page
    assert "-one +two" in page
    assert "Not in the journal yet" not in page
    (eventful.workspace / "a.txt").write_text("two\nby hand\n")
    assert "Not in the journal yet" in Visitor(eventful.port).text("/file?path=a.txt")
    (eventful.workspace / "a.txt").write_text("two\n")


# --- the journal ------------------------------------------------------------------------------------------------


def test_a_transaction_is_one_row_under_its_day(served: ServeProcess) -> None:
    client = agent(served)
    ops = [{"op": "write", "path": f"f{number}", "content": "x\n"} for number in range(3)]
    client.call("transaction", {"ops": ops})
    client.call("transaction", {"ops": [{"op": "move", "path": "f0", "to": "moved"}]})
    visitor = Visitor(served.port)
    page = visitor.text("/journal")
    assert "<h2>Today</h2>" in page
    assert len(re.findall("<tr[^>]*data-row", page)) == 2
    assert "3 files: f0 …" in text_of(page)
    assert "f0 → moved" in text_of(page)
    assert "+3 −0" in text_of(page)
    assert '<datalist id="known-path"><option value="' in page
    assert len(re.findall("<tr[^>]*data-row", visitor.text("/journal?path=ove"))) == 1


def test_selected_changes_are_undone_at_once_after_one_preview(served: ServeProcess) -> None:
    # given three changes of two files
    client, workspace = agent(served), served.workspace
    client.call("safe_write", {"path": "a", "content": "1\n"})
    client.call("safe_write", {"path": "b", "content": "1\n"})
    client.call("safe_write", {"path": "a", "content": "2\n", "mode": "overwrite"})
    visitor = Visitor(served.port)
    # when all of them are selected
    page = visitor.text("/journal/undo?id=1&id=3&id=2")
    assert "3 changes in 2 files will be undone" in text_of(page)
    assert (workspace / "a").read_text() == "2\n"
    # then one button undoes them, and its undo can be taken back
    done = visitor.post_form(page, "/journal/undo")
    assert (done.status, (workspace / "a").exists(), (workspace / "b").exists()) == (303, False, False)
    after = visitor.text(done.headers["location"])
    assert "3 changes were undone." in after
    back = re.search(r'href="(/journal/undo\?id=\d+)">Take the undo back', after)
    assert back is not None
    visitor.post_form(visitor.text(back[1]), "/journal/undo")
    assert ((workspace / "a").read_text(), (workspace / "b").read_text()) == ("2\n", "1\n")


def test_the_changes_of_a_session_since_a_time_are_undone_and_no_others(served: ServeProcess) -> None:
    one, other = agent(served, "one"), agent(served, "other")
    for client, path in ((one, "a"), (other, "b"), (one, "c")):
        client.call("safe_write", {"path": path, "content": "x\n"})
    visitor = Visitor(served.port)
    page = visitor.text(f"/journal/undo?session={one.session}&since=1h")
    assert "2 changes in 2 files will be undone" in text_of(page)
    visitor.post_form(page, "/journal/undo")
    assert [(served.workspace / name).exists() for name in "abc"] == [False, True, False]


def test_an_undo_of_nothing_says_so(served: ServeProcess) -> None:
    visitor = Visitor(served.port)
    agent(served)
    for query in ("", "?id=", "?session=x", "?since=1h"):
        answer = visitor.get(f"/journal/undo{query}")
        assert (answer.status, b"No change is selected" in answer.body) == (409, True)
    assert visitor.get("/journal/undo?id=1&id=x").status == 409
    assert visitor.get("/journal/undo?session=x&since=whenever").status == 409


# --- state, drafts, handoffs, registry ----------------------------------------------------------------------------


def test_state_shows_values_and_who_changed_them(served: ServeProcess) -> None:
    agent(served, "planner").call("set_state", {"key": "plan/a", "value": '{"step": 1}'})
    agent(served, "leaker").call("set_state", {"key": "leak", "value": f'"{SECRET}"'})
    page = Visitor(served.port).text("/state")
    assert 'plan/a {"step":1} 1' in text_of(page).replace('{"step": 1}', '{"step":1}')
    assert "planner" in page
    assert SECRET[:12] not in page


def test_a_draft_says_why_shows_itself_redacted_and_is_discarded(served: ServeProcess) -> None:
    client, visitor = agent(served), Visitor(served.port)
    content = f"host = example\nkey = {SECRET}\n"
    refused = client.call("safe_write", {"path": "s.env", "content": content, "render": "json"})
    identity = refused["structuredContent"]["draft"]
    address = f"/drafts/draft?id={identity}"
    page = visitor.text(address)
    assert "it looks like it holds a secret" in page
    assert "line 2" in page
    assert "host = example" in page
    assert SECRET[:12] not in page
    assert "A write with this content stays refused." in page
    ids = set(re.findall(r"/drafts/draft\?id=(\w+)", visitor.text("/drafts")))
    [copy] = ids - {identity}
    redacted = visitor.text(f"/drafts/draft?id={copy}")
    assert "Redacted copy of a refused payload" in redacted
    assert f"safe_write path=s.env draft={copy}" in redacted
    assert visitor.post_form(page, "/drafts/discard").headers["location"] == "/drafts?done=discarded"
    assert identity not in visitor.text("/drafts")
    assert visitor.get(address).status == 404


def test_a_handoff_has_its_summary_first_and_drift_in_words(served: ServeProcess) -> None:
    client, visitor = agent(served), Visitor(served.port)
    sha = {}
    for path in ("kept", "changed", "gone"):
        client.call("safe_write", {"path": path, "content": "x\n"})
        read = client.call("read", {"path": path, "render": "json", "detail": "full"})
        sha[path] = read["structuredContent"]["sha256"]
    good = [{"path": path, "sha256": sha[path]} for path in sha]
    envelope = {
        "task_id": "T-1",
        "status": "partial",
        "agent": "claude-code",
        "summary": "Half of it is done.",
        "next_steps": ["do the rest"],
        "last_good_state": good,
    }
    client.call("handoff_write", {"envelope": envelope})
    client.call("safe_write", {"path": "changed", "content": "y\n", "mode": "overwrite"})
    (served.workspace / "gone").unlink()
    page = visitor.text("/handoffs")
    text = text_of(page)
    assert text.index("Half of it is done.") < text.index("T-1")
    assert "changed changed since ( diff )" in text
    assert "gone was deleted since" in text
    assert "hash_mismatch" not in text
    compare = re.search(r'href="(/file/compare[^"]*)"', page)
    assert compare is not None
    assert "-x +y" in text_of(visitor.text(unescape(compare[1])))


def test_the_registry_names_its_file_and_switches_a_server(tmp_path: Path) -> None:
    registry = tmp_path / "mine.md"
    registry.write_text("# MCP servers\n## fake\ncommand: python3\ndescription: A fake.\n")
    process = ServeProcess(tmp_path, "--registry", str(registry))
    visitor = Visitor(process.port)
    page = visitor.text("/registry")
    assert str(registry) in page
    assert "A fake." in page
    done = visitor.post_form(page, "/registry/switch")
    assert "fake was disabled." in visitor.text(done.headers["location"])
    assert "enabled: false" in registry.read_text()
    assert process.stop() == 0


def test_every_page_names_workspace_store_process_and_address(served: ServeProcess) -> None:
    page = text_of(Visitor(served.port).text("/events"))
    for words in (
        f"Workspace {served.workspace}",
        f"Process {served.process.pid}",
        f"http://127.0.0.1:{served.port}/mcp",
        "Times UTC",
        "Store ",
    ):
        assert words in page, words


def test_a_live_part_tells_which_rows_are_new(served: ServeProcess) -> None:
    client: HttpClient = agent(served)
    client.call("safe_write", {"path": "a", "content": "1\n"})
    page = Visitor(served.port).text("/journal")
    assert '<div id="entries" class="part" data-news="change">' in page
    assert 'data-row="1"' in page
