"""Reading open, labelled text into one shape: a text and the spans of names in it.

The sets themselves are not part of Headrace; ``ATTRIBUTION.md`` names them. Only training reads them.
"""

import io
import random
import re
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from governance.names.words import first_names, last_names
from scripts.names_model.templates import filled

_PERSON = ("person", "per", "politician", "writer", "researcher", "scientist", "musicalartist")
_LOCATION = ("location", "loc", "country")
_ORGANIZATION = (
    "corporation", "group", "org", "organisation", "university", "politicalparty", "band",
)  # fmt: skip
LABELS = {
    **dict.fromkeys(_PERSON, "PERSON"),
    **dict.fromkeys(_LOCATION, "LOCATION"),
    **dict.fromkeys(_ORGANIZATION, "ORGANIZATION"),
}
_LOWER = re.compile(r"(?<![\w.])[a-z]{3,16}(?![\w(=])")
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}%'’”") | {
    "n't",
    "'s",
    "'m",
    "'re",
    "'ve",
    "'ll",
    "'d",
    "...",
}
_NO_SPACE_AFTER = frozenset("([{$#@“")
_NOT_CODE = frozenset({"site-packages", "test", "idlelib", "turtledemo", "pydoc_data", "lib2to3"})


class Example(NamedTuple):
    """A text with spans ``(start, end, label)``."""

    text: str
    spans: tuple[tuple[int, int, str], ...]


def columns(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Yield sentences of a file with one word and its BIO tag per line."""
    sentence: list[tuple[str, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if len(fields) < 2 or not fields[0].strip():
            if sentence:
                yield sentence
            sentence = []
        elif not fields[0].startswith("# "):
            sentence.append((fields[0].strip(), fields[-1].strip()))
    if sentence:
        yield sentence


def joined(sentence: list[tuple[str, str]]) -> Example:
    """Join words as people write them, with their spans; mail and user handles lose their tags."""
    text = ""
    spans: list[tuple[int, int, str]] = []
    glue = True
    for word, tag in sentence:
        if word.startswith("@"):
            tag = "O"
        if not glue and word not in _NO_SPACE_BEFORE:
            text += " "
        start = len(text)
        text += word
        glue = word in _NO_SPACE_AFTER
        position, _, kind = tag.partition("-")
        label = LABELS.get(kind.lower())
        if label is None:
            continue
        if position == "I" and spans and spans[-1][2] == label and start - spans[-1][1] <= 1:
            spans[-1] = (spans[-1][0], len(text), label)
        else:
            spans.append((start, len(text), label))
    return Example(text, tuple(spans))


def real(folder: Path) -> list[Example]:
    """Return all sentences of the folder's files."""
    files = sorted((*folder.glob("*.conll"), *folder.glob("*.txt"), *folder.glob("*.iob2")))
    return [joined(sentence) for file in files for sentence in columns(file)]


def code(draw: random.Random, count: int) -> list[Example]:
    """Return lines and comments of Python's own library: text full of capitals, free of people.

    They come from the library's packages; its modules are what false findings are measured on.
    """
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(library.glob("[a-z]*/*.py"))
    files = [file for file in files if file.parent.name not in _NOT_CODE]
    out: list[Example] = []
    while len(out) < count:
        source = draw.choice(files).read_text(encoding="utf-8", errors="replace")
        if draw.random() < 0.5:
            lines = source.splitlines()
            start = draw.randrange(max(1, len(lines) - 6))
            text = "\n".join(lines[start : start + draw.randrange(1, 6)]).strip()
        else:
            text = _comment(source, draw)
        if 10 < len(text) < 600 and "author" not in text.lower() and " by " not in text.lower():
            out.append(Example(text, ()))
    return out


def _comment(source: str, draw: random.Random) -> str:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return ""
    texts = [t.string for t in tokens if t.type in (tokenize.COMMENT, tokenize.STRING)]
    long_enough = [text.strip("#\"' ") for text in texts if len(text) > 40]
    return draw.choice(long_enough)[:400] if long_enough else ""


def gathered(folder: Path, *, seed: int = 1) -> list[Example]:
    """Return the whole training set: real sentences, code, templates for at most a third."""
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    sentences = real(folder)
    made = [Example(text, tuple(spans)) for text, spans in filled(draw, len(sentences) // 2)]
    plain = code(draw, len(sentences) // 3)
    lowered = [
        Example(example.text.lower(), example.spans)
        for example in draw.sample(sentences, len(sentences) // 20)
        if len(example.text.lower()) == len(example.text)
    ]
    out = [*sentences, *made, *plain, *lowered]
    draw.shuffle(out)
    return out


def common_words(folder: Path, *, least: int = 3) -> list[str]:
    """Return words that are written in lower case in the sets and in Python's library, sorted.

    Beside them a capital letter says little; names of the word lists are left out.
    """
    library = Path(sysconfig.get_paths()["stdlib"])
    counts: Counter[str] = Counter()
    for example in real(folder):
        counts.update(_LOWER.findall(example.text))
    for file in sorted(library.glob("*.py")):
        counts.update(_LOWER.findall(file.read_text(encoding="utf-8", errors="replace")))
    names = {name.lower() for name in (*first_names(), *last_names())}
    return sorted(word for word, count in counts.items() if count >= least and word not in names)
