"""Near-duplicates among items, and items that hold what a model is examined on.

Items of one tenant are compared by their conversations without system prompts; several attempts at
one task stay beside each other, since learning compares them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from governance.near import EvaluationSet, NearDocument, NearIndex
from governance.near.texts import strings_in
from train.substrate.source import LearningSource, rows_by_id
from train.substrate.spec import EvaluationSpec, NearSpec
from train.types import Item
from trajectory.canonical import bytes_hash
from trajectory.errors import ConfigurationError
from trajectory.files import read_file

_MOST_CHARACTERS = 20_000


class RankedItem(Protocol):
    """Properties of an item by which the best representative is chosen."""

    @property
    def item(self) -> Item:
        """The item."""

    @property
    def reward(self) -> float:
        """How good it was."""


class ItemText(NamedTuple):
    """Text of an item's conversation, without system prompts."""

    asked: str
    answered: str
    """What is learned."""

    @property
    def whole(self) -> str:
        """All of it."""
        return f"{self.asked}\n{self.answered}"


def texts_of(source: LearningSource, items: Sequence[Item]) -> dict[str, ItemText]:
    """Return item id → what was said in its conversation."""
    names = (name for item in items for name in item.message_ids)
    messages = rows_by_id(source, "messages", "message_id", ("role", "parts"), names)
    said = {
        (tenant, name): "\n".join(strings_in(json.loads(parts)))
        for tenant, name, role, parts in messages.iter_rows()
        if role not in ("system", "developer")
    }
    return {item.item_id: _text_of(item, said) for item in items}


def _text_of(item: Item, said: Mapping[tuple[str, str], str]) -> ItemText:
    asked: list[str] = []
    answered: list[str] = []
    learned = frozenset(item.trained)
    for at, name in enumerate(item.message_ids):
        if text := said.get((item.tenant_id, name)):
            (answered if at in learned else asked).append(text)
    return ItemText("\n".join(asked)[:_MOST_CHARACTERS], "\n".join(answered)[:_MOST_CHARACTERS])


def near_duplicates[T: RankedItem](
    scored: Sequence[T], texts: Mapping[str, ItemText], spec: NearSpec
) -> frozenset[str]:
    """Return the ids of items that are near to a better one of their tenant."""
    gone: set[str] = set()
    tenants: dict[str, list[T]] = {}
    for entry in scored:
        tenants.setdefault(entry.item.tenant_id, []).append(entry)
    for entries in tenants.values():
        index = NearIndex(threshold=spec.threshold, answers=True)
        best_first = sorted(entries, key=lambda entry: _rank(entry, texts, spec))
        matches = index.add(
            [
                NearDocument(one.item.item_id, text.asked, (one.item.group_id,), text.answered)
                for one in best_first
                if any(text := texts[one.item.item_id])
            ]
        )
        gone.update(match.document_id for match in matches)
    return frozenset(gone)


def _rank(entry: RankedItem, texts: Mapping[str, ItemText], spec: NearSpec) -> tuple[Any, ...]:
    """Sort the best representative first; equal ones by time and name, so that it is the same again."""
    moment, name = entry.item.started_at.timestamp(), entry.item.item_id
    match spec.keep:
        case "rewarded":
            return (-entry.reward, moment, name)
        case "latest":
            return (-moment, name)
        case "longest":
            return (-len(texts[name].whole), moment, name)
        case _:
            return (moment, name)


class EvaluationTexts:
    """The evaluation sets of a substrate document, read once."""

    def __init__(self, spec: EvaluationSpec, base: Path) -> None:
        """Read the files, relative to ``base``.

        Raises:
            ConfigurationError: a file is not there, or a line of it holds no text.
        """
        self._least = spec.least
        self._set = EvaluationSet(words=spec.words)
        self.hashes: dict[str, str] = {}
        for name in spec.files:
            try:
                data = read_file(base / name)
            except OSError as error:
                raise ConfigurationError(
                    f"evaluation set {name}: cannot be read ({error.strerror})"
                ) from None
            self.hashes[name] = bytes_hash(data)
            for number, text in enumerate(_examples(name, data), start=1):
                self._set.add(f"{name}:{number}", text)

    def holds(self, text: str) -> bool:
        """Whether a text holds so much of an examined one that it may not be learned from."""
        return bool(self._set.overlaps(text, least=self._least))


def _examples(name: str, data: bytes) -> Iterator[str]:
    """Yield the texts of a file: each line's strings where it is JSON, else the line."""
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigurationError(f"evaluation set {name}: not UTF-8 text") from None
    for line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            value = line
        yield value if isinstance(value, str) else "\n".join(strings_in(value))
