"""The defects of an existing registry, each by its number, turned round: what went wrong there goes right here.

Not here: H7, M6, M7, M12, M13 and M14 are about catalogs over HTTP (`test_catalog_defects.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest

from perdure.registry.entry import Entry
from perdure.registry.errors import InvalidEntry, Quarantined
from perdure.registry.file.backend import FileBackend, open_markdown
from perdure.registry.file.lock import FileLock
from perdure.registry.redaction import mask_url
from perdure.registry.resolved_entry import resolve
from perdure.registry.templates import Template
from testbed import Bed

ROOT = Path(__file__).parents[2]
PYTHON = os.path.basename(sys.executable)
SECRET = "sk-Zx9yW8vU7tS6rQ5pO4nM"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


def registry(folder: Path, text: str) -> FileBackend:
    (folder / "mcp.md").write_text(text)
    return open_markdown(str(folder / "mcp.md"), os.environ)


def entry(name: str, **more: object) -> Entry:
    return Entry(**{"name": name, "command": Template("python"), **more})  # type: ignore[arg-type]


def perdure(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perdure", "registry", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def section(bed: Bed, name: str, *options: str) -> str:
    command, *args = bed.fake(*options, name=name).argv
    return f"## {name}\ncommand: {command}\nargs: {json.dumps(args)}\n"


def test_h1_a_change_keeps_allowed_commands_prose_unknown_keys_and_broken_sections(tmp_path: Path) -> None:
    text = "Prose.\n\n## a\ncommand: node\nmine: x\n\n## broken\nargs: [\n\n## Allowed commands\n"
    backend = registry(tmp_path, text)
    backend.install(entry("b"))
    backend.uninstall("b")
    assert (tmp_path / "mcp.md").read_text() == text


@pytest.mark.parametrize("broken", ["\n", "\r", "\x85", "\u2028", "\x1d"])
def test_h2_no_value_can_begin_a_section(tmp_path: Path, broken: str) -> None:
    backend = registry(tmp_path, "")
    evil = f"x{broken}## evil{broken}command: node"
    for more in ({"command": Template(evil)}, {"args": (Template(evil),)}, {"env": {"K": Template(evil)}}):
        with pytest.raises(InvalidEntry):
            backend.install(entry("a", **more))
    done = perdure(tmp_path, "install", "a", "--transport", f"stdio{broken}## evil", "--", "python")
    assert done.returncode == 2
    assert backend.list_servers() == []


def test_h3_the_sdk_is_bounded_above() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = [word for words in extras.values() for word in words if word.startswith("mcp")]
    assert found
    assert all("<" in word for word in found)


def test_h4_where_nothing_is_allowed_nothing_is_started(bed: Bed) -> None:
    marker = bed.root / "marker"
    words = json.dumps(["-c", f"open({str(marker)!r}, 'w')"])
    bed.trusted("mcp.md", f"## a\ncommand: python\nargs: {words}\n## Allowed commands\n")
    client = bed.run()
    client.names()
    client.wait_row("a", state="degraded")
    assert perdure(bed.workspace, "validate", "a").returncode != 0
    assert not marker.exists()


def test_h5_naming_a_variable_does_not_hand_over_the_others(bed: Bed) -> None:
    bed.environ["MY_SECRET"] = SECRET
    bed.trusted("mcp.md", section(bed, "fake") + f"env: A=1\n## Allowed commands\n{PYTHON}\n")
    client = bed.run()
    client.names()
    assert "MY_SECRET" not in client.use_data("fake__whoami")["env_names"]


def test_h6_no_secret_is_printed_and_loading_then_installing_writes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOK", SECRET)
    backend = registry(tmp_path, f"## a\ncommand: python\nargs: --token={SECRET}\nenv: K={SECRET}, L=$TOK\n")
    loaded = backend.load("a")
    resolve(loaded, os.environ)
    shown = perdure(tmp_path, "show", "a")
    assert SECRET not in shown.stdout + shown.stderr
    assert "$TOK" in shown.stdout
    backend.install(entry("b", env={"L": loaded.env["L"]}))
    assert "L=$TOK" in (tmp_path / "mcp.md").read_text().partition("## b")[2]


@pytest.mark.parametrize("value", ["--x=1,2", "", "  lead", "trail ", 'q"uote', "a, b", "#", "[", "{}"])
def test_m1_every_argument_and_value_survives(tmp_path: Path, value: str) -> None:
    backend = registry(tmp_path, "")
    made = entry("a", args=(Template(value), Template("x")), env={"K": Template(value)})
    backend.install(made)
    assert backend.load("a") == made


@pytest.mark.parametrize("name", ["github\n", ".hidden", "a" * 1000])
def test_m2_a_name_is_checked_to_its_end(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError):
        registry(tmp_path, "").load(name)


def test_m3_duplicates_are_loaded_as_they_are_listed(tmp_path: Path) -> None:
    backend = registry(tmp_path, "## x\ncommand: one\n## x\ncommand: two\n## y\ncommand: three\n")
    sound = [ref.name for ref in backend.list_servers() if not ref.error]
    assert sound == ["x", "y"]
    assert [backend.load(name) for name in sound] == backend.load_all()


def test_m4_foreign_bytes_a_mark_and_fences_are_no_accident(tmp_path: Path) -> None:
    (tmp_path / "mcp.md").write_bytes(
        b"\xef\xbb\xbf## first\ncommand: node\n```\n## fenced\ncommand: x\n```\n## bad\ncommand: \xff\n"
    )
    refs = open_markdown(str(tmp_path / "mcp.md"), os.environ).list_servers()
    assert [(ref.name, ref.error) for ref in refs] == [("bad", "not UTF-8"), ("first", "")]


def test_m5_an_unset_variable_spoils_nothing(tmp_path: Path) -> None:
    backend = registry(tmp_path, "## a\ncommand: python\nenv: K=$NOT_SET_ANYWHERE\n## b\ncommand: python\n")
    assert [one.name for one in backend.load_all()] == ["a", "b"]
    assert "$NOT_SET_ANYWHERE" in perdure(tmp_path, "show", "a").stdout


def test_m8_an_argument_may_begin_with_a_dash_and_errors_name_their_option(tmp_path: Path) -> None:
    backend = registry(tmp_path, "")
    assert perdure(tmp_path, "install", "a", "--arg", "-y", "--arg", "@x", "--", "npx").returncode == 0
    assert [arg.text for arg in backend.load("a").args] == ["-y", "@x"]
    assert "--env" in perdure(tmp_path, "install", "b", "--env", "x", "--", "npx").stderr


def test_m9_a_thread_waits_for_its_turn(tmp_path: Path) -> None:
    backend = registry(tmp_path, "")
    with FileLock(os.path.realpath(backend.path)):
        waiting = threading.Thread(target=backend.install, args=(entry("a"),))
        waiting.start()
        time.sleep(0.1)
        assert waiting.is_alive()
    waiting.join(30)
    assert backend.load("a")


def test_m10_the_lock_of_one_registry_holds_up_no_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = registry(tmp_path / "other", "")
    with FileLock(os.path.realpath(registry(tmp_path, "").path)):
        other.install(entry("a"))


def test_m11_link_mode_and_absence_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.md"
    real.write_text("")
    real.chmod(0o604)
    (tmp_path / "mcp.md").symlink_to(real)
    open_markdown(str(tmp_path / "mcp.md"), os.environ).install(entry("a"))
    assert (tmp_path / "mcp.md").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o604
    open_markdown(str(tmp_path / "no" / "mcp.md"), os.environ).uninstall("a")
    assert not (tmp_path / "no").exists()


@pytest.mark.thorough
def test_m15_a_silent_server_holds_up_no_other(bed: Bed) -> None:
    silent = section(bed, "silent", "--hang-at=start") + "timeout: startup=60\n"
    bed.trusted("mcp.md", silent + section(bed, "good") + f"## Allowed commands\n{PYTHON}\n")
    client = bed.run()
    client.wait_row("good", state="ready")
    assert client.use_text("good__echo", {"text": "x"}) == "x"
    assert client.row("silent")["state"] == "starting"


def test_m16_an_unusual_tool_name_costs_no_other_tool(bed: Bed) -> None:
    path = bed.root / "tools.json"
    path.write_text(json.dumps({"tools": [{"name": "do__it", "inputSchema": {"type": "object"}}]}))
    text = section(bed, "fake", f"--catalog={path}") + f"## Allowed commands\n{PYTHON}\n"
    bed.trusted("mcp.md", text)
    client = bed.run()
    assert {"fake__do__it", "fake__echo"} <= set(client.names())
    assert "do__it" in client.use_text("fake__do__it", {"a": 1})


def test_m17_a_server_keeps_its_process_from_call_to_call(bed: Bed) -> None:
    bed.trusted("mcp.md", section(bed, "fake") + f"## Allowed commands\n{PYTHON}\n")
    client = bed.run()
    client.names()
    assert len({client.use_data("fake__whoami")["pid"] for _ in range(5)}) == 1


@pytest.mark.parametrize(
    ("text", "value"), [("${TOK}", "t"), ("$TOK-x", "t-x"), ("$$", "$"), ("Bearer $TOK", "Bearer t")]
)
def test_l1_every_form_of_reference_is_resolved(text: str, value: str) -> None:
    assert Template(text).resolve({"TOK": "t"}) == value


def test_l2_a_broken_section_is_called_so_everywhere(tmp_path: Path) -> None:
    backend = registry(tmp_path, "## a\nargs: x\n")
    with pytest.raises(Quarantined) as caught:
        backend.load("a")
    assert backend.validate("a").errors == (caught.value.message,)


@pytest.mark.parametrize("path", ["/etc", "--root=/etc", "file:///etc/passwd", "../../etc", "~/x", "C:\\x"])
def test_l3_an_argument_is_not_judged_by_how_its_path_is_spelt(tmp_path: Path, path: str) -> None:
    """A check that one spelling passes and another does not is none, so none is claimed: what a server may touch is
    up to the server and to who allows its command."""
    backend = registry(tmp_path, "")
    backend.install(entry("a", args=(Template(path),)))
    backend.install(entry("plain"))
    assert backend.validate("a") == backend.validate("plain")
    assert [arg.text for arg in backend.load("a").args] == [path]


def test_l4_a_command_warns_of_nothing_that_it_was_not_asked_about(tmp_path: Path) -> None:
    registry(tmp_path, "## a\ncommand: nosuch\nmine: x\nenv: K=$NOT_SET_ANYWHERE\n## broken\n")
    named = ("--registry", "mcp.md")  # what the user names is trusted
    assert perdure(tmp_path, *named, "list").stderr == ""
    assert perdure(tmp_path, *named, "show", "a").stderr == ""


def test_l5_a_redacted_url_still_says_where(tmp_path: Path) -> None:
    assert "host.test" in mask_url("https://user:pw@host.test/mcp?key=x")
