"""Texts that look like secrets and are none: what a risk check must leave alone.

Identifiers and digests that any program prints, lock files, examples from vendors' documentation, placeholders,
references to secrets kept elsewhere, minified code, images in base64, prose about keys.
"""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

PLACEHOLDERS: Final = (
    "your-api-key-here",
    "YOUR_API_KEY",
    "<your-token>",
    "${API_TOKEN}",
    "{{ api_token }}",
    "$(cat /run/secrets/token)",
    "xxxxxxxxxxxxxxxxxxxxxxxx",
    "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
    "********************",
    "changeme",
    "change-me-please",
    "REDACTED",
    "[REDACTED:ghp]",
    "not-a-real-key",
    "fake_token_for_tests",
    "dummy-secret-value",
    "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "sk-ant-api03-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "sk-your-openai-key-goes-here-please",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "ghp_1234567890abcdefghijklmnopqrstuvwxyz",
    "github_pat_XXXXXXXXXXXXXXXXXXXXXX_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
    "glpat-xxxxxxxxxxxxxxxxxxxx",
    "AKIAXXXXXXXXXXXXXXXX",
    "AKIAEXAMPLEEXAMPLE12",
    "xoxb-your-token-goes-here",
    "xoxb-XXXXXXXXXXXX-XXXXXXXXXXXX-XXXXXXXXXXXXXXXXXXXXXXXX",
    "sk_test_XXXXXXXXXXXXXXXXXXXXXXXX",
    "hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "AIzaXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
    "SG.xxxxxxxxxxxxxxxxxxxxxx.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "0123456789abcdef0123456789abcdef",
    "deadbeefdeadbeefdeadbeefdeadbeef",
    "00000000-0000-0000-0000-000000000000",
    "npm_000000000000000000000000000000000000",
    "process.env.API_TOKEN",
    "os.environ['API_TOKEN']",
    "config.get_string(section, option)",
    "vault:secret/data/prod#token",
    "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-AbCdEf",
    "projects/acme/secrets/token/versions/latest",
    "op://vault/item/field",
    "!vault |",
)
DOCUMENTED: Final = (
    "aws_access_key_id = AKIAIOSFODNN7EXAMPLE",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "stripe.api_key = 'sk_test_4eC39HqLyjWDarjtT1zdp7dc'",
    "curl https://api.stripe.com/v1/charges -u sk_test_BQokikJOvBiI2HlWgH4olfQ2:",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
    ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "https://api.telegram.org/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe",
    "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "postgresql://scott:tiger@localhost/test",
    "postgres://user:password@localhost:5432/mydb",
    "mysql://root:root@127.0.0.1:3306/app",
    "mongodb://username:password@host:27017/db",
    "redis://:password@localhost:6379/0",
    "https://user:pass@example.com/path",
    "amqp://guest:guest@localhost:5672//",
    "postgres://${DB_USER}:${DB_PASSWORD}@${DB_HOST}/app",
    "-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----",
    'assert key.startswith("-----BEGIN PRIVATE KEY-----")',
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE7x0\n-----END PUBLIC KEY-----",
    "Authorization: Bearer <token>",
    "Authorization: Basic dXNlcjpwYXNzd29yZA==",
    "def get_token(self, secret: str, password: str | None = None) -> Token:",
    "password = getpass.getpass('Password: ')",
    "api_key = request.headers.get('X-Api-Key')",
    "token = secrets.token_urlsafe(32)",
    'SECRET_KEY = os.environ["SECRET_KEY"]',
    "The secret of a good password is its length; a token is a password for machines.",
    'password_label = "Enter your password (at least 8 characters)"',
    "primary_key = Column(Integer, primary_key=True, autoincrement=True)",
    "token_type = 'bearer_jwt_v2'",
    "const keyCodes = {backspace: 8, tab: 9, enter: 13, shift: 16};",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8vW0qDmE5cVQ1nYH0nqkT3bXgqzM0m2cW1yq3kV9bT dev@laptop",
)
DOCUMENTED_PLACES: Final = ("{}", "    {}", "# {}", "```\n{}\n```", "> {}", "* `{}`")
PLACEHOLDER_PLACES: Final = (
    "API_TOKEN={}",
    'api_key: "{}"',
    'client = Client(token="{}")',
    '{{"secret": "{}"}}',
    "export PASSWORD='{}'",
)


class Benign(NamedTuple):
    kind: str
    text: str


def hard_negatives(seed: int = 1, each: int = 12) -> Iterator[Benign]:
    """Every fixed text in every place, and `each` of every kind that is made at random."""
    chance = random.Random(seed)
    for value in PLACEHOLDERS:
        for place in PLACEHOLDER_PLACES:
            yield Benign("placeholder", place.format(value) + "\n")
    for line in DOCUMENTED:
        for place in DOCUMENTED_PLACES:
            yield Benign("documented", place.format(line) + "\n")
    for kind, make in MADE.items():
        for _ in range(each):
            yield Benign(kind, make(chance) + "\n")


def _bytes(chance: random.Random, count: int) -> bytes:
    return chance.randbytes(count)


