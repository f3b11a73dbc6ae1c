"""A remote MCP server behind OAuth, and its authorization server on a port of its own, both on the official SDK.

`python protected.py TRANSPORT people|machine [LIFETIME_S]` prints the two ports. At the authorization server
`POST /control/expire` ends every access token, `/control/revoke` every token there is, `/control/deny` makes the next
sign-in be refused; `GET /control/seen` tells what happened so far. Whoever opens the address is taken to agree.
"""

from __future__ import annotations

import base64
import secrets
import socket
import sys
import time
from typing import Any

import anyio
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenVerifier,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

CLIENT_ID, CLIENT_SECRET = "machine-id", "machine-secret-that-nobody-sees"
MARK = "tok-that-nobody-sees"
SCOPE = "use"


class Provider:
    """Everything in memory; every refresh token is taken once."""

    def __init__(self, lifetime: int) -> None:
        self.lifetime = lifetime
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.denies = False
        self.seen: dict[str, Any] = {"registered": 0, "refreshed": 0, "revoked": 0, "scopes": []}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.seen["registered"] += 1
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.denies:
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=params.state)
        self.seen["scopes"] = params.scopes
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            client_id=str(client.client_id),
            scopes=params.scopes or [SCOPE],
            expires_at=time.time() + 60,
            **params.model_dump(
                include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly"}
            ),
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.made(str(client.client_id), authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        self.seen["refreshed"] += 1
        return self.made(str(client.client_id), refresh_token.scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        held = self.access.get(token)
        return held if held is not None and (held.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.seen["revoked"] += 1
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def made(self, client_id: str, scopes: list[str], refreshable: bool = True) -> OAuthToken:
        access, refresh = (f"{MARK}-{secrets.token_urlsafe(16)}" for _ in range(2))
        until = int(time.time()) + self.lifetime
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, expires_at=until)
        if refreshable:
            self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(
            access_token=access,
            expires_in=self.lifetime,
            scope=" ".join(scopes),
            refresh_token=refresh if refreshable else None,
        )


class Verifier(TokenVerifier):
    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    async def verify_token(self, token: str) -> AccessToken | None:
        return await self.provider.load_access_token(token)


def authorization_server(provider: Provider, issuer: str, mode: str) -> Starlette:
    async def expire(_: Request) -> JSONResponse:
        provider.access.clear()
        return JSONResponse({})

    async def revoke(_: Request) -> JSONResponse:
        provider.access.clear()
        provider.refresh.clear()
        return JSONResponse({})

    async def deny(_: Request) -> JSONResponse:
        provider.denies = not provider.denies
        return JSONResponse({})

    async def seen(_: Request) -> JSONResponse:
        return JSONResponse(provider.seen)

    async def machine_token(request: Request) -> JSONResponse:
        form = await request.form()
        expected = "Basic " + base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if request.headers.get("authorization") != expected or form["grant_type"] != "client_credentials":
            return JSONResponse({"error": "invalid_client", "error_description": CLIENT_SECRET}, 401)
        provider.seen["registered"] += 1
        made = provider.made(CLIENT_ID, [SCOPE], refreshable=False)
        return JSONResponse(made.model_dump(exclude_none=True))

    async def machine_metadata(_: Request) -> JSONResponse:
        found = {
            "issuer": f"{issuer}/",
            "authorization_endpoint": f"{issuer}/nowhere",
            "token_endpoint": f"{issuer}/token",
            "grant_types_supported": ["client_credentials"],
        }
        return JSONResponse(found)

    routes = [
        Route("/control/expire", expire, methods=["POST"]),
        Route("/control/revoke", revoke, methods=["POST"]),
        Route("/control/deny", deny, methods=["POST"]),
        Route("/control/seen", seen),
    ]
    if mode == "machine":
        routes.append(Route("/token", machine_token, methods=["POST"]))
        routes.append(Route("/.well-known/oauth-authorization-server", machine_metadata))
    else:
        routes += create_auth_routes(
            provider,
            AnyHttpUrl(issuer),
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=[SCOPE, "more"], default_scopes=[SCOPE]
            ),
            revocation_options=RevocationOptions(enabled=True),
        )
    return Starlette(routes=routes)


def mcp_server(provider: Provider, issuer: str, place: str) -> MCPServer:
    server = MCPServer(
        "protected",
        token_verifier=Verifier(provider),
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(issuer),
            resource_server_url=AnyHttpUrl(place),
            required_scopes=[SCOPE],
            validate_token_resource=False,
        ),
    )

    @server.tool(annotations={"readOnlyHint": True})
    def shout(text: str) -> str:
        """The text in capitals."""
        return text.upper()

    return server


def listening() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen()  # before the port is told: a client may connect at once
    return made


async def serve(transport: str, mode: str, lifetime: int) -> None:
    one, two = listening(), listening()
    ports = [sock.getsockname()[1] for sock in (one, two)]
    issuer = f"http://127.0.0.1:{ports[0]}"
    path = "mcp" if transport == "streamable-http" else "sse"
    provider = Provider(lifetime)
    server = mcp_server(provider, issuer, f"http://127.0.0.1:{ports[1]}/{path}")
    app = server.streamable_http_app() if transport == "streamable-http" else server.sse_app()
    print(*ports, flush=True)
    async with anyio.create_task_group() as tasks:
        for app_, sock in ((authorization_server(provider, issuer, mode), one), (app, two)):
            running = uvicorn.Server(uvicorn.Config(app_, log_level="error"))
            tasks.start_soon(running.serve, [sock])


if __name__ == "__main__":
    anyio.run(serve, sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 3600)
