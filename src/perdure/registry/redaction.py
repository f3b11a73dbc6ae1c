"""The one place that makes an entry, a URL, arguments or foreign text fit to be shown.

References are shown: they are names. Literal values of env and headers, the userinfo and the query of a URL, and
arguments that look like secrets are replaced by `[redacted]`; the host of a URL stays readable. The formats of keys, and
what counts as random, are those of the risk check. It is loaded only for a text that may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from perdure.registry.entry import Entry
from perdure.registry.entry_json import members
from perdure.registry.templates import Literal, Reference, Template

REDACTED: Final = "[redacted]"
# Shorter values are words like `info` or `1`, and hide nothing but the text around them.
LEAST_SECRET: Final = 6
LEAST_RANDOM: Final = 20

_SCHEME_WORDS: Final = ("bearer ", "basic ", "token ", "digest ", "apikey ")
_SECRET_NAME: Final = re.compile(
    r"(?i)(?:^|[-_.])(?:token|secret|passw(?:or)?d|pwd|pass|credentials?|auth|authorization|bearer|cookie|session"
    r"|(?:api|access|private|secret|auth|signing|encryption|account)[-_.]?keys?|keys?|pat|dsn)$"
    r"|(?:apikey|accesskey|authtoken|accesstoken|bearertoken|clientsecret|connectionstring)$"
)
# Beginnings of keys that are hidden whatever follows: the risk check asks for a whole, random key.
_PREFIXES: Final = (
    "sk-", "sk_", "rk_", "pk_live_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-",
    "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "AKIA", "ASIA", "AIza", "ya29.", "hf_", "npm_", "pypi-",
    "dop_v1_", "shpat_", "SG.", "eyJ", "lin_api_", "ntn_", "secret_", "figd_", "tvly-", "pplx-", "gsk_", "r8_", "dapi",
    "sbp_", "whsec_", "xai-", "nvapi-", "tskey-", "hvs.", "AGE-SECRET-KEY-",
)  # fmt: skip
_KNOWN_KEY: Final = re.compile(
    rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, _PREFIXES))})[A-Za-z0-9_\-+/=.]{{6,}}"
)
# Long enough for a key, and not a word in lower case.
_MAY_BE_TOKEN: Final = re.compile(r"(?=[a-z_.~$=:+-]*[0-9A-Z])[A-Za-z0-9_.~$=:+-]{16,}")
_RUN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9_\-+=.]{16,}")
_MIXED: Final = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]*")
_ASSIGNED: Final = re.compile(
    r"(?i)\b((?:[a-z0-9]+[-_.])*(?:token|secret|password|passwd|api[-_]?key|authorization)\"?\s*[=:]\s*\"?)"
    r"((?:bearer |basic )?)[^\s\"',;]{4,}"
)
# Numbers, switches and places of files: `MAX_TOKENS=4096`, `TOKEN_FILE=/run/token`.
_HARMLESS: Final = re.compile(r"(?i)[0-9.]+|true|false|yes|no|on|off|none|(?:~|\.{1,2})?/.*")
_ENV_OPTIONS: Final = frozenset({"-e", "--env", "-E", "--set-env"})
_HEADER_OPTIONS: Final = frozenset({"-H", "--header", "--headers"})


def shown_value(template: Template) -> str:
    """A value of env or headers: its references, and the word that names how a token is sent."""
    found = ""
    for part in template.parts:
        if isinstance(part, Reference):
            found += _shown_reference(part)
        elif not found and part.text.lower().startswith(_SCHEME_WORDS):
            word, _, rest = part.text.partition(" ")
            found += f"{word} " + (REDACTED if rest else "")
        else:
            found += REDACTED
    return found


def shown_url(url: Template | str) -> str:
    """A URL without its userinfo, the values of its query, its fragment, and what in its path looks like a key."""
    text = url.text if isinstance(url, Template) else url
    scheme, mark, rest = text.partition("://")
    if not mark:
        return _shown_template(Template(text))
    rest, _, fragment = rest.partition("#")
    rest, asked, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    userinfo, at, host = authority.rpartition("@")
    shown = f"{scheme}://{(REDACTED if not _is_reference(userinfo) else userinfo) + '@' if at else ''}{host}"
    shown += slash + "/".join(REDACTED if _is_key(part) else part for part in path.split("/"))
    if asked:
        shown += "?" + "&".join(_shown_parameter(one) for one in query.split("&"))
    return shown + (f"#{REDACTED}" if fragment else "")


def shown_args(args: Sequence[Template | str]) -> list[str]:
    """Arguments, with every value hidden that an option names a secret, or that looks like one."""
    found: list[str] = []
    after = ""
    for arg in args:
        text = arg.text if isinstance(arg, Template) else arg
        found.append(_shown_argument(text, after))
        after = text
    return found


def shown_env(values: Mapping[str, Template]) -> dict[str, str]:
    return {name: shown_value(value) for name, value in values.items()}


def shown_entry(entry: Entry) -> dict[str, Any]:
    """Everything of an entry that a person may see, as plain JSON; references unresolved."""
    found = members(entry, whole=True)
    for key in ("command", "cwd"):
        if (template := getattr(entry, key)) is not None:
            found[key] = _shown_template(template)
    found |= {
        "title": entry.title or None,
        "description": scrubbed(entry.description),
        "args": shown_args(entry.args),
        "env": shown_env(entry.env),
        "url": shown_url(entry.url) if entry.url is not None else None,
        "headers": shown_env(entry.headers),
        "oauth": {
            name: shown_value(value) if is_secret_name(name) else _shown_template(value)
            for name, value in entry.oauth.items()
        },
        "extra": dict.fromkeys(entry.extra, REDACTED),
    }
    if entry.provenance is not None:
        found["provenance"] |= {
            "catalog": shown_url(entry.provenance.catalog),
            "package": scrubbed(entry.provenance.package),
        }
    return {key: value for key, value in found.items() if value or key not in ("provenance", "extra")}


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """Foreign text, such as what a server wrote to standard error, without the secrets it was started with."""
    for secret in sorted({one for one in secrets if len(one) >= LEAST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    text = _URL.sub(_shown_place, text)
    text = _ASSIGNED.sub(rf"\1\2{REDACTED}", text)
    text = _KNOWN_KEY.sub(REDACTED, text)
    if not _MAY_BE_TOKEN.search(text):
        return text
    from perdure.risk.tokens import mask_tokens

    return _RUN.sub(
        lambda run: (
            REDACTED if _is_marked(run[0]) or (_MIXED.match(run[0]) and is_random(run[0])) else run[0]
        ),
        mask_tokens(text, REDACTED),
    )


def is_random(text: str) -> bool:
    """Whether a generator made it; not words, a version or a date."""
    from perdure.risk.values import random_value

    return not _is_words(text) and random_value(text.encode("utf-8", "replace"), least=LEAST_RANDOM)


def _is_marked(text: str) -> bool:
    """Whether it begins as a vendor's keys do, although it is not one of them as a whole."""
    from perdure.risk.tokens import marks

    return text.startswith(marks()) and not _is_words(text)


