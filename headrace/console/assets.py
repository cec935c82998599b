"""The console's files for browsers: where a page finds each, and which scripts may run."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha384
from importlib.resources import files
from urllib.parse import quote

FOLDER = "/static/"
"""What the path of each file begins with."""
SCRIPTS = ("console.js", "vendor/htmx.min.js", "vendor/uPlot.iife.min.js")
"""All that a browser runs here, in this order: our own says what the others may do before they do it."""


@dataclass(frozen=True, slots=True)
class VendoredPackage:
    """What others wrote and published, and the files of it that lie here unchanged."""

    name: str
    version: str
    licence: str
    source: str
    """The package that the files were taken from."""
    files: Mapping[str, str]
    """Each file's hash, as a page says it."""


@cache
def vendored_packages() -> tuple[VendoredPackage, ...]:
    """Return what ``static/vendor/manifest.json`` says."""
    return tuple(VendoredPackage(**one) for one in json.loads(_content("vendor/manifest.json")))


@cache
def integrity(name: str) -> str:
    """Return the hash by which a browser takes a file: of others' work, the one that was written down."""
    kept = {f"vendor/{file}": it for one in vendored_packages() for file, it in one.files.items()}
    return kept.get(name) or hash_of(_content(name))


@cache
def address(name: str) -> str:
    """Return where a file is, with its hash: other content is another address, and may be kept for good."""
    return f"{FOLDER}{name}?{quote(integrity(name)[7:19], safe='')}"


def script_sources() -> str:
    """Return the scripts that may run as a content security policy says it: these by their hashes, no others."""
    return " ".join(f"'{integrity(name)}'" for name in SCRIPTS)


def hash_of(content: bytes) -> str:
    """Return a hash as browsers compare it."""
    return f"sha384-{b64encode(sha384(content).digest()).decode()}"


def _content(name: str) -> bytes:
    return files("headrace.console").joinpath("static", name).read_bytes()
