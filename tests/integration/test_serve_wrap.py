"""`perdure serve --wrap`: the server in its client's era, one process for each era that it speaks."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import fake_server
from perdure.testing.http_client import ServeProcess


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServeProcess]:
    command = (sys.executable, "-S", fake_server.__file__, f"--era={request.param}")
    process = ServeProcess(tmp_path, "--wrap", shlex.join(command))
    yield process
    assert process.stop() == 0


def both(served: ServeProcess) -> dict[str, Any]:
    """What the server says of itself to a client of each era."""
    old = served.client()
    old.initialize()
    found = {"handshake": old.call("whoami", {})}
    answer = served.client().modern("tools/call", {"name": "whoami", "arguments": {}})
    assert answer.status == 200, answer.body
    found["modern"] = answer.last["result"]
    return {era: result["structuredContent"] for era, result in found.items()}


@pytest.mark.parametrize("served", ["both"], indirect=True)
def test_a_server_of_both_eras_speaks_each_with_its_clients(served: ServeProcess) -> None:
    said = both(served)
    assert {era: one["era"] for era, one in said.items()} == {"handshake": "handshake", "modern": "modern"}
    assert said["handshake"]["pid"] != said["modern"]["pid"]


@pytest.mark.parametrize("served", ["handshake", "modern"], indirect=True)
def test_a_server_of_one_era_serves_clients_of_both(served: ServeProcess, request: Any) -> None:
    era = request.node.callspec.params["served"]
    assert {one["era"] for one in both(served).values()} == {era}


@pytest.mark.thorough
@pytest.mark.parametrize("served", ["handshake"], indirect=True)
def test_a_server_known_to_speak_only_the_handshake_is_one_process_for_everybody(
    served: ServeProcess,
) -> None:
    both(served)
    served.restart()
    said = both(served)
    assert said["handshake"]["pid"] == said["modern"]["pid"]


@pytest.mark.parametrize("served", ["both"], indirect=True)
def test_what_2026_removed_is_not_found(served: ServeProcess) -> None:
    for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        answer = served.client().modern(method, {"uri": "fake://a"} if "resources" in method else {})
        assert (answer.status, answer.last["error"]["code"]) == (404, -32601), method
