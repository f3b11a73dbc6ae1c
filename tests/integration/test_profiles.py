"""Which tools a session lists: profiles, groups that an agent enables, and what outlives a restart."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import perdure, told

from perdure.protocol.tool_groups import GROUPS
from perdure.testing.http_client import HttpClient, ServeProcess
from perdure.testing.raw_client import RawClient
from testbed import ERAS, Bed, Client, Era

CORE = set(GROUPS[0].tools)
CHUNKS = set(next(group.tools for group in GROUPS if group.name == "chunks"))
CHANGED = "notifications/tools/list_changed"
JSON = {"render": "json"}


def start(bed: Bed, *options: str, era: Era = "handshake") -> Client:
    client = bed.start([*bed.command(), *options])
    client.era = era
    if era == "handshake":
        client.initialize()
    return client


def choose(action: str, group: str) -> dict[str, str]:
    return {"action": action, "group": group, **JSON}


def groups(client: Client) -> dict[str, bool]:
    return {group["name"]: group["enabled"] for group in client.use_data("tools", JSON)["groups"]}


# --- one session on stdio ----------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("era", ERAS)
def test_a_group_is_enabled_in_a_core_session_and_disabled_again(bed: Bed, era: Era) -> None:
    client = start(bed, "--profile", "core", era=era)
    if era == "modern":
        client.listen({"toolsListChanged": True})
    assert set(client.names()) == CORE
    assert "chunks | false | " in client.use_text("tools")
    enabled = client.use_data("tools", choose("enable", "chunks"))["groups"]
    assert [(group["name"], group["enabled"], set(group["tools"])) for group in enabled] == [
        ("chunks", True, CHUNKS)
    ]
    client.wait_notification(CHANGED)
    assert set(client.names()) == CORE | CHUNKS
    client.use_data("tools", choose("enable", "chunks"))  # nothing changes, so nobody is told
    client.use_data("tools", choose("disable", "chunks"))
    client.wait_notification(CHANGED, count=2)
    assert set(client.names()) == CORE
    assert len([note for note in client.notifications if note["method"] == CHANGED]) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("era", ERAS)
def test_the_prompts_reach_a_client_of_either_era(bed: Bed, era: Era) -> None:
    client = start(bed, "--profile", "core", era=era)
    client.names()  # waits for the worker
    assert client.names("prompts/list", "prompts") == ["undo", "handoff", "review-changes"]
    result = client.get("prompts/get", {"name": "undo", "arguments": {"what": "src/a.py"}})
    assert "src/a.py" in result["messages"][0]["content"]["text"]


def test_a_tool_that_is_not_listed_works_when_it_is_called(bed: Bed) -> None:
    client = start(bed, "--profile", "core")
    lease = client.use_data("lease", {"action": "acquire", "name": "build", **JSON})
    assert lease["status"] == "ok"


@pytest.mark.thorough
def test_the_instructions_name_only_what_is_listed(bed: Bed) -> None:
    for _ in range(2):  # before the worker's first catalog, and with the one that was kept
        client = bed.start([*bed.command(), "--profile", "core"])
        text = client.initialize()["instructions"]
        assert "safe_write" in text
        assert "scratch_put" not in text
        assert "scratch (" in text
        assert str(bed.workspace) in text
        client.names()
        client.close()


@pytest.mark.thorough
def test_what_was_enabled_outlives_the_worker_and_the_host(bed: Bed) -> None:
    client = start(bed, "--profile", "core")
    client.use("tools", choose("enable", "scratch"))
    client.kill_mount("perdure")
    assert groups(client)["scratch"]
    os.kill(client.pid, signal.SIGUSR2)  # the host replaces itself
    client.wait_row("perdure", state="ready")
    assert "scratch_put" in client.names()
    assert groups(client) == {group.name: group.name in ("core", "scratch") for group in GROUPS}


def test_a_group_that_cannot_be_meant_is_refused_with_the_nearest(bed: Bed) -> None:
    client = start(bed)
    refused = client.use("tools", choose("enable", "chunk"))["result"]
    assert refused["isError"]
    context = refused["structuredContent"]["context"]
    assert "tools action=enable group=chunks" in str(context)
    assert "core, journal, state" in context["message"]
    assert client.use("tools", choose("disable", "core"))["result"]["isError"]
    assert client.use("tools", choose("enable", ""))["result"]["isError"]
    assert client.names()[-1] == "once"


@pytest.mark.thorough
def test_an_error_names_the_group_that_helps_while_it_is_not_listed(bed: Bed) -> None:
    client = start(bed, "--profile", "core")
    secret = {"path": "a.env", "content": "TOKEN=ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8\n"}

    def enabled_by(tool: str, **arguments: object) -> object:
        result = client.use(tool, {**arguments, "detail": "full", **JSON})["result"]["structuredContent"]
        return result.get("context", result).get("enable")

    assert enabled_by("safe_write", **secret) == "tools action=enable group=scratch"
    client.use("set_state", {"key": "k", "value": "1"})
    conflict = {"key": "k", "value": "2", "expected_version": 7}
    assert "tools action=enable group=coordination" in client.use_text("set_state", conflict)
    assert enabled_by("set_state", **conflict) == "tools action=enable group=coordination"
    for group in ("scratch", "coordination"):
        client.use("tools", choose("enable", group))
    assert enabled_by("safe_write", **secret) is None
    assert enabled_by("set_state", **conflict) is None


@pytest.mark.thorough
def test_a_mounted_server_is_listed_in_every_profile(bed: Bed) -> None:
    client = bed.start([*bed.command(bed.fake()), "--profile", "core"])
    client.initialize()
    client.wait_row("perdure", state="ready")
    assert {"fake__echo", "read"} <= set(client.names())


# --- settings ----------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_profile_is_a_setting_and_an_option_overrides_it(bed: Bed) -> None:
    (bed.workspace / "perdure.toml").write_text('profile = "core"\n')  # it only hides, so it needs no trust
    assert set(start(bed).names()) == CORE
    standard = set(start(bed, "--profile", "standard").names())
    assert standard > CORE
    assert "lease" in standard
    assert not standard & CHUNKS


def test_only_the_named_tools_are_served_and_the_instructions_know(bed: Bed) -> None:
    client = bed.start([*bed.command(), "--tools", "read,rw.safe_write"])
    text = client.initialize()["instructions"]
    assert "undo" not in text
    assert set(client.names()) == {"health", "telemetry", "mounts", "tools", "read", "safe_write"}
    assert client.use("undo")["error"]["code"] == -32602
    assert set(groups(client)) == {"core", "admin"}


def test_the_state_surface_alone_has_no_groups_for_files(bed: Bed) -> None:
    client = bed.start([*bed.command(), "--surfaces", "state"])
    text = client.initialize()["instructions"]
    assert "get_state" in text
    assert "safe_write" not in text
    assert "chunks" not in groups(client)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("run", "--tools", "read,safe_wirte"), "no tool safe_wirte; did you mean safe_write?"),
        (("serve", "--tools", "frobnicate"), "no tool frobnicate"),
        (("worker", "--tools", "lese"), "did you mean lease?"),
        (("run", "--profile", "ful"), "did you mean full?"),
    ],
)
def test_a_name_that_cannot_be_meant_ends_the_start(bed: Bed, words: tuple[str, ...], named: str) -> None:
    done = perdure(bed, *words)
    assert done.returncode == 2
    assert named in done.stderr


def test_a_variable_that_names_no_profile_ends_the_start(bed: Bed) -> None:
    done = perdure(bed, "run", PERDURE_PROFILE="tiny")
    assert done.returncode == 2
    assert "core, standard, full" in done.stderr


def test_a_worker_without_a_host_lists_its_profile(bed: Bed) -> None:
    worker = bed.start([sys.executable, "-P", "-m", "perdure", "worker", "--profile", "core"])
    assert "chunk_append" not in worker.initialize()["instructions"]
    assert set(worker.names()) == CORE - {"health", "tools"}
    assert worker.use_data("list_state", JSON)["status"] == "ok"


# --- the command -------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_command_prints_what_a_profile_lists(bed: Bed) -> None:
    known = told(bed, "tools", "--profile", "core", "--json")
    assert known["profile"] == "core"
    assert [group["name"] for group in known["groups"] if group["enabled"]] == ["core"]
    assert {tool["name"] for tool in known["tools"]} == {tool for group in GROUPS for tool in group.tools}
    client = start(bed, "--profile", "core")
    assert len(json.dumps(client.get("tools/list"), separators=(",", ":"))) == known["bytes"]
    text = perdure(bed, "tools").stdout
    assert text.startswith("Profile full lists 47 tools")
    assert "chunks (listed): files too large for one call" in text


# --- many sessions in one process --------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path, "--profile", "core")
    yield process
    assert process.stop() == 0


def opened(served: ServeProcess) -> HttpClient:
    client = served.client()
    client.initialize()
    return client


def listed(client: HttpClient) -> set[str]:
    return {tool["name"] for tool in client.request("tools/list").last["result"]["tools"]}


@pytest.mark.thorough
def test_enabling_in_one_session_does_not_change_another(served: ServeProcess) -> None:
    one, two = opened(served), opened(served)
    assert listed(one) == listed(two) == CORE
    streams = [client.begin("GET") for client in (one, two)]
    for stream in streams:
        next(stream)
    one.call("tools", choose("enable", "chunks"))
    assert json.loads(next(streams[0])["data"])["method"] == CHANGED
    assert listed(one) == CORE | CHUNKS
    assert listed(two) == CORE
    two.call("tools", choose("enable", "scratch"))
    heard = json.loads(next(streams[1])["data"])["method"]
    assert heard == CHANGED  # its own change is the first that it hears of
    served.restart()
    assert listed(one) == CORE | CHUNKS
    assert "scratch_put" in listed(two)
    for stream in streams:
        stream.leave()


@pytest.mark.thorough
def test_a_2026_client_keeps_what_it_enabled_from_request_to_request(served: ServeProcess) -> None:
    one, two = served.client(), served.client()
    two.name = "other"

    def modern(client: HttpClient) -> set[str]:
        return {tool["name"] for tool in client.modern("tools/list").last["result"]["tools"]}

    assert modern(one) == CORE
    one.modern("tools/call", {"name": "tools", "arguments": choose("enable", "chunks")})
    assert modern(one) == CORE | CHUNKS
    assert modern(two) == CORE


@pytest.mark.thorough
def test_an_attached_client_has_its_own_profile(served: ServeProcess) -> None:
    env = {**os.environ, "PERDURE_HOME": str(served.root / "home")}
    command = [sys.executable, "-P", "-m", "perdure", "attach"]

    def names(client: RawClient) -> set[str]:
        return {tool["name"] for tool in client.request("tools/list")["result"]["tools"]}

    with (
        RawClient(command, env=env) as plain,
        RawClient([*command, "--profile", "standard"], env=env) as other,
    ):
        opening: list[Any] = [client.initialize() for client in (plain, other)]
        assert "lease" not in opening[0]["instructions"]
        assert "lease" in opening[1]["instructions"]
        assert names(plain) == CORE
        assert "lease" in names(other)
        plain.call("tools", choose("enable", "chunks"))
        plain.wait_notification(CHANGED)
        assert names(plain) == CORE | CHUNKS
        assert not names(other) & CHUNKS
        served.restart()
        assert names(plain) == CORE | CHUNKS
        assert "lease" in names(other)
        assert not names(other) & CHUNKS
