"""Registries as JSON: what is read of them, and what the commands print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.registry import main


def test_the_result_as_json_is_what_the_json_package_would_write(tmp_path: Path) -> None:
    odd = 'quote " back \\ slash / tab \t ü 漢 😀 \x7f'
    servers = {"mcpServers": {"a": {"command": "npx", "description": odd.replace("\t", " ")}}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers), encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "perdure",
            "registry",
            "--registry",
            str(tmp_path / "mcp.json"),
            "list",
            "--json",
        ],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    said = done.stdout.decode().rstrip("\n")
    assert said == json.dumps(json.loads(said), ensure_ascii=False, separators=(",", ":"))
    assert json.loads(said)["servers"][0]["description"] == odd.replace("\t", " ")


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