def _is_words(text: str) -> bool:
    """Words and versions, such as `server-filesystem-2025.11.25`."""
    return all(part.isalpha() or part.isdigit() or len(part) <= 4 for part in re.split(r"[-_.]", text))


def looks_secret(name: str, value: str) -> bool:
    """Whether a literal value is meant to be kept secret, by its name or by itself."""
    if not value:
        return False
    if is_secret_name(name) or scrubbed(value) != value or is_random(value):
        return True
    return is_suspect_name(name) and _HARMLESS.fullmatch(value) is None


def is_suspect_name(name: str) -> bool:
    """Whether a name has the word for a secret anywhere in it: `PGPASSWORD`, `refreshToken`, `TOKEN_OF_ANN`."""
    from perdure.risk.assignments import STRONG

    return STRONG.search(name.encode("utf-8", "replace")) is not None


def _shown_place(found: re.Match[str]) -> str:
    return shown_url(found[0]) if _has_more_than_a_place(found[0]) else found[0]


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name is meant to be kept secret: `API_KEY`, `--token`, `Authorization`."""
    return _SECRET_NAME.search(name) is not None


def _shown_argument(text: str, after: str) -> str:
    name, equals, value = text.partition("=")
    if after.startswith("-") and "=" not in after:
        if is_secret_name(after) and not text.startswith("--"):
            return _shown_hidden(text)
        if after in _ENV_OPTIONS and equals:
            return f"{name}={_shown_hidden(value)}"
        if after in _HEADER_OPTIONS:
            header, colon, rest = text.partition(":")
            return f"{header}: {shown_value(Template(rest.strip()))}" if colon else _shown_hidden(text)
    if equals and name.startswith("-") and name.partition("-")[2] and is_secret_name(name):
        return f"{name}={_shown_hidden(value)}"
    if equals and name.lower() in _HEADER_OPTIONS | _ENV_OPTIONS:
        inner, mark, rest = value.partition(":" if ":" in value else "=")
        return f"{name}={inner}{mark}{_shown_hidden(rest)}" if mark else f"{name}={_shown_hidden(value)}"
    if equals and not name.startswith("-") and is_secret_name(name):
        return f"{name}={_shown_hidden(value)}"
    return _shown_template(Template(text))


def _shown_hidden(text: str) -> str:
    return shown_value(Template(text)) if text else ""


def _shown_template(template: Template) -> str:
    """A text whose literals may be shown, as far as they do not look like secrets."""
    if not any(isinstance(part, Reference) and part.default for part in template.parts):
        return scrubbed(template.text)
    return "".join(
        scrubbed(part.text.replace("$", "$$")) if isinstance(part, Literal) else _shown_reference(part)
        for part in template.parts
    )


def _shown_reference(part: Reference) -> str:
    if not part.default:
        return part.source
    return part.source.replace(f":-{part.default}", f":-{REDACTED}")


def _shown_parameter(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        return text if _is_reference(text) else REDACTED
    return f"{name}={value if _is_reference(value) else REDACTED}"


def _is_reference(text: str) -> bool:
    parts = Template(text).parts
    return bool(parts) and all(isinstance(part, Reference) and not part.default for part in parts)


def _is_key(text: str) -> bool:
    """Whether a part of a URL's path is a key."""
    return "$" not in text and (is_random(text) or (_URL.match(text) is None and scrubbed(text) != text))


def _has_more_than_a_place(url: str) -> bool:
    rest = url.partition("://")[2]
    return any(mark in rest for mark in "@?#") or any(_is_key(part) for part in rest.split("/")[1:])
