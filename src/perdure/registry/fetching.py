"""One HTTP request and its whole reply, bounded in bytes and in time, with every failure typed.

`http.client` and not a larger library: a command that looks something up must not spend longer on imports than on
the question. A body is counted while it is read, so that a huge one is refused and not buffered; one watchdog ends
the whole request at its deadline, so that a server that sends a byte a second holds nobody up. A token is sent to
the host it was given for and to no other, wherever a redirect leads.
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
from perdure.registry.addresses import Address, InvalidAddress, check_address, read_address
from perdure.registry.errors import AuthRequired, RegistryError, RegistryUnavailable

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
        watch = _Watch(connection, self._timeout_s)
        try:
            connection.request(method, address.target, body=body, headers=sent)
            response = connection.getresponse()
            data = bytearray()
            self._read(
                response, address, sink if sink is not None and response.status == 200 else data.extend
            )
        except RegistryError as error:
            if watch.is_over:  # what was read is short because we ended it
                _refuse(error, address, True, self._timeout_s)
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            _refuse(error, address, watch.is_over, self._timeout_s)
        finally:
            watch.end()
            connection.close()
        if watch.is_over:
            _refuse(TimeoutError(), address, True, self._timeout_s)
        found = {name.lower(): value for name, value in response.getheaders()}
        if found.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise TornReply(f"{address.shown} answered in an encoding that was not asked for")
        return Reply(response.status, found, bytes(data), address)

    def _read(
        self, response: http.client.HTTPResponse, address: Address, sink: Callable[[bytes], object]
    ) -> None:
        announced = response.length
        if announced is not None and announced > self._max_bytes:
            self._too_large(address)
        taken = 0
        while piece := response.read1(PIECE):
            taken += len(piece)
            if taken > self._max_bytes:
                self._too_large(address)
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


class _Watch:
    """Ends a request at its deadline, whatever it is waiting for."""

    def __init__(self, connection: http.client.HTTPConnection, seconds: float) -> None:
        self._connection = connection
        self.is_over = False
        self._timer = threading.Timer(seconds, self._bark)
        self._timer.daemon = True
        self._timer.start()

    def _bark(self) -> None:
        self.is_over = True
        if (found := self._connection.sock) is not None:
            try:
                # The plain socket's method: a TLS socket's own would change what its reader is using.
                socket.socket.shutdown(found, socket.SHUT_RDWR)
            except OSError:
                pass  # already gone

    def end(self) -> None:
        self._timer.cancel()


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


def _refuse(error: Exception, address: Address, is_over: bool, timeout_s: float) -> NoReturn:
    """Every failure on the way as one of ours. The text of a library's error is not repeated: it may quote what
    was sent."""
    shown = address.shown
    if is_over or isinstance(error, TimeoutError):
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
