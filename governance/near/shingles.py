"""Shingles: a text as the set of its overlapping pieces of eight bytes, hashed."""

import re

import numpy as np
from numpy.typing import NDArray

ALGORITHM = "bytes8-casefold-1"
"""Kept beside everything that was computed with it; shingles of another algorithm do not compare."""
SIZE = 8

type Shingles = NDArray[np.uint32]

_SPACES = re.compile(r"\s+")
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


def normalised(text: str) -> str:
    """Return the text without what does not make it another one: letter case and white space."""
    return _SPACES.sub(" ", text).strip().casefold()


def shingles(text: str) -> Shingles:
    """Return the sorted, unique 32-bit hashes of a text's shingles; at least one.

    Two different texts of 1 kB share a hash by chance about once in ten thousand pairs, which
    moves their similarity by a thousandth.
    """
    data = normalised(text).encode("utf-8", "surrogatepass")
    padded = np.frombuffer(data.ljust(SIZE, b"\0"), dtype=np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(padded, SIZE)
    words = np.ascontiguousarray(windows).view(np.uint64).ravel()
    return np.unique(((words * _MIX) ^ (words >> _SHIFT) * _MIX) >> _SHIFT).astype(np.uint32)


def similarity(a: Shingles, b: Shingles) -> float:
    """Return the Jaccard similarity of two sets of shingles, 0 to 1."""
    common = np.intersect1d(a, b, assume_unique=True).size
    return common / (a.size + b.size - common)
