"""`perdure wrap`: the server's own face, with nothing added but endurance."""

from __future__ import annotations

import json

import pytest

from testbed import ERAS, Bed, Client, Era, Server


def opened(bed: Bed, server: Server, *, wrapped: bool, era: Era = "handshake") -> Client:
    client = bed.start(bed.wrap_command(server) if wrapped else server.argv)
    client.era = era
    return client


def list_bytes(client: Client, method: str, member: str) -> bytes:
    """The list as the bytes that arrived."""
    identity = client.begin(method)
    client.wait(identity)
    (line,) = [line for line in client.lines if b'"id":%d,' % identity in line]
    start = line.index(b'"%s":[' % member.encode())
    text = line[start + len(member) + 3 :].decode()
    return text[: json.JSONDecoder().raw_decode(text)[1]].encode()


def test_the_answer_to_initialize_is_the_servers_own(bed: Bed) -> None:
    fake = bed.fake("--name=behind", "--version=9.8.7", "--era=handshake")
    direct = opened(bed, fake, wrapped=False).initialize()
    through = opened(bed, fake, wrapped=True).initialize()
    assert through == direct
    assert through["serverInfo"] == {"name": "behind", "version": "9.8.7"}


def test_the_answer_to_discover_is_the_servers_own(bed: Bed) -> None:
    fake = bed.fake("--name=behind", "--era=modern")
    direct = opened(bed, fake, wrapped=False, era="modern").get("server/discover")
    through = opened(bed, fake, wrapped=True, era="modern").get("server/discover")
    for member in ("capabilities", "instructions", "_meta", "resultType"):
        assert through[member] == direct[member]
    assert set(direct["supportedVersions"]) <= set(through["supportedVersions"])


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ],
)
def test_a_list_is_the_same_bytes_as_without_us(bed: Bed, server: Era, method: str, member: str) -> None:
    fake = bed.fake(f"--era={server}")
    direct = opened(bed, fake, wrapped=False, era=server)
    if server == "handshake":
        direct.initialize()
    through = opened(bed, fake, wrapped=True)
    through.initialize()
    assert list_bytes(through, method, member) == list_bytes(direct, method, member)


def test_the_hosts_own_tools_are_not_there(bed: Bed) -> None:
    client = opened(bed, bed.fake(), wrapped=True)
    client.initialize()
    assert not {"health", "telemetry", "mounts", "tools"} & set(client.names())
    assert client.use("health")["error"]["code"] == -32602


def test_a_tool_that_the_list_does_not_show_reaches_the_server(bed: Bed) -> None:
    """Nobody but the server can say that it has no such tool."""
    fake = bed.fake("--era=handshake")
    client = opened(bed, fake, wrapped=True)
    client.initialize()
    error = client.use("no_such_tool", {"key": "k"})["error"]
    assert (error["code"], error["message"]) == (-32602, "Unknown tool: no_such_tool")
    assert fake.dispatches == ["no_such_tool k"]


@pytest.mark.parametrize("server", ERAS)
def test_a_killed_server_is_replaced_and_the_session_goes_on(bed: Bed, server: Era) -> None:
    fake = bed.fake(f"--era={server}")
    client = opened(bed, fake, wrapped=True)
    client.initialize()
    assert client.use("effect", {"key": "k", "crash": "after", "times": 1})["error"]["code"] == -31094
    result = client.use("read_effect", {"key": "r", "crash": "after", "times": 1})["result"]
    assert result["_meta"]["perdure/outcome"]["outcome"] == "replayed"
    assert client.use_text("echo", {"text": "on"}) == "on"
    assert fake.dispatches.count("effect k") == 1


def test_unknown_methods_and_log_levels_reach_the_server(bed: Bed) -> None:
    client = opened(bed, bed.fake("--era=handshake"), wrapped=True)
    client.initialize()
    assert client.get("x/echo", {"a": 1}) == {"a": 1}
    client.get("logging/setLevel", {"level": "alert"})
    assert client.use_data("whoami")["log_level"] == "alert"
    assert client.ask("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602


def test_a_server_that_is_slow_to_start_is_waited_for_before_initialize_is_answered(bed: Bed) -> None:
    client = opened(bed, bed.fake("--start-delay=0.4", "--name=slow-one"), wrapped=True)
    assert client.initialize()["serverInfo"]["name"] == "slow-one"


def test_the_exit_code_is_0_when_the_client_closes(bed: Bed) -> None:
    client = opened(bed, bed.fake(), wrapped=True)
    client.initialize()
    assert client.close() == 0


def test_the_command_may_be_given_without_a_dash_dash(bed: Bed) -> None:
    fake = bed.fake("--name=bare")
    command = [word for word in bed.wrap_command(fake) if word not in ("--",)]
    client = bed.start(command)
    assert client.initialize()["serverInfo"]["name"] == "bare"
