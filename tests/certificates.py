"""Certificates for tests with TLS: an authority, a server on loopback, a client; and an authority nobody trusts."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, each in a PEM file of its own, and both together in a third."""

    certificate: Path
    key: Path
    both: Path


@dataclass(frozen=True)
class Certificates:
    """`ca` signed `server` and `client`; it did not sign `other_ca`."""

    ca: Path
    server: Identity
    client: Identity
    other_ca: Path


def make_certificates(folder: Path) -> Certificates:
    """Write new certificates into the folder, valid for a day, the server's for 127.0.0.1 and localhost."""
    ca, ca_key = _certificate("echelon test authority")
    other, _ = _certificate("another authority")
    (folder / "ca.pem").write_bytes(ca.public_bytes(Encoding.PEM))
    (folder / "other-ca.pem").write_bytes(other.public_bytes(Encoding.PEM))

    def identity(name: str) -> Identity:
        certificate, key = _certificate(name, signed_by=(ca, ca_key))
        files = Identity(folder / f"{name}.pem", folder / f"{name}-key.pem", folder / f"{name}-both.pem")
        chain = certificate.public_bytes(Encoding.PEM)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        files.certificate.write_bytes(chain)
        files.key.write_bytes(secret)
        files.both.write_bytes(secret + chain)
        return files

    return Certificates(folder / "ca.pem", identity("server"), identity("client"), folder / "other-ca.pem")


def _certificate(
    name: str, *, signed_by: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate and its key; an authority's own unless somebody signs it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by[0].subject if signed_by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=signed_by is None, path_length=None), critical=True)
    )
    if signed_by:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signed_by[1] if signed_by else key, hashes.SHA256()), key
