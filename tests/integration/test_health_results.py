"""`health`, `telemetry` and `mounts` as an agent reads them: short, in words, and with the reason of any trouble."""

from __future__ import annotations

import re

from testbed import FULL, Bed, Server

CONCISE = {"render": "json", "detail": "concise"}
CIRCUIT = "[limits]\nunproductive_starts = 1\nbackoff_s = 0.01\ncircuit_s = 60\n"


def test_health_names_workspace_store_and_the_reason_of_each_trouble(bed: Bed) -> None:
    bed.settings(CIRCUIT)
    client = bed.run(Server("foo", ("nosuchcmd",), bed.root), bed.fake())
    client.wait_row("foo", circuit="open")
    client.wait_row("perdure", state="ready")
    client.wait_row("fake", state="ready")
    lines = client.use_text("health").split("\n")
    full = client.health()
    assert lines[0].startswith("degraded  3 servers  ")
    assert lines[0].endswith(f"  workspace {bed.workspace}  store {full['store']}")
    servers = " | ".join(line.removeprefix("mounts:").strip() for line in lines[1:]).strip(" |").split(" | ")
    assert re.fullmatch(r"perdure ready, \d+ tools", servers[0])
    assert re.fullmatch(
        r"foo degraded, 0 tools(, \d restarts?)?: nosuchcmd: No such file or directory; check the command",
        servers[1],
    )
    assert servers[2].startswith("fake ready, ")
    assert len(servers) == 3


def test_concise_json_of_health_is_a_summary_and_full_has_every_key(bed: Bed) -> None:
    client = bed.run(bed.fake())
    client.wait_row("fake", state="ready")
    concise, full = client.use_data("health", CONCISE), client.health()
    assert set(concise) == {"ok", "state", "workspace", "store", "uptime_ms", "restart_count", "mounts"}
    assert [set(row) for row in concise["mounts"]] == [{"name", "state", "restarts", "tools"}] * 2
    assert {"protocol", "generation", "consecutive_failures", "rollout"} <= set(full)
    assert {"generation", "circuit", "pid"} <= set(full["mounts"][0])


def test_telemetry_is_a_summary_unless_the_whole_is_asked_for(bed: Bed) -> None:
    client = bed.run()
    client.use("health")
    assert re.match(r"\d+ requests  0 errors  0 tool errors  0 replays\n", client.use_text("telemetry"))
    concise, full = client.use_data("telemetry", CONCISE), client.use_data("telemetry", FULL)
    brief = {"requests", "errors", "tool_errors", "replays"}
    assert set(concise["totals"]) == brief
    assert all(set(row) == {"method", "latency_ms", *brief} for row in concise["methods"])
    assert all(set(row["latency_ms"]) == {"p50", "p99"} for row in concise["methods"])
    assert {"successes", "response_errors", "recovery_errors", "recovery_faults"} <= set(full["totals"])
    assert {"last", "mean", "p50", "p99", "max"} == set(full["methods"][0]["latency_ms"])


def test_mounts_says_what_it_did_in_one_line(bed: Bed) -> None:
    client = bed.run(bed.fake())
    client.wait_row("fake", state="ready")
    assert client.use_text("mounts").split("\n")[0] == "2 servers"
    assert client.use_text("mounts", {"action": "disable", "name": "fake"}).split("\n")[0] == "disabled fake"
    assert "fake disabled" in client.use_text("mounts")
    assert client.use_text("mounts", {"action": "enable", "name": "fake"}).split("\n")[0] == "enabled fake"


def test_a_misspelt_argument_gets_the_nearest_name(bed: Bed) -> None:
    client = bed.run()
    for tool, wrong, right in (
        ("health", "detial", "detail"),
        ("mounts", "actoin", "action"),
        ("read", "rendr", "render"),
    ):
        context = client.use_data(tool, {wrong: "x", "render": "json"})["context"]
        assert context["nearest"] == right


def test_a_file_that_waits_for_trust_is_a_sentence_with_the_command_to_type(bed: Bed) -> None:
    (bed.workspace / "mcp.md").write_text("## notes\ncommand: python\nargs: notes.py\n")
    client = bed.run()
    client.wait_row("perdure", state="ready")
    text = client.use_text("health")
    assert (
        f"mcp.md is not trusted, so notes is not started until you run: perdure trust {bed.workspace}/mcp.md"
        in text
    )
    assert "notes untrusted, 0 tools: notes is not started" in text
    assert "more characters" not in text
