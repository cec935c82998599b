"""Text for benchmarks: everyday words as often as they occur."""

import random
from functools import cache
from itertools import accumulate
from pathlib import Path

_WORDS = Path(__file__).parents[1] / "governance" / "names" / "common_words.txt"


def everyday_text(draw: random.Random, words: int) -> str:
    """Return words drawn after Zipf's law."""
    vocabulary, weights = _vocabulary()
    return " ".join(draw.choices(vocabulary, cum_weights=weights, k=words))


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Return everyday words and their cumulated Zipf weights."""
    words = [w for w in _WORDS.read_text(encoding="utf-8").split("\n")[1:] if w]
    random.Random(0).shuffle(words)  # noqa: S311 (no secret)
    return words, list(accumulate(1 / (rank + 2.7) for rank in range(len(words))))
