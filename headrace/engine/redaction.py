"""Redaction and walks by an engine: trajectories in pieces of even size, answers in order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from governance.executor import InlineRedaction, RedactionAnswer, RedactionRequest
from governance.policy import PolicyBundle
from headrace.engine.cluster import Executor
from headrace.engine.work import ExtractionJob, RedactionJob
from lakehouse.lake import Lake
from train.substrate.iteration import SelectedPart, Walker
from train.substrate.spec import SubstrateSpec

if TYPE_CHECKING:
    from governance.redact.detection_cache import Findings
    from governance.redact.redactor import Redactor

_PIECES_PER_WORKER = 4
"""So that one long trajectory does not leave the other workers waiting."""
_SMALLEST_PIECE = 16
"""Messages below which sending costs more than it spares."""


class EngineDetection:
    """Looks into trajectories by an engine, and replaces here what was found.

    For policies that say ``keys: subject``: those keys never leave this machine. Finding is nearly
    all of the work, and what is found travels as positions and types, without values.
    """

    def __init__(
        self, engine: Executor, bundle_name: str, bundle: PolicyBundle, redactor: "Redactor"
    ) -> None:
        """Redact by ``bundle``, which every node must have under ``bundle_name``."""
        self._engine = engine
        self._bundle = BundleName.of(bundle_name, bundle)
        self._redactor = redactor

    def redact_all(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
        """See ``governance.executor.RedactionExecutor``."""
        jobs = self._bundle.jobs(requests, self._engine.workers)
        found = [one for piece in self._engine.map("find", jobs) for one in piece]
        return [replaced(self._redactor, *pair) for pair in zip(requests, found, strict=True)]


def replaced(
    redactor: "Redactor", request: RedactionRequest, found: "Findings | None"
) -> RedactionAnswer:
    """Return the messages redacted by what was found in them elsewhere; None when that failed."""
    if found is None:
        return None
    redactor.learn(found)
    return InlineRedaction(redactor).redact_all([request])[0]


class EngineRedaction:
    """Redacts trajectories by an engine (see ``governance.executor.RedactionExecutor``)."""

    def __init__(self, engine: Executor, bundle_name: str, bundle: PolicyBundle) -> None:
        """Redact by ``bundle``, which every node must have under ``bundle_name``."""
        self._engine = engine
        self._bundle = BundleName.of(bundle_name, bundle)

    def redact_all(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
        """See ``governance.executor.RedactionExecutor``."""
        jobs = self._bundle.jobs(requests, self._engine.workers)
        return [answer for piece in self._engine.map("redact", jobs) for answer in piece]


class BundleName(NamedTuple):
    """A bundle as the nodes find it."""

    name: str
    content_hash: str

    @classmethod
    def of(cls, name: str, bundle: PolicyBundle) -> "BundleName":
        path = Path(name)
        return cls(str(path.absolute()) if path.is_dir() else name, bundle.content_hash)

    def jobs(self, requests: Sequence[RedactionRequest], workers: int) -> list[RedactionJob]:
        """Return the requests cut into pieces of work."""
        cut = pieces(requests, _PIECES_PER_WORKER * workers)
        return [RedactionJob(self.name, self.content_hash, piece) for piece in cut]


def pieces(
    requests: Sequence[RedactionRequest], count: int
) -> Iterator[tuple[RedactionRequest, ...]]:
    """Yield the requests in order, cut into about ``count`` pieces of as many messages each."""
    size = max(_SMALLEST_PIECE, sum(len(one.messages) for one in requests) // max(1, count))
    piece: list[RedactionRequest] = []
    filled = 0
    for one in requests:
        piece.append(one)
        filled += len(one.messages)
        if filled >= size:
            yield tuple(piece)
            piece, filled = [], 0
    if piece:
        yield tuple(piece)


def walker_of(engine: Executor | None, lake: Lake) -> Walker | None:
    """Return the walker of an engine; None without one. Every node must reach the lake's path."""
    if engine is None:
        return None
    parts = engine.workers

    def walk(spec: SubstrateSpec, versions: Mapping[str, int]) -> Iterable[SelectedPart]:
        jobs = [
            ExtractionJob(
                lake=lake.location.root,
                options=dict(lake.location.options),
                spec=spec.model_dump(mode="json"),
                versions=dict(versions),
                part=part,
                parts=parts,
            )
            for part in range(parts)
        ]
        return engine.map("walk", jobs)

    return walk
