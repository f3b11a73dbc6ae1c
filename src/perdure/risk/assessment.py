"""A text's report: confirmed places, remarks on the whole, a score and what to do about it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import msgspec

from perdure.risk import score, text_shape
from perdure.risk.candidates import Candidate, drop_overlaps
from perdure.risk.custom_patterns import compile_custom
from perdure.risk.report import FINDINGS_LISTED, Finding, Report, mask
from perdure.risk.scanner import default_scanner
from perdure.risk.settings import (
    DEFAULT,
    EXTRA_WEIGHT,
    FAMILIES,
    SECRET_WEIGHT,
    WEIGHTS,
    ExtraPattern,
    RiskSettings,
)

SURROGATE: Final = re.compile("[\ud800-\udfff]")
LOST: Final = "\ufffd"
# Not secrets but remarks on a place: nothing in them is hidden or replaced.
REMARKS: Final = frozenset({"binary_hint", "encoding"})
EXTRA_RANK: Final = 2

Weights = dict[tuple[str, str], float]  # of a policy's own patterns, by family and name


def assess(text: str, settings: RiskSettings = DEFAULT) -> Report:
    """What would get this text rejected, and where."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        text = SURROGATE.sub(LOST, text)
        data = text.encode()
    found = default_scanner().scan(data)
    weights: Weights = {}
    if settings.extend_patterns:
        found = drop_overlaps(found + _extras(data, settings, weights))
    if settings.disable_families:
        found = [each for each in found if each.kind not in settings.disable_families]
    # Short lines rule out both a blob of base64 and a line that is too long.
    is_short = len(data) >= text_shape.SMALL and text_shape.has_only_short_lines(data)
    placed = found + _hints(text, data, settings, is_short)
    measured = text_shape.measure(text, data, settings.limits, has_short_lines=is_short)
    remarks = score.excesses(measured, settings)
    if not placed and not remarks:
        return Report(0.0, "safe", measured.bytes, measured.line_count, (), 0, (), ())
    total = score.total(_counts(placed, settings, weights), remarks, settings.thresholds.high)
    findings, spans = _located(text, data, placed, settings, weights) if placed else ((), ())
    return Report(
        score=total,
        verdict=score.verdict(total, settings.thresholds),
        bytes=measured.bytes,
        line_count=measured.line_count,
        findings=findings,
        total=len(placed),
        excesses=remarks,
        suggested_actions=score.actions({each.kind for each in placed}, remarks),
        spans=spans,
    )


def _counts(
    placed: list[Candidate], settings: RiskSettings, weights: Weights
) -> dict[tuple[str, bool], tuple[float, int]]:
    """For each family, sure or not, its heaviest weight and how many places it has."""
    counts: dict[tuple[str, bool], tuple[float, int]] = {}
    for (kind, rule, tier), number in Counter((each.kind, each.rule, each.tier) for each in placed).items():
        heaviest, count = counts.get((kind, tier == "precise"), (0.0, 0))
        weight = _weight(kind, rule, tier, settings, weights)
        counts[kind, tier == "precise"] = max(heaviest, weight), count + number
    return counts


def _extras(data: bytes, settings: RiskSettings, weights: Weights) -> list[Candidate]:
    patterns = extra_patterns(settings)
    found = []
    for number, start, end in compile_custom(patterns).places(data):
        family, pattern = patterns[number]
        weight = pattern.weight
        if weight is None:
            weight = settings.weight(family, _family_weight(family))
        weights[family, pattern.name] = weight
        if end > start:
            found.append(Candidate(start, end, pattern.name, family, "precise", 0, EXTRA_RANK))
    return found


def extra_patterns(settings: RiskSettings) -> tuple[tuple[str, ExtraPattern], ...]:
    return tuple((family, each) for family, patterns in settings.extend_patterns.items() for each in patterns)


def _family_weight(family: str) -> float:
    if family not in FAMILIES:
        return EXTRA_WEIGHT
    return WEIGHTS.get(family, SECRET_WEIGHT)


def _hints(text: str, data: bytes, settings: RiskSettings, has_short_lines: bool) -> list[Candidate]:
    found = []
    if "binary_hint" not in settings.disable_families:
        if text_shape.is_binary(data):
            found.append(Candidate(0, 0, "control_characters", "binary_hint", "hint", 0, 0))
        if not has_short_lines and (at := text_shape.first_base64_blob(data)) >= 0:
            found.append(Candidate(at, at, "long_base64_blob", "binary_hint", "hint", 0, 0))
    if (
        len(data) != len(text)
        and "encoding" not in settings.disable_families
        and (at := text.find(LOST)) >= 0
    ):
        place = len(text[:at].encode())
        found.append(Candidate(place, place, "replacement_character", "encoding", "hint", 0, 0))
    return found


def _located(
    text: str, data: bytes, placed: list[Candidate], settings: RiskSettings, weights: Weights
) -> tuple[tuple[Finding, ...], tuple[tuple[int, int, str], ...]]:
    """Bytes to characters, and for those that are listed to lines and columns, in one walk over the text."""
    placed.sort(key=lambda each: (each.start, each.end))
    if len(data) != len(text):
        placed = _in_characters(data, placed)
    spans = tuple((each.start, each.end, each.rule) for each in placed if each.kind not in REMARKS)
    findings: list[Finding] = []
    line, at = 1, 0
    for each in placed[:FINDINGS_LISTED]:
        line += text.count("\n", at, each.start)
        at = each.start
        shown = "" if each.kind in REMARKS else mask(text[at : each.end], each.kind, each.shown)
        weight = _weight(each.kind, each.rule, each.tier, settings, weights)
        column = at - text.rfind("\n", 0, at)
        findings.append(Finding(each.kind, each.rule, at, each.end, line, column, shown, each.tier, weight))
    return tuple(findings), spans


def _in_characters(data: bytes, placed: list[Candidate]) -> list[Candidate]:
    """The same places with offsets in characters. A pattern of one's own may cut a character: it is left out."""
    moved: list[Candidate] = []
    at, place = 0, 0
    for each in placed:
        place += len(data[at : each.start].decode(errors="ignore"))
        at = each.start
        end = place + len(data[at : each.end].decode(errors="ignore"))
        moved.append(msgspec.structs.replace(each, start=place, end=end))
    return moved


def _weight(kind: str, rule: str, tier: str, settings: RiskSettings, weights: Weights) -> float:
    own = weights.get((kind, rule))
    return score.weight(kind, rule, tier, settings) if own is None else own
