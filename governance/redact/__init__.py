"""Redaction: findings become pseudonyms, masks or typed marks, in every place where text can hide."""

from governance.redact.build import build_redactor, redactor_of, settle
from governance.redact.pseudonym import subject_id, subject_ids
from governance.redact.redactor import Redactor
from governance.redact.report import (
    RedactedJson,
    RedactedMessage,
    RedactedPlace,
    RedactedText,
    RedactionError,
    RedactionReport,
    RedactionScope,
)

__all__ = [
    "RedactedJson",
    "RedactedMessage",
    "RedactedPlace",
    "RedactedText",
    "RedactionError",
    "RedactionReport",
    "RedactionScope",
    "Redactor",
    "build_redactor",
    "redactor_of",
    "settle",
    "subject_id",
    "subject_ids",
]
