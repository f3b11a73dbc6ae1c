"""A second session opens with what the last one learned, before its servers are up."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from testbed import Bed, Server

CHANGED = "notifications/tools/list_changed"


class Gate:
    """A server that starts only while the gate is open. Its command never changes, so its catalog is found."""

    def __init__(self, bed: Bed, *options: str) -> None:
        fake = bed.fake(*options)
        self.path: Path = bed.root / "gate"
        script = f"while [ -e {self.path} ]; do sleep 0.02; done; exec {shlex.join(fake.argv)}"
        self.server = Server("fake", ("sh", "-c", script), fake.ledgers)

    def shut(self) -> None:
        self.path.touch()

    def open(self) -> None:
        self.path.unlink()


def test_a_second_session_lists_the_tools_while_the_server_still_starts(bed: Bed) -> None:
    gate = Gate(bed)
    first = bed.run(gate.server)
    names = first.names()
    assert first.close() == 0
    gate.shut()
    second = bed.run(gate.server)
    assert second.names() == names
    assert second.names("prompts/list", "prompts")[-1] == "fake__greet"
    assert second.row("fake")["state"] == "starting"
    call = second.begin_use("fake__echo", {"text": "early"})
    gate.open()
    assert second.wait(call)["result"]["structuredContent"] == {"text": "early"}
    # The fresh catalog is the same: there is nothing to tell.
    assert second.notifications == []


@pytest.mark.thorough
def test_a_catalog_that_changed_meanwhile_is_announced(bed: Bed) -> None:
    catalog = bed.root / "catalog.json"
    catalog.write_text(json.dumps({"tools": ["old_tool"]}))
    gate = Gate(bed, f"--catalog={catalog}")
    first = bed.run(gate.server)
    assert "fake__old_tool" in first.names()
    assert first.close() == 0
    catalog.write_text(json.dumps({"tools": ["new_tool"]}))
    gate.shut()
    second = bed.run(gate.server)
    assert "fake__old_tool" in second.names()
    gate.open()
    second.wait_notification(CHANGED)
    names = second.names()
    assert "fake__new_tool" in names
    assert "fake__old_tool" not in names


@pytest.mark.thorough
def test_a_2026_client_hears_of_it_on_its_stream(bed: Bed) -> None:
    catalog = bed.root / "catalog.json"
    catalog.write_text(json.dumps({"tools": ["old_tool"]}))
    gate = Gate(bed, f"--catalog={catalog}")
    first = bed.run(gate.server, era="modern")
    first.names()
    assert first.close() == 0
    catalog.write_text(json.dumps({"tools": ["new_tool"]}))
    gate.shut()
    second = bed.run(gate.server, era="modern")
    second.listen({"toolsListChanged": True})
    assert "fake__old_tool" in second.names()
    gate.open()
    second.wait_notification(CHANGED)
    assert "fake__new_tool" in second.names()


def test_a_wrapped_server_is_introduced_before_it_is_up(bed: Bed) -> None:
    gate = Gate(bed, "--name=behind")
    first = bed.start(bed.wrap_command(gate.server))
    said = first.initialize()
    assert first.close() == 0
    gate.shut()
    second = bed.start(bed.wrap_command(gate.server))
    assert second.initialize() == said
    assert "echo" in second.names()
    gate.open()
    assert second.use_text("echo", {"text": "hi"}) == "hi"


@pytest.mark.thorough
def test_what_was_learned_under_another_command_is_not_used(bed: Bed) -> None:
    catalog = bed.root / "catalog.json"
    catalog.write_text(json.dumps({"tools": ["special"]}))
    first = bed.run(bed.fake(f"--catalog={catalog}"))
    assert "fake__special" in first.names()
    assert first.close() == 0
    assert "fake__special" not in bed.run(bed.fake()).names()


@pytest.mark.thorough
def test_a_broken_cache_is_only_a_slower_start(bed: Bed) -> None:
    fake = bed.fake()
    first = bed.run(fake)
    names = first.names()
    assert first.close() == 0
    kept = list((bed.root / "home" / "catalogs").iterdir())
    assert kept
    for path in kept:
        path.write_bytes(path.read_bytes()[:-7])
    second = bed.run(fake)
    assert second.names() == names


def test_reload_rolls_over_to_a_changed_catalog_without_losing_a_call(bed: Bed) -> None:
    import signal

    catalog = bed.root / "catalog.json"
    catalog.write_text(json.dumps({"tools": ["old_tool"]}))
    client = bed.run(bed.fake(f"--catalog={catalog}"))
    pid = client.use_data("fake__whoami")["pid"]
    slow = client.begin_use("fake__slow", {"ms": 400, "key": "pre-fence"})
    client.use("fake__echo")
    catalog.write_text(json.dumps({"tools": ["new_tool"]}))
    client.process.send_signal(signal.SIGHUP)
    client.wait_notification(CHANGED)
    assert "fake__new_tool" in client.names()
    assert client.use_data("fake__whoami")["pid"] != pid
    assert client.wait(slow)["result"]["structuredContent"] == {"key": "pre-fence"}
