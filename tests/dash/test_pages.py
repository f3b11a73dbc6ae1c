"""The dashboard as its server sends it: every page, every change, on a real `perdure serve`."""

from __future__ import annotations

import http.client
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from visitor import PAGES, SECRET, Visitor, agent, furnish

from compiled_rules import put_compiled_rules
from harness.processes import wait_for
from perdure.dash.diffs import reverse_diff
from perdure.storage.timeline import NotCovered
from perdure.testing import fake_server
from perdure.testing.http_client import ServeProcess
from perdure.text.diff_lines import line_kinds
from perdure.worker.compose import Settings, open_write
from recorded_calls import Effect, record

FAKE = shlex.join([sys.executable, "-P", "-S", fake_server.__file__])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    put_compiled_rules(tmp_path / "home")
    process = ServeProcess(tmp_path, "--mount", f"notes={FAKE}")
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path_factory.mktemp("lived-in"))
    furnish(agent(process))
    yield process
    assert process.stop() == 0


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_with_landmarks_and_safe_headers(lived_in: ServeProcess, path: str) -> None:
    answer = Visitor(lived_in.port).get(path)
    page = answer.body.decode()
    assert answer.status == 200
    for landmark in ("<main", "<nav", "<h1>", 'href="#content"', 'lang="en"'):
        assert landmark in page
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(
        r"<script(?! src=)|<style| style=| on\w+=|(?:src|href|action)=\"(?:https?:)?//", page
    )


def test_pages_before_anybody_came_say_so(served: ServeProcess) -> None:
    visitor = Visitor(served.port)
    for path, words in {
        "/": "No client is connected yet",
        "/events": "Nothing happened yet",
        "/tools": "No tool was called yet",
        "/timeline": "perdure install CLIENT --hooks --apply",
        "/journal": "No changes yet",
        "/state": "No keys in this namespace yet",
        "/reservations": "No path is reserved",
        "/handoffs": "No handoff yet",
        "/drafts": "Nothing was refused lately",
        "/sessions": f"Clients connect at http://127.0.0.1:{served.port}/mcp",
        "/registry": "perdure registry install NAME -- COMMAND",
    }.items():
        assert words in visitor.text(path), path


def test_what_is_asked_for_in_vain_is_said_so(lived_in: ServeProcess) -> None:
    visitor = Visitor(lived_in.port)
    for path in ("/nothing", "/journal/entry", "/state/key", "/journal/", "//"):
        assert visitor.get(path).status == 404, path
    assert b'<a href="/">Back to the overview</a>' in visitor.get("/nothing").body
    gone = visitor.get("/journal/undo?path=a.txt&id=999")
    assert gone.status == 409
    assert b"he journal has no" in gone.body
    assert visitor.ask("DELETE", "/").status == 405


def test_contents_put_aside_are_never_shown(lived_in: ServeProcess) -> None:
    page = Visitor(lived_in.port).text("/drafts")
    assert "notes" in page
    assert "big" in page
    assert "before" in page
    assert "hidden" not in page


def test_the_journal_is_filtered_by_path_client_and_session(served: ServeProcess) -> None:
    one, other = agent(served, "first"), agent(served, "second")
    one.call("safe_write", {"path": "of-one", "content": "1\n"})
    other.call("safe_write", {"path": "of-other", "content": "2\n"})
    visitor = Visitor(served.port)
    for query in ("client=first", f"session={one.session}", "path=of-one"):
        page = visitor.text(f"/journal?{query}")
        assert "<code>of-one</code>" in page, query
        assert "<code>of-other</code>" not in page, query


