"""The version of the trajectory protocol, which every type and document of it carries."""

SCHEMA_VERSION = 1
"""Raised when a reader of the version before would misread a document."""
