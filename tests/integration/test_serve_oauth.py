"""`perdure serve` as an OAuth resource server: a real authorization server, real signatures, and tokens that lie."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from authorization_server import CLIENT, SECRET, AuthorizationServer
from perdure.testing.http_client import HttpClient, ServeProcess
from testbed import trusted

pytestmark = pytest.mark.thorough


@pytest.fixture
def authority() -> Iterator[AuthorizationServer]:
    made = AuthorizationServer()
    yield made
    made.close()


def start(tmp_path: Path, authority: AuthorizationServer, *options: str, **env: str) -> ServeProcess:
    served = ServeProcess(tmp_path, "--oauth-issuer", authority.issuer, *options, env=env)
    authority.audience = f"http://127.0.0.1:{served.port}/mcp"
    return served


@pytest.fixture
def served(tmp_path: Path, authority: AuthorizationServer) -> Iterator[ServeProcess]:
    process = start(tmp_path, authority)
    yield process
    assert process.stop() == 0


def bearing(served: ServeProcess, token: str) -> HttpClient:
    return served.client(Authorization=f"Bearer {token}")


def challenge(answer: Any) -> dict[str, str]:
    said = answer.headers["www-authenticate"].removeprefix("Bearer ")
    return {key: value.strip('"') for key, _, value in (part.partition("=") for part in said.split(", "))}


def get(served: ServeProcess, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


# --- finding the way in ------------------------------------------------------------------------------------


def test_who_has_no_token_is_told_where_to_get_one(served: ServeProcess, authority: Any) -> None:
    answer = served.client().request("ping")
    assert answer.status == 401
    said = challenge(answer)
    assert "error" not in said
    place = said["resource_metadata"].removeprefix(f"http://127.0.0.1:{served.port}")
    status, body = get(served, place)
    assert status == 200
    found = json.loads(body)
    assert found["resource"] == authority.audience
    assert found["authorization_servers"] == [authority.issuer]
    assert get(served, "/.well-known/oauth-protected-resource")[1] == body


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
def test_a_token_of_the_issuer_for_us_lets_in(served: ServeProcess, authority: Any, algorithm: str) -> None:
    client = bearing(served, authority.token(algorithm))
    client.initialize()
    assert not client.call("set_state", {"key": "k", "value": "1"}).get("isError")
    assert client.modern("server/discover").status == 200


def test_the_keys_are_fetched_once_for_many_requests(served: ServeProcess, authority: Any) -> None:
    client = bearing(served, authority.token())
    client.initialize()
    for _ in range(5):
        assert bearing(served, authority.token()).modern("server/discover").status == 200
    assert authority.asked.count("/keys") == 1


# --- tokens that lie ---------------------------------------------------------------------------------------


def unsigned(authority: AuthorizationServer) -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=")
    return f"{head.decode()}.{authority.token().split('.')[1]}."


def signed_with_the_public_key(authority: AuthorizationServer) -> str:
    """The old trick: what everybody knows, used as a secret."""
    import hashlib
    import hmac

    kid = next(name for name in authority.keys if name.startswith("rsa"))
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": kid}).encode()).rstrip(b"=")
    body = head + b"." + authority.token().split(".")[1].encode()
    mark = hmac.new(authority.public_pem(), body, hashlib.sha256).digest()
    return (body + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()


def of_a_stranger(authority: AuthorizationServer) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kid = next(name for name in authority.keys if name.startswith("rsa"))
    claims = jwt.decode(authority.token(), options={"verify_signature": False})
    return jwt.encode(claims, key, "RS256", headers={"kid": kid})


def altered(authority: AuthorizationServer) -> str:
    head, body, mark = authority.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    made = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "eve"}).encode()).rstrip(b"=").decode()
    return f"{head}.{made}.{mark}"


LIES: dict[str, Callable[[AuthorizationServer], str]] = {
    "another audience": lambda a: a.token(aud="https://other.example/mcp"),
    "no audience": lambda a: a.token(aud=None),
    "another issuer": lambda a: a.token(iss="https://other.example"),
    "expired": lambda a: a.token(exp=int(time.time()) - 60),
    "never expires": lambda a: a.token(exp=None),
    "not yet good": lambda a: a.token(nbf=int(time.time()) + 600),
    "nobody's": lambda a: a.token(sub=None),
    "an unknown key": lambda a: a.token(kid="made-up"),
    "a key of another kind": lambda a: a.token(kid=next(name for name in a.keys if name.startswith("ec"))),
    "unsigned": unsigned,
    "signed with the public key": signed_with_the_public_key,
    "of a stranger": of_a_stranger,
    "altered": altered,
    "an algorithm that was not asked for": lambda a: a.token("RS512"),
    "no JWT": lambda a: "opaque",
    "too long": lambda a: a.token(more="x" * 20_000),
}


def test_a_token_that_lies_lets_nobody_in(served: ServeProcess, authority: AuthorizationServer) -> None:
    assert bearing(served, authority.token()).modern("server/discover").status == 200
    for name, lie in LIES.items():
        answer = bearing(served, lie(authority)).modern("server/discover")
        assert (answer.status, challenge(answer)["error"]) == (401, "invalid_token"), name


def test_a_token_without_the_scope_is_refused_and_told_which(tmp_path: Path, authority: Any) -> None:
    served = start(tmp_path, authority, "--oauth-scopes", "perdure:use files")
    try:
        answer = bearing(served, authority.token(scope="files other")).modern("server/discover")
        said = challenge(answer)
        assert (answer.status, said["error"]) == (403, "insufficient_scope")
        assert said["scope"] == "perdure:use files"
        for scope in ({"scope": "files perdure:use"}, {"scp": ["perdure:use", "files"]}):
            assert bearing(served, authority.token(**scope)).modern("server/discover").status == 200
    finally:
        served.stop()


# --- keys change, servers fail -----------------------------------------------------------------------------


def test_keys_that_are_rotated_are_learned(served: ServeProcess, authority: AuthorizationServer) -> None:
    assert bearing(served, authority.token()).modern("server/discover").status == 200
    old = authority.token(sub="late")
    authority.rotate()
    token = authority.token()
    until = time.monotonic() + 30
    while bearing(served, token).modern("server/discover").status != 200:  # it does not ask at once again
        assert time.monotonic() < until
        time.sleep(0.2)
    assert bearing(served, old).modern("server/discover").status == 401


def test_made_up_keys_do_not_make_us_ask_again_and_again(served: ServeProcess, authority: Any) -> None:
    for number in range(20):
        assert bearing(served, authority.token(kid=f"k{number}")).modern("server/discover").status == 401
    assert authority.asked.count("/keys") <= 3


def test_a_silent_issuer_lets_in_who_is_known_and_nobody_else(tmp_path: Path, authority: Any) -> None:
    served = start(tmp_path, authority)
    try:
        authority.is_silent = True
        answer = bearing(served, authority.token()).modern("server/discover")
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        authority.is_silent = False
        until = time.monotonic() + 30
        while bearing(served, authority.token()).modern("server/discover").status != 200:
            assert time.monotonic() < until
            time.sleep(0.2)
        authority.is_silent = True
        assert bearing(served, authority.token(sub="bob")).modern("server/discover").status == 200
    finally:
        served.stop()


# --- whose session it is -----------------------------------------------------------------------------------


def test_a_session_is_its_openers_alone(served: ServeProcess, authority: AuthorizationServer) -> None:
    ann, bob = bearing(served, authority.token()), bearing(served, authority.token(sub="bob"))
    ann.initialize()
    bob.session = ann.session
    assert bob.request("ping").status == 404
    assert bob.send("DELETE").status == 404
    served.restart()
    assert bob.request("ping").status == 404
    assert bearing_again(served, authority, ann).request("ping").last["result"] == {}


def bearing_again(served: ServeProcess, authority: AuthorizationServer, client: HttpClient) -> HttpClient:
    """The same person with a fresh token."""
    made = bearing(served, authority.token())
    made.session = client.session
    return made


def test_a_token_goes_no_further_than_the_door(tmp_path: Path, authority: AuthorizationServer) -> None:
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import os, sys\n"
        f"seen = open({str(tmp_path / 'seen')!r}, 'ab', buffering=0)\n"
        "seen.write(repr(dict(os.environ)).encode())\n"
        "for line in sys.stdin.buffer: seen.write(line)\n"
    )
    served = start(tmp_path, authority, "--mount", f"spy={sys.executable} {spy}")
    try:
        token = authority.token()
        client = bearing(served, token)
        client.initialize()
        client.call("safe_write", {"path": "a", "content": "x\n"})
        until = time.monotonic() + 30
        while b"initialize" not in (tmp_path / "seen").read_bytes():
            assert time.monotonic() < until
    finally:
        served.stop()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"initialize" in kept
    for part in token.split("."):
        assert part.encode() not in kept


def test_pages_for_people_are_not_opened_by_access_tokens(served: ServeProcess, authority: Any) -> None:
    assert get(served, "/")[0] == 401
    assert get(served, "/healthz")[0] == 200


def test_the_owners_token_and_access_tokens_both_let_in(tmp_path: Path, authority: Any) -> None:
    served = start(tmp_path, authority, PERDURE_TOKEN="the-owners")
    try:
        assert bearing(served, "the-owners").modern("server/discover").status == 200
        assert bearing(served, authority.token()).modern("server/discover").status == 200
        assert bearing(served, "another").modern("server/discover").status == 401
        assert get(served, "/sign-in")[0] == 200
    finally:
        served.stop()


# --- tokens that only their issuer can read ----------------------------------------------------------------


def test_the_issuer_is_asked_about_tokens_that_say_nothing(tmp_path: Path, authority: Any) -> None:
    options = ("--oauth-introspection", f"{authority.issuer}/introspect", "--oauth-client-id", CLIENT)
    served = start(tmp_path, authority, *options, PERDURE_OAUTH_CLIENT_SECRET=SECRET)
    try:
        assert bearing(served, authority.opaque()).modern("server/discover").status == 200
        for refused in (
            "made-up",
            authority.opaque(aud="https://other.example"),
            authority.opaque(iss="https://other.example"),
            authority.opaque(exp=int(time.time()) - 60),
        ):
            answer = bearing(served, refused).modern("server/discover")
            assert (answer.status, challenge(answer)["error"]) == (401, "invalid_token")
        assert authority.asked.count("/introspect") == 5
    finally:
        served.stop()


# --- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--oauth-issuer", "http://issuer.example"], "not encrypted"),
        (["--oauth-issuer", "https://issuer.example", "--oauth-algorithms", "none"], "none"),
        (["--oauth-issuer", "https://issuer.example", "--oauth-algorithms", "RS256,HS256"], "HS256"),
        (["--oauth-scopes", "a"], "issuer"),
        (["--oauth-issuer", "https://issuer.example", "--host", "0.0.0.0"], "--public-url"),
        (["--certificate", "cert.pem"], "--key"),
        (["--public-url", "tools.example"], "--public-url"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_the_start(tmp_path: Path, options: list[str], said: str) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PERDURE_")}
    command = [sys.executable, "-P", "-m", "perdure", "serve", "--port", "0", *options]
    done = subprocess.run(
        command,
        env={**env, "PERDURE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 2
    assert said in done.stderr


def test_everything_can_stand_in_the_settings_file(tmp_path: Path, authority: AuthorizationServer) -> None:
    (tmp_path / "workspace").mkdir()
    trusted(
        tmp_path / "workspace" / "perdure.toml",
        f'[serve]\nmetrics = true\n[serve.oauth]\nissuer = "{authority.issuer}"\n'
        f'audience = ["perdure"]\nscopes = "use"\njwks = "{authority.issuer}/keys"\nalgorithms = ["ES256"]\n',
        tmp_path / "home",
    )
    served = ServeProcess(tmp_path)
    try:
        good = authority.token("ES256", aud=["other", "perdure"], scope="use")
        assert bearing(served, good).modern("server/discover").status == 200
        assert bearing(served, authority.token(aud="perdure", scope="use")).request("ping").status == 401
        assert "/.well-known/oauth-authorization-server" not in authority.asked
    finally:
        served.stop()