def _digest(chance: random.Random, name: str) -> str:
    return hashlib.new(name, _bytes(chance, 32)).hexdigest()


def _integrity(chance: random.Random) -> str:
    return "sha512-" + base64.b64encode(_bytes(chance, 64)).decode()


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(bytes=_bytes(chance, 16), version=4))


def _minified(chance: random.Random) -> str:
    names = ["".join(chance.choices(string.ascii_letters, k=2)) for _ in range(60)]
    return (
        "!function(e,t){"
        + ";".join(f"var {name}=t[{i}].exports({i})" for i, name in enumerate(names))
        + "}();"
    )


def _sums(chance: random.Random) -> str:
    return "\n".join(f"{_digest(chance, 'sha256')}  dist/app-{i}.tar.gz" for i in range(6))


def _image(chance: random.Random) -> str:
    return f'<img src="data:image/png;base64,iVBORw0KGgo{base64.b64encode(_bytes(chance, 900)).decode()}">'


def _certificate(chance: random.Random) -> str:
    body = base64.encodebytes(b"\x30\x82" + _bytes(chance, 700)).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----"


def _npm_lock(chance: random.Random) -> str:
    resolved = "https://registry.example.com/left-pad/-/left-pad-1.3.0.tgz"
    return f'"left-pad": {{"resolved": "{resolved}",\n  "integrity": "{_integrity(chance)}"}}'


MADE: Final[dict[str, Callable[[random.Random], str]]] = {
    "git-log": lambda c: f"commit {_digest(c, 'sha1')}\nAuthor: A Developer\n\n    Fix the parser",
    "git-short": lambda c: f"Merge {_digest(c, 'sha1')[:7]} into {_digest(c, 'sha1')[:12]}",
    "submodule": lambda c: f" {_digest(c, 'sha1')} vendor/lib (v1.2.3)",
    "sha256-sums": _sums,
    "docker-digest": lambda c: f"FROM python:3.12@sha256:{_digest(c, 'sha256')}",
    "uuid": lambda c: f'{{"request_id": "{_uuid(c)}", "trace_id": "{_digest(c, "md5")}"}}',
    "uuid-list": lambda c: "\n".join(_uuid(c) for _ in range(8)),
    "npm-lock": _npm_lock,
    "yarn-lock": lambda c: (
        f'lodash@^4:\n  version "4.1"\n  resolved "https://r.test/l.tgz#{_digest(c, "sha1")}"\n  integrity {_integrity(c)}'
    ),
    "pip-hashes": lambda c: f"attrs==23.2.0 \\\n    --hash=sha256:{_digest(c, 'sha256')}",
    "cargo-lock": lambda c: f'name = "serde"\nversion = "1.0.1"\nchecksum = "{_digest(c, "sha256")}"',
    "go-sum": lambda c: f"golang.org/x/net v0.1.0 h1:{base64.b64encode(_bytes(c, 32)).decode()}",
    "poetry-lock": lambda c: (
        f'    {{file = "a-1.0-py3-none-any.whl", hash = "sha256:{_digest(c, "sha256")}"}},'
    ),
    "etag": lambda c: f'ETag: "{_digest(c, "md5")}"\nX-Request-Id: {_uuid(c)}',
    "image": _image,
    "certificate": _certificate,
    "minified": _minified,
    "css-colours": lambda c: ";".join(f"--c{i}:#{_digest(c, 'md5')[:6]}" for i in range(30)),
    "source-map": lambda c: '{"version":3,"mappings":"' + ";".join("AACA,SAASA" for _ in range(40)) + '"}',
    "asset-names": lambda c: f'<script src="/static/js/main.{_digest(c, "md5")[:8]}.chunk.js"></script>',
    "kubernetes-name": lambda c: f"pod/api-7d9f8b6c5d-{_digest(c, 'md5')[:5]} Running",
    "hexdump": lambda c: "\n".join(f"{i:08x}: {_bytes(c, 16).hex(' ', 2)}" for i in range(0, 96, 16)),
    "terraform-ids": lambda c: f'subnet_id = "subnet-0{_digest(c, "sha1")[:16]}"\nkms_key_id = "{_uuid(c)}"',
    "cache-key": lambda c: f"cache_key = '{_digest(c, 'sha256')}'  # of the inputs",
    "etags-json": lambda c: f'{{"sha256": "{_digest(c, "sha256")}", "md5": "{_digest(c, "md5")}"}}',
    "public-key": lambda c: f"ssh-rsa AAAAB3NzaC1yc2E{base64.b64encode(_bytes(c, 200)).decode()} dev@host",
    "known-hosts": lambda c: (
        f"|1|{base64.b64encode(_bytes(c, 20)).decode()}|{base64.b64encode(_bytes(c, 20)).decode()} ssh-ed25519 AAAA"
    ),
    "phone-like": lambda c: "-".join(str(c.randrange(100, 999)) for _ in range(4)),
    "timestamps": lambda c: "\n".join(str(c.randrange(10**15, 10**16)) for _ in range(6)),
}
