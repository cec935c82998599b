"""Files that clients upload: a name and a text, or a request in each line.

What fine-tunes, and what is answered as a batch, has a request in each line. Of other files the text is
read as a whole, or by its lines of JSON. What is no text in UTF-8 cannot be read.
"""

import json
import re
from collections.abc import Iterator, Sequence
from email.message import Message
from typing import Any, NamedTuple

from proxy.inline.batches import BatchLine
from proxy.inline.openai import ChatRequest
from proxy.inline.requests import (
    OTHER,
    TEXT,
    InnerRequest,
    Path,
    UnreadableRequestError,
    WireRequest,
    is_json,
)

_DISPOSITION = re.compile(
    rb'content-disposition: *form-data; *name="([^"]*)"(?:; *filename="([^"]*)")?', re.IGNORECASE
)
_TYPE = re.compile(rb"content-type: *[\w.+-]+/[\w.+-]+(?:; *charset=\"?utf-?8\"?)?", re.IGNORECASE)
_SETTING = re.compile(rb"purpose|expires_after\[\w+\]")
"""Names of fields beside the file."""
_VALUE = re.compile(rb"[\w-]{1,40}")
_LINED = frozenset({"batch", "fine-tune"})
"""Purposes of files with a request in each line."""


class _Field(NamedTuple):
    """A field of a form."""

    head: bytes
    name: bytes
    file: bytes | None
    """The name of a file; None where it is none."""
    content: bytes


class FileRequest(WireRequest):
    """A file that is uploaded, to be kept."""

    ends = (b"/files",)

    def __init__(self, body: bytes, boundary: bytes) -> None:
        """Read a form; the content type of the request says what stands between its fields."""
        self._boundary = boundary
        self._fields = [*_fields(body, boundary)]
        files = [field for field in self._fields if field.file is not None]
        if len(files) != 1 or not all(map(_is_known, self._fields)):
            raise UnreadableRequestError
        (file,) = files
        purposes = [field.content.decode() for field in self._fields if field.name == b"purpose"]
        text = _text_of(file.content)
        lines = text.split("\n")
        is_lined = bool({*purposes} & _LINED)
        self.holds_json = not is_lined and (is_json(text) or _are_json(lines))
        """Its text is JSON, or its lines are."""
        said: str | list[str] = "" if is_lined else lines if self.holds_json else text
        if self.holds_json and is_json(text):
            said = text
        self._lines = lines if is_lined else []
        read = BatchLine if "batch" in purposes else training_line
        self.inner = [InnerRequest(read, one.encode()) for one in self._lines if one.strip()]
        self.is_batch = "batch" in purposes
        written = {"name": _text_of(file.file or b""), "text": said}
        super().__init__(json.dumps(written, ensure_ascii=False).encode())

    def _reads(self, value: dict[str, Any]) -> bool:  # noqa: ARG002
        return True

    def _place(self, path: Path, kind: str, said: str) -> Path | None:  # noqa: ARG002
        return TEXT if path[0] == "text" else OTHER + path

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        said = self.value["text"]
        yield "user", ("text",), said if isinstance(said, str) else "\n".join(said)

    def said(self) -> list[tuple[Path, str]]:
        return []  # a file answers no question

    def results(self) -> Iterator[tuple[str, Any]]:
        yield from ()

    def is_kept(self) -> bool:
        return True

    def uses(self) -> frozenset[str]:
        return frozenset()

    def written(self, told: str, inner: Sequence[bytes]) -> bytes:
        value = json.loads(told)
        said = value["text"]
        content = (said if isinstance(said, str) else "\n".join(said)).encode()
        if self._lines:
            left = iter(inner)
            lines = [next(left) if one.strip() else one.encode() for one in self._lines]
            content = b"\n".join(lines)
        pieces = []
        for field in self._fields:
            head, body = field.head, field.content
            if field.file is not None:
                named = b'filename="%s"'
                head = head.replace(named % field.file, named % value["name"].encode())
                body = content
            pieces.append(b"--%s\r\n%s\r\n\r\n%s\r\n" % (self._boundary, head, body))
        return b"".join((*pieces, b"--%s--\r\n" % self._boundary))


class TrainingLine(WireRequest):
    """A line that fine-tunes and is no chat: all of it is data."""

    ends = ()

    def _reads(self, value: dict[str, Any]) -> bool:  # noqa: ARG002
        return True

    def _place(self, path: Path, kind: str, said: str) -> Path | None:  # noqa: ARG002
        return OTHER + path

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        yield "user", (), self.text

    def results(self) -> Iterator[tuple[str, Any]]:
        yield from ()


def training_line(line: bytes) -> WireRequest:
    """Read a line that fine-tunes."""
    try:
        return ChatRequest(line)
    except UnreadableRequestError:
        return TrainingLine(line)


def boundary_of(kind: bytes) -> bytes:
    """Return what stands between the fields of a form, by its content type."""
    message = Message()
    message["content-type"] = kind.decode("latin-1")
    found = message.get_param("boundary")
    return found.encode("latin-1") if isinstance(found, str) else b""


def _fields(body: bytes, boundary: bytes) -> Iterator[_Field]:
    """Yield the fields of a form; one that two readers may read in two ways cannot be read."""
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary)
    first, *pieces = pieces
    if not boundary or first or not pieces or pieces.pop() not in (b"--", b"--\r\n"):
        raise UnreadableRequestError
    for piece in pieces:
        head, mark, content = piece.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        if not mark or lines.pop(0):
            raise UnreadableRequestError
        said = [one for one in lines if not _TYPE.fullmatch(one)]
        found = _DISPOSITION.fullmatch(said[0]) if len(said) == 1 else None
        if found is None or len(lines) > len(said) + 1:
            raise UnreadableRequestError
        yield _Field(b"\r\n".join(lines), found[1], found[2], content)


def _is_known(field: _Field) -> bool:
    """Whether a field is the file, or a setting that says nothing."""
    if field.file is not None:
        return field.name == b"file"
    return bool(_SETTING.fullmatch(field.name) and _VALUE.fullmatch(field.content))


def _text_of(raw: bytes) -> str:
    """Return what bytes say as a text; pictures and their like say nothing that can be read."""
    try:
        text = raw.decode()
    except ValueError:
        raise UnreadableRequestError from None
    if text.startswith("%PDF") or "\0" in text:
        raise UnreadableRequestError
    return text


def _are_json(lines: Sequence[str]) -> bool:
    """Whether lines are JSON, each by itself."""
    return any(map(str.strip, lines)) and all(is_json(one) for one in lines if one.strip())
