"""A certificate authority for tests of TLS."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, both PEM."""

    certificate: str
    key: str

    @property
    def both(self) -> str:
        return self.certificate + self.key

    def write(self, folder: Path, *, certificate: str, key: str) -> None:
        """Files as a server wants them."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / certificate).write_text(self.certificate)
        (folder / key).write_text(self.key)


class Authority:
    """Signs certificates for 127.0.0.1 and names of the loopback interface."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"test authority {secrets.token_hex(4)}")
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            self._builder(self._name, self._key.public_key(), now - DAY, now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, *names: str, expired: bool = False) -> Issued:
        """A certificate of a server or client."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        last = now - DAY / 2 if expired else now + DAY
        wanted: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        wanted.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._builder(_name("test peer"), key.public_key(), now - DAY, last)
            .add_extension(x509.SubjectAlternativeName(wanted), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Issued(
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
        )

    def context(
        self, folder: Path, *, expired: bool = False, client_wanted: bool = False
    ) -> ssl.SSLContext:
        """A server's context with a certificate of this authority."""
        issued = self.issue("localhost", expired=expired)
        issued.write(folder, certificate="cert.pem", key="key.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        if client_wanted:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.pem)
        return context

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        first: datetime.datetime,
        last: datetime.datetime,
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(first)
            .not_valid_after(last)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )
