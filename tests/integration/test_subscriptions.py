"""What a client wants to hear of, in the way of its era, also from the successor of a server that was killed."""

from __future__ import annotations

from collections.abc import Callable

from perdure.testing.raw_client import Object, RequestId
from testbed import ERA_PAIRS, Bed, Client, Era

UPDATED = "notifications/resources/updated"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def subscribe(client: Client, uri: str) -> Callable[[Object], bool]:
    """Subscribe as the client's era does; what the notification that comes of it must satisfy."""
    if client.era == "handshake":
        client.get("resources/subscribe", {"uri": uri})
        return lambda params: params["uri"] == uri
    stream = client.listen({"resourceSubscriptions": [uri]})
    return lambda params: params["uri"] == uri and params["_meta"] == {SUBSCRIPTION: stream}


def heard(client: Client, method: str = UPDATED) -> list[Object]:
    return [note for note in client.notifications if note["method"] == method]


@ERA_PAIRS
def test_an_update_of_a_subscribed_resource_is_heard_and_of_another_is_not(
    bed: Bed, era: Era, server: Era
) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    ours = subscribe(client, "fake://a")
    client.use("fake__touch_resource", {"uri": "fake://b"})
    client.use("fake__touch_resource", {"uri": "fake://a"})
    client.wait_notification(UPDATED, where=ours)
    assert len(heard(client)) == 1


@ERA_PAIRS
def test_a_subscription_is_restored_to_the_successor_of_a_killed_server(
    bed: Bed, era: Era, server: Era
) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    ours = subscribe(client, "fake://a")
    killed = client.kill_mount("fake")
    found = client.use_data("fake__whoami")
    assert found["pid"] != killed
    client.use("fake__touch_resource", {"uri": "fake://a"})
    client.wait_notification(UPDATED, where=ours)
    assert len(heard(client)) == 1


@ERA_PAIRS
def test_what_is_no_longer_wanted_is_no_longer_heard(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    if era == "handshake":
        subscribe(client, "fake://a")
        client.get("resources/unsubscribe", {"uri": "fake://a"})
    else:
        stream = client.listen({"resourceSubscriptions": ["fake://a"]})
        client.cancel(stream)
    assert client.use_data("fake__touch_resource", {"uri": "fake://a"}) == {"notified": 0}
    client.kill_mount("fake")
    assert client.use_data("fake__touch_resource", {"uri": "fake://a"}) == {"notified": 0}
    assert heard(client) == []


@ERA_PAIRS
def test_a_changed_list_is_announced_once_and_is_new_by_then(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    client.names()
    for kind in ("tools", "prompts", "resources"):
        stream: RequestId | None = None
        if era == "modern":
            stream = client.listen({f"{kind}ListChanged": True})
        client.use("fake__change_catalog", {"kind": kind, "add": "fresh"})
        note = client.wait_notification(f"notifications/{kind}/list_changed")
        if stream is not None:
            assert note["params"]["_meta"] == {SUBSCRIPTION: stream}
        if kind == "resources":
            assert "fresh" in client.names("resources/list", kind, "uri")
        else:
            assert "fake__fresh" in client.names(f"{kind}/list", kind)
        assert len(heard(client, f"notifications/{kind}/list_changed")) == 1


def test_a_2026_client_without_a_stream_hears_nothing(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"), era="modern")
    client.names()
    client.use("fake__change_catalog", {"add": "fresh"})
    while "fake__fresh" not in client.names():
        pass
    assert client.notifications == []


def test_a_stream_is_acknowledged_with_what_was_asked_for_and_ends_with_the_session(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"), era="modern")
    one = client.listen({"toolsListChanged": True, "promptsListChanged": False}, id="one")
    two = client.listen({"resourceSubscriptions": ["fake://a", "fake://b"]}, id=2)
    acknowledged = {
        note["params"]["_meta"][SUBSCRIPTION]: note["params"]["notifications"]
        for note in heard(client, "notifications/subscriptions/acknowledged")
    }
    assert acknowledged == {
        one: {"toolsListChanged": True},
        two: {"resourceSubscriptions": ["fake://a", "fake://b"]},
    }
    client.close_stdin()
    assert client.wait_end() == 0
    assert client.wait(one)["result"]["resultType"] == "complete"
    assert client.wait(two)["result"]["_meta"][SUBSCRIPTION] == 2


def test_each_stream_hears_only_what_it_asked_for(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=modern"), era="modern")
    for stream, uri in (("s-a", "fake://a"), ("s-b", "fake://b")):
        client.listen({"resourceSubscriptions": [uri]}, id=stream)
    for uri in ("fake://a", "fake://b"):
        client.use("fake__touch_resource", {"uri": uri})
        client.wait_notification(UPDATED, where=lambda params, uri=uri: params["uri"] == uri)
    assert [(n["params"]["_meta"][SUBSCRIPTION], n["params"]["uri"]) for n in heard(client)] == [
        ("s-a", "fake://a"),
        ("s-b", "fake://b"),
    ]


def test_subscriptions_at_two_servers_go_to_the_server_that_has_the_resource(bed: Bed) -> None:
    servers = [
        bed.fake("--era=handshake", "--prefix-uri=one", name="one"),
        bed.fake("--era=modern", "--prefix-uri=two", name="two"),
    ]
    client = bed.run(*servers)
    for uri in ("one://a", "two://b"):
        client.get("resources/subscribe", {"uri": uri})
    assert client.use_data("one__whoami")["subscriptions"] == ["one://a"]
    (listening,) = client.use_data("two__whoami")["listens"]
    assert listening["resourceSubscriptions"] == ["two://b"]


def test_a_server_that_closes_its_stream_is_listened_to_again(bed: Bed) -> None:
    """A graceful end of a 2026 server's stream is no reason for its updates to stop."""
    client = bed.run(bed.fake("--era=modern"))
    client.get("resources/subscribe", {"uri": "fake://a"})
    assert client.use_data("fake__close_listens") == {"ended": 1}
    until_listening(client)
    client.use("fake__touch_resource", {"uri": "fake://a"})
    client.wait_notification(UPDATED)


def until_listening(client: Client) -> None:
    for _ in range(1000):
        if client.use_data("fake__whoami")["listens"]:
            return
    raise AssertionError("the host never listened again")


def test_the_log_level_is_restored_to_the_successor(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))
    client.get("logging/setLevel", {"level": "error"})
    assert client.use_data("fake__whoami")["log_level"] == "error"
    client.kill_mount("fake")
    assert client.use_data("fake__log", {"level": "warning"}) == {"sent": False}
    assert client.use_data("fake__whoami")["log_level"] == "error"
