"""The embedded names model's network in a few multiplications over all its texts at once.

The weights are those of the spaCy pipeline, and so are the answers (``test_embedded`` holds them against each
other). It stays for one bar: the worst hostile text costs 19 ms per kB with ``nlp.pipe`` and 11 with this, where
10 are asked for (225 against 1,037 thousand characters a second). Everyday traffic costs the same with both.
spaCy embeds each token anew, layer by layer in Python objects, and moves its parser token by token.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy

from governance.detect.names.readers import Labelled

type Floats = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
type Integers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

_LAYERS = 3
"""A word is seen with so many on each side; what follows counts on it."""


class Words(NamedTuple):
    """What is worked out once for each word, the first of them a gap."""

    vectors: Floats
    left: Floats
    """What the first layer makes of it on the left of a word."""
    in_place: Floats
    """In its own place, with the layer's bias."""
    right: Floats


class _Layer(NamedTuple):
    """One maxout layer and the normalisation behind it."""

    weights: Floats
    """Input × pieces × output."""
    bias: Floats
    pieces: int
    mean: Floats
    """Output × 1; what outputs are multiplied with to have their mean."""
    gain: Floats
    shift: Floats

    @classmethod
    def of(cls, maxout: Any, norm: Any) -> "_Layer":
        weights = maxout.get_param("W")
        width, pieces, size = weights.shape
        by_piece = weights.transpose(2, 1, 0).reshape(size, pieces * width)
        bias = maxout.get_param("b").transpose(1, 0).reshape(pieces * width)
        return cls(
            numpy.ascontiguousarray(by_piece),
            bias.copy(),
            pieces,
            numpy.full((width, 1), 1 / width, "f"),
            norm.get_param("G").copy(),
            norm.get_param("b").copy(),
        )

    def out(self, seen: Floats) -> Floats:
        """Return what the layer makes of its inputs."""
        sums = seen @ self.weights
        sums += self.bias
        return self.finish(sums)

    def finish(self, sums: Floats) -> Floats:
        """Return the greatest piece of each output, normalised."""
        width = sums.shape[1] // self.pieces
        best = numpy.maximum(sums[:, :width], sums[:, width : 2 * width])
        for piece in range(2, self.pieces):
            numpy.maximum(best, sums[:, piece * width : (piece + 1) * width], out=best)
        best -= best @ self.mean  # faster than numpy's own
        spread = numpy.einsum("ij,ij->i", best, best)
        spread /= width
        spread += 1e-8
        numpy.sqrt(spread, out=spread)
        numpy.reciprocal(spread, out=spread)
        best *= spread[:, None]
        best *= self.gain
        best += self.shift
        return best


