"""The official registry over real sockets: copied once, kept up to date, searched offline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catalog_servers import Asked, official, record, reply, scripted
from perdure.registry.backend import open_backend
from perdure.registry.catalog import mirror
from perdure.registry.catalog.catalogs import OfficialCatalog, TieredCatalog, open_catalog
from perdure.registry.catalog.mirror import CatalogStore, search
from perdure.registry.catalog.official_api import OfficialApi
from perdure.registry.catalog.records import Record
from perdure.registry.errors import AuthRequired, NotInCatalog, RegistryUnavailable
from perdure.registry.http.address import read_address
from perdure.registry.http.client import HttpClient, TornReply
from perdure.registry.server.app import CatalogApp
from perdure.registry.server.messages import Request


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


def many(count: int, **more: Any) -> list[dict[str, Any]]:
    return [record(f"io.test.n{number}/server-{number}", **more) for number in range(count)]


def names(url: str, words: str, limit: int = 20) -> list[str]:
    return [one.name for one in open_catalog(url, {}).search(words, limit).servers]


# --- copying ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["v0.1", "v0"])
def test_a_catalog_is_copied_page_by_page_whatever_its_prefix(prefix: str) -> None:
    with scripted(official(many(250), prefix)) as server:
        assert names(server.url, "server-249") == ["io.test.n249/server-249"]
        pages = [
            one for one in server.asked if one.path == f"/{prefix}/servers" and one.query["limit"] == "100"
        ]
        assert [one.query.get("cursor") for one in pages] == [None, "100", "200"]


def test_a_large_catalog_is_only_asked_for_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "FRESH_S", 0)
    records = [*many(400, updated_at="2025-01-01T00:00:00Z"), *many(1)]
    with scripted(official(records)) as server:
        names(server.url, "server")
        server.asked.clear()
        records.append(record("io.test.new/fresh", updated_at="2026-02-01T00:00:00Z"))
        assert names(server.url, "fresh") == ["io.test.new/fresh"]
        assert [one.query.get("updated_since") for one in server.asked] == ["2026-01-01T00:00:00Z"]


def test_what_changed_is_asked_for_since_the_latest_point_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "FRESH_S", 0)
    latest = "2026-01-01T00:00:00.5Z"  # as a text it comes before the others
    records = [
        *many(400, updated_at="2026-01-01T02:00:00+02:00"),
        record("io.test.new/half", updated_at=latest),
    ]
    with scripted(official(records)) as server:
        names(server.url, "server")
        server.asked.clear()
        names(server.url, "server")
        assert {one.query.get("updated_since") for one in server.asked} == {latest}


@pytest.mark.parametrize(
    ("since", "is_included"),
    [
        ("2026-01-31T12:00:00Z", True),
        ("2026-01-31T14:00:00.5+02:00", True),
        ("2026-01-31T11:00:01-01:00", False),
        ("2026-01-31T12:00:00.6Z", False),
    ],
)
def test_a_served_catalog_gives_what_changed_since_a_point_in_time(
    tmp_path: Path, since: str, is_included: bool
) -> None:
    (tmp_path / "mcp.md").write_text("## a\ncommand: python\n")
    app = CatalogApp(
        lambda: open_backend(str(tmp_path / "mcp.md"), {}), changed_at=lambda: "2026-01-31T12:00:00.500000Z"
    )
    response = app.handle(Request("GET", "/v0.1/servers", {"updated_since": since}, {}))
    assert json.loads(response.body)["metadata"]["count"] == is_included


def test_what_was_deleted_is_not_found_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "FRESH_S", 0)
    records = many(400)
    with scripted(official(records)) as server:
        assert names(server.url, "server-7") != []
        records[7] = record("io.test.n7/server-7", status="deleted", updated_at="2026-03-01T00:00:00Z")
        assert "io.test.n7/server-7" not in names(server.url, "server-7")


def test_what_is_gone_from_a_small_catalog_is_noticed_at_once() -> None:
    records = many(3)
    with scripted(official(records)) as server:
        assert len(names(server.url, "server")) == 3
        del records[0]
        assert len(names(server.url, "server")) == 2


def test_an_unchanged_catalog_says_so_by_its_etag() -> None:
    usual = official(many(3))

    def answer(asked: Asked) -> bytes:
        if asked.headers.get("if-none-match") == '"e"':
            return reply(304)
        return usual(asked).replace(b"connection:", b'etag: "e"\r\nconnection:')

    with scripted(answer) as server:
        assert len(names(server.url, "server")) == 3
        assert len(names(server.url, "server")) == 3
        assert server.asked[-1].headers["if-none-match"] == '"e"'


def test_copying_goes_on_where_it_stopped() -> None:
    with scripted(official(many(500))) as server:
        api = OfficialApi(HttpClient(), read_address(server.url))
        store = CatalogStore("x")
        assert mirror.sync(store, api, budget_s=0) is False
        assert store.count() == 100
        server.asked.clear()
        assert mirror.sync(store, api, budget_s=60) is True
        assert store.count() == 500
        assert server.asked[0].query["cursor"] == "100"


def test_a_place_that_the_server_forgot_begins_anew() -> None:
    usual = official(many(300))
    with scripted(usual) as server:
        api = OfficialApi(HttpClient(), read_address(server.url))
        store = CatalogStore("x")
        mirror.sync(store, api, budget_s=0)
        forgot = [True]

        def answer(asked: Asked) -> bytes:
            if asked.query.get("cursor") == "100" and forgot.pop() if forgot else False:
                return reply(400, {"detail": "invalid cursor"})
            return usual(asked)

        server.answer = answer
        assert mirror.sync(store, api, budget_s=60) is True
        assert store.count() == 300


def test_a_list_that_leads_in_circles_ends() -> None:
    page = {"servers": many(1), "metadata": {"nextCursor": "x"}}
    with (
        scripted(lambda asked: reply(200, page)) as server,
        pytest.raises(RegistryUnavailable, match="without an end"),
    ):
        mirror.sync(CatalogStore("x"), OfficialApi(HttpClient(), read_address(server.url)), 60)


@pytest.mark.parametrize("pages", [1, 3, 5])
def test_a_kill_between_two_pages_loses_at_most_a_page(pages: int, tmp_path: Path) -> None:
    with scripted(official(many(600))) as server:
        usual = server.answer
        child: list[subprocess.Popen[str]] = []

        def answer(asked: Asked) -> Any:
            listed = [one for one in server.asked if one.query.get("limit") == "100"]
            if len(listed) == pages + 1 and child[0].poll() is None:
                os.kill(child[0].pid, signal.SIGKILL)
                return b""
            return usual(asked)

        server.answer = answer
        words = ["registry", "search", "server-599", "--catalog", server.url, "--json"]
        command = [sys.executable, "-m", "perdure.cli.main", *words]
        child.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True))
        assert child[0].wait(30) == -signal.SIGKILL
        server.answer = usual
        server.asked.clear()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["servers"][0]["name"] == "io.test.n599/server-599"
    resumed = [one.query.get("cursor") for one in server.asked if one.query.get("limit") == "100"]
    assert resumed[0] == str(pages * 100)


@pytest.mark.thorough
def test_many_who_copy_at_once_end_up_with_one_whole_copy(tmp_path: Path) -> None:
    with scripted(official(many(500))) as server:
        words = ["registry", "search", "server-499", "--catalog", server.url, "--json"]
        command = [sys.executable, "-m", "perdure", *words]
        children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        found = [json.loads(child.communicate(timeout=60)[0])["servers"][0]["name"] for child in children]
    assert found == ["io.test.n499/server-499"] * 4
    assert [child.returncode for child in children] == [0] * 4


def test_a_damaged_copy_is_made_again(tmp_path: Path) -> None:
    with scripted(official(many(5))) as server:
        names(server.url, "server")
        for file in (tmp_path / "home" / "cache").glob("catalog-*"):
            file.write_bytes(b"this is not a database" * 100)
        assert len(names(server.url, "server")) == 5


def test_the_copy_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    with scripted(official(many(1))) as server:
        names(server.url, "server")
    files = list((tmp_path / "home" / "cache").glob("catalog-*.db"))
    assert files
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


# --- offline -----------------------------------------------------------------------------------------------------


def test_without_the_server_the_copy_answers_and_its_age_is_said() -> None:
    with scripted(official(many(3))) as server:
        url = server.url
        names(url, "server")
    found = open_catalog(url, {}).search("server", 5)
    assert len(found.servers) == 3
    assert found.is_stale
    assert "old" in found.notice


def test_what_was_copied_can_be_had_offline() -> None:
    with scripted(official(many(3))) as server:
        url = server.url
        names(url, "server")
    offered = open_catalog(url, {}).lookup("io.test.n1/server-1")
    assert isinstance(offered, Record)
    assert offered.version == "1.0.0"


def test_without_a_copy_an_unreachable_catalog_is_unavailable() -> None:
    with pytest.raises(RegistryUnavailable):
        names("http://127.0.0.1:1", "server")


def test_a_refused_token_is_not_covered_by_the_copy() -> None:
    with scripted(official(many(3))) as server:
        names(server.url, "server")
        server.answer = lambda asked: reply(401, {"error": "no"})
        with pytest.raises(AuthRequired):
            names(server.url, "server")


# --- one server -----------------------------------------------------------------------------------------------------


def test_a_name_is_one_part_of_the_path() -> None:
    with scripted(
        official([record("io.test.a/b", "1.0.0"), record("io.test.a/b", "0.9.0", is_latest=False)])
    ) as server:
        catalog = open_catalog(server.url, {})
        newest, older = catalog.lookup("io.test.a/b"), catalog.lookup("io.test.a/b", "0.9.0")
        assert isinstance(newest, Record)
        assert isinstance(older, Record)
        assert (newest.version, older.version) == ("1.0.0", "0.9.0")
        with pytest.raises(NotInCatalog) as caught:
            catalog.lookup("io.test.a/b", "7")
        assert caught.value.hint == "it has 1.0.0, 0.9.0"
        with pytest.raises(NotInCatalog):
            catalog.lookup("io.test.a/c")
        assert server.asked[-2].path == "/v0.1/servers/io.test.a%2Fc/versions/latest"


def test_a_short_name_stands_for_a_server_if_it_is_the_only_one() -> None:
    with scripted(
        official([record("io.a/weather"), record("com.b/mcp"), record("com.c/thing"), record("io.d/thing")])
    ) as server:
        catalog = open_catalog(server.url, {})
        found = [catalog.lookup(name) for name in ("weather", "b")]
        assert [one.name for one in found] == ["io.a/weather", "com.b/mcp"]
        with pytest.raises(NotInCatalog, match="any of 2") as caught:
            catalog.lookup("thing")
        assert "com.c/thing, io.d/thing" in caught.value.hint


def test_a_server_that_does_not_know_latest_is_asked_for_all_versions() -> None:
    usual = official(
        [record("io.test.a/b", "1.9.0", is_latest=False), record("io.test.a/b", "1.10.0", is_latest=False)]
    )
    with scripted(usual) as server:
        offered = open_catalog(server.url, {}).lookup("io.test.a/b")
        assert isinstance(offered, Record)
        assert offered.version == "1.10.0"


def test_an_answer_about_another_server_is_not_taken() -> None:
    with scripted(lambda asked: reply(200, record("io.other/x"))) as server:
        catalog = OfficialCatalog(read_address(server.url), HttpClient(), "")
        with pytest.raises(TornReply):
            catalog.lookup("io.test.a/b")


@pytest.mark.parametrize("page", [{"servers": None}, {"servers": []}, {"servers": [], "metadata": {}}])
def test_an_empty_catalog_is_one(page: dict[str, Any]) -> None:
    with scripted(lambda asked: reply(200, page) if asked.parts[0] == "v0.1" else reply(404, {})) as server:
        assert names(server.url, "x") == []


def test_records_that_name_nothing_hide_no_other() -> None:
    bad: list[Any] = [7, {}, {"server": {"name": "x"}}, *many(2)]
    page = {"servers": bad, "metadata": {"next_cursor": ""}}
    with scripted(lambda asked: reply(200, page) if asked.parts[0] == "v0.1" else reply(404, {})) as server:
        assert len(names(server.url, "server")) == 2


# --- which kind of catalog ---------------------------------------------------------------------------------------------


def test_a_tiered_catalog_is_known_by_what_it_says() -> None:
    def answer(asked: Asked) -> bytes:
        match asked.parts:
            case ["capabilities"]:
                return reply(200, {"tier": 3})
            case ["mcp-servers"]:
                return reply(200, {"servers": [{"name": "weather", "description": "rain"}, {"name": "x"}]})
        return reply(404, {})

    with scripted(answer) as server:
        catalog = open_catalog(server.url, {})
        assert isinstance(catalog, TieredCatalog)
        assert [one.name for one in catalog.search("RAIN", 5).servers] == ["weather"]


def test_the_token_of_a_catalog_is_its_own() -> None:
    with scripted(official(many(1))) as server:
        environ = {
            "PERDURE_CATALOG_TOKEN": "cat",
            "PERDURE_REGISTRY_TOKEN": "reg",
            "PERDURE_CATALOG": server.url,
        }
        open_catalog("", environ).search("x", 1)
    assert {one.headers["authorization"] for one in server.asked} == {"Bearer cat"}


# --- searching ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shelf() -> CatalogStore:
    store = CatalogStore("shelf")
    progress = store.begin()
    found = [
        record("io.a/postgres", description="A database"),
        record("io.b/postgres-mcp", description="Postgres for you", status="deprecated"),
        record("io.c/postgres-tools", description="Tools"),
        record("io.d/tables", description="Works with PostgreSQL"),
        record("io.e/mypostgresql", description="x"),
        record("io.f/wetter", title="Wetter für München"),
    ]
    store.finish(store.add_page(progress, found, ""))
    return store


def test_what_is_called_by_the_word_comes_first_and_the_deprecated_last(shelf: CatalogStore) -> None:
    assert [row.name for row in search(shelf, "postgres", 10)] == [
        *("io.a/postgres", "io.c/postgres-tools", "io.d/tables", "io.b/postgres-mcp", "io.e/mypostgresql")
    ]


def test_words_are_found_by_their_beginning_without_accents_and_in_any_case(shelf: CatalogStore) -> None:
    assert [row.name for row in search(shelf, "MUNCH wett", 10)] == ["io.f/wetter"]


@pytest.mark.parametrize(
    "asked", ['"', "*", "a OR", "NEAR(", "-x", "postgres^2", "name:postgres", "'; DROP", "\x00", "%"]
)
def test_a_search_is_words_and_no_language(shelf: CatalogStore, asked: str) -> None:
    search(shelf, asked, 10)
