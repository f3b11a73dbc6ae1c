"""Signing in to a remote server: OAuth against a real authorization server, and no token anywhere to be seen."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from testbed import Bed, Client

SERVER = Path(__file__).parent / "servers" / "protected.py"
TOKEN = "tok-that-nobody-sees"
SECRET = "machine-secret-that-nobody-sees"


class Protected:
    """A protected server, its authorization server, and the entry that names them."""

    def __init__(
        self, transport: str = "streamable-http", mode: str = "people", lifetime: int = 3600
    ) -> None:
        words = [sys.executable, str(SERVER), transport, mode, str(lifetime)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        auth, port = self.process.stdout.readline().split()
        self.issuer = f"http://127.0.0.1:{auth}"
        path = "mcp" if transport == "streamable-http" else "sse"
        self.url = f"http://127.0.0.1:{port}/{path}"
        self.transport = transport

    def section(self, more: str = "") -> str:
        return f"## far\ntransport: {self.transport}\nurl: {self.url}\n{more}"

    def control(self, what: str) -> None:
        httpx2.post(f"{self.issuer}/control/{what}").raise_for_status()

    def seen(self) -> dict[str, Any]:
        return dict(httpx2.get(f"{self.issuer}/control/seen").json())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def started() -> Iterator[Callable[..., Protected]]:
    running: list[Protected] = []

    def start(*words: Any) -> Protected:
        running.append(Protected(*words))
        return running[-1]

    yield start
    for one in running:
        one.stop()


class Command:
    """`perdure registry …` with a browser that opens whatever address is printed."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.said: list[str] = []

    def run(self, *words: str, opens: bool = True) -> tuple[int, str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "perdure", "registry", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.bed.environ,
            cwd=self.bed.workspace,
        )
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            found = next((word for word in line.replace('"', " ").split() if "/authorize?" in word), None)
            if found is not None and opens:
                httpx2.get(found, follow_redirects=True)
        self.said.append(said)
        return process.wait(30), said


@pytest.fixture
def command(bed: Bed) -> Command:
    return Command(bed)


def write(bed: Bed, text: str) -> None:
    bed.trusted("mcp.md", text)


def run(bed: Bed, state: str = "ready") -> Client:
    client = bed.run()
    client.names()
    client.wait_row("far", state=state, timeout=30)
    return client


def shouted(client: Client) -> str:
    answer = client.use("far__shout", {"text": "hello"}, timeout=30)
    return str(answer["result"]["content"][0]["text"])


def kept(bed: Bed) -> list[Path]:
    return list(Path(bed.environ["PERDURE_HOME"]).glob("sign-ins/*"))


def assert_no_token_in(bed: Bed, client: Client, command: Command) -> None:
    """Not in what was said, and in no file but the one that is for its owner alone."""
    for secret in (TOKEN, SECRET):
        assert all(secret.encode() not in line for line in client.lines)
        assert all(secret not in said for said in command.said)
        for root in (Path(bed.environ["PERDURE_HOME"]), bed.workspace):
            holding = [p for p in root.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]
            assert all(path.parent.name == "sign-ins" for path in holding)


@pytest.mark.thorough
@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_a_server_that_wants_a_sign_in_says_how_and_is_there_after_it(
    bed: Bed, command: Command, started: Callable[..., Protected], transport: str
) -> None:
    far = started(transport)
    write(bed, far.section())
    client = run(bed, "degraded")
    fault = client.row("far")["last_fault"]
    assert (fault["class"], fault["code"]) == ("downstream", "sign_in_required")
    assert fault["hint"] == "perdure registry login far"

    code, said = command.run("login", "far", "--json")
    assert code == 0
    asked, done = (json.loads(line) for line in said.splitlines())
    assert asked["open"].startswith(f"{far.issuer}/authorize?")
    assert "code_challenge_method=S256" in asked["open"]
    assert done == {"name": "far", "signed_in": True}

    client.wait_row("far", state="ready", timeout=30)
    assert shouted(client) == "HELLO"
    (path,) = kept(bed)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    assert_no_token_in(bed, client, command)


