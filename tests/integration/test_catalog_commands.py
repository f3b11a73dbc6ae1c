"""`perdure registry search`, `install --from`, `outdated`, `update` as people type them, against real catalogs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pty
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog_servers import OFFICIAL, Asked, Scripted, official, record, reply, scripted
from command_line import run_command

SAMPLE = json.loads((Path(__file__).resolve().parents[1] / "catalog_sample.json").read_text())
SECRET = "s3cr3t-Zx9yW8vU7tS6rQ5pO4"


class Desk:
    """A folder with a registry, and the command to use it."""

    def __init__(self, folder: Path, server: Scripted, records: list[dict[str, Any]]) -> None:
        self.folder, self.server, self.records = folder, server, records
        self.output: list[str] = []

    def env(self, **more: str) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE")}
        return {
            **known,
            "PERDURE_HOME": str(self.folder / "home"),
            "PERDURE_REGISTRY": str(self.folder / "mcp.md"),
            "PERDURE_CATALOG": self.server.url,
            **more,
        }

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        done = run_command("registry", *words, env=self.env(**env), cwd=self.folder)
        self.output.append(done.stdout + done.stderr)
        return done

    def json(self, *words: str, **env: str) -> Any:
        done = self.run(*words, "--json", **env)
        return json.loads(done.stdout)

    @property
    def text(self) -> str:
        return (self.folder / "mcp.md").read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    records = json.loads(json.dumps(SAMPLE))
    for one in records:
        one.setdefault("_meta", {OFFICIAL: {"status": "active", "updatedAt": "", "isLatest": True}})
    with scripted(official(records)) as server:
        yield Desk(tmp_path, server, records)


# --- search -------------------------------------------------------------------------------------------------------


def test_a_search_shows_names_versions_and_how_they_run(desk: Desk) -> None:
    done = desk.run("search", "weather")
    assert done.returncode == 0
    assert "io.test.acme/weather  1.2.3    npm" in done.stdout
    found = desk.json("search", "weather", "--limit", "1")
    assert [one["name"] for one in found["servers"]] == ["io.test.acme/weather"]
    assert found["stale"] is False


def test_a_search_without_a_hit_is_no_failure_and_says_so(desk: Desk) -> None:
    done = desk.run("search", "zzzz", "yyyy")
    assert (done.returncode, done.stdout) == (0, f"No server in {desk.server.url} matches: zzzz yyyy\n")
    assert desk.json("search", "zzzz")["servers"] == []


@pytest.mark.parametrize(
    "words", [["search"], ["search", "x", "--limit", "0"], ["search", "x", "--limit", "y"]]
)
def test_a_search_for_nothing_is_a_usage_error(desk: Desk, words: list[str]) -> None:
    assert desk.run(*words).returncode == 2


def test_a_catalog_that_is_not_there_exits_with_4(desk: Desk) -> None:
    assert desk.run("search", "x", "--catalog", "http://127.0.0.1:1/").returncode == 4
    assert desk.json("search", "x", "--catalog", "http://127.0.0.1:1/")["error"] == "unavailable"


def test_a_catalog_without_encryption_is_a_usage_error(desk: Desk) -> None:
    assert desk.run("search", "x", "--catalog", "http://catalog.test/").returncode == 2


@pytest.mark.parametrize("status", [401, 500])
def test_a_catalog_that_refuses_or_fails_exits_with_4(desk: Desk, status: int) -> None:
    desk.server.answer = lambda asked: reply(status, {"error": "no"})
    assert desk.run("search", "x").returncode == 4
    assert desk.run("install", "--from", "a.b/c").returncode == 4


def test_offline_the_copy_answers_with_its_age(desk: Desk) -> None:
    desk.run("search", "weather")
    desk.server.answer = lambda asked: reply(503, {})
    done = desk.run("search", "weather")
    assert done.returncode == 0
    assert "io.test.acme/weather" in done.stdout
    assert "old" in done.stderr
    assert desk.json("search", "weather")["stale"] is True


# --- install --from -------------------------------------------------------------------------------------------------


def test_a_server_is_installed_pinned_with_its_inputs_as_references(desk: Desk) -> None:
    found = desk.json("install", "--from", "io.test.acme/weather")
    assert found["installed"] == "weather"
    assert found["unset"] == ["CITY", "WEATHER_KEY"]
    shown = desk.json("show", "weather")
    assert (shown["command"], shown["args"][:2]) == ("npx", ["-y", "@acme/weather@1.2.3"])
    assert shown["env"]["WEATHER_KEY"] == "$WEATHER_KEY"
    assert shown["provenance"]["name"] == "io.test.acme/weather"
    assert shown["provenance"]["version"] == "1.2.3"


def test_a_full_name_alone_is_one_of_the_catalog(desk: Desk) -> None:
    """As a search shows it: whoever reads that types it."""
    assert desk.json("install", "io.test.acme/weather@1.2.3")["version"] == "1.2.3"
    assert desk.run("install", "io.test.acme/nothing").returncode == 1
    for words in (["../x"], ["a/b", "--", "npx"], ["a/b/c"], ["a/b", "--url", "https://x.test"]):
        assert desk.run("install", *words).returncode == 2


def test_an_exact_version_can_be_named(desk: Desk) -> None:
    old = record("io.test.acme/weather", "1.0.0", is_latest=False)
    old["server"]["packages"] = SAMPLE[0]["server"]["packages"]
    desk.records.append(old)
    assert desk.json("install", "--from", "io.test.acme/weather@1.0.0")["version"] == "1.0.0"
    assert desk.run("install", "--from", "io.test.acme/weather@9.9.9", "--as", "x").returncode == 1


def test_a_name_that_is_not_in_the_catalog_exits_with_1(desk: Desk) -> None:
    assert desk.run("install", "--from", "io.test.acme/nothing").returncode == 1
    assert not (desk.folder / "mcp.md").exists()


@pytest.mark.thorough
def test_a_name_that_is_taken_exits_with_3_and_a_short_name_gives_way(desk: Desk) -> None:
    desk.run("install", "weather", "--", "python", "x.py")
    assert desk.run("install", "--from", "io.test.acme/weather", "--as", "weather").returncode == 3
    assert desk.json("install", "--from", "io.test.acme/weather")["installed"] == "acme-weather"
    assert desk.run("install", "--from", "io.test.acme/weather").returncode == 3
    assert desk.json("install", "--from", "com.acme/mcp")["installed"] == "acme"
    assert desk.json("install", "--from", "com.other/mcp")["installed"] == "other"


@pytest.mark.parametrize("name", ["a b", "../x", "a\nb", ".x", ""])
def test_a_bad_name_is_a_usage_error_before_anything_is_asked(desk: Desk, name: str) -> None:
    assert desk.run("install", "--from", "io.test.acme/weather", "--as", name).returncode == 2
    assert desk.server.asked == []


def test_what_cannot_be_run_exits_with_1_and_says_why(desk: Desk) -> None:
    done = desk.run("install", "--from", "io.test.acme/unpinned")
    assert done.returncode == 1
    assert "no exact version" in done.stderr


def test_inputs_can_be_given(desk: Desk) -> None:
    done = desk.run(
        *(
            "install",
            "--from",
            "io.test.acme/weather",
            "--env",
            "CITY=Oslo, Norway",
            "--env",
            "WEATHER_KEY=$MY_KEY",
        ),
        *("--env", "VERBOSE=true", "--env", "HTTPS_PROXY=$HTTPS_PROXY", "--arg", "--last"),
    )
    assert done.returncode == 0, done.stderr
    shown = desk.json("show", "weather")
    assert shown["args"][2:] == ["Oslo, Norway", "--units", "metric", "--verbose", "--last"]
    assert shown["env"]["WEATHER_KEY"] == "$MY_KEY"
    assert shown["env"]["HTTPS_PROXY"] == "$HTTPS_PROXY"


@pytest.mark.parametrize("given", [f"WEATHER_KEY={SECRET}", "UNITS=kelvin", "VERBOSE=perhaps", "nonsense"])
def test_an_input_that_cannot_be_meant_exits_with_2_and_names_it(desk: Desk, given: str) -> None:
    done = desk.run("install", "--from", "io.test.acme/weather", "--env", given)
    assert done.returncode == 2
    assert given.partition("=")[0] in done.stderr or "NAME=VALUE" in done.stderr
    assert SECRET not in done.stderr
    assert not (desk.folder / "mcp.md").exists()


def test_options_of_the_other_way_to_install_are_refused(desk: Desk) -> None:
    assert desk.run("install", "--from", "io.test.acme/weather", "--", "python").returncode == 2
    assert desk.run("install", "x", "--as", "y", "--", "python").returncode == 2
    assert desk.run("install").returncode == 2


def test_a_tiered_catalog_gives_its_entries_as_they_are(desk: Desk) -> None:
    def answer(asked: Asked) -> bytes:
        match asked.parts:
            case ["capabilities"]:
                return reply(200, {"tier": 3})
            case ["mcp-servers", "tables"]:
                return reply(
                    200, {"name": "tables", "command": "python", "args": ["t.py"], "env": {"K": "$K"}}
                )
        return reply(404, {})

    desk.server.answer = answer
    assert desk.json("install", "--from", "tables")["installed"] == "tables"
    assert desk.json("show", "tables")["env"] == {"K": "$K"}
    assert desk.run("install", "--from", "other").returncode == 1


def test_on_a_terminal_the_user_is_asked_and_a_secret_is_a_name(desk: Desk) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "perdure.cli.main", "registry", "install", "--from", "io.test.acme/weather"],
        env=desk.env(MY_KEY=SECRET),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=desk.folder,
    )
    os.close(theirs)
    os.write(ours, b"Oslo\n")  # the city
    os.write(ours, b"sk_pasted_by_mistake\n")  # not the name of a variable
    os.write(ours, b"MY_KEY\n")
    assert child.wait(30) == 0
    seen = os.read(ours, 65536).decode()
    os.close(ours)
    assert "Which city" in seen
    assert "no variable of that name" in seen
    shown = desk.json("show", "weather")
    assert shown["args"][2] == "Oslo"
    assert shown["env"]["WEATHER_KEY"] == "$MY_KEY"
    assert SECRET not in desk.text + seen


# --- outdated and update ----------------------------------------------------------------------------------------------


def newer(desk: Desk, version: str, **changes: Any) -> None:
    """The catalog has a new version of the weather."""
    for one in desk.records:
        if one["server"]["name"] == "io.test.acme/weather":
            one["_meta"][OFFICIAL]["isLatest"] = False
    package = {**SAMPLE[0]["server"]["packages"][0], "version": version, **changes}
    desk.records.append(record("io.test.acme/weather", version, packages=[package]))


@pytest.mark.thorough
def test_what_has_a_newer_version_is_told_and_taken(desk: Desk) -> None:
    desk.run("install", "--from", "io.test.acme/weather")
    assert desk.json("outdated") == {"outdated": [], "checked": 1}
    newer(desk, "2.0.0")
    assert desk.json("outdated")["outdated"][0]["latest"] == "2.0.0"
    assert desk.json("update", "weather")["to"] == "2.0.0"
    assert "@acme/weather@2.0.0" in desk.json("show", "weather")["args"]
    assert desk.json("outdated")["outdated"] == []
    assert desk.json("update", "weather")["updated"] is False


def test_a_version_that_is_ahead_of_the_catalog_stays(desk: Desk) -> None:
    newer(desk, "2.0.0-rc.1")
    desk.run("install", "--from", "io.test.acme/weather")
    desk.records.pop()
    desk.records[0]["_meta"][OFFICIAL]["isLatest"] = True
    assert desk.json("outdated")["outdated"] == []
    assert desk.json("update", "weather")["updated"] is False


def test_an_update_keeps_what_the_user_made_of_it(desk: Desk) -> None:
    desk.run(
        "install",
        "--from",
        "io.test.acme/weather",
        "--env",
        "CITY=Oslo",
        "--env",
        "MORE=$MORE",
        "--arg",
        "--x",
    )
    desk.run("disable", "weather")
    newer(desk, "2.0.0", environmentVariables=[{"name": "FRESH", "isRequired": True}])
    assert "new: FRESH" in desk.json("update", "weather")["notes"]
    shown = desk.json("show", "weather")
    assert shown["args"] == ["-y", "@acme/weather@2.0.0", "Oslo", "--units", "metric", "--x"]
    assert shown["env"]["MORE"] == "$MORE"
    assert shown["env"]["FRESH"] == "$FRESH"
    assert shown["enabled"] is False


def test_an_update_takes_new_arguments_where_the_old_ones_were_left_alone(desk: Desk) -> None:
    desk.run("install", "--from", "io.test.acme/weather")
    newer(desk, "2.0.0", packageArguments=[{"type": "positional", "value": "serve"}])
    desk.run("update", "weather")
    assert desk.json("show", "weather")["args"] == ["-y", "@acme/weather@2.0.0", "serve"]


def test_a_remote_server_that_was_changed_is_updated_around_the_change(desk: Desk) -> None:
    desk.run("install", "--from", "com.acme/mcp", "--env", "REGION=us", "--header", "X-Mine=$MINE")
    remote = json.loads(json.dumps(desk.records[4]))
    desk.records[4]["_meta"][OFFICIAL]["isLatest"] = False
    remote["server"]["version"] = "1.1.0"
    remote["server"]["remotes"][0]["headers"].append({"name": "X-New", "isRequired": True})
    desk.records.append(remote)
    assert desk.json("update", "acme")["notes"] == ["new: X-New"]
    shown = desk.json("show", "acme")
    assert shown["url"] == "https://us.acme.test/mcp"
    assert shown["headers"]["X-Mine"] == "$MINE"
    assert shown["provenance"]["version"] == "1.1.0"


@pytest.mark.thorough
def test_what_did_not_come_from_a_catalog_is_not_updated(desk: Desk) -> None:
    desk.run("install", "mine", "--", "python", "x.py")
    assert desk.run("update", "mine").returncode == 1
    assert desk.run("update", "absent").returncode == 1


def test_what_cannot_be_asked_is_not_called_up_to_date(desk: Desk) -> None:
    desk.run("install", "--from", "io.test.acme/weather")
    desk.server.answer = lambda asked: reply(401, {})
    done = desk.run("outdated")
    assert done.returncode == 4
    assert "unknown" in done.stdout


def test_a_server_that_left_the_catalog_is_told(desk: Desk) -> None:
    desk.run("install", "--from", "io.test.acme/weather")
    del desk.records[0]
    assert [one["status"] for one in desk.json("outdated")["outdated"]] == ["gone"]


# --- bundles -----------------------------------------------------------------------------------------------------------


def bundle(manifest: Any, **files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


MANIFEST = {
    "server": {
        "type": "python",
        "entry_point": "server/main.py",
        "mcp_config": {
            "command": "python3",
            "args": [
                "${__dirname}/server/main.py",
                "--dir=${user_config.allowed_dir}",
                "--level=${user_config.level}",
            ],
            "env": {"API_KEY": "${user_config.api_key}"},
        },
    },
    "user_config": {
        "allowed_dir": {"type": "directory", "title": "Folder", "required": True},
        "level": {"type": "string", "default": "info"},
        "api_key": {"type": "string", "sensitive": True, "required": True},
    },
}


def offer(desk: Desk, data: bytes, digest: str = "") -> None:
    usual = desk.server.answer
    sha256 = digest or hashlib.sha256(data).hexdigest()
    package = {
        "registryType": "mcpb",
        "identifier": f"{desk.server.url}/files/acme.mcpb",
        "fileSha256": sha256,
        "transport": {"type": "stdio"},
    }
    desk.records.append(record("io.test.acme/bundle", packages=[package]))
    desk.server.answer = lambda asked: (
        reply(200, data, content_type="application/zip") if asked.parts[0] == "files" else usual(asked)
    )


def test_a_bundle_is_checked_unpacked_and_started_as_its_manifest_says(desk: Desk) -> None:
    offer(desk, bundle(MANIFEST, **{"server/main.py": "print('hello')"}))
    found = desk.json("install", "--from", "io.test.acme/bundle")
    assert found["installed"] == "bundle"
    shown = desk.json("show", "bundle")
    folder = desk.folder / "home" / "bundles"
    assert shown["command"] == "python3"
    assert shown["args"][0].startswith(str(folder))
    assert shown["args"][1:] == ["--dir=$ALLOWED_DIR", "--level=info"]
    assert shown["env"] == {"API_KEY": "$API_KEY"}
    assert shown["provenance"]["digest"].startswith("sha256:")
    assert next(folder.glob("*/manifest.json")).stat().st_mode & 0o077 == 0


def test_a_bundle_with_another_hash_is_not_even_unpacked(desk: Desk) -> None:
    offer(desk, bundle(MANIFEST), digest="0" * 64)
    done = desk.run("install", "--from", "io.test.acme/bundle")
    assert done.returncode == 1
    assert "not the one that was published" in done.stderr
    assert list((desk.folder / "home" / "bundles").iterdir()) == []
    assert not (desk.folder / "mcp.md").exists()


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "C:evil"])
def test_a_name_that_leads_out_of_a_bundle_is_refused(desk: Desk, name: str) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("manifest.json", json.dumps(MANIFEST))
        archive.writestr(zipfile.ZipInfo(name), "evil")
    offer(desk, out.getvalue())
    assert desk.run("install", "--from", "io.test.acme/bundle").returncode == 1
    assert not list(desk.folder.rglob("evil"))


def test_a_link_in_a_bundle_is_refused(desk: Desk) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    offer(desk, out.getvalue())
    assert desk.run("install", "--from", "io.test.acme/bundle").returncode == 1


def doubled() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a name is there twice
        archive.writestr("manifest.json", json.dumps(MANIFEST))
        archive.writestr("manifest.json", json.dumps(MANIFEST))
    return out.getvalue()


def damaged(method: int) -> bytes:
    """A bundle in which one member's compressed data is not what its compressor made."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("manifest.json", json.dumps(MANIFEST) * 50)
    data = bytearray(out.getvalue())
    at = data.index(b"manifest.json") + len("manifest.json")
    data[at + 8 : at + 40] = b"\xff" * 32
    return bytes(data)


