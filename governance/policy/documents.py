"""Policy documents: one shape for every kind, and what identifies a bundle of them."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from governance.errors import FieldError, PolicyError
from governance.policy.capture import CaptureSpec
from governance.policy.consent import ConsentSpec
from governance.policy.dedup import DedupSpec
from governance.policy.quality import QualitySpec
from governance.policy.redaction import RedactionSpec
from governance.policy.retention import RetentionSpec
from governance.policy.selector import Spec
from trajectory.canonical import JsonObject, content_hash
from trajectory.documents.document import DocumentMetadata

API_VERSION = "headrace/v1"


class _Document(Spec):
    api_version: Literal["headrace/v1"] = Field(alias="apiVersion")
    metadata: DocumentMetadata


class CaptureDocument(_Document):
    """How much of an exchange may be kept."""

    kind: Literal["Capture"]
    spec: CaptureSpec


class RedactionDocument(_Document):
    """What is looked for in text, and what happens to it."""

    kind: Literal["Redaction"]
    spec: RedactionSpec


class ConsentDocument(_Document):
    """What may be done with the data."""

    kind: Literal["Consent"]
    spec: ConsentSpec


class RetentionDocument(_Document):
    """How long it is kept."""

    kind: Literal["Retention"]
    spec: RetentionSpec


class DedupDocument(_Document):
    """Which repetitions are left out."""

    kind: Literal["Dedup"]
    spec: DedupSpec


class QualityDocument(_Document):
    """What a step must fulfil to be stored."""

    kind: Literal["Quality"]
    spec: QualitySpec


KINDS: dict[str, type[_Document]] = {
    "Capture": CaptureDocument,
    "Redaction": RedactionDocument,
    "Consent": ConsentDocument,
    "Retention": RetentionDocument,
    "Dedup": DedupDocument,
    "Quality": QualityDocument,
}

LATER_KINDS = (
    "Substrate",
    "Schedule",
    "Recipe",
    "Evolution",
    "Prices",
    "Artifact",
    "Safety",
    "Action",
    "ReviewQueue",
)
"""Kinds of the same shape that later rooms read; they may stand beside a bundle's documents."""


class PolicyBundle(Spec):
    """A whole policy: exactly one document of each kind."""

    capture: CaptureDocument
    redaction: RedactionDocument
    consent: ConsentDocument
    retention: RetentionDocument
    dedup: DedupDocument
    quality: QualityDocument
    path: Path = Field(description="The folder it came from; relative names in it are meant there.")
    recognizers: dict[str, str] = Field(
        default_factory=dict, description="Files that the Redaction names, and hashes of them."
    )
    sources: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Kind to the document as it is written."
    )

    @property
    def documents(self) -> tuple[_Document, ...]:
        """The documents, in the order in which they act."""
        return (
            self.capture,
            self.redaction,
            self.consent,
            self.retention,
            self.dedup,
            self.quality,
        )

    @property
    def content_hash(self) -> str:
        """Hash of what the bundle says: layout, comments, order of files and folder do not count.

        Files of recognisers count as they are.
        """
        said: JsonObject = {
            type(document).__name__: document.model_dump(mode="json", by_alias=True)
            for document in self.documents
        }
        if self.recognizers:
            said["recognizers"] = {**self.recognizers}
        return content_hash(said)

    def located(self, kind: str, error: FieldError) -> PolicyError:
        """Return the error with the file and line of the field that it is about."""
        source = self.sources.get(kind)
        return PolicyError(source.error(error.field, str(error)) if source else str(error))
