"""The documents hold together: every link leads somewhere, every command and option exists, nothing is left out."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from document_blocks import PAGES, blocks
from perdure.cli.completion import Node, tree
from perdure.host.serve_options import OAuthFile, ServeFile, ServeLimits
from perdure.host.settings_file import FileSettings, Timeouts
from perdure.protocol import envelope, faults
from perdure.protocol.mounts import Limits
from perdure.storage.state_limits import StateLimits
from perdure.workspace.retention_limits import Keep

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
REFERENCE = "\n".join(path.read_text() for path in DOCUMENTS if "docs" in path.parts)
# Between processes of ours, or for tests alone.
INTERNAL = {
    "PERDURE_BRIDGE",
    "PERDURE_CLIENT_PROCESS",
    "PERDURE_FAULT",
    "PERDURE_GUARDED",
    "PERDURE_RESUME",
    "PERDURE_RESUME_TRIAL",
    "PERDURE_SEEDED_BUG",
    "PERDURE_TEST_MARK",
    "PERDURE_TEST_POSTGRES",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(text: str) -> set[str]:
    """What headings can be linked as."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", head.replace("`", "").lower()).replace(" ", "-") for head in heads}


def broken_links(path: Path, text: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        file = (path.parent / place).resolve() if place else path
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            yield target


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    assert list(broken_links(path, path.read_text())) == []


def test_a_link_that_leads_nowhere_would_be_found() -> None:
    text = "[a](README.md) [b](nothing.md) [c](README.md#nothing) [d](https://example.org)"
    assert list(broken_links(ROOT / "CHANGELOG.md", text)) == ["nothing.md", "README.md#nothing"]


# --- commands -------------------------------------------------------------------------------------------------


def written_commands(text: str) -> Iterator[list[str]]:
    """Every `perdure …` of a code block, as words."""
    for block in re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, re.S | re.M):
        for line in block.splitlines():
            found = re.search(r"(?:^|[|&;] ?)(?:\$ )?perdure (?!\w+:)([^#|>&]*)", line)
            if found is not None:
                yield shlex.split(found[1].replace("'", " ").replace('"', " "))


def unknown_words(root: Node, words: list[str]) -> Iterator[str]:
    """Commands and options that there are not. What follows `--` is another program's."""
    node, known = root, {flag for option in root.options for flag in option.flags}
    for word in words:
        if word == "--":
            return
        below = {one.name: one for one in node.commands}
        if word in below:
            node = below[word]
            known |= {flag for option in node.options for flag in option.flags}
        elif (word.partition("=")[0] not in known) if word.startswith("-") else node is root:
            yield word


@pytest.fixture(scope="module")
def root() -> Node:
    return tree()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_command_that_is_written_there_exists(path: Path, root: Node) -> None:
    if path.name == "commands.md":
        return  # that one is generated from the commands
    wrong = [
        (words, list(found))
        for words in written_commands(path.read_text())
        if (found := list(unknown_words(root, words))) and not words[0].startswith("[")
    ]
    assert wrong == []


def test_a_command_or_option_that_there_is_not_would_be_found(root: Node) -> None:
    text = "```\nperdure frobnicate\nperdure verify --hard\nperdure state list --prefix x\n```\n"
    found = [list(unknown_words(root, words)) for words in written_commands(text)]
    assert found == [["frobnicate"], ["--hard"], []]


# --- code blocks ----------------------------------------------------------------------------------------------

# `tests/integration/test_how_tos_run.py` runs all other commands of the tutorial and the how-tos.
NOT_RUN = {
    "how-to/back-up-and-clean-up.md": ["would remove the package under test"],
    "how-to/keep-a-registry.md": ["asks on a terminal", "needs a remote server", "needs a remote server"],
    "how-to/run-a-team-catalog.md": [
        "listens on all addresses",
        "needs the catalog of another machine",
        "needs the catalog of another machine",
    ],
    "how-to/run-headless.md": [
        "needs a package index",
        "needs a container runtime",
        "needs a container runtime",
        "needs another machine",
        "needs systemd",
    ],
    "how-to/serve-many-clients.md": ["needs a package index and an authorization server"],
    "how-to/share-state-between-agents.md": [
        "needs a package index and a database",
        "needs a database; the PostgreSQL page runs the same commands",
    ],
    "how-to/trace-with-opentelemetry.md": ["needs a package index and a collector"],
    "how-to/upgrade.md": ["needs a package index"],
    "how-to/install-in-every-agent.md": ["needs the client", "needs the client", "needs npm"],
    "how-to/use-postgresql.md": ["needs a database administrator", "needs a package index"],
}


