"""What every backend of the registry must do, by the number of the MUST; one suite over all of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from registry_subjects import SUBJECTS, Subject

from perdure.protocol.replay import CONVERGENT, NEVER, ProbeRequired
from perdure.registry.backend import Backend, EditableBackend, open_backend
from perdure.registry.entry import LINE_BREAKS, Entry, Provenance, Replay, Timeouts, Tools
from perdure.registry.errors import (
    AlreadyInstalled,
    InvalidEntry,
    InvalidName,
    NotInRegistry,
    RegistryError,
    UnsetVariable,
)
from perdure.registry.http.address import InvalidAddress
from perdure.registry.resolved_entry import resolve
from perdure.registry.templates import Template
from testbed import Bed

SECRET = "sk-Zx9yW8vU7tS6rQ5pO4nM"
BAD_NAMES = [
    "",
    ".hidden",
    "..",
    "a..b",
    "a/b",
    "a\\b",
    "../x",
    "github\n",
    "a\x00b",
    "a\x85",
    "x" * 200,
    "a b",
]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


@pytest.fixture(params=list(SUBJECTS))
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    folder = tmp_path / "registry"
    folder.mkdir()
    found = SUBJECTS[request.param](folder)
    yield found
    found.close()


def entry(name: str, **more: object) -> Entry:
    return Entry(**{"name": name, "command": Template("python"), **more})  # type: ignore[arg-type]


# --- 1: names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("operation", ["load", "uninstall"])
def test_must_1_a_bad_name_is_refused_before_anything_is_opened(
    subject: Subject, name: str, operation: str
) -> None:
    subject.break_down()
    with pytest.raises(ValueError) as caught:
        getattr(subject.open(), operation)(name)
    assert isinstance(caught.value, InvalidName)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_must_1_validating_a_bad_name_is_a_result(subject: Subject, name: str) -> None:
    result = subject.open().validate(name)
    assert not result.ok
    assert result.errors


# --- 2: the constructor ----------------------------------------------------------------------------------


def test_must_2_making_a_backend_opens_nothing(subject: Subject) -> None:
    subject.break_down()
    before = sorted(os.listdir("/proc/self/fd"))
    made = subject.open()
    assert sorted(os.listdir("/proc/self/fd")) == before
    made.close()


# --- 3: capabilities ------------------------------------------------------------------------------------


def test_must_3_what_the_capabilities_promise_is_done(subject: Subject) -> None:
    backend = subject.open()
    able = backend.refresh_capabilities()
    assert able == backend.capabilities
    assert able.supports_install
    backend.install(entry("a"))
    assert able.supports_uninstall
    backend.uninstall("a")


# --- 4: credentials ------------------------------------------------------------------------------------


def test_must_4_no_credential_reaches_a_message_or_a_list(subject: Subject) -> None:
    backend = subject.open()
    url = Template(f"https://user:{SECRET}@host.test/mcp?key={SECRET}")
    one = entry("a", command=None, transport="streamable-http", url=url)
    refused = ""
    if subject.fit(one) != one:
        with pytest.raises(InvalidEntry) as kept_at_home:
            backend.install(one)
        refused = repr(kept_at_home.value.to_json())
    backend.install(subject.fit(one))
    seen = [refused, repr(backend.list_servers()), repr(backend.validate("a"))]
    with pytest.raises(AlreadyInstalled) as caught:
        backend.install(backend.load("a"))
    seen += [str(caught.value), repr(caught.value.to_json())]
    assert all(SECRET not in text for text in seen)


# --- 5: scope ------------------------------------------------------------------------------------------


def test_must_5_one_scope_does_not_see_another(subject: Subject) -> None:
    subject.open().install(entry("mine"))
    other = subject.other()
    assert other.list_servers() == []
    other.uninstall("mine")
    assert [ref.name for ref in subject.open().list_servers()] == ["mine"]


# --- 6: identity and closing --------------------------------------------------------------------------------


def test_must_6_closing_is_harmless_at_any_time(subject: Subject) -> None:
    backend = subject.open()
    backend.close()
    backend.close()
    assert backend.backend_id == subject.open().backend_id
    assert isinstance(backend, Backend)


# --- 7: not there, not reachable ---------------------------------------------------------------------------


def test_must_7_not_there_and_not_reachable_are_different(subject: Subject) -> None:
    with pytest.raises(NotInRegistry) as absent:
        subject.open().load("a")
    assert not absent.value.retryable
    subject.break_down()
    with pytest.raises(RegistryError) as broken:
        subject.open().load("a")
    assert not isinstance(broken.value, NotInRegistry)


def test_an_empty_registry_lists_nothing(subject: Subject) -> None:
    backend = subject.open()
    assert backend.list_servers() == []
    assert backend.load_all() == []
    assert not backend.validate("a").ok


# --- 8: references -----------------------------------------------------------------------------------------


def test_must_8_references_are_stored_as_they_are_and_resolved_when_asked(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOK", SECRET)
    backend = subject.open()
    backend.install(entry("a", env={"K": Template("Bearer $TOK")}, args=(Template("--x=${TOK}"),)))
    loaded = backend.load("a")
    assert resolve(loaded, {"TOK": SECRET}).env == {"K": f"Bearer {SECRET}"}
    with pytest.raises(UnsetVariable):
        resolve(loaded, {})
    backend.uninstall("a")
    backend.install(loaded)
    assert SECRET.encode() not in subject.stored()
    assert SECRET not in repr(loaded)


def test_must_8_an_unset_variable_hides_no_other_entry(subject: Subject) -> None:
    backend = subject.open({"PATH": os.environ["PATH"]})
    backend.install(entry("a", env={"K": Template("$NOT_SET_ANYWHERE")}))
    backend.install(entry("b"))
    assert [one.name for one in backend.load_all()] == ["a", "b"]
    result = backend.validate("a")
    assert result.ok
    assert any("NOT_SET_ANYWHERE" in warning for warning in result.warnings)


# --- 9: install and uninstall -----------------------------------------------------------------------------------


def test_must_9_of_many_threads_one_installs_and_the_others_are_told(subject: Subject) -> None:
    backend = subject.open()
    outcomes: list[str] = []

    def install() -> None:
        try:
            backend.install(entry("a"))
            outcomes.append("installed")
        except AlreadyInstalled:
            outcomes.append("taken")

    threads = [threading.Thread(target=install) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["installed"] + ["taken"] * 7


def test_must_9_threads_with_different_names_all_succeed(subject: Subject) -> None:
    backend = subject.open()
    threads = [threading.Thread(target=lambda n=n: backend.install(entry(f"s{n}"))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ref.name for ref in backend.list_servers()] == [f"s{n}" for n in range(8)]


def test_must_9_uninstall_is_done_whether_it_was_there_or_not(subject: Subject) -> None:
    backend = subject.open()
    backend.uninstall("a")
    backend.install(entry("a"))
    backend.uninstall("a")
    backend.uninstall("a")
    assert backend.list_servers() == []


# --- 10: all at once, or one by one -----------------------------------------------------------------------------


def test_must_10_loading_all_is_listing_and_loading_each(subject: Subject) -> None:
    backend = subject.open()
    for name in ("b", "a", "c"):
        backend.install(entry(name, description=name.upper()))
    backend.set_enabled("b", False)
    refs = backend.list_servers()
    assert [ref.name for ref in refs] == ["a", "b", "c"]
    assert backend.load_all() == [backend.load(ref.name) for ref in refs if not ref.error]


# --- the operations beyond ---------------------------------------------------------------------------------------


def test_enable_and_disable_change_the_switch_and_nothing_else(subject: Subject) -> None:
    backend = subject.open()
    whole = subject.fit(full("a"))
    backend.install(whole)
    assert backend.set_enabled("a", False).enabled is False
    assert backend.load("a") == structs.replace(whole, enabled=False)
    assert backend.set_enabled("a", True).enabled is True
    assert backend.load("a") == whole
    with pytest.raises(NotInRegistry):
        backend.set_enabled("b", True)


def test_an_entry_is_replaced_by_another_of_its_name(subject: Subject) -> None:
    backend = subject.open()
    backend.install(entry("a", args=(Template("1"),)))
    backend.replace(subject.fit(full("a")))
    assert backend.load("a") == subject.fit(full("a"))
    backend.replace(entry("a"))
    assert backend.load("a") == entry("a")
    with pytest.raises(NotInRegistry):
        backend.replace(entry("b"))


def full(name: str) -> Entry:
    """An entry in which nothing is a default."""
    return Entry(
        name=name,
        title="The weather",
        description="what: it says, and more",
        enabled=True,
        command=Template("python"),
        args=(
            Template("server.py"),
            Template("--city"),
            Template("Oslo, Norway"),
            Template(""),
            Template(" x "),
        ),
        cwd=Template("./tools"),
        env={"API_KEY": Template("$WEATHER_KEY"), "LIST": Template("a,b"), "EMPTY": Template("")},
        tools=Tools(("forecast", "alerts"), ("reset",)),
        timeouts=Timeouts(15, 60, 600.5),
        start="lazy",
        restart="never",
        replay=Replay(
            "declared", {"charge": ProbeRequired("find", {"key": "/key"}), "a": NEVER, "b": CONVERGENT}
        ),
        pin=True,
        required=True,
        provenance=Provenance(catalog="https://registry.test", name="io.test/weather", version="1.2.3"),
        extra={"note": "kept"},
    )


# --- the round trip ---------------------------------------------------------------------------------------------------

BREAKS = set(LINE_BREAKS)
TEXT = st.text(st.characters(exclude_characters=BREAKS | {"\x00"}, exclude_categories=("Cs",)), max_size=20)
NAMES = st.from_regex(r"[a-zA-Z0-9_+@-][a-zA-Z0-9_+@-]{0,10}", fullmatch=True)
WORDS = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,10}", fullmatch=True)
TEMPLATES = TEXT.map(Template)
COMMANDS = TEXT.filter(lambda text: text.strip()).map(Template)
POINTERS = TEXT.map(lambda text: f"/{text}")
CLASSES = st.one_of(
    st.just(NEVER),
    st.just(CONVERGENT),
    st.builds(ProbeRequired, WORDS, st.dictionaries(TEXT, POINTERS, max_size=2)),
)
SECONDS = st.none() | st.floats(0.001, 1e6)
ENTRIES = st.builds(
    Entry,
    name=NAMES,
    title=TEXT,
    description=TEXT,
    enabled=st.booleans(),
    command=COMMANDS,
    args=st.lists(TEMPLATES, max_size=4).map(tuple),
    cwd=st.none() | TEXT.filter(bool).map(Template),
    env=st.dictionaries(WORDS, TEMPLATES, max_size=3),
    tools=st.builds(Tools, st.lists(WORDS, max_size=2).map(tuple), st.lists(WORDS, max_size=2).map(tuple)),
    timeouts=st.builds(Timeouts, SECONDS, SECONDS, SECONDS),
    start=st.sampled_from(["eager", "lazy"]),
    restart=st.sampled_from(["always", "never"]),
    replay=st.builds(
        Replay, st.sampled_from(["annotations", "declared"]), st.dictionaries(WORDS, CLASSES, max_size=2)
    ),
    pin=st.booleans(),
    required=st.booleans(),
    provenance=st.none() | st.builds(Provenance, TEXT, TEXT, TEXT, TEXT, TEXT),
)
REMOTES = st.builds(
    Entry,
    name=NAMES,
    transport=st.sampled_from(["streamable-http", "sse"]),
    url=st.just(Template("https://host.test/mcp?a=$K,b")),
    headers=st.dictionaries(WORDS, TEMPLATES, max_size=3),
    oauth=st.dictionaries(st.sampled_from(["client_id", "scopes", "issuer"]), TEMPLATES, max_size=3),
)


@pytest.mark.thorough
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=ENTRIES | REMOTES)
def test_an_entry_comes_back_as_it_was_whatever_it_holds(subject: Subject, one: Entry) -> None:
    backend = subject.open()
    one = subject.fit(one)
    backend.install(entry("neighbour"))
    try:
        before = subject.stored()
        if one.name != "neighbour":
            backend.install(one)
            assert backend.load(one.name) == one
            assert backend.load("neighbour") == entry("neighbour")
            backend.uninstall(one.name)
            assert subject.stored() == before
    finally:
        backend.uninstall("neighbour")


# --- 11: cleartext ------------------------------------------------------------------------------------------------


OPERATIONS: dict[str, Callable[[EditableBackend], object]] = {
    "list": lambda one: one.list_servers(),
    "load": lambda one: one.load("a"),
    "load_all": lambda one: one.load_all(),
    "validate": lambda one: one.validate("a"),
    "install": lambda one: one.install(entry("a")),
    "uninstall": lambda one: one.uninstall("a"),
    "replace": lambda one: one.replace(entry("a")),
    "refresh": lambda one: one.refresh_capabilities(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("host", ["10.1.2.3", "localhost.evil.test", "127.0.0.1.evil.test", "[::2]"])
def test_must_11_cleartext_goes_to_this_machine_alone_unless_it_was_asked_for(
    operation: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how the host is written: nothing is looked up, and no operation gets as far as a connection."""
    asked: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *given, **_: asked.append(given))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **_: asked.append(given))
    backend = open_backend(f"http://{host}/", {})
    with pytest.raises(InvalidAddress):
        OPERATIONS[operation](backend)
    assert asked == []
    assert open_backend("http://localhost:1/", {}).backend_id == "http"


