"""Looks for known values in every file: the proof that nothing personal rests in clear.

Each file is scanned as raw bytes; gzip, zstd, zip and other packed contents are unpacked (also
one inside the other) and scanned again; Parquet and Arrow files are read column by column, so
that compression and dictionaries hide nothing. Each value is sought in all of
:func:`forms_of`. Numbers are sought in number columns. Not sought: values
encrypted, values inside token ids (they need the tokenizer), values split over two rows.
"""

import base64
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, quote_plus

import ahocorasick

from lakehouse.maintenance.unpack import Piece, pieces
from lakehouse.read.spill import SCANNED
from lakehouse.storage.location import Location
from lakehouse.storage.stores import BLOCK
from trajectory.errors import ConfigurationError

_ASCII = 0x7F
_SHORT = 6
_WORD = re.compile(r"[0-9A-Za-z\x80-\xff]")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A value that was found; the value itself is not repeated, only its number."""

    path: str
    value: int
    """Its number in the list of values that was given, the first is 1."""
    form: str
    """How it was written there (see :class:`Form`)."""
    where: str
    """``bytes`` or what was unpacked: ``gzip``, ``parquet:column``, ``zip:1>gzip`` …"""
    offset: int
    """Byte in the unpacked content; the row for Parquet and Arrow columns."""


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What was looked at and what was found."""

    files: int
    bytes_read: int
    """Bytes of the files as they lie on disk."""
    bytes_scanned: int
    """Bytes that were searched, unpacked ones included."""
    hits: tuple[Occurrence, ...]
    unreadable: tuple[str, ...]
    """Files that could not be opened, and packed contents that broke off; their raw bytes were searched."""

    @property
    def values_found(self) -> int:
        """How many different values were found."""
        return len({hit.value for hit in self.hits})


