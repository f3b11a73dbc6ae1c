"""Values assigned to something called a password, a key, a token: in programs, settings, headers, logs.

A vendor's name close before the assignment and the vendor's shape of value make it precise; otherwise a value
that looks random warns. The engine finds the word that names the secret; the rest is decided here.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal, NamedTuple

from perdure.risk import randomness, rules
from perdure.risk.candidates import Candidate, Entry
from perdure.risk.randomness import DIGIT, NO_DIGITS, random_value
from perdure.risk.word_trie import word_pattern

# The words that name a secret. Those that begin other words count only where they end.
WORDS: Final = (
    Entry(b"passw", True),
    Entry(b"passphrase", True),
    Entry(b"pwd", True, r"pwd[^a-z),.;\[]", 0, 4),
    Entry(b"secret", True),
    Entry(b"token", True, r"token[^a-z),.;\[]", 0, 6),
    Entry(b"key", True, r"key[^a-z),.;\[]", 0, 4),
    Entry(b"auth", True, r"auth[^a-z),.;\[]", 0, 5),
    Entry(b"authorization", True),
    Entry(b"credential", True),
    Entry(b"bearer", True),
    Entry(b"_pat", True, r"_pat[^a-z),.;\[]", 0, 5),
    Entry(b"_salt", True),
)
NAME: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
NAME_LENGTH: Final = 60
# The rest of the name, what closes it, and space; then what is between it and the value; then the value.
HEAD: Final = rb"[A-Za-z0-9_.\-]{0,60}+((?:\\?[\"'`\])]){0,4}+)[ \t]{0,20}+"
NEXT: Final = rb"(?:\\?[\"']?(?:value|default|Value)\\?[\"']?\s{0,4}[:=]\s{0,4}|<(?:string|value)>)"
JOINT: Final = (
    rb"(?::[ ]?[A-Za-z&*][\w.\[\], |?&'<>]{0,40}+=(?!=)|\|\|=|=>|:=|\?=|={1,3}|:{1,2}|,|\(|>|\||\\u003d|%3[Dd])"
    rb"\s{0,40}+" + NEXT + rb"?"
)
HOP: Final = re.compile(rb"[\s,/]{0,40}+" + NEXT + rb"|</key>\s{0,40}<string>")
LOOSE: Final = re.compile(rb"(?:is|by)[ ]")
VALUE: Final = (
    rb"(?:(?:\\?[\"'`])?(?i:bearer|token|apikey|ssws|bot|key)[ =:]{1,3})?(?:[rbfu]{1,2}(?=\\?[\"'`]))?"
    rb"(?:\\?[\"'`]{1,3}([^\s\"'`\\]{6,2000}+)|([^\s\"'`\\<>,;(){}\[\]|&]{6,2000}+)(?![(\[{]))"
)
# One look at all of it: the name's end, then an empty group if something joins it to a value, then the value.
ASSIGNED: Final = re.compile(HEAD + rb"(?:(?>" + JOINT + rb")()(?:" + VALUE + rb")?)?")
NAMED, JOINED = 1, 2
LONE_VALUE: Final = re.compile(VALUE)
HOPS_BEGIN: Final = frozenset(b"\n\r/<,vVd")
LOGIN: Final = b"login"
SETTERS: Final = (b"ENV ", b"ARG ", b"setx ", b"setenv ", b"config:set ", b"SetEnv ")
DASH: Final = ord("-")
BRACE: Final = ord("{")
VARIABLE: Final = b"variable"
DEFAULT: Final = re.compile(rb"\{[^{}]{0,160}?\bdefault\s{0,4}=\s{0,4}")
OPTION: Final = re.compile(rb"--?[A-Za-z][A-Za-z0-9-]{0,40}\Z")
STRONG: Final = re.compile(
    rb"(?i)passw|passphrase|pwd\Z|(?:^|[_.\-])pwd|secret|token|credential|bearer|authorization|api[_\- .]?key"
    rb"|(?:access|private|auth|encryption|encrypt|signing|master|client|license|subscription|account|shared|service"
    rb"|app|admin|secure|storage|hmac|aes|session)[_\- .]?key|_pat\Z|_auth\Z|_salt\Z"
)
WEAK_END: Final = re.compile(
    rb"(?i)(?:id|ids|name|names|type|types|url|uri|path|file|hash|length|len|size|count|expires?|expiry|endpoint|field"
    rb"|header|prefix|suffix|pattern|regex|izer|ize|version|public[_\- ]?key|pubkey|keyword|at|label|index|method"
    rb"|fingerprint|thumbprint|checksum|digest|sha256|sha1|md5|algorithm|arn|ref|selector|class|style|hint)\Z"
)
BEARER: Final = re.compile(rb"(?i)\bbearer[ =:\"'`\\]{1,5}\Z")
PASSWORD: Final = re.compile(rb"(?i)passw|pwd|passphrase")
# A UUID names things more often than it hides them.
UUID: Final = re.compile(rules.UUID.encode() + rb"\Z")
UUID_NAME: Final = re.compile(
    rb"(?i)api[_\- .]?(?:key|token)|secret|(?:access|auth)[_\- .]?(?:key|token)|passw"
)
SECRET_NAME: Final = re.compile(rb"(?i)key|token|secret|pass|pwd|auth|cred|_pat|salt")
CAMEL: Final = re.compile(rb"(?<=[a-z0-9])(?=[A-Z])")
JOINTS: Final = bytes.maketrans(b"-. ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"___abcdefghijklmnopqrstuvwxyz")
CONTEXT: Final = 120
KEYED_LENGTH: Final = 12
# A vendor's name of few letters counts only as a word of its own.
SHORT_WORD: Final = 4
PASSWORD_LENGTH: Final = 8
SECRET_LENGTH: Final = 14
# A text with more of them than this is full of secrets: further values are no longer told from examples.
MANY: Final = 2_000


@functools.lru_cache(maxsize=4096)
def meaning(name: bytes) -> Literal["password", "secret", "weak"] | None:
    """What the name promises: a password, another secret, something that only a vendor's shape makes one."""
    if not SECRET_NAME.search(name):
        return None
    if not STRONG.search(name) or WEAK_END.search(name):
        return "weak"
    return "password" if PASSWORD.search(name) else "secret"


