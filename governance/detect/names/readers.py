"""Models of names beside spaCy's: transformers and GLiNER, by name, where they are installed."""

import os
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

from trajectory.errors import ConfigurationError

type Labelled = tuple[str, int, int]
"""Label, start and end of one span."""
type Reader = Callable[[Sequence[str]], Iterator[list[Labelled]]]
"""Returns the spans of each text, in order."""

_SURE = 0.5
_GLINER_LABELS = {
    "person": "PERSON", "location": "LOCATION", "organization": "ORGANIZATION", "nationality": "NRP",
}  # fmt: skip


def _failed(kind: str, model: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"names.model '{kind}:{model}' cannot be loaded ({type(error).__name__}). Install {kind} and "
        "the model's files (nothing is downloaded here), or set names.model to 'embedded' or null."
    )


def _stay_offline() -> None:
    """Keep these libraries from asking their hub for anything, whatever ``local_files_only`` misses."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def of_transformers(model: str) -> tuple[Reader, tuple[str, ...]]:
    """Return the reader of a token classifier, and its labels.

    Raises:
        ConfigurationError: the library or the model is not there.
    """
    _stay_offline()
    try:
        library = import_module("transformers")
        files = {"local_files_only": True}
        network = library.AutoModelForTokenClassification.from_pretrained(model, **files)
        words = library.AutoTokenizer.from_pretrained(model, **files)
        ask = library.pipeline(
            "token-classification", model=network, tokenizer=words, aggregation_strategy="simple"
        )
    except (ImportError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise _failed("transformers", model, error) from error
    labels = {str(label).split("-", 1)[-1] for label in network.config.id2label.values()} - {"O"}

    def read(texts: Sequence[str]) -> Iterator[list[Labelled]]:
        for text in texts:
            yield [
                (span["entity_group"], span["start"], span["end"])
                for span in ask(text)
                if span["score"] >= _SURE
            ]

    return read, tuple(sorted(labels))


def of_gliner(model: str) -> tuple[Reader, tuple[str, ...]]:
    """Return the reader of a GLiNER model, and the labels it is asked for.

    Raises:
        ConfigurationError: the library or the model is not there.
    """
    _stay_offline()
    try:
        loaded = import_module("gliner").GLiNER.from_pretrained(model, local_files_only=True)
    except (ImportError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise _failed("gliner", model, error) from error

    def read(texts: Sequence[str]) -> Iterator[list[Labelled]]:
        for text in texts:
            found = loaded.predict_entities(text, list(_GLINER_LABELS), threshold=_SURE)
            yield [(_GLINER_LABELS[s["label"]], s["start"], s["end"]) for s in found]

    return read, tuple(_GLINER_LABELS.values())


LIBRARIES: dict[str, Callable[[str], tuple[Reader, tuple[str, ...]]]] = {
    "transformers": of_transformers,
    "gliner": of_gliner,
}
"""What stands before the colon of ``names.model``."""
