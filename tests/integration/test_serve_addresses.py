"""`perdure serve` over TLS, and behind a proxy that gives it another name."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from perdure.testing.http_client import ServeProcess


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate for this machine, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / "certificate.pem", tmp_path / "key.pem"
    paths[0].write_bytes(made.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(paths[0]), str(paths[1])


def test_with_a_certificate_it_speaks_tls_and_nothing_else(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    served = ServeProcess(tmp_path, "--certificate", certificate[0], "--key", certificate[1])
    try:
        context = ssl.create_default_context(cafile=certificate[0])
        line = http.client.HTTPSConnection("127.0.0.1", served.port, timeout=30, context=context)
        line.request("GET", "/healthz", headers={"Origin": f"https://127.0.0.1:{served.port}"})
        assert line.getresponse().status == 200
        line.close()
        plain = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        plain.request("GET", "/healthz")
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.getresponse()
        plain.close()
    finally:
        assert served.stop() == 0


def test_a_certificate_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_text("no certificate")
    command = [sys.executable, "-P", "-m", "perdure", "serve", "--port", "0", "--workspace", str(tmp_path)]
    for name in ("absent.pem", "broken.pem"):
        files = ["--certificate", str(tmp_path / name), "--key", str(tmp_path / name)]
        env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [*command, *files], env=env, capture_output=True, text=True, check=False, timeout=30
        )
        assert done.returncode == 2
        assert name in done.stderr
        assert "Traceback" not in done.stderr


def test_behind_a_proxy_it_is_called_by_its_public_name_and_by_no_other(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path, "--public-url", "https://tools.example/mcp")
    try:
        page = {"Host": "tools.example", "Origin": "https://tools.example"}
        assert served.client(**page).modern("server/discover").status == 200
        assert served.client(Host="other.example").modern("server/discover").status == 421
        other = {**page, "Origin": "http://tools.example"}
        assert served.client(**other).modern("server/discover").status == 403
    finally:
        served.stop()