def test_the_commands_that_no_test_runs_are_known_with_their_reasons() -> None:
    found: dict[str, list[str]] = {}
    for block in (block for path in PAGES for block in blocks(path)):
        assert block.mark in ("", "background") or block.reason_not_run, block
        if block.is_command and block.reason_not_run:
            found.setdefault(block.page, []).append(block.reason_not_run)
    assert found == NOT_RUN


def test_every_block_is_seen() -> None:
    for path in PAGES:
        assert len(blocks(path)) * 2 == len(re.findall(r"^ *```", path.read_text(), re.M)), path


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_json_and_toml_in_a_document_can_be_read(path: Path) -> None:
    for language, text in re.findall(r"^```(json|toml)\n(.*?)^```", path.read_text(), re.S | re.M):
        if language == "json":
            msgspec.json.decode(text)
        else:
            msgspec.toml.decode(text, type=FileSettings)


# --- nothing left out --------------------------------------------------------------------------------------------


def settings_keys() -> set[str]:
    found = {field.encode_name for field in msgspec.structs.fields(FileSettings)}
    for part in (Timeouts, Keep, StateLimits, ServeFile, OAuthFile, ServeLimits):
        found |= {field.encode_name for field in msgspec.structs.fields(part)}
    return found | {field.name for field in msgspec.structs.fields(Limits)}


def variables() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "src" / "perdure").rglob("*.py"):
        found |= set(
            re.findall(r"[\"'`](?:(?:PERDURE|RW)_[A-Z_]+|CHECKPOINT_DB_PATH)[\"'`]", path.read_text())
        )
    return {one[1:-1] for one in found} - INTERNAL


def errors() -> set[str]:
    kinds: tuple[Any, ...] = (envelope.ErrorKind, envelope.ReasonHint, envelope.SuggestedAction)
    kinds += (faults.FaultClass, faults.Outcome, faults.Retry)
    words = {str(word) for kind in kinds for word in get_args(kind)}
    return words | {
        str(value) for value in vars(faults).values() if isinstance(value, int) and value < -31000
    }


def undocumented(words: set[str], text: str) -> list[str]:
    return sorted(word for word in words if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w])", text) is None)


def test_every_setting_is_documented() -> None:
    text = "\n".join((ROOT / "docs" / "reference" / one).read_text() for one in ("settings.md", "limits.md"))
    assert undocumented(settings_keys(), text) == []


def test_every_variable_that_is_read_is_documented() -> None:
    assert {"PERDURE_HOME", "PERDURE_STATE", "RW_POLICY_FILE"} <= variables()
    assert undocumented(variables(), REFERENCE) == []


def test_the_readme_lists_every_extra_and_none_is_for_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = set(project["project"]["optional-dependencies"])
    assert extras == set(re.findall(r"^\| `perdure\[(\w+)\]` \|", (ROOT / "README.md").read_text(), re.M))
    assert extras.isdisjoint(project["dependency-groups"])


def test_every_error_is_documented() -> None:
    assert undocumented(errors(), (ROOT / "docs" / "reference" / "errors.md").read_text()) == []


def test_what_is_left_out_would_be_found() -> None:
    assert undocumented({"state", "no-such-setting"}, "the state") == ["no-such-setting"]
    assert undocumented({"-31094"}, "code -310940") == ["-31094"]


def test_every_document_can_be_found_from_the_readme() -> None:
    seen, left = set(), [ROOT / "README.md"]
    while left:
        path = left.pop()
        if path in seen:
            continue
        seen.add(path)
        for target in re.findall(r"\]\(([^)\s#]+\.md)(?:#[^)]*)?\)", path.read_text()):
            left.append((path.parent / target).resolve())
    assert [name(path) for path in DOCUMENTS if path not in seen] == []
