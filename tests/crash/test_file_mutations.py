"""Mutated files that a host reads, saved while it runs and while it starts. The long run is `make fuzz`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hosts import SOON

from harness.host import file_mutations
from harness.host.file_mutations import SUBJECTS, Folder
from harness.host.storm import Score
from harness.processes import wait_for
from testbed import Bed, Client

SEED = 1


@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_that_a_start_reads_raises(name: str, tmp_path: Path) -> None:
    score = Score()

    file_mutations.read_all(Folder(tmp_path, SUBJECTS[name]), random.Random(SEED), 70, score)

    assert score.violations == [], f"seed {SEED}"
    assert score.counts["read as at a start"] == 70


@pytest.mark.parametrize("name", ["mcp.md", "mcp.json"])
def test_a_running_host_lives_through_mutated_registries(name: str, tmp_path: Path) -> None:
    score = Score()

    file_mutations.run_beside(Folder(tmp_path, SUBJECTS[name]), random.Random(SEED), 12, score)

    assert score.violations == [], f"seed {SEED}"
    assert score.counts["saved while a host runs"] == 12


@pytest.mark.thorough
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_host_lives_through_mutated_files_while_it_runs_and_while_it_starts(name: str) -> None:
    score = file_mutations.run(name, 300, 14, SEED, saves=100)

    assert score.violations == [], f"seed {SEED}"
    assert score.counts["hosts started"] == 14


# --- texts that once ended a host -------------------------------------------------------------------------------


TEXTS = {
    "only a comma": '{\n  "mcpServers": {,}\n}',
    "only comments and a comma": '{"mcpServers":\n{/*x*/,/*y*/}}',
    "half of a surrogate pair in a name": '{"mcpServers":\n{"a\\ud800": {"command": "x"}}}',
    "half of a surrogate pair in a key": '{"mcpServers":\n{"a": {"command": "x", "env": {"\\ud800": 1}}}}',
    "half of a surrogate pair in a command": '{"mcpServers":\n{"a": {"command": "x\\ud800"}}}',
}


def names_line_2(detail: str, registry: Path) -> bool:
    return f"{registry}, line 2: " in detail or (str(registry) in detail and "line 2, column" in detail)


def faults(client: Client) -> list[str]:
    health = client.health()
    found = [fault["detail"] for fault in health.get("file_faults", [])]
    return found + [row["last_fault"]["detail"] for row in health["mounts"] if "last_fault" in row]


@pytest.mark.thorough
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_registry_text_is_named_with_its_line_and_ends_neither_a_running_nor_a_starting_host(
    bed: Bed, text: str
) -> None:
    registry = bed.root / "mcp.json"
    bed.environ["PERDURE_REGISTRY"] = str(registry)
    registry.write_text(text)
    client = bed.run(bed.fake())
    client.names()

    assert wait_for(lambda: any(names_line_2(one, registry) for one in faults(client)), SOON)
    registry.write_text("{}")
    assert wait_for(lambda: faults(client) == [], SOON)
    registry.write_text(text)
    assert wait_for(lambda: any(names_line_2(one, registry) for one in faults(client)), SOON)
    assert client.use_text("fake__echo", {"text": "alive"}) == "alive"


@pytest.mark.thorough
def test_allowed_commands_that_are_not_text_allow_nothing(bed: Bed) -> None:
    command, *args = bed.fake().argv
    own = {"allowedCommands": [Path(command).name, "\ud800"]}
    bed.trusted(
        "mcp.json", json.dumps({"mcpServers": {"fake": {"command": command, "args": args}}, "perdure": own})
    )
    client = bed.run()
    client.names()

    assert client.wait_row("fake", state="degraded")["last_fault"]["code"] == "command_not_allowed"


def test_a_host_starts_on_settings_that_cannot_be_read_and_says_so(bed: Bed) -> None:
    bed.settings("[limits]\npending = -1\n\n[mounts]\nperdure = 'x'\n")

    client = bed.run(bed.fake())

    assert client.use_text("fake__echo", {"text": "alive"}) == "alive"
    health = client.health()
    assert health["state"] == "degraded"
    places = [one["detail"].partition(": ")[0] for one in health["file_faults"]]
    assert places == [f"{bed.workspace / 'perdure.toml'}, line {number}" for number in (2, 5)]
    text = client.use_text("health", {"render": "porcelain"})
    assert "perdure.toml, line 2" in text


@pytest.mark.thorough
def test_a_worker_comes_back_although_the_settings_were_broken_meanwhile(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "a.txt", "content": "1\n"})
    settings = bed.root / "config" / "perdure" / "perdure.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("policy = [\n")

    client.kill_mount("perdure")

    refused = client.use_text("safe_write", {"path": "a.txt", "content": "2\n"})
    assert "perdure.toml" in refused
    assert any("perdure.toml, line " in one for one in faults(client))
    assert (bed.workspace / "a.txt").read_text() == "1\n"
    assert "version 1" in client.use_text("set_state", {"key": "k", "value": 1})


@pytest.mark.thorough
def test_a_policy_that_cannot_be_read_is_named_with_its_line_before_anyone_writes(bed: Bed) -> None:
    policy = bed.root / "policy.yaml"
    policy.write_text("version: 1\npaths: [\n")
    client = bed.start([*bed.command(), "--policy", str(policy)])
    client.initialize()
    client.wait_row("perdure", state="ready")

    [fault] = client.health()["file_faults"]

    assert fault["code"] == "bad_policy"
    assert "policy.yaml, line " in fault["detail"]
