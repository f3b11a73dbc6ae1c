"""Who must not get in, and what must not get out."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from visitor import PAGES, Visitor, agent, furnish, handoff

from compiled_rules import put_compiled_rules
from perdure.testing.http_client import ServeProcess

TOKEN = "a-long-secret-token"
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&{{7*7}}"
SECRET = "ghp_" + "a8Kd03mZqP1xYb7Rt5Vn" + "Lw2Jc9Hs6Gf4DeXq"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """For requests that are refused and leave nothing behind."""
    process = ServeProcess(tmp_path_factory.mktemp("shared"))
    yield process
    assert process.stop() == 0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    put_compiled_rules(tmp_path / "home")
    process = ServeProcess(tmp_path)
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path_factory.mktemp("locked"), env={"PERDURE_TOKEN": TOKEN})
    furnish(agent(process, Authorization=f"Bearer {TOKEN}"))
    yield process
    assert process.stop() == 0


def sign_in(locked: ServeProcess, token: str = TOKEN) -> tuple[Visitor, int]:
    visitor = Visitor(locked.port)
    fields = visitor.form(visitor.text("/sign-in"), "/sign-in")
    return visitor, visitor.post("/sign-in", {**fields, "token": token}).status


def test_markup_in_any_field_stays_text(served: ServeProcess) -> None:
    # given markup wherever a client can put some
    client = agent(served, EVIL)
    path = "<script>alert(1)<" + "／script>\"'><img src=x onerror=alert(2)>"
    for tool, arguments in (
        ("safe_write", {"path": path, "content": EVIL + "\n", "classify": False}),
        ("safe_write", {"path": path, "content": EVIL + EVIL + "\n", "mode": "overwrite", "classify": False}),
        ("set_state", {"key": EVIL, "value": '"' + EVIL.replace('"', '\\"') + '"'}),
        ("set_state", {"key": EVIL, "value": "1", "namespace": "evil"}),
        ("set_state", {"key": "k", "value": "1", "namespace": EVIL}),
        ("lease", {"action": "acquire", "name": EVIL, "owner": EVIL}),
        ("scratch_put", {"content": EVIL, "label": EVIL, "content_type": EVIL, "notes": EVIL}),
        ("handoff_write", {"envelope": handoff(EVIL), "body": EVIL}),
    ):
        result = client.call(tool, arguments)
        assert not result.get("isError"), result
    secret = {"path": f"{path}.refused", "content": f"{EVIL}\ntoken = {SECRET}\n", "render": "json"}
    refused = client.call("safe_write", secret)
    assert refused["isError"]
    # when every page is opened, with markup in every question too
    visitor = Visitor(served.port)
    entry = urlencode({"path": path, "id": "2"})
    evil = urlencode(
        dict.fromkeys(("path", "client", "session", "change", "namespace", "prefix", "lease"), EVIL)
    )
    pages = [
        *(
            "/",
            "/sessions",
            "/mounts",
            "/timeline",
            "/timeline/change?id=1",
            "/journal",
            "/state",
            "/handoffs",
            "/drafts",
            "/events",
            "/tools",
        ),
        *(f"/journal/{page}?{entry}" for page in ("entry", "undo")),
        *(f"/file{page}?{urlencode({'path': path, 'from': '1'})}" for page in ("", "/compare")),
        f"/sessions/session?{urlencode({'id': client.session or ''})}",
        f"/journal/undo?{urlencode({'session': client.session or '', 'since': '1h'})}",
        f"/drafts/draft?{urlencode({'id': refused['structuredContent']['draft']})}",
        f"/journal/restore?{urlencode({'path': path, 'id': '1'})}",
        f"/journal?{evil}",
        f"/state?{evil}",
        f"/state?{urlencode({'lease': EVIL})}",
        f"/state/key?{urlencode({'key': EVIL})}",
        f"/handoffs?{evil}",
    ]
    seen = 0
    for page in pages:
        text = visitor.get(page).body.decode()
        seen += "&lt;img src=x" in text
        # then none of it is markup
        assert "<img" not in text, page
        assert re.findall(r"<script[^>]*>", text) == ['<script src="/static/dash.js">'], page
        live = first_event(served.port, page)
        assert "<img" not in live, page
    assert seen >= 18


def test_the_registry_shows_no_commands_and_no_markup(served: ServeProcess) -> None:
    text = (
        "# MCP servers\n## weather\ncommand: python\nargs: --token=very-secret-value\nenv: KEY=very-secret-value\n"
        f"enabled: false\ndescription: {EVIL}\n## broken\ndescription: no command\n"
    )
    (served.workspace / "mcp.md").write_text(text)
    page = Visitor(served.port).text("/registry")
    assert "weather" in page
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert ">error</span>" in page
    assert "very-secret" not in page


def first_event(port: int, page: str) -> str:
    """The first event of a page's live stream."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/live" + page)
        return connection.getresponse().readline().decode()
    finally:
        connection.close()


def test_secrets_in_files_and_state_are_masked(served: ServeProcess) -> None:
    client = agent(served)
    writes = (
        ("safe_write", {"path": "keys", "content": f"token = {SECRET}\n", "classify": False}),
        ("set_state", {"key": "k", "value": f'"{SECRET}"'}),
    )
    for tool, arguments in writes:
        assert not client.call(tool, arguments).get("isError")
    visitor = Visitor(served.port)
    for page in ("/journal/entry?path=keys&id=1", "/state/key?key=k", "/journal/undo?path=keys&id=1"):
        text = visitor.text(page)
        assert SECRET not in text, page
        assert SECRET[:12] not in text, page


