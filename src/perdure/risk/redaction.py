"""A text without its secrets: each replaced by a marker that names the rule, and nothing else changed."""

from __future__ import annotations

from perdure.risk.report import Report


def redacted(text: str, report: Report) -> str:
    """Every place of the report, listed or only counted, as `[REDACTED:rule]`."""
    parts = []
    at = 0
    for start, end, rule in report.spans:
        parts += [text[at:start], f"[REDACTED:{rule}]"]
        at = end
    parts.append(text[at:])
    return "".join(parts)
