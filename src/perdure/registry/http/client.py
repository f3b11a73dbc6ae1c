"""One HTTP request and its whole reply, bounded in bytes and in time, with every failure typed.

`http.client` and not a larger library: a command that looks something up must not spend longer on imports than on
the question. A body is counted while it is read, so that a huge one is refused and not buffered. A request runs in a
thread of its own, which is abandoned at the deadline: a name lookup and a TLS handshake cannot be interrupted from
outside. A token is sent to the host it was given for and to no other, wherever a redirect leads.
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import msgspec

from perdure import __version__
from perdure.registry.errors import AuthRequired, RegistryError, RegistryUnavailable
from perdure.registry.http.address import Address, InvalidAddress, check_address, read_address

MAX_BYTES: Final = 8 * 1024 * 1024
TIMEOUT_S: Final = 10.0
MAX_REDIRECTS: Final = 5
# A server that asks for more patience than this gets its answer later, by the user.
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


class Fetcher:
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
        home, patience = address, True
        for _ in range(MAX_REDIRECTS + 1):
            reply = self._once("GET", address, headers, None, home, sink)
            if patience and reply.status in BUSY and (pause := retry_after(reply)) is not None:
                patience = False
                if pause <= LONGEST_WAIT_S:
                    time.sleep(pause)
                    reply = self._once("GET", address, headers, None, home, sink)
            if reply.status not in (301, 302, 303, 307, 308) or "location" not in reply.headers:
                return reply
            address = check_address(_redirected(address, reply.headers["location"]), self._allow_http)
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
        connection = _connection(address, self._timeout_s)

        def exchange(is_over: threading.Event) -> Reply:
            try:
                connection.request(method, address.target, body=body, headers=sent)
                response = connection.getresponse()
                data = bytearray()
                deliver = sink if sink is not None and response.status == 200 else data.extend
                self._read(response, address, deliver, is_over)
            finally:
                connection.close()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, headers, bytes(data), address)

        try:
            reply = _within(self._timeout_s, exchange)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, RegistryError):
                raise
            if isinstance(error, TimeoutError) and (held := connection.sock) is not None:
                _shut(held)
            _refuse(error, address, self._timeout_s)
        if reply.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise TornReply(f"{address.shown} answered in an encoding that was not asked for")
        return reply

    def _read(
        self,
        response: http.client.HTTPResponse,
        address: Address,
        sink: Callable[[bytes], object],
        is_over: threading.Event,
    ) -> None:
        announced = response.length
        if announced is not None and announced > self._max_bytes:
            self._too_large(address)
        taken = 0
        while piece := response.read1(PIECE):
            taken += len(piece)
            if taken > self._max_bytes:
                self._too_large(address)
            if is_over.is_set():  # nobody waits for this any more, and the sink may be closed
                raise TimeoutError
            sink(piece)
        if announced is not None and taken < announced:
            raise TornReply(f"{address.shown} broke off after {taken} of {announced} bytes")

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


def expected(reply: Reply, *statuses: int) -> Reply:
    """The reply, if it has one of these statuses; else what its status means, as an exception."""
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


def _redirected(address: Address, location: str) -> Address:
    from urllib.parse import urljoin

    try:
        found = read_address(urljoin(address.origin + address.target, location))
    except (InvalidAddress, ValueError):
        raise RegistryUnavailable(f"{address.shown} redirects to where nobody can go") from None
    if address.scheme == "https" and found.scheme == "http":
        raise RegistryUnavailable(f"{address.shown} redirects to an unencrypted address")
    return msgspec.structs.replace(found, userinfo="")


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


def _shut(connection: socket.socket) -> None:
    """End what an abandoned thread waits for, so that its socket is closed soon."""
    try:
        # The plain socket's method: a TLS socket's own would change what its reader is using.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        pass  # already gone, or in a TLS handshake


def _connection(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    proxy = _proxy(address)
    secure = address.scheme == "https"
    make: Callable[..., http.client.HTTPConnection] = (
        http.client.HTTPSConnection if secure else http.client.HTTPConnection
    )
    if proxy is None or not secure:
        return make(address.host, address.port, timeout=timeout_s)
    connection = make(proxy.host, proxy.port, timeout=timeout_s)
    basic = base64.b64encode(proxy.userinfo.encode()).decode() if proxy.userinfo else ""
    connection.set_tunnel(
        address.host, address.port, {"Proxy-Authorization": f"Basic {basic}"} if basic else None
    )
    return connection


def _proxy(address: Address) -> Address | None:
    """For https to other machines, as the environment says."""
    named = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if not named or address.is_loopback:
        return None
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    return None if proxy_bypass_environment(address.host) else read_address(named)


def _refuse(error: Exception, address: Address, timeout_s: float) -> NoReturn:
    """Every failure on the way as one of ours. The text of a library's error is not repeated: it may quote what
    was sent."""
    shown = address.shown
    if isinstance(error, TimeoutError):
        raise RegistryUnavailable(
            f"{shown} did not answer within {timeout_s:g} s", hint="try again later"
        ) from None
    if isinstance(error, http.client.IncompleteRead | http.client.BadStatusLine | http.client.LineTooLong):
        raise TornReply(f"{shown} broke off its reply") from None
    if type(error).__name__ == "SSLCertVerificationError":  # by its name: cleartext needs no ssl
        hint = "SSL_CERT_FILE names a file of authorities to trust"
        raise RegistryUnavailable(f"{shown} has a certificate that nobody here trusts", hint=hint) from None
    if isinstance(error, http.client.HTTPException | ValueError):
        raise TornReply(f"{shown} answered with something that is not HTTP") from None
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
    raise RegistryUnavailable(
        f"{shown} cannot be reached: {reason}", hint="check the address and the network"
    ) from None
