"""Names by a model that is installed and that policy names: a spaCy pipeline, transformers or GLiNER."""

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple

from governance.detect.code_terms import (
    ProgramSigns,
)
from governance.detect.finding import Finding, Unit
from governance.detect.named_tuples import new
from governance.detect.names.key_names import names_a_thing
from governance.detect.names.person_checks import (
    CAPITALS,
    NOT_A_NAME,
    beside_a_place,
    is_a_foreign_word,
    is_a_label,
    is_an_abbreviation,
    is_an_identifier,
    like_a_word,
    may_be_a_person,
    names_no_person,
    without_plain_ends,
)
from governance.detect.names.readers import LIBRARIES, Labelled, Reader
from governance.detect.normalized_text import TextView
from governance.detect.offline_imports import load
from governance.names.words import (
    common,
    family_names,
    first_names,
    plain_words,
)
from trajectory.errors import ConfigurationError

_ENTITIES = {
    "PERSON": "PERSON",
    "PER": "PERSON",
    "GPE": "LOCATION",
    "LOC": "LOCATION",
    "LOCATION": "LOCATION",
    "FAC": "LOCATION",
    "ORG": "ORGANIZATION",
    "ORGANIZATION": "ORGANIZATION",
    "NORP": "NRP",
}
_SCORE = 0.6
_READING = "10"
"""Changes with what is asked of a model, and what is made of its answers."""
_CAPITALISED = re.compile(
    r"[A-Z\u00c0-\u00de\u0100-\u024f\u0370-\u042f](?<![^\W_].)(?<!\w_.)(?<![.@/\\#$-].)(?:[^\W\d_]|['-]){1,30}(?![^\W_]|[(\[=]|_\w)"
)
"""Looks for a capital before it looks at what stands in front: three times as fast."""
_ANY_NUMBER = bytes.maketrans(b"0123456789", b"1111111111")
"""Which number it is says nothing of who is named: lines that differ in numbers are asked about once."""
_SEGMENT = 320
_SHORT = 60
"""Characters of a text whose words are found at once faster than one by one."""
_BATCH = 32
"""Whole segments at once (more of short ones): their matrices stay within the processor's cache."""
_CACHE_ENTRIES = 50_000
_BEGUN = blake2b(digest_size=16)
_START = itemgetter(1)


_MARKS = re.compile(r"(?<![\w`*~])[_*~`]{1,3}(?=\w)|(?<=\w)[_*~`]{1,3}(?![\w`*~])")


def _plain_type(text: str) -> str:
    """Return a text of the same length as the model knows it: no words in capitals, no marks of Markdown."""
    if "*" in text or "_" in text or "`" in text or "~" in text:
        text = _MARKS.sub(lambda found: " " * len(found[0]), text)
    return CAPITALS.sub(_in_title_case, text)


def _in_title_case(found: re.Match[str]) -> str:
    words = found[0].replace(",", " ").split()
    if any(word.lower() in plain_words() for word in words):
        return found[0]
    title = found[0].title()
    return title if len(title) == len(found[0]) else found[0]


def covered(findings: Sequence[Finding]) -> tuple[list[int], list[int]]:
    """Return the starts and the ends of what findings cover."""
    starts: list[int] = []
    ends: list[int] = []
    for _, start, end, _, _ in sorted(findings, key=_START):
        if not ends or start > ends[-1]:
            starts.append(start)
            ends.append(end)
        elif end > ends[-1]:
            ends[-1] = end
    return starts, ends


def segments(text: str, most: int = _SEGMENT) -> Iterable[tuple[int, str]]:
    """Return pieces of a text at line ends or spaces, with their offsets, none much longer than asked."""
    return ((0, text),) if 0 < len(text) <= most else _segments(text, most)


