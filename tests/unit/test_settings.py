"""What the host was told: who wins, and that a setting that cannot be meant is refused with its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.host import serve_settings
from perdure.host.serve_options import Serving
from perdure.host.settings import Settings, load
from perdure.host.settings_file import SettingsError, split_command
from perdure.protocol.mounts import Limits
from testbed import trusted


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The workspace's settings file and the user's, neither of them there yet."""
    workspace, user = tmp_path / "workspace", tmp_path / "config" / "perdure"
    workspace.mkdir()
    user.mkdir(parents=True)
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return workspace / "perdure.toml", user / "perdure.toml"


def trust(places: tuple[Path, Path], text: str) -> None:
    """The workspace's file, trusted by the user."""
    trusted(places[0], text, Path(os.environ["PERDURE_HOME"]))


def settle(places: tuple[Path, Path], environ: dict[str, str] | None = None, **given: Any) -> Settings:
    return load(given, {"XDG_CONFIG_HOME": str(places[1].parents[1]), **(environ or {})})


def test_without_anything_the_defaults_hold_and_the_workspace_is_here(places: tuple[Path, Path]) -> None:
    found = settle(places)

    assert found == Settings(workspaces=(str(places[0].parent),))
    assert found.limits == Limits()


def test_option_then_environment_then_workspace_file_then_user_file(places: tuple[Path, Path]) -> None:
    workspace, user = places
    user.write_text('render = "json"\ndetail = "full"\nstate = "user"\nregistry = "user"\n')
    trust(places, 'detail = "concise"\nstate = "workspace"\nregistry = "workspace"\n')

    found = settle(
        places, {"PERDURE_STATE": "environ", "PERDURE_REGISTRY": "environ"}, registry="option", state=None
    )

    assert (found.render, found.detail) == ("json", "concise")
    assert (found.state, found.registry) == (str(workspace.parent / "environ"), "option")


def test_the_older_names_of_variables_are_read_after_ours(places: tuple[Path, Path], tmp_path: Path) -> None:
    ours, older = tmp_path / "ours", tmp_path / "older"
    ours.mkdir()
    older.mkdir()

    both = {"PERDURE_WORKSPACE": str(ours), "RW_WORKSPACE": str(older), "CHECKPOINT_DB_PATH": "db"}

    assert settle(places, both).workspaces == (str(ours),)
    assert settle(places, {"RW_WORKSPACE": f"{older}:{ours}"}).workspaces == (str(older), str(ours))
    assert settle(places, both).state == str(places[0].parent / "db")


def test_the_workspace_file_may_name_the_workspaces_relative_to_itself(places: tuple[Path, Path]) -> None:
    (places[0].parent / "sub").mkdir()
    trust(places, 'workspace = ["sub", "."]\n')

    found = settle(places)

    assert found.workspaces == (str(places[0].parent / "sub"), str(places[0].parent))


def test_a_mount_that_was_typed_wins_over_one_in_a_file(places: tuple[Path, Path]) -> None:
    trust(places, '[mounts]\na = "from file"\nb = ["with spaces in", "its words"]\n')

    found = settle(places, mount=["a=typed 'two words'", "c-d.e=run"])

    assert {**found.file_mounts, **found.mounts} == {
        "a": ("typed", "two words"),
        "c-d.e": ("run",),
        "b": ("with spaces in", "its words"),
    }


def test_limits_of_both_files_are_merged_and_stay_whole_numbers(places: tuple[Path, Path]) -> None:
    places[1].write_text("[limits]\nqueue = 7\npending = 9\n")
    trust(places, "[limits]\nqueue = 8\nping_s = 0.5\n")

    limits = settle(places).limits

    assert (limits.queue, limits.pending, limits.ping_s) == (8, 9, 0.5)
    assert type(limits.queue) is int