class NamesNetwork:
    """Tells the entities in rows of tokens that are known by the hashes of four attributes."""

    def __init__(self, nlp: Any) -> None:
        """Take the weights of a pipeline of this shape.

        Raises:
            ValueError: the pipeline is built in another way.
        """
        embed, encode = _parts(nlp)
        if len(encode) != _LAYERS:
            raise ValueError(f"the network has {len(encode)} layers; {_LAYERS} are counted on")
        tables, mixing = embed
        self._hash = nlp.get_pipe("tok2vec").model.ops.hash
        self._mixing = mixing
        width = tables[0].get_param("E").shape[1]
        self._tables = [
            (
                numpy.ascontiguousarray(
                    table.get_param("E") @ mixing.weights[place * width : (place + 1) * width]
                ),
                table.attrs["seed"],
            )
            for place, table in enumerate(tables)
        ]
        self._width = width
        self._layers = encode
        self._nothing = encode[0].finish(encode[0].bias[None])
        self._read_parser(nlp.get_pipe("ner"))

    def _read_parser(self, ner: Any) -> None:
        linear = ner.model.layers[0].layers[-1]
        lower, upper = ner.model.get_ref("lower"), ner.model.get_ref("upper")
        weights, pad = lower.get_param("W"), lower.get_param("pad")[0]
        slots, width, pieces, size = weights.shape
        by_piece = weights.transpose(0, 3, 2, 1).reshape(slots, size, pieces * width)
        before, more = linear.get_param("W"), linear.get_param("b")
        self._now, self._opened, self._behind = (
            numpy.ascontiguousarray(before.T @ slot) for slot in by_piece
        )
        pads = pad.transpose(0, 2, 1).reshape(slots, pieces * width)
        bias = lower.get_param("b").transpose(1, 0).reshape(pieces * width)
        constant = [more @ slot for slot in by_piece]
        self._outside = constant[0] + pads[1] + pads[2] + bias
        self._within = constant[0] + constant[1] + constant[2] + bias
        names = map(ner.moves.get_class_name, range(ner.moves.n_moves))
        moves = [name.partition("-")[::2] for name in names]
        scores, bias = upper.get_param("W"), upper.get_param("b")
        self._labels = [label for move, label in moves if move == "B"]
        opening = [moves.index((move, label)) for move in "BU" for label in self._labels]
        opening.append(moves.index(("O", "")))
        self._opening = numpy.ascontiguousarray(scores[opening].T)
        self._opening_bias = bias[opening]
        going_on = [moves.index(("I", label)) for label in self._labels]
        ending = [moves.index(("L", label)) for label in self._labels]
        self._going_on = scores[going_on] - scores[ending]
        self._going_on_bias = bias[going_on] - bias[ending]

    def embedded(self, attributes: Any) -> Words:
        """Return the words of rows of hashes of attributes, behind a gap."""
        sums: Floats = numpy.repeat(self._mixing.bias[None], len(attributes), axis=0)
        for place, (table, seed) in enumerate(self._tables):
            hashes = numpy.ascontiguousarray(attributes[:, place])
            rows = (self._hash(hashes, seed) % table.shape[0]).T
            found = table.take(rows[0], axis=0)
            for more in rows[1:]:
                found += table.take(more, axis=0)  # its reads wait for memory side by side
            sums += found
        gap: Floats = numpy.zeros((1, self._width), "f")
        vectors = numpy.concatenate((gap, self._mixing.finish(sums)))
        first, width = self._layers[0], self._width
        left, in_place, right = (
            vectors @ first.weights[place * width : (place + 1) * width] for place in range(3)
        )
        in_place += first.bias
        return Words(vectors, left, in_place, right)

    def seen(self, known: Words, words: Integers, counts: Integers) -> Floats:
        """Return the vectors of the words of some texts, each seen with those around it.

        Args:
            known: all words.
            words: those of the texts, one text after the other.
            counts: how many each of the texts has.
        """
        edges = numpy.cumsum(counts + 2)
        left, right = edges - counts - 2, edges - 1
        rows = numpy.zeros(edges[-1], dtype=int)
        inner = numpy.ones(len(rows), dtype=bool)
        inner[left] = inner[right] = False
        places = numpy.flatnonzero(inner)
        rows[places] = words + 1
        width = self._width
        sums = known.in_place.take(rows, axis=0)
        sums[1:] += known.left.take(rows[:-1], axis=0)
        sums[:-1] += known.right.take(rows[1:], axis=0)
        seen = known.vectors.take(rows, axis=0)
        seen += self._layers[0].finish(sums)
        around = numpy.empty((len(rows), 3 * width), "f")
        around[1:, :width] = seen[:-1]
        around[:, width : 2 * width] = seen
        around[:-1, 2 * width :] = seen[1:]
        around[left, :width] = self._nothing
        around[right, 2 * width :] = self._nothing
        seen += self._layers[1].out(around)
        out: Floats = seen.take(places, axis=0)
        around = numpy.concatenate(
            (seen.take(places - 1, axis=0), out, seen.take(places + 1, axis=0)), axis=1
        )
        out += self._layers[2].out(around)
        return out

    def entities(self, seen: Floats, last: Any, blank: Any) -> Iterator[Labelled]:
        """Yield the entities in tokens of which some are the last of their text, or blank.

        Their starts and ends are counted in tokens over all texts.
        """
        now = seen @ self._now
        scores = _greatest(now + self._outside) @ self._opening
        scores += self._opening_bias
        kinds = len(self._labels)
        scores[last, :kinds] = -numpy.inf
        scores[blank, : 2 * kinds] = -numpy.inf
        moves = scores.argmax(axis=1)
        named = numpy.flatnonzero(moves < 2 * kinds)
        moves = moves[named]
        goes_on = moves < kinds
        ends = named.copy()
        ends[goes_on] = self._ends(seen, now, named[goes_on], moves[goes_on], last)
        free = 0
        for at, end, label in zip(
            named.tolist(), (ends + 1).tolist(), (moves % kinds).tolist(), strict=True
        ):
            if at >= free:
                free = end
                yield self._labels[label], at, end

    def _ends(
        self, seen: Floats, now: Floats, begun: Integers, labels: Integers, last: Any
    ) -> Integers:
        """Return the last tokens of entities that begin at these tokens."""
        ends = begun.copy()
        open_ones = numpy.arange(len(begun))
        opened = seen[begun] @ self._opened + self._within
        while len(open_ones):
            ends[open_ones] += 1
            at = ends[open_ones]
            sums = opened[open_ones]
            sums += now[at]
            sums += seen[at - 1] @ self._behind
            label = labels[open_ones]
            more = numpy.einsum("ij,ij->i", _greatest(sums), self._going_on[label])
            more += self._going_on_bias[label]
            open_ones = open_ones[(more >= 0) & ~last[at]]
        return ends


def _greatest(sums: Floats) -> Floats:
    half = sums.shape[1] // 2
    return numpy.maximum(sums[:, :half], sums[:, half:])


def _parts(nlp: Any) -> tuple[tuple[list[Any], _Layer], list[_Layer]]:
    """Return the tables and the layers of a pipeline's network, by the names that thinc gives them."""
    tok2vec = nlp.get_pipe("tok2vec").model
    embed, encode = tok2vec.get_ref("embed"), tok2vec.get_ref("encode")
    tables = [node for node in embed.walk() if node.name == "hashembed"]
    return (tables, _layers(embed)[0]), _layers(encode)


def _layers(model: Any) -> list[_Layer]:
    nodes = list(model.walk())
    maxouts = [node for node in nodes if node.name == "maxout"]
    norms = [node for node in nodes if node.name == "layernorm"]
    return [_Layer.of(*pair) for pair in zip(maxouts, norms, strict=True)]
