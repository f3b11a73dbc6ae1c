"""Secrets in short texts: a name, a value, an argument, a part of a URL, a line that a server wrote.

The same formats and names as a scan, without its engine: compiling that takes longer than reading a short text. A short text
has no context, so a vendor's mark hides what follows it although the whole is not a key of that vendor's format. The tables
are imported by the first text that may hold a token.
"""

from __future__ import annotations

import re
from typing import Final

LEAST_RANDOM: Final = 20
_SECRET_NAME: Final = re.compile(
    r"(?i)(?:^|[-_.])(?:token|secret|passw(?:or)?d|pwd|pass|credentials?|auth|authorization|bearer|cookie|session"
    r"|(?:api|access|private|secret|auth|signing|encryption|account)[-_.]?keys?|keys?|pat|dsn)$"
    r"|(?:apikey|accesskey|authtoken|accesstoken|bearertoken|clientsecret|connectionstring)$"
)
# Marks that begin no word: what follows is hidden even if it is letters alone.
_CERTAIN_MARKS: Final = (
    "sk-", "sk_", "rk_", "pk_live_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-",
    "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "AKIA", "ASIA", "AIza", "ya29.", "hf_", "npm_", "pypi-",
    "dop_v1_", "shpat_", "SG.", "eyJ", "lin_api_", "ntn_", "secret_", "figd_", "tvly-", "pplx-", "gsk_", "r8_", "dapi",
    "sbp_", "whsec_", "xai-", "nvapi-", "tskey-", "hvs.", "AGE-SECRET-KEY-",
)  # fmt: skip
_MARKED: Final = re.compile(
    rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, _CERTAIN_MARKS))})[A-Za-z0-9_\-+/=.]{{6,}}"
)
_ASSIGNED: Final = re.compile(
    r"(?i)\b((?:[a-z0-9]+[-_.])*(?:token|secret|password|passwd|api[-_]?key|authorization)\"?\s*[=:]\s*\"?)"
    r"((?:bearer |basic )?)[^\s\"',;]{4,}"
)
# Long enough for a key, and not a word in lower case.
_MAY_BE_TOKEN: Final = re.compile(r"(?=[a-z_.~$=:+-]*[0-9A-Z])[A-Za-z0-9_.~$=:+-]{16,}")
_RUN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9_\-+=.]{16,}")
_MIXED: Final = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])")
# Numbers, switches and paths: `MAX_TOKENS=4096`, `TOKEN_FILE=/run/token`.
_HARMLESS: Final = re.compile(r"(?i)[0-9.]+|true|false|yes|no|on|off|none|(?:~|\.{1,2})?/.*")


def mask_secrets(text: str, marker: str) -> str:
    """The text with the marker in place of each assigned secret, token and random run."""
    text = _ASSIGNED.sub(rf"\1\2{marker}", text)
    text = _MARKED.sub(marker, text)
    if not _MAY_BE_TOKEN.search(text):
        return text
    from perdure.risk.tokens import mask_tokens

    return _RUN.sub(lambda run: marker if _is_token(run[0]) else run[0], mask_tokens(text, marker))


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret: `API_KEY`, `--token`, `Authorization`."""
    return _SECRET_NAME.search(name) is not None


def is_secret_value(name: str, value: str) -> bool:
    """Whether a literal is a secret, by its name or by itself. A name counts that has the word anywhere in it
    (`PGPASSWORD`, `refreshToken`), unless the value is a number, a switch or a path."""
    if not value:
        return False
    if is_secret_name(name) or is_random(value) or mask_secrets(value, "") != value:
        return True
    from perdure.risk.assignments import STRONG

    return STRONG.search(name.encode("utf-8", "replace")) is not None and _HARMLESS.fullmatch(value) is None


def is_random(text: str) -> bool:
    """Whether a generator made it; not words, a version or a date."""
    from perdure.risk.randomness import random_value

    return not _is_words(text) and random_value(text.encode("utf-8", "replace"), least=LEAST_RANDOM)


def _is_token(run: str) -> bool:
    from perdure.risk.tokens import marks

    if run.startswith(marks()) and not _is_words(run):
        return True
    return _MIXED.match(run) is not None and is_random(run)


def _is_words(text: str) -> bool:
    """Words and versions, such as `server-filesystem-2025.11.25`."""
    return all(part.isalpha() or part.isdigit() or len(part) <= 4 for part in re.split(r"[-_.]", text))