BAD_BUNDLES = {
    "a member twice": doubled,
    "a file where a folder is": lambda: bundle(MANIFEST, **{"server": "x", "server/main.py": "y"}),
    "a name that is too long": lambda: bundle(MANIFEST, **{"a" * 300: "x"}),
    "damaged deflate": lambda: damaged(zipfile.ZIP_DEFLATED),
    "damaged bzip2": lambda: damaged(zipfile.ZIP_BZIP2),
    "damaged lzma": lambda: damaged(zipfile.ZIP_LZMA),
    "half of it": lambda: bundle(MANIFEST)[:-30],
}


@pytest.mark.parametrize("kind", BAD_BUNDLES)
def test_a_damaged_bundle_is_refused_in_words(desk: Desk, kind: str) -> None:
    offer(desk, BAD_BUNDLES[kind]())
    done = desk.run("install", "--from", "io.test.acme/bundle")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "bundle" in done.stderr
    assert list((desk.folder / "home" / "bundles").iterdir()) == []


def test_a_bundle_is_not_started_through_a_shell(desk: Desk) -> None:
    offer(desk, bundle({"server": {"mcp_config": {"command": "/bin/sh", "args": ["-c", "x"]}}}))
    done = desk.run("install", "--from", "io.test.acme/bundle")
    assert done.returncode == 1
    assert "shell" in done.stderr


