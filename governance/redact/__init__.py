"""Redaction: findings become pseudonyms, masks or typed marks, in every place where text can hide."""

from governance.redact.values import (
    Place,
    Redacted,
    RedactedJson,
    RedactedText,
    RedactionError,
    RedactionReport,
    RedactionScope,
)

__all__ = [
    "Place",
    "Redacted",
    "RedactedJson",
    "RedactedText",
    "RedactionError",
    "RedactionReport",
    "RedactionScope",
]
