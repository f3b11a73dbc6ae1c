"""`health`, `telemetry` and `mounts` as an agent reads them: short, in words, and with the reason of any trouble."""

from __future__ import annotations

import re

from harness.kernel.stage import Stage, tool
from perdure.protocol.mounts import Limits, MountSpec
from perdure.protocol.pending_trust import Start, UntrustedFile
from testbed import Bed, Server

PLACES = {"workspace": "/home/me/proj", "store": "/home/me/.local/share/perdure/workspaces/1"}
TOOLS = [tool("get", "convergent")]


def stage(**options: object) -> Stage:
    """A session with two servers, of which only the first serves."""
    opened = Stage(
        MountSpec("w", builtin=True),
        MountSpec("notes", prefix="notes__"),
        limits=Limits(unproductive_starts=1),
        places=lambda: PLACES,
        **options,
    )
    opened.initialize()
    opened.serve("w", TOOLS)
    return opened


def test_health_names_workspace_store_and_every_server_in_words() -> None:
    opened = stage()
    opened.serve("notes", TOOLS)
    assert opened.read_host("health") == [
        f"ready  2 servers  0 restarts  0 pending  workspace {PLACES['workspace']}  store {PLACES['store']}",
        "mounts: w ready, 1 tool | notes ready, 1 tool",
    ]
    opened.lose("notes")
    assert opened.read_host("health")[1].startswith(
        "mounts: w ready, 1 tool | notes degraded, 1 tool, 1 restart: "
    )


def test_concise_json_of_health_is_a_summary_and_full_has_every_key() -> None:
    opened = stage()
    opened.serve("notes", TOOLS)
    concise, full = opened.ask_host("health", detail="concise"), opened.ask_host("health")
    assert set(concise) == {"ok", "state", "workspace", "store", "uptime_ms", "restart_count", "mounts"}
    assert [set(row) for row in concise["mounts"]] == [{"name", "state", "restarts", "tools"}] * 2
    assert {"protocol", "generation", "consecutive_failures", "rollout", *concise} <= set(full)
    assert {"generation", "circuit", *concise["mounts"][0]} <= set(full["mounts"][0])


def test_telemetry_is_a_summary_unless_the_whole_is_asked_for() -> None:
    opened = stage()
    assert re.fullmatch(
        r"\d+ requests?  0 errors  0 tool errors  0 replays", opened.read_host("telemetry")[0]
    )
    concise, full = opened.ask_host("telemetry", detail="concise"), opened.ask_host("telemetry")
    brief = {"requests", "errors", "tool_errors", "replays"}
    assert set(concise["totals"]) == brief
    assert all(set(row) == {"method", "latency_ms", *brief} for row in concise["methods"])
    assert all(set(row["latency_ms"]) == {"p50", "p99"} for row in concise["methods"])
    assert {"successes", "response_errors", "recovery_errors", "recovery_faults", *brief} == set(
        full["totals"]
    )
    assert set(full["methods"][0]["latency_ms"]) == {"last", "mean", "p50", "p99", "max"}


def test_mounts_says_what_it_did_in_one_line() -> None:
    opened = stage()
    opened.serve("notes", TOOLS)
    assert opened.read_host("mounts") == ["2 servers", "mounts: w ready, 1 tool | notes ready, 1 tool"]
    assert opened.read_host("mounts", action="disable", name="notes")[0] == "disabled notes"
    assert "notes disabled" in opened.read_host("mounts")[1]
    assert opened.read_host("mounts", action="enable", name="notes")[0] == "enabled notes"
    assert opened.read_host("mounts", action="restart", name="w")[0] == "restarting w"


def test_a_misspelt_argument_gets_the_nearest_name() -> None:
    opened = stage()
    assert opened.ask_host("health", detial="full")["context"]["nearest"] == "detail"
    assert opened.ask_host("telemetry", rendr="json")["context"]["nearest"] == "render"
    assert opened.ask_host("mounts", actoin="list")["context"]["nearest"] == "action"


def test_a_file_that_waits_for_trust_is_a_sentence_with_the_command_to_type() -> None:
    file = UntrustedFile("/home/me/proj/mcp.md", starts=(Start("notes", "python notes.py"),))
    lines = stage(untrusted=(file,)).read_host("health")
    assert lines[-1] == (
        "untrusted: /home/me/proj/mcp.md is not trusted, so notes is not started until you run: "
        "perdure trust /home/me/proj/mcp.md"
    )


def test_a_host_names_its_workspace_its_store_and_why_a_server_does_not_start(bed: Bed) -> None:
    bed.settings("[limits]\nunproductive_starts = 1\nbackoff_s = 0.01\ncircuit_s = 60\n")
    client = bed.run(Server("foo", ("nosuchcmd",), bed.root))
    client.wait_row("foo", circuit="open")
    text = client.use_text("health")
    assert f"  workspace {bed.workspace}  store {client.health()['store']}\n" in text
    assert re.search(
        r"foo degraded, 0 tools.*: nosuchcmd: No such file or directory; check the command", text
    )
