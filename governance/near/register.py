"""Near-duplicates while a batch is judged: found before rows are made, kept once they are stored."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from governance.near.features import NearDocument
from governance.near.index import NearComparison, NearIndex, NearMatch
from governance.near.texts import MessageText, answer_text, conversation_text
from governance.passes.calls import RedactedCall
from governance.policy.dedup import NearDuplicates
from trajectory.errors import IntegrityError
from trajectory.files import make_folders, replace_file

COMPARED_ROLES = ("agent", "auxiliary")
"""Attempts that were given up and compactions stand for nothing, or for others."""
NAMED_LATER = "openai.responses"
"""The dialect in which a later call may name this one instead of sending the conversation again."""
_NOTE = "about.json"
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class NearStep:
    """A step as it is compared."""

    tenant_id: str
    app_id: str
    step_id: str
    groups: tuple[str, ...]
    """Its trajectory and its task: steps that share one are never compared."""
    started_at: datetime
    conversation: str = field(repr=False)
    answer: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NearMatches:
    """What a batch's steps are near to."""

    left_out: Mapping[str, NearMatch]
    """Step of the batch → the better one."""
    beaten: Mapping[str, NearMatch]
    """Stored step → the better one of the batch."""


class NearRegister:
    """The indexes of one policy, one for each tenant (and application, where policy says so)."""

    def __init__(self, spec: NearDuplicates, folder: Path | None = None) -> None:
        """Use the indexes in ``folder``; None keeps them in memory."""
        self._spec = spec
        self._folder = folder
        self._indexes: dict[str, NearIndex] = {}
        self._pending: list[tuple[NearIndex, NearComparison]] = []

    def find(self, steps: Sequence[NearStep]) -> NearMatches:
        """Compare steps with what is kept and with each other; nothing is kept yet."""
        left_out: dict[str, NearMatch] = {}
        beaten: dict[str, NearMatch] = {}
        self._pending = []
        for name, group in self._by_scope(steps).items():
            index = self._index(name)
            compared = index.compare([self._document(step) for step in group])
            self._pending.append((index, compared))
            left_out |= {match.document_id: match for match in compared.matches.values()}
            beaten |= compared.beaten
        return NearMatches(left_out, beaten)

    def keep(self, step_ids: Collection[str], decided_at: datetime) -> None:
        """Keep those steps of the last comparison that are stored now.

        Args:
            step_ids: the steps that are stored.
            decided_at: the moment of their decisions; everything decided until then is here.
        """
        for index, compared in self._pending:
            index.keep(compared, step_ids)
        self._pending = []
        if self._folder is not None:
            _write_note(self._folder, self._spec, decided_at)

    @property
    def seen(self) -> datetime:
        """The moment until which every decided step is here; long ago for an empty register."""
        if self._folder is None or not (self._folder / _NOTE).exists():
            return _NEVER
        return _read_note(self._folder)[1]

    @classmethod
    def reopen(cls, folder: Path) -> "NearRegister":
        """Open the register in ``folder`` as it was written.

        Raises:
            IntegrityError: it cannot be read.
        """
        return cls(_read_note(folder)[0], folder)

    def names(self) -> Iterator[list[str]]:
        """Yield the steps of each index on disk."""
        for index in self._on_disk():
            yield index.names()

    def forget(self, step_ids: Collection[str]) -> int:
        """Take steps out of all indexes on disk; return how many there were."""
        return sum(index.forget(step_ids) for index in self._on_disk())

    def _on_disk(self) -> Iterator[NearIndex]:
        if self._folder is not None and self._folder.exists():
            for path in sorted(self._folder.iterdir()):
                if path.is_dir():
                    yield self._index(path.name)

    def _by_scope(self, steps: Iterable[NearStep]) -> dict[str, list[NearStep]]:
        groups: dict[str, list[NearStep]] = defaultdict(list)
        for step in steps:
            of = (step.tenant_id, step.app_id if self._spec.scope == "app" else "")
            groups[blake2b("\x1f".join(of).encode(), digest_size=12).hexdigest()].append(step)
        for group in groups.values():
            group.sort(key=lambda step: (-self._rank(step), step.started_at, step.step_id))
        return groups

    def _document(self, step: NearStep) -> NearDocument:
        return NearDocument(
            step.step_id, step.conversation, step.groups, step.answer, self._rank(step)
        )

    def _rank(self, step: NearStep) -> float:
        match self._spec.keep:
            case "latest":
                return step.started_at.timestamp()
            case "longest":
                return float(len(step.conversation) + len(step.answer))
            case _:
                return 0.0

    def _index(self, name: str) -> NearIndex:
        if name not in self._indexes:
            self._indexes[name] = NearIndex(
                self._folder / name if self._folder is not None else None,
                threshold=self._spec.threshold,
                shingle=self._spec.shingle,
                answers=True,
            )
        return self._indexes[name]


def near_step(one: RedactedCall) -> NearStep | None:
    """Return a call as it is compared; None for what is neither original nor repetition.

    A call that a later one may lean on by name alone is never left out, nor one that leans so.
    """
    placed, clean = one.placed, one.clean
    if clean.output is None or placed.role_in_graph not in COMPARED_ROLES:
        return None
    if placed.context_is_delta or placed.call.dialect == NAMED_LATER:
        return None
    said = (MessageText(message.message.role, message.parts) for message in reversed(clean.context))
    exchange = placed.call.exchange
    return NearStep(
        tenant_id=exchange.client.tenant_id,
        app_id=exchange.client.app_id,
        step_id=one.step_id,
        groups=tuple(filter(None, (placed.trajectory_id, placed.group_id))),
        started_at=exchange.started_at,
        conversation=conversation_text(said),
        answer=answer_text(MessageText("assistant", clean.output.parts)),
    )


def _write_note(folder: Path, spec: NearDuplicates, decided_at: datetime) -> None:
    make_folders(folder, 0o700)
    said = {"policy": spec.model_dump(mode="json"), "decided_at": decided_at.isoformat()}
    replace_file(folder / _NOTE, json.dumps(said).encode())


def _read_note(folder: Path) -> tuple[NearDuplicates, datetime]:
    try:
        said = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        decided_at = datetime.fromisoformat(said["decided_at"])
        return NearDuplicates.model_validate(said["policy"]), decided_at
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(
            f"near index {folder.name}: cannot be read ({type(error).__name__}); delete the "
            "index's folder and build it again"
        ) from None
