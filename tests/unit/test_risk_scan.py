"""The risk check on single texts: what blocks, what warns, what is left alone, and what is shown of it."""

from __future__ import annotations

import base64
import random
import uuid
import zlib

import msgspec
import pytest

from harness.corpora.secret_corpus import filled
from perdure import risk
from perdure.risk import checksums

CHANCE = random.Random(4)
TOKEN = "ghp_" + filled(CHANCE, "%n36")
KEY_BODY = "\n".join(filled(CHANCE, "%b64") for _ in range(8))
PRIVATE_KEY = f"-----BEGIN PRIVATE KEY-----\n{KEY_BODY}\n-----END PRIVATE KEY-----"


def verdict(text: str) -> str:
    return risk.scan(text).verdict


def rules(text: str) -> list[str]:
    return [finding.rule for finding in risk.scan(text).findings]


def test_one_real_token_is_high() -> None:
    report = risk.scan(f'token = "{TOKEN}"\n')
    assert (report.verdict, report.score) == ("high", 1.0)
    (finding,) = report.findings
    assert (finding.kind, finding.rule, finding.tier) == ("github_pat", "ghp", "precise")
    assert report.suggested_actions == (risk.Action("redact", targets=("github_pat",)),)


@pytest.mark.parametrize(
    "label", ["", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", "PGP ", "ANY OTHER "], ids=str.strip
)
def test_a_private_key_of_every_kind_is_high(label: str) -> None:
    block = " BLOCK" if label == "PGP " else ""
    kind = f"{label}PRIVATE KEY{block}"
    assert verdict(f"-----BEGIN {kind}-----\n{KEY_BODY}\n-----END {kind}-----") == "high"


def test_a_key_on_one_line_of_json_is_high_and_a_cut_one_too() -> None:
    assert rules(msgspec.json.encode({"private_key": PRIVATE_KEY}).decode()) == ["pem_private_key"]
    assert rules(PRIVATE_KEY[:300]) == ["pem_private_key"]


@pytest.mark.parametrize(
    "text",
    [
        "assert text.startswith('-----BEGIN PRIVATE KEY-----')",
        "-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nyour key goes here\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PUBLIC KEY-----\n{KEY_BODY}\n-----END PUBLIC KEY-----",
        f"-----BEGIN CERTIFICATE-----\n{KEY_BODY}\n-----END CERTIFICATE-----",
    ],
)
def test_talk_about_keys_is_no_key(text: str) -> None:
    assert verdict(text) == "safe"


@pytest.mark.parametrize(
    "body", ["MIIEpAIBAAKCAQEA3Tz2mr7SZiAMfQyuvBjM9OiJjRazXBZ1BjP5...", "MIIEpAIBAAKCAQEA3Tz2"]
)
def test_a_key_cut_short_in_documentation_only_warns(body: str) -> None:
    report = risk.scan(f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----")
    assert (report.verdict, report.findings[0].tier) == ("medium", "generic")


@pytest.mark.parametrize(
    "mark", ["Zq", "+", "=", "sk-", "  ", "%3D", "\\n", "é", "日本 "], ids=lambda mark: repr(mark)
)
def test_a_token_is_found_after_anything_but_a_letter_or_digit(mark: str) -> None:
    assert rules(f"{mark}{TOKEN}") == (
        [] if mark[-1].isalnum() and mark != "é" and mark != "\\n" else rules(TOKEN)
    )


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-ThisIsWhereTheKeyOfTheProjectGoesOnceItHasBeenIssued",
        "sk-ant-api03-put-the-secret-part-of-the-credential-here-and-nothing-else-please-thanks",
        "glpat-abc123def456ghi789jk",
        "AKIA" + "ABCD" * 4,
        "hf_" + "aB" * 17,
    ],
)
def test_what_a_person_made_up_is_no_token(text: str) -> None:
    assert verdict(text) == "safe"


def test_a_right_checksum_outweighs_a_made_up_look() -> None:
    body = b"abcdefghijklmnopqrstuvwxyzabcd"
    proved = b"ghp_" + body + checksums.base62(zlib.crc32(body))
    assert rules(proved.decode()) == ["ghp"]
    assert rules(f"ghp_{body.decode()}abcdef") == []