def scan(
    paths: Iterable[Path | str],
    values: Sequence[str],
    *,
    skip: Callable[[Path], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
    lake: Location | None = None,
) -> ScanReport:
    """Search every file under ``paths``, and of a lake, for every one of ``values``.

    Args:
        paths: files and folders; a folder is searched to the bottom, links are not followed.
        values: what must not be there; a value of fewer than three characters is refused.
        skip: True for a file or folder that is left out, by the caller's own decision.
        progress: called with files done and files in all.
        lake: where a lake is; what ``paths`` hold of it already is not searched twice. Objects of a
            store are fetched one after the other, and nothing of them stays on this machine.

    Raises:
        ConfigurationError: a path does not exist, or a value is too short to mean anything.
    """
    finder = _Finder(values)
    files = list(_everything(list(map(Path, paths)), skip, lake))
    hits: list[Occurrence] = []
    unreadable: list[str] = []
    size = scanned = 0
    for done, file in enumerate(files):
        if progress is not None:
            progress(done, len(files))
        hits.extend(finder.in_text(file.path, "name", file.name))
        try:
            with file.here() as copy:
                size += copy.stat().st_size
                for piece in pieces(copy):
                    if piece.broken:
                        unreadable.append(f"{file.path}: {piece.where}")
                    scanned += piece.size
                    hits.extend(finder.in_piece(file.path, piece))
        except OSError as error:
            unreadable.append(f"{file.path}: {error.strerror or type(error).__name__}")
    return ScanReport(len(files), size, scanned, tuple(_first(hits)), tuple(unreadable))


def _first(hits: Iterable[Occurrence]) -> Iterator[Occurrence]:
    """Yield the first hit of each value, form and place of a file."""
    seen: set[tuple[str, int, str, str]] = set()
    for hit in hits:
        key = (hit.path, hit.value, hit.form, hit.where)
        if key not in seen:
            seen.add(key)
            yield hit


@dataclass(frozen=True, slots=True)
class _File:
    """A file of this machine, or an object of a store."""

    path: str
    name: bytes
    here: Callable[[], AbstractContextManager[Path]]
    """Gives the file, or a copy of the object for as long as it is looked at."""


def _everything(
    paths: Sequence[Path], skip: Callable[[Path], bool] | None, lake: Location | None
) -> Iterator[_File]:
    elsewhere = lake is not None and lake.is_local and not _within(lake.folder, paths)
    for path in _files([*paths, lake.folder] if lake is not None and elsewhere else paths, skip):
        name = path.name.encode("utf-8", "surrogateescape")
        yield _File(str(path), name, partial(_itself, path))
    if lake is not None and not lake.is_local:
        yield from _objects(lake)


def _within(folder: Path, paths: Sequence[Path]) -> bool:
    """Whether a folder is searched already, or is not there."""
    real = folder.resolve()
    return not real.exists() or any(real.is_relative_to(path.resolve()) for path in paths)


def _objects(lake: Location) -> Iterator[_File]:
    from pyarrow.fs import FileSelector, FileType

    files = lake.files()
    found = files.get_file_info(FileSelector("", recursive=True, allow_not_found=True))
    for info in sorted(found, key=lambda info: str(info.path)):
        if info.type == FileType.File:
            yield _File(
                f"{lake.root}/{info.path}",
                str(info.base_name).encode(),
                partial(_fetched, files, str(info.path)),
            )


@contextmanager
def _itself(path: Path) -> Iterator[Path]:
    yield path


@contextmanager
def _fetched(files: Any, path: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix=f"{SCANNED}{os.getpid()}-") as scratch:
        copy = Path(scratch) / "object"
        with files.open_input_stream(path) as source, copy.open("wb") as target:
            while block := source.read(BLOCK):
                target.write(block)
        yield copy


def _files(paths: Iterable[Path], skip: Callable[[Path], bool] | None) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise ConfigurationError(f"{path} does not exist; give files or folders to scan")
        yield from _walk(path, skip)


def _walk(path: Path, skip: Callable[[Path], bool] | None) -> Iterator[Path]:
    if path.is_symlink() or (skip is not None and skip(path)):
        return
    if path.is_dir():
        for inner in sorted(path.iterdir()):
            yield from _walk(inner, skip)
    elif path.is_file():
        yield path


class _Finder:
    """An automaton over all forms of all values."""

    def __init__(self, values: Sequence[str]) -> None:
        self._automaton = ahocorasick.Automaton()
        self._numbers: dict[int, int] = {}
        self._longest = 0
        for index, value in enumerate(values, 1):
            if len(value) < 3:
                raise ConfigurationError(
                    f"value {index} has fewer than 3 characters: it would be found everywhere"
                )
            self._add(index, value)
        if values:
            self._automaton.make_automaton()

    def _add(self, index: int, value: str) -> None:
        for form in forms_of(value):
            key = form.data.decode("latin-1")
            known = self._automaton.get(key, ())
            self._automaton.add_word(key, (*known, (index, form.name, len(key))))
            self._longest = max(self._longest, len(key))
        digits = re.sub(r"[ \-+().]", "", value)
        if digits.isascii() and digits.isdigit() and 4 <= len(digits) <= 18:
            self._numbers[int(digits)] = index

    def in_piece(self, path: str, piece: Piece) -> Iterator[Occurrence]:
        """Yield the hits in one piece of a file."""
        if piece.numbers is not None:
            yield from self._in_numbers(path, piece.where, piece.numbers)
        tail = b""
        start = 0
        for block in piece.blocks:
            data = tail + block
            yield from self.in_text(path, piece.where, data, start=start - len(tail))
            start += len(block)
            tail = data[-self._longest :] if piece.continuous else b""

    def in_text(
        self, path: str, where: str, data: bytes, *, start: int = 0
    ) -> Iterator[Occurrence]:
        """Yield the hits in a block of bytes."""
        if not len(self._automaton):
            return
        text = data.decode("latin-1")
        for end, found in self._automaton.iter(text):
            for index, form, length in found:
                begin = end - length + 1
                if length >= _SHORT or _stands_alone(text, begin, end + 1):
                    yield Occurrence(path, index, form, where, start + begin)

    def _in_numbers(self, path: str, where: str, numbers: Any) -> Iterator[Occurrence]:
        for row, number in numbers:
            if number in self._numbers:
                yield Occurrence(path, self._numbers[number], "number", where, row)


def _stands_alone(text: str, begin: int, end: int) -> bool:
    """Whether a short match is a word in printable surroundings, not chance in packed bytes."""
    around = text[max(0, begin - 4) : begin] + text[end : end + 4]
    if any(ord(letter) < 9 or 0x0D < ord(letter) < 0x20 for letter in around):
        return False
    before, after = text[begin - 1 : begin], text[end : end + 1]
    return not (_WORD.match(before) or _WORD.match(after))


SHORTEST_ENCODED = 6
"""Values of fewer bytes are sought as they are only; encoded they would match by chance."""


@dataclass(frozen=True, slots=True)
class Form:
    """One byte sequence that stands for a value."""

    name: str
    """raw | json | json_ascii | json_twice | url | html | mail | bytes | utf16 | hex | base64"""
    data: bytes


def forms_of(value: str) -> Iterator[Form]:
    """Yield every form of ``value``, each byte sequence once, the plainest name first."""
    seen: set[bytes] = set()
    for form in _all_forms(value):
        if form.data and form.data not in seen:
            seen.add(form.data)
            yield form


def _all_forms(value: str) -> Iterator[Form]:
    raw = value.encode("utf-8", "surrogatepass")
    yield Form("raw", raw)
    for ascii_only, name in ((False, "json"), (True, "json_ascii")):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        twice = json.dumps(once, ensure_ascii=ascii_only)[1:-1]
        yield from _json_cases(name, once)
        yield from _json_cases("json_twice", twice)
    if len(raw) < SHORTEST_ENCODED:
        return
    yield from _url(raw)
    yield Form("html", html.escape(value).encode("utf-8", "surrogatepass"))
    yield Form("html", "".join(f"&#{ord(c)};" if not c.isalnum() else c for c in value).encode())
    for also in (b"", b"="):
        yield Form("mail", quoted := _marked(raw, b"=%02X", also))
        yield Form("mail", quoted.replace(b" ", b"_"))
    yield Form("bytes", _marked(raw, b"\\x%02x", b"\\"))
    yield Form("utf16", value.encode("utf-16-le", "surrogatepass"))
    yield Form("utf16", value.encode("utf-16-be", "surrogatepass"))
    yield Form("hex", raw.hex().encode())
    yield Form("hex", raw.hex().upper().encode())
    yield from _base64(raw)


def _json_cases(name: str, text: str) -> Iterator[Form]:
    data = text.encode("utf-8", "surrogatepass")
    yield Form(name, data)
    yield Form(name, data.replace(b"/", b"\\/"))
    if b"\\u" in data:
        yield Form(name, _upper_escapes(data))


def _upper_escapes(data: bytes) -> bytes:
    head, *rest = data.split(b"\\u")
    return b"\\u".join([head, *(part[:4].upper() + part[4:] for part in rest)])


def _marked(raw: bytes, mark: bytes, also: bytes) -> bytes:
    """Write bytes beyond ASCII, and those in ``also``, as their number behind a mark."""
    return b"".join(mark % byte if byte > _ASCII or byte in also else bytes([byte]) for byte in raw)


def _url(raw: bytes) -> Iterator[Form]:
    for safe in ("", "/", "/:@!$&'()*+,;=~"):
        for text in (quote(raw, safe=safe), quote_plus(raw, safe=safe)):
            yield Form("url", text.encode())
            lower = "".join(part.lower() if index else part for index, part in _escapes(text))
            yield Form("url", lower.encode())
    yield Form("url", b"".join(b"%%%02X" % byte for byte in raw))


def _escapes(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text cut into escapes (True) and what stands between them (False)."""
    head, *rest = text.split("%")
    yield False, head
    for part in rest:
        yield True, "%" + part[:2]
        yield False, part[2:]


def _base64(raw: bytes) -> Iterator[Form]:
    """Yield what is certain of the value's base64 at each of the three alignments."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        begin = (0, 2, 3)[shift]
        bits_end = (shift + len(raw)) * 8
        certain = encoded[begin : bits_end // 6]
        if len(certain) >= SHORTEST_ENCODED:
            yield Form("base64", certain)
            yield Form("base64", certain.replace(b"+", b"-").replace(b"/", b"_"))