@pytest.mark.parametrize("data", [b"not a zip", b"\x7fELF", b""])
def test_a_file_that_is_no_bundle_is_refused(desk: Desk, data: bytes) -> None:
    offer(desk, data)
    assert desk.run("install", "--from", "io.test.acme/bundle").returncode == 1


# --- secrets -------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_no_command_shows_a_secret_of_the_environment_or_of_a_url(desk: Desk) -> None:
    env = {
        "WEATHER_KEY": SECRET,
        "CITY": SECRET,
        "ACME_API_KEY": SECRET,
        "PERDURE_CATALOG_TOKEN": SECRET,
        "PERDURE_CATALOG": desk.server.url.replace("//", f"//user:{SECRET}@"),
        "PERDURE_REGISTRY_TOKEN": SECRET,
    }
    for more in ([], ["--json"]):
        for words in (
            *(
                ["search", "weather"],
                ["install", "--from", "io.test.acme/weather"],
                ["show", "weather"],
                ["list"],
            ),
            *(["install", "--from", "com.acme/mcp"], ["install", "--from", "io.test.acme/container"]),
            *(["install", "--from", "io.test.acme/unpinned"], ["install", "--from", "a.b/c"], ["outdated"]),
            *(
                ["update", "weather"],
                ["validate"],
                ["search", "x", "--catalog", f"http://u:{SECRET}@127.0.0.1:1/"],
            ),
            ["search", "x", "--catalog", f"http://u:{SECRET}@catalog.test/?k={SECRET}"],
            ["install", "--from", "io.test.acme/weather", "--as", "z", "--env", f"WEATHER_KEY={SECRET}"],
            ["--registry", f"http://u:{SECRET}@127.0.0.1:1/?k={SECRET}", "list"],
        ):
            desk.run(*words, *more, **env)
    assert SECRET in desk.server.asked[0].headers["authorization"]
    assert all(SECRET not in text for text in desk.output)
    for file in desk.folder.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file