def record_in(served: ServeProcess, *effects: Effect, left_out: str = "", **call: Any) -> str:
    """A call that the hooks of a client recorded, beside the running server. Returns its id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERDURE_HOME", str(served.root / "home"))
        service = open_write(Settings(workspaces=(str(served.workspace),)))
    journal = service.journal
    try:
        if left_out:
            journal.transact(lambda: journal.set_not_covered([NotCovered(left_out, "dependencies", 2310)]))
        return str(record(journal, *effects, on_disk=served.workspace, **call)[0].seq)
    finally:
        service.close()


def test_the_timeline_has_turns_with_their_calls_diffs_and_undo(served: ServeProcess) -> None:
    # given two turns of a client, the second with a subagent and many files, and a call of our own tool
    first = record_in(served, Effect("a.txt", None, b"one\n"), tool="Write", turn=1, left_out="node_modules")
    files = [Effect(f"many/{n:03}.txt", None, b"x\n") for n in range(600)]
    second = record_in(served, *files, turn=2, agent="tester", command="make <all>", status="unfinished")
    agent(served, "cursor").call("safe_write", {"path": "b.txt", "content": "b\n"})
    visitor = Visitor(served.port)
    # then the page shows each turn, and who did what in it
    page = visitor.text("/timeline")
    for words in (
        "claude-code, turn 1",
        "claude-code, turn 2",
        "cursor",
        "make &lt;all&gt;",
        "tester",
        "600 files",
    ):
        assert words in page
    assert "1 place with 2,310 files" in page
    assert "<code>node_modules</code>" in page
    assert '<span class="badge unfinished">' in page
    assert page.index("turn 2") < page.index("turn 1")
    for query, is_there in (("turn=1&session=s1", False), ("agent=tester", True), ("client=cursor", False)):
        assert ("600 files" in visitor.text(f"/timeline?{query}")) is is_there, query
    assert "No change matches" in visitor.text("/timeline?path=nowhere")
    # and a change its diffs
    shown = visitor.text(f"/timeline/change?id={first}")
    assert "+one" in shown
    assert "570 more files not shown" in visitor.text(f"/timeline/change?id={second}")
    assert visitor.get("/timeline/change?id=99999").status == 404
    record_in(served, Effect("c.txt", None, b"x\n"), command=f"curl -H 'Authorization: Bearer {SECRET}'")
    assert SECRET not in visitor.text("/timeline")
    # and when the call of many files is undone, all of them are gone
    preview = visitor.text(f"/journal/undo?id={second}")
    assert "600 changes in 600 files will be undone" in preview
    assert visitor.post("/journal/undo", visitor.form(preview, "/journal/undo")).status == 303
    assert not (served.workspace / "many" / "000.txt").exists()
    assert '<span class="badge undone">' in visitor.text("/timeline")


def test_a_reservation_is_listed_and_released(served: ServeProcess) -> None:
    client = agent(served, "cursor")
    client.call("reserve", {"action": "acquire", "paths": ["src/<a>"], "reason": "a move"})
    visitor = Visitor(served.port)
    page = visitor.text("/reservations")
    for words in ("<code>src/&lt;a&gt;</code>", "cursor", "a move"):
        assert words in page
    assert visitor.post("/reservations/release", visitor.form(page, "/reservations/release")).status == 303
    assert "No path is reserved" in visitor.text("/reservations")


def test_a_rewind_is_previewed_by_author_and_refused_if_something_changed_since(served: ServeProcess) -> None:
    # given three changes of two clients
    record_in(served, Effect("a.txt", None, b"one\n"), turn=1)
    second = record_in(served, Effect("a.txt", b"one\n", b"two\n"), turn=2, agent="tester")
    client = agent(served, "cursor")
    client.call("safe_write", {"path": "b.txt", "content": "b\n"})
    visitor, file = Visitor(served.port), served.workspace / "a.txt"
    assert f"/timeline/rewind?to={second}" in visitor.text(f"/timeline/change?id={second}")
    # when a rewind is previewed
    page = visitor.text(f"/timeline/rewind?to={second}")
    # then nothing happened, and the authors are named
    for words in ("claude-code, agent tester", "cursor", "in 2 files"):
        assert words in page
    assert file.read_bytes() == b"two\n"
    # and it is refused once something was changed after the preview
    client.call("safe_write", {"path": "c.txt", "content": "c\n"})
    assert visitor.post("/timeline/rewind", visitor.form(page, "/timeline/rewind")).status == 409
    assert file.read_bytes() == b"two\n"
    # and else the workspace is as it was before that change
    fresh = visitor.form(visitor.text(f"/timeline/rewind?to={second}"), "/timeline/rewind")
    done = visitor.post("/timeline/rewind", fresh)
    assert done.status == 303
    assert file.read_bytes() == b"one\n"
    assert not (served.workspace / "b.txt").exists()
    after = visitor.text(done.headers["location"])
    assert f"as it was before change {second}" in after
    # and what took it back can be taken back
    redo = visitor.text(re.search(r'href="(/journal/undo\?id=\d+)"[^>]*>Take the rewind', after)[1])  # type: ignore[index]
    assert visitor.post_form(redo, "/journal/undo").status == 303
    assert file.read_bytes() == b"two\n"


@pytest.mark.thorough
def test_a_long_journal_is_read_page_by_page(served: ServeProcess) -> None:
    client = agent(served)
    for number in range(60):
        client.call("safe_write", {"path": f"f{number:02}", "content": "x\n"})
    visitor = Visitor(served.port)
    first = visitor.text("/journal")
    assert "<code>f59</code>" in first
    assert "<code>f09</code>" not in first
    older = re.search(r'class="more" href="([^"]*)"|href="([^"]*)" class="more"', first)
    assert older is not None
    assert "<code>f09</code>" in visitor.text((older[1] or older[2]).replace("&amp;", "&"))


def test_undo_is_previewed_and_then_done(served: ServeProcess) -> None:
    # given two versions of a file
    furnish(agent(served))
    visitor, file = Visitor(served.port), served.workspace / "a.txt"
    # when the undo of the second is only looked at
    page = visitor.text("/journal/undo?path=a.txt&id=2")
    # then nothing happened
    assert "-two" in page
    assert "+one" in page
    assert file.read_text() == "two\n"
    # and when it is confirmed, it did, in the name of the dashboard
    done = visitor.post("/journal/undo", visitor.form(page, "/journal/undo"))
    assert done.status == 303
    assert file.read_text() == "one\n"
    after = visitor.text(done.headers["location"])
    assert "1 change was undone." in after
    assert "dashboard" in after


def test_an_undo_that_collides_offers_no_button(served: ServeProcess) -> None:
    client = agent(served)
    furnish(client)
    client.call("edit", {"path": "a.txt", "edits": [{"old": "two", "new": "three"}]})
    page = Visitor(served.port).text("/journal/undo?path=a.txt&id=2")
    assert "This cannot be undone" in page
    assert "a later change touches the same lines" in page
    assert "Undo now" not in page


def test_a_version_is_restored_unless_the_file_changed_after_the_preview(served: ServeProcess) -> None:
    furnish(agent(served))
    visitor, file = Visitor(served.port), served.workspace / "a.txt"
    page = visitor.text("/journal/restore?path=a.txt&id=1")
    fields = visitor.form(page, "/journal/restore")
    file.write_text("by hand\n")
    assert visitor.post("/journal/restore", fields).status == 409
    assert file.read_text() == "by hand\n"
    fresh = visitor.form(visitor.text("/journal/restore?path=a.txt&id=1"), "/journal/restore")
    assert visitor.post("/journal/restore", fresh).status == 303
    assert file.read_text() == "one\n"


def test_a_server_is_restarted_stopped_and_started_for_everyone(served: ServeProcess) -> None:
    client, visitor = agent(served), Visitor(served.port)
    csrf = visitor.form(visitor.text("/mounts/server?name=notes"), "/mounts/order")["csrf"]

    def order(action: str, name: str = "notes") -> int:
        fields = {"csrf": csrf, "action": action, "name": name}
        return visitor.post("/mounts/order", fields).status

    def rows() -> dict[str, dict[str, object]]:
        health = client.call("health", {"render": "json", "detail": "full"})["structuredContent"]
        return {row["name"]: row for row in health["mounts"]}

    client.call("notes__echo", {"text": "x"})
    before = rows()["notes"]["pid"]
    assert order("restart") == 303
    assert not client.call("notes__echo", {"text": "x"}).get("isError")
    assert rows()["notes"]["pid"] != before
    # what it means is said before it is disabled
    page = visitor.text("/mounts/disable?name=notes")
    assert "1 session can use notes, and 0 calls of it are running" in page
    assert visitor.post("/mounts/order", visitor.form(page, "/mounts/order")).status == 303
    assert client.call("notes__echo", {"text": "x"})["code"] == -31098
    assert agent(served).call("notes__echo", {"text": "x"})["code"] == -31098
    assert order("enable") == 303
    assert not client.call("notes__echo", {"text": "x"}).get("isError")
    assert not agent(served).call("notes__echo", {"text": "x"}).get("isError")
    assert order("explode") == 404
    # and nothing of it is a fault
    assert "last_fault" not in rows()["notes"]
    events = visitor.text("/events")
    for words in ("was restarted", "was disabled", "was enabled"):
        assert words in events
    assert "SIGKILL" not in events


def test_the_built_in_server_is_never_disabled(served: ServeProcess) -> None:
    client, visitor = agent(served), Visitor(served.port)
    page = visitor.text("/mounts/server?name=perdure")
    assert "cannot be disabled" in page
    assert "/mounts/disable" not in page
    fields = {**visitor.form(page, "/mounts/order"), "action": "disable"}
    assert visitor.post("/mounts/order", fields).status == 409
    assert visitor.get("/mounts/disable?name=perdure").status == 409
    assert not client.call("list_state", {}).get("isError")


@pytest.mark.thorough
def test_a_change_appears_on_the_live_stream(served: ServeProcess) -> None:
    client = agent(served)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", "/live/journal")
    answer = connection.getresponse()
    assert answer.headers["content-type"] == "text/event-stream"

    def next_parts() -> dict[str, str]:
        data = answer.readline()
        assert (data[:6], answer.readline()) == (b"data: ", b"\n")
        parts: dict[str, str] = msgspec.json.decode(data[6:])
        return parts

    first = next_parts()
    assert list(first) == ["filter", "entries"]
    assert "No changes yet" in first["entries"]
    # The filter suggests the paths, clients, sessions and kinds of change that there are: only a new one changes it.
    for content, mode, changed in (
        ("1", "create", ["filter", "entries"]),
        ("2", "overwrite", ["filter", "entries"]),
        ("3", "overwrite", ["entries"]),
    ):
        client.call("safe_write", {"path": "fresh", "content": content, "mode": mode})
        parts = next_parts()
        assert list(parts) == changed
        assert parts["entries"].count("<code>fresh</code>") == int(content)
    answer.close()
    connection.close()


def test_who_waits_for_a_key_is_seen(served: ServeProcess) -> None:
    client = agent(served, "patient")
    waiting = threading.Thread(target=client.call, args=("state_wait", {"key": "door", "timeout_s": 20}))
    waiting.start()
    visitor = Visitor(served.port)
    while "patient" not in (page := visitor.text("/state")):
        assert waiting.is_alive()
    assert "<code>door</code>" in page
    assert "state_wait" in visitor.text("/")
    agent(served).call("set_state", {"key": "door", "value": "1"})
    waiting.join()


def test_a_wrapped_server_has_no_journal_to_show(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "perdure", "worker", "--workspace", str(tmp_path)])
    process = ServeProcess(tmp_path, "--wrap", command)
    visitor = Visitor(process.port)
    assert visitor.get("/").status == 200
    assert visitor.get("/journal").status == 404
    assert process.stop() == 0


def test_a_diff_turned_round_says_what_will_happen() -> None:
    diff = "--- a@1\n+++ a@2\n@@ -1,2 +1,3 @@\n same\n-old\n+new\n+more\n"
    assert reverse_diff(diff) == "--- a@2\n+++ a@1\n@@ -1,3 +1,2 @@\n same\n-new\n-more\n+old"


def test_a_diff_turned_round_keeps_the_note_on_a_missing_line_end_with_its_line() -> None:
    note = "\\ No newline at end of file"
    diff = f"--- a@1\n+++ a@2\n@@ -1 +1 @@\n-old\n{note}\n+new\n"
    assert reverse_diff(diff).splitlines()[3:] == ["-new", "+old", note]


def test_a_changed_line_that_looks_like_the_head_of_a_file_is_a_changed_line() -> None:
    lines = [
        "--- a@1",
        "+++ a@2",
        "@@ -1,2 +1,3 @@",
        "--- a comment of SQL",
        "+++ i;",
        "+-- b",
        " same",
        "@@ -9 +9 @@",
    ]
    kinds = ["file", "file", "place", "minus", "plus", "plus", "same", "place"]
    assert list(line_kinds(lines)) == kinds


def test_refused_payloads_are_listed_and_their_contents_are_not(lived_in: ServeProcess) -> None:
    page = Visitor(lived_in.port).text("/drafts")
    assert "refused.env" in page
    assert "looks like it holds a secret" in page
    assert SECRET not in page
    assert SECRET[:12] not in page


def test_namespaces_and_held_leases_are_listed(served: ServeProcess) -> None:
    client = agent(served)
    client.call("set_state", {"key": "k", "value": "1", "namespace": "of one team"})
    client.call("lease", {"action": "acquire", "name": "deploy", "owner": "somebody"})
    client.call("lease", {"action": "acquire", "name": "gone", "owner": "late", "ttl_s": 0.05})
    visitor = Visitor(served.port)
    page = visitor.text("/state")
    assert "of one team" in page
    assert "/state?namespace=of+one+team" in page
    assert "somebody" in page
    wait_for(lambda: "late" not in visitor.text("/state"), 10)
    assert "<code>k</code>" in visitor.text("/state?namespace=of+one+team")


TALKER = """
import sys
print(f"started with {sys.argv[1:]} <img src=x>", file=sys.stderr, flush=True)
print("PASSWORD=hunter2hunter2", file=sys.stderr, flush=True)
"""


def test_the_end_of_standard_error_is_shown_of_every_server_without_its_secrets(tmp_path: Path) -> None:
    # given a server that is in no registry, says much and dies
    (tmp_path / "talker.py").write_text(TALKER)
    command = shlex.join(
        [sys.executable, str(tmp_path / "talker.py"), "--api-key", "very-secret-value", SECRET]
    )
    process = ServeProcess(tmp_path, "--mount", f"talker={command}")
    visitor = Visitor(process.port)
    agent(process)
    # then its last words are on its page, and nothing that should not be
    wait_for(lambda: "started with" in visitor.text("/mounts/server?name=talker"), 20)
    page = visitor.text("/mounts/server?name=talker")
    assert "Standard error of talker" in page
    assert "&lt;img src=x&gt;" in page
    for secret in ("very-secret-value", SECRET, SECRET[:12], "hunter2", "<img"):
        assert secret not in page
    assert "talker.py --api-key" in page
    assert "[redacted]" in page
    assert process.stop() == 0


def test_a_session_is_shown_with_its_workspace(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    process = ServeProcess(tmp_path, "--workspace", str(tmp_path / "elsewhere"))
    agent(process, "roamer")
    page = Visitor(process.port).text("/sessions")
    assert "roamer" in page
    assert "Workspace" in page
    assert process.stop() == 0
