"""Trains the embedded names model: a small network of ``governance/detect/names/tagger.py``, from labelled text.

``python -m scripts.names_model.train --data FOLDER --translations FOLDER --out governance/names/model`` takes
about ten minutes of one core, with torch. ``--data`` holds the sets and ``--translations`` the packages that
ATTRIBUTION.md names; the texts written for this project lie in ``texts/``.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from torch import nn
from torch.nn import functional

from benchmarks import agent_texts_drawn, agent_texts_tuned
from benchmarks.agent_texts import TURN
from benchmarks.agent_texts import texts as benchmark_texts
from governance.detect.names.tagger import (
    FLAGS,
    LABELS,
    MEMBERSHIPS,
    REACHES,
    ROWS,
    TextTokens,
    features,
    tokens,
    vocabulary_word,
)
from governance.names.words import common, places, things
from scripts.names_model.corpus import Example, code, common_words, real
from scripts.names_model.marked import OTHER, Drawn, lines, marked, together
from scripts.names_model.plain_text import of_packages, of_translations
from scripts.names_model.templates import filled

_WIDTH = 64
_HEADER = "# Everyday words, counted by scripts/names_model/train.py.\n"
_RATE = 2e-3
_CHARACTERS = 9000
"""So many at one step."""
_TIMES = 4
"""How often each of our texts is drawn from in one epoch."""
_ANY = (1 << len(LABELS)) - 1
_NOBODY = 1 | 1 << LABELS.index("LOCATION") | 1 << LABELS.index("ORGANIZATION")
"""What a token may be that is nobody, where places and organisations have no labels."""
_FEWEST = 6
"""So many texts hold each word of the vocabulary."""
_KEYS = (
    "name", "label", "title", "subject", "owner", "value", "note", "summary", "display", "from", "to", "description",
)  # fmt: skip
"""Keys that hold people as well as things."""


class Row(NamedTuple):
    """One text to learn from."""

    example: Example
    nobody: int
    """The labels, as bits, that a token outside all spans may have."""


class Network(nn.Module):
    """The network that the tagger computes with numpy."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        tables = [nn.Embedding(rows, width) for rows in ROWS]
        for table in tables:
            nn.init.normal_(table.weight, 0, 0.1)
        self.tables = nn.ModuleList(tables)
        self.lists = nn.Linear(MEMBERSHIPS, width, bias=False)
        self.mix = nn.Linear(width * 5, width * 2)
        self.flags = nn.Linear(FLAGS, width, bias=False)
        self.whole = nn.Linear(width, width, bias=False)
        self.layer = nn.ModuleList([nn.Linear(3 * width, 2 * width) for _ in REACHES])
        self.norm = nn.ModuleList([nn.LayerNorm(width) for _ in range(len(REACHES) + 1)])
        self.out = nn.Linear(width, len(LABELS))
        self.drop = nn.Dropout(0.2)

    def forward(self, rows: Any, memberships: Any, found: TextTokens) -> Any:
        """Return the score of each label for each token."""
        words, text_of = torch.from_numpy(found.words), torch.from_numpy(found.text_of)
        known = [table(rows[:, place]) for place, table in enumerate(self.tables)]
        known.append(self.lists(memberships))
        seen = self._greatest(self.mix(self.drop(torch.cat(known, 1))), 0)[words]
        seen = seen + self.flags(torch.from_numpy(found.flags))
        counts = torch.bincount(text_of)
        whole = torch.zeros(len(counts), self.width).index_add_(0, text_of, seen)
        whole = whole / counts.clamp(min=1)[:, None]
        seen = seen + self.drop(self.whole(whole))[text_of]
        size = len(words)
        places = torch.arange(size)
        for at, reach in enumerate(REACHES):
            padded = torch.cat([seen, torch.zeros(1, self.width)])
            left, right = places - reach, places + reach
            left = torch.where((left >= 0) & (text_of[left.clamp(min=0)] == text_of), left, size)
            right = torch.where(
                (right < size) & (text_of[right.clamp(max=size - 1)] == text_of), right, size
            )
            beside = torch.cat([padded[left], seen, padded[right]], 1)
            seen = seen + self._greatest(self.layer[at](self.drop(beside)), at + 1)
        return self.out(seen)

    def _greatest(self, sums: Any, at: int) -> Any:
        return self.norm[at](sums.view(-1, 2, self.width).amax(1))


