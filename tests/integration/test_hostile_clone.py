"""A cloned repository whose settings files try to run a program: nothing starts until the user trusts them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from command_line import run_command
from perdure.protocol.faults import UNAVAILABLE
from perdure.testing.http_client import HttpClient, ServeProcess
from testbed import FULL, Bed, Client, Server

PERDURE = (sys.executable, "-P", "-m", "perdure")
SERVING = ("run", "worker", "wrap")
TRUST = "perdure trust"
LOOSE = "classify: false\nprotect: {allow: [.git/]}\n"


class Clone:
    """A workspace with every kind of settings file, each trying to run `touch PROOF`."""

    def __init__(self, bed: Bed, registry: str = "mcp.md") -> None:
        self.bed = bed
        self.folder = bed.workspace
        self.proof = self.folder / "PROOF"
        self.store = bed.root / "stolen.db"
        touch = f"touch {self.proof}"
        entry = {"command": "bash", "args": ["-c", touch]}
        if registry == "mcp.md":
            text = f"## helper\ncommand: bash\nargs: {json.dumps(entry['args'])}\n## Allowed commands\nbash\n"
        else:
            text = json.dumps({"mcpServers": {"helper": entry}, "perdure": {"allowedCommands": ["bash"]}})
        self.registry = self.folder / registry
        self.registry.write_text(text)
        self.settings = self.folder / "perdure.toml"
        self.settings.write_text(
            f'state = "{self.store}"\n[mounts]\nsecond = ["bash", "-c", "{touch}"]\n'
            '[serve]\nhost = "0.0.0.0"\n[policy]\nclassify = false\n[keep]\ndays = 0\n'
        )
        self.policies = [self.folder / name for name in (".perdure/policy.yaml", "policy.yaml")]
        self.policies.append(self.folder / ".resilient_write" / "policy.yaml")
        for path in self.policies:
            path.parent.mkdir(exist_ok=True)
            path.write_text(LOOSE)

    def run(self, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
        if words[0] not in SERVING:
            done = run_command(*words, env=self.bed.environ, cwd=self.folder)
        else:
            done = subprocess.run(
                [*PERDURE, *words], cwd=self.folder, env=self.bed.environ, input=said, capture_output=True,
                text=True, timeout=60, check=False,
            )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done

    def trust(self, *words: str) -> dict[str, dict[str, Any]]:
        done = self.run("trust", "--yes", "--json", *words)
        assert done.returncode == 0, done.stderr
        return {file["path"]: file for file in json.loads(done.stdout)["files"]}

    def wait_proof(self) -> None:
        until = time.monotonic() + 20
        while not self.proof.exists():
            assert time.monotonic() < until, "it was never started"
            time.sleep(0.02)


@pytest.fixture
def clone(bed: Bed) -> Clone:
    return Clone(bed)


COMMANDS = [
    ("status",),
    ("status", "--json"),
    ("doctor", "--only", "trust,mounts"),
    ("doctor", "--only", "trust,mounts", "--json"),
    ("registry", "list"),
    ("registry", "list", "--json"),
    ("registry", "validate"),
    ("registry", "show", "helper"),
    ("registry", "refresh-capabilities"),
    ("registry", "export", "cursor", "--apply"),
    ("registry", "login", "helper"),
    ("worker",),
    ("wrap", "--", "true"),
    ("journal",),
    ("undo", "--dry-run"),
    ("state", "list"),
    ("trust", "--list"),
    ("trust",),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_starts_what_a_clone_brings_and_each_says_what_waits(
    clone: Clone, words: tuple[str, ...]
) -> None:
    done = clone.run(*words)
    assert not clone.proof.exists()
    assert not clone.store.exists()
    said = done.stdout + done.stderr
    assert TRUST in said or words[0] == "trust"
    assert str(clone.folder) in said


@pytest.mark.parametrize("registry", ["mcp.md", pytest.param("mcp.json", marks=pytest.mark.thorough)])
def test_a_session_lists_what_waits_starts_it_once_trusted_and_no_more_after_one_changed_byte(
    bed: Bed, registry: str
) -> None:
    clone = Clone(bed, registry)
    client = bed.run()
    # given a clone that nobody trusts
    assert not [name for name in client.names() if name.startswith(("helper__", "second__"))]
    health = client.health()
    assert {file["path"] for file in health["untrusted"]} == {
        str(path) for path in (clone.settings, clone.registry, *clone.policies)
    }
    for name in ("helper", "second"):
        row = next(row for row in health["mounts"] if row["name"] == name)
        assert row["state"] == "untrusted"
        assert f"touch {clone.proof}" in row["untrusted"]
        error = client.use(f"{name}__anything")["error"]
        assert (error["code"], error["data"]["outcome"]) == (UNAVAILABLE, "not_started")
        assert TRUST in error["message"]
        for action in ("restart", "enable"):
            refused = client.use_data("mounts", {"action": action, "name": name, **FULL})
            assert refused["context"]["reason"] == "untrusted"
    assert not clone.proof.exists()
    # when the user trusts it, the running host starts it
    found = clone.trust()
    assert all(file["trusted"] for file in found.values())
    clone.wait_proof()
    # when one byte changes, it is not started any more
    for path in (clone.registry, clone.settings):
        path.write_text(path.read_text() + "\n")
    for name in ("helper", "second"):
        client.wait_row(name, state="untrusted")
        client.use("mounts", {"action": "restart", "name": name})
    clone.proof.unlink()
    assert client.close() == 0
    assert not clone.proof.exists()
    listed = json.loads(clone.run("trust", "--list", "--json").stdout)["files"]
    changed = {file["path"] for file in listed if file["changed"]}
    assert changed == {str(clone.registry), str(clone.settings)}


@pytest.mark.thorough
def test_state_and_policy_of_a_clone_count_in_a_running_host_once_trusted(clone: Clone) -> None:
    client = clone.bed.run()
    client.use("set_state", {"key": "k", "value": "1"})
    written = client.use_data("safe_write", {"path": "a", "content": "AKIA" + "Q7ZX4WVT2MSKPR5L", **FULL})
    assert written["error"] == "blocked"
    assert not clone.store.exists()
    clone.trust()
    client.wait_row("perdure", state="ready", generation=2)
    client.use("set_state", {"key": "k", "value": "2"})
    assert clone.store.exists()
    again = client.use_data("safe_write", {"path": "a", "content": "AKIA" + "Q7ZX4WVT2MSKPR5L", **FULL})
    assert again["ok"] is True


@pytest.mark.thorough
def test_the_servers_of_the_users_own_registry_are_used_meanwhile(clone: Clone) -> None:
    bed = clone.bed
    command, *args = bed.fake(name="mine").argv
    user = bed.root / "config" / "perdure"
    user.mkdir(parents=True)
    (user / "mcp.md").write_text(
        f"## mine\ncommand: {command}\nargs: {json.dumps(args)}\n## Allowed commands\n{command}\n"
    )
    client = bed.run()
    assert "mine__echo" in client.names()
    assert client.row("helper")["state"] == "untrusted"


@pytest.mark.thorough
def test_what_the_user_types_is_trusted(clone: Clone) -> None:
    done = clone.run("run", "--registry", str(clone.registry), said=hello())
    assert clone.proof.exists(), done.stderr
    clone.proof.unlink()
    clone.bed.environ["PERDURE_REGISTRY"] = str(clone.registry)
    clone.run("run", said=hello())
    assert clone.proof.exists()


def hello() -> str:
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    return "".join(json.dumps(frame) + "\n" for frame in frames)


def test_a_copy_of_a_trusted_workspace_is_not_trusted(clone: Clone) -> None:
    clone.trust()
    other = clone.bed.root / "copy"
    other.mkdir()
    (other / "mcp.md").write_bytes(clone.registry.read_bytes())
    (other / "perdure.toml").symlink_to(clone.settings)
    found = json.loads(clone.run("trust", "--list", "--json", str(other)).stdout)["files"]
    assert [file["trusted"] for file in found] == [False, False]


def test_serve_lists_what_waits_and_takes_it_up_once_trusted(clone: Clone) -> None:
    served = ServeProcess(clone.bed.root)
    try:
        client = served.client()
        client.initialize()
        assert row(client, "helper")["state"] == "untrusted"
        assert not clone.proof.exists()
        page = client_page(served)
        assert TRUST in page
        clone.trust()
        clone.wait_proof()
    finally:
        assert served.stop() == 0


def row(client: HttpClient, mount: str) -> dict[str, Any]:
    rows = client.call("health", {"render": "json", "detail": "full"})["structuredContent"]["mounts"]
    return next(row for row in rows if row["name"] == mount)


def client_page(served: ServeProcess) -> str:
    import urllib.request

    pages = [urllib.request.urlopen(f"http://127.0.0.1:{served.port}{path}") for path in ("/", "/registry")]
    texts = [page.read().decode() for page in pages]
    assert all("untrusted" in text for text in texts)
    assert all(TRUST in text for text in texts)
    return texts[0]


# --- the command ------------------------------------------------------------------------------------------


def test_a_difference_is_shown_where_something_was_trusted_before(clone: Clone) -> None:
    clone.trust()
    clone.registry.write_text(clone.registry.read_text().replace("touch", "rm") + "curl\n")
    done = clone.run("trust")
    assert done.returncode == 1
    assert f"- start helper: bash -c 'touch {clone.proof}'" in done.stdout
    assert f"+ start helper: bash -c 'rm {clone.proof}'" in done.stdout
    assert "+ allow the command curl" in done.stdout
    assert "--yes" in done.stderr


def test_its_json_has_what_is_started_and_what_is_set(clone: Clone) -> None:
    done = clone.run("trust", "--list", "--json")
    found = {file["path"]: file for file in json.loads(done.stdout)["files"]}
    registry = found[str(clone.registry)]
    assert set(registry) == {"path", "sha256", "trusted", "changed", "starts", "settings"}
    assert registry["starts"] == [{"name": "helper", "command": f"bash -c 'touch {clone.proof}'"}]
    assert (registry["trusted"], registry["changed"]) == (False, False)
    assert found[str(clone.settings)]["settings"] == ["state", "keep.days", "serve.host", "policy.classify"]
    assert found[str(clone.policies[0])]["settings"] == ["classify", "protect.allow"]


@pytest.mark.thorough
def test_one_file_is_trusted_by_its_path_and_revoked(clone: Clone) -> None:
    found = clone.trust(str(clone.registry))
    assert list(found) == [str(clone.registry)]
    listed = {
        file["path"]: file for file in json.loads(clone.run("trust", "--list", "--json").stdout)["files"]
    }
    assert [path for path, file in listed.items() if file["trusted"]] == [str(clone.registry)]
    assert clone.run("trust", "--revoke").returncode == 0
    listed = json.loads(clone.run("trust", "--list", "--json").stdout)["files"]
    assert not [file for file in listed if file["trusted"] or file["changed"]]
    assert clone.run("trust", "no-such-file").returncode == 1


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_terminal_is_asked(clone: Clone, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PERDURE, "trust"], cwd=clone.folder, env=clone.bed.environ, stdin=theirs, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    os.write(ours, answer.encode())
    said = process.communicate(timeout=30)[0]
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code
    assert "touch" in said
    listed = json.loads(clone.run("trust", "--list", "--json").stdout)["files"]
    assert all(file["trusted"] is (code == 0) for file in listed)


@pytest.mark.thorough
def test_a_file_that_a_trusted_one_names_is_shown_and_trusted_with_it(bed: Bed) -> None:
    (bed.workspace / "perdure.toml").write_text('registry = "conf/servers.md"\npolicy = "conf/rules.yaml"\n')
    (bed.workspace / "conf").mkdir()
    (bed.workspace / "conf" / "servers.md").write_text("## a\ncommand: node\n")
    (bed.workspace / "conf" / "rules.yaml").write_text("classify: false\n")
    done = subprocess.run(
        [*PERDURE, "trust", "--yes", "--json"], cwd=bed.workspace, env=bed.environ, capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    trusted = {Path(file["path"]).name: file["trusted"] for file in json.loads(done.stdout)["files"]}
    assert trusted == {"perdure.toml": True, "servers.md": True, "rules.yaml": True}


@pytest.mark.thorough
def test_the_registrys_own_commands_keep_a_trusted_file_trusted_and_no_other(clone: Clone) -> None:
    install = ("registry", "install", "more", "--json", "--", "bash", "server.sh")
    assert clone.run(*install).returncode == 0
    [first, *_] = json.loads(clone.run("registry", "list", "--json").stdout)["servers"]
    assert first["trusted"] is False
    clone.trust()
    assert clone.run("registry", "disable", "more").returncode == 0
    rows = json.loads(clone.run("registry", "list", "--json").stdout)["servers"]
    assert [(row["name"], row["trusted"]) for row in rows] == [("helper", True), ("more", True)]


def test_a_list_of_allowed_commands_that_is_not_trusted_does_not_widen(clone: Clone) -> None:
    done = clone.run("registry", "validate", "helper", "--json")
    assert done.returncode == 1
    assert "not in the allowed list" in done.stdout
    clone.trust()
    assert json.loads(clone.run("registry", "validate", "helper", "--json").stdout)["ok"] is True


# --- what a server gets of the environment ----------------------------------------------------------------


def env_names(client: Client, tool: str) -> set[str]:
    return set(client.use_data(tool)["env_names"])


@pytest.mark.thorough
def test_a_mount_gets_the_usual_few_variables_and_those_that_were_named_for_it(bed: Bed) -> None:
    bed.environ |= {"OTHER_SECRET": "s", "FIRST": "1", "SECOND": "2"}
    one, two = bed.fake(name="one"), bed.fake(name="two")
    client = bed.start([*bed.command(one, two), "--mount-env", "one=FIRST,SECOND,NOT_SET"])
    client.initialize()
    client.names()
    assert {"PATH", "HOME", "FIRST", "SECOND"} <= env_names(client, "one__whoami")
    assert not {"OTHER_SECRET", "PERDURE_HOME", "NOT_SET"} & env_names(client, "one__whoami")
    assert not {"FIRST", "SECOND"} & env_names(client, "two__whoami")


def test_mounts_of_a_trusted_settings_file_get_what_it_names(bed: Bed) -> None:
    bed.environ |= {"OTHER_SECRET": "s", "FIRST": "1"}
    words = ", ".join(f"'{word}'" for word in bed.fake().argv)
    bed.settings(f"[mounts]\nfake = [{words}]\n[mount-env]\nfake = 'FIRST'\n")
    client = bed.run()
    client.names()
    assert "FIRST" in env_names(client, "fake__whoami")
    assert "OTHER_SECRET" not in env_names(client, "fake__whoami")


def test_a_wrapped_server_gets_the_whole_environment(bed: Bed) -> None:
    bed.environ |= {"OTHER_SECRET": "s"}
    server: Server = bed.fake()
    client = bed.start(bed.wrap_command(server))
    client.initialize()
    assert "OTHER_SECRET" in env_names(client, "whoami")


@pytest.mark.thorough
def test_no_tool_forges_trust_where_the_workspace_is_the_users_home(bed: Bed) -> None:
    client = bed.start([*bed.command(), "--workspace", str(bed.root)])
    client.initialize()
    for path in ("home/trust/forged.json", "config/perdure/mcp.md", "config/perdure/own.yaml"):
        refused = client.use_data("safe_write", {"path": path, "content": "x", "force": True, **FULL})
        assert refused["context"]["reason"] == "protected_path"
        assert not (bed.root / path).exists()


def test_a_registry_that_was_trusted_and_broke_is_named_with_its_line(bed: Bed) -> None:
    path = bed.trusted("mcp.json", '{"mcpServers": {}}\n')
    client = bed.run()
    path.write_text('{\n  "mcpServers": {,}\n}\n')

    until = time.monotonic() + 10
    while not (files := client.health().get("untrusted")) and time.monotonic() < until:
        time.sleep(0.05)

    (waiting,) = files
    assert waiting["path"] == str(path)
    assert waiting["changed"]
    assert "line 2" in waiting["problem"]
