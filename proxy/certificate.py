"""The base-URL port's own certificate: checked at the start, served by TLS 1.2 or newer, followed when renewed."""

import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from proxy.telemetry.counters import Counters
from trajectory.errors import ConfigurationError
from trajectory.files import read_file

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: those whose recorded traffic stays closed when the key is lost."""
_HANDSHAKE_SECONDS = 10.0

type _Files = tuple[tuple[int, int, int], ...]
"""Inode, time of change and size of each file."""


def read_certificate(path: Path) -> x509.Certificate:
    """Return the server's certificate, the first one of its file.

    Raises:
        ConfigurationError: the file cannot be read, or holds none.
    """
    try:
        return x509.load_pem_x509_certificates(read_file(path))[0]
    except OSError as error:
        raise _unreadable("certificate", path, error) from None
    except ValueError:
        raise ConfigurationError(
            f"gateway.certificate: {path} holds no certificate; give a PEM file with the server's "
            "certificate first, then those of the authorities between it and the root"
        ) from None


def certified_names(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses that a certificate holds for, those with a wildcard left out."""
    try:
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    names = held.get_values_for_type(x509.DNSName)
    places = map(str, held.get_values_for_type(x509.IPAddress))
    return [name for name in (*names, *places) if not name.startswith("*")]


def check_certificate(certificate: Path, key: Path) -> x509.Certificate:
    """Return the server's certificate, once it is valid today and belongs to the key.

    Raises:
        ConfigurationError: one of both is unusable, or others can read the key.
    """
    found = read_certificate(certificate)
    now = datetime.now(UTC)
    if found.not_valid_after_utc <= now:
        raise ConfigurationError(
            f"gateway.certificate: {certificate} expired on {found.not_valid_after_utc:%Y-%m-%d}; "
            "renew it"
        )
    if found.not_valid_before_utc > now:
        raise ConfigurationError(
            f"gateway.certificate: {certificate} is valid only from "
            f"{found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on; look at this machine's clock"
        )
    try:
        mode, pem = stat.S_IMODE(key.stat().st_mode), read_file(key)
        private = load_pem_private_key(pem, None)
    except OSError as error:
        raise _unreadable("certificate_key", key, error) from None
    except TypeError:
        raise ConfigurationError(
            f"gateway.certificate_key: {key} is encrypted; give the key without a passphrase"
        ) from None
    except ValueError:
        raise ConfigurationError(
            f"gateway.certificate_key: {key} holds no private key; give a PEM file with one"
        ) from None
    if mode & 0o007:
        raise ConfigurationError(
            f"gateway.certificate_key: {key} can be read or changed by every user; "
            f"run: chmod o= {key}"
        )
    if private.public_key() != found.public_key():
        raise ConfigurationError(
            f"gateway.certificate_key: {key} is not the key of {certificate}; give the two files "
            "that were issued together"
        )
    return found


def _unreadable(setting: str, path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"gateway.{setting}: {path} cannot be read ({error.strerror}); give a file that the "
        "gateway's user may read"
    )


def tls_arguments(secure: ssl.SSLContext | None) -> dict[str, Any]:
    """Return what an event loop's server is told of its TLS; nothing where it has none."""
    return {} if secure is None else {"ssl": secure, "ssl_handshake_timeout": _HANDSHAKE_SECONDS}


class OwnCertificate:
    """Serves TLS with a certificate and a key from files; a renewed one counts from the next connection on.

    Listeners keep :attr:`context`, which stays: sessions of clients can be resumed over a renewal.
    """

    def __init__(self, certificate: Path, key: Path, counters: Counters, *, http2: bool) -> None:
        """Read the files.

        Raises:
            ConfigurationError: they cannot be used.
        """
        self._certificate, self._key = certificate, key
        self._protocols = ["h2", "http/1.1"] if http2 else ["http/1.1"]
        self._counters = counters
        self._files: _Files = ()
        self._load()
        self.context = self._current
        self.context.sslobject_class = _Handshake
        self.context.sni_callback = self._greeted

    def _load(self) -> None:
        before = self._state()
        checked = check_certificate(self._certificate, self._key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(self._protocols)
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
        except OSError as error:
            raise ConfigurationError(
                f"gateway.certificate: {self._certificate} and its key cannot be used "
                f"({error.strerror or error}); give a certificate that OpenSSL accepts"
            ) from None
        self._current, self.expires_at = context, checked.not_valid_after_utc
        self._files = before

    def _state(self) -> _Files:
        try:
            found = [path.stat() for path in (self._certificate, self._key)]
        except OSError:
            return ()  # what is wrong, reading tells
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

    def reload(self) -> bool:
        """Read the files again if they have changed; tell whether a renewed certificate is served.

        Raises:
            ConfigurationError: what they hold now cannot be used; the certificate before stays.
        """
        if self._files and self._state() == self._files:
            return False
        self._files = ()
        self._load()
        return True

    def _greeted(self, handshake: Any, name: str | None, _context: ssl.SSLContext) -> None:
        """Serve the current certificate, whatever the client asked for."""
        handshake.counters, handshake.name = self._counters, name
        handshake.context = self._current


class _Handshake(ssl.SSLObject):
    """One connection's TLS; a handshake that fails is counted."""

    counters: Counters | None = None
    name: str | None = None
    """That the client called."""

    def do_handshake(self) -> None:
        """Go on with the handshake."""
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError:
            if self.counters is not None:
                self.counters.tls_failed(self.name)
            raise
