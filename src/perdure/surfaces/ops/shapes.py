"""How the results of the host's own tools are shown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from perdure.present.shape import Field, Shape


def _tools_summary(payload: Mapping[str, Any]) -> str:
    if "group" not in payload:
        return "groups of tools; action=enable group=NAME enables one"
    if payload["groups"][0]["enabled"]:
        return "{group} is enabled; call its tools by name if your client does not show them"
    return "{group} is disabled"


@cache
def result_shapes() -> dict[str, Shape]:
    fault = (
        Field("class"),
        Field("code"),
        Field("generation", "count", full_only=True),
        Field("detail"),
        Field("hint", full_only=True),
    )
    row = (
        Field("name"),
        Field("state"),
        Field("generation", "count", full_only=True),
        Field("restarts", "count"),
        Field("circuit", full_only=True),
        Field("pid", full_only=True),
        Field("tools", "count"),
        Field("reason"),
        Field("rollout", full_only=True),
        Field("required", full_only=True),
        Field("changed", "json", full_only=True),
        Field("held", "json"),
        Field("notices", "json"),
        Field("untrusted", full_only=True),
        Field("last_fault", "record", columns=fault, full_only=True),
        Field("exit_code", full_only=True),
        Field("stderr", full_only=True),
    )
    waiting = (
        Field("path"),
        Field("changed", full_only=True),
        Field("starts", "json", full_only=True),
        Field("settings", "json", full_only=True),
        Field("problem", full_only=True),
        Field("todo"),
        Field("waits"),
    )
    counters = tuple(
        Field(name, "count")
        for name in (
            "requests",
            "successes",
            "errors",
            "tool_errors",
            "response_errors",
            "recovery_errors",
            "recovery_faults",
            "replays",
        )
    )
    # What a reader asks first; the rest is for detail=full.
    brief = ("requests", "errors", "tool_errors", "replays")
    summed = tuple(Field(c.name, c.kind, full_only=c.name not in brief) for c in counters)
    times = tuple(
        Field(name, full_only=name not in ("p50", "p99")) for name in ("last", "mean", "p50", "p99", "max")
    )
    return {
        "health": Shape(
            "{state}  {mounts:server}  {restart_count:restart}  {pending} pending  workspace {workspace}  store {store}",
            (
                Field("state"),
                Field("workspace"),
                Field("store"),
                Field("uptime_ms", "count", quiet=True),
                Field("protocol", full_only=True),
                Field("generation", "count", full_only=True),
                Field("restart_count", "count"),
                Field("consecutive_failures", "count", full_only=True),
                Field("last_fault", "record", columns=fault, full_only=True),
                Field(
                    "file_faults",
                    "table",
                    columns=(Field("code"), Field("detail"), Field("hint", full_only=True)),
                ),
                Field("rollout", full_only=True),
                Field("pending", "count", full_only=True),
                Field("quarantined", "json", full_only=True),
                Field("mounts", "table", columns=row, words=_servers),
                Field(
                    "untrusted", "table", columns=waiting, words=lambda rows: [row["waits"] for row in rows]
                ),
            ),
        ),
        "telemetry": Shape(
            "{totals.requests:request}  {totals.errors:error}  {totals.tool_errors:tool error}  "
            "{totals.replays:replay}",
            (
                Field("totals", "record", columns=summed, quiet=True),
                Field(
                    "methods",
                    "table",
                    columns=(Field("method"), *summed, Field("latency_ms", "record", columns=times)),
                ),
            ),
        ),
        "mounts": Shape(
            lambda payload: _MOUNTS_SUMMARY[payload["action"]],
            (
                Field("action", quiet=True),
                Field("name", quiet=True),
                Field("mounts", "table", columns=row, words=_servers),
            ),
        ),
        "tools": Shape(
            _tools_summary,
            (
                Field("group"),
                Field(
                    "groups",
                    "table",
                    columns=(Field("name"), Field("enabled"), Field("tools", "items"), Field("about")),
                ),
            ),
        ),
    }


_MOUNTS_SUMMARY = {
    "list": "{mounts:server}",
    "restart": "restarting {name}",
    "enable": "enabled {name}",
    "disable": "disabled {name}",
}


def _servers(rows: list[dict[str, Any]]) -> list[str]:
    """Each server in words: its state, its tools, and what is wrong with it."""
    return [_server(row) for row in rows]


def _server(row: dict[str, Any]) -> str:
    tools = f"{row['tools']} tool{'' if row['tools'] == 1 else 's'}"
    restarts = f", {row['restarts']} restart{'' if row['restarts'] == 1 else 's'}" if row["restarts"] else ""
    held = f", held back for approval: {', '.join(row['held'])}" if row.get("held") else ""
    notices = "".join(f"; {notice}" for notice in row.get("notices", ()))
    reason = f": {row['reason']}" if row.get("reason") else ""
    return f"{row['name']} {row['state']}, {tools}{restarts}{held}{notices}{reason}"
