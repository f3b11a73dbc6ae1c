"""The `perdure` command as a person or a client's config runs it: words, exit codes, and which setting wins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perdure import __version__
from perdure.cli.main import COMMANDS
from testbed import Bed, Client

SCRIPT = str(Path(sys.executable).with_name("perdure"))


def perdure(bed: Bed, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *words],
        env=bed.environ,
        cwd=bed.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def refused(bed: Bed, *words: str) -> str:
    """What a usage error says. It is said on standard error alone: standard output belongs to the protocol."""
    done = perdure(bed, *words)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


# Help and version


def test_the_help_names_every_command(bed: Bed) -> None:
    done = perdure(bed, "--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)
    assert done.stderr == ""
    assert perdure(bed, "help").stdout == done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(bed: Bed, command: str) -> None:
    done = perdure(bed, command, "--help")
    assert done.returncode == 0
    assert f"usage: perdure {command}" in done.stdout


def test_the_version_is_the_packages(bed: Bed) -> None:
    for word in ("--version", "-V"):
        done = perdure(bed, word)
        assert (done.returncode, done.stdout) == (0, f"perdure {__version__}\n")


def test_the_module_is_the_same_command(bed: Bed) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "--version"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout == f"perdure {__version__}\n"


# Usage errors


def test_an_unknown_command_is_refused_with_the_nearest_one(bed: Bed) -> None:
    assert "did you mean wrap?" in refused(bed, "wrp")
    assert "no command xyzzy" in refused(bed, "xyzzy")


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ("no-equals", "NAME='COMMAND ARGS'"),
        ("=cmd", "not a usable name"),
        ("a__b=cmd", "a__b"),
        ("perdure=cmd", "perdure"),
        ("host=cmd", "host"),
        ("x=", "x: no command"),
        ("x='unbalanced", "x: No closing quotation"),
        ("two words=cmd", "two words"),
    ],
)
def test_a_mount_that_cannot_be_meant_is_refused_by_its_name(bed: Bed, mount: str, said: str) -> None:
    assert said in refused(bed, "run", "--mount", mount)


def test_the_same_mount_twice_is_refused(bed: Bed) -> None:
    assert "x: named twice" in refused(bed, "--mount", "x=a", "--mount", "x=b")


def test_an_unknown_option_is_refused(bed: Bed) -> None:
    assert "--no-such-option" in refused(bed, "run", "--no-such-option")


def test_an_unknown_value_is_refused_with_the_known_ones(bed: Bed) -> None:
    assert "porcelain" in refused(bed, "run", "--render", "fancy")


def test_a_workspace_that_is_not_there_is_refused(bed: Bed) -> None:
    assert "/no/such/dir" in refused(bed, "run", "--workspace", "/no/such/dir")


def test_wrap_without_a_command_is_refused(bed: Bed) -> None:
    assert "no command" in refused(bed, "wrap")
    assert "no command" in refused(bed, "wrap", "--name", "x", "--")


# Settings files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("render = \nx = 1", "line 1"),
        ("rendr = 'json'", "rendr"),
        ("render = 'fancy'", "$.render"),
        ("[timeouts]\ncall = 'long'", "$.timeouts.call"),
        ("[timeouts]\ncal = 1", "cal"),
        ("[limits]\nno_such = 1", "limits.no_such"),
        ("[limits]\nqueue = 'many'", "limits"),
        ("[mounts]\nx = 3", "$.mounts"),
        ("[mounts]\n'a b' = 'cmd'", "a b"),
    ],
)
def test_a_bad_settings_file_is_refused_with_its_place(bed: Bed, text: str, said: str) -> None:
    path = settings_file(bed, "workspace")
    bed.settings(text)
    complaint = refused(bed, "journal")
    assert said in complaint
    assert str(path) in complaint
    told = perdure(bed, "run")  # a session begins without what is wrong
    assert told.returncode == 0
    assert f"{path}, line " in told.stderr


@pytest.mark.thorough
def test_a_bad_settings_file_of_the_users_is_named_by_every_command_that_reads_it(bed: Bed) -> None:
    path = settings_file(bed, "user")
    path.write_text("rendr = 'json'\n")
    for words in (["run"], ["wrap", "--", "cat"], ["worker"]):
        told = perdure(bed, *words)
        assert told.returncode == 0, told
        assert str(path) in told.stderr
    for words in (["journal"], ["verify"], ["serve", "--port", "0"]):
        assert str(path) in refused(bed, *words)


def settings_file(bed: Bed, whose: str) -> Path:
    if whose == "workspace":
        return bed.workspace / "perdure.toml"
    path = bed.root / "config" / "perdure" / "perdure.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def renders_json(client: Client) -> bool:
    return "structuredContent" in client.use("health")["result"]


PRECEDENCE = [
    # option, environment, workspace file, user file, is it json
    (None, None, None, None, False),
    (None, None, None, "json", True),
    (None, None, "porcelain", "json", False),
    (None, None, "json", "porcelain", True),
    (None, "porcelain", "json", "json", False),
    (None, "json", "porcelain", "porcelain", True),
    ("porcelain", "json", "json", "json", False),
    ("json", "porcelain", "porcelain", "porcelain", True),
]


@pytest.mark.parametrize(("option", "variable", "workspace", "user", "is_json"), PRECEDENCE)
def test_an_option_beats_the_environment_beats_the_workspace_beats_the_user(
    bed: Bed, option: str | None, variable: str | None, workspace: str | None, user: str | None, is_json: bool
) -> None:
    for whose, value in (("workspace", workspace), ("user", user)):
        if value is not None:
            settings_file(bed, whose).write_text(f'render = "{value}"\n')
    if variable is not None:
        bed.environ["PERDURE_RENDER"] = variable
    words = [] if option is None else ["--render", option]
    client = bed.start([SCRIPT, "run", *words])
    client.initialize()
    assert renders_json(client) is is_json


def test_a_bad_value_in_the_environment_is_refused(bed: Bed) -> None:
    bed.environ["PERDURE_RENDER"] = "fancy"
    assert "render" in refused(bed, "run")


def test_mounts_come_from_both_files_and_a_typed_one_wins(bed: Bed) -> None:
    servers = {name: bed.fake(name=name) for name in ("typed", "workspace", "user")}
    quoted = {name: "[" + ", ".join(f"'{word}'" for word in s.argv) + "]" for name, s in servers.items()}
    bed.settings(f"[mounts]\none = {quoted['workspace']}\ntwo = {quoted['workspace']}\n")
    settings_file(bed, "user").write_text(
        f"[mounts]\none = {quoted['user']}\ntwo = {quoted['user']}\nthree = {quoted['user']}\n"
    )
    typed = servers["typed"].mount.replace("typed=", "one=", 1)
    client = bed.start([SCRIPT, "--mount", typed])
    client.initialize()
    found = {}
    for name in ("one", "two", "three"):
        argv = client.use_data(f"{name}__whoami")["argv"]
        found[name] = next(word for word in argv if word.startswith("--name="))
    assert found == {"one": "--name=typed", "two": "--name=workspace", "three": "--name=user"}


@pytest.mark.thorough
def test_limits_of_the_workspace_beat_those_of_the_user_one_by_one(bed: Bed) -> None:
    settings_file(bed, "user").write_text("[limits]\npending = 1\nframe_bytes = 20_000\n")
    bed.settings("[limits]\npending = 2\n")
    client = bed.run(bed.fake())
    client.names()
    held = [client.begin_use("fake__slow", {"ms": 400}) for _ in range(2)]
    assert client.use("fake__echo")["error"]["code"] == -31096
    assert client.use("fake__echo", {"text": "x" * 21_000})["error"]["data"]["limit"] == 20_000
    for call in held:
        assert "result" in client.wait(call)


@pytest.mark.thorough
def test_the_workspace_is_an_option_a_variable_or_here(bed: Bed) -> None:
    fake = bed.fake("--cwd-tool")
    places = {name: bed.root / name for name in ("optional", "variable", "older")}
    for path in places.values():
        path.mkdir()

    def where(*words: str) -> str:
        client = bed.start([SCRIPT, "run", "--mount", fake.mount, *words])
        client.initialize()
        return client.use_text("fake__cwd")

    assert where() == str(bed.workspace)
    bed.environ["RW_WORKSPACE"] = str(places["older"])
    assert where() == str(places["older"])
    bed.environ["PERDURE_WORKSPACE"] = str(places["variable"])
    assert where() == str(places["variable"])
    assert where("--workspace", str(places["optional"])) == str(places["optional"])
    assert where("--workspace", "../optional") == str(places["optional"])


def test_run_is_the_default_command(bed: Bed) -> None:
    for words in ([], ["run"], ["--render", "json"]):
        client = bed.start([SCRIPT, *words])
        assert client.initialize()["serverInfo"]["name"] == "perdure"


def test_reload_tells_a_running_host_to_roll_over(bed: Bed) -> None:
    client = bed.run(bed.fake())
    pid = client.use_data("fake__whoami")["pid"]
    done = perdure(bed, "reload", "--workspace", str(bed.workspace))
    assert done.returncode == 0, done
    assert str(client.pid) in done.stdout
    client.wait_row("fake", generation=2, state="ready", rollout=None)
    assert client.use_data("fake__whoami")["pid"] != pid


def test_reload_without_a_running_host_fails(bed: Bed) -> None:
    done = perdure(bed, "reload")
    assert done.returncode == 1
    assert "no running host" in done.stderr
