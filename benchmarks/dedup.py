"""Measures near-duplicate search on a generated world with known truth; the last line is JSON.

``recall`` and ``precision`` at Jaccard 0.8 are counted on pairs whose true similarity was computed
from unhashed text; half of the edited documents lie between 0.7 and 0.9, where it is hard.
``docs_per_s`` is wall time on one process and ``cpu_s`` its CPU time; ``increment_s`` a day's
addition to the full index, ``increment_cpu_s`` beside ``first_day_cpu_s``, the same day added to an
empty index: a day's increment costs the day, not the lake.
"""

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from governance.near import NearDocument, NearIndex
from governance.near.shingles import SIZE, normalised

WORDS = [
    f"{a}{b}{c}{d}"
    for a in "bdfgklmnprst"
    for b in "aeiou"
    for c in "bdfgklmnprst"
    for d in "aeiou"
]


def pieces(text: str) -> set[bytes]:
    """Return the unhashed shingles of a text."""
    data = normalised(text).encode().ljust(SIZE, b"\0")
    return {data[at : at + SIZE] for at in range(len(data) - SIZE + 1)}


def true_similarity(a: str, b: str) -> float:
    """Return the Jaccard similarity without hashing."""
    one, other = pieces(a), pieces(b)
    return len(one & other) / len(one | other)


def sentence(dice: random.Random, words: int) -> str:
    """Return a text of made-up words."""
    return " ".join(dice.choices(WORDS, k=words))


def edited(dice: random.Random, text: str) -> str:
    """Return a text with a few words exchanged: similarity mostly between 0.5 and 1."""
    words = text.split()
    for _ in range(dice.randrange(1, 1 + len(words) // 8)):
        words[dice.randrange(len(words))] = dice.choice(WORDS)
    return " ".join(words)


def quality(dice: random.Random, originals: int) -> tuple[float, float, int]:
    """Return recall, precision and how many pairs decided them."""
    texts = [sentence(dice, dice.randrange(25, 60)) for _ in range(originals)]
    index = NearIndex(threshold=0.8)
    index.add([NearDocument(f"o{at}", text) for at, text in enumerate(texts)])
    near = found = both = 0
    for at, text in enumerate(texts):
        other = edited(dice, text)
        true = true_similarity(text, other) >= 0.8
        matched = any(m.kept_id == f"o{at}" for m in index.add([NearDocument(f"e{at}", other)]))
        near, found, both = near + true, found + matched, both + (true and matched)
    return both / max(near, 1), both / max(found, 1), near


def documents(dice: random.Random, count: int, prefix: str) -> Iterator[NearDocument]:
    """Yield short documents, one in ten near to an earlier one."""
    recent: list[str] = []
    for at in range(count):
        text = sentence(dice, dice.randrange(12, 40))
        if recent and at % 10 == 0:
            text = edited(dice, dice.choice(recent))
        recent = [*recent[-99:], text]
        yield NearDocument(f"{prefix}{at}", text)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer documents; within 50 seconds")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = min(options.documents, 30_000) if options.quick else options.documents
    dice = random.Random(options.seed)  # noqa: S311 (worlds are made from a seed)
    recall, precision, pairs = quality(dice, 500 if options.quick else 3000)
    print(f"quality on {pairs} near pairs: recall {recall:.4f}, precision {precision:.4f}")
    spent, cpu, matches = 0.0, 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        index = NearIndex(Path(folder) / "near")
        for start in range(0, count, 20_000):
            part = list(documents(dice, min(20_000, count - start), f"d{start}-"))
            begun, cpu_begun = time.perf_counter(), time.process_time()
            matches += len(index.add(part))
            spent += time.perf_counter() - begun
            cpu += time.process_time() - cpu_begun
            print(f"{start + len(part)} documents, {(start + len(part)) / spent:.0f} a second")
        day = list(documents(dice, max(count // 100, 100), "day"))
        cpu_begun = time.process_time()
        NearIndex(Path(folder) / "first").add(day)
        first_day = time.process_time() - cpu_begun
        index = NearIndex(Path(folder) / "near")
        begun, cpu_begun = time.perf_counter(), time.process_time()
        index.add(day)
        increment = time.perf_counter() - begun
        increment_cpu = time.process_time() - cpu_begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {
        "recall": round(recall, 4),
        "precision": round(precision, 4),
        "docs_per_s": round(count / spent),
        "cpu_s": round(cpu, 1),
        "peak_mib": round(peak),
        "documents": count,
        "near_found": matches,
        "increment_documents": len(day),
        "increment_s": round(increment, 2),
        "increment_cpu_s": round(increment_cpu, 2),
        "first_day_cpu_s": round(first_day, 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