class Keyed(NamedTuple):
    rule: str
    kind: str
    shape: str

    def fits(self, value: bytes) -> bool:
        return _shape(self.shape).fullmatch(value) is not None


@functools.cache
def _shape(shape: str) -> re.Pattern[bytes]:
    return re.compile("|".join(rules.pattern(pieces) for pieces in rules.parse(shape)).encode())


class Vendors(NamedTuple):
    words: re.Pattern[bytes]
    rules: dict[bytes, tuple[Keyed, ...]]


@functools.cache
def vendors() -> Vendors:
    """The table of vendors, by the words that name them."""
    by_word: dict[bytes, list[Keyed]] = {}
    for (kind, name), rule in rules.load_rules().items():
        known = Keyed(name, kind, rule.format)
        for word in rule.names:
            for spelling in {word, word.replace("_", "")}:
                by_word.setdefault(spelling.encode(), []).append(known)
    long = word_pattern(word for word in by_word if len(word) > SHORT_WORD)
    short = word_pattern(word for word in by_word if len(word) <= SHORT_WORD)
    pattern = b"(?<![a-z])(?=(" + long + b")|(" + short + b")(?![a-z]))"
    return Vendors(re.compile(pattern), {word: tuple(keyed) for word, keyed in by_word.items()})


@functools.lru_cache(maxsize=1024)
def _named_in(context: bytes) -> tuple[bytes, ...]:
    """The vendors' words in a context; in settings and in logs it is often the same."""
    split = context if context.islower() else CAMEL.sub(b"_", context)
    return tuple(found[1] or found[2] for found in vendors().words.finditer(split.translate(JOINTS)))


