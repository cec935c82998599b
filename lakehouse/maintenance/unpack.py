"""Unpacks files for the scan: raw bytes, packed streams, archives, Parquet and Arrow columns."""

import bz2
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard

_BLOCK = 4 << 20
_CHUNK = 64 << 10
_DEEPEST = 3
_LARGEST = 4 << 30
"""Bytes that one packed stream may unfold to before it counts as broken."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file in one form of packing."""

    where: str
    blocks: Iterable[bytes] = ()
    continuous: bool = True
    """True when a value may reach from one block into the next."""
    numbers: Iterable[tuple[int, int]] | None = None
    """(row, number) of integer columns."""
    size: int = 0
    broken: bool = False


def pieces(path: Path) -> Iterator[Piece]:
    """Yield the raw bytes of a file and everything that can be unpacked from it."""
    yield Piece("bytes", _blocks(path), size=path.stat().st_size)
    with path.open("rb") as file:
        yield from _inside(file, "", 0)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _inside(file: IO[bytes], where: str, depth: int) -> Iterator[Piece]:
    """Yield what is packed in ``file``, known by its first bytes."""
    head = file.read(512)
    file.seek(0)
    if depth < _DEEPEST:
        for name, matches, unpack in _KINDS:
            if matches(head):
                yield from unpack(file, f"{where}>{name}" if where else name, depth)
                return


def _stream(new_decompressor: Callable[[], Any]) -> "_Unpack":
    """Return an unpacker for streams of one or more members; what comes before damage is kept."""

    def unpack(file: IO[bytes], where: str, depth: int) -> Iterator[Piece]:
        whole, broken = _decompress(file, new_decompressor)
        if not whole and broken and depth:
            return  # chance bytes within a column that look like a stream
        yield Piece(where, [whole], size=len(whole), broken=broken)
        yield from _inside(BytesIO(whole), where, depth + 1)

    return unpack


def _decompress(file: IO[bytes], new_decompressor: Callable[[], Any]) -> tuple[bytes, bool]:
    out = bytearray()
    decompressor = new_decompressor()
    members = 0
    while data := file.read(_CHUNK):
        while data:
            try:
                out += decompressor.decompress(data)
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError):
                return bytes(out), members == 0
            if len(out) > _LARGEST:
                return bytes(out), True
            if not decompressor.eof:
                break
            members += 1
            data = decompressor.unused_data
            decompressor = new_decompressor()
    return bytes(out), members == 0


def _zip(file: IO[bytes], where: str, depth: int) -> Iterator[Piece]:
    try:
        with zipfile.ZipFile(file) as archive:
            for number, name in enumerate(archive.namelist()):
                data = archive.read(name)
                inner = f"{where}:{number}"
                yield Piece(inner, [name.encode(), data], size=len(data), continuous=False)
                yield from _inside(BytesIO(data), inner, depth + 1)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError, NotImplementedError):
        yield Piece(where, broken=True)


def _tar(file: IO[bytes], where: str, depth: int) -> Iterator[Piece]:
    try:
        with tarfile.open(fileobj=file) as archive:
            for number, member in enumerate(archive):
                stream = archive.extractfile(member)
                if stream is not None:
                    yield from _inside(BytesIO(stream.read()), f"{where}:{number}", depth + 1)
    except (tarfile.TarError, OSError, EOFError):
        yield Piece(where, broken=True)


def _parquet(file: IO[bytes], where: str, depth: int) -> Iterator[Piece]:
    try:
        reader = pq.ParquetFile(file)
        row = 0
        for batch in reader.iter_batches(batch_size=8192):
            yield from _columns(batch, where, row, depth)
            row += batch.num_rows
    except (pa.ArrowException, OSError):
        yield Piece(where, broken=True)


def _arrow(file: IO[bytes], where: str, depth: int) -> Iterator[Piece]:
    """Read Arrow IPC; a file of several streams one after the other is read to its end."""
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    try:
        with pa.py_buffer(file.read()) as buffer:
            source = pa.BufferReader(buffer)
            row = 0
            while is_file or source.tell() < source.size():
                reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
                batches: Any = (
                    (reader.get_batch(i) for i in range(reader.num_record_batches))
                    if is_file
                    else reader
                )
                for batch in batches:
                    yield from _columns(batch, where, row, depth)
                    row += batch.num_rows
                if is_file:
                    return
    except (pa.ArrowException, OSError, TypeError):
        yield Piece(where, broken=True)


def _columns(batch: Any, where: str, row: int, depth: int) -> Iterator[Piece]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for leaf in _leaves(column):
            yield from _leaf(leaf, f"{where}:{name}", row, depth)


def _leaves(array: Any) -> Iterator[Any]:
    """Yield the innermost arrays of nested columns, dictionaries decoded."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield from _leaves(array.dictionary)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _leaves(array.field(index))
    elif pa.types.is_map(kind):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif hasattr(array, "flatten") and pa.types.is_nested(kind):
        yield from _leaves(array.flatten())
    elif isinstance(array, pa.ExtensionArray):
        yield from _leaves(array.storage)
    else:
        yield array


def _leaf(array: Any, where: str, row: int, depth: int) -> Iterator[Piece]:
    kind = array.type
    if pa.types.is_integer(kind):
        valid = array.drop_null()
        if len(valid) and pc.max(valid).as_py() > 999:
            numbers = list(enumerate(valid.to_pylist(), start=row))
            yield Piece(where, numbers=numbers, size=array.nbytes)
        return
    if not any(is_text(kind) for is_text in _TEXT_TYPES):
        return
    array = array.cast(pa.large_binary())
    values = array.drop_null().to_pylist()
    # A zero byte between two values keeps a match from reaching over both.
    yield Piece(where, [b"\n\0\n".join(values)], size=array.nbytes, continuous=False)
    for value in values:
        if value[:4] in _PACKED:
            yield from _inside(BytesIO(value), where, depth + 1)


_TEXT_TYPES = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)  # fmt: skip

type _Unpack = Callable[[IO[bytes], str, int], Iterator[Piece]]

_PACKED = (b"\x1f\x8b\x08\x00", b"\x1f\x8b\x08\x08", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PAR1")

_KINDS: tuple[tuple[str, Callable[[bytes], bool], _Unpack], ...] = (
    ("gzip", lambda head: head[:2] == b"\x1f\x8b", _stream(lambda: zlib.decompressobj(31))),
    ("zstd", lambda head: head[:4] == b"\x28\xb5\x2f\xfd",
     _stream(lambda: zstandard.ZstdDecompressor().decompressobj())),
    ("bzip2", lambda head: head[:3] == b"BZh", _stream(bz2.BZ2Decompressor)),
    ("xz", lambda head: head[:6] == b"\xfd7zXZ\0", _stream(lzma.LZMADecompressor)),
    ("zlib", lambda head: head[:2] in (b"\x78\x01", b"\x78\x9c", b"\x78\xda"),
     _stream(zlib.decompressobj)),
    ("zip", lambda head: head[:4] == b"PK\x03\x04", _zip),
    ("tar", lambda head: head[257:262] == b"ustar", _tar),
    ("parquet", lambda head: head[:4] == b"PAR1", _parquet),
    ("arrow", lambda head: head[:6] == b"ARROW1" or head[:4] == b"\xff\xff\xff\xff", _arrow),
)  # fmt: skip
