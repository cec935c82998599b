"""Object stores as Arrow file systems: what reads and writes beside delta-rs.

S3 is spoken by Arrow itself. delta-rs' own file system is Python in Arrow's threads, and delta-rs waits for the
network while it holds Python's lock. The two have been seen to wait for each other for ever. It remains for the
stores that Arrow is not asked to speak.
"""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

BLOCK = 8 << 20
"""Bytes that are copied at a time."""


def filesystem(root: str, options: Mapping[str, str]) -> Any:
    """Return an Arrow file system whose root is ``root`` (``scheme://bucket/prefix``)."""
    from pyarrow.fs import PyFileSystem, SubTreeFileSystem

    parts = urlsplit(root)
    if parts.scheme in ("s3", "s3a"):
        return SubTreeFileSystem(f"{parts.netloc}{parts.path}", _s3(options))
    from deltalake.fs import DeltaStorageHandler

    return PyFileSystem(DeltaStorageHandler(root, dict(options) or None))


def _s3(options: Mapping[str, str]) -> Any:
    """Return S3 by the same options and variables that delta-rs goes by."""
    from pyarrow.fs import S3FileSystem

    given = {name.lower().removeprefix("aws_"): value for name, value in options.items()}

    def asked(name: str) -> str | None:
        return given.get(name) or os.environ.get(f"AWS_{name.upper()}") or None

    endpoint = urlsplit(asked("endpoint_url") or asked("endpoint") or "")
    chosen = {
        "region": asked("region") or asked("default_region"),
        "endpoint_override": endpoint.netloc or None,
        "scheme": endpoint.scheme or None,
        "access_key": given.get("access_key_id"),
        "secret_key": given.get("secret_access_key"),
        "session_token": given.get("session_token"),
    }
    virtual = asked("virtual_hosted_style_request") == "true"
    return S3FileSystem(
        background_writes=False,
        force_virtual_addressing=virtual,
        **{name: value for name, value in chosen.items() if value},
    )
