"""Requests to a remote server under a sign-in: the stored token is sent, renewed when it is old, and never shown.

The official SDK makes the OAuth requests (`bridge_sign_in` the first ones). Between them a request only gets its header:
no request waits for the answer to another. A bridge asks nobody: where a person is needed it says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import anyio
import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, Field

from perdure.protocol.frames import RequestId
from perdure.registry.entry import GRANTS
from perdure.registry.http.address import check_address, read_address
from perdure.registry.oauth_tokens import Grant, read_grant, refresh_lock, write_grant

EARLY_S: Final = 30.0
CLIENT_NAME: Final = "Perdure"
# What an authorization server answers when another try would be refused as well.
_FINAL: Final = (400, 401, 403)
_CALLS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})


class SignInRequired(Exception):
    """Only a person can go on from here."""


class AuthorizationFailed(Exception):
    """The authorization server did not do its part just now."""


class Metadata(OAuthClientMetadata):
    """What a client says of itself. Scopes that an entry names are asked for, whatever the server suggests; those that it
    has, and those that a call was refused for (`kept`), beside what the server suggests."""

    fixed: bool = Field(default=False, exclude=True)
    kept: str | None = Field(default=None, exclude=True)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "scope":
            if self.fixed:
                return
            value = union_scopes(self.kept, value)
        super().__setattr__(name, value)


def metadata(oauth: dict[str, str], redirect: str, before: Grant | None = None) -> Metadata:
    scopes = oauth.get("scopes")
    kept = (
        union_scopes(before.tokens.get("scope"), before.wanted)
        if before is not None and before.wanted
        else None
    )
    return Metadata(
        redirect_uris=[AnyUrl(redirect)],
        client_name=CLIENT_NAME,
        scope=scopes,
        fixed=scopes is not None,
        kept=kept,
    )


class Storage:
    """The SDK's view of one grant; what it wants to have kept is in `tokens` and `client`."""

    def __init__(self, grant: Grant | None, oauth: dict[str, str], redirect: str = "") -> None:
        self._grant = grant
        self._oauth = oauth
        self._redirect = redirect
        self.is_registered = "client_id" not in oauth
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        held = self._grant.tokens if self._grant is not None else {}
        return OAuthToken.model_validate(held) if held else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """As the entry names it, else as it was registered."""
        if (named := self._oauth.get("client_id")) is not None:
            secret = self._oauth.get("client_secret")
            self.client = OAuthClientInformationFull(
                client_id=named,
                client_secret=secret,
                issuer=self._oauth.get("issuer"),
                redirect_uris=[AnyUrl(self._redirect)] if self._redirect else None,
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
            )
        elif self._grant is not None and self._grant.client:
            self.client = OAuthClientInformationFull.model_validate(self._grant.client)
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def grant_of(login: str, provider: OAuthClientProvider, storage: Storage) -> Grant:
    """What is kept of a sign-in. A client that the entry names stays in the entry."""
    assert storage.tokens is not None
    context = provider.context
    server, client = context.oauth_metadata, storage.client
    return Grant(
        login=login,
        tokens=storage.tokens.model_dump(mode="json", exclude_none=True),
        client=client.model_dump(mode="json", exclude_none=True) if client and storage.is_registered else {},
        server=server.model_dump(mode="json", exclude_none=True) if server is not None else {},
        expires_at=context.token_expiry_time or 0.0,
    )


async def checked_request(request: httpx2.Request) -> None:
    """A token or a secret goes over https, or stays on this machine. Raises InvalidAddress."""
    check_address(read_address(str(request.url)), os.environ.get("PERDURE_ALLOW_HTTP") == "1")


class _Frame(msgspec.Struct):
    method: str = ""
    id: int | str | None = None


