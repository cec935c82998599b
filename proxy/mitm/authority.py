"""The certificate authority of the intercepting proxy: made once, never replaced silently."""

import ssl
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trajectory.errors import ConfigurationError
from trajectory.files import READABLE, delete_leftovers, locked, make_folders, replace_file

KEY_FILE = "ca.key"
CERTIFICATE_FILE = "ca.pem"
BUNDLE_FILE = "bundle.pem"
TRUST_STORE_PASSWORD = "changeit"  # noqa: S105 - Java's own; a trust store holds no secret
_VALID = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority, its key in memory."""

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"Authority({self.directory})"

    @property
    def bundle_path(self) -> Path:
        """Return the file for clients: the system's roots and this certificate."""
        return self.directory / BUNDLE_FILE

    @property
    def expires_at(self) -> datetime:
        """Return when the certificate ends."""
        return self.certificate.not_valid_after_utc


def ensure_authority(directory: Path) -> Authority:
    """Load the authority of this folder; make one only where there is nothing of one yet.

    Of several processes that come first at once, one makes it and the others load it.

    Raises:
        ConfigurationError: the authority is incomplete, unreadable or expired.
    """
    if not (directory / CERTIFICATE_FILE).exists():
        make_folders(directory, mode=0o700)
        with locked(directory, wait=True):
            if (
                not (directory / CERTIFICATE_FILE).exists()
                and not (directory / BUNDLE_FILE).exists()
            ):
                return _make(directory)
    return load_authority(directory)


def _make(directory: Path) -> Authority:
    """Make what is missing; a key that stands alone was left by a process that was killed here.

    Nobody trusts such a key yet: the certificate comes after it, and the bundle for clients last.
    """
    delete_leftovers(directory)
    path = directory / KEY_FILE
    if not path.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        pem = made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        replace_file(path, pem)
    key = _load_key(path)
    certificate = _self_signed(key)
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    replace_file(directory / CERTIFICATE_FILE, pem, READABLE)
    authority = Authority(directory, certificate, key)
    write_bundle(authority)
    return authority


def load_authority(directory: Path) -> Authority:
    """Load an authority.

    Raises:
        ConfigurationError: a file is missing or unreadable, key and certificate do not belong
            together, or the certificate has expired.
    """
    try:
        certificate = x509.load_pem_x509_certificate((directory / CERTIFICATE_FILE).read_bytes())
    except FileNotFoundError as error:
        raise _missing(error, directory) from None
    except (OSError, ValueError) as error:
        raise _unreadable(error, directory) from None
    key = _load_key(directory / KEY_FILE)
    if key.public_key() != certificate.public_key():
        raise ConfigurationError(f"{directory}: {KEY_FILE} does not belong to {CERTIFICATE_FILE}")
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise ConfigurationError(
            f"{directory / CERTIFICATE_FILE}: expired; move {directory} away to have a new "
            "authority made, and give clients its bundle"
        )
    authority = Authority(directory, certificate, key)
    if not authority.bundle_path.exists():
        # A folder mounted from a secret cannot be written; `headrace env --bundle` writes elsewhere.
        with suppress(OSError):
            write_bundle(authority)
    return authority


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError as error:
        raise _missing(error, path.parent) from None
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(error, path.parent) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"{path}: the key must be an EC key (P-256)")
    return key


def _missing(error: FileNotFoundError, directory: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{error.filename}: missing beside the rest of the authority; restore it, or move "
        f"{directory} away to have a new one made (clients must then trust the new one)"
    )


def _unreadable(error: Exception, directory: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{directory}: the authority cannot be read ({type(error).__name__}); restore it"
    )


def write_bundle(authority: Authority, path: Path | None = None) -> Path:
    """Write the bundle for clients: the system's roots and this authority; return its path.

    Beside it lies the same as a trust store for Java, with the suffix ``.p12``.
    """
    path = path or authority.bundle_path
    roots = system_roots()
    pem = authority.certificate.public_bytes(serialization.Encoding.PEM)
    store = _trust_store([*_certificates(roots), authority.certificate])
    replace_file(path, roots.rstrip() + b"\n" + pem, READABLE)
    replace_file(path.with_suffix(".p12"), store, READABLE)
    return path


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    """Read the certificates of a bundle; what this library refuses no client of ours needs."""
    for part in pem.split(b"-----BEGIN CERTIFICATE-----")[1:]:
        with suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old roots have serial numbers that are now forbidden
            yield x509.load_pem_x509_certificate(b"-----BEGIN CERTIFICATE-----" + part)


def _trust_store(certificates: list[x509.Certificate]) -> bytes:
    return pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(found, b"%d" % at) for at, found in enumerate(certificates)],
        serialization.BestAvailableEncryption(TRUST_STORE_PASSWORD.encode()),
    )


def system_roots() -> bytes:
    """Return the root certificates that this system trusts, as PEM; certifi's where it has none."""
    path = ssl.get_default_verify_paths().cafile
    if path is not None and Path(path).is_file():
        return Path(path).read_bytes()
    import certifi

    return Path(certifi.where()).read_bytes()


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now = datetime.now(UTC)
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Headrace"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"Headrace authority {now:%Y-%m-%d}"),
        ]
    )
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
