"""The risk check over the labelled corpus: what is found, what is shown, what is left after redaction."""

from __future__ import annotations

import pytest

from harness.corpora.benign_corpus import hard_negatives
from harness.corpora.secret_corpus import positives
from perdure import risk
from perdure.risk import tokens
from perdure.risk.rules import FORMATS, load_rules

SEED = 20
SAMPLES = list(positives(SEED, each=3))


def test_the_rules_are_many_and_each_has_one_name() -> None:
    names = [name for _, name in load_rules()]
    assert len(names) == len(set(names)) >= 600
    assert {kind for kind, _ in load_rules()} <= risk.settings.FAMILIES


@pytest.mark.parametrize("name", [name for _, name in load_rules()])
def test_a_rule_finds_its_example_and_not_its_counterexample(name: str) -> None:
    (rule,) = (rule for (_, known), rule in load_rules().items() if known == name)
    found, missed = (
        {finding.rule for finding in risk.scan(text.replace("·", "")).findings}
        for text in (rule.example, rule.counterexample)
    )
    assert name in found
    assert name not in missed


def test_the_files_of_the_rules_hold_no_token_that_a_scanner_would_report() -> None:
    for path in FORMATS.glob("*.toml"):
        precise = [finding for finding in risk.scan(path.read_text()).findings if finding.tier == "precise"]
        assert precise == [], path


def test_nearly_every_secret_of_the_corpus_is_found() -> None:
    missed = [sample for sample in SAMPLES if risk.scan(sample.text).verdict not in ("medium", "high")]
    assert len(missed) <= len(SAMPLES) * 0.02, [(sample.format, sample.place) for sample in missed]


def test_every_marked_format_blocks() -> None:
    blocked = {sample.format for sample in SAMPLES if risk.scan(sample.text).verdict == "high"}
    generic = {"api_token", "client_secret", "encryption_key", "internal_api_key", "netrc"}
    left = {sample.format for sample in SAMPLES} - blocked - generic
    assert {name for name in left if not name.endswith("_password")} == set()


def test_nothing_benign_is_even_low() -> None:
    alarms = [
        (each.kind, each.text) for each in hard_negatives(SEED, 4) if risk.scan(each.text).verdict != "safe"
    ]
    assert alarms == []


def test_a_mask_shows_the_mark_and_four_characters_at_most() -> None:
    marks: dict[str, int] = {}
    for token in tokens.tokens():
        marks[token.rule] = max(marks.get(token.rule, 0), len(token.literal))
    for sample in SAMPLES:
        for finding in risk.scan(sample.text).findings:
            secret = sample.text[finding.start : finding.end]
            shown = finding.masked.removesuffix("…")
            assert secret.startswith(shown)
            if finding.kind == "pem_block":
                assert shown.startswith(("-----BEGIN", "PuTTY-User-Key-File")) or shown == ""
                assert "\n" not in shown
            elif finding.kind in ("pii", "password", "connection_string"):
                assert shown == ""
            else:
                assert len(shown) <= max(marks.get(finding.rule, 3), 3) + 4


def test_what_is_redacted_is_gone_and_stays_as_it_is() -> None:
    for sample in SAMPLES:
        report = risk.scan(sample.text)
        redacted = risk.redact(sample.text, report)
        again = risk.scan(redacted)
        assert again.verdict != "high", (sample.format, redacted)
        assert risk.redact(redacted, again) == redacted, sample.format
        if report.verdict == "high" and len(sample.secret) < 400 and sample.place != "whole":
            assert sample.secret not in redacted


@pytest.mark.parametrize(
    "place", ["env", "json", "kubernetes", "terraform-variable", "xml", "notebook", "log"]
)
def test_the_places_of_the_corpus_are_all_read(place: str) -> None:
    found = [risk.scan(sample.text).verdict for sample in positives(SEED, each=40) if sample.place == place]
    assert found.count("safe") + found.count("low") <= len(found) * 0.05