def _segments(text: str, most: int) -> Iterator[tuple[int, str]]:
    at, size = 0, len(text)
    while at < size:
        end = min(size, at + most)
        if end < size:
            cut = text.rfind("\n", at + most // 3, end)
            if cut < 0:
                cut = text.rfind(" ", at + most // 2, end)
            end = cut + 1 if cut > 0 else end
        yield at, text[at:end]
        at = end


class NamesModel:
    """Asks a model about those pieces of text in which a name could be."""

    name = "names_model"

    def __init__(
        self, read: Reader, names: Iterable[str], entities: frozenset[str], *, version: str
    ) -> None:
        """Ask ``read``, which knows the labels ``names``, for entities."""
        self._read = read
        self.version = version
        entity_of = {label: _ENTITIES.get(label.upper(), label.upper()) for label in names}
        self.entities = frozenset(entity_of.values())
        self._wanted = {label: entity for label, entity in entity_of.items() if entity in entities}
        """Entities that are asked for, by the model's labels."""
        self._common = common()
        self._cache: OrderedDict[bytes, tuple[tuple[str, int, int], ...]] = OrderedDict()

    @classmethod
    def load(cls, model: str, entities: frozenset[str]) -> "NamesModel":
        """Load a spaCy pipeline by its name or folder, ``transformers:…`` or ``gliner:…``.

        Raises:
            ConfigurationError: it is not there, does not load, or knows no names.
        """
        library, _, name = model.partition(":")
        if name and library in LIBRARIES:
            return cls(*LIBRARIES[library](name), entities, version=model)
        found = _of_spacy(model)
        return cls(found.read, found.labels, entities, version=found.version)

    def find(
        self, units: Sequence[Unit], known: Sequence[Sequence[Finding]] = ()
    ) -> list[list[Finding]]:
        """Return names of the wanted types, asking only where a capitalised word is unexplained."""
        out: list[list[Finding]] = [[] for _ in units]
        if not self._wanted:
            return out
        asked: list[tuple[int, int, bytes]] = []
        fresh: dict[bytes, str] = {}
        for place, (view, _, is_digits) in enumerate(units):
            if is_digits or (len(view.text) > _SEGMENT and _CAPITALISED.search(view.text) is None):
                continue
            explained = covered(known[place]) if known and known[place] else None
            for start, text in segments(view.text):
                if self._may_name(view, start, text, explained):
                    data = text.encode("utf-8", "surrogatepass").translate(_ANY_NUMBER)
                    hashed = _BEGUN.copy()
                    hashed.update(data)
                    name = hashed.digest()
                    asked.append((place, start, name))
                    if name not in self._cache:
                        fresh[name] = _plain_type(data.decode("utf-8", "surrogatepass"))
        self._ask(fresh)
        for place, at, name in asked:
            spans = self._cache[name]
            if spans:
                span_of, found = units[place].view.span, out[place]
                thing = names_a_thing(units[place].keys) and len(units[place].view.text) < _SHORT
                for entity, start, end in spans:
                    if thing and entity == "PERSON":
                        continue
                    span = span_of(at + start, at + end)
                    found.append(new(Finding, (entity, *span, _SCORE, self.name)))
        while len(self._cache) > _CACHE_ENTRIES:
            self._cache.popitem(last=False)
        return out

    def _may_name(
        self, view: TextView, at: int, text: str, explained: tuple[list[int], list[int]] | None
    ) -> bool:
        """Whether there is a capitalised word, no common one, that nobody has found yet.

        Args:
            view: the view that the text is a piece of.
            at: where the piece begins.
            text: the piece.
            explained: starts and ends of what was found, in order and apart.
        """
        if explained is None and len(text) < _SHORT:
            return not self._common.issuperset(map(str.lower, _CAPITALISED.findall(text)))
        starts, ends = explained or ((), ())
        for match in _CAPITALISED.finditer(text):
            start, end = match.span()
            if view.starts is not None or at:
                start, end = view.span(at + start, at + end)
            place = bisect_left(ends, end)
            if place < len(ends) and starts[place] <= start:
                continue
            if match[0].lower() not in self._common:
                return True
        return False

    def _ask(self, texts: dict[bytes, str]) -> None:
        for (name, text), labelled in zip(
            texts.items(), self._read([*texts.values()]), strict=True
        ):
            if not labelled:
                self._cache[name] = ()
                continue
            signs = ProgramSigns(text)
            spans = [
                self._kept(text, self._wanted[label], start, end, signs)
                for label, start, end in labelled
                if label in self._wanted
            ]
            self._cache[name] = tuple([span for span in spans if span is not None])

    def _kept(
        self, text: str, entity: str, start: int, end: int, signs: ProgramSigns
    ) -> tuple[str, int, int] | None:
        """Return the span without what cannot belong to a name; None when no name is left."""
        value = text[start:end]
        line = value.split("\n")[0] if "\n" in value and "\n" in value.strip() else value
        stripped = line.strip(" \t\n\r.,;:!?'\"()-")
        is_word = stripped.isalpha()
        if len(stripped) < 2 or (not is_word and NOT_A_NAME.search(stripped)):
            return None
        words = [stripped] if is_word else stripped.split()
        if self._common.issuperset([word.strip(".'").lower() for word in words]):
            return None
        if len(stripped) < len(value):
            start = text.find(stripped, start)
        stop = start + len(stripped)
        if entity == "PERSON":
            words, start, stop = without_plain_ends(words, text, start, stop)
            while len(words) > 1 and words[-1].islower() and words[-1] in plain_words():
                stop = start + len(text[start:stop].removesuffix(words.pop()).rstrip())
            while len(words) > 1 and len(words[0]) == 1:
                start = text.find(words[1], start + 1)
                del words[0]
            if not words or not may_be_a_person(words, text, start, stop):
                return None
            if names_no_person(text, start, stop) or is_a_foreign_word(words, text):
                return None
            if is_a_label(words, text, start, stop):
                return None
            is_listed = words[0] in first_names() or words[0] in family_names()
            if len(words) == 1 and not is_listed and text.startswith(" the ", stop):
                return None
            if len(words) == 2 and beside_a_place(words):
                return None
            if is_an_abbreviation(words) and not CAPITALS.search(text):
                return None
            if len(words) > 1 and len(rest := [w for w in words if not like_a_word(w)]) == 1:
                at = text.find(rest[0], start)
                if is_an_identifier(text, at, at + len(rest[0]), signs):
                    return None
        if len(words) == 1 and is_an_identifier(text, start, stop, signs):
            return None
        return entity, start, stop


class _Pipeline(NamedTuple):
    """A spaCy pipeline that was loaded."""

    read: Reader
    labels: tuple[str, ...]
    version: str


def _of_spacy(model: str) -> _Pipeline:
    spacy = load("spacy")
    try:
        nlp = spacy.load(model, exclude=["lemmatizer", "attribute_ruler", "parser", "senter"])
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ConfigurationError(
            f"names.model {model!r} cannot be loaded ({type(error).__name__}). Install the "
            "spaCy pipeline, or set names.model to 'embedded' or null."
        ) from error
    if "ner" not in nlp.pipe_names:
        raise ConfigurationError(
            f"names.model {model!r} has no named entity recogniser (its parts: "
            f"{', '.join(nlp.pipe_names)}); choose another."
        )
    version = f"{nlp.meta.get('name', model)}-{nlp.meta.get('version', '0')}+{_READING}"
    return _Pipeline(_reader(nlp), tuple(nlp.pipe_labels.get("ner", ())), version)


def _reader(nlp: Any) -> Reader:
    """Return what asks a spaCy pipeline."""

    def read(texts: Sequence[str]) -> Iterator[list[Labelled]]:
        characters = sum(map(len, texts))
        at_once = max(1, _BATCH * _SEGMENT * len(texts) // max(1, characters))
        with nlp.memory_zone():  # else every word that ever came stays in its vocabulary
            for doc in nlp.pipe(texts, batch_size=at_once):
                yield [(ent.label_, ent.start_char, ent.end_char) for ent in doc.ents]

    return read