def test_commands_and_environment_of_servers_are_not_shown(tmp_path: Path) -> None:
    process = ServeProcess(tmp_path, "--mount", "leaky=false --api-key very-secret-value")
    agent(process)
    visitor = Visitor(process.port)
    for page in ("/", "/mounts", "/sessions"):
        assert "very-secret-value" not in visitor.text(page)
    assert process.stop() == 0


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_seen_without_the_token(locked: ServeProcess, path: str) -> None:
    visitor = Visitor(locked.port)
    answer = visitor.get(path)
    assert (answer.status, answer.headers["location"], answer.body) == (303, "/sign-in", b"")
    assert visitor.get("/live" + path).status == 401


def test_the_token_opens_every_page_and_is_in_no_address_and_no_cookie(locked: ServeProcess) -> None:
    visitor, status = sign_in(locked)
    assert status == 303
    assert TOKEN not in visitor.cookie
    for path in PAGES:
        page = visitor.text(path)
        assert TOKEN not in page
    assert Visitor(locked.port).get("/", Authorization=f"Bearer {TOKEN}").status == 200
    assert Visitor(locked.port).get(f"/?token={TOKEN}").status == 303


def test_the_cookie_is_for_this_server_only(locked: ServeProcess) -> None:
    visitor = Visitor(locked.port)
    fields = visitor.form(visitor.text("/sign-in"), "/sign-in")
    given = visitor.post("/sign-in", {**fields, "token": TOKEN}).headers["set-cookie"]
    assert "HttpOnly" in given
    assert "SameSite=Strict" in given
    assert f"perdure_{locked.port}=" in given


def test_signing_out_forgets_the_cookie(locked: ServeProcess) -> None:
    visitor, _ = sign_in(locked)
    fields = visitor.form(visitor.text("/"), "/sign-out")
    assert "Max-Age=0" in visitor.post("/sign-out", fields).headers["set-cookie"]
    assert visitor.get("/").status == 303


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "ü", EVIL])
def test_a_wrong_token_is_refused(locked: ServeProcess, token: str) -> None:
    visitor, status = sign_in(locked, token)
    assert status == 403
    assert visitor.cookie == ""
    visitor.cookie = f"perdure_{locked.port}={TOKEN}"
    assert visitor.get("/").status == 303


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("headers", "csrf"),
    [
        ({}, ""),
        ({}, "guessed"),
        ({"Origin": "http://evil.example"}, None),
        ({"Origin": "http://127.0.0.1:1"}, None),
        ({"Origin": "null"}, None),
        ({"Origin": ""}, None),
        ({"Sec-Fetch-Site": "cross-site"}, None),
        ({"Sec-Fetch-Site": "same-site"}, None),
        ({"Host": "evil.example"}, None),
    ],
)
def test_a_change_from_elsewhere_is_refused(
    served: ServeProcess, headers: dict[str, str], csrf: str | None
) -> None:
    furnish(agent(served))
    visitor = Visitor(served.port)
    fields = visitor.form(visitor.text("/journal/undo?path=a.txt&id=2"), "/journal/undo")
    if csrf is not None:
        fields["csrf"] = csrf
    assert visitor.post("/journal/undo", fields, **headers).status in (403, 421)
    assert (served.workspace / "a.txt").read_text() == "two\n"


def test_a_change_needs_the_token_too(locked: ServeProcess) -> None:
    visitor, _ = sign_in(locked)
    fields = visitor.form(visitor.text("/journal/undo?path=a.txt&id=2"), "/journal/undo")
    assert Visitor(locked.port).post("/journal/undo", fields).headers["location"] == "/sign-in"
    assert (locked.workspace / "a.txt").read_text() == "two\n"


@pytest.mark.thorough
def test_a_page_is_never_changed_by_reading_it(served: ServeProcess) -> None:
    furnish(agent(served))
    assert Visitor(served.port).get("/mounts/order?action=disable&name=perdure").status == 404
    Visitor(served.port).get("/journal/undo?path=a.txt&id=2&csrf=x")
    assert (served.workspace / "a.txt").read_text() == "two\n"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/dash.css/../../app.py",
        "/..%2f..%2fetc/passwd",
        "/static/dash.css%00",
    ],
)
def test_no_path_leads_to_a_file_that_is_not_in_the_table(shared: ServeProcess, path: str) -> None:
    answer = Visitor(shared.port).get(path)
    assert answer.status == 404
    assert b"import" not in answer.body


def test_paths_outside_the_workspace_are_refused_by_the_tools(served: ServeProcess) -> None:
    for page in ("handoffs?path=../../etc/passwd", "journal/entry?path=/etc/passwd&id=1"):
        answer = Visitor(served.port).get("/" + page)
        assert b"root:" not in answer.body


def test_another_name_for_this_server_is_refused(served: ServeProcess) -> None:
    assert Visitor(served.port).get("/", Host="evil.example").status == 421
    assert Visitor(served.port).get("/", Origin="http://evil.example").status == 403


def test_a_form_that_is_too_large_is_refused(served: ServeProcess) -> None:
    visitor = Visitor(served.port)
    assert visitor.post("/journal/undo", {"csrf": "x" * 100_000}).status == 413
    assert visitor.get("/").status == 200
