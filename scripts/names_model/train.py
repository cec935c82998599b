"""Trains the embedded names model: a small spaCy pipeline, from open labelled text.

``python -m scripts.names_model.train --data FOLDER --out governance/names/model`` takes about six
minutes of one core. ``--data`` holds the sets that ATTRIBUTION.md names.
"""

import argparse
import random
import sys
from pathlib import Path
from typing import Any

from governance.detect.offline_imports import load, one_thread_of_blas
from scripts.names_model.corpus import Example, common_words, gathered

_WIDTH = 64
_HEADER = "# Everyday words, counted by scripts/names_model/train.py.\n"
_CONFIG = {
    "nlp": {"lang": "en", "pipeline": ["tok2vec", "ner"]},
    "components": {
        "tok2vec": {
            "factory": "tok2vec",
            "model": {
                "@architectures": "spacy.Tok2Vec.v2",
                "embed": {
                    "@architectures": "spacy.MultiHashEmbed.v2",
                    "width": _WIDTH,
                    "attrs": ["NORM", "PREFIX", "SUFFIX", "SHAPE"],
                    "rows": [6000, 1000, 2000, 1000],
                    "include_static_vectors": False,
                },
                "encode": {
                    "@architectures": "spacy.MaxoutWindowEncoder.v2",
                    "width": _WIDTH,
                    "depth": 3,
                    "window_size": 1,
                    "maxout_pieces": 2,
                },
            },
        },
        "ner": {
            "factory": "ner",
            "model": {
                "@architectures": "spacy.TransitionBasedParser.v2",
                "state_type": "ner",
                "extra_state_tokens": False,
                "hidden_width": 64,
                "maxout_pieces": 2,
                "use_upper": True,
                "tok2vec": {"@architectures": "spacy.Tok2VecListener.v1", "width": _WIDTH},
            },
        },
    },
}


def examples(nlp: Any, gathered_examples: list[Example]) -> list[Any]:
    """Turn texts and spans into what spaCy trains on; spans that cut a word are left out."""
    from spacy.training import Example as SpacyExample
    from spacy.util import filter_spans

    out = []
    for text, spans in gathered_examples:
        doc = nlp.make_doc(text)
        found = [
            doc.char_span(start, end, label, alignment_mode="expand") for start, end, label in spans
        ]
        reference = doc.copy()
        reference.set_ents(filter_spans([span for span in found if span is not None]))
        out.append(SpacyExample(doc, reference))
    return out


def train(data: Path, out: Path, *, epochs: int = 12, seed: int = 1) -> None:
    """Train and write the pipeline to ``out``, reporting the loss of each epoch."""
    spacy = load("spacy")
    from thinc.api import NumpyOps, set_current_ops

    one_thread_of_blas()  # the order of sums, and so the weights, depend on it
    set_current_ops(NumpyOps(use_blis=False))
    spacy.util.fix_random_seed(seed)
    nlp = spacy.util.load_model_from_config(_CONFIG, auto_fill=True)
    words = common_words(data)
    out.parent.mkdir(parents=True, exist_ok=True)
    (out.parent / "common_words.txt").write_text(
        _HEADER + "\n".join(words) + "\n", encoding="utf-8"
    )
    rows = examples(nlp, gathered(data, seed=seed))
    nlp.initialize(lambda: rows[:2000])
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 0.001
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    average_at = None
    for epoch in range(epochs):
        draw.shuffle(rows)
        losses: dict[str, float] = {}
        optimizer.learn_rate = 0.001 * (1 - 0.8 * epoch / max(1, epochs - 1))
        for batch in spacy.util.minibatch(rows, size=48):
            nlp.update(batch, sgd=optimizer, drop=0.2, losses=losses)
        sys.stderr.write(f"epoch {epoch + 1}/{epochs} loss {losses.get('ner', 0):.0f}\n")
        with nlp.use_params(optimizer.averages):
            nlp.to_disk(out, exclude=["lookups", "vocab"])
        average_at = epoch
    if average_at is None:
        raise SystemExit("nothing was trained: --epochs must be at least 1")


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    train(options.data, options.out, epochs=options.epochs, seed=options.seed)


if __name__ == "__main__":
    main()
