"""The MUSTs for a backend that is only read, by their numbers: a catalog of tier 1."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure.registry.backend import Backend, open_backend
from perdure.registry.entry import Entry
from perdure.registry.errors import (
    InvalidName,
    NotInRegistry,
    Quarantined,
    RegistryError,
    RegistryUnavailable,
    UnsetVariable,
    Unsupported,
)
from perdure.registry.http.address import InvalidAddress
from perdure.registry.resolved_entry import resolve
from perdure.registry.templates import Template

SECRET = "sk-Zx9yW8vU7tS6rQ5pO4nM"


class Reader(NamedTuple):
    """Where it is; the names of a sound entry that refers to $ODD_KEY, and of one that cannot be used."""

    location: str
    sound: str
    broken: str

    def open(self, environ: dict[str, str] | None = None) -> Backend:
        return open_backend(self.location, os.environ if environ is None else environ)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    path = tmp_path / "mcp.md"
    path.write_text(
        "## a\ncommand: npx\nargs: -y, a@1.0.0\nenv: ODD_KEY=$ODD_KEY\n"
        "## b\nurl: https://b.test/mcp\n## broken\nargs: [\n"
    )
    words = ["--registry", str(path), "serve", "--port", "0", "--tier", "1"]
    server = subprocess.Popen(
        [sys.executable, "-m", "perdure.cli.main", "registry", *words], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url = server.stdout.readline().split(" at ")[1].split()[0]
    yield Reader(url, "a", "broken")
    server.kill()
    server.wait()


def test_must_1_a_bad_name_is_refused_before_anything_is_asked(reader: Reader) -> None:
    unreachable = reader.location.partition("://")[0] + "://127.0.0.1:1/"
    for name in ("", "..", "a/b", "github\n", ".hidden", "x" * 200):
        with pytest.raises(InvalidName):
            open_backend(unreachable, {}).load(name)
        assert not open_backend(unreachable, {}).validate(name).ok


def test_must_2_making_one_opens_nothing(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was opened")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(os, "makedirs", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    assert isinstance(reader.open(), Backend)


def test_must_3_what_it_does_not_promise_it_refuses(reader: Reader) -> None:
    backend = reader.open()
    backend.refresh_capabilities()
    assert not backend.capabilities.supports_install
    assert not backend.capabilities.supports_uninstall
    with pytest.raises(Unsupported):
        backend.install(Entry(name="new", command=Template("python")))
    with pytest.raises(Unsupported):
        backend.uninstall(reader.sound)


def test_must_4_no_credential_reaches_a_message_or_a_list(reader: Reader) -> None:
    scheme, _, rest = reader.location.partition("://")
    backend = open_backend(f"{scheme}://user:{SECRET}@{rest}", {})
    said = [repr(backend), *map(repr, backend.list_servers()), *map(repr, backend.load_all())]
    broken = open_backend(f"{scheme}://user:{SECRET}@127.0.0.1:1/", {})
    for operation in (broken.list_servers, broken.load_all, broken.refresh_capabilities):
        with pytest.raises(RegistryError) as caught:
            operation()
        said += [str(caught.value), repr(caught.value), caught.value.hint]
    assert all(SECRET not in one for one in said)


def test_must_6_closing_is_harmless_at_any_time(reader: Reader) -> None:
    backend = reader.open()
    backend.close()
    backend.close()
    assert backend.list_servers()
    backend.close()
    assert backend.backend_id == reader.open().backend_id


def test_must_7_not_there_and_not_reachable_are_different(reader: Reader) -> None:
    with pytest.raises(NotInRegistry):
        reader.open().load("nothing")
    unreachable = open_backend(reader.location.partition("://")[0] + "://127.0.0.1:1/", {})
    with pytest.raises(RegistryUnavailable) as caught:
        unreachable.load(reader.sound)
    assert caught.value.retryable


def test_must_8_references_are_resolved_by_whoever_starts_it(reader: Reader) -> None:
    entry = reader.open({"ODD_KEY": SECRET}).load(reader.sound)
    assert entry.env["ODD_KEY"].text == "$ODD_KEY"
    assert resolve(entry, {"ODD_KEY": SECRET}).env["ODD_KEY"] == SECRET
    with pytest.raises(UnsetVariable):
        resolve(entry, {})
    assert reader.open({}).validate(reader.sound).warnings == ("the variable ODD_KEY is not set",)


def test_must_10_loading_all_is_listing_and_loading_each(reader: Reader) -> None:
    backend = reader.open()
    refs = backend.list_servers()
    assert [ref.name for ref in refs] == sorted(ref.name for ref in refs)
    assert backend.load_all() == [backend.load(ref.name) for ref in refs if not ref.error]
    assert len(backend.load_all()) == 2


def test_one_that_cannot_be_used_hides_no_other(reader: Reader) -> None:
    backend = reader.open()
    refs = {ref.name: ref for ref in backend.list_servers()}
    assert refs[reader.broken].error
    assert not refs[reader.sound].error
    with pytest.raises((Quarantined, NotInRegistry)):
        backend.load(reader.broken)
    assert not backend.validate(reader.broken).ok


@pytest.mark.parametrize("operation", ["list_servers", "load_all", "refresh_capabilities"])
def test_must_11_cleartext_goes_to_this_machine_alone(reader: Reader, operation: str) -> None:
    scheme = reader.location.partition("://")[0]
    with pytest.raises(InvalidAddress):
        getattr(open_backend(f"{scheme}://10.1.2.3/", {}), operation)()
