"""A labelled corpus for the risk check: secrets of every format in the places where people leave them.

    python -m harness.corpora.secret_corpus [--seed 1]        # prints one sample of each format

Bodies are random, so nothing in it was ever valid. Its benign half is `harness.corpora.benign_corpus`.
"""

from __future__ import annotations

import argparse
import base64
import random
import re
import string
import textwrap
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from harness.corpora.secret_formats import MARKED, NAMED
from harness.corpora.secret_places import NAMED_PLACES, PLACES

ALPHABETS: Final = {
    "d": string.digits,
    "x": "0123456789abcdef",
    "X": "0123456789ABCDEF",
    "n": string.ascii_letters + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "w": string.ascii_letters + string.digits + "-_",
    "b": string.ascii_letters + string.digits + "+/",
    "c": string.ascii_letters,
    "q": string.ascii_uppercase + "234567",
    "p": string.ascii_letters + string.digits + "!@#%^*_+-",
}
FIELD: Final = re.compile(r"%([a-zX])(\d+);?|%U")
KEY_KINDS: Final = ("RSA ", "EC ", "DSA ", "", "ENCRYPTED ", "OPENSSH ")
SCHEMES: Final = (
    "postgres",
    "postgresql",
    "mysql",
    "mongodb+srv",
    "redis",
    "amqp",
    "mssql",
    "https",
    "ftp",
    "smtp",
)


class Sample(NamedTuple):
    """A text with a secret in it, what kind it is, and in what place it stands."""

    format: str
    place: str
    text: str
    secret: str


def positives(seed: int = 1, each: int = 10) -> Iterator[Sample]:
    """`each` samples of every format, in different places."""
    chance = random.Random(seed)
    for line in MARKED.split("\n"):
        if line:
            label, form = line.split(" ", 1)
            yield from _placed(chance, label, label.split("-")[0].upper(), form, each)
    for line in NAMED.split("\n"):
        if line:
            name, form = line.split(" ", 1)
            yield from _placed(chance, name.lower(), name, form, each, named=True)
    for label in SHAPES:
        for _ in range(each):
            secret = SHAPES[label](chance)
            yield Sample(label, "whole", _around(chance, secret), secret)


def _placed(
    chance: random.Random, label: str, name: str, form: str, each: int, *, named: bool = False
) -> Iterator[Sample]:
    places = list((NAMED_PLACES if named else PLACES).items())
    name = name if named else f"{name}_{chance.choice(('API_KEY', 'TOKEN', 'SECRET', 'KEY'))}"
    for place, template in chance.sample(places, min(each, len(places))):
        secret = filled(chance, form)
        line = template.format(
            name=name,
            lower=name.lower(),
            dashed=name.lower().replace("_", "-"),
            camel=_camel(name),
            secret=secret,
            encoded=base64.b64encode(secret.encode()).decode(),
            quoted=msgspec.json.encode(secret).decode()[1:-1],
        )
        yield Sample(label, place, _around(chance, line), secret)


def filled(chance: random.Random, form: str) -> str:
    """The format with every field filled at random."""
    return FIELD.sub(lambda field: _body(chance, field), form)


def _body(chance: random.Random, field: re.Match[str]) -> str:
    if field[0] == "%U":
        digits = _some(chance, "x", 32)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return _some(chance, field[1], int(field[2]))


def _some(chance: random.Random, alphabet: str, count: int) -> str:
    return "".join(chance.choices(ALPHABETS[alphabet], k=count))