def test_timeouts_are_those_of_the_first_file_that_has_them(places: tuple[Path, Path]) -> None:
    trust(places, "[timeouts]\ncall = 5\n")

    found = settle(places).timeouts

    assert (found.call, found.startup) == (5.0, 30.0)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("colour = 'red'\n", "colour"),
        ("render = 'html'\n", "render"),
        ("render = \n", "line 1"),
        ("[limits]\nnonsense = 1\n", "limits.nonsense"),
        ("[limits]\nqueue = 'many'\n", "limits"),
        ("[limits]\nqueue = 1.5\n", "limits"),
        ("[limits]\nqueue = 0\n", "queue"),
        ("[limits]\nrestarts_per_minute = 0\n", "restarts_per_minute"),
        ("[limits]\nframe_bytes = -1\n", "frame_bytes"),
        ("[limits]\nping_s = nan\n", "ping_s"),
        ("[limits]\nping_s = inf\n", "ping_s"),
        ("[timeouts]\ncall = 0\n", "timeouts.call"),
        ("[timeouts]\nnap = 1\n", "nap"),
        ("workspace = ['missing']\n", "missing"),
        ("[mounts]\na = 'unbalanced \" quote'\n", "mount a"),
        ("[mounts]\na = ''\n", "mount a"),
        ("[mounts]\nperdure = 'x'\n", "perdure"),
        ("[mounts]\na__b = 'x'\n", "a__b"),
        ("[mounts]\n'1a' = 'x'\n", "1a"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_with_its_place(
    places: tuple[Path, Path], text: str, place: str
) -> None:
    trust(places, text)

    with pytest.raises(SettingsError, match=place):
        settle(places)


@pytest.mark.parametrize("text", ["novalue", "a=", "a='open"])
def test_a_mount_that_cannot_be_meant_is_refused(places: tuple[Path, Path], text: str) -> None:
    with pytest.raises(SettingsError, match="mount"):
        settle(places, mount=[text])


def test_two_mounts_of_one_name_are_refused(places: tuple[Path, Path]) -> None:
    with pytest.raises(SettingsError, match="named twice"):
        settle(places, mount=["a=x", "a=y"])


def test_a_file_that_is_not_utf_8_is_refused(places: tuple[Path, Path]) -> None:
    places[0].write_bytes(b"render = '\xff'\n")

    with pytest.raises(SettingsError, match=r"perdure\.toml"):
        settle(places)


def test_surfaces_are_a_list_or_words_with_commas(places: tuple[Path, Path]) -> None:
    assert settle(places, surfaces="write, state").surfaces == ("write", "state")
    places[0].write_text('surfaces = ["state"]\n')
    assert settle(places).surfaces == ("state",)


def test_a_command_is_split_as_a_shell_would_and_no_more() -> None:
    assert split_command("a", "npx -y 'a b' \"c $HOME\" d\\ e ; rm -rf *") == (
        *("npx", "-y", "a b", "c $HOME", "d e"),
        *(";", "rm", "-rf", "*"),
    )


# --- a file that is edited while a session begins must not keep it from beginning ------------------------------


def settle_around_faults(places: tuple[Path, Path]) -> Settings:
    environ = {"XDG_CONFIG_HOME": str(places[1].parent.parent)}
    return load({"workspace": [str(places[0].parent)]}, environ, leave_out_faults=True)


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("render = 'json'\nrender = 'html'\n", 2, "overwrite"),
        ("state = 'a'\nrender = [\n", 3, "Invalid"),
        ("\n[limits]\nqueue = -1\n", 3, "limits.queue"),
        ("\n[serve.limits]\nsessions = -1\n", 3, "serve.limits.sessions"),
        ("\n\ncolour = 'red'\n", 3, "colour"),
        ("[mounts]\ngood = 'x'\nperdure = 'y'\n", 3, "perdure"),
        ("a = 1\nx = " + "[" * 3000 + "]" * 3000 + "\n", 2, "nested too deeply"),
        ("a = 1\nx = " + "9" * 5000 + "\n", 2, "too many digits"),
        ("log-level = 'loud'\n", 1, "debug"),
        ("\nsurfaces = ['paint']\n", 2, "paint"),
        ("\notel = 'ftp://x'\n", 2, "otel"),
    ],
)
def test_a_fault_in_a_file_is_left_out_and_named_with_its_line(
    places: tuple[Path, Path], text: str, line: int, word: str
) -> None:
    places[0].write_text(text)

    with pytest.raises(SettingsError, match=f"line {line}:"):
        settle(places)
    found = settle_around_faults(places)

    assert len(found.faults) == 1
    assert f"{places[0]}, line {line}: " in found.faults[0].detail
    assert word in found.faults[0].detail


def test_what_is_sound_in_a_file_with_a_fault_still_counts(places: tuple[Path, Path]) -> None:
    text = (
        "render = 'json'\ndetail = 5\n[limits]\nqueue = -1\npending = 7\n[mounts]\ngood = 'x y'\nbad = ''\n"
    )
    trust(places, text)

    found = settle_around_faults(places)

    assert found.render == "json"
    assert (found.limits.pending, found.limits.queue) == (7, Settings(("/",)).limits.queue)
    assert found.file_mounts == {"good": ("x", "y")}
    assert len(found.faults) == 3


