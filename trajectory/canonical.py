"""Canonical JSON and content hashes: the same content gives the same bytes and the same name.

Canonical JSON is UTF-8 without white space; keys are sorted by code point, and only what JSON demands is
escaped. Numbers are written as Python's ``json`` writes them (``1`` and ``1.0`` differ); NaN and
infinities are refused. Hashes are BLAKE2b-160, tagged with their algorithm.
"""

import json
from hashlib import blake2b
from typing import Any

type JsonValue = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
type JsonObject = dict[str, JsonValue]

_DIGEST_BYTES = 20
_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode


def canonical_json(value: Any) -> bytes:
    """Return ``value`` as canonical JSON.

    Raises:
        ValueError: a float is NaN or infinite.
        TypeError: the value holds something that JSON cannot.
    """
    return _encode(value).encode("utf-8", "surrogatepass")


def content_hash(value: Any, *, key: bytes = b"") -> str:
    """Return the tagged hash of the canonical JSON of ``value``, e.g. ``b2:4f0c…`` (43 characters).

    Args:
        value: any JSON value.
        key: up to 64 bytes; with a key the hash cannot be computed by others (RFC 7693, keyed).
    """
    return "b2:" + blake2b(canonical_json(value), digest_size=_DIGEST_BYTES, key=key).hexdigest()


def bytes_hash(data: bytes, *, key: bytes = b"") -> str:
    """Return the tagged hash of raw bytes, in the same form as :func:`content_hash`."""
    return "b2:" + blake2b(data, digest_size=_DIGEST_BYTES, key=key).hexdigest()