def label_bits(row: Row, found: TextTokens) -> Any:
    """Return the labels, as bits, that each token of a text may have."""
    bits = numpy.full(len(found.starts), row.nobody, dtype=numpy.int64)
    for start, end, label in row.example.spans:
        allowed = 1 << LABELS.index(label) if label in LABELS else _ANY
        at = int(numpy.searchsorted(found.ends, start, side="right"))
        while at < len(bits) and found.starts[at] < end:
            bits[at] = allowed
            at += 1
    return bits


class Gathered:
    """All that the network learns from, drawn anew for each epoch."""

    def __init__(self, data: Path, translations: Path, draw: random.Random) -> None:
        self._draw, self._drawn = draw, Drawn(draw)
        self._ours, self._lines = marked(), lines()
        self._sentences = [_without_handles(example) for example in real(data)]
        self._source = of_packages(draw, 3000) + [example.text for example in code(draw, 1500)]
        self._translations = of_translations(draw, translations, 2500)
        self._benchmark = list(_of_benchmark())
        self._things = sorted(things() | places() | common())

    def vocabulary(self) -> list[str]:
        """Return the words that are met often, behind the row of all others."""
        counts: Counter[str] = Counter()
        lines = [line for of_language in self._lines.values() for line in of_language]
        texts = [one.text for one in (*self._ours, *lines, *self._sentences)]
        texts += self._source + self._translations
        for text in texts:
            counts.update({vocabulary_word(word) for word in tokens([text]).distinct})
        most = counts.most_common(ROWS[0] - 1)
        return ["", *(word for word, count in most if count >= _FEWEST)]

    def epoch(self) -> list[Row]:
        """Return the texts of one epoch in any order."""
        draw, drawn = self._draw, self._drawn
        out = [
            Row(drawn.text(example), _NOBODY)
            for example in self._ours
            for _ in range(_TIMES if example.spans else _TIMES + 1)
        ]
        for of_language in self._lines.values():
            given = [line for line in of_language for _ in range(_TIMES)]
            for _ in range(len(of_language) // 2):
                some = draw.sample(of_language, draw.randrange(2, 7))
                given.append(together(some, draw.choice(("\n", "\n- ", " ", "\n\n"))))
            out += [Row(drawn.text(example, other_things=False), _NOBODY) for example in given]
        for text, spans in self._sentences:
            small = text.lower()
            keeps = draw.random() > 0.06 or len(small) != len(text)
            out.append(Row(Example(text if keeps else small, spans), 1))
        out += [Row(Example(text, tuple(spans)), 1) for text, spans in filled(draw, 2000)]
        for text in draw.sample(self._source, 3200):
            example = Example(text, ())
            swapped = drawn.with_other_things(example) if draw.random() < 0.4 else example
            out.append(Row(swapped, _NOBODY))
        out += [Row(Example(text, ()), _NOBODY) for text in draw.sample(self._translations, 1800)]
        out += [Row(example, _NOBODY) for example in draw.sample(self._benchmark, 1500)]
        out += [Row(self._value(), _NOBODY) for _ in range(1500)]
        draw.shuffle(out)
        return [row for row in out if row.example.text.strip()]

    def _value(self) -> Example:
        """Return one value by itself, as fields have it: somebody's name or a thing."""
        draw = self._draw
        key = draw.choice(_KEYS) if draw.random() < 0.6 else ""
        before = f'"{key}": "' if key else ""
        if draw.random() < 0.5:
            name = before + self._drawn.name()
            return Example(name, ((len(before), len(name), "PERSON"),))
        words = " ".join(draw.sample(self._things, draw.choice((1, 1, 2, 3))))
        return Example(before + (words.title() if draw.random() < 0.7 else words), ())


def _without_handles(example: Example) -> Example:
    """Leave accounts out of what is learnt: the sets do not label them."""
    accounts = [
        (at, at + len(word), OTHER) for at, word in _places_of(example.text) if word.startswith("@")
    ]
    return Example(example.text, tuple(sorted((*example.spans, *accounts))))


def _places_of(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    for word in text.split(" "):
        yield at, word
        at += len(word) + 1


def _of_benchmark() -> Iterator[Example]:
    """Yield the texts of the half of the benchmark that may be tuned to."""
    for half in (agent_texts_tuned, agent_texts_drawn):
        for one in benchmark_texts(half, 1):
            spans = []
            for planted in one.planted:
                label = planted.entity if planted.entity in LABELS else OTHER
                for part in planted.parts:
                    at = one.text.find(part)
                    while at >= 0:
                        spans.append((at, at + len(part), label))
                        at = one.text.find(part, at + len(part))
            yield Example(one.text.replace(TURN, "\n"), tuple(sorted(spans)))


def batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield rows that are learnt from together."""
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.example.text)
        if size >= _CHARACTERS:
            yield held
            held, size = [], 0
    if held:
        yield held


def loss_of(
    network: Network, batch: list[Row], vocabulary: dict[str, int], draw: numpy.random.Generator
) -> Any:
    """Return the loss of some texts; the spelling of a word and its lists are forgotten now and then."""
    found = tokens([row.example.text for row in batch])
    bits = numpy.concatenate([label_bits(row, tokens([row.example.text])) for row in batch])
    rows, memberships = features(found.distinct, vocabulary)
    is_named = numpy.zeros(len(found.distinct), dtype=bool)
    named = 1 << LABELS.index("PERSON") | 1 << LABELS.index("USERNAME")
    is_named[found.words[(bits & named) == bits]] = True
    rows[draw.random(len(rows)) < numpy.where(is_named, 0.55, 0.14), 0] = 0
    memberships[draw.random(len(rows)) < numpy.where(is_named, 0.25, 0.04)] = 0
    scores = network(torch.from_numpy(rows), torch.from_numpy(memberships), found)
    allowed = torch.from_numpy((bits[:, None] >> numpy.arange(len(LABELS)) & 1).astype(bool))
    likely = functional.log_softmax(scores, 1).masked_fill(~allowed, -1e9)
    return -torch.logsumexp(likely, 1).mean()


def train(data: Path, translations: Path, out: Path, *, epochs: int, seed: int) -> None:
    """Train and write the weights and the vocabulary to ``out``, reporting the loss of each epoch."""
    torch.set_num_threads(1)  # the order of sums, and so the weights, depend on it
    torch.manual_seed(seed)
    words = common_words(data)
    (out.parent / "common_words.txt").write_text(
        _HEADER + "\n".join(words) + "\n", encoding="utf-8"
    )
    gathered = Gathered(data, translations, random.Random(seed))  # noqa: S311 - reproducible
    listed = gathered.vocabulary()
    vocabulary = {word: row for row, word in enumerate(listed)}
    network, forgets = Network(_WIDTH), numpy.random.default_rng(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=0.003)
    average = {name: value.detach().clone() for name, value in network.state_dict().items()}
    step = total = 0
    for epoch in range(epochs):
        given = list(batches(gathered.epoch()))
        total = total or epochs * len(given)
        losses = 0.0
        for batch in given:
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = max(5e-5, _RATE * min(1, step / 100) * (1 - 0.93 * step / total))
            loss = loss_of(network, batch, vocabulary, forgets)
            optimizer.zero_grad()
            (10 * loss).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            optimizer.step()
            losses += float(loss.detach())
            kept = min(0.999, step / (step + 50))
            with torch.no_grad():
                for name, value in network.state_dict().items():
                    average[name].mul_(kept).add_(value, alpha=1 - kept)
        sys.stderr.write(f"epoch {epoch + 1}/{epochs} loss {losses / len(given):.4f}\n")
        save(average, listed, out)


def save(weights: dict[str, Any], vocabulary: list[str], out: Path) -> None:
    """Write the weights in half precision, and the vocabulary."""
    held = {
        name.removesuffix(".weight") if name.startswith("tables") else name: value.numpy()
        for name, value in weights.items()
    }
    for name in ("lists", "flags", "whole"):
        held[name] = held.pop(f"{name}.weight").T
    numpy.savez_compressed(
        out / "network.npz",
        vocabulary=numpy.array(vocabulary),
        **{name: value.astype(numpy.float16) for name, value in held.items()},
    )


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled files")
    parser.add_argument(
        "--translations", type=Path, required=True, help="folder of .po and .json files"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    train(options.data, options.translations, options.out, epochs=options.epochs, seed=options.seed)


if __name__ == "__main__":
    main()
