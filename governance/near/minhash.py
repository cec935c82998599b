"""MinHash signatures and their bands: similar sets get an equal band with known odds.

With 14 bands of 5 rows, a pair of Jaccard similarity 0.8 shares a band with odds of 0.996. A pair of
0.5 does with 0.36, one of 0.2 with 0.004. Candidates are verified exactly afterwards.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from governance.near.shingles import Shingles

BANDS = 14
ROWS = 5
ALGORITHM = "minhash-14x5-1"
_ANSWER_ROWS = (1, 3)
"""Rows of each band that an answer fills, where documents have one."""

type Signatures = NDArray[np.uint32]
"""(documents, BANDS * ROWS)"""
type BandKeys = NDArray[np.uint64]
"""(documents, BANDS)"""

_CHUNK_SHINGLES = 1_000_000
_SHIFT = np.uint64(32)
_random = np.random.default_rng(20260115)
_FACTORS = _random.integers(1, 2**63, BANDS * ROWS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_OFFSETS = _random.integers(0, 2**63, BANDS * ROWS, dtype=np.uint64)
_BAND_FACTORS = _random.integers(1, 2**63, ROWS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def signatures(sets: Sequence[Shingles], answers: Sequence[Shingles] = ()) -> Signatures:
    """Return one signature for each set, in their order.

    With ``answers``, some rows of each band come from the answer's set instead. A band is then equal where both
    sets are similar, with the same odds if both are equally similar.
    """
    out = np.empty((len(sets), BANDS * ROWS), dtype=np.uint32)
    numbers = range(BANDS * ROWS)
    if not answers:
        _fill_all(out, sets, numbers)
        return out
    _fill_all(out, sets, [number for number in numbers if number % ROWS not in _ANSWER_ROWS])
    _fill_all(out, answers, [number for number in numbers if number % ROWS in _ANSWER_ROWS])
    return out


def _fill_all(out: Signatures, sets: Sequence[Shingles], numbers: Sequence[int]) -> None:
    start = 0
    while start < len(sets):
        end, size = start, 0
        while end < len(sets) and (size == 0 or size + sets[end].size <= _CHUNK_SHINGLES):
            size += sets[end].size
            end += 1
        _fill(out[start:end], sets[start:end], numbers)
        start = end


def _fill(out: Signatures, sets: Sequence[Shingles], numbers: Sequence[int]) -> None:
    hashes = np.concatenate(sets).astype(np.uint64)
    edges = np.cumsum([0, *(one.size for one in sets[:-1])])
    scratch = np.empty_like(hashes)
    for number in numbers:
        np.multiply(hashes, _FACTORS[number], out=scratch)
        np.add(scratch, _OFFSETS[number], out=scratch)
        np.right_shift(scratch, _SHIFT, out=scratch)
        out[:, number] = np.minimum.reduceat(scratch, edges)


def band_keys(rows: Signatures) -> BandKeys:
    """Return one key for each band; equal rows of a band give equal keys."""
    shaped = rows.reshape(len(rows), BANDS, ROWS).astype(np.uint64)
    keys = np.zeros((len(rows), BANDS), dtype=np.uint64)
    for row in range(ROWS):
        keys = (keys ^ shaped[:, :, row]) * _BAND_FACTORS[row]
        keys ^= keys >> _SHIFT
    return keys


def estimates(a: Signatures, b: Signatures) -> NDArray[np.float64]:
    """Return the estimated similarity of each row of ``a`` with the same row of ``b``."""
    return np.asarray((a == b).mean(axis=1), dtype=np.float64)