class Assignments:
    """One text's assignments, each looked at once however many words are in its name."""

    __slots__ = ("_data", "_found", "_named", "_read", "_seen")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._seen = 0
        # The vendors named so far, each with where it was; what was read for them is not read again.
        self._named: dict[bytes, int] = {}
        self._read = 0
        self._found = 0

    def at(self, start: int, word: bytes) -> Candidate | None:
        """The value assigned to the name in which this word stands."""
        if start < self._seen:
            return None
        data = self._data
        found = ASSIGNED.match(data, start + len(word))
        assert found is not None
        name_end = self._seen = found.start(1)
        if found.lastindex == JOINED:
            return None
        if found.lastindex == NAMED:
            low = self._value_begins(start, name_end, found.end())
            found = LONE_VALUE.match(data, low) if low else None
            if found is None:
                return None
        # A name may stand in what was taken for a value; a long value is not read again for each word in it.
        self._seen = max(name_end, found.end() - NAME_LENGTH)
        assert found.lastindex
        low, high = found.span(found.lastindex)
        while data[high - 1] in b".,:;":
            high -= 1
        return self._judge(self._name_begins(start), name_end, low, high) if high > low else None

    def _name_begins(self, word: int) -> int:
        before = self._data[max(0, word - NAME_LENGTH) : word]
        return word - len(before) + len(before.rstrip(NAME))

    def _value_begins(self, word: int, name_end: int, at: int) -> int:
        """Where the value would stand if nothing joins it to the name, or 0 where nothing is assigned."""
        data = self._data
        if at >= len(data):
            return 0
        following = data[at]
        if following in HOPS_BEGIN and (hop := HOP.match(data, at)):
            return hop.end()
        if at == name_end and following != BRACE:
            return 0
        first = self._name_begins(word)
        if following == BRACE and VARIABLE in data[max(0, first - 12) : first]:
            default = DEFAULT.match(data, at)
            return default.end() if default else 0
        if at == name_end or following in b"\r\n":
            return 0
        # Words beside each other are prose, unless the first is an option, or something that is set.
        if following in b"ib" and (loose := LOOSE.match(data, at)):
            return loose.end()
        if data[first] == DASH:
            return at if OPTION.match(data, first, name_end) else 0
        if data.startswith(b"password", first):
            return at if LOGIN in data[max(0, first - 80) : first] else 0
        return at if data[max(0, first - 11) : first].endswith(SETTERS) else 0

    def _judge(self, first: int, name_end: int, low: int, high: int) -> Candidate | None:
        value = self._data[low:high]
        if not DIGIT.search(value) and (high - low < NO_DIGITS or value.islower() or value.isupper()):
            return None
        name = self._data[first:name_end]
        means = meaning(name)
        if means is None:
            return None
        is_many = self._found > MANY and means != "weak"
        made_up = not is_many and randomness.made_up(value)
        known = self._vendor(first, name_end, value) if not made_up and len(value) >= KEYED_LENGTH else None
        if known is not None and not (is_many and randomness.made_up(value)):
            return Candidate(low, high, known.rule, known.kind, "precise", 0, 5)
        # What was taken for a value may be the next one's name.
        self._read = name_end
        if means == "weak" or made_up or (UUID.match(value) and not UUID_NAME.search(name)):
            return None
        least = PASSWORD_LENGTH if means == "password" else SECRET_LENGTH
        if not is_many and not random_value(value, least=least, is_made_up=made_up):
            return None
        self._found += 1
        self._read = high
        if BEARER.search(self._data, max(0, low - 12), low):
            return Candidate(low, high, "bearer_token", "api_key", "generic", 0, 1)
        kind = "password" if means == "password" else "generic_secret"
        return Candidate(low, high, f"assigned_{means}", kind, "generic", 0, 1)

    def _vendor(self, first: int, name_end: int, value: bytes) -> Keyed | None:
        named = self._named
        for word in _named_in(self._data[max(self._read, first - CONTEXT, 0) : name_end]):
            named[word] = name_end
        if not named:
            return None
        by_word = vendors().rules
        for word in [word for word, at in named.items() if at < first - CONTEXT]:
            del named[word]
        for word in named:
            for rule in by_word[word]:
                if rule.fits(value):
                    return rule
        return None
