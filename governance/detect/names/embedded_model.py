"""Asking the embedded names model: its tokens and its network over many texts at once."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from governance.detect.names.network import NamesNetwork
from governance.detect.names.readers import Labelled, Reader
from governance.detect.names.tokens import NamesTokenizer

_CHARACTERS = 30_000
"""About so many are split into tokens together, and so share their words' vectors."""
_TOKENS = 600
"""So many tokens are looked at together: their matrices stay within the processor's cache."""


def reader_of(nlp: Any) -> Reader:
    """Return what asks the embedded pipeline; its answers are those of spaCy."""
    tokenizer, network = NamesTokenizer(nlp), NamesNetwork(nlp)

    def read(texts: Sequence[str]) -> Iterator[list[Labelled]]:
        for first, last in _groups([len(text) for text in texts], _CHARACTERS):
            yield from _read(texts[first:last], tokenizer, network)

    return read


def _groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield runs of neighbours that together are not much larger than ``most``."""
    first = size = 0
    for place, more in enumerate(sizes):
        if size and size + more > most:
            yield first, place
            first, size = place, 0
        size += more
    if size or first < len(sizes):
        yield first, len(sizes)


def _read(
    texts: Sequence[str], tokenizer: NamesTokenizer, network: NamesNetwork
) -> Iterator[list[Labelled]]:
    tokens = tokenizer(texts)
    known = network.embedded(tokens.attributes)
    ends = numpy.cumsum(tokens.counts)
    for first, last in _groups(tokens.counts.tolist(), _TOKENS):
        counts = tokens.counts[first:last]
        at = int(ends[first] - counts[0])
        words = tokens.words[at : ends[last - 1]]
        of = numpy.repeat(numpy.arange(len(counts)), counts).tolist()
        starts = tokens.starts[at : ends[last - 1]].tolist()
        stops = tokens.ends[at : ends[last - 1]].tolist()
        is_last = numpy.zeros(len(words), dtype=bool)
        is_last[(ends[first:last] - at - 1)[counts > 0]] = True
        seen = network.seen(known, words, counts)
        found: list[list[Labelled]] = [[] for _ in range(last - first)]
        for label, begin, end in network.entities(seen, is_last, tokens.blank[words]):
            found[of[begin]].append((label, starts[begin], stops[end - 1]))
        yield from found
