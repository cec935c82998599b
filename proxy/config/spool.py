"""The spool: where captures rest until they are governed, and what happens when there is no room."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from proxy.config.base import ConfigModel


class SpoolConfig(ConfigModel):
    """Where captures rest until they are governed, and what happens when there is no room."""

    directory: Path = Path("spool")
    """Folder of the spool; the app sets it inside its home."""
    segment_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    """A segment file is closed when it has reached this size."""
    segment_seconds: float = Field(default=3600.0, gt=0)
    """A segment file that has been open so long is closed: what is governed of it is then deleted,
    and raw bytes do not wait for the size."""
    max_age_hours: float = Field(default=336.0, ge=1)
    """Closed segments that nobody governed for so long after their last record are deleted, counted
    (``headrace_spool_expired_segments_total``) and noted in the audit log."""
    max_bytes: int = Field(default=8 * 1024**3, ge=1024 * 1024)
    """Bound of the whole spool; at it, each route's ``without_capture`` decides."""
    max_files: int = Field(default=4096, ge=16)
    """Bound of its segment files; it acts like ``max_bytes``."""
    alarm_at: float = Field(default=0.7, gt=0, le=1)
    """Share of the bounds from which ``headrace_spool_alarm`` is 1 and the log says so."""
    shed_at: float = Field(default=0.9, gt=0, le=1)
    """Share of the bounds from which bodies are left out and metadata is kept, on routes that
    ``pass`` without capture."""
    sync_seconds: float = Field(default=0.2, gt=0, le=10)
    """How long records may wait for their common ``fdatasync``."""
    slow_seconds: float = Field(default=1.0, gt=0)
    """A disk that takes longer for a write or a sync counts as failing: nothing is written for
    a second, twice as long each time it happens again, half a minute at most."""
    key_file: Path | None = None
    """Keys that seal the spool, 64 hexadecimal digits on each line, newest first; the app names
    ``secrets/spool.key``. Without the file the key comes from the master key."""

    @model_validator(mode="after")
    def _watermarks(self) -> Self:
        if self.alarm_at > self.shed_at:
            raise ValueError("alarm_at must not lie above shed_at")
        return self