def test_a_signed_token_is_known_by_its_header() -> None:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")

    signature = filled(CHANCE, "%w43")
    signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': 'u1', 'iat': 1700000000})}.{signature}"
    assert verdict(signed) == "high"
    unreadable = f"eyJ{filled(CHANCE, '%w30')}.{part({'sub': 'u1'})}.{signature}"
    assert verdict(unreadable) == "medium"
    example = f"{part({'alg': 'HS256'})}.{part({'sub': '1234567890', 'name': 'John Doe'})}.{signature}"
    assert verdict(example) == "safe"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://app:Xk29dkWp1zQ7@db.prod.internal:5432/app", "high"),
        ("mongodb+srv://app:Xk29dkWp1zQ7@cluster0.ab1cd.mongodb.net/x", "high"),
        ("postgres://app:Xk29dkWp1zQ7@localhost/app", "medium"),
        ("postgres://scott:tiger@localhost/test", "safe"),
        ("postgres://user:password@db.prod.internal/app", "safe"),
        ("postgres://${USER}:${PASSWORD}@db.prod.internal/app", "safe"),
        ("redis://:password@redis.prod.internal:6379", "safe"),
        ("mysql://root:oEwsIVBfHmcIWv@db.prod.internal/shop", "medium"),
        ("mysql://root:MyFirstDatabase@10.0.0.5/shop", "safe"),
        (
            "https://a.blob.core.windows.net/c?sv=2022&sig=MaTThzAWez3iKd8hS2PwCvXJaJj9hKpcpfIlBVEBKxh%3D",
            "high",
        ),
    ],
)
def test_an_address_with_a_password(url: str, expected: str) -> None:
    assert verdict(f"URL={url}") == expected


def test_a_wrapped_secret_is_found_at_every_alignment() -> None:
    for before in ("", "a", "ab", "abc", "KEY="):
        wrapped = base64.b64encode(f"{before} {TOKEN} after".encode()).decode()
        report = risk.scan(f"data: {wrapped}\n")
        assert report.verdict == "high", before
        assert risk.redact(f"data: {wrapped}\n", report) == "data: [REDACTED:ghp]\n"
    assert verdict("key: " + base64.b64encode(PRIVATE_KEY.encode()).decode()) == "high"


def test_a_random_value_assigned_to_a_secret_warns_and_never_blocks() -> None:
    lines = "\n".join(f'service_{i}_password = "{filled(CHANCE, "%n16")}"' for i in range(40))
    report = risk.scan(lines)
    assert report.verdict == "medium"
    assert report.total == 40
    assert {finding.tier for finding in report.findings} == {"generic"}


def test_a_quoted_value_is_read_to_its_quote_whatever_is_in_it() -> None:
    report = risk.scan("SECRET_KEY = 'dtm_yzk)hy(mniz2j0br37)m((*r+fo10&&9-=2_mmu@q-*)cm'\n")
    assert (report.verdict, report.findings[0].rule) == ("medium", "assigned_secret")
    assert risk.redact("k = 'dtm_yzk)hy'", risk.scan("k = 'dtm_yzk)hy'")) == "k = 'dtm_yzk)hy'"


def test_a_vendors_name_and_shape_make_an_assignment_precise() -> None:
    value = filled(CHANCE, "%x32")
    assert verdict(f"DATADOG_API_KEY={value}") == "high"
    assert verdict(f"datadog:\n  api_key: {value}") == "high"
    assert verdict(f"SOME_API_KEY={value}") == "medium"
    assert verdict(f"DATADOG_COMMIT={value}") == "safe"


@pytest.mark.parametrize(
    "text",
    [
        "524-71-8832 and 4539 1488 0343 6467 for someone@somewhere.org",
        "x" * 600_000,
        "word " * 200_000,
        "\n" * 10_000,
        "\x00\x01\x02" * 5_000,
        "\ufffd" * 5_000,
        base64.b64encode(bytes(range(256)) * 400).decode(),
        "\n".join(f"someone{i}@somewhere.org" for i in range(2_000)),
    ],
    ids=["pii", "long-line", "large", "lines", "control", "lost", "base64", "addresses"],
)
def test_hints_alone_never_reach_medium(text: str) -> None:
    assert verdict(text) in ("safe", "low")


def test_hints_stay_below_high_whatever_their_weights() -> None:
    heavy = risk.RiskSettings(weights={"pii": 1.0, "size": 1.0, "binary_hint": 1.0, "encoding": 1.0})
    text = "524-71-8832\n" * 6_000 + "\x00\ufffd" * 3_000 + "x" * 600_000
    assert risk.scan(text, heavy).verdict == "medium"


def test_places_are_characters_lines_and_columns_of_the_text() -> None:
    text = f"première ligne — ¡hola!\n  日本 = '{TOKEN}'\r\nend"
    (finding,) = risk.scan(text).findings
    assert text[finding.start : finding.end] == TOKEN
    assert (finding.line, finding.column) == (2, 9)


