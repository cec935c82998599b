"""Signs the end of the audit log and stores it where nobody who rewrites the log can reach."""

import json
import os
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from governance.audit_entries import AuditHead
from governance.certificates import ANCHOR, Certifier, verified
from headrace.govern.checkpoint import installation_name
from lakehouse.storage.notes import Notes
from trajectory.canonical import JsonObject
from trajectory.errors import ConfigurationError, WorkError

_SECONDS = 10.0


class LakeWitness:
    """Keeps the end of an installation's audit log in a note beside the lake's tables."""

    def __init__(self, notes: Notes, identity: Path) -> None:
        """Keep it in ``notes``, under the name that the file ``identity`` holds."""
        self._notes = notes
        self._name = f"{installation_name(identity)}-audit"

    def get(self) -> bytes | None:
        """See ``governance.audit.Witness``."""
        return self._notes.get(self._name)

    def put(self, data: bytes) -> None:
        """See ``governance.audit.Witness``."""
        self._notes.put(self._name, data)


def signed_anchor(head: AuditHead, certifier: Certifier) -> JsonObject:
    """Return the log's end with the moment and the installation's signature."""
    return certifier.certificate(
        {
            "sequence": head.sequence,
            "entry_hash": head.entry_hash,
            "noted_at": datetime.now(UTC).isoformat(),
        },
        kind=ANCHOR,
    )


def append_anchor(path: Path, anchor: JsonObject) -> None:
    """Append an anchor to a file of JSON lines; it is on disk when this returns.

    Raises:
        WorkError: the file cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(anchor, sort_keys=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WorkError(f"{path}: the anchor was not noted ({error.strerror}).") from None


def post_anchor(url: str, anchor: JsonObject) -> None:
    """Send an anchor to a service that notes it.

    Raises:
        ConfigurationError: not an HTTP address.
        WorkError: it did not take the anchor.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigurationError(f"--url {url}: must begin with https:// or http://.")
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked
        url, json.dumps(anchor).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310 - checked above
            pass
    except OSError as error:
        raise WorkError(
            f"{urlsplit(url).hostname}: the anchor was not noted ({type(error).__name__})."
        ) from None


def read_anchors(path: Path, public_key: str) -> list[AuditHead]:
    """Return the ends that a file notes.

    Raises:
        ConfigurationError: the file cannot be read, or a line is no JSON.
        IntegrityError: a line was changed, or another installation signed it.
    """
    try:
        said = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path}: not a file of anchors ({type(error).__name__})"
        ) from None
    statements = [verified(one, public_key, kind=ANCHOR) for one in said]
    return [AuditHead(int(str(one["sequence"])), str(one["entry_hash"])) for one in statements]