def test_a_file_whose_policy_cannot_be_read_does_not_allow_what_it_forbids(places: tuple[Path, Path]) -> None:
    places[0].write_text("[policy\n")
    assert settle_around_faults(places).workspace_policy == str(places[0])
    places[0].write_text("policy = 5\n")
    assert settle_around_faults(places).workspace_policy == str(places[0])
    places[0].write_text("colour = 'red'\n")
    assert settle_around_faults(places).workspace_policy is None


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 * 1024 * 1024)


@pytest.mark.parametrize("make", [Path.mkdir, make_fifo, make_loop, make_large])
def test_what_is_no_settings_file_is_named_and_never_waited_for(
    places: tuple[Path, Path], make: Callable[[Path], None]
) -> None:
    make(places[0])

    with pytest.raises(SettingsError, match=str(places[0])):
        settle(places)

    assert str(places[0]) in settle_around_faults(places).faults[0].detail


# --- before the workspace's file is trusted ---------------------------------------------------------------

HOSTILE = """\
workspace = ["/"]
registry = "evil.md"
state = "/tmp/evil.db"
otel = "http://evil.example"
durability = "journal"
policy = "../../evil.yaml"
mounts = {helper = "touch PROOF"}
mount-env = {mine = ["AWS_SECRET_ACCESS_KEY"]}
timeouts = {call = 1e9}
keep = {days = 0}
state-limits = {history-days = 0}
limits = {frame_bytes = 1000000000}
[serve]
host = "0.0.0.0"
"""


def test_nothing_in_a_file_that_is_not_trusted_starts_connects_redirects_or_loosens(
    places: tuple[Path, Path],
) -> None:
    places[0].write_text(HOSTILE)
    user = places[1].parents[1]

    found = settle(places)

    assert found == Settings(workspaces=(str(places[0].parent),))
    assert serve_settings.load({}, {"XDG_CONFIG_HOME": str(user)}, found.workspaces[0]) == Serving()


def test_what_only_tightens_counts_at_once_key_by_key_in_a_mixed_file(places: tuple[Path, Path]) -> None:
    places[0].write_text(
        'durability = "strict"\nrender = "json"\nsurfaces = ["write"]\ntools = "read"\nstate = "evil.db"\n'
        "[policy]\nmax_bytes = 10\n"
    )

    found = settle(places)

    assert (found.durability, found.render) == ("strict", "json")
    assert (found.surfaces, found.tools) == (("write",), ("read",))
    assert found.workspace_policy == str(places[0])
    assert found.state is None


def test_it_cannot_bring_back_what_the_user_left_out(places: tuple[Path, Path]) -> None:
    places[1].write_text('surfaces = ["write"]\ntools = "read"\ndurability = "strict"\n')
    places[0].write_text('surfaces = ["write", "state"]\ntools = "read,undo"\ndurability = "journal"\n')

    found = settle(places)

    assert (found.surfaces, found.tools, found.durability) == (("write",), ("read",), "strict")


def test_one_changed_byte_is_no_longer_trusted(places: tuple[Path, Path]) -> None:
    trust(places, 'state = "here.db"\n')
    assert settle(places).state == str(places[0].parent / "here.db")

    places[0].write_text('state = "here.db"\n\n')

    assert settle(places).state is None


def test_the_users_own_file_is_trusted_and_names_what_is_beside_it(places: tuple[Path, Path]) -> None:
    places[1].write_text('registry = "mine.md"\npolicy = "mine.yaml"\n[mounts]\na = "run"\n')

    found = settle(places)

    assert found.registry == str(places[1].parent / "mine.md")
    assert found.user_policy == str(places[1].parent / "mine.yaml")
    assert found.file_mounts == {"a": ("run",)}


def test_variables_for_a_mount_are_named_with_it(places: tuple[Path, Path]) -> None:
    places[1].write_text('[mount-env]\nb = "B_KEY"\n')

    found = settle(places, mount=["a=run"], mount_env=["a=ONE,TWO", "a=THREE"])

    assert found.mount_env == {"a": ("ONE", "TWO", "THREE"), "b": ("B_KEY",)}
    for wrong in ("a", "a=", "other=ONE"):
        with pytest.raises(SettingsError, match="--mount-env"):
            settle(places, mount=["a=run"], mount_env=[wrong])
