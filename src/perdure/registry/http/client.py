"""One HTTP request and its whole reply, bounded in bytes and in time, with every failure typed.

A body is counted while it is read, so that a huge one is refused and not buffered. A request runs in a thread of its own,
which is abandoned at the deadline: a name lookup and a TLS handshake cannot be interrupted from outside.
A token is sent to the host it was given for and to no other, wherever a redirect leads.
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as RequestTimeout

from perdure import __version__
from perdure.registry.errors import AuthRequired, RegistryError, RegistryUnavailable
from perdure.registry.http.address import Address, InvalidAddress, check_address, read_address

MAX_BYTES: Final = 8 * 1024 * 1024
TIMEOUT_S: Final = 10.0
MAX_REDIRECTS: Final = 5
# A longer Retry-After is left to the user.
LONGEST_WAIT_S: Final = 5.0
PIECE: Final = 64 * 1024
BUSY: Final = (429, 503)
ALLOW_HTTP: Final = "PERDURE_ALLOW_HTTP"
_UNSENT: Final = re.compile(r"[^\x21-\x7e]")


class TornReply(RegistryUnavailable):
    """A reply that broke off, is too large, or is not what it says it is."""

    code = "torn_reply"


class Reply(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]  # by lower-case name
    body: bytes
    address: Address

    def json(self) -> object:
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise TornReply(f"{self.address.shown} did not answer with JSON") from None


class HttpClient:
    """Requests to one host, and to where it redirects. Opens nothing until the first one."""

    def __init__(
        self,
        *,
        token: str = "",
        allow_http: bool = False,
        timeout_s: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
        token_name: str = "the token",
    ) -> None:
        if _UNSENT.search(token):
            raise InvalidAddress(f"{token_name} holds a character that cannot be sent", hint="set it again")
        self._token = token
        self._allow_http = allow_http
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes

    def get(self, address: Address, headers: Mapping[str, str] | None = None) -> Reply:
        """Follows redirects, and waits once where the server says for how long."""
        return self._follow(address, headers or {}, None)

    def download(self, address: Address, sink: Callable[[bytes], object]) -> Reply:
        """Like `get`, with the body of a 200 going to the sink piece by piece."""
        return self._follow(address, {"accept": "*/*"}, sink)

    def _follow(
        self, address: Address, headers: Mapping[str, str], sink: Callable[[bytes], object] | None
    ) -> Reply:
        home, may_wait = address, True
        for _ in range(MAX_REDIRECTS + 1):
            reply = self._once("GET", address, headers, None, home, sink)
            if may_wait and reply.status in BUSY and (pause := retry_after(reply)) is not None:
                may_wait = False
                if pause <= LONGEST_WAIT_S:
                    time.sleep(pause)
                    reply = self._once("GET", address, headers, None, home, sink)
            if reply.status not in (301, 302, 303, 307, 308) or "location" not in reply.headers:
                return reply
            address = check_address(_redirect_target(address, reply.headers["location"]), self._allow_http)
        raise RegistryUnavailable(f"{home.shown} redirects without end")

    def send(self, method: str, address: Address, body: bytes | None = None) -> Reply:
        """A request that is never repeated and never redirected: it may have been carried out."""
        headers = {"content-type": "application/json"} if body is not None else {}
        return self._once(method, address, headers, body, address)

    def submit(self, address: Address, form: bytes) -> Reply:
        """A form, posted once."""
        return self._once(
            "POST", address, {"content-type": "application/x-www-form-urlencoded"}, form, address
        )

    def _once(
        self,
        method: str,
        address: Address,
        headers: Mapping[str, str],
        body: bytes | None,
        home: Address,
        sink: Callable[[bytes], object] | None = None,
    ) -> Reply:
        check_address(address, self._allow_http)
        sent = {
            "user-agent": f"perdure/{__version__}",
            "accept": "application/json",
            "accept-encoding": "identity",
            **headers,
        }
        if address.origin == home.origin and (credentials := self._credentials(home)):
            sent["authorization"] = credentials

        def exchange(is_over: threading.Event) -> Reply:
            with _pool(address) as pool:
                response = pool.request(
                    method,
                    address.origin + address.target,
                    body=body,
                    headers=sent,
                    redirect=False,
                    retries=False,
                    preload_content=False,
                    decode_content=False,
                    timeout=self._timeout_s,
                )
                data = bytearray()
                deliver = sink if sink is not None and response.status == 200 else data.extend
                self._read(response, address, deliver, is_over)
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, headers, bytes(data), address)

        try:
            reply = _within(self._timeout_s, exchange)
        except (OSError, HTTPError, ValueError) as error:
            if isinstance(error, RegistryError):
                raise
            _refuse(error, address, self._timeout_s)
        if reply.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise TornReply(f"{address.shown} answered in an encoding that was not asked for")
        return reply

    def _read(
        self,
        response: urllib3.BaseHTTPResponse,
        address: Address,
        sink: Callable[[bytes], object],
        is_over: threading.Event,
    ) -> None:
        length = response.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._max_bytes:
            self._too_large(address)
        received = 0
        for piece in response.stream(PIECE):
            received += len(piece)
            if received > self._max_bytes:
                self._too_large(address)
            if is_over.is_set():  # the caller has given up, and the sink may be closed
                raise TimeoutError
            sink(piece)

    def _too_large(self, address: Address) -> NoReturn:
        raise TornReply(f"{address.shown} answered with more than {self._max_bytes} bytes")

    def _credentials(self, home: Address) -> str:
        if self._token:
            return f"Bearer {self._token}"
        if home.userinfo:
            return "Basic " + base64.b64encode(home.userinfo.encode()).decode()
        return ""


def allows_http(environ: Mapping[str, str]) -> bool:
    return environ.get(ALLOW_HTTP) == "1"


def check_status(reply: Reply, *statuses: int) -> Reply:
    """The reply, if it has one of these statuses. Raises what any other status means."""
    if reply.status in statuses:
        return reply
    shown = reply.address.shown
    if reply.status in (401, 403, 407):
        wrong = "wants credentials" if reply.status == 401 else "refuses these credentials"
        raise AuthRequired(f"{shown} {wrong} ({reply.status})", hint="check the token")
    if reply.status in BUSY and (pause := retry_after(reply)) is not None:
        raise RegistryUnavailable(f"{shown} is busy ({reply.status})", hint=f"try again in {pause:.0f} s")
    if reply.status >= 500 or reply.status in (408, 425, 429):
        raise RegistryUnavailable(f"{shown} failed ({reply.status})", hint="try again later")
    raise RegistryError(f"{shown} answered {reply.status}")


def read_page(reply: Reply) -> tuple[list[dict[str, Any]], str]:
    """The servers of one page, and the cursor of the next; empty at the end."""
    page = reply.json()
    servers = page.get("servers", False) if isinstance(page, dict) else False
    if not isinstance(page, dict) or not isinstance(servers, list | None):
        raise TornReply(f"{reply.address.shown} did not answer with a list of servers")
    metadata = page.get("metadata")
    places = (page, metadata) if isinstance(metadata, dict) else (page,)
    cursors = (place.get(key) for place in places for key in ("nextCursor", "next_cursor"))
    cursor = next((cursor for cursor in cursors if isinstance(cursor, str) and cursor), "")
    return [server for server in servers or () if isinstance(server, dict)], cursor


def retry_after(reply: Reply) -> float | None:
    """Seconds, from a number or a date."""
    text = reply.headers.get("retry-after", "").strip()
    if not text:
        return None
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        return float(text)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _redirect_target(address: Address, location: str) -> Address:
    from urllib.parse import urljoin

    try:
        target = read_address(urljoin(address.origin + address.target, location))
    except (InvalidAddress, ValueError):
        raise RegistryUnavailable(f"{address.shown} redirects to an invalid address") from None
    if address.scheme == "https" and target.scheme == "http":
        raise RegistryUnavailable(f"{address.shown} redirects to an unencrypted address")
    return msgspec.structs.replace(target, userinfo="")


def _within(seconds: float, exchange: Callable[[threading.Event], Reply]) -> Reply:
    """The result of `exchange`, which runs in a daemon thread. Raises what it raises, or TimeoutError at the deadline;
    the thread is then left to end by itself."""
    replies: list[Reply] = []
    errors: list[BaseException] = []
    is_over = threading.Event()

    def run() -> None:
        try:
            replies.append(exchange(is_over))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        is_over.set()
        raise TimeoutError
    if errors:
        raise errors[0]
    return replies[0]


def _pool(address: Address) -> urllib3.PoolManager:
    """For https to other machines, through the proxy that the environment names."""
    url = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if not url or address.is_loopback or address.scheme == "http":
        return urllib3.PoolManager()
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    if proxy_bypass_environment(address.host):
        return urllib3.PoolManager()
    proxy = read_address(url)
    headers = urllib3.make_headers(proxy_basic_auth=proxy.userinfo) if proxy.userinfo else None
    return urllib3.ProxyManager(proxy.origin, proxy_headers=headers)


def _refuse(error: Exception, address: Address, timeout_s: float) -> NoReturn:
    """Raise a failure as an error of the registry. The text of a library's error is not repeated: it may quote what was
    sent."""
    shown = address.shown
    if isinstance(error, TimeoutError | RequestTimeout):
        raise RegistryUnavailable(
            f"{shown} did not answer within {timeout_s:g} s", hint="try again later"
        ) from None
    if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        hint = "SSL_CERT_FILE names a file of authorities to trust"
        raise RegistryUnavailable(
            f"{shown} has a certificate that this machine does not trust", hint=hint
        ) from None
    cause = error.args[-1] if isinstance(error, ProtocolError) and error.args else error
    if isinstance(cause, http.client.IncompleteRead | http.client.BadStatusLine | http.client.LineTooLong):
        raise TornReply(f"{shown} broke off its reply") from None
    if isinstance(cause, http.client.HTTPException | ProtocolError | ValueError):
        raise TornReply(f"{shown} answered with something that is not HTTP") from None
    while not isinstance(cause, OSError) and (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    reason = getattr(cause, "strerror", None) or type(cause).__name__
    raise RegistryUnavailable(
        f"{shown} cannot be reached: {reason}", hint="check the address and the network"
    ) from None