def _camel(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(part.title() for part in rest)


SURROUNDINGS: Final = (
    "# settings of the service\nREGION=eu-west-1\nDEBUG=false\n",
    "import os\nimport logging\n\nlog = logging.getLogger(__name__)\n\n",
    "",
    "2024-05-11T09:12:44Z INFO starting worker pid=4121\n",
    "## Setup\n\nRun these before the first deploy.\n\n",
)


def _around(chance: random.Random, line: str) -> str:
    return f"{chance.choice(SURROUNDINGS)}{line}\n{chance.choice(SURROUNDINGS)}"


def _armour(body: str, kind: str, width: int = 64) -> str:
    lines = "\n".join(textwrap.wrap(body, width))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


def _pem(chance: random.Random) -> str:
    kind = chance.choice(KEY_KINDS)
    return _armour("MII" + _some(chance, "b", chance.choice((160, 400, 1190))) + "=", f"{kind}PRIVATE KEY")


def _ed25519(chance: random.Random) -> str:
    return _armour("MC4CAQAwBQYDK2VwBCIEI" + _some(chance, "b", 43), "PRIVATE KEY")


def _pem_in_json(chance: random.Random) -> str:
    return msgspec.json.encode({"type": "service_account", "private_key": _pem(chance) + "\n"}).decode()


def _pem_in_code(chance: random.Random) -> str:
    return "\n".join(f'    "{line}\\n"' for line in _pem(chance).split("\n"))


def _pem_wrapped(chance: random.Random) -> str:
    return "client-key-data: " + base64.b64encode(_pem(chance).encode()).decode()


def _encrypted_pem(chance: random.Random) -> str:
    body = "\n".join(textwrap.wrap(_some(chance, "b", 800), 64))
    head = f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{_some(chance, 'X', 32)}"
    return f"-----BEGIN RSA PRIVATE KEY-----\n{head}\n\n{body}\n-----END RSA PRIVATE KEY-----"


def _pgp(chance: random.Random) -> str:
    body = "\n".join(textwrap.wrap(_some(chance, "b", 900), 64))
    kind = "PGP PRIVATE KEY BLOCK"
    return f"-----BEGIN {kind}-----\nVersion: GnuPG v2\n\n{body}\n=aB3d\n-----END {kind}-----"


def _putty(chance: random.Random) -> str:
    lines = "\n".join(textwrap.wrap(_some(chance, "b", 600), 64))
    return (
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: deploy\nPublic-Lines: 2\n"
        f"{_some(chance, 'b', 64)}\n{_some(chance, 'b', 20)}\nPrivate-Lines: 10\n{lines}\n"
        f"Private-MAC: {_some(chance, 'x', 64)}"
    )


def _jwt(chance: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")

    header = {"alg": chance.choice(("HS256", "RS256", "ES256")), "typ": "JWT", "kid": _some(chance, "n", 8)}
    claims = {
        "iss": "https://id.acme.io",
        "sub": _some(chance, "l", 12),
        "exp": chance.randrange(10**9, 2 * 10**9),
    }
    return f"Authorization: Bearer {part(header)}.{part(claims)}.{_some(chance, 'w', 43)}"


def _url(chance: random.Random) -> str:
    scheme, host = (
        chance.choice(SCHEMES),
        chance.choice(("db.internal", "10.2.0.7", "cluster0.ab1cd.mongodb.net")),
    )
    return f"DATABASE_URL={scheme}://app_rw:{_some(chance, 'n', 16)}@{host}:5432/main"


def _basic(chance: random.Random) -> str:
    pair = f"deploy:{_some(chance, 'n', 18)}"
    return f"curl -H 'Authorization: Basic {base64.b64encode(pair.encode()).decode()}' https://ci.acme.io/run"


def _user(chance: random.Random) -> str:
    return f"curl -u deploy:{_some(chance, 'n', 18)} https://ci.acme.io/run"


def _netrc(chance: random.Random) -> str:
    return f"machine git.acme.io\n  login deploy\n  password {_some(chance, 'n', 20)}"


SHAPES: Final = {
    "pem": _pem,
    "pem-ed25519": _ed25519,
    "pem-in-json": _pem_in_json,
    "pem-in-code": _pem_in_code,
    "pem-wrapped": _pem_wrapped,
    "pem-encrypted": _encrypted_pem,
    "pgp": _pgp,
    "putty": _putty,
    "jwt": _jwt,
    "url-password": _url,
    "basic-auth": _basic,
    "curl-user": _user,
    "netrc": _netrc,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Print one sample of each format of the corpus.")
    parser.add_argument("--seed", type=int, default=1)
    for sample in positives(parser.parse_args().seed, each=1):
        print(f"--- {sample.format} ({sample.place})\n{sample.text}")


if __name__ == "__main__":
    main()
