"""What providers keep for their clients, as the paths of requests name it."""

import re
from typing import NamedTuple

_METHODS: dict[tuple[bytes, bytes], tuple[bytes, ...]] = {
    (b"responses", b""): (b"GET", b"DELETE"),
    (b"responses", b"input_items"): (b"GET",),
    (b"responses", b"cancel"): (b"POST",),
    (b"chat/completions", b""): (b"GET", b"DELETE"),
    (b"chat/completions", b"messages"): (b"GET",),
    (b"conversations", b""): (b"GET", b"POST", b"DELETE"),
    (b"conversations", b"items"): (b"GET", b"POST", b"DELETE"),
    (b"files", b""): (b"GET", b"DELETE"),
    (b"files", b"content"): (b"GET",),
    (b"batches", b""): (b"GET", b"DELETE"),
    (b"batches", b"cancel"): (b"POST",),
    (b"batches", b"results"): (b"GET",),
}
"""Methods of requests about each part of each kind."""
_ID = rb"[A-Za-z0-9_-]{1,200}"
_KINDS, _PARTS = (b"|".join(sorted({*one} - {b""})) for one in zip(*_METHODS, strict=True))
_PATH = re.compile(
    rb"/(?P<kind>%s)/(?P<id>%s)(?:/(?P<part>%s)(?P<one>/%s)?)?$" % (_KINDS, _ID, _PARTS, _ID)
)
_LIST = re.compile(rb"/(?P<kind>files|batches|chat/completions)$")
_AFTER = re.compile(rb"(?<![^&])starting_after=([0-9]{1,9})(?![^&])")
_WITHIN = re.compile(rb"/(?:vector_stores|containers|threads)/")
"""Where others than the provider's files stand under such names."""


class KeptObject(NamedTuple):
    """What a provider keeps, and the part of it that a request is about: an object, or a list of them."""

    kind: str
    """responses | chat/completions | conversations | files | batches"""
    id: str
    """Empty for the list of all objects of this kind."""
    part: str
    """Empty for the object itself."""
    after: int | None = None
    """The number of the event behind which a stream of it is wanted; None for all of it."""


def kept_object(method: bytes, path: bytes) -> KeptObject | None:
    """Return what a request is about; None where it is about nothing that a provider keeps."""
    bare, _, query = path.partition(b"?")
    found = _PATH.search(bare)
    if is_within(bare):
        return None
    if found is None:
        listed = _LIST.search(bare) if method == b"GET" else None
        return None if listed is None else KeptObject(listed["kind"].decode(), "", "")
    kind, part = found["kind"], found["part"] or b""
    if method not in _METHODS.get((kind, part), ()) or (found["one"] and part != b"items"):
        return None
    named = _AFTER.search(query) if kind == b"responses" and not part else None
    after = None if named is None else int(named[1])
    return KeptObject(kind.decode(), found["id"].decode(), part.decode(), after)


def from_the_start(path: bytes) -> bytes:
    """Return the path of a request for a stream that is wanted behind an event, for all of it."""
    bare, mark, query = path.partition(b"?")
    asked = [one for one in query.split(b"&") if not _AFTER.fullmatch(one)]
    return bare + (mark + b"&".join(asked) if asked else b"")


def is_within(path: bytes) -> bool:
    """Tell whether a path is about something within what others keep files and messages for."""
    return _WITHIN.search(path) is not None
