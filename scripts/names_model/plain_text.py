"""Text without people for training: documentation and source of installed packages, and translations."""

import json
import random
import re
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from governance.names.words import common, hand_written_first_names, last_names

_ENDINGS = (
    ".md", ".rst", ".txt", ".py", ".pyi", ".json", ".yaml", ".toml", ".js", ".html", ".css", ".h", ".c",
)  # fmt: skip
_FILES = 400
"""So many of each ending."""
_NAMES_SOMEBODY = re.compile(
    r"(?i:author|copyright|maintain|thank|©|\(c\)|credit|contribut|reported|written by|suggested|\bfrom: |signed|translat|uploader)|\bby [A-Z]|@"
)
_TWO_WORDS = re.compile(r"\b([A-Z][a-zà-ž]+) (?:[A-Z]\. )?([A-Z][a-zà-ž]+)\b")
_MESSAGE = re.compile(r'msgstr(?:\[\d\])? ((?:"(?:[^"\\]|\\.)*"\n?)+)')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OFTEN = ("de", "fr", "es", "it", "pt", "pl", "nl", "tr")


def of_packages(draw: random.Random, count: int) -> list[str]:
    """Return pieces of the files of installed packages, without those that name somebody."""
    folder = Path(sysconfig.get_paths()["purelib"])
    files: list[Path] = []
    for ending in _ENDINGS:
        found = sorted(folder.rglob(f"*{ending}"))
        draw.shuffle(found)
        files += found[:_FILES]
    texts = [file.read_text(encoding="utf-8", errors="replace")[:200_000] for file in files]
    texts = [text for text in texts if len(text) > 200]
    given, family = hand_written_first_names(), last_names()
    out: list[str] = []
    while len(out) < count:
        text = draw.choice(texts)
        start = text.rfind("\n", 0, draw.randrange(len(text))) + 1
        end = text.find("\n", min(len(text) - 1, start + draw.choice((200, 500, 900, 1300))))
        piece = text[start:end] if end > 0 else text[start : start + 900]
        if not 40 < len(piece) < 2500 or _NAMES_SOMEBODY.search(piece):
            continue
        pairs = _TWO_WORDS.findall(piece)
        if not any(a in given or (b in family and a.lower() not in common()) for a, b in pairs):
            out.append(piece)
    return out


def of_translations(draw: random.Random, folder: Path, count: int) -> list[str]:
    """Return messages of the translations below a folder, some of one language together."""
    messages = {
        language: [text for text in texts if len(text) > 12 and "@" not in text]
        for language, texts in translations(folder).items()
    }
    languages = sorted(language for language, texts in messages.items() if len(texts) > 40)
    out: list[str] = []
    while len(out) < count:
        language = draw.choice(_OFTEN if draw.random() < 0.6 else languages)
        joint = draw.choice(("\n", "\n- ", " ", "\n\n"))
        out.append(joint.join(draw.sample(messages[language], draw.randrange(1, 8))))
    return out


def translations(folder: Path) -> dict[str, list[str]]:
    """Return the messages of the ``.po`` and ``.json`` files below a folder, by language."""
    messages: defaultdict[str, list[str]] = defaultdict(list)
    for file in sorted(folder.rglob("*.po")):
        for match in _MESSAGE.findall(file.read_text(encoding="utf-8"))[1:]:
            text = "".join(_QUOTED.findall(match)).replace("\\n", "\n").replace('\\"', '"').strip()
            messages[file.parts[-3].split("_")[0]].append(text)
    for file in sorted(folder.rglob("*.json")):
        name = file.stem if file.parent.name == "translations" else file.parts[-3]
        held = json.loads(file.read_text(encoding="utf-8"))
        messages[re.split("[_-]", name)[0]] += _values(held)
    return dict(messages)


def _values(held: Any) -> Iterator[str]:
    """Yield the strings of a JSON value, without keys and without what is said of the file."""
    if isinstance(held, str):
        yield held
    elif isinstance(held, list):
        for value in held:
            yield from _values(value)
    elif isinstance(held, dict):
        for key, value in held.items():
            if key:
                yield from _values(value)
