"""Servers that speak only 2026-07-28, mounted: real processes that answer `initialize` in every way seen so far."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from perdure.testing import fake_server
from perdure.testing.http_client import ServeProcess
from testbed import ERAS, Bed, Era

CODES = [-32020, -32021, -32022, -32600, -32601, -32602, -1]


@pytest.mark.parametrize("code", CODES)
def test_a_2026_server_is_mounted_whatever_error_it_answers_to_initialize(bed: Bed, code: int) -> None:
    client = bed.run(bed.fake("--era=modern", f"--initialize-error={code}"))
    assert client.use_text("fake__echo", {"text": "hello"}) == "hello"
    assert client.row("fake")["state"] == "ready"


@pytest.mark.parametrize("era", ERAS)
def test_a_2026_server_that_does_not_answer_initialize_is_mounted(bed: Bed, era: Era) -> None:
    bed.settings("[limits]\nera_s = 0.2\n")
    client = bed.run(bed.fake("--era=modern", "--hang-at=initialize"), era=era)
    assert client.use_text("fake__echo", {"text": "hello"}) == "hello"


@pytest.mark.thorough
def test_the_next_host_opens_it_in_the_era_that_worked(bed: Bed) -> None:
    server = bed.fake("--era=modern", "--hang-at=initialize")
    bed.settings("[limits]\nera_s = 0.2\n")
    assert bed.run(server).use_text("fake__echo", {"text": "hello"}) == "hello"
    bed.settings("[limits]\nera_s = 1000\n[timeouts]\nstartup = 2000\n")
    assert bed.run(server).use_text("fake__echo", {"text": "again"}) == "again"


@pytest.mark.thorough
def test_every_session_of_serve_uses_a_2026_server(tmp_path: Path) -> None:
    fake = [sys.executable, "-S", fake_server.__file__, "--era=modern", "--initialize-error=-32600"]
    served = ServeProcess(tmp_path, "--mount", f"fake={shlex.join(fake)}")
    try:
        for number in range(2):
            client = served.client()
            client.initialize()
            assert client.call("fake__echo", {"text": f"{number}"})["content"][0]["text"] == f"{number}"
    finally:
        assert served.stop() == 0