class SignedIn(httpx2.Auth):
    """The authorization of every request of one bridge."""

    def __init__(
        self,
        url: str,
        path: str,
        oauth: dict[str, str],
        refusals: dict[RequestId | None, str],
        ended: Callable[[Exception, RequestId | None], None],
    ) -> None:
        """`refusals` gets each call that wants more rights than there are, by its id. `ended` is told why there is no
        way on, and which call found out: what is raised here, a transport may keep for itself."""
        self._refusals = refusals
        self._ended = ended
        self._url = url
        self._path = path
        self._oauth = oauth
        self._lock = anyio.Lock()
        self._seen: object = None
        self._grant: Grant | None = None

    @property
    def secrets(self) -> list[str]:
        held = self._grant.tokens if self._grant is not None else {}
        return [str(held[key]) for key in ("access_token", "refresh_token") if held.get(key)]

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        try:
            flow = self._flow(request)
            outgoing = await anext(flow)
            while True:
                outgoing = await flow.asend((yield outgoing))
        except StopAsyncIteration:
            return
        except (SignInRequired, AuthorizationFailed, OAuthFlowError) as error:
            self._ended(error, _call_id(request))
            raise

    async def _flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        self._look()
        refused: httpx2.Response | None = None
        token = self._token()
        if token or self._is_machine or not self._can_renew:
            _sign(request, token)
            refused = yield request
            if not _is_refused(refused) or self._wants_rights(request, refused):
                return
        async with self._lock, _Turn("" if self._grant is None or self._is_machine else self._path):
            self._look()
            if self._token() in ("", token):
                provider, storage = self._provider()
                flow = provider.async_auth_flow(request)
                outgoing = await anext(flow)
                if outgoing is request and refused is not None:
                    outgoing = await _answered(flow, refused)
                while outgoing is not request:
                    answer = yield outgoing
                    if answer.request.method == "POST" and answer.status_code not in (200, 201):
                        raise _refusal(answer)
                    outgoing = await _answered(flow, answer)
                await flow.aclose()
                self._keep(provider, storage)
        _sign(request, self._token())
        refused = yield request
        if _is_refused(refused) and not self._wants_rights(request, refused):
            raise SignInRequired("the server does not take the sign-in any more")

    def _wants_rights(self, request: httpx2.Request, refused: httpx2.Response) -> bool:
        """Whether a call is refused for want of a right. It is answered so, and every other call goes on."""
        identity, held = _call_id(request), self._grant
        if refused.status_code != 403 or identity is None or held is None:
            return False
        scopes = extract_scope_from_www_auth(refused) or ""
        text = f"it wants the scope {scopes}" if scopes else "it wants a scope that it does not name"
        if "scopes" in self._oauth:
            text += ", which the scopes of its registry entry must name first"
        self._refusals[identity] = text
        wanted = union_scopes(held.wanted or None, scopes or None) or ""
        if wanted != held.wanted:
            self._grant = msgspec.structs.replace(held, wanted=wanted)
            write_grant(self._path, self._grant)  # the next sign-in asks for it
        return True

    # --- what is held -------------------------------------------------------------------------------------

    @property
    def _is_machine(self) -> bool:
        return self._oauth.get("grant") == GRANTS[1]

    @property
    def _can_renew(self) -> bool:
        return self._is_machine or bool(self._grant is not None and self._grant.tokens.get("refresh_token"))

    def _look(self) -> None:
        """Another process may have renewed the token, or signed in, or out."""
        if self._is_machine:
            return
        try:
            info = os.stat(self._path)
            seen: object = (info.st_ino, info.st_mtime_ns)
        except OSError:
            seen = None
        if seen != self._seen:
            self._seen, self._grant = seen, read_grant(self._path)

    def _token(self) -> str:
        """The one to send now; empty where there is none, or it is about to end and can be renewed."""
        held = self._grant
        if held is None:
            return ""
        is_old = held.expires_at and time.time() + EARLY_S > held.expires_at
        return "" if is_old and self._can_renew else str(held.tokens.get("access_token", ""))

    def _provider(self) -> tuple[OAuthClientProvider, Storage]:
        """One that renews what is held, or asks with the entry's own credentials. Raises SignInRequired."""
        if self._is_machine:
            return self._machine()
        if self._grant is None or not self._can_renew:
            raise SignInRequired("nobody is signed in")
        storage = Storage(self._grant, self._oauth)
        provider = OAuthClientProvider(
            self._url, metadata(self._oauth, "http://127.0.0.1/"), storage, _nobody, _no_answer
        )
        if self._grant.server:
            provider.context.oauth_metadata = OAuthMetadata.model_validate(self._grant.server)
        provider.context.token_expiry_time = 1.0  # whatever it says, the server wants another one
        return provider, storage

    def _machine(self) -> tuple[OAuthClientProvider, Storage]:
        storage = Storage(None, {})
        provider = ClientCredentialsOAuthProvider(
            self._url,
            storage,
            self._oauth["client_id"],
            self._oauth["client_secret"],
            scope=self._oauth.get("scopes"),
            issuer=self._oauth["issuer"],
        )
        described = provider.context.client_metadata
        if described.scope is not None:
            provider.context.client_metadata = Metadata(**described.model_dump(), fixed=True)
        return provider, storage

    def _keep(self, provider: OAuthClientProvider, storage: Storage) -> None:
        if storage.tokens is None:
            raise SignInRequired("the sign-in cannot be renewed")
        before = self._grant
        fresh = grant_of(before.login if before is not None else "", provider, storage)
        self._grant = fresh
        if before is not None and not self._is_machine:
            self._grant = msgspec.structs.replace(
                fresh,
                client=fresh.client or before.client,
                server=fresh.server or before.server,
                wanted=before.wanted,
            )
            write_grant(self._path, self._grant)


class _Turn:
    """`refresh_lock`, waited for in a thread, so that a bridge goes on with everything else."""

    def __init__(self, path: str) -> None:
        self._held = refresh_lock(path) if path else None

    async def __aenter__(self) -> None:
        if self._held is not None:
            await anyio.to_thread.run_sync(self._held.__enter__)

    async def __aexit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.__exit__(None, None, None)


def _call_id(request: httpx2.Request) -> RequestId | None:
    """The id of a request that the client made; what the host asks for itself is nothing to answer."""
    try:
        frame = msgspec.json.decode(request.content, type=_Frame)
    except (msgspec.MsgspecError, httpx2.RequestNotRead):
        return None
    return frame.id if frame.method in _CALLS else None


def _sign(request: httpx2.Request, token: str) -> None:
    if token:
        request.headers["Authorization"] = f"Bearer {token}"


def _is_refused(response: httpx2.Response) -> bool:
    if response.status_code == 403:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == 401


def _refusal(answer: httpx2.Response) -> Exception:
    """Its body is not repeated: it may hold what was sent."""
    if answer.status_code in _FINAL:
        return SignInRequired(f"the authorization server refuses to renew it ({answer.status_code})")
    return AuthorizationFailed(f"the authorization server answered {answer.status_code}")


async def _answered(flow: Any, response: httpx2.Response) -> httpx2.Request:
    await response.aread()
    found: httpx2.Request = await flow.asend(response)
    return found


async def _nobody(url: str) -> None:
    raise SignInRequired("the server asks for a sign-in")


async def _no_answer() -> AuthorizationCodeResult:
    raise SignInRequired("the server asks for a sign-in")
