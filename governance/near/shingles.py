"""Shingles: a text as the set of its overlapping pieces of some bytes, hashed."""

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

SIZE = 8
"""Bytes in one shingle, unless somebody asks for another size."""
SMALLEST, LARGEST = 4, 16

type Shingles = NDArray[np.uint32]

_SPACES = re.compile(r"\s+")
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_WORD = 8
_CHUNK_BYTES = 4_000_000
_SECOND = np.uint64(0xD6E8FEB86659FD93)


def algorithm(size: int = SIZE) -> str:
    """Return what is kept beside shingles; those of another algorithm do not compare."""
    return f"bytes{size}-casefold-1"


def normalised(text: str) -> str:
    """Return the text without what does not make it another one: letter case and white space."""
    return _SPACES.sub(" ", text).strip().casefold()


def shingles(text: str, size: int = SIZE) -> Shingles:
    """Return the sorted, unique 32-bit hashes of a text's shingles; at least one.

    Two different texts of 1 kB share a hash by chance about once in ten thousand pairs, which
    moves their similarity by a thousandth.
    """
    return shingle_sets([text], size)[0]


def shingle_sets(texts: Iterable[str], size: int = SIZE) -> list[Shingles]:
    """Return the shingles of each text; many at once cost far less than one by one."""
    found: list[Shingles] = []
    part: list[bytes] = []
    held = 0
    for text in texts:
        part.append(normalised(text).encode("utf-8", "surrogatepass").ljust(size, b"\0"))
        held += len(part[-1])
        if held >= _CHUNK_BYTES:
            found += _sets(part, size)
            part, held = [], 0
    return found + _sets(part, size) if part else found


def _sets(texts: list[bytes], size: int) -> list[Shingles]:
    """Return the shingles of texts in one sort: each hash below the number of its text."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    counts = lengths - size + 1
    begins = np.cumsum(lengths) - lengths
    places = np.arange(counts.sum()) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    words = _pieces(b"".join(texts), places, size)
    hashes = ((words * _MIX) ^ (words >> _SHIFT) * _MIX) >> _SHIFT
    numbers = np.arange(len(texts), dtype=np.uint64) << _SHIFT
    owned = np.repeat(numbers, counts) | hashes
    owned.sort()
    owned = owned[np.concatenate([[True], owned[1:] != owned[:-1]])]
    edges = np.searchsorted(owned, numbers[1:])
    return np.split(owned.astype(np.uint32), edges)


def _pieces(data: bytes, places: NDArray[np.int64], size: int) -> NDArray[np.uint64]:
    """Return one word for the ``size`` bytes at each place."""
    padded = data + bytes(_WORD)
    every: NDArray[np.uint64] = np.ndarray(
        (len(padded) - _WORD + 1,), dtype="<u8", buffer=padded, strides=(1,)
    )
    words = every[places]
    if size == _WORD:
        return words
    if size < _WORD:
        return np.asarray(words & np.uint64((1 << 8 * size) - 1), dtype=np.uint64)
    # Two words that overlap hold the whole of a longer piece.
    rest = every[places + (size - _WORD)]
    return np.asarray((words * _SECOND) ^ rest, dtype=np.uint64)


def similarity(a: Shingles, b: Shingles) -> float:
    """Return the Jaccard similarity of two sets of shingles, 0 to 1."""
    common = shared(a, b)
    return common / (a.size + b.size - common)


def shared(a: Shingles, b: Shingles) -> int:
    """Return how many shingles two sets have in common."""
    return np.intersect1d(a, b, assume_unique=True).size
