"""Words that are another one but for a slip of the fingers."""

from __future__ import annotations


def one_slip(word: str, known: str) -> bool:
    """Whether a word is a known one with one letter missing, added or changed, or two swapped."""
    if word == known or abs(len(word) - len(known)) > 1 or len(known) < 4:
        return False
    start = 0
    while start < min(len(word), len(known)) and word[start] == known[start]:
        start += 1
    a, b = word[start:], known[start:]
    swapped = len(a) > 1 and len(b) > 1 and a[0] == b[1] and a[1] == b[0] and a[2:] == b[2:]
    return a[1:] == b or a == b[1:] or (a[1:] == b[1:] and len(known) > 4) or swapped
