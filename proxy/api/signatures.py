"""Signatures of webhooks, by the schemes that their senders document; each compares in constant time."""

import hmac
import time
from base64 import b64decode, b64encode
from datetime import datetime
from hashlib import sha256

from proxy.clients.credentials import RawFields
from proxy.heads import value_of

WINDOW_SECONDS = 300.0
"""How old, or how far ahead, a signed time may be."""


def is_signed(sender: str, secret: str, fields: RawFields, body: bytes) -> bool:
    """Tell whether a request is what its sender signed, and was signed a moment ago.

    GitHub signs no time, and GitLab's token proves the sender alone. A request that is sent again has no further
    effect, because its body names the feedback.
    """
    return _SCHEMES[sender](secret, fields, body)


def _same(expected: str | bytes, given: bytes | None) -> bool:
    wanted = expected.encode() if isinstance(expected, str) else expected
    return given is not None and hmac.compare_digest(wanted, given)


def _in_window(moment: float) -> bool:
    return abs(time.time() - moment) <= WINDOW_SECONDS


def _seconds(value: bytes | None) -> float | None:
    """Return seconds since 1970, written as digits."""
    return float(value) if value is not None and value.isdigit() and len(value) < 12 else None


def _github(secret: str, fields: RawFields, body: bytes) -> bool:
    """``X-Hub-Signature-256: sha256=<hex>`` over the body."""
    expected = "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()
    return _same(expected, value_of(fields, b"x-hub-signature-256"))


def _gitlab(secret: str, fields: RawFields, body: bytes) -> bool:
    """A signing token (``whsec_…``) signs as Standard Webhooks do; a secret token is sent itself."""
    if secret.startswith("whsec_"):
        return _standard(secret, fields, body)
    return _same(secret, value_of(fields, b"x-gitlab-token"))


def _standard(secret: str, fields: RawFields, body: bytes) -> bool:
    """``webhook-signature: v1,<base64> …`` over id, time and body, joined by dots."""
    name, when = value_of(fields, b"webhook-id"), value_of(fields, b"webhook-timestamp")
    moment = _seconds(when)
    if name is None or when is None or moment is None or not _in_window(moment):
        return False
    try:
        key = b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        return False
    if not key:
        return False
    digest = hmac.new(key, b".".join((name, when, body)), sha256).digest()
    expected = b"v1," + b64encode(digest)
    # A sender that changes its secret signs with both.
    given = (value_of(fields, b"webhook-signature") or b"").split(b" ")[:10]
    return any(_same(expected, each) for each in given)


def _zendesk(secret: str, fields: RawFields, body: bytes) -> bool:
    """``X-Zendesk-Webhook-Signature: <base64>`` over time and body."""
    when = value_of(fields, b"x-zendesk-webhook-signature-timestamp")
    try:
        moment = datetime.fromisoformat((when or b"").decode())
    except ValueError:
        return False
    if when is None or moment.tzinfo is None or not _in_window(moment.timestamp()):
        return False
    expected = b64encode(hmac.new(secret.encode(), when + body, sha256).digest())
    return _same(expected, value_of(fields, b"x-zendesk-webhook-signature"))


def _slack(secret: str, fields: RawFields, body: bytes) -> bool:
    """``X-Slack-Signature: v0=<hex>`` over version, time and body, joined by colons."""
    when = value_of(fields, b"x-slack-request-timestamp")
    moment = _seconds(when)
    if when is None or moment is None or not _in_window(moment):
        return False
    digest = hmac.new(secret.encode(), b":".join((b"v0", when, body)), sha256).hexdigest()
    return _same(f"v0={digest}", value_of(fields, b"x-slack-signature"))


_SCHEMES = {
    "github": _github,
    "gitlab": _gitlab,
    "standard": _standard,
    "zendesk": _zendesk,
    "slack": _slack,
}