@pytest.mark.thorough
def test_an_old_token_is_renewed_without_anybody(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started()
    write(bed, far.section())
    command.run("login", "far")
    client = run(bed)
    far.control("expire")
    assert shouted(client) == "HELLO"
    assert far.seen()["refreshed"] == 1
    far.control("expire")
    assert shouted(client) == "HELLO"
    again = run(bed)  # another host, with the token that the first one renewed
    assert shouted(again) == "HELLO"
    assert far.seen()["refreshed"] == 2
    assert far.seen()["registered"] == 1
    assert_no_token_in(bed, client, command)


@pytest.mark.thorough
def test_a_token_that_ends_soon_is_renewed_before_it_is_refused(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started("streamable-http", "people", 5)
    write(bed, far.section())
    command.run("login", "far")
    client = run(bed)
    assert shouted(client) == "HELLO"
    assert far.seen()["refreshed"] >= 1


@pytest.mark.thorough
def test_two_hosts_renew_one_token_in_turn(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    """A refresh token is taken once: the one who comes second uses what the first one got."""
    far = started()
    write(bed, far.section())
    command.run("login", "far")
    clients = [run(bed), run(bed)]
    far.control("expire")
    for number in range(6):
        assert shouted(clients[number % 2]) == "HELLO"
    assert far.seen()["refreshed"] == 1


@pytest.mark.thorough
def test_a_sign_in_that_was_taken_back_is_asked_for_again(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started()
    write(bed, far.section())
    command.run("login", "far")
    client = run(bed)
    far.control("revoke")
    assert "error" in client.use("far__shout", {"text": "hello"}, timeout=30)
    row = client.wait_row("far", state="degraded", timeout=30)
    assert row["last_fault"]["code"] == "sign_in_required"
    answer = client.use("far__shout", {"text": "hello"}, timeout=30)
    assert answer["error"]["data"]["hint"] == "perdure registry login far"
    assert command.run("login", "far")[0] == 0
    client.wait_row("far", state="ready", timeout=30)
    assert shouted(client) == "HELLO"
    assert far.seen()["registered"] == 1  # the client that was registered is used again
    assert_no_token_in(bed, client, command)


@pytest.mark.thorough
def test_signing_out_takes_the_tokens_back_and_the_tools_away(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started()
    write(bed, far.section())
    command.run("login", "far")
    client = run(bed)
    code, said = command.run("logout", "far", "--json")
    assert (code, json.loads(said)) == (0, {"name": "far", "signed_out": True, "revoked": True})
    assert kept(bed) == []
    assert far.seen()["revoked"] == 2
    assert "error" in client.use("far__shout", {"text": "hello"}, timeout=30)
    client.wait_row("far", state="degraded", timeout=30)
    assert json.loads(command.run("logout", "far", "--json")[1])["signed_out"] is False


@pytest.mark.thorough
def test_doctor_names_the_command_that_signs_in(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started()
    write(bed, far.section())
    found = subprocess.run(
        [sys.executable, "-m", "perdure", "doctor", "--json"],
        capture_output=True,
        text=True,
        env=bed.environ,
        cwd=bed.workspace,
    )
    rows = [one for one in json.loads(found.stdout)["findings"] if "far" in one["what"]]
    assert "sign_in_required" in rows[0]["what"]
    assert rows[0]["todo"] == "perdure registry login far"
    assert found.returncode == 1


@pytest.mark.thorough
def test_a_machine_signs_in_with_the_entrys_own_credentials(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started("streamable-http", "machine")
    bed.environ["MACHINE_SECRET"] = SECRET
    oauth = "oauth: grant=client_credentials, client_id=machine-id, client_secret=$MACHINE_SECRET"
    write(bed, far.section(f"{oauth}, issuer={far.issuer}\n"))
    client = run(bed)
    assert shouted(client) == "HELLO"
    far.control("expire")
    assert shouted(client) == "HELLO"
    code, said = command.run("login", "far")
    assert code == 1
    assert "by itself" in said
    assert_no_token_in(bed, client, command)


@pytest.mark.thorough
def test_wrong_credentials_of_a_machine_are_said_without_them(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started("streamable-http", "machine")
    bed.environ["MACHINE_SECRET"] = f"{SECRET}-wrong"
    oauth = "oauth: grant=client_credentials, client_id=machine-id, client_secret=$MACHINE_SECRET"
    write(bed, far.section(f"{oauth}, issuer={far.issuer}\n"))
    client = run(bed, "degraded")
    assert "401" in client.row("far")["stderr"]
    assert_no_token_in(bed, client, command)


@pytest.mark.thorough
def test_the_secret_of_a_machine_goes_to_its_own_issuer_alone(
    bed: Bed, started: Callable[..., Protected]
) -> None:
    far, other = started("streamable-http", "machine"), started("streamable-http", "machine")
    bed.environ["MACHINE_SECRET"] = SECRET
    oauth = "oauth: grant=client_credentials, client_id=machine-id, client_secret=$MACHINE_SECRET"
    write(bed, far.section(f"{oauth}, issuer={other.issuer}\n"))
    client = bed.run()
    client.names()
    client.wait_row("far", circuit="open", timeout=60)
    assert far.seen()["registered"] == 0


@pytest.mark.thorough
def test_the_scopes_of_the_entry_are_asked_for(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started()
    write(bed, far.section("oauth: scopes=use more\n"))
    assert command.run("login", "far")[0] == 0
    assert far.seen()["scopes"] == ["use", "more"]


@pytest.mark.thorough
def test_a_refused_sign_in_keeps_nothing(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started()
    write(bed, far.section())
    far.control("deny")
    code, said = command.run("login", "far", "--json")
    assert code == 4
    assert json.loads(said.splitlines()[-1])["error"] == "auth_required"
    assert "access_denied" in said
    assert kept(bed) == []


@pytest.mark.thorough
def test_nobody_signs_in(bed: Bed, command: Command, started: Callable[..., Protected]) -> None:
    far = started()
    write(bed, far.section())
    before = time.monotonic()
    code, said = command.run("login", "far", "--wait", "2", opens=False)
    assert code == 4
    assert "in time" in said
    assert time.monotonic() - before < 60
    assert kept(bed) == []


@pytest.mark.thorough
def test_an_answer_that_was_not_asked_for_is_not_taken(
    bed: Bed, command: Command, started: Callable[..., Protected]
) -> None:
    far = started()
    write(bed, far.section())
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure", "registry", "login", "far", "--json"],
        stdout=subprocess.PIPE, text=True, env=bed.environ, cwd=bed.workspace,
    )  # fmt: skip
    assert process.stdout is not None
    url = httpx2.URL(json.loads(process.stdout.readline())["open"])
    redirect = url.params["redirect_uri"]
    assert httpx2.get(redirect, params={"code": "mine", "state": "guessed"}).status_code == 400
    assert httpx2.get(redirect.replace("/callback", "/other")).status_code == 404
    assert httpx2.get(url, follow_redirects=True).status_code == 200
    assert json.loads(process.stdout.read())["signed_in"] is True
    assert process.wait(30) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("section", "code", "said"),
    [
        ("## far\ncommand: node\n", 1, "local server"),
        ("## far\nurl: https://x.example/mcp\nheaders: Authorization=Bearer $T\n", 1, "header Authorization"),
        ("## far\nurl: http://10.0.0.1/mcp\n", 2, "not encrypted"),
        ("## far\nurl: http://127.0.0.1:1/mcp\n", 4, "cannot be reached"),
        ("## far\nurl: $NOWHERE\n", 1, "NOWHERE"),
        ("## other\ncommand: node\n", 1, "far"),
    ],
)
def test_what_cannot_be_signed_in_to_is_said(
    bed: Bed, command: Command, section: str, code: int, said: str
) -> None:
    write(bed, section)
    found = command.run("login", "far")
    assert (found[0], said in found[1]) == (code, True), found
