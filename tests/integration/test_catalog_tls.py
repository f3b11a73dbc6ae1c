"""Catalogs over TLS and through a proxy: trust is the system's, and a deadline holds there too."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from catalog_servers import reply, scripted
from perdure.registry.errors import RegistryUnavailable
from perdure.registry.http.backend import HttpCatalog
from perdure.registry.http.client import HttpClient

SECRET = "s3cr3t-t0ken-value"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "catalog of a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert_file, key_file


@contextmanager
def tls(certificate: tuple[Path, Path], answer: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(plain,), daemon=True).start()

    def one(plain: socket.socket) -> None:
        try:
            with context.wrap_socket(plain, server_side=True) as connection:
                connection.recv(65536)
                for piece in answer():
                    connection.sendall(piece)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def whole() -> Iterator[bytes]:
    yield reply(200, {"servers": [{"name": "a"}]})


def drip() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n"
    for _ in range(300):
        yield b" "
        time.sleep(0.1)


def downgrade() -> Iterator[bytes]:
    yield reply(307, location="http://127.0.0.1:1/")


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: tuple[Path, Path]) -> None:
    with tls(certificate, whole) as url, pytest.raises(RegistryUnavailable, match="does not trust"):
        HttpCatalog(url).list_servers()


def test_a_certificate_that_the_system_trusts_is_taken(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with tls(certificate, whole) as url:
        assert [ref.name for ref in HttpCatalog(url).list_servers()] == ["a"]


def test_a_slow_reply_ends_at_its_deadline_over_tls_too(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with tls(certificate, drip) as url, pytest.raises(RegistryUnavailable, match=r"within 1 s"):
        HttpCatalog(url, client=HttpClient(timeout_s=1)).list_servers()


def test_a_redirect_does_not_lead_out_of_encryption(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with tls(certificate, downgrade) as url, pytest.raises(RegistryUnavailable, match="unencrypted"):
        HttpCatalog(url, token=SECRET).list_servers()


def test_a_proxy_is_asked_for_the_way_and_not_told_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda asked: reply(403, {})) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", "//user:pw@"))
        monkeypatch.delenv("https_proxy", raising=False)
        monkeypatch.setenv("NO_PROXY", "inside.test")
        with pytest.raises(RegistryUnavailable):
            HttpCatalog("https://catalog.test/", token=SECRET).list_servers()
        assert [one.method for one in proxy.asked] == ["CONNECT"]
        assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")
        assert SECRET not in str(proxy.asked[0])
        with pytest.raises(RegistryUnavailable):
            HttpCatalog("https://inside.test:1/").list_servers()
        assert len(proxy.asked) == 1