# --- 12: which commands may run -----------------------------------------------------------------------------------


def test_must_12_a_command_that_is_not_allowed_is_never_started(subject: Subject, bed: Bed) -> None:
    """In the registry it may stand; the host starts nothing but what is on the list, and says so."""
    marker = bed.root / "marker"
    subject.open().install(
        entry("shell", command=Template("bash"), args=(Template("-c"), Template(f"> {marker}")))
    )
    subject.open().install(entry("far", command=Template("/opt/evil/curl")))
    assert not subject.open().validate("shell").ok
    bed.environ |= subject.environ()
    client = bed.run()
    client.names()
    for name in ("shell", "far"):
        assert client.wait_row(name, state="degraded")["last_fault"]["code"] == "command_not_allowed"
    client.use("mounts", {"action": "restart", "name": "shell"})
    assert client.wait_row("shell", state="degraded")["last_fault"]["code"] == "command_not_allowed"
    assert not marker.exists()


# --- many processes -----------------------------------------------------------------------------------------------


RACER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from registry_subjects import SUBJECTS
from perdure.registry.entry import Entry
from perdure.registry.errors import AlreadyInstalled
from perdure.registry.templates import Template
backend = SUBJECTS[sys.argv[1]](Path(sys.argv[2])).open()
sys.stdin.readline()
try:
    backend.install(Entry(name="one", command=Template("python")))
    print("installed")
except AlreadyInstalled:
    print("taken")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [name for name in SUBJECTS if name in ("markdown", "json")])
def test_must_9_of_many_processes_exactly_one_installs(kind: str, tmp_path: Path) -> None:
    source = RACER.format(tests=str(Path(__file__).parent))
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", source, kind, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    outcomes = sorted(racer.communicate("\n")[0].strip() for racer in racers)
    assert outcomes == ["installed"] + ["taken"] * 5