def test_a_lone_surrogate_is_text_like_any_other() -> None:
    report = risk.scan(f"\ud800 {TOKEN}")
    assert report.findings[-1].start == 2
    assert report.verdict == "high"


def test_measures_are_those_of_the_text() -> None:
    report = risk.scan("é\nabc\n\nlast")
    assert (report.bytes, report.line_count) == (12, 4)
    assert (risk.scan("").line_count, risk.scan("a\n").line_count) == (0, 1)
    large = risk.scan("y" * 3_000 + "\n" * 6_000 + "z " * 300_000)
    assert [(excess.rule, excess.value) for excess in large.excesses] == [
        ("big_100kb", 609_000),
        ("big_500kb", 609_000),
        ("long_line", 600_000),
        ("many_lines", 6_001),
    ]
    assert {action.action for action in large.suggested_actions} == {"split", "escape"}


@pytest.mark.parametrize("mark", ["x", "é", "𝄞"])
def test_the_longest_line_is_told_in_characters_wherever_it_stands(mark: str) -> None:
    chance = random.Random(7)
    for _ in range(50):
        lengths = [
            chance.choice((0, 1, 40, 1_999, 2_000, 2_001, 2_500)) for _ in range(chance.randrange(1, 9))
        ]
        text = "\n".join(mark * length for length in lengths)
        assert risk.longest_line(text) == max(lengths)
        told = [excess.value for excess in risk.scan(text).excesses if excess.rule == "long_line"]
        assert told == ([max(lengths)] if max(lengths) > 2_000 else []), lengths


def test_findings_are_bounded_and_counted_and_all_redacted() -> None:
    text = "\n".join("ghp_" + filled(CHANCE, "%n36") for _ in range(1_000))
    report = risk.scan(text)
    assert (len(report.findings), report.total) == (200, 1_000)
    assert risk.redact(text, report).count("[REDACTED:ghp]") == 1_000


def test_decoys_do_not_hide_the_real_one() -> None:
    decoys = "\n".join(f"ghp_{filled(CHANCE, '%n30')} AKIAXXXXXXXXXXXXXXXX eyJ.eyJ." for _ in range(10_000))
    report = risk.scan(f"{decoys}\n{TOKEN}")
    assert report.total == 1
    assert report.verdict == "high"


def test_a_vendors_key_is_found_after_thousands_of_other_values() -> None:
    chance = random.Random(3)
    many = "\n".join(f"api_token={filled(chance, '%n20')}" for _ in range(5_000))
    key = f"heroku_api_key = {uuid.UUID(bytes=chance.randbytes(16), version=4)}"
    among = risk.scan(f"{many}\n{key}\n")
    assert among.spans[-1][2] == "heroku_key"
    assert (among.verdict, among.total >= 4_900) == ("high", True)


@pytest.mark.parametrize("mark", ["sk-", "hf_", "BSA", "AKIA", "ghp_", "+AEh"])
def test_a_mark_that_comes_up_in_random_base64_is_no_token(mark: str) -> None:
    for _ in range(20):
        wall = (
            filled(CHANCE, "%b64") + "aB3-" + mark + filled(CHANCE, "%n48") + "_x7Q" + filled(CHANCE, "%b64")
        )
        assert verdict(wall) != "high", wall
    assert verdict(f'"integrity": "sha512-EAA{filled(CHANCE, "%n83")}=="') != "high"


@pytest.mark.parametrize(
    "around", ["my-project_{}", "backup-2024-{}", "{}/resolve/main", "v1_{}-old", "KEY1_{}"]
)
def test_a_token_joined_to_a_name_is_still_one(around: str) -> None:
    for form in ("hf_%n34", "ghp_%n36", "sk-%n48"):
        assert verdict(around.format(filled(CHANCE, form))) == "high", around


def test_every_token_in_one_run_of_base64_is_looked_at() -> None:
    for before in (0, 1, 2, 5, 20_000):
        text = "." * before + f"\n{TOKEN}\n" + "-" * 30_000
        report = risk.scan(base64.b64encode(text.encode()).decode())
        assert report.verdict == "high", before
        assert risk.scan(base64.urlsafe_b64encode(text.encode()).decode()).verdict == "high", before


def test_a_token_after_another_run_of_base64_is_found_at_each_alignment() -> None:
    decoys = base64.b64encode(b"ghp_ghp_ghp_" * 40).decode()
    for lead in ("", "x", "xy"):
        for gap in (" ", "\n\n", " = "):
            wrapped = base64.b64encode(f"{lead} {TOKEN} ".encode()).decode()
            assert verdict(f"{decoys}{gap}{wrapped}") == "high", (lead, gap)
