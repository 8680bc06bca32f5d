"""Certificates for one test: an authority that only it knows, and what that has signed, well or badly."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Authority:
    """`bundle`: the file that makes a client trust it."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name("authority of a test")
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(self.name, self.name, self._key.public_key(), x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = self.folder / "authority.pem"
        self.bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, expired: bool = False, own: bool = False) -> ssl.SSLContext:
        """For a server with these names. `own`: signed by itself and by nobody else."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject, signer = _name(names[0]), key if own else self._key
        end = datetime.now(UTC) + (-DAY if expired else DAY)
        certificate = (
            x509.CertificateBuilder(
                subject if own else self.name, subject, key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(end - 2 * DAY)
            .not_valid_after(end)
            .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        path = self.folder / f"server-{certificate.serial_number}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _alternative(name: str) -> x509.GeneralName:
    return x509.IPAddress(IPv4Address(name)) if name[0].isdigit() else x509.DNSName(name)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=signs, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
