"""Certificates by which server and parties know each other, and an authority that signs them.

A certificate's file holds its private key too, in PEM. Its common name is a user's number, or
"server". An organisation's own authority does as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedmuscle_lib.core.errors import DataError, unreadable
from fedmuscle_lib.core.files import read_bytes

PEM = serialization.Encoding.PEM

Pair = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def make(folder: Path, users: Sequence[int], hosts: Sequence[str]) -> list[Path]:
    """Write ``authority.pem``, ``root.pem`` (its certificate alone), ``user_<number>.pem``, and
    ``server.pem`` if there are hosts; what is there already stays.

    Args:
        hosts: names and addresses by which parties reach the server.

    Returns:
        The files that were written.

    Raises:
        ValueError: a host that can't be.
        DataError: naming a file that is there and can't be used.
    """
    names = [_host(host) for host in hosts]
    folder.mkdir(parents=True, exist_ok=True)
    written, root = list[Path](), folder / "root.pem"
    if not root.exists():
        written += _write(folder / "authority.pem", _signed("authority", [], None))
    authority = pair(folder / "authority.pem")
    written += _write(root, authority[1].public_bytes(PEM))
    if names:
        written += _write(folder / "server.pem", _signed("server", names, authority))
    for user in users:
        written += _write(folder / f"user_{user}.pem", _signed(str(user), [], authority))
    return written


def _write(path: Path, content: bytes) -> list[Path]:
    """Write a file for its owner alone, unless it is there already."""
    if path.exists():
        return []
    path.touch(0o600)
    path.write_bytes(content)
    return [path]


def _signed(name: str, hosts: Sequence[x509.GeneralName], authority: Pair | None) -> bytes:
    """A new private key and its certificate, signed by an authority; None makes one."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, issuer = (authority[0], authority[1].subject) if authority else (key, subject)
    builder = x509.CertificateBuilder(
        issuer,
        subject,
        key.public_key(),
        x509.random_serial_number(),
        now - timedelta(hours=1),
        now + timedelta(days=365),
    ).add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    private = key.private_bytes(
        PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + builder.sign(signer, hashes.SHA256()).public_bytes(PEM)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
            raise ValueError(f"host: a name or an address without a port, not {host!r}") from None
        return x509.DNSName(host)


def pair(path: Path) -> Pair:
    """Read a certificate and its private key from one file.

    Raises:
        DataError: naming the file; it is missing, other users of the machine can read it, it has
            not both in PEM, or they don't fit.
    """
    content = read_bytes(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise DataError(f"{path}: others can read this private key; `chmod 600` takes that away")
    with unreadable(f"{path}: no certificate with its private key in PEM"):
        certificate = x509.load_pem_x509_certificate(content)
        key = serialization.load_pem_private_key(content, None)
    if key.public_key() != certificate.public_key():
        raise DataError(f"{path}: the private key is not that of the certificate; renew both")
    return key, certificate  # type: ignore[return-value]  # an organisation's key may be another kind


def user_of(path: Path) -> int:
    """The user whose certificate this is; raises DataError as :func:`pair`, or for another name."""
    _, certificate = pair(path)
    with unreadable(f"{path}: its common name is not a user's number"):
        return int(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
