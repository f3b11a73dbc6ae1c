"""A client of either era in front of a server of either era: everything is there, valid, and works."""

from __future__ import annotations

from testbed import ERA_PAIRS, Bed, Era

pytestmark = ERA_PAIRS

LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", ""),
    "resources/templates/list": ("resourceTemplates", ""),
}


def test_the_lists_are_the_servers_own_under_public_names(bed: Bed, era: Era, server: Era) -> None:
    fake = bed.fake(f"--era={server}")
    direct = bed.start(fake.argv)
    direct.era = server
    if server == "handshake":
        direct.initialize()
    client = bed.run(fake, era=era)
    for method, (member, named) in LISTS.items():
        own = direct.get(method)[member]
        expected = [{**item, named: f"fake__{item[named]}"} for item in own] if named else own
        listed = client.get(method)[member]
        assert [item for item in listed if "fake" in str(item)] == expected


def test_a_call_returns_text_and_structured_content(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    result = client.use("fake__echo", {"text": "hello"})["result"]
    assert result["content"] == [{"type": "text", "text": "hello"}]
    assert result["structuredContent"] == {"text": "hello"}


def test_a_resource_is_read(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    listed = client.get("resources/read", {"uri": "fake://a"})["contents"]
    by_template = client.get("resources/read", {"uri": "fake://item/7"})["contents"]
    assert listed[0]["text"] == "fake://a revision 0"
    assert by_template[0]["text"] == "fake://item/7 revision 0"


def test_a_resource_is_found_though_its_server_has_not_started_yet(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}", "--start-delay=0.3"), era=era)
    assert client.get("resources/read", {"uri": "fake://a"})["contents"][0]["text"] == "fake://a revision 0"


def test_a_missing_resource_has_the_code_of_the_clients_era(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    client.names()
    error = client.ask("resources/read", {"uri": "fake://none"})["error"]
    # A 2026 server says invalid params; what it meant for a handshake client cannot be told apart.
    assert error["code"] == (-32002 if (era, server) == ("handshake", "handshake") else -32602)
    nobodys = client.ask("resources/read", {"uri": "other://thing"})["error"]
    assert nobodys["code"] == (-32002 if era == "handshake" else -32602) or nobodys == error


def test_a_prompt_is_got_by_its_public_name(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    found = client.get("prompts/get", {"name": "fake__greet", "arguments": {"who": "bob"}})
    assert found["messages"][0]["content"]["text"] == "greet bob"


def test_an_argument_of_a_prompt_or_a_template_is_completed(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    for ref in (
        {"type": "ref/resource", "uri": "fake://item/{id}"},
        {"type": "ref/prompt", "name": "fake__greet"},
    ):
        found = client.get("completion/complete", {"ref": ref, "argument": {"name": "who", "value": "a"}})
        assert found["completion"]["values"] == ["alice"]


def test_progress_arrives_under_the_clients_own_token(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    for token in (0, "0", "t-1"):
        client.notifications.clear()
        client.use("fake__progress", {"n": 3}, _meta={"progressToken": token})
        heard = [note["params"] for note in client.notifications]
        assert [params["progress"] for params in heard] == [1, 2, 3]
        assert all(_same(params["progressToken"], token) for params in heard)


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def test_a_cancelled_call_is_cancelled_in_the_server_and_never_answered(
    bed: Bed, era: Era, server: Era
) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake, era=era)
    waiting = client.begin_use("fake__slow", {"ms": 60_000, "key": "given-up"})
    client.use("fake__echo", {"text": "the slow one has been read by now"})

    client.cancel(waiting)

    # The fake notes it on another thread: an echo or two later it is there.
    while "cancelled given-up" not in fake.effects:
        client.use("fake__echo")
    assert waiting not in client.answers
    assert client.health()["pending"] == 0


def test_a_log_message_arrives_at_the_level_that_was_asked_for(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    if era == "handshake":
        client.get("logging/setLevel", {"level": "warning"})
    client.log_level = "warning"
    client.use("fake__log", {"level": "info", "data": "quiet"})
    client.use("fake__log", {"level": "error", "data": {"loud": 1}})
    heard = [note["params"] for note in client.notifications if note["method"] == "notifications/message"]
    assert [(params["level"], params["data"]) for params in heard] == [("error", {"loud": 1})]


def test_an_unknown_tool_is_refused_with_the_nearest_name(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    client.names()
    error = client.use("fak__echo")["error"]
    assert error["code"] == -32602
    assert "fake__echo" in error["message"]
    assert client.use("fake__no_such_tool")["error"]["code"] == -32602


def test_two_servers_of_both_eras_stand_side_by_side(bed: Bed, era: Era, server: Era) -> None:
    other: Era = "modern" if server == "handshake" else "handshake"
    one = bed.fake(f"--era={server}", "--prefix-uri=one", name="one")
    two = bed.fake(f"--era={other}", "--prefix-uri=two", name="two")
    client = bed.run(one, two, era=era)
    names = client.names()
    assert [name for name in names if name.endswith("__echo")] == ["one__echo", "two__echo"]
    eras = {name: client.use_data(f"{name}__whoami")["era"] for name in ("one", "two")}
    assert eras == {"one": server, "two": other}
    for name in ("one", "two"):
        assert client.get("resources/read", {"uri": f"{name}://a"})["contents"][0]["text"].startswith(name)
    assert client.names("prompts/list", "prompts")[-2:] == ["one__greet", "two__greet"]
