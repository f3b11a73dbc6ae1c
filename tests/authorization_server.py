"""An authorization server on this machine: it signs real tokens, publishes its keys, and answers about its tokens."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import time
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CLIENT, SECRET = "perdure", "s3cret of perdure"


class AuthorizationServer:
    """`audience` is for whom it issues tokens when it is not told otherwise."""

    def __init__(self, audience: str = "") -> None:
        self.audience = audience
        self.keys: dict[str, Any] = {}
        self.issued: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.is_silent = False
        self.rotate()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                found = server.document(self.path)
                self.reply(404 if found is None else 200, found or {})

            def do_POST(self) -> None:
                server.asked.append(self.path)
                form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                self.reply(*server.introspect(self.headers.get("authorization", ""), form["token"][0]))

            def reply(self, status: int, found: dict[str, Any]) -> None:
                body = json.dumps(found).encode()
                self.send_response(503 if server.is_silent else status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    # --- keys and tokens -------------------------------------------------------------------------------------

    def rotate(self) -> None:
        """The keys of yesterday are gone."""
        self.keys = {
            f"rsa-{uuid4().hex[:8]}": rsa.generate_private_key(public_exponent=65537, key_size=2048),
            f"ec-{uuid4().hex[:8]}": ec.generate_private_key(ec.SECP256R1()),
        }

    def token(self, algorithm: str = "RS256", kid: str | None = None, **claims: Any) -> str:
        """Signed with the key for the algorithm. A claim of None is left out."""
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": self.audience, "sub": "ann", "iat": now, "exp": now + 300}
        found = {key: value for key, value in {**usual, **claims}.items() if value is not None}
        name = next(name for name in self.keys if name.startswith("ec" if algorithm[0] == "E" else "rsa"))
        made = jwt.encode(found, self.keys[name], algorithm, headers={"kid": kid or name})
        self.issued[made] = found
        return made

    def opaque(self, **claims: Any) -> str:
        made = uuid4().hex
        self.issued[made] = jwt.decode(self.token(**claims), options={"verify_signature": False})
        return made

    def public_pem(self) -> bytes:
        name = next(name for name in self.keys if name.startswith("rsa"))
        return bytes(
            self.keys[name].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )

    # --- what it says ----------------------------------------------------------------------------------------

    def document(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/oauth-authorization-server":
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        if path == "/keys":
            algorithms = {"r": jwt.algorithms.RSAAlgorithm, "e": jwt.algorithms.ECAlgorithm}
            return {
                "keys": [
                    {**algorithms[name[0]].to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}
                    for name, key in self.keys.items()
                ]
            }
        return None

    def introspect(self, authorization: str, token: str) -> tuple[int, dict[str, Any]]:
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if given != f"{CLIENT}:{SECRET.replace(' ', '%20')}":
            return 401, {}
        found = self.issued.get(token)
        return 200, {"active": True, **found} if found is not None else {"active": False}
