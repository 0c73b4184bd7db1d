"""Keys of parties, by which they prove who they are, and certificates of a server for trying a
federation on one machine.

A party's key is Ed25519: it signs what the server drew for this one connection, and the server's
file lists the public keys of those who may join. A server's certificate is what TLS is made of; one
of your own organisation does as well, and ``root`` then names what signed it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import read_bytes

VALID = timedelta(days=365)  # of a certificate
_PRIVATE = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)
_PUBLIC = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def make(folder: Path, users: Sequence[int], hosts: Sequence[str]) -> list[Path]:
    """Write ``user_<number>.key`` and ``.pub`` of each user; for hosts ``server.key`` and
    ``server.pem``, the parties' root.

    Nothing is replaced: what is there already stays, and a new user's key can join it.

    Args:
        hosts: names and addresses by which parties reach the server.

    Returns:
        The files that were written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, bytes] = {}
    if hosts and not (folder / "server.pem").exists():
        contents |= _certificate(hosts)
    for user in users:
        if not (folder / f"user_{user}.key").exists():
            key = Ed25519PrivateKey.generate()
            contents |= {
                f"user_{user}.key": key.private_bytes(*_PRIVATE),
                f"user_{user}.pub": key.public_key().public_bytes(*_PUBLIC),
            }
    for name, content in contents.items():
        mode = 0o600 if name.endswith(".key") else 0o644
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    return [folder / name for name in contents]


def _certificate(hosts: Sequence[str]) -> dict[str, bytes]:
    """A certificate that signs itself, and its key."""
    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "FedMuscle aggregator")])
    builder = x509.CertificateBuilder(
        name,
        name,
        key.public_key(),
        x509.random_serial_number(),
        now - timedelta(hours=1),
        now + VALID,
    )
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False
    )
    signed = builder.sign(key, hashes.SHA256())
    return {
        "server.pem": signed.public_bytes(serialization.Encoding.PEM),
        "server.key": key.private_bytes(*_PRIVATE),
    }


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read a party's private key.

    Raises:
        DataError: naming the file; it is no Ed25519 key in PEM, or others than its owner may read
            it.
    """
    content = read_bytes(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise DataError(f"{path}: others may read this private key; `chmod 600` takes that away")
    try:
        key = serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise DataError(
            f"{path}: no private key of Ed25519 in PEM; `python -m fedmuscle_lib keys FOLDER"
            " --users N` makes one"
        )
    return key


def public_key(path: Path) -> str:
    """Read a party's public key, as hexadecimal digits; raises DataError, which names the file, if
    it is no Ed25519 key in PEM.
    """
    try:
        key = serialization.load_pem_public_key(read_bytes(path))
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise DataError(f"{path}: no public key of Ed25519 in PEM")
    return key.public_bytes_raw().hex()


def sign(key: Ed25519PrivateKey, federation: str, user: int, nonce: str) -> tuple[str, str]:
    """Return the public key and the signature that prove a user's identity to this federation,
    once.
    """
    return (
        key.public_key().public_bytes_raw().hex(),
        key.sign(_statement(federation, user, nonce)).hex(),
    )


def signed(key: str, signature: str, federation: str, user: int, nonce: str) -> bool:
    """Return whether :func:`sign` made this signature with this public key."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(
            bytes.fromhex(signature), _statement(federation, user, nonce)
        )
    except (InvalidSignature, ValueError):
        return False
    return True


def _statement(federation: str, user: int, nonce: str) -> bytes:
    return f"fedmuscle join\0{federation}\0{user}\0{nonce}".encode()
