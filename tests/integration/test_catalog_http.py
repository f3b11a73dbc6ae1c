"""A tiered catalog over real sockets: what it says is believed only as far as it goes, and nothing leaks."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog_servers import Answer, Asked, reply, scripted
from perdure.registry.entry import Entry
from perdure.registry.errors import (
    AlreadyInstalled,
    AuthRequired,
    InvalidEntry,
    NotInRegistry,
    Quarantined,
    RegistryError,
    RegistryUnavailable,
    Unsupported,
)
from perdure.registry.http.address import InvalidAddress, read_address
from perdure.registry.http.backend import HttpCatalog
from perdure.registry.http.client import HttpClient, TornReply
from perdure.registry.templates import Template

SECRET = "s3cr3t-t0ken-value"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


def spec(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "",
        "transport": "stdio",
        "command": "python",
        "args": [],
        "env": {},
        **more,
    }


def catalog(*specs: Any, tier: int = 3, **flags: Any) -> Callable[[Asked], Answer]:
    """A catalog of a tier, as others write them."""

    def answer(asked: Asked) -> Answer:
        match asked.method, asked.parts:
            case "GET", ["capabilities"] if tier == 3:
                return reply(200, {"tier": 3, "supports_install": True, "supports_uninstall": True, **flags})
            case "OPTIONS", ["mcp-servers"] if tier > 1:
                return reply(204, allow="GET, POST, DELETE, OPTIONS")
            case "GET", ["mcp-servers"]:
                return reply(200, {"servers": list(specs)})
            case "GET", ["mcp-servers", name]:
                found = [one for one in specs if isinstance(one, dict) and one.get("name") == name]
                return reply(200, found[0]) if found else reply(404, {"error": "not found"})
            case "POST", ["mcp-servers"] if tier > 1:
                return reply(201, {})
            case "DELETE", ["mcp-servers", _] if tier > 1:
                return reply(204)
        return reply(404 if asked.method == "GET" else 405, {"error": "no"})

    return answer


def at(url: str, **options: Any) -> HttpCatalog:
    return HttpCatalog(f"{url}/?agent_scope=team", **options)


# --- tiers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "writes", "handshake"), [(1, False, False), (2, True, False), (3, True, True)]
)
def test_what_a_catalog_can_do_is_negotiated(tier: int, writes: bool, handshake: bool) -> None:
    with scripted(catalog(tier=tier)) as server:
        found = at(server.url).refresh_capabilities()
    assert (found.supports_install, found.supports_uninstall) == (writes, writes)
    assert found.supports_capability_handshake is handshake


def test_a_catalog_that_only_reads_is_not_written_to() -> None:
    with scripted(catalog(tier=1)) as server:
        with pytest.raises(Unsupported):
            at(server.url).install(Entry(name="a", command=Template("python")))
        assert not [one for one in server.asked if one.method == "POST"]


@pytest.mark.parametrize("flag", ["false", "true", 1, None, [True]])
def test_a_flag_that_is_not_true_is_false(flag: object) -> None:
    with scripted(catalog(supports_install=flag)) as server:
        assert at(server.url).refresh_capabilities().supports_install is False


def test_before_anything_is_asked_nothing_is_promised_and_nothing_sent() -> None:
    with scripted(catalog()) as server:
        backend = at(server.url)
        assert not backend.capabilities.supports_install
        backend.close()
        assert server.asked == []


def test_a_catalog_that_takes_writing_back_is_asked_anew() -> None:
    with scripted(catalog(tier=3)) as server:
        backend = at(server.url)
        assert backend.refresh_capabilities().supports_install
        usual = server.answer

        def readonly(asked: Asked) -> Answer:
            if asked.parts == ["capabilities"]:
                return reply(200, {"tier": 1})
            return reply(405, {}) if asked.method == "POST" else usual(asked)

        server.answer = readonly
        with pytest.raises(Unsupported):
            backend.install(Entry(name="a", command=Template("python")))
        assert not backend.capabilities.supports_install


def test_every_request_carries_the_scope() -> None:
    with scripted(catalog(spec("a"))) as server:
        backend = at(server.url)
        backend.list_servers()
        backend.load_all()
        backend.load("a")
        backend.validate("a")
        backend.install(Entry(name="b", command=Template("python")))
        backend.uninstall("b")
        assert len(server.asked) >= 7
        assert all(one.query["agent_scope"] == "team" for one in server.asked)


# --- credentials --------------------------------------------------------------------------------------------------


def test_a_token_goes_as_bearer_and_beats_what_stands_in_the_url() -> None:
    with scripted(catalog()) as server:
        place = server.url.replace("//", "//user:pw@")
        HttpCatalog(f"{place}/", token=SECRET).list_servers()
        HttpCatalog(f"{place}/").list_servers()
    assert [one.headers["authorization"].split()[0] for one in server.asked] == ["Bearer", "Basic"]


def test_a_refused_token_stays_a_refused_token() -> None:
    with scripted(lambda asked: reply(401, {"error": f"bad {SECRET}"})) as server:
        backend = at(server.url, token=SECRET)
        for _ in range(2):
            for operation in (backend.list_servers, backend.refresh_capabilities, backend.load_all):
                with pytest.raises(AuthRequired) as caught:
                    operation()
                assert not caught.value.retryable
                assert SECRET not in repr(caught.value.to_json())


def test_a_redirect_to_another_host_does_not_get_the_token() -> None:
    with scripted(catalog(spec("a"))) as other, scripted(lambda asked: b"") as server:
        server.answer = lambda asked: reply(307, location=f"{other.url}{asked.path}?agent_scope=team")
        assert [ref.name for ref in at(server.url, token=SECRET).list_servers()] == ["a"]
    assert "authorization" in server.asked[0].headers
    assert "authorization" not in other.asked[0].headers


def test_a_redirect_within_the_host_keeps_the_token() -> None:
    with scripted(catalog(spec("a"))) as server:
        usual = server.answer
        server.answer = lambda asked: (
            reply(308, location="/elsewhere/mcp-servers")
            if asked.path == "/mcp-servers"
            else reply(200, {"servers": []})
        )
        assert at(server.url, token=SECRET).list_servers() == []
        assert usual is not server.answer
    assert [one.headers.get("authorization") for one in server.asked] == [f"Bearer {SECRET}"] * 2


def test_a_write_is_not_redirected() -> None:
    with scripted(catalog()) as other, scripted(catalog()) as server:
        usual = server.answer
        server.answer = lambda asked: (
            reply(307, location=f"{other.url}/mcp-servers") if asked.method == "POST" else usual(asked)
        )
        with pytest.raises(RegistryError):
            at(server.url).install(Entry(name="a", command=Template("python")))
    assert other.asked == []


def test_redirects_in_a_circle_end() -> None:
    with (
        scripted(lambda asked: reply(302, location=asked.path)) as server,
        pytest.raises(RegistryUnavailable),
    ):
        at(server.url).list_servers()


@pytest.mark.parametrize("token", ["a\r\nx-evil: 1", "a\nb", "a b", "ü"])
def test_a_token_that_would_end_its_header_is_not_sent(token: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        HttpCatalog("http://127.0.0.1:1/", token=token)
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@catalog.test/",
        f"http://10.0.0.1/?k={SECRET}",
        f"ftp://user:{SECRET}@127.0.0.1/",
        f"https://user:{SECRET}@host:port/",
        f"https://a\r\nx: {SECRET}/",
        f"http://127.0.0.1.evil.test/{SECRET}@",
        "//host/",
        "",
    ],
)
def test_what_is_not_encrypted_or_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        HttpCatalog(url).list_servers()
    assert SECRET not in repr(caught.value.to_json()).replace(f"/{SECRET}@", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_this_machine_may_be_reached_without_encryption(host: str) -> None:
    with pytest.raises(RegistryUnavailable):
        HttpCatalog(f"http://{host}:1/").list_servers()


def test_an_address_shows_no_credentials() -> None:
    address = read_address(f"https://user:{SECRET}@host.test/a?k={SECRET}")
    assert SECRET not in address.shown + repr(address)


# --- one bad entry ---------------------------------------------------------------------------------------------------


def test_one_bad_entry_hides_no_other() -> None:
    bad = [
        spec("../x"),
        spec(".hidden"),
        spec("no-command", command=None),
        spec("bad-env", env="K=V"),
        spec("breaks", args=["a\nb"]),
        spec("null", description=None, args=None, env=None),
        {"description": "without a name"},
        "not even an object",
        spec("good"),
        spec("good", command="other"),
        spec("far", command=None, url="https://host.test/mcp", transport="streamable-http"),
    ]
    with scripted(catalog(*bad)) as server:
        backend = at(server.url)
        refs = backend.list_servers()
        assert [one.name for one in backend.load_all()] == ["far", "good", "null"]
        assert next(one for one in backend.load_all() if one.name == "good").command == Template("python")
        with pytest.raises(Quarantined):
            backend.load("no-command")
    assert {ref.name: ref.error for ref in refs if ref.name == "../x"}["../x"]
    assert [ref.error for ref in refs if ref.name == "good"] == ["", "duplicate"]
    assert {ref.name: ref.description for ref in refs}["null"] == ""


def test_a_catalog_that_does_not_expand_is_asked_one_by_one() -> None:
    def answer(asked: Asked) -> Answer:
        if asked.parts == ["mcp-servers"]:
            return reply(200, {"servers": [{"name": "a"}, {"name": "b"}]})
        return reply(200, spec(asked.parts[1]))

    with scripted(answer) as server:
        assert [one.name for one in at(server.url).load_all()] == ["a", "b"]


def test_an_entry_that_answers_to_another_name_is_not_taken() -> None:
    with scripted(lambda asked: reply(200, spec("other"))) as server, pytest.raises(Quarantined):
        at(server.url).load("a")


def test_pages_are_followed_and_a_circle_is_noticed() -> None:
    def answer(asked: Asked) -> Answer:
        number = int(asked.query.get("cursor", "0"))
        more = {"metadata": {"nextCursor": str(number + 1)}} if number < 3 else {}
        return reply(200, {"servers": [spec(f"s{number}")], **more})

    with scripted(answer) as server:
        assert [ref.name for ref in at(server.url).list_servers()] == ["s0", "s1", "s2", "s3"]
        server.answer = lambda asked: reply(200, {"servers": [], "nextCursor": "x"})
        with pytest.raises(RegistryUnavailable, match="without an end"):
            at(server.url).list_servers()


# --- broken replies --------------------------------------------------------------------------------------------------


def endless() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n"
    for _ in range(100_000):
        yield b'{"servers":[' + b" " * 65536


def drip() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n"
    for _ in range(300):
        yield b" "
        time.sleep(0.1)


def dripping_head() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 X\r\n"
    for _ in range(300):
        yield b"a"
        time.sleep(0.1)


TORN: dict[str, Callable[[], Answer]] = {
    "not json": lambda: reply(200, b"<html>"),
    "half of it": lambda: reply(200, {"servers": []})[:-5],
    "nothing at all": lambda: b"",
    "not http": lambda: b"SSH-2.0-x\r\n\r\n",
    "too large, said before": lambda: reply(200, b"", content_length=str(1 << 40)),
    "too large, never said": endless,
    "a chunk cut off": lambda: b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{}",
    "compressed": lambda: reply(200, b"\x1f\x8b", content_encoding="gzip"),
    "the wrong thing": lambda: reply(200, ["servers"]),
    "a number": lambda: reply(200, b"7"),
    "nested without end": lambda: reply(200, b"[" * 100_000),
    "not utf-8": lambda: reply(200, b'{"servers": ["\xff"]}'),
    "a header without end": lambda: b"HTTP/1.1 200 X\r\nx: " + b"a" * 200_000,
}


@pytest.mark.parametrize("kind", TORN)
def test_a_torn_reply_is_typed(kind: str) -> None:
    with scripted(lambda asked: TORN[kind]()) as server, pytest.raises(TornReply) as caught:
        at(server.url).list_servers()
    assert caught.value.exit_code == 4
    assert caught.value.retryable


def test_no_more_is_taken_than_is_allowed() -> None:
    sent: list[int] = []

    def answer(asked: Asked) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 X\r\n\r\n"
        for _ in range(2000):
            sent.append(65536)
            yield b" " * 65536

    with scripted(answer) as server, pytest.raises(TornReply):
        HttpCatalog(server.url, client=HttpClient(max_bytes=100_000)).list_servers()
    assert sum(sent) < 2000 * 65536 / 2


@pytest.mark.parametrize("slow", [drip, dripping_head])
def test_a_server_that_sends_a_byte_at_a_time_is_given_up(slow: Callable[[], Iterator[bytes]]) -> None:
    with scripted(lambda asked: slow()) as server, pytest.raises(RegistryUnavailable, match=r"within 0\.5 s"):
        HttpCatalog(server.url, client=HttpClient(timeout_s=0.5)).list_servers()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, RegistryUnavailable), (503, RegistryUnavailable), (429, RegistryUnavailable), (403, AuthRequired)],
)
def test_what_can_pass_and_what_cannot_are_different(status: int, kind: type[RegistryError]) -> None:
    with scripted(lambda asked: reply(status, {"error": "no"})) as server, pytest.raises(kind) as caught:
        at(server.url).list_servers()
    assert caught.value.exit_code == 4
    assert caught.value.retryable is (kind is RegistryUnavailable)


def test_a_busy_server_is_waited_for_as_long_as_it_says() -> None:
    with scripted(catalog(spec("a"))) as server:
        usual = server.answer
        server.answer = lambda asked: (
            reply(503, {}, retry_after="0") if len(server.asked) == 1 else usual(asked)
        )
        assert [ref.name for ref in at(server.url).list_servers()] == ["a"]
        assert len(server.asked) == 2


def test_a_server_that_wants_an_hour_is_not_waited_for() -> None:
    with scripted(lambda asked: reply(429, {}, retry_after="3600")) as server:
        with pytest.raises(RegistryUnavailable) as caught:
            at(server.url).list_servers()
        assert len(server.asked) == 1
    assert "3600" in caught.value.hint


# --- writes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(409, AlreadyInstalled), (401, AuthRequired), (422, InvalidEntry), (500, RegistryUnavailable)],
)
def test_a_refused_write_says_why(status: int, kind: type[RegistryError]) -> None:
    with scripted(catalog()) as server:
        usual = server.answer
        server.answer = lambda asked: reply(status, {}) if asked.method == "POST" else usual(asked)
        with pytest.raises(kind):
            at(server.url).install(Entry(name="a", command=Template("python")))


def test_a_literal_value_is_refused_before_anything_is_sent() -> None:
    with scripted(catalog()) as server:
        with pytest.raises(InvalidEntry) as caught:
            at(server.url).install(Entry(name="a", command=Template("x"), env={"K": Template(SECRET)}))
        assert server.asked == []
    assert SECRET not in repr(caught.value.to_json())


def test_an_absent_server_is_uninstalled_already() -> None:
    with scripted(catalog()) as server:
        usual = server.answer
        server.answer = lambda asked: reply(404, {}) if asked.method == "DELETE" else usual(asked)
        at(server.url).uninstall("a")


# --- what is kept --------------------------------------------------------------------------------------------------------


def test_a_reply_is_asked_for_again_by_its_etag() -> None:
    def answer(asked: Asked) -> Answer:
        if asked.headers.get("if-none-match") == '"1"':
            return reply(304, etag='"1"')
        return reply(200, {"servers": [spec("a")]}, etag='"1"')

    with scripted(answer) as server:
        assert [[ref.name for ref in at(server.url).list_servers()] for _ in range(2)] == [["a"], ["a"]]
        assert [one.headers.get("if-none-match") for one in server.asked] == [None, '"1"']


def test_while_a_server_fails_its_last_answer_will_do_and_its_age_is_said() -> None:
    with scripted(catalog(spec("a"))) as server:
        at(server.url).list_servers()
        server.answer = lambda asked: reply(503, {})
        backend = at(server.url)
        assert [ref.name for ref in backend.list_servers()] == ["a"]
        assert "ago" in backend.notice
        server.answer = lambda asked: reply(401, {})
        with pytest.raises(AuthRequired):
            at(server.url).list_servers()


@pytest.mark.parametrize("torn", [reply(200, b"torn"), reply(200, {"servers": []})[:-4]])
def test_a_torn_reply_is_told_and_does_not_take_the_place_of_a_good_one(torn: bytes) -> None:
    with scripted(catalog(spec("a"))) as server:
        at(server.url).list_servers()
        server.answer = lambda asked: torn
        with pytest.raises(TornReply):
            at(server.url).list_servers()
        server.answer = lambda asked: reply(503, {})
        assert [ref.name for ref in at(server.url).list_servers()] == ["a"]


@pytest.mark.parametrize("control", ["no-store", "must-revalidate", "max-age=0, stale-if-error=0"])
def test_a_server_can_forbid_that(control: str) -> None:
    with scripted(lambda asked: reply(200, {"servers": [spec("a")]}, cache_control=control)) as server:
        at(server.url).list_servers()
        server.answer = lambda asked: reply(500, {})
        time.sleep(0.01)
        with pytest.raises(RegistryUnavailable):
            at(server.url).list_servers()


def test_what_one_token_saw_another_does_not() -> None:
    with scripted(catalog(spec("a"))) as server:
        at(server.url, token="one").list_servers()
        server.answer = lambda asked: reply(500, {})
        with pytest.raises(RegistryUnavailable):
            at(server.url, token="two").list_servers()


def test_absent_and_unreachable_are_different() -> None:
    with scripted(catalog()) as server, pytest.raises(NotInRegistry):
        at(server.url).load("a")
    with pytest.raises(RegistryUnavailable):
        at("http://127.0.0.1:1").load("a")


@pytest.mark.parametrize("status", [405, 501])
def test_a_catalog_that_cannot_change_an_entry_keeps_it(status: int) -> None:
    with scripted(catalog(spec("a"))) as server:
        usual = server.answer
        server.answer = lambda asked: reply(status, {}) if asked.method in ("PUT", "PATCH") else usual(asked)
        backend = at(server.url)
        with pytest.raises(Unsupported, match="in place"):
            backend.replace(Entry(name="a", command=Template("node")))
        with pytest.raises(Unsupported, match="in place"):
            backend.set_enabled("a", False)
        assert {one.method for one in server.asked} == {"GET", "PUT", "PATCH"}


def test_a_change_of_an_entry_that_was_removed_meanwhile_does_not_bring_it_back() -> None:
    with scripted(catalog(spec("a"))) as server:
        usual = server.answer
        server.answer = lambda asked: reply(404, {}) if asked.method == "PUT" else usual(asked)
        with pytest.raises(NotInRegistry):
            at(server.url).replace(Entry(name="a", command=Template("node")))
        assert {one.method for one in server.asked} == {"GET", "PUT"}


def test_a_switch_is_not_judged_by_an_older_reply_while_the_catalog_fails() -> None:
    with scripted(catalog(spec("a"))) as server:
        usual = server.answer
        at(server.url).load("a")  # kept for when the server fails

        def failing(asked: Asked) -> Answer:
            if asked.method == "PATCH":
                server.answer = lambda asked: reply(503, {})
                return reply(204)
            return usual(asked)

        server.answer = failing
        with pytest.raises(RegistryUnavailable):
            at(server.url).set_enabled("a", False)


# --- the deadline -----------------------------------------------------------------------------------------------------


def given_up(url: str) -> bool:
    """Whether a request ends at its deadline, in a thread that a hanging one would not hold up."""
    outcomes: list[str] = []

    def ask() -> None:
        try:
            HttpCatalog(url, client=HttpClient(timeout_s=0.3)).list_servers()
        except RegistryUnavailable as error:
            outcomes.append(error.message)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(5)
    return any("within 0.3 s" in message for message in outcomes)


def test_a_name_lookup_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(30))
    try:
        assert given_up("https://catalog.test/")
    finally:
        ended.set()


def test_a_tls_handshake_that_drips_is_given_up() -> None:
    """A record is announced and comes a byte at a time, each within the time that one read may take."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"\x16\x03\x03\x40\x00")
            while not ended.wait(0.1):
                connection.sendall(b"\x02")

    server = threading.Thread(target=drip, daemon=True)
    server.start()
    try:
        assert given_up(f"https://127.0.0.1:{listener.getsockname()[1]}/")
    finally:
        ended.set()
        server.join()
        listener.close()
