"""Redaction by an engine: trajectories in pieces of even size, answers in order."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from governance.policy import PolicyBundle
from governance.spread import RedactionAnswer, RedactionRequest
from headrace.engine.opening import Engine
from headrace.engine.work import RedactionJob

_PIECES_PER_WORKER = 4
"""So that one long trajectory does not leave the other workers waiting."""
_SMALLEST_PIECE = 16
"""Messages below which sending costs more than it spares."""


class EngineSpread:
    """Redacts trajectories by an engine (see ``governance.spread.Spread``)."""

    def __init__(self, engine: Engine, bundle_name: str, bundle: PolicyBundle) -> None:
        """Redact by ``bundle``, which every node must have under ``bundle_name``."""
        self._engine = engine
        path = Path(bundle_name)
        self._name = str(path.absolute()) if path.is_dir() else bundle_name
        self._hash = bundle.content_hash

    def redact_all(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
        """See ``governance.spread.Spread``."""
        jobs = [
            RedactionJob(self._name, self._hash, piece)
            for piece in pieces(requests, _PIECES_PER_WORKER * self._engine.workers)
        ]
        return [answer for piece in self._engine.map("redact", jobs) for answer in piece]


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
