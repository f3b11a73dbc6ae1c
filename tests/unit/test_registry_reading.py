"""Registries as JSON: what is read of them, and what the commands print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.registry import main
from perdure.registry import mcp_json
from perdure.registry.errors import Unreadable

SERVERS = {
    "mcpServers": {
        "files": {"command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "$TOKEN"}, "description": "Files"},
        "search": {"type": "http", "url": "https://search.example/mcp", "disabled": True},
        "broken": {"args": []},
    },
    "perdure": {"allowedCommands": ["npx"]},
}
TEXTS = [
    json.dumps(SERVERS),
    json.dumps(SERVERS, indent=2).replace("\n", "\r\n"),
    "\ufeff" + json.dumps(SERVERS, ensure_ascii=True),
    "{}",
    '{"mcpServers": {}}',
    '{"mcpServers": []}',
    '{"mcpServers": null}',
    '{"mcpServers": {"a": {"command": "x", "n": [1, -0.5e3, true, null, "\\u00e9\\ud83d\\ude00"]}}, "other": {}}',
    '{"mcpServers": {"a": 1, "ü": {}, "": {"command": "x"}}}',
    '{"perdure": {"allowedCommands": 5}}',
    "[]",
    "7",
    '{"mcpServers": {"a": {"command": "x"}}, "deep": ' + "[" * 150 + "]" * 150 + "}",
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text)[:40])
def test_both_ways_to_read_a_json_registry_find_the_same(text: str) -> None:
    root, servers = mcp_json._walked(text)
    assert (root if root is None or servers is None else (root, servers)) == _short(text)


def _short(text: str) -> object:
    found = mcp_json._decoded(text)
    assert found is not None, "the decoder is enough for this one"
    root, servers = found
    if not isinstance(root, dict):
        return None
    return root if servers is None else (root, servers)


@pytest.mark.parametrize(
    "text",
    [
        "{} // c",
        '{"a": 1,}',
        '{"a": 1, "a": 2}',
        '{"mcpServers": {"a": {}, "a": {}}}',
        '{"mcpServers": {"a": NaN}}',
        "{",
        '{"a": "\x01"}',
        "nothing",
        '{"a":' * 3000,
    ],
    ids=lambda text: text[:30],
)
def test_what_the_decoder_alone_would_not_understand_is_left_to_the_longer_way(text: str) -> None:
    assert mcp_json._decoded(text) is None


def test_of_two_servers_with_one_name_the_first_counts_and_the_other_is_told() -> None:
    text = '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}'
    first, second = mcp_json.JsonDocument(text).slots
    assert first.entry is not None
    assert first.entry.command is not None
    assert first.entry.command.text == "x"
    assert (second.entry, second.error) == (None, "duplicate")


def test_the_result_as_json_is_what_the_json_package_would_write(tmp_path: Path) -> None:
    odd = 'quote " back \\ slash / tab \t ü 漢 😀 \x7f'
    servers = {"mcpServers": {"a": {"command": "npx", "description": odd.replace("\t", " ")}}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "registry", "--registry", str(tmp_path), "list", "--json"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    said = done.stdout.decode().rstrip("\n")
    assert said == json.dumps(json.loads(said), ensure_ascii=False, separators=(",", ":"))
    assert json.loads(said)["servers"][0]["description"] == odd.replace("\t", " ")


@pytest.mark.parametrize("depth", [150, 600, 5000, 200_000])
def test_a_json_registry_however_deep_is_read_or_told(depth: int) -> None:
    """How deep it can be read is a matter of the Python that reads it."""
    text = '{"mcpServers": {"a": {"command": "npx", "x": ' + "[" * depth + "/* c */" + "]" * depth + "}}}"
    told = ""
    try:
        found = [slot.name for slot in mcp_json.JsonDocument(text).slots if slot.entry is not None]
    except Unreadable as error:
        told = str(error)
    assert "nested too deeply" in told if told else found == ["a"]
    assert bool(told) == (depth > 1000) or depth == 5000


@pytest.mark.parametrize(
    ("words", "near"),
    [(["sync", "cursr"], "cursor"), (["list", "--jsn"], "--json"), (["instal", "x"], "install")],
    ids=lambda one: str(one),
)
def test_a_slip_is_told_with_what_may_have_been_meant(
    words: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"did you mean {near}?" in capsys.readouterr().err
