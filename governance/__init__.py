"""Governance: policy, redaction, consent, retention, deduplication and the quality gate."""
