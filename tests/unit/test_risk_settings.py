"""What a policy may say about the risk check, and how nonsense is answered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure import risk

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zB9dF1hJ3lN5"


def settings(**policy: Any) -> risk.RiskSettings:
    return msgspec.convert(policy, risk.RiskSettings)


def test_a_policy_of_the_peers_format_is_expressed_as_it_is() -> None:
    policy = settings(
        thresholds={"high": 0.8, "medium": 0.5, "low": 0.2},
        disable_families=["pii", "binary_hint"],
        extend_patterns={"internal": [{"name": "ticket", "regex": r"ACME-\d{6}"}]},
    )
    report = risk.scan("see ACME-123456 or ask someone@somewhere.org", policy)
    assert [(finding.kind, finding.rule) for finding in report.findings] == [("internal", "ticket")]
    assert (report.score, report.verdict) == (0.5, "medium")


@pytest.mark.parametrize(("weight", "expected"), [(0.05, "safe"), (0.3, "low"), (0.9, "high")])
def test_the_weight_of_a_pattern_counts(weight: float, expected: str) -> None:
    pattern = {"name": "ticket", "regex": r"ACME-\d{6}", "weight": weight}
    assert risk.scan("ACME-123456", settings(extend_patterns={"internal": [pattern]})).verdict == expected


def test_a_pattern_is_found_with_its_place_and_redacted() -> None:
    policy = settings(extend_patterns={"internal": [{"name": "ticket", "regex": "ACME-[0-9]+"}]})
    text = "é\nfix ACME-1234567 and ACME-99"
    report = risk.scan(text, policy)
    assert [text[finding.start : finding.end] for finding in report.findings] == ["ACME-1234567", "ACME-99"]
    assert risk.redact(text, report) == "é\nfix [REDACTED:ticket] and [REDACTED:ticket]"


@pytest.mark.parametrize("regex", ["[", "(a", r"(?P<x>a)\1", "(?<=a)b", "a*"])
def test_a_bad_pattern_is_named(regex: str) -> None:
    policy = settings(
        extend_patterns={"internal": [{"name": "fine", "regex": "a"}, {"name": "bad", "regex": regex}]}
    )
    with pytest.raises(ValueError, match=r"extend_patterns\.internal, pattern bad: "):
        risk.check(policy)


def test_a_nested_quantifier_takes_no_longer_than_any_other() -> None:
    policy = settings(extend_patterns={"internal": [{"name": "nested", "regex": "(a+)+$"}]})
    assert risk.scan("a" * 200_000 + "b", policy).findings[0].rule == "long_base64_blob"


def test_a_disabled_family_is_not_looked_for() -> None:
    assert risk.scan(TOKEN, settings(disable_families=["github_pat"])).findings == ()


def test_a_weight_of_a_family_replaces_its_own() -> None:
    assert risk.scan(TOKEN, settings(weights={"github_pat": 0.2})).verdict == "low"


def test_a_real_secret_is_high_under_any_thresholds() -> None:
    assert risk.scan(TOKEN, settings(thresholds={"high": 1.0, "medium": 1.0, "low": 1.0})).verdict == "high"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"thresholds": {"high": 0.3, "medium": 0.4}}, "thresholds must rise"),
        ({"thresholds": {"high": 7}}, "high"),
        ({"disable_families": "pii"}, "disable_families"),
        ({"disable_families": ["piii"]}, "no family piii"),
        ({"weights": {"api_kei": 0.5}}, "no family api_kei"),
        ({"limits": {"bytes": 0}}, "limits.bytes"),
        ({"extend_patterns": {"own": [{"name": "x"}]}}, "regex"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_nonsense_is_an_error_that_names_its_place(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        settings(**policy)


def test_limits_are_the_policys() -> None:
    report = risk.scan("ab\ncd\n", settings(limits={"bytes": 5, "line_length": 1, "lines": 1}))
    assert [excess.rule for excess in report.excesses] == ["big_100kb", "long_line", "many_lines"]
