"""Personal data: e-mail addresses, social security numbers, payment cards, bank accounts, phone numbers.

They are shapes without a mark, so the engine looks for a short pattern and the place is read around it. They are `low`,
and an address in a licence is no leak: they block only where a call asks for that. An address or a number that is an
example looks like a real one and counts as one.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.risk import checksums
from perdure.risk.candidates import Candidate, Confirm, Entry

EMAIL: Final = re.compile(
    rb"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
EMAIL_NAME: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+-"
NO_ADDRESS: Final = re.compile(
    rb"(?i)@(?:[a-z0-9-]+\.)*(?:test|invalid|localhost|noreply)\b|@[0-9.]+x\.|\.(?:png|jpg|svg|js|css)\Z"
)
# The user of a URL, and of a remote path as in `git@host:path`.
URL_USER: Final = re.compile(rb"://[^\s/@]{0,80}\Z")
REMOTE_PATH: Final = re.compile(rb":[\w~/.]")
SSN: Final = re.compile(rb"(?<![\w.-])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
CARD: Final = re.compile(
    rb"(?<![\w.+/-])(?<!\d )(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6011|65\d{2})([ -]?)\d{4}\1\d{4}\1\d{4}(?![\w+/-])(?! \d)"
)
PHONE: Final = re.compile(rb"(?<![\w.+-])\+\d{1,3}[ .-]\(?\d{2,4}\)?(?:[ .-]\d{2,4}){2,4}(?![\w-])")
IBAN: Final = re.compile(rb"(?<![\w-])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?(?![\w-])")
EXAMPLES: Final = frozenset(
    b"4111111111111111 4242424242424242 5555555555554444 "
    b"5105105105105100 4012888888881881 6011111111111117".split()
)
SEPARATORS: Final = b" -"
NEAR: Final = 80


def email(data: bytes, at: int) -> Candidate | None:
    before = data[max(0, at - 64) : at]
    found = EMAIL.match(data, at - (len(before) - len(before.rstrip(EMAIL_NAME))))
    if found is None or NO_ADDRESS.search(found[0]) or REMOTE_PATH.match(data, found.end()):
        return None
    if URL_USER.search(data, max(0, found.start() - 90), found.start()):
        return None
    return _candidate("email", found)


def ssn(data: bytes, at: int) -> Candidate | None:
    found = SSN.match(data, at - 3) if at >= 3 else None
    return None if found is None else _candidate("ssn", found)


def spaced_card(data: bytes, at: int) -> Candidate | None:
    return _card(CARD.match(data, at - 4)) if at >= 4 else None


def named_card(data: bytes, at: int) -> Candidate | None:
    return _card(CARD.search(data, at, at + NEAR))


def _card(found: re.Match[bytes] | None) -> Candidate | None:
    if found is None:
        return None
    digits = found[0].translate(None, SEPARATORS)
    if digits in EXAMPLES or len(set(digits)) < 4 or not checksums.luhn(digits.decode()):
        return None
    return _candidate("payment_card", found)


def phone(data: bytes, at: int) -> Candidate | None:
    found = PHONE.match(data, at)
    return None if found is None or b"555" in found[0] else _candidate("phone", found)


def iban(data: bytes, at: int) -> Candidate | None:
    found = IBAN.search(data, at, at + NEAR)
    if found is None or not checksums.iban(found[0].translate(None, SEPARATORS).decode()):
        return None
    return _candidate("iban", found)


def _candidate(rule: str, found: re.Match[bytes]) -> Candidate:
    return Candidate(found.start(), found.end(), rule, "pii", "hint", 0, 0)


# A number without separators is looked for only after a word that says what it is: a pattern of nothing but classes
# would slow the engine everywhere.
SHAPES: Final[tuple[tuple[Entry, Confirm], ...]] = (
    (Entry(b"@", False, r"[A-Za-z0-9._%+-]@[A-Za-z0-9][A-Za-z0-9.-]{3}", 1, 6), email),
    (Entry(b"-", False, r"-[0-9]{2}-[0-9]{4}", 0, 8), ssn),
    (Entry(b" ", False, r" [0-9]{4} [0-9]{4} [0-9]{4}", 0, 15), spaced_card),
    (Entry(b"-", False, r"-[0-9]{4}-[0-9]{4}-[0-9]{4}", 0, 15), spaced_card),
    *((Entry(word, True), named_card) for word in (b"credit", b"card n", b"card_n", b"cardn", b"visa")),
    (Entry(b"+", False, r"\+[1-9][0-9 .-]{3}[0-9 .()-]{5}", 0, 10), phone),
    (Entry(b"iban", True), iban),
)
